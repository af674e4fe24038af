"""The picture of a forecast: spectrum and target power with their power laws, and the loss to come."""

from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.plotting import COLOURS, log_losses, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.networks.forecast_report import ForecastReport


def picture(report: "ForecastReport") -> "Figure":
    """Eigenvalues and the targets' power in all weaker modes against k, and the lazy loss with both forecasts.

    Parameters
    ----------
    report
        The forecast.
    """
    figure, axes = new_figure(3, width=4.6)
    modes = np.arange(1, report.eigenvalues.shape[1] + 1)
    tails = np.cumsum(report.power[:, ::-1], axis=1)[:, ::-1]
    spectra = (
        ("eigenvalue, λ_k", report.eigenvalues, "k^{-α}", -report.capacity, (report.first_mode, report.last_mode)),
        ("target power in modes ≥ k", tails, "k^{-αβ}", -report.capacity * report.source,
         (report.power_first_mode, report.power_last_mode)),
    )  # fmt: skip
    for ax, (label, curves, symbol, slope, window) in zip(axes[:2], spectra, strict=True):
        for row, values in enumerate(curves):
            name = "measured" if row == 0 else None
            ax.plot(modes, values, ".", markersize=3, color=COLOURS[0], alpha=0.6, label=name)
        if np.isfinite(slope):
            _draw_law(ax, modes, np.exp(np.log(curves).mean(0)), window, slope, f"${symbol}$, exponent {slope:.2f}")
        if np.isfinite(window[1]):
            ax.axvspan(*window, color=COLOURS[4], alpha=0.15, linewidth=0, label="fitted modes")
        ax.set(xscale="log", xlabel="mode, k", ylabel=label)
    _draw_losses(axes[2], report)
    for ax in axes:
        log_losses(ax)
        ax.legend(fontsize="small")
    # The last modes of a kernel are rounding errors, which would compress the rest.
    for ax, (_, curves, *_) in zip(axes[:2], spectra, strict=True):
        ax.set_ylim(bottom=max(ax.get_ylim()[0], curves[:, int(0.9 * modes.size)].min() / 10))
    figure.suptitle(
        f"capacity α = {report.capacity:.2f} ± {report.capacity_error:.2f}, "
        f"source β = {report.source:.2f} ± {report.source_error:.2f}"
        + (f": a {report.phase} task" if report.power_law else ": no power law")
    )
    return figure


def _draw_law(ax: Any, x: np.ndarray, y: np.ndarray, window: tuple[float, float], slope: float, label: str) -> None:
    """A power law through the middle of the curve in its window, drawn a little beyond it."""
    inside = (x >= window[0]) & (x <= window[1]) & (y > 0)
    if inside.any():
        centre, height = np.log(x[inside]).mean(), np.log(y[inside]).mean()
        ends = np.array([window[0] / 2, window[1] * 2])
        ax.plot(ends, np.exp(height + slope * (np.log(ends) - centre)), color=COLOURS[1], label=label)


def _draw_losses(ax: Any, report: "ForecastReport") -> None:
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
        first = np.interp(begin, times, curve)
        for regime, colour in (("lazy", COLOURS[1]), ("rich", COLOURS[2])):
            found = report.exponent("time", regime)
            middle, *ends = (first * (inside / begin) ** -power for power in found)
            ax.fill_between(inside, *ends, color=colour, alpha=0.2, linewidth=0)
            ax.plot(inside, middle, "--", color=colour, label=f"{regime}, $t^{{-{found.value:.2f}}}$")
    ax.set(xscale="log", xlabel="learning rate × steps, t", ylabel="training loss")
