"""The picture of a transfer report."""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from solvable.diagnostics.transfer import TransferReport


def draw(report: "TransferReport") -> "Figure":
    """Two panels: loss against learning rate at every width, and the best rate against the width."""
    from solvable.plotting import new_figure

    figure, axes = new_figure(columns=2, width=5.2, height=4.0)
    draw_losses(axes[0], report)
    draw_rates(axes[1], report)
    return figure


def draw_losses(ax: Any, report: "TransferReport") -> None:
    """Geometric means over seeds with standard errors, and the best rate of each width; crosses mark divergence."""
    from matplotlib import colormaps

    colours = colormaps["viridis"](np.linspace(0, 0.85, len(report.widths)))
    logs = np.log(report.losses)
    means, errors = logs.mean(axis=2), logs.std(axis=2, ddof=1) / np.sqrt(report.seeds)
    rates = report.learning_rates
    for mean, error, width, colour, one in zip(means, errors, report.widths, colours, report.optima, strict=True):
        fine = np.isfinite(mean)
        middle = np.exp(mean[fine])
        bars = [middle * (1 - np.exp(-error[fine])), middle * (np.exp(error[fine]) - 1)]
        ax.errorbar(rates[fine], middle, bars, fmt="o-", markersize=3, color=colour, label=f"width {width}")
        if (~fine).any() and fine.any():
            ax.plot(rates[~fine], np.full((~fine).sum(), np.exp(means[np.isfinite(means)].max())), "x", color=colour)
        if one.status == "interior":
            inside = slice(one.first, one.last + 1)
            points = np.linspace(np.log2(rates[one.first]), np.log2(rates[one.last]), 40)
            parabola = np.polyval(np.polyfit(np.log2(rates[inside]), mean[inside], 2), points)
            ax.plot(2**points, np.exp(parabola), color=colour, alpha=0.4, linewidth=3)
            ax.axvline(2**one.log2_rate, color=colour, linestyle=":", linewidth=1)
    if np.isnan(means).any():
        ax.plot([], [], "x", color="grey", label="some runs diverged")
    ax.set(xscale="log", yscale="log", xlabel="learning rate, η")
    ax.set_ylabel(f"{report.loss_name.replace('_', ' ')}, geometric mean")
    ax.legend(fontsize="small")


def draw_rates(ax: Any, report: "TransferReport", index: int = 0, name: str = "") -> None:
    """Best rates with 1σ errors, and theory's stable rate; ``index`` chooses the colour.

    The line is straight in log2(width) or, where the best rate settles, in one over the width.
    """
    from solvable.plotting import COLOURS

    colour, prefix = COLOURS[index], f"{name}: " if name else ""
    pairs = zip(report.widths, report.optima, strict=True)
    located = [(width, one) for width, one in pairs if one.is_located]
    if located:
        widths = np.array([width for width, _ in located])
        centres = np.array([one.log2_rate for _, one in located])
        errors = np.array([one.error for _, one in located])
        label = f"{prefix}best rate"
        if report.settles:
            assert report.limit is not None
            octaves = f"{report.limit.coefficient:.2f}".replace("-", "−")
            label = f"{prefix}settles, {octaves} ± {report.limit.error:.2f} octaves × {widths[0]}/n"
            smooth = np.geomspace(widths[0], widths[-1], 60)
            line = report.limit.log2_rate + report.limit.coefficient * widths[0] / smooth
            ax.plot(smooth, 2**line, color=colour, linewidth=1)
        elif report.drift is not None:
            slope = f"{report.drift.slope:.2f}".replace("-", "−")
            label = f"{prefix}{slope} ± {report.drift.error:.2f} octaves per doubling"
            weights = errors**-2.0
            level = np.sum(weights * (centres - report.drift.slope * np.log2(widths))) / weights.sum()
            line = level + report.drift.slope * np.log2(report.widths)
            ax.plot(report.widths, 2**line, color=colour, linewidth=1)
        bars = [2**centres - 2 ** (centres - errors), 2 ** (centres + errors) - 2**centres]
        ax.errorbar(widths, 2**centres, bars, fmt="o", color=colour, label=label)
    if report.stable_rates is not None:
        ax.plot(report.widths, report.stable_rates, "--", color=colour, label=f"{prefix}stable at the start, theory")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xticks(report.widths, [str(width) for width in report.widths])
    ax.set(xlabel="width, n", ylabel="best learning rate, η*")
    ax.set_ylim(*(report.learning_rates[[0, -1]] * [0.8, 1.25]))
    ax.legend(fontsize="small")
