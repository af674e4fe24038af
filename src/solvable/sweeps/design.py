"""What a sweep runs over: grids, lists that go together, and products of both.

A design is a few axes. An axis is a dimension with one or more parameters along it: one for a plain grid, several where
lists are zipped. Axes are combined by their product. Nothing here knows a model.
"""

import hashlib
import json
import numbers
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

# A vector longer than this in JSON is told apart by its hash instead.
_LONGEST_LABEL = 120


@dataclass(frozen=True)
class SweepAxis:
    """A dimension of a sweep and the values that its parameters take along it, in order."""

    dim: str
    values: Mapping[str, tuple[Any, ...]]

    @property
    def size(self) -> int:
        return len(next(iter(self.values.values())))

    def coordinates(self) -> dict[str, np.ndarray]:
        """Each parameter's values as an array of numbers or, where they are none, of text."""
        return {name: coordinate(values) for name, values in self.values.items()}


@dataclass(frozen=True)
class Design:
    """A product of axes. ``a * b`` is the product of two designs."""

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
        return int(np.prod(self.shape, dtype=object))

    def cell(self, place: Iterable[int]) -> dict[str, Any]:
        """The parameters of one cell, by its index along each axis."""
        return {
            name: values[index]
            for axis, index in zip(self.axes, place, strict=True)
            for name, values in axis.values.items()
        }

    def cells(self) -> Iterator[dict[str, Any]]:
        """Every cell in order, the last axis fastest."""
        return (self.cell(place) for place in np.ndindex(self.shape))

    def replace(self, name: str, values: tuple[Any, ...]) -> "Design":
        """The same design with the values of one parameter written otherwise."""
        return Design(
            tuple(
                SweepAxis(axis.dim, {**axis.values, name: values}) if name in axis.values else axis
                for axis in self.axes
            )
        )


def as_design(over: Any) -> Design:
    """A design from what ``over=`` may be: a design, a mapping, or a list of either, which are multiplied.

    In a mapping, ``{"a": [...], "b": [...]}`` is a grid; ``{("a", "b"): ([...], [...])}`` goes through two equally long
    lists together; values that are a one-dimensional :class:`xarray.DataArray` go together where they share a
    dimension and are multiplied where they do not.
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
    """Every combination of the cells of several designs."""
    axes = tuple(axis for design in designs for axis in as_design(design).axes)
    if not axes:
        raise ValueError("a sweep needs at least one parameter to go over, such as {'weight_decay': [1e-3, 1e-2]}")
    return Design(axes)


def zipped(dim: str | None = None, /, **lists: Any) -> Design:
    """Equally long lists that are gone through together, along one dimension."""
    return Design((_axis(dim or "_".join(lists), {name: _listed(name, values) for name, values in lists.items()}),))


def _from_mapping(over: Mapping[Any, Any]) -> Design:
    if not over:
        raise ValueError("a sweep needs at least one parameter to go over, such as {'weight_decay': [1e-3, 1e-2]}")
    shared: dict[str, dict[str, tuple[Any, ...]]] = {}
    for key, values in over.items():
        if isinstance(values, Design):
            raise ValueError(f"a design has its own names: write over=[{{...}}, design], not {{{key!r}: design}}")
        names = key if isinstance(key, tuple) else (key,)
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"parameters are named by text, or by tuples of it, not by {key!r}")
        if isinstance(key, tuple):
            columns = values if isinstance(values, list | tuple | np.ndarray) else (values,)
            if len(columns) != len(names):
                raise ValueError(f"{key!r} needs {len(names)} lists, one for each parameter, not {len(columns)}")
            dim = "_".join(names)
        else:
            columns, dim = (values,), _dimension_of(key, values)
        shared.setdefault(dim, {}).update(
            {name: _listed(name, column) for name, column in zip(names, columns, strict=True)}
        )
    return Design(tuple(_axis(dim, lists) for dim, lists in shared.items()))


def _dimension_of(name: str, values: Any) -> str:
    """Labelled arrays bring their own dimension; a plain list makes one of the parameter's name."""
    dims = getattr(values, "dims", None)
    if dims is None:
        return name
    if len(dims) != 1:
        raise ValueError(f"{name} must have one dimension, not {dims}: stack it, and what belongs to it, into one")
    return str(dims[0])


def _listed(name: str, values: Any) -> tuple[Any, ...]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list of values, not {values!r}: a fixed value belongs into the model")
    array = getattr(values, "values", values)
    items = [_plain(item) for item in array]
    if not items:
        raise ValueError(f"{name} must have at least one value")
    return tuple(items)


def _plain(value: Any) -> Any:
    """Numbers as Python's, arrays as nested lists: what JSON can hold and workers can be sent."""
    if isinstance(value, np.generic) or (hasattr(value, "shape") and value.shape == ()):
        return value.item()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def _axis(dim: str, lists: dict[str, tuple[Any, ...]]) -> SweepAxis:
    if not lists:
        raise ValueError("lists that go together need at least one parameter")
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"lists that go together must be equally long: {told}")
    axis = SweepAxis(dim, lists)
    seen: set[tuple[Any, ...]] = set()
    for point in zip(*(array.tolist() for array in axis.coordinates().values()), strict=True):
        if point in seen:
            told = ", ".join(f"{name} = {value!r}" for name, value in zip(lists, point, strict=True))
            raise ValueError(f"{told} appears twice along {dim!r}: give each cell once")
        seen.add(point)
    return axis


def coordinate(values: tuple[Any, ...]) -> np.ndarray:
    """Numbers as they are; anything else by its label."""
    if all(isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values):
        whole = all(isinstance(value, numbers.Integral) for value in values)
        return np.array(values, dtype=np.int64 if whole else np.float64)
    return np.array([label(value) for value in values])


def label(value: Any) -> str:
    """Short text that tells a value from any other: names as they are, vectors as JSON or, if long, by their hash."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return repr(value)
    text = json.dumps(value)
    if len(text) <= _LONGEST_LABEL:
        return text
    return f"array of shape {np.shape(value)}, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"
