"""Output dimension of the longest grokking delay, for seven aspect ratios (the paper says about 50 at λ = 0.9)."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.special import gammaincinv

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import FLOW, closed_form_times
from solvable.plotting import COLOURS, new_figure, set_axis

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASPECT_RATIOS = (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The delay over aspect ratio and number of outputs."""
    outputs = np.arange(1, 321)
    return {"delay": LinearEstimator().phase_diagram(training=FLOW, aspect_ratio=ASPECT_RATIOS, outputs=outputs)}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The number of outputs at the maximum, by closed forms."""
    made = []
    for ratio in ASPECT_RATIOS:
        best = _maximum(data, ratio)
        nearby = range(max(1, best - 3), best + 4)
        made.append(
            Claim(
                f"λ = {ratio:g}: delay is longest at this many outputs",
                best,
                max(nearby, key=partial(_closed_form_delay, ratio)),
                0,
                "a whole number; expected from Bessel and Marcum functions",
                printed=50 if ratio == 0.9 else None,
            )
        )
    return made


def _maximum(data: Mapping[str, xr.Dataset], ratio: float) -> int:
    return int(data["delay"].delay.sel(aspect_ratio=ratio).idxmax("outputs"))


def _closed_form_delay(aspect_ratio: float, outputs: int) -> float:
    """Several outputs rescale time and loss of a single one (eq. 13)."""
    threshold = outputs * 1e-3 / (2 * gammaincinv(outputs / 2, 0.95))
    train, test = closed_form_times(aspect_ratio, threshold * outputs)
    return (test - train) * outputs


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The delay over its maximum, against the number of outputs."""
    figure, (panel,) = new_figure(width=6.4)
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=True):
        delay, best = data["delay"].delay.sel(aspect_ratio=ratio), _maximum(data, ratio)
        panel.plot(delay.outputs, delay / delay.max(), color=colour, label=f"λ = {ratio:g}: {best}")
        panel.axvline(best, color=colour, linewidth=0.6, linestyle=":")
    panel.set_xscale("log")
    set_axis(panel, "x", data["delay"].outputs, log=True)
    panel.set_ylabel("grokking delay over its maximum")
    panel.legend(title="maximum at")
    return figure
