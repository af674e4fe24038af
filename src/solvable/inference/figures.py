"""The figure of an inference report."""

from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.inference.prediction import steps_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.inference.report import InferenceReport

_MOST_RUNS, _MOST_PROFILES = 6, 6


def draw_report(report: "InferenceReport", at: Any = "10x") -> "Figure":
    """Curves with fit and forecast, residuals, and profiles.

    Parameters
    ----------
    report
        The report.
    at
        How far to draw the forecast; None for none.
    """
    from solvable.plotting import log_losses, new_figure

    figure, axes = new_figure(3 if report.profiles else 2, width=4.8)
    _draw_curves(axes[0], report, at)
    _draw_residuals(axes[1], report)
    if report.profiles:
        _draw_profiles(axes[2], report)
    log_losses(axes[0])
    for ax in axes:
        ax.legend(fontsize="small")
    flaw = ": does not fit" if report.misfit.found else ""
    figure.suptitle(f"{report.law}{flaw}")
    return figure


def _draw_curves(ax: Any, report: "InferenceReport", at: Any) -> None:
    from solvable.plotting import COLOURS

    for place, curve in enumerate(report.curves[:_MOST_RUNS]):
        colour, run = COLOURS[place % len(COLOURS)], report.runs[place]
        ax.plot(curve.time, curve.loss, ".", markersize=3, color=colour, alpha=0.7, label=run.name)
        ax.plot(curve.time, curve.fit, color=colour)
        ax.fill_between(curve.time, curve.fit_low, curve.fit_high, color=colour, alpha=0.25, linewidth=0)
        if at is None:
            continue
        last = steps_of(at, run)[-1]
        try:
            ahead = report.predict(np.geomspace(run.steps[-1], last, 40) if last > run.steps[-1] else at, run=run.name)
        except ValueError:
            continue
        ax.plot(ahead.time, ahead.loss, "--", color=colour)
        ax.fill_between(ahead.time, ahead.low95, ahead.high95, color=colour, alpha=0.12, linewidth=0)
    ax.set(xscale="log", xlabel="step", ylabel="loss", title="data, fit and forecast (95 %)")


def _draw_residuals(ax: Any, report: "InferenceReport") -> None:
    from solvable.plotting import COLOURS

    for place, curve in enumerate(report.curves[:_MOST_RUNS]):
        colour = COLOURS[place % len(COLOURS)]
        ax.plot(
            curve.time, 100 * curve.residual, ".-", markersize=3, linewidth=0.5, color=colour, label=curve.attrs["run"]
        )
    for sign in (-1, 1):
        ax.axhline(sign * 196 * report.noise.deviation, color="grey", linewidth=0.8, linestyle=":")
    ax.axhline(0, color="grey", linewidth=0.8)
    ax.set(xscale="log", xlabel="step", ylabel="measured over fitted loss, minus 1 (%)", title="residuals")


def _draw_profiles(ax: Any, report: "InferenceReport") -> None:
    from solvable.plotting import COLOURS

    space = {one.label: one.parameter for one in report.fit.problem.space}
    shown = [label for label in report.profiles if label in space][:_MOST_PROFILES]
    for number, label in enumerate(shown):
        one, (low, high) = report.profiles[label], space[label].box
        place = [(space[label].inward(float(value)) - low) / (high - low) for value in one.values]
        mark = "" if one.identified == "yes" else " (bound)" if one.identified == "bound" else " (not determined)"
        ax.plot(place, one.deviances, ".-", color=COLOURS[number % len(COLOURS)], label=label + mark)
    limit = next(iter(report.profiles.values())).thresholds[-1]
    ax.axhline(limit, color="grey", linestyle=":", linewidth=0.8)
    ax.text(0.01, limit * 1.03, "95 %", color="grey", fontsize="small")
    ax.set(xlim=(-0.02, 1.02), ylim=(0, 3 * limit), xlabel="place in the searched box (0 … 1)")
    ax.set(ylabel="rise of the deviance", title="profile likelihood")
