"""Bokeh figures of curves and planes. A figure is created once; afterwards only its data change."""

from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    HoverTool,
    LinearColorMapper,
    LogColorMapper,
    Range1d,
    TapTool,
)
from bokeh.models.annotations import ColorBar
from bokeh.palettes import Viridis256
from bokeh.plotting import figure

from solvable.plotting import COLOURS
from solvable.plotting.series import Curve

# Okabe-Ito, and the same hues lighter on dark ground.
PALETTES = {
    "light": (*COLOURS, "#767676"),
    "dark": ("#5cb3f0", "#ff9048", "#3ddcae", "#ecaed2", "#f2c14e", "#9bd6fa", "#f4f4f4", "#b0b0b0"),
}
INKS = {
    "light": {"ink": "#1b1e24", "grid": "#e3e5ea", "ground": "#ffffff", "never": "#b9bcc4", "mark": "#d4002a"},
    "dark": {"ink": "#e6e8ee", "grid": "#353a45", "ground": "#14171c", "never": "#5a5f6b", "mark": "#ff5c7a"},
}


_COLUMNS = ("x", "y", "low", "high", "name", "colour", "error", "z", "fill")


def _plain_figure(theme: str, height: int, **options: Any) -> Any:
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


class CurvePanel:
    """Theory as lines, simulation as points with error bars, and the values under the pointer."""

    def __init__(self, theme: str, x_log: bool, y_log: bool, x_label: str, name: str, height: int = 330) -> None:
        self.theme, self.x_log, self.y_log = theme, x_log, y_log
        self.figure = _plain_figure(
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
        self.lines = ColumnDataSource({"xs": [], "ys": [], "name": [], "colour": [], "dash": []}, name=f"{name}-lines")
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

    def show(
        self,
        lines: list[tuple[Curve, bool]],
        points: list[Curve],
        hollow: bool,
        y_label: str,
        y_range: tuple[float, float],
    ) -> None:
        """Show new numbers. Each line comes with a flag: whether it belongs to setting B, whose lines are dashed."""
        palette = PALETTES[self.theme]
        self.lines.data = {
            "xs": [self._positive(curve.x, self.x_log) for curve, _ in lines],
            "ys": [self._positive(curve.y, self.y_log) for curve, _ in lines],
            "name": [curve.name + (", B" if other else "") for curve, other in lines],
            "colour": [palette[curve.colour % len(palette)] for curve, _ in lines],
            "dash": ["dashed" if other else "solid" for _, other in lines],
        }
        self.points.data = _point_columns(points, palette, hollow, INKS[self.theme]["ground"], self.y_log)
        times = np.concatenate([curve.x for curve, _ in lines]) if lines else np.array([0.0, 1.0])
        times = times[times > 0] if self.x_log else times
        if times.size:
            first, last = float(times.min()), float(times.max()) or 1.0
            self._set(self.figure.x_range, first, last * 1.03 if self.x_log else last + 0.01 * (last - first))
        self._set(self.figure.y_range, *y_range)
        self.figure.yaxis.axis_label = y_label

    @staticmethod
    def _set(span: Any, start: float, end: float) -> None:
        if (span.start, span.end) != (start, end):
            span.update(start=start, end=end, reset_start=start, reset_end=end)

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


def legend(lines: list[tuple[Curve, bool]], points: list[Curve], words: str, theme: str, hollow: bool) -> str:
    """The legend as HTML, which browsers can enlarge and screen readers can read.

    Points of a quantity that has a line share its colour and are described once, by ``words``; points of one that has
    none, because only the simulation gives it, have an entry of their own.
    """
    palette = PALETTES[theme]
    items = []
    for curve, other in lines:
        colour = palette[curve.colour % len(palette)]
        style = f"border-top:3px {'dashed' if other else 'solid'} {colour}"
        items.append(f'<li><i style="{style}"></i>{escape(curve.name)}{" (B)" if other else ""}</li>')
    dot = f'<b class="dot{" hollow" if hollow else ""}"'
    with_line = {curve.name for curve, other in lines if not other}
    for curve in (one for one in points if one.name not in with_line):
        items.append(f'<li>{dot} style="--fg:{palette[curve.colour % len(palette)]}"></b>{escape(curve.name)}</li>')
    if points:
        items.append(f"<li>{dot}></b>{escape(words)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


class PlanePanel:
    """A quantity over two parameters, with the current setting marked; a click chooses another setting."""

    def __init__(self, theme: str, plane: dict[str, Any], on_click: Callable[[float, float], None]) -> None:
        ink = INKS[theme]
        self.kind = plane_kind(plane)
        x_log, y_log, z_log, *labels = self.kind
        self.figure = _plain_figure(
            theme,
            460,
            x_axis_type="log" if x_log else "linear",
            y_axis_type="log" if y_log else "linear",
            x_range=Range1d(start=0.1, end=1),
            y_range=Range1d(start=0.1, end=1),
            x_axis_label=labels[0],
            y_axis_label=labels[1],
            tools="tap,reset,save",
        )
        mapper = (LogColorMapper if z_log else LinearColorMapper)(palette=Viridis256, nan_color=ink["never"])
        self.mapper = mapper
        self.source = ColumnDataSource({name: [] for name in ("left", "right", "bottom", "top", "x", "y", "z")})
        cells = self.figure.quad(
            "left",
            "right",
            "top",
            "bottom",
            fill_color={"field": "z", "transform": mapper},
            line_color={"field": "z", "transform": mapper},
            source=self.source,
        )
        bar = ColorBar(
            color_mapper=mapper,
            background_fill_color=ink["ground"],
            major_label_text_color=ink["ink"],
            major_label_text_font_size="12px",
            width=14,
        )
        self.figure.add_layout(bar, "right")
        tips = [(labels[0], "@x"), (labels[1], "@y"), (labels[2], "@z{0.0000e+0}")]
        self.figure.add_tools(HoverTool(renderers=[cells], tooltips=tips))
        self.mark = ColumnDataSource({"x": [], "y": []}, name="mark")
        # White under red: seen on every colour of the map.
        for colour, width in (("#ffffff", 5.0), (ink["mark"], 2.4)):
            self.figure.scatter(
                "x",
                "y",
                marker="circle_x",
                size=18,
                fill_color=None,
                line_color=colour,
                line_width=width,
                source=self.mark,
            )
        self.figure.select_one(TapTool).behavior = "inspect"
        self.figure.on_event("tap", lambda event: on_click(event.x, event.y))

    def show(self, plane: dict[str, Any]) -> None:
        """Show new numbers on axes of the same kind."""
        x, y, z = plane["x"], plane["y"], plane["z"]
        left, right = _edges(x, plane["x_log"])
        bottom, top = _edges(y, plane["y_log"])
        across, along = np.meshgrid(np.arange(x.size), np.arange(y.size))
        finite = z[np.isfinite(z)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if low == high:
            low, high = low - abs(low) * 0.01 - 1e-12, high + abs(high) * 0.01 + 1e-12
        self.mapper.update(low=low, high=high)
        self.source.data = {
            "left": left[across].ravel(),
            "right": right[across].ravel(),
            "bottom": bottom[along].ravel(),
            "top": top[along].ravel(),
            "x": x[across].ravel(),
            "y": y[along].ravel(),
            "z": z.ravel(),
        }
        CurvePanel._set(self.figure.x_range, float(left[0]), float(right[-1]))
        CurvePanel._set(self.figure.y_range, float(bottom[0]), float(top[-1]))

    def place(self, x: float, y: float) -> None:
        """Mark a setting; one outside the axes, such as zero on a logarithmic axis, is marked at their edge."""
        spans = (self.figure.x_range, self.figure.y_range)
        places = [float(np.clip(value, span.start, span.end)) for value, span in zip((x, y), spans, strict=True)]
        self.mark.data = {"x": places[:1], "y": places[1:]}


def plane_kind(plane: dict[str, Any]) -> tuple[Any, ...]:
    """What cannot change in an existing figure: labels, and the scales of axes and colours."""
    finite = plane["z"][np.isfinite(plane["z"])]
    z_log = bool(finite.size > 0 and finite.min() > 0 and finite.max() > 30 * finite.min())
    return plane["x_log"], plane["y_log"], z_log, plane["x_label"], plane["y_label"], plane["label"]


def _edges(values: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray]:
    places = np.log(values) if log else values
    if places.size == 1:
        middle = np.array([places[0] - 0.5, places[0] + 0.5])
    else:
        inner = (places[1:] + places[:-1]) / 2
        middle = np.concatenate([[2 * places[0] - inner[0]], inner, [2 * places[-1] - inner[-1]]])
    edges = np.exp(middle) if log else middle
    return edges[:-1], edges[1:]
