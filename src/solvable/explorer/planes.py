"""Quantities over two parameters: which there are, and their values on a grid."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.explorer.fields import Field, write
from solvable.explorer.settings import Setting
from solvable.explorer.summaries import SUMMARIES
from solvable.progress import progress_bar

END = "end_loss"
# Points of a plane that is one program, and of planes that are found cell by cell, coarse ones first.
_FINE = (64, 48)
_LEVELS = ((6, 5), (12, 9), (24, 18), (48, 36))
_SECONDS = 12.0
_USUAL: Mapping[str, tuple[str, str, str]] = {
    "linear-estimator": ("delay", "aspect_ratio", "weight_decay"),
    "linear-features": ("limit", "samples", "noise"),
    "diagonal-network": ("overlap", "variances.1", "variances.2"),
    "linear-network": ("last", "initial_scale", "singular_values.1"),
    "scalar-network": ("distance", "first.1", "target"),
    "skills": ("fifth", "exponent", "initial_strength"),
    "committee": ("rate", "output_scale", "weight_decay"),
    "feature-scaling": ("time", "capacity", "source"),
    "parity-mode": (END, "first", "target_scale"),
}
_NO_AXES = {"hidden", "max_steps"}


def axes(setting: Setting) -> dict[str, str]:
    """Parameters that can be an axis, by key, and the entries of short lists as ``name.1``, ``name.2``."""
    found = {}
    for key, field in setting.fields.items():
        if field.role != "parameter" or field.scale is None or key in _NO_AXES:
            continue
        if field.kind == "number":
            found[key] = f"{field.symbol} {field.help}"
        for place in range(field.entries(setting.text(key))):
            found[f"{key}.{place + 1}"] = f"{field.symbol} {field.help}, entry {place + 1}"
    return found


def quantities(model: str) -> dict[str, str]:
    found = {
        one.name: one.label + (f" [{one.unit}]" if one.unit else "") for one in SUMMARIES.get(model, ()) if one.planar
    }
    return {**found, END: "test loss at the last time"} if model != "committee" else found


def usual(setting: Setting) -> dict[str, str]:
    """What the tab shows at first; other axes if these are not there."""
    quantity, x, y = _USUAL.get(setting.model, (END, "", ""))
    there = [x, y] if {x, y} <= set(axes(setting)) else [*axes(setting), "", ""][:2]
    return {"plane": quantity, "px": there[0], "py": there[1]}


def at(setting: Setting, axis: str) -> float:
    """The setting's own place on an axis; NaN if it has none (an empty text)."""
    key, entry = _split(axis)
    value = setting.value(key)
    if entry is not None:
        value = np.asarray(value).ravel()[entry]
    return math.nan if value is None else float(value)


def moved(setting: Setting, axis: str, value: float) -> Setting:
    """The setting at another place on an axis."""
    key, entry = _split(axis)
    field = setting.fields[key]
    number = max(1, round(value)) if field.whole else float(f"{value:.4g}")
    if entry is None:
        return setting.change(key, write(number))
    text = setting.text(key)
    marks = [mark for mark in text if mark in ",;"] + [""]
    numbers = text.replace(";", ",").split(",")
    numbers[entry] = write(number)
    return setting.change(key, "".join(a + b for a, b in zip(numbers, marks, strict=True)))


def _split(axis: str) -> tuple[str, int | None]:
    key, dot, entry = axis.partition(".")
    return key, int(entry) - 1 if dot else None


def grid(field: Field, points: int) -> np.ndarray:
    """Values over the range of the field's slider."""
    assert field.scale is not None
    values = (np.geomspace if field.scale.log else np.linspace)(field.scale.low, field.scale.high, points)
    if field.scale.whole:
        values = np.unique(np.round(values))
    allowed = [value for value in values if field.rule.test(value)]
    return np.array(allowed)


