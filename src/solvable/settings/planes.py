"""Planes: a quantity over two parameters or options of the training, computed on a grid."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable import models
from solvable.controls import Summary
from solvable.precision import in_float64
from solvable.progress import progress_bar
from solvable.settings import Setting
from solvable.settings.fields import Field, write
from solvable.training import Training

END = "end_loss"
# Grid of a plane that is computed in one call, and the successive grids of one that is computed cell by cell.
_FINE = (64, 48)
_LEVELS = ((6, 5), (12, 9), (24, 18), (48, 36))
_SECONDS = 12.0
# Numbers that change shapes or control flow: every value would be compiled anew.
_NO_AXES = {"width", "max_steps"}


def axes(setting: Setting) -> dict[str, str]:
    """What can be an axis, by key, with labels. Entries of short lists have the keys ``name.1``, ``name.2``, ..."""
    found = {}
    options = _options_of_training(setting)
    for key, field in setting.fields.items():
        if field.role not in ("parameter", "training") or field.slider is None or key in _NO_AXES:
            continue
        if field.role == "training" and key not in options:
            continue
        if field.kind == "number":
            found[key] = f"{field.symbol} {field.help}"
        for place in range(field.entries(setting.text(key))):
            found[f"{key}.{place + 1}"] = f"{field.symbol} {field.help}, entry {place + 1}"
    return found


def _options_of_training(setting: Setting) -> set[str]:
    """The options that the chosen training has, and that theory covers: a batch size is an axis for SGD alone."""
    training = setting.training()
    given = {name for name, value in training.parameters().items() if value is not None}
    covers = models.get(setting.model).theory_covers
    covered = {name for cover in covers if cover.kind is type(training) for name in cover.options}
    return given & ({"learning_rate", "batch_size"} | covered)


def quantities(model: str) -> dict[str, str]:
    """The quantities that can be drawn over two parameters, with their labels."""
    summaries = models.get(model).controls.summaries
    return {**{one.name: one.label for one in summaries if one.planar}, END: "test loss at the last time"}


def unit_of(summary: Summary, training: Training) -> str:
    """The unit of a summary; that of a time depends on the training."""
    if summary.unit != "time":
        return summary.unit
    rate = training.parameters()["learning_rate"]
    return "steps" if training.counts_steps else "flow time" if rate == 1 else "flow time / η"


def usual(setting: Setting) -> dict[str, str]:
    """Quantity and axes that the tab shows at first: those that the model states, if these axes exist."""
    quantity, x, y = models.get(setting.model).controls.plane
    there = [x, y] if {x, y} <= set(axes(setting)) else [*axes(setting), "", ""][:2]
    return {"plane": quantity, "px": there[0], "py": there[1]}


def at(setting: Setting, axis: str) -> float:
    """The position of the setting on an axis; NaN if its control is empty."""
    key, entry = _split(axis)
    value = setting.value(key)
    if entry is not None:
        value = np.asarray(value).ravel()[entry]
    return math.nan if value is None else float(value)


def moved(setting: Setting, axis: str, value: float) -> Setting:
    """The setting moved to another position on an axis."""
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
    """Grid values over the range of the field's slider."""
    assert field.slider is not None
    values = (np.geomspace if field.slider.log else np.linspace)(field.slider.low, field.slider.high, points)
    if field.slider.whole:
        values = np.unique(np.round(values))
    allowed = [value for value in values if field.rule.test(value)]
    return np.array(allowed)


@in_float64
def compute(setting: Setting, view: Mapping[str, str], send: Callable[[Any], None]) -> dict[str, Any]:
    """The plane of a view. Where it is computed cell by cell, coarse grids are sent first."""
    quantity, x, y = view["plane"], view["px"], view["py"]
    labels = axes(setting)
    if len(labels) < 2:
        raise ValueError(f"a plane needs two parameters that are numbers, and {setting.model} has {len(labels)}")
    if x not in labels or y not in labels or x == y:
        raise ValueError(f"the axes must be two different ones of {', '.join(labels)}")
    if quantity not in quantities(setting.model):
        raise ValueError(f"there is no quantity {quantity!r}; there are {', '.join(quantities(setting.model))}")
    fields = [setting.fields[_split(axis)[0]] for axis in (x, y)]
    summary = _summary(setting, quantity)
    unit = "" if summary is None else unit_of(summary, setting.training())
    frame = {
        "label": quantities(setting.model)[quantity] + (f" [{unit}]" if unit else ""),
        "x_label": labels[x],
        "y_label": labels[y],
        "x_log": fields[0].slider.log if fields[0].slider else False,
        "y_log": fields[1].slider.log if fields[1].slider else False,
        "undefined": "" if summary is None else summary.undefined,
    }
    fine = [grid(field, points) for field, points in zip(fields, _FINE, strict=True)]
    values = _together(setting, quantity, (x, y), fine)
    if values is not None:
        return {**frame, "x": fine[0], "y": fine[1], "z": values}
    # Compile before the clock starts: the time of the first cell says nothing about the others.
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
    """The whole plane in one call, by the model's own map or by vectorised theory; None if neither is possible."""
    model, training = setting.build(), setting.training()
    summary = _summary(setting, quantity)
    if summary is not None and summary.over is not None:
        found = summary.over(model, training, dict(zip(names, grids, strict=True)))
        if found is not None:
            return found.transpose(names[1], names[0]).values
    return _vectorised(setting, model, quantity, names, grids)


def _summary(setting: Setting, quantity: str) -> Summary | None:
    summaries = models.get(setting.model).controls.summaries
    return next((one for one in summaries if one.name == quantity), None)


def _vectorised(
    setting: Setting, model: Any, quantity: str, names: tuple[str, str], grids: list[np.ndarray]
) -> np.ndarray | None:
    """The quantity for all cells by ``jax.vmap``; None if it cannot be traced in these parameters."""
    if any(setting.fields[_split(name)[0]].whole for name in names):
        return None
    measure = _measure(setting, quantity)
    fixed = setting.training()

    def cell(x: Any, y: Any) -> Any:
        changed, training = model, fixed
        for name, value in zip(names, (x, y), strict=True):
            key, entry = _split(name)
            if setting.fields[key].role == "training":
                training = training.replace(**{key: value})
                continue
            if entry is not None:
                old = jnp.asarray(getattr(changed, key))
                value = old.ravel().at[entry].set(value).reshape(old.shape)
            changed = changed.replace(**{key: value})
        return measure(changed, training)

    across, along = np.meshgrid(*grids)
    try:
        found = jax.vmap(cell)(jnp.asarray(across.ravel()), jnp.asarray(along.ravel()))
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        # Root finders and searches outside JAX cannot be traced: the plane is computed cell by cell.
        return None
    return np.asarray(found).reshape(across.shape)


def _measure(setting: Setting, quantity: str) -> Callable[[Any, Any], Any]:
    summary = _summary(setting, quantity)
    if summary is not None:
        return summary.of
    times, options = setting.times()[-1:], setting.values("theory")

    def last_loss(model: Any, training: Any) -> Any:
        curves = model.predict(times, training, **options)
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
    """The quantity in one cell; NaN where it is not defined."""
    try:
        for name, place in zip(names, places, strict=True):
            setting = moved(setting, name, float(place))
        value = _measure(setting, quantity)(setting.build(), setting.training())
    except ValueError:
        return math.nan
    return float(value)
