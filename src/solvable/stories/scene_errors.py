"""How far the curves that the player draws are from those of theory, which every scene states of itself.

Curves are rounded when they are packed, and between computed settings the player interpolates. Errors are fractions of
the height of a panel.
"""

from typing import Any

import numpy as np

from solvable.stories import grid
from solvable.stories.axes import Axis
from solvable.stories.computed import Computed
from solvable.stories.interpolation import Drawn, interpolated
from solvable.stories.packing import NODE_LEVELS, STEP_LEVELS, pack, unpack


def stated_errors(
    places: "grid.Places",
    states: list[dict[str, Any]],
    tested: list[tuple[tuple[float, ...], Any]],
    computed: list[Computed],
    found: list[Any],
    axes: list[Axis],
    node_axes: list[Axis],
) -> dict[str, Any]:
    """The errors of a scene, as fractions of the height of a panel; that of theory is as its datasets state it.

    Curves are aligned before they are interpolated (``"aligned"``) unless that makes the largest error larger.
    """
    exact = [(point, one) for point, one in tested if isinstance(one, Computed)]
    ways = {
        aligned: [
            error
            for point, one in exact
            if (error := interpolation_error(places, states, point, one, node_axes, aligned)) is not None
        ]
        for aligned in (True, False)
    }
    aligned = max(ways[True], default=0.0) <= max(ways[False], default=0.0)
    between = ways[aligned]
    known = [one for one in found if isinstance(one, Computed)]
    rounding = [_rounding(one, axes, STEP_LEVELS) for one in computed]
    rounding += [_rounding(one, node_axes, NODE_LEVELS) for one in known]
    errors = {
        "points": len(between),
        "largest": max(between, default=0.0),
        "median": float(np.median(between)) if between else 0.0,
        "rounding": max(rounding),
        "theory": max(one.error for one in [*computed, *known]),
    }
    return {"aligned": aligned, "errors": errors}


def interpolation_error(
    places: "grid.Places",
    states: list[dict[str, Any]],
    point: tuple[float, ...],
    exact: Computed,
    axes: list[Axis],
    aligned: bool,
) -> float | None:
    """The largest error of the interpolated curves at a point; None where a neighbouring node has other curves."""
    corners = [(weight, states[node]) for weight, node in places.corners(point) if weight > 0]
    if any("error" in state for _, state in corners):
        return None
    names = [[curve.name for _, curve in panel] for panel in exact.panels]
    if any([[curve["name"] for curve in panel] for panel in state["curves"]] != names for _, state in corners):
        return None
    weights, drawn = [weight for weight, _ in corners], [drawn_curves(state, axes) for _, state in corners]
    position, rows = interpolated(weights, drawn, aligned)
    wanted = _position(exact.times, corners[0][1]["log_time"])
    pairs = [(axis, curve) for axis, panel in zip(axes, exact.panels, strict=True) for _, curve in panel]
    return max(
        axis.error(np.interp(wanted, position, row), axis.coordinate(curve.y))
        for row, (axis, curve) in zip(rows, pairs, strict=True)
    )


def drawn_curves(state: dict[str, Any], axes: list[Axis]) -> Drawn:
    """The curves of a packed state on these axes."""
    rows = [(axis, unpack(curve["y"])) for axis, panel in zip(axes, state["curves"], strict=True) for curve in panel]
    heights = [np.clip((row - axis.low) / (axis.high - axis.low), 0, 1) for axis, row in rows]
    coordinates = np.array([row for _, row in rows])
    return Drawn(_position(np.asarray(state["times"]), state["log_time"]), coordinates, np.array(heights))


def _position(times: np.ndarray, log: bool) -> np.ndarray:
    """Times as positions on their axis, from 0 to 1."""
    placed = np.log(times) if log else times
    return (placed - placed[0]) / (placed[-1] - placed[0])


def _rounding(computed: Computed, axes: list[Axis], levels: int) -> float:
    return max(
        axis.error(unpack(pack(axis.coordinate(curve.y), levels)), axis.coordinate(curve.y))
        for axis, panel in zip(axes, computed.panels, strict=True)
        for _, curve in panel
    )