def compute(setting: Setting, view: Mapping[str, str], send: Callable[[Any], None]) -> dict[str, Any]:
    """The plane of a view. Those found cell by cell are handed on coarse at first, and refined while there is time."""
    quantity, x, y = view["plane"], view["px"], view["py"]
    labels = axes(setting)
    if len(labels) < 2:
        raise ValueError(f"a plane needs two parameters that are numbers, and {setting.model} has {len(labels)}")
    if x not in labels or y not in labels or x == y:
        raise ValueError(f"the axes must be two different ones of {', '.join(labels)}")
    if quantity not in quantities(setting.model):
        raise ValueError(f"there is no quantity {quantity!r}; there are {', '.join(quantities(setting.model))}")
    fields = [setting.fields[_split(axis)[0]] for axis in (x, y)]
    frame = {
        "label": quantities(setting.model)[quantity],
        "x_label": labels[x],
        "y_label": labels[y],
        "x_log": fields[0].scale.log if fields[0].scale else False,
        "y_log": fields[1].scale.log if fields[1].scale else False,
    }
    fine = [grid(field, points) for field, points in zip(fields, _FINE, strict=True)]
    values = _together(setting, quantity, (x, y), fine)
    if values is not None:
        return {**frame, "x": fine[0], "y": fine[1], "z": values}
    # The first cell also compiles; it says nothing of the rest.
    _cell(setting, quantity, (x, y), (at(setting, x), at(setting, y)))
    begin = time.monotonic()
    plane: dict[str, Any] = {}
    spent = 0.0
    for level, sizes in enumerate(_LEVELS):
        # The next level has four times as many cells.
        if plane and time.monotonic() - begin + 4 * spent > _SECONDS:
            break
        since = time.monotonic()
        grids = [grid(field, points) for field, points in zip(fields, sizes, strict=True)]
        plane = {**frame, "x": grids[0], "y": grids[1], "z": _cells(setting, quantity, (x, y), grids)}
        spent = time.monotonic() - since
        if level + 1 < len(_LEVELS):
            send(plane)
    return plane


def _together(setting: Setting, quantity: str, names: tuple[str, str], grids: list[np.ndarray]) -> np.ndarray | None:
    """The whole plane by one call of the model's own maps, or of its vectorised theory; None if there is no such."""
    model: Any = setting.build()
    x, y = names
    if setting.model == "linear-estimator" and quantity in ("delay", "train_time", "test_time"):
        if model.hidden is not None:
            return None
        found = model.phase_diagram(**{x: grids[0], y: grids[1]})
        return found[quantity].transpose(y, x).values
    if setting.model == "feature-scaling" and {x, y} == {"capacity", "source"}:
        sides = dict(zip(names, grids, strict=True))
        found = model.phase_map(sides["capacity"], sides["source"])
        if quantity not in found["quantity"]:
            return None
        regime = "rich" if model.richness > 0 else "lazy"
        return found["exponent"].sel(quantity=quantity, regime=regime).transpose(y, x).values
    return _vectorised(setting, model, quantity, names, grids)


def _vectorised(
    setting: Setting, model: Any, quantity: str, names: tuple[str, str], grids: list[np.ndarray]
) -> np.ndarray | None:
    """The quantity for all cells at once; None where it cannot be traced in these parameters."""
    if any(setting.fields[_split(name)[0]].whole for name in names):
        return None
    measure = _measure(setting, quantity)

    def cell(x: Any, y: Any) -> Any:
        changed = model
        for name, value in zip(names, (x, y), strict=True):
            key, entry = _split(name)
            if entry is not None:
                old = jnp.asarray(getattr(changed, key))
                value = old.ravel().at[entry].set(value).reshape(old.shape)
            changed = changed.replace(**{key: value})
        return measure(changed)

    across, along = np.meshgrid(*grids)
    try:
        found = jax.vmap(cell)(jnp.asarray(across.ravel()), jnp.asarray(along.ravel()))
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        # Roots and searches that are not JAX's cannot be traced; they are found cell by cell.
        return None
    return np.asarray(found).reshape(across.shape)


def _measure(setting: Setting, quantity: str) -> Callable[[Any], Any]:
    if quantity != END:
        return next(one for one in SUMMARIES[setting.model] if one.name == quantity).of
    times, options = setting.theory_times()[-1:], setting.values("theory")

    def last_loss(model: Any) -> Any:
        curves = model.predict(times, **options)
        if "test_loss" not in curves:
            raise ValueError(f"{model.name} predicts no test_loss, but {', '.join(map(str, curves.data_vars))}")
        return curves["test_loss"].data[-1]

    return last_loss


def _cells(setting: Setting, quantity: str, names: tuple[str, str], grids: list[np.ndarray]) -> np.ndarray:
    values = np.full((grids[1].size, grids[0].size), np.nan)
    with progress_bar("plane", values.size, False) as advance:
        for row, y in enumerate(grids[1]):
            for column, x in enumerate(grids[0]):
                values[row, column] = _cell(setting, quantity, names, (x, y))
                advance()
    return values


def _cell(setting: Setting, quantity: str, names: tuple[str, str], places: tuple[float, float]) -> float:
    """NaN where the quantity does not exist."""
    try:
        for name, place in zip(names, places, strict=True):
            setting = moved(setting, name, float(place))
        value = _measure(setting, quantity)(setting.build())
    except ValueError:
        return math.nan
    return float(value)
