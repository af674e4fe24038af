"""Eq. 12: the printed grokking time is the formal limit of a vanishing threshold; it does not diverge at λ = 1."""

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import FLOW, closed_form_times
from solvable.plotting import COLOURS, new_figure

# The accuracy at which the paper's own threshold, a loss of ε / 4, is reached.
ACCURACY = 0.9544997361036416


def printed_delay(aspect_ratio: float) -> float:
    """Eq. 12 as printed."""
    root = np.sqrt(aspect_ratio)
    return float(np.log(1 / (1 - root)) / (2 * FLOW.learning_rate * (1 - root) ** 2))


def reproduce(scale: Scale) -> Reproduction:
    thresholds = np.array([1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
    ratios = np.array([0.1, 0.5, 0.9, 0.99])
    delay = LinearEstimator(aspect_ratio=0.9).phase_diagram(ACCURACY, FLOW, aspect_ratio=ratios, threshold=thresholds)
    printed = xr.DataArray([printed_delay(ratio) for ratio in ratios], dims="aspect_ratio")
    over_exact = (printed / delay.delay).assign_attrs(long_name="eq. 12 over the exact delay", units="1")
    figure, (panel,) = new_figure(width=6.0)
    for colour, ratio in zip(COLOURS, ratios, strict=False):
        panel.plot(thresholds, over_exact.sel(aspect_ratio=ratio), "o-", color=colour, label=f"λ = {ratio:g}")
    panel.axhline(1, color="black", linewidth=0.8)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("threshold, ε")
    panel.set_ylabel("eq. 12 as printed over the exact delay")
    panel.legend()
    claims = []
    for ratio in ratios:
        model = LinearEstimator(aspect_ratio=float(ratio))
        train, test = closed_form_times(model.aspect_ratio, model.threshold / 4)
        claims.append(
            Claim(
                f"λ = {ratio:g}, ε = 0.001: grokking delay (steps)",
                float(model.grokking_time(ACCURACY, FLOW).delay),
                test - train,
                1e-8,
                "Bessel and Marcum functions",
                relative=True,
                printed=printed_delay(float(ratio)),
            )
        )
    return Reproduction({"delay": delay.assign(printed_over_exact=over_exact)}, figure, claims + _no_divergence())


def _no_divergence() -> list[Claim]:
    """At λ = 1 the test loss falls as 1/sqrt(pi s): the time is finite. It ends at λ = 1 / (1 - ε/4)."""
    model = LinearEstimator(aspect_ratio=1.0)
    return [
        Claim(
            "λ = 1: time to a test accuracy of 95.45 % (steps)",
            float(model.grokking_time(ACCURACY, FLOW).test_time),
            4 / (np.pi * FLOW.learning_rate * model.threshold**2),
            1e-6,
            "next order of the Bessel functions, 1 / (8 s) with s = 5e6",
            relative=True,
            printed="infinite",
        ),
        Claim(
            "aspect ratio at which the test accuracy is lost",
            float(model.critical_aspect_ratio(ACCURACY).critical_aspect_ratio),
            1 / (1 - model.threshold / 4),
            1e-9,
            "1 - 1/λ = ε / 4; the accuracy is given to 16 digits",
            relative=True,
            printed=1.0,
        ),
    ]
