"""Bokeh figures of curves. A figure is created once; afterwards only its data change."""

from collections.abc import Iterable
from html import escape
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, Range1d
from bokeh.plotting import figure

from solvable.explorer.marks import Window, empty_columns, mark_columns
from solvable.plotting import COLOURS
from solvable.plotting.series import Curve, first_of
from solvable.story import Mark

# Okabe-Ito, and the same hues lighter on dark ground.
PALETTES = {
    "light": (*COLOURS, "#767676"),
    "dark": ("#5cb3f0", "#ff9048", "#3ddcae", "#ecaed2", "#f2c14e", "#9bd6fa", "#f4f4f4", "#b0b0b0"),
}
INKS = {
    "light": {
        "ink": "#1b1e24",
        "grid": "#e3e5ea",
        "ground": "#ffffff",
        "never": "#b9bcc4",
        "mark": "#d4002a",
        "band": "#f0e442",
    },
    "dark": {
        "ink": "#e6e8ee",
        "grid": "#353a45",
        "ground": "#14171c",
        "never": "#5a5f6b",
        "mark": "#ff5c7a",
        "band": "#c9b94e",
    },
}


_COLUMNS = ("x", "y", "low", "high", "name", "colour", "error", "z", "fill")


def plain_figure(theme: str, height: int, **options: Any) -> Any:
    ink = INKS[theme]
    made = figure(
        height=height,
        sizing_mode="stretch_width",
        toolbar_location="above",
        background_fill_color=ink["ground"],
        border_fill_color=ink["ground"],
        outline_line_color=ink["grid"],
        min_border_right=14,
        min_border_left=76,
        **options,
    )
    made.toolbar.logo = None
    made.grid.grid_line_color = ink["grid"]
    for axis in made.axis:
        axis.axis_label_text_color = axis.major_label_text_color = axis.axis_line_color = ink["ink"]
        axis.major_tick_line_color = axis.minor_tick_line_color = ink["ink"]
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "13px"
    return made


def set_range(span: Any, start: float, end: float) -> None:
    """Move a range, if it moves at all; the reset tool goes back to it."""
    if (span.start, span.end) != (start, end):
        span.update(start=start, end=end, reset_start=start, reset_end=end)


