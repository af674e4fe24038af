"""Figures in one style: theory as lines, simulation as points with error bars, axes with names and units."""

from solvable.plotting.cells import draw_plane
from solvable.plotting.curves import draw_curve, plot
from solvable.plotting.planes import plot_plane
from solvable.plotting.style import (
    COLOURS,
    FIGURE_EXTENSIONS,
    check_figure_path,
    describe,
    few_ticks,
    log_losses,
    new_figure,
    save_figure,
    set_axis,
)

__all__ = [
    "COLOURS",
    "FIGURE_EXTENSIONS",
    "check_figure_path",
    "describe",
    "draw_curve",
    "draw_plane",
    "few_ticks",
    "log_losses",
    "new_figure",
    "plot",
    "plot_plane",
    "save_figure",
    "set_axis",
]
