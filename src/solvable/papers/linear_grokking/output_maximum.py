"""Output dimension of the longest grokking delay, for seven aspect ratios (the paper says about 50 at λ = 0.9)."""

from functools import partial

import numpy as np
from scipy.special import gammaincinv

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import FLOW, closed_form_times
from solvable.plotting import COLOURS, new_figure, set_axis

ASPECT_RATIOS = (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95)


def reproduce(scale: Scale) -> Reproduction:
    outputs = np.arange(1, 321)
    diagram = LinearEstimator().phase_diagram(training=FLOW, aspect_ratio=ASPECT_RATIOS, outputs=outputs)
    figure, (panel,) = new_figure(width=6.4)
    claims = []
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=True):
        delay = diagram.delay.sel(aspect_ratio=ratio)
        best = int(delay.idxmax("outputs"))
        panel.plot(outputs, delay / delay.max(), color=colour, label=f"λ = {ratio:g}: {best}")
        panel.axvline(best, color=colour, linewidth=0.6, linestyle=":")
        nearby = range(max(1, best - 3), best + 4)
        expected = max(nearby, key=partial(_closed_form_delay, ratio))
        claims.append(
            Claim(
                f"λ = {ratio:g}: delay is longest at this many outputs",
                best,
                expected,
                0,
                "a whole number; expected from Bessel and Marcum functions",
                printed=50 if ratio == 0.9 else None,
            )
        )
    panel.set_xscale("log")
    set_axis(panel, "x", diagram.outputs, log=True)
    panel.set_ylabel("grokking delay over its maximum")
    panel.legend(title="maximum at")
    return Reproduction({"delay": diagram}, figure, claims)


def _closed_form_delay(aspect_ratio: float, outputs: int) -> float:
    """Several outputs rescale time and loss of a single one (eq. 13)."""
    threshold = outputs * 1e-3 / (2 * gammaincinv(outputs / 2, 0.95))
    train, test = closed_form_times(aspect_ratio, threshold * outputs)
    return (test - train) * outputs