class CurvePanel:
    """Theory as lines, simulation as points with error bars, marks, and the values under the pointer."""

    def __init__(self, theme: str, x_log: bool, y_log: bool, x_label: str, name: str, height: int = 260) -> None:
        self.theme, self.x_log, self.y_log = theme, x_log, y_log
        self.figure = plain_figure(
            theme,
            height,
            x_axis_type="log" if x_log else "linear",
            y_axis_type="log" if y_log else "linear",
            x_range=Range1d(start=0.1, end=1),
            y_range=Range1d(start=0.1, end=1),
            x_axis_label=x_label,
            tools="pan,box_zoom,wheel_zoom,reset,save",
            active_scroll=None,
            active_drag="box_zoom",
        )
        self.marks = {
            kind: ColumnDataSource(columns, name=f"{name}-{kind}") for kind, columns in empty_columns().items()
        }
        self.ghost = ColumnDataSource({"xs": [], "ys": []}, name=f"{name}-ghost")
        self.lines = ColumnDataSource({"xs": [], "ys": [], "name": [], "colour": [], "dash": []}, name=f"{name}-lines")
        self._add_marks_behind()
        self.points = ColumnDataSource({column: [] for column in _COLUMNS}, name=f"{name}-points")
        drawn = self.figure.multi_line(
            "xs", "ys", line_color="colour", line_dash="dash", line_width=2.2, source=self.lines
        )
        self.figure.segment("x", "low", "x", "high", line_color="colour", line_width=1.4, source=self.points)
        dots = self.figure.scatter("x", "y", line_color="colour", fill_color="fill", size=6.5, source=self.points)
        # Bokeh's manual calls these data_x and data_y, which its browser code does not know. Its own formats of numbers
        # keep three digits of a small one; printf keeps all that are asked for.
        printf: Any = dict.fromkeys(("$snap_x", "$snap_y", "@x", "@y", "@error"), "printf")
        mean = ("mean", "@y{%.6e} ± @error{%.1e}")
        self.figure.add_tools(
            HoverTool(
                renderers=[drawn],
                tooltips=[("", "@name"), ("t", "$snap_x{%.6g}"), ("value", "$snap_y{%.6e}")],
                formatters=printf,
                line_policy="nearest",
            ),
            HoverTool(
                renderers=[dots],
                tooltips=[("", "@name"), ("t", "@x{%.6g}"), mean, ("z", "@z{0.00}")],
                formatters=printf,
            ),
        )
        self._add_marks_above()

    def _add_marks_behind(self) -> None:
        ink, marks = INKS[self.theme]["ink"], self.marks
        band = {"fill_color": INKS[self.theme]["band"], "fill_alpha": 0.25, "line_color": None}
        self.figure.vstrip("start", "end", source=marks["bands"], **band)
        self.figure.vspan("time", line_color=ink, line_alpha=0.5, line_dash="dotted", source=marks["ticks"])
        self.figure.hspan("value", line_color=ink, line_alpha=0.6, line_dash="dotdash", source=marks["levels"])
        self.figure.multi_line("xs", "ys", line_color=ink, line_alpha=0.35, line_dash=[2, 3], source=self.ghost)

    def _add_marks_above(self) -> None:
        ink = INKS[self.theme]
        self.figure.multi_line("xs", "ys", line_color=ink["ink"], line_dash="dotted", source=self.marks["slopes"])
        self.figure.scatter(
            "x", "y", size=9, fill_color="colour", line_color=ink["ground"], line_width=1.5, source=self.marks["dots"]
        )
        self.figure.text(
            "x",
            "y",
            "text",
            text_align="align",
            text_color="colour",
            text_font_size="12px",
            background_fill_color=ink["ground"],
            background_fill_alpha=0.75,
            y_offset="shift",
            source=self.marks["labels"],
        )

    def mark(
        self, marks: Iterable[Mark], variables: tuple[str, ...], lines: list[tuple[Curve, bool]], labelled: bool
    ) -> None:
        """Draw the marks of an explanation on the curves that are shown.

        Parameters
        ----------
        marks
            The marks of setting A.
        variables
            The variables of the panel.
        lines
            What is shown, as in :meth:`show`.
        labelled
            Whether bands and ticks have their labels in this panel.
        """
        palette, mine = PALETTES[self.theme], [curve for curve, other in lines if not other]
        found = {name: curve for name in variables if (curve := first_of(name, mine)) is not None}
        coloured = {name: (curve, palette[curve.colour % len(palette)]) for name, curve in found.items()}
        x, y = self.figure.x_range, self.figure.y_range
        window = Window(x.start, x.end, y.start, y.end, self.x_log, self.y_log)
        for kind, columns in mark_columns(marks, coloured, window, INKS[self.theme]["ink"], labelled).items():
            if columns != self.marks[kind].data:
                self.marks[kind].data = columns

    def show(
        self,
        lines: list[tuple[Curve, bool]],
        points: list[Curve],
        hollow: bool,
        y_label: str,
        y_range: tuple[float, float],
        ghost: Iterable[Curve] = (),
        whose: tuple[str, str] = ("", "B"),
    ) -> None:
        """Show new numbers. Each line comes with a flag: whether it belongs to setting B, whose lines are dashed.

        ``ghost`` holds the curves before the last change, and ``whose`` words for the settings A and B.
        """
        palette = PALETTES[self.theme]
        before = list(ghost)
        self.ghost.data = {
            "xs": [self._positive(curve.x, self.x_log) for curve in before],
            "ys": [self._positive(curve.y, self.y_log) for curve in before],
        }
        self.lines.data = {
            "xs": [self._positive(curve.x, self.x_log) for curve, _ in lines],
            "ys": [self._positive(curve.y, self.y_log) for curve, _ in lines],
            "name": [_named(curve, whose[other]) for curve, other in lines],
            "colour": [palette[curve.colour % len(palette)] for curve, _ in lines],
            "dash": ["dashed" if other else "solid" for _, other in lines],
        }
        self.points.data = _point_columns(points, palette, hollow, INKS[self.theme]["ground"], self.y_log)
        times = np.concatenate([curve.x for curve, _ in lines]) if lines else np.array([0.0, 1.0])
        times = times[times > 0] if self.x_log else times
        if times.size:
            first, last = float(times.min()), float(times.max()) or 1.0
            set_range(self.figure.x_range, first, last * 1.03 if self.x_log else last + 0.01 * (last - first))
        set_range(self.figure.y_range, *y_range)
        self.figure.yaxis.axis_label = y_label

    @staticmethod
    def _positive(values: np.ndarray, log: bool) -> np.ndarray:
        """Replace values that a logarithmic axis cannot show by NaN, which leaves a gap."""
        return np.where(values > 0, values, np.nan) if log else np.asarray(values, float)


