"""The Bokeh figure of a plane: colours, contours, names of regions, and the current setting, which can be dragged."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, HoverTool, LinearColorMapper, LogColorMapper, Range1d, TapTool
from bokeh.models.annotations import ColorBar
from bokeh.palettes import Viridis256

from solvable.explorer.figures import INKS, plain_figure, set_range
from solvable.settings.contours import contours, is_wide, regions

# A drag begins this near to the mark, as a fraction of the plane; it moves the setting at most this often, in seconds.
_NEAR, _BETWEEN = 0.06, 0.08


class PlanePanel:
    """A quantity over two parameters. The mark of the current setting is moved by a click, or dragged."""

    def __init__(self, theme: str, plane: dict[str, Any], on_move: Callable[[float, float], None]) -> None:
        self.theme, self.kind, self._on_move = theme, plane_kind(plane), on_move
        x_log, y_log, z_log, *labels = self.kind
        self.figure = plain_figure(
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
        never = INKS[theme]["never"]
        self.mapper = (LogColorMapper if z_log else LinearColorMapper)(palette=Viridis256, nan_color=never)
        self._add_cells(labels)
        self._add_lines()
        self._add_mark()
        self._dragged, self._moved_at = False, 0.0
        self.figure.select_one(TapTool).behavior = "inspect"
        self.figure.on_event("tap", lambda event: on_move(event.x, event.y))
        self.figure.on_event("panstart", self._drag_begins)
        self.figure.on_event("pan", self._drag_goes_on)
        self.figure.on_event("panend", self._drag_ends)

    def _add_cells(self, labels: list[str]) -> None:
        ink, colour = INKS[self.theme], {"field": "z", "transform": self.mapper}
        self.source = ColumnDataSource({name: [] for name in ("left", "right", "bottom", "top", "x", "y", "z")})
        sides = ("left", "right", "top", "bottom")
        cells = self.figure.quad(*sides, fill_color=colour, line_color=colour, source=self.source)
        bar = ColorBar(
            color_mapper=self.mapper,
            background_fill_color=ink["ground"],
            major_label_text_color=ink["ink"],
            major_label_text_font_size="12px",
            title=labels[2],
            title_text_color=ink["ink"],
            title_text_font_style="normal",
            title_text_font_size="12px",
            width=14,
        )
        self.figure.add_layout(bar, "right")
        tips = [(labels[0], "@x"), (labels[1], "@y"), (labels[2], "@z{0.0000e+0}")]
        self.figure.add_tools(HoverTool(renderers=[cells], tooltips=tips))

    def _add_lines(self) -> None:
        self.contours = ColumnDataSource({"xs": [], "ys": []}, name="contours")
        self.names = ColumnDataSource({"x": [], "y": [], "text": [], "size": []}, name="names")
        self.figure.multi_line("xs", "ys", line_color="#ffffff", line_alpha=0.75, line_width=1.2, source=self.contours)
        style: dict[str, Any] = {"text_align": "center", "text_baseline": "middle", "text_font_size": "size"}
        style |= {"text_color": "#ffffff", "background_fill_color": "#1b1e24", "background_fill_alpha": 0.55}
        self.figure.text("x", "y", "text", source=self.names, **style)

    def _add_mark(self) -> None:
        self.mark = ColumnDataSource({"x": [], "y": []}, name="mark")
        # White under red: seen on every colour of the map.
        for colour, width in (("#ffffff", 5.0), (INKS[self.theme]["mark"], 2.4)):
            style: dict[str, Any] = {"fill_color": None, "line_color": colour, "line_width": width}
            self.figure.scatter("x", "y", marker="circle_x", size=18, source=self.mark, **style)

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
        set_range(self.figure.x_range, float(left[0]), float(right[-1]))
        set_range(self.figure.y_range, float(bottom[0]), float(top[-1]))
        lines, named = contours(plane), regions(plane)
        self.contours.data = {"xs": [line.x for line in lines], "ys": [line.y for line in lines]}
        told = [(line.text, line.x[len(line.x) // 2], line.y[len(line.y) // 2], "11px") for line in lines if line.text]
        told += [(region.text, region.x, region.y, "15px") for region in named]
        columns: tuple[Any, ...] = tuple(zip(*told, strict=True)) or ((), (), (), ())
        self.names.data = dict(zip(("text", "x", "y", "size"), map(list, columns), strict=True))

    def place(self, x: float, y: float) -> None:
        """Mark a setting; one outside the axes, such as zero on a logarithmic axis, is marked at their edge."""
        spans = (self.figure.x_range, self.figure.y_range)
        places = [float(np.clip(value, span.start, span.end)) for value, span in zip((x, y), spans, strict=True)]
        self.mark.data = {"x": places[:1], "y": places[1:]}

    def _drag_begins(self, event: Any) -> None:
        mark = self.mark.data
        far = [
            abs(_fraction(place, span, log) - _fraction(mark[axis][0], span, log))
            for axis, place, span, log in (
                ("x", event.x, self.figure.x_range, self.kind[0]),
                ("y", event.y, self.figure.y_range, self.kind[1]),
            )
            if len(mark[axis])
        ]
        self._dragged = bool(far) and max(far) < _NEAR

    def _drag_goes_on(self, event: Any) -> None:
        if self._dragged and time.monotonic() - self._moved_at > _BETWEEN:
            self._moved_at = time.monotonic()
            self._on_move(event.x, event.y)

    def _drag_ends(self, event: Any) -> None:
        if self._dragged:
            self._dragged = False
            self._on_move(event.x, event.y)


def _fraction(value: float, span: Any, log: bool) -> float:
    """A position on an axis, from 0 to 1."""
    low, high, value = np.log((span.start, span.end, value)) if log else (span.start, span.end, value)
    return float((value - low) / (high - low))


def plane_kind(plane: dict[str, Any]) -> tuple[Any, ...]:
    """What cannot change in an existing figure: labels, and the scales of axes and colours."""
    return plane["x_log"], plane["y_log"], is_wide(plane["z"]), plane["x_label"], plane["y_label"], plane["label"]


def _edges(values: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray]:
    places = np.log(values) if log else values
    if places.size == 1:
        middle = np.array([places[0] - 0.5, places[0] + 0.5])
    else:
        inner = (places[1:] + places[:-1]) / 2
        middle = np.concatenate([[2 * places[0] - inner[0]], inner, [2 * places[-1] - inner[-1]]])
    edges = np.exp(middle) if log else middle
    return edges[:-1], edges[1:]
