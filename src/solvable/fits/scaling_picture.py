"""The picture of a scaling law."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.fits.scaling_report import ScalingLawReport


def draw(report: "ScalingLawReport") -> "Figure":
    """Loss over compute with forecast, residuals over the fitted loss, and draws of the exponents."""
    from solvable.plotting import COLOURS, new_figure

    figure, axes = new_figure(3, width=4.6)
    table = report.table
    fitted = table.loss / np.exp(report.residuals)
    _draw_forecast(axes[0], report)
    axes[1].axhline(0, color="0.4", linewidth=0.8)
    for factor, alpha in ((1.14, 0.25), (2.78, 0.12)):
        axes[1].axhspan(-100 * factor * report.scale, 100 * factor * report.scale, color=COLOURS[5], alpha=alpha, lw=0)
    axes[1].plot(fitted, 100 * np.expm1(report.residuals), ".", color=COLOURS[0])
    axes[1].set(xscale="log", xlabel="fitted loss", ylabel="residual (% of the loss)")
    _plain_ticks(axes[1].xaxis)
    terms = int(table.form.floor) + len(table.form.powers)
    exponents = report.draws[:, terms : terms + len(table.form.exponents)]
    if exponents.shape[1] == 2:
        axes[2].plot(*exponents.T, ".", markersize=2, color=COLOURS[0], alpha=0.5, label=f"{report.intervals} draws")
        axes[2].plot(*report.theta[terms : terms + 2], "o", color=COLOURS[1], label="best fit")
        axes[2].set(xlabel="exponent of parameters, α", ylabel="exponent of tokens, β")
        axes[2].legend(fontsize="small")
    else:
        axes[2].hist(exponents[:, 0], bins=30, color=COLOURS[5])
        axes[2].axvline(report.theta[terms], color=COLOURS[1], label="best fit")
        axes[2].set(xlabel="exponent, α", ylabel="draws")
        axes[2].legend(fontsize="small")
    numbers = ", ".join(f"{name} = {report[name]:.3g}" for name in report.names)
    figure.suptitle(numbers)
    return figure


def _draw_forecast(ax: Any, report: "ScalingLawReport") -> None:
    """Measured losses over compute, and the compute-optimal loss a decade beyond them with its interval."""
    from solvable.plotting import COLOURS

    table = report.table
    compute = table.values.get("compute")
    if compute is None:
        compute = table.values[table.form.quantities[0]]
    ax.plot(compute, table.loss, ".", color=COLOURS[0], alpha=0.6, label="runs")
    grid = np.geomspace(compute.min(), 10 * compute.max(), 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        curve = report.predict(compute=grid)
    label = "law" if table.form.name == "compute" else "law, at the optimal size"
    ax.plot(grid, curve.loss, color=COLOURS[1], label=label)
    for level, alpha in ((95, 0.15), (68, 0.25)):
        low, high = curve[f"loss_low{level}"].values, curve[f"loss_high{level}"].values
        known = np.isfinite(high)
        ax.fill_between(grid[known], low[known], high[known], color=COLOURS[1], alpha=alpha, linewidth=0,
                        label=f"{level} % of new runs")  # fmt: skip
    ax.axvline(compute.max(), color="0.4", linestyle=":", linewidth=1, label="end of the data")
    ax.set(xscale="log", yscale="log", xlabel="compute (FLOP)", ylabel="loss")
    _plain_ticks(ax.yaxis)
    ax.legend(fontsize="small")


def _plain_ticks(axis: Any) -> None:
    """Losses cover less than a decade: ticks in plain numbers."""
    from matplotlib.ticker import MaxNLocator, NullFormatter, ScalarFormatter

    axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(ScalarFormatter())
    axis.set_minor_formatter(NullFormatter())