def _point_columns(
    points: list[Curve], palette: tuple[str, ...], hollow: bool, ground: str, log: bool
) -> dict[str, Any]:
    columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    for curve in points:
        assert curve.error is not None
        assert curve.score is not None
        size, colour = curve.x.size, palette[curve.colour % len(palette)]
        low = curve.y - np.nan_to_num(curve.error)
        # An error bar that reaches below zero ends at the bottom of a log axis.
        columns["low"] += list(np.maximum(low, curve.y * 1e-3) if log else low)
        columns["high"] += list(curve.y + np.nan_to_num(curve.error))
        columns["x"] += list(curve.x)
        columns["y"] += list(CurvePanel._positive(curve.y, log))
        columns["error"] += list(curve.error)
        columns["z"] += list(curve.score)
        columns["name"] += [curve.name] * size
        columns["colour"] += [colour] * size
        columns["fill"] += [ground if hollow else colour] * size
    return columns


def legend(
    lines: list[tuple[Curve, bool]],
    points: list[Curve],
    words: str,
    theme: str,
    hollow: bool,
    ghost: bool = False,
    whose: tuple[str, str] = ("", "B"),
) -> str:
    """The legend as HTML, which browsers can enlarge and screen readers can read, with the ends of the curves in words.

    Points of a quantity that has a line share its colour and are described once, by ``words``; points of one that has
    none, because only the simulation gives it, have an entry of their own.
    """
    palette = PALETTES[theme]
    items = []
    for curve, other in lines:
        colour = palette[curve.colour % len(palette)]
        style = f"border-top:3px {'dashed' if other else 'solid'} {colour}"
        items.append(f'<li><i style="{style}"></i>{escape(_named(curve, whose[other]))}</li>')
    dot = f'<b class="dot{" hollow" if hollow else ""}"'
    with_line = {curve.name for curve, other in lines if not other}
    for curve in (one for one in points if one.name not in with_line):
        items.append(f'<li>{dot} style="--fg:{palette[curve.colour % len(palette)]}"></b>{escape(curve.name)}</li>')
    if points:
        items.append(f"<li>{dot}></b>{escape(words)}</li>")
    if ghost:
        items.append('<li><i style="border-top:2px dotted"></i>before the last change</li>')
    return f'<ul class="legend">{"".join(items)}</ul><p class="hidden">{escape(_in_words(lines, whose))}</p>'


def _named(curve: Curve, whose: str) -> str:
    return f"{curve.name} ({whose})" if whose else curve.name


def _in_words(lines: list[tuple[Curve, bool]], whose: tuple[str, str]) -> str:
    """The text alternative of a panel: where each curve starts and ends."""
    told = []
    for curve, other in lines:
        known = np.flatnonzero(np.isfinite(curve.y))
        if known.size:
            (t0, y0), (t1, y1) = ((curve.x[place], curve.y[place]) for place in known[[0, -1]])
            told.append(
                f"{_named(curve, whose[other])} goes from {y0:.3g} at time {t0:.4g} to {y1:.3g} at time {t1:.4g}"
            )
    return f"Curves: {'; '.join(told)}." if told else ""
