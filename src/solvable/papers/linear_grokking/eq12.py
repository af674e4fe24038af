"""Eq. 12: the printed grokking time is the formal limit of a vanishing threshold; it does not diverge at λ = 1."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import FLOW, closed_form_times
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The accuracy at which the paper's own threshold, a loss of ε / 4, is reached.
ACCURACY = 0.9544997361036416
ASPECT_RATIOS = (0.1, 0.5, 0.9, 0.99)


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Delays over aspect ratio and threshold, and the times at λ = 1, where eq. 12 diverges."""
    thresholds = np.array([1e-3, 1e-6, 1e-9, 1e-12, 1e-15])
    ratios = np.array(ASPECT_RATIOS)
    delay = LinearEstimator(aspect_ratio=0.9).phase_diagram(ACCURACY, FLOW, aspect_ratio=ratios, threshold=thresholds)
    printed = xr.DataArray([printed_delay(ratio) for ratio in ratios], dims="aspect_ratio")
    over_exact = (printed / delay.delay).assign_attrs(long_name="eq. 12 over the exact delay", units="1")
    square = LinearEstimator(aspect_ratio=1.0)
    times = xr.merge(
        [
            LinearEstimator().phase_diagram(ACCURACY, FLOW, aspect_ratio=ratios)[["delay"]],
            square.grokking_time(ACCURACY, FLOW)[["test_time"]],
            square.critical_aspect_ratio(ACCURACY),
        ],
        combine_attrs="drop_conflicts",
    )
    return {"delay": delay.assign(printed_over_exact=over_exact), "times": times}


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The delays by Bessel and Marcum functions, and at λ = 1 by the late-time law of the test loss."""
    times, threshold = data["times"], LinearEstimator().threshold
    made = []
    for ratio in ASPECT_RATIOS:
        train, test = closed_form_times(ratio, threshold / 4)
        made.append(
            Claim(
                f"λ = {ratio:g}, ε = 0.001: grokking delay (steps)",
                float(times.delay.sel(aspect_ratio=ratio)),
                test - train,
                1e-8,
                "Bessel and Marcum functions",
                relative=True,
                printed=printed_delay(ratio),
            )
        )
    return [*made, *_no_divergence(times, threshold)]


def _no_divergence(times: xr.Dataset, threshold: float) -> list[Claim]:
    """At λ = 1 the test loss falls as 1/sqrt(pi s): the time is finite. It ends at λ = 1 / (1 - ε/4)."""
    return [
        Claim(
            "λ = 1: time to a test accuracy of 95.45 % (steps)",
            float(times.test_time),
            4 / (np.pi * FLOW.learning_rate * threshold**2),
            1e-6,
            "next order of the Bessel functions, 1 / (8 s) with s = 5e6",
            relative=True,
            printed="infinite",
        ),
        Claim(
            "aspect ratio at which the test accuracy is lost",
            float(times.critical_aspect_ratio),
            1 / (1 - threshold / 4),
            1e-9,
            "1 - 1/λ = ε / 4; the accuracy is given to 16 digits",
            relative=True,
            printed=1.0,
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Eq. 12 over the exact delay, against the threshold."""
    over_exact = data["delay"].printed_over_exact
    figure, (panel,) = new_figure(width=6.0)
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=False):
        values = over_exact.sel(aspect_ratio=ratio)
        panel.plot(values.threshold, values, "o-", color=colour, label=f"λ = {ratio:g}")
    panel.axhline(1, color="black", linewidth=0.8)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("threshold, ε")
    panel.set_ylabel("eq. 12 as printed over the exact delay")
    panel.legend()
    return figure


def printed_delay(aspect_ratio: float) -> float:
    """Eq. 12 as printed."""
    root = np.sqrt(aspect_ratio)
    return float(np.log(1 / (1 - root)) / (2 * FLOW.learning_rate * (1 - root) ** 2))
