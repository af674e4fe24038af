"""The parameters that a sweep covers: grids, zipped lists, designs that fill a box, and products of these.

A design is a tuple of axes. An axis is a dimension with one or more parameters along it: one for a grid, several where
lists are zipped. Axes are combined by their product. Nothing here depends on models.
"""

import hashlib
import json
import math
import numbers
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from solvable.checks import check_count
from solvable.numerics.sobol import sequence
from solvable.sweeps.schema import Axis

# Longer vectors (in JSON) are labelled by their hash.
_MAXIMUM_LABEL_LENGTH = 120

Ranges = Mapping[str, tuple[Any, ...]]


@dataclass(frozen=True)
class SweepAxis:
    """A dimension of a sweep and the values of its parameters along it, in order.

    Parameters
    ----------
    dim
        Name of the dimension.
    values
        Values of each of its parameters, by name; lists of equal length.
    """

    dim: str
    values: Mapping[str, tuple[Any, ...]]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("lists that are zipped need at least one parameter")
        # The checks of an axis: equal lengths, no cell twice.
        Axis(self.dim, self.coordinates)

    @property
    def size(self) -> int:
        return len(next(iter(self.values.values())))

    @cached_property
    def coordinates(self) -> dict[str, np.ndarray]:
        """The values of each parameter as an array of numbers or, if they are not numbers, of labels."""
        return {name: coordinate(values) for name, values in self.values.items()}


@dataclass(frozen=True)
class Design:
    """A product of axes. ``a * b`` is the product of two designs.

    Parameters
    ----------
    axes
        The axes; each parameter and each dimension appears once.
    """

    axes: tuple[SweepAxis, ...]

    def __post_init__(self) -> None:
        for what, names in (("the parameter", self.names), ("the dimension", self.dims)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} {twice[0]!r} is swept twice: give it one list of values")

    def __mul__(self, other: "Design") -> "Design":
        return Design((*self.axes, *other.axes))

    @property
    def names(self) -> list[str]:
        """The swept parameters, axis by axis."""
        return [name for axis in self.axes for name in axis.values]

    @property
    def dims(self) -> list[str]:
        return [axis.dim for axis in self.axes]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def cell(self, place: Iterable[int]) -> dict[str, Any]:
        """The parameters of one cell, by its index along each axis.

        Parameters
        ----------
        place
            One index per axis.
        """
        return {
            name: values[index]
            for axis, index in zip(self.axes, place, strict=True)
            for name, values in axis.values.items()
        }

    def cells(self) -> Iterator[dict[str, Any]]:
        """Every cell in order, the last axis fastest."""
        return (self.cell(place) for place in np.ndindex(self.shape))

    def replace(self, name: str, values: tuple[Any, ...]) -> "Design":
        """The same design with other values of one parameter.

        Parameters
        ----------
        name
            Name of the parameter.
        values
            Its new values.
        """
        changed = ({**axis.values, name: values} if name in axis.values else axis.values for axis in self.axes)
        return Design(tuple(SweepAxis(axis.dim, new) for axis, new in zip(self.axes, changed, strict=True)))


def as_design(over: Any) -> Design:
    """Convert the argument ``over`` of a sweep to a design.

    Parameters
    ----------
    over
        A design, a mapping, or a list of either, which are multiplied. In a mapping, ``{"a": [...], "b": [...]}`` is a
        grid, and ``{("a", "b"): ([...], [...])}`` zips two lists of equal length. One-dimensional
        :class:`xarray.DataArray` are zipped if they share a dimension, and multiplied otherwise.
    """
    if isinstance(over, Design):
        return over
    if isinstance(over, Mapping):
        return _from_mapping(over)
    if isinstance(over, list | tuple) and over:
        return product(*over)
    raise ValueError(
        f"over must be a mapping from parameter names to values, a design, or a list of these, not {over!r}"
    )


def product(*designs: Any) -> Design:
    """Every combination of the cells of several designs.

    Parameters
    ----------
    designs
        Designs, or anything that ``over`` may be in :func:`sweep`.
    """
    axes = tuple(axis for design in designs for axis in as_design(design).axes)
    if not axes:
        raise ValueError("a sweep needs at least one parameter, such as {'weight_decay': [1e-3, 1e-2]}")
    return Design(axes)


def zipped(dim: str | None = None, /, **lists: Any) -> Design:
    """Zip lists of equal length: their first values are one cell, their second values another, and so on.

    Parameters
    ----------
    dim
        Name of the dimension; by default the names of the parameters, joined by ``_``.
    lists
        The values of each parameter.
    """
    return Design((SweepAxis(dim or "_".join(lists), {name: _listed(name, values) for name, values in lists.items()}),))


