"""The three panels of the feature metrics."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.diagnostics.report import FeatureReport


def three_panels(report: "FeatureReport") -> "Figure":
    """Cumulative quality, cumulative utilisation and intensity against k on log axes; the number of outputs marked."""
    from solvable.plotting import COLOURS, new_figure

    figure, axes = new_figure(3, width=4.4)
    modes = np.arange(1, report.rank + 1)
    panels = (
        ("cumulative quality, Π*(k)", report.cumulative_quality),
        ("cumulative utilisation, Π̂(k)", report.cumulative_utilisation),
        ("intensity, ρ_k / ρ_1", report.intensity / report.intensity[0]),
    )
    for colour, ax, (name, values) in zip(COLOURS, axes, panels, strict=False):
        positive = values > 0
        ax.plot(modes[positive], values[positive], color=colour, marker="o", markersize=3, linewidth=1.4)
        ax.axvline(report.outputs, color="0.4", linestyle=":", linewidth=1.2, label=f"k = C = {report.outputs}")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("feature, k")
        ax.set_ylabel(name)
        ax.legend(fontsize="small")
    for ax in axes[:2]:
        ax.axhline(1, color="0.4", linewidth=0.8)
    training = f"training: {report.training_regime or 'not measured'}"
    distance = f"κ_CKA = {report.mp_distance:.3g} (threshold {report.threshold:g})"
    figure.suptitle(f"features: {report.regime}, {distance}; {training}")
    return figure
