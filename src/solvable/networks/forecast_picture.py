"""The three panels of a forecast."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.networks.forecast_report import ForecastReport


def three_panels(report: "ForecastReport") -> "Figure":
    """Eigenvalues and the targets' power in all weaker modes against k, and the lazy loss against time."""
    from solvable.plotting import COLOURS, log_losses, new_figure

    figure, (left, middle, right) = new_figure(3, width=4.6)
    ranks = np.arange(1, report.eigenvalues.shape[1] + 1)
    tails = np.cumsum(report.power[:, ::-1], axis=1)[:, ::-1]
    known = report.power_law
    slopes = (-report.capacity, -report.capacity * report.source)
    windows = ((report.first_mode, report.last_mode), (report.power_first_mode, report.power_last_mode))
    names = ("eigenvalue, λ_k", "target power in modes ≥ k")
    for ax, curves, slope, window, name in zip(
        (left, middle), (report.eigenvalues, tails), slopes, windows, names, strict=True
    ):
        for row, values in enumerate(curves):
            label = "measured" if row == 0 else None
            ax.plot(ranks, values, ".", markersize=3, color=COLOURS[0], alpha=0.6, label=label)
        if np.isfinite(slope):
            symbol = "k^{-α}" if ax is left else "k^{-αβ}"
            _guide(ax, ranks, np.exp(np.log(curves).mean(0)), window, slope, f"${symbol}$, exponent {slope:.2f}")
        if np.isfinite(window[1]):
            ax.axvspan(*window, color=COLOURS[4], alpha=0.15, linewidth=0, label="fitted modes")
        ax.set_xscale("log")
        ax.set(xlabel="mode, k", ylabel=name)
    _loss_panel(right, report)
    for ax in (left, middle, right):
        log_losses(ax)
        ax.legend(fontsize="small")
    # The last modes of a kernel are rounding and would push the rest together.
    for ax, curves in ((left, report.eigenvalues), (middle, tails)):
        ax.set_ylim(bottom=max(ax.get_ylim()[0], curves[:, int(0.9 * ranks.size)].min() / 10))
    figure.suptitle(
        f"capacity α = {report.capacity:.2f} ± {report.capacity_error:.2f}, "
        f"source β = {report.source:.2f} ± {report.source_error:.2f}"
        + (f": a {report.phase} task" if known else ": no power law")
    )
    return figure


def _guide(ax: Any, x: np.ndarray, y: np.ndarray, window: tuple[float, float], slope: float, label: str) -> None:
    """A straight line through the middle of the curve in its window, drawn a little beyond it."""
    from solvable.plotting import COLOURS

    inside = (x >= window[0]) & (x <= window[1]) & (y > 0)
    if inside.any():
        centre, height = np.log(x[inside]).mean(), np.log(y[inside]).mean()
        ends = np.array([window[0] / 2, window[1] * 2])
        ax.plot(ends, np.exp(height + slope * (np.log(ends) - centre)), color=COLOURS[1], label=label)


def _loss_panel(ax: Any, report: "ForecastReport") -> None:
    from solvable.plotting import COLOURS

    begin, end = report.times
    usable = np.isfinite(begin) and end > begin
    if not usable:
        begin, end = 1 / float(report.eigenvalues.max()), 1 / float(report.eigenvalues.min())
    times = np.geomspace(begin / 30, end * 3, 121)
    curve = report.lazy_curve(times).train_loss.values
    ax.plot(times, curve, color=COLOURS[0], label="lazy, from this kernel")
    if report.source > 0 and usable:
        ax.axvspan(begin, end, color=COLOURS[4], alpha=0.15, linewidth=0, label="fitted modes are learned")
        inside = times[(times >= begin) & (times <= 3 * end)]
        start = np.interp(begin, times, curve)
        for regime, colour in (("lazy", COLOURS[1]), ("rich", COLOURS[2])):
            found = report.exponent("time", regime)
            ends = [start * (inside / begin) ** -power for power in (found.low, found.high)]
            ax.fill_between(inside, *ends, color=colour, alpha=0.2, linewidth=0)
            middle = start * (inside / begin) ** -found.value
            ax.plot(inside, middle, "--", color=colour, label=f"{regime}, $t^{{-{found.value:.2f}}}$")
    ax.set_xscale("log")
    ax.set(xlabel="learning rate × steps, t", ylabel="training loss")