def _from_mapping(over: Mapping[Any, Any]) -> Design:
    if not over:
        return product()
    shared: dict[str, dict[str, tuple[Any, ...]]] = {}
    for key, values in over.items():
        if isinstance(values, Design):
            raise ValueError(f"a design has its own names: write over=[{{...}}, design], not {{{key!r}: design}}")
        names = key if isinstance(key, tuple) else (key,)
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"parameters are named by strings, or by tuples of strings, not by {key!r}")
        columns: Any = (values,)
        dim = "_".join(names)
        if isinstance(key, tuple):
            columns = values if isinstance(values, list | tuple | np.ndarray) else (values,)
            if len(columns) != len(names):
                raise ValueError(f"{key!r} needs {len(names)} lists, one for each parameter, not {len(columns)}")
        elif (dims := getattr(values, "dims", None)) is not None:
            if len(dims) != 1:
                raise ValueError(f"{key} must have one dimension, not {dims}: stack it, and what belongs to it")
            dim = str(dims[0])
        lists = {name: _listed(name, column) for name, column in zip(names, columns, strict=True)}
        shared.setdefault(dim, {}).update(lists)
    return Design(tuple(SweepAxis(dim, lists) for dim, lists in shared.items()))


def _listed(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list of values, not {values!r}: a fixed value belongs into the model")
    items = tuple(_plain(item) for item in getattr(values, "values", values))
    if not items:
        raise ValueError(f"{name} must have at least one value")
    return items


def _plain(value: Any) -> Any:
    """Convert numbers to Python numbers and arrays to nested lists, for JSON and for other processes."""
    if isinstance(value, np.generic) or (hasattr(value, "shape") and value.shape == ()):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def coordinate(values: tuple[Any, ...]) -> np.ndarray:
    """Numbers as they are; anything else by its label."""
    if all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values):
        whole = all(isinstance(value, numbers.Integral) for value in values)
        return np.array(values, dtype=np.int64 if whole else np.float64)
    return np.array([label(value) for value in values])


def label(value: Any) -> str:
    """A short string that identifies a value: a name itself, a vector as JSON or, if that is long, by its hash."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return repr(value)
    text = json.dumps(value)
    if len(text) <= _MAXIMUM_LABEL_LENGTH:
        return text
    return f"array of shape {np.shape(value)}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def latin_hypercube(ranges: Ranges, count: int, key: int = 0) -> Design:
    """Latin hypercube: if the range of any parameter is cut into ``count`` slices, every slice contains one cell.

    A larger Latin hypercube does not contain a smaller one; to add cells later, use :func:`sobol`.

    Parameters
    ----------
    ranges
        For each parameter ``(low, high)``, or ``(low, high, "log")`` for an even distribution of the logarithm.
    count
        Number of cells.
    key
        Random seed.
    """
    from scipy.stats import qmc

    return _sampled(qmc.LatinHypercube, ranges, count, key)


def sobol(ranges: Ranges, count: int, key: int = 0) -> Design:
    """The first points of a scrambled Sobol sequence. A longer sequence begins with a shorter one of the same key.

    Parameters
    ----------
    ranges
        As for :func:`latin_hypercube`.
    count
        Number of cells. Powers of two fill the box most evenly.
    key
        Random seed.
    """
    from scipy.stats import qmc

    with warnings.catch_warnings():
        # SciPy warns of counts that are not powers of two, which a growing sweep needs.
        warnings.simplefilter("ignore", UserWarning)
        return _sampled(qmc.Sobol, ranges, count, key)


def _sampled(sampler: Any, ranges: Ranges, count: int, key: int) -> Design:
    count = check_count("count", count)
    _check_ranges(ranges)
    generator = np.random.default_rng(check_count("key", key, least=0))
    points = sequence(sampler, len(ranges), generator).random(count)
    columns = {}
    for (parameter, (low, high, *log)), fraction in zip(ranges.items(), points.T, strict=True):
        columns[parameter] = low * (high / low) ** fraction if log else low + (high - low) * fraction
    return zipped("sample", **columns)


def _check_ranges(ranges: Ranges) -> None:
    if not isinstance(ranges, Mapping) or not ranges:
        raise ValueError('ranges must map parameter names to (low, high) or (low, high, "log")')
    for name, bounds in ranges.items():
        usage = f'{name} must be (low, high) or (low, high, "log"), not {bounds!r}'
        if not isinstance(bounds, tuple | list) or len(bounds) not in (2, 3) or tuple(bounds[2:]) not in ((), ("log",)):
            raise ValueError(usage)
        low, high = bounds[:2]
        if not all(isinstance(value, numbers.Real) and math.isfinite(value) for value in (low, high)) or low >= high:
            raise ValueError(f"{usage}: two finite numbers, the smaller one first")
        if len(bounds) == 3 and low <= 0:
            raise ValueError(f"{usage}: a log range needs positive numbers")
