"""The curves that a dataset has to show, and their numbers. Drawing is done in :mod:`solvable.explorer.figures`."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from solvable.plotting import describe

_FAMILIES = {"loss": ("test_loss", "train_loss"), "accuracy": ("test_accuracy", "train_accuracy")}
# Quantities for the second panel, in order of preference.
_SECOND = ("accuracy", "strength", "output", "alignment", "kernel_growth", "signal_fit")
_MOST_CURVES = 8
# An axis of losses spans at most eight decades: what matters would be lost in more.
_DEPTH = 1e-8


@dataclasses.dataclass(frozen=True)
class Curve:
    """A line, or a series of points. ``error`` and ``score`` are standard error and z-score of the mean over seeds."""

    name: str
    colour: int
    x: np.ndarray
    y: np.ndarray
    error: np.ndarray | None = None
    score: np.ndarray | None = None


def quantities(theory: xr.Dataset) -> dict[str, str]:
    """The quantities that can be drawn over time, with labels. Losses are drawn together, and so are accuracies."""
    shown: dict[str, str] = {}
    for family, names in _FAMILIES.items():
        if any(name in theory for name in names):
            shown[family] = family
    grouped = {name for names in _FAMILIES.values() for name in names}
    for key, values in theory.data_vars.items():
        name = str(key)
        if (
            "time" in values.dims
            and name not in grouped
            and not name.startswith("log_")
            and not name.endswith(("_error", "_spread"))
        ):
            shown[name] = describe(values)
    return shown


def variables_of(quantity: str) -> tuple[str, ...]:
    """The variables of a dataset that are drawn for a quantity, in the order of their curves."""
    return _FAMILIES.get(quantity, (quantity,))


def axis_label(theory: xr.Dataset, quantity: str) -> str:
    """A label that fits the side of a figure: the name and the symbol."""
    symbol = theory[quantity].attrs.get("symbol") if quantity in theory else None
    return f"{_word(quantity)}, {symbol}" if symbol else _word(quantity)


def usual_quantities(theory: xr.Dataset) -> tuple[str, str]:
    """The quantities that the two panels show at first; the second is empty if there is only one quantity with numbers.

    The fit of a signal that is zero, for example, is not a number at any time.
    """
    known = quantities(theory)
    first = next(iter(known))
    others = (name for name in _SECOND if name in known and name != first)
    second = next((name for name in others if any(np.isfinite(one.y).any() for one in lines(theory, name))), "")
    return first, second


def log_by_default(quantity: str) -> bool:
    return "loss" in quantity or quantity in ("kernel_growth",)


def lines(theory: xr.Dataset, quantity: str) -> list[Curve]:
    """The curves of a quantity."""
    return [
        Curve(name, place, theory["time"].values, values.values)
        for place, (name, values) in enumerate(_series(theory, quantity))
    ]


def points(simulation: xr.Dataset, comparison: xr.Dataset | None, quantity: str) -> list[Curve]:
    """Means over seeds with their standard errors and, where there is a comparison with theory, z-scores."""
    made = []
    scores = {} if comparison is None else dict(_series(comparison.sel(statistic="z_score"), quantity))
    errors = {} if comparison is None else dict(_series(comparison.sel(statistic="standard_error"), quantity))
    for place, (name, values) in enumerate(_series(simulation, quantity)):
        seeds = values.sizes.get("seed", 1)
        mean = values.mean("seed").values
        error = values.std("seed", ddof=1).values / math.sqrt(seeds) if seeds > 1 else np.full_like(mean, np.nan)
        error = errors[name].values if name in errors else error
        score = scores[name].values if name in scores else np.full_like(mean, np.nan)
        made.append(Curve(name, place, simulation["time"].values, mean, error, score))
    return made


def _series(data: xr.Dataset, quantity: str) -> Iterator[tuple[str, xr.DataArray]]:
    """Each curve over time, under a name that is the same in theory, simulation and comparison."""
    for name in variables_of(quantity):
        if name not in data or "time" not in data[name].dims:
            continue
        values = data[name]
        others = [str(dim) for dim in values.dims if dim not in ("time", "seed")]
        if not others:
            yield _word(name), values
            continue
        places = np.ndindex(*(values.sizes[dim] for dim in others))
        for place in _chosen(list(places)):
            at = dict(zip(others, place, strict=True))
            # A dimension with one entry tells nothing apart, unless it is the only one.
            told = {dim: n for dim, n in at.items() if values.sizes[dim] > 1} or at
            yield _labelled(values, told), values.isel(at)


def first_of(variable: str, curves: list[Curve]) -> Curve | None:
    """The first curve of a variable among those of its quantity; None if there is none."""
    named = [curve for curve in curves if curve.name == _word(variable)]
    # Curves of a variable with further dimensions are named after these, and are the only ones of their quantity.
    others = [] if any(variable in names for names in _FAMILIES.values()) else curves
    return next(iter([*named, *others]), None)


def _word(name: str) -> str:
    return name.replace("_", " ")


def _chosen(places: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """All places if there are at most eight; otherwise eight, evenly spaced in the logarithm of their rank."""
    if len(places) <= _MOST_CURVES:
        return places
    ranks = np.unique(np.round(np.geomspace(1, len(places), _MOST_CURVES)).astype(int)) - 1
    return [places[rank] for rank in ranks]


def _labelled(values: xr.DataArray, at: dict[str, int]) -> str:
    words = []
    for dim, place in at.items():
        number = values[dim].values[place] if dim in values.coords else place
        words.append(f"{dim} {number:.4g}" if isinstance(number, float | np.floating) else f"{dim} {number}")
    return ", ".join(words)


def y_range(curves: list[Curve], log: bool) -> tuple[float, float]:
    """A range of whole decades or round numbers that contains the curves, so that it seldom changes with a slider."""
    parts = [curve.y[np.isfinite(curve.y)] for curve in curves]
    values = np.concatenate(parts) if parts else np.empty(0)
    if log:
        values = values[values > 0]
        if values.size == 0:
            return 0.1, 1.0
        high = float(values.max())
        low = max(float(values.min()), high * _DEPTH)
        above, below = math.ceil(math.log10(high) + 0.05), math.floor(math.log10(low))
        return 10.0 ** min(below, above - 1), 10.0**above
    if values.size == 0:
        return 0.0, 1.0
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    unit: float = 10.0 ** math.floor(math.log10(max(high - low, 1e-300))) / 2
    # A curve that ends on a round number, as accuracies do, is not drawn on the frame.
    top = math.ceil(high / unit - 1e-9) * unit
    bottom = math.floor(low / unit + 1e-9) * unit
    margin = 0.03 * (top - bottom)
    return bottom - margin, top + margin


def largest_score(comparison: xr.Dataset | None, quantity: str) -> tuple[float, int] | None:
    """The largest z-score of a quantity and the number of z-scores; None if there are none."""
    if comparison is None:
        return None
    scores = [values.values.ravel() for _, values in _series(comparison.sel(statistic="z_score"), quantity)]
    flat = np.concatenate(scores) if scores else np.empty(0)
    flat = flat[np.isfinite(flat)]
    return (float(np.abs(flat).max()), flat.size) if flat.size else None
