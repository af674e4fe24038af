"""Numbers of a scene as short lists of integers, which a page of a few hundred kilobytes can hold.

An array is rounded to a few thousand levels between its smallest and its largest value, and the differences of
neighbouring levels are stored: curves are smooth, so that most of them are small and compress well.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Mark, SystemView

# Levels of a curve: of the steps, and of the many settings between which the player interpolates.
STEP_LEVELS, NODE_LEVELS = 16383, 4095
SYSTEM_LEVELS = 255
# Pictures of the system are thinned to about this many positions; the page interpolates between the times.
_MOST_POSITIONS = 61


def pack(values: np.ndarray, levels: int = STEP_LEVELS) -> dict[str, Any]:
    """An array as levels between ``low`` and ``high``: the first level and the differences; None where there is none.

    >>> import numpy as np
    >>> from solvable.stories.packing import pack, unpack
    >>> pack(np.array([0.0, 0.5, 1.0]), levels=100)
    {'low': 0.0, 'high': 1.0, 'levels': 100, 'shape': [3], 'steps': [0, 50, 50]}
    >>> unpack(pack(np.array([0.0, 0.5, 1.0]), levels=100))
    array([0. , 0.5, 1. ])
    """
    flat = np.asarray(values, float).ravel()
    known = np.isfinite(flat)
    low, high = (_short(flat[known].min()), _short(flat[known].max())) if known.any() else (0.0, 0.0)
    scale = levels / (high - low) if high > low else 0.0
    rounded = np.clip(np.round((np.where(known, flat, low) - low) * scale), 0, levels).astype(int)
    steps: list[int | None] = [None] * flat.size
    steps_known = np.diff(rounded[known], prepend=0)
    for place, step in zip(np.flatnonzero(known), steps_known, strict=True):
        steps[place] = int(step)
    return {"low": low, "high": high, "levels": levels, "shape": list(np.shape(values)), "steps": steps}


def unpack(packed: Mapping[str, Any]) -> np.ndarray:
    """The array of :func:`pack`, as the page computes it; NaN where there is no number."""
    steps = np.array([np.nan if step is None else step for step in packed["steps"]], float)
    level = np.where(np.isnan(steps), np.nan, np.nancumsum(steps))
    values = packed["low"] + (packed["high"] - packed["low"]) * level / packed["levels"]
    return values.reshape(packed["shape"])


def _short(value: float) -> float:
    return float(f"{value:.9g}")


def pack_mark(mark: Mark) -> dict[str, Any]:
    """A mark as a mapping, with its kind in lower case."""
    told = dataclasses.asdict(mark)
    return {"kind": type(mark).__name__.lower()} | {
        key: value if isinstance(value, str) else _short(float(value)) for key, value in told.items()
    }


def pack_system(view: SystemView, frames: int) -> dict[str, Any]:
    """A picture of the system at a few of its times, thinned to what a small picture can show."""
    data = view.data.isel(time=_thinned(view.data.sizes["time"], frames))
    for dim in ("x", "position"):
        if dim in data.sizes:
            data = data.isel({dim: _thinned(data.sizes[dim], _MOST_POSITIONS)})
    arrays = {str(name): pack(_time_first(values), SYSTEM_LEVELS) for name, values in data.data_vars.items()}
    if "x" in data.coords and view.kind == "filling":
        arrays["position"] = pack(np.log10(data["x"].values) if view.log_x else data["x"].values, 2 * SYSTEM_LEVELS)
    described = {str(name): _described(values) for name, values in data.variables.items()}
    return {
        "kind": view.kind,
        "title": view.title,
        "caption": view.caption,
        "log_x": view.log_x,
        "times": [_short(float(time)) for time in data["time"].values],
        "names": [_name(value) for value in data["index"].values] if "index" in data.coords else [],
        "labels": {name: text for name, text in described.items() if text and name != "time"},
        "arrays": arrays,
    }


def _thinned(count: int, most: int) -> np.ndarray:
    return np.unique(np.round(np.linspace(0, count - 1, min(count, most))).astype(int))


def _time_first(values: xr.DataArray) -> np.ndarray:
    return values.transpose("time", ...).values if "time" in values.dims else values.values


def _described(values: Any) -> str:
    name, units = values.attrs.get("long_name", ""), values.attrs.get("units", "1")
    return name if units in ("", "1") else f"{name} [{units}]"


def _name(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
