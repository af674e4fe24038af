"""Many cells in one compiled call, where JAX can trace the model's parameters.

Traced parameters are not checked, neither by the model when it is built nor by its methods. So every cell is built as
plain numbers first where its parameters restrict each other; and in every tile the corners and a cell that is not
finite are computed once more by themselves. Where a cell then raises, or differs, the tile is computed cell by cell.
"""

import itertools
import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.model import Model
from solvable.numerics.memory import memory_limit
from solvable.sweeps.cells import Cell, Cells, error_text
from solvable.sweeps.results import Result

# Wider rows fall out of the processor's cache; narrower ones leave its vector units idle.
_NARROWEST, _WIDEST = 32, 256
# Rows computed by one call: those of a low tile, else a few, so that little is computed in vain at the last call.
_ROWS, _MOST_ROWS = 8, 16
_CORNERS = 8
# Vectorised and single runs differ by rounding, which root searches amplify a little.
_RELATIVE, _OF_LARGEST = 1e-6, 1e-8

# Compiled functions outlive a sweep, so that the next one like it starts at once.
_compiled: OrderedDict[Any, Any] = OrderedDict()
_MOST_COMPILED = 32

Columns = dict[str, np.ndarray]
Outputs = tuple[jax.Array, ...]


def why_not(cells: Cells, numeric: dict[str, bool]) -> str | None:
    """Why the quantity cannot be vectorised, or None if it can; ``numeric`` says which parameters are numbers."""
    if cells.quantity.draws:
        return "simulations are vectorised over seeds, not over cells"
    words = [name for name, is_number in numeric.items() if not is_number]
    if words:
        return f"{words[0]} is no number"
    key = (_identity(cells), "why not", tuple(numeric))
    if key not in _compiled:
        row = {name: jax.ShapeDtypeStruct((2,), float) for name in numeric}
        try:
            jax.eval_shape(jax.vmap(partial(_one, cells)), row)
            reason = None
        except Exception as error:
            reason = f"{cells.quantity.name} cannot be traced by JAX ({error_text(error)[:120]})"
        _remember(key, cells, reason)
    return _compiled[key][1]


def _one(cells: Cells, values: dict[str, Any]) -> Outputs:
    """The outputs of one cell of traced parameters."""
    assert cells.schema is not None
    options = {name: values[name] for name in cells.swept_options} | cells.trained(values)
    result = cells.quantity.evaluate(cells.model(values), options)
    return tuple(_traced(cells, result))


def _traced(cells: Cells, result: Result) -> list[jax.Array]:
    schema = cells.schema
    assert schema is not None
    schema.check_coordinates(result)
    arrays = []
    for output in schema.outputs:
        source = schema.naming.source(output.name)
        # The error of a theory is estimated from plain numbers only.
        array = result.arrays[source][1] if source in result.arrays or source != "numerical_error" else jnp.nan
        array = jnp.asarray(array, dtype=output.dtype)
        if array.shape != output.shape:
            raise ValueError(f"{source} has the shape {array.shape}, in the first cell {output.shape}")
        arrays.append(array)
    return arrays


@dataclass(frozen=True)
class VectorisedCells:
    """:class:`Cells` computed together. ``axes`` are the names along each dimension, ``tile`` its lengths."""

    cells: Cells
    axes: tuple[tuple[str, ...], ...]
    tile: tuple[int, ...]

    def __call__(self, cells: Sequence[Cell]) -> tuple[dict[str, np.ndarray], list[str | None]]:
        errors = self._impossible(cells)
        possible = [index for index, error in enumerate(errors) if error is None]
        schema = self.cells.schema
        assert schema is not None
        values = schema.empty(len(cells))
        if not possible:
            return values, errors
        chosen = [cells[index] for index in possible]
        try:
            found = self._together(chosen)
            suspicious = self._differs(chosen, found)
        except Exception:
            # Whatever went wrong together, each cell by itself says what is wrong with it.
            suspicious = True
        if suspicious:
            found, reasons = self.cells(chosen)
            for index, reason in zip(possible, reasons, strict=True):
                errors[index] = reason
        for name in values:
            values[name][possible] = found[name]
        return values, errors

    def _impossible(self, cells: Sequence[Cell]) -> list[str | None]:
        """The cells whose parameters forbid each other; single ones were checked before the sweep began."""
        kind = self.cells.kind
        if self.cells.make is kind and kind.__check_init__ is Model.__check_init__:
            return [None] * len(cells)
        errors: list[str | None] = []
        for cell in cells:
            try:
                self.cells.model(self.cells.values(cell))
                errors.append(None)
            except Exception as error:
                errors.append(error_text(error))
        return errors

    def _together(self, cells: Sequence[Cell]) -> dict[str, np.ndarray]:
        columns = {name: np.array([cell[name] for cell in cells], float) for axis in self.axes for name in axis}
        block = self._as_block(columns) or _Block((tuple(columns),), (len(cells),), (columns,))
        limits = self.tile if block.axes == self.axes else (len(cells),)
        assert self.cells.schema is not None
        return {
            output.name: array.reshape(len(cells), *output.shape)
            for output, array in zip(self.cells.schema.outputs, _run(self.cells, block, limits), strict=True)
        }

    def _as_block(self, columns: Columns) -> "_Block | None":
        """The cells as a product of their axes, if they are one: what depends on one axis is then computed once."""
        if len(self.axes) < 2 or self.tile[-1] < _NARROWEST:
            return None
        shape = tuple(len(np.unique(np.stack([columns[name] for name in axis], axis=1), axis=0)) for axis in self.axes)
        count = next(iter(columns.values())).size
        if np.prod(shape) != count or any(size > length for size, length in zip(shape, self.tile, strict=True)):
            return None
        along = []
        for position, axis in enumerate(self.axes):
            line = tuple(slice(None) if place == position else 0 for place in range(len(shape)))
            spread = tuple(-1 if place == position else 1 for place in range(len(shape)))
            grids = {name: columns[name].reshape(shape) for name in axis}
            along.append({name: grid[line] for name, grid in grids.items()})
            if not all((grid == grid[line].reshape(spread)).all() for grid in grids.values()):
                return None
        return _Block(self.axes, shape, tuple(along))

    def _differs(self, cells: Sequence[Cell], found: dict[str, np.ndarray]) -> bool:
        """Whether a corner, or a cell that is not finite, is otherwise when it is computed by itself."""
        places = [*_corners(cells, self.axes), *_not_finite(found)[:1]]
        alone, errors = self.cells([cells[place] for place in places])
        if any(errors):
            return True
        return not all(_close(alone[name], found[name][places]) for name in found if name != "numerical_error")


@dataclass(frozen=True)
class _Block:
    """Cells that are a product: for each axis its names, its length and the values along it."""

    axes: tuple[tuple[str, ...], ...]
    shape: tuple[int, ...]
    columns: tuple[Columns, ...]


def _run(cells: Cells, block: _Block, limits: Sequence[int]) -> list[np.ndarray]:
    """The outputs over the block, a few rows at a time: all pieces have one shape, so that one is compiled for all."""
    first, *rest = block.columns
    inner = [
        _padded(axis, min(limit, _padded_length(size)))
        for axis, limit, size in zip(rest, limits[1:], block.shape[1:], strict=True)
    ]
    most = (limits[0] if limits[0] <= _MOST_ROWS else _ROWS) if rest else _WIDEST
    step = min(most, _padded_length(block.shape[0]))
    pieces = []
    for begin in range(0, block.shape[0], step):
        outer = _padded({name: column[begin : begin + step] for name, column in first.items()}, step)
        columns = (outer, *inner)
        pieces.append(_compiled_block(cells, columns)(columns))
    kept = tuple(slice(size) for size in block.shape)
    return [np.concatenate([np.asarray(piece) for piece in parts])[kept] for parts in zip(*pieces, strict=True)]


def _padded(axis: Columns, length: int) -> Columns:
    return {name: np.pad(column, (0, length - column.size), mode="edge") for name, column in axis.items()}


def _compiled_block(cells: Cells, columns: tuple[Columns, ...]) -> Callable[[Any], Outputs]:
    lengths = tuple(next(iter(axis.values())).size for axis in columns)
    key = (_identity(cells), tuple(tuple(axis) for axis in columns), lengths)
    if key not in _compiled:
        width = min(lengths[-1], _WIDEST)
        compiled = jax.jit(partial(_nested, cells, width)).lower(columns).compile()
        while width > 1 and _bytes(compiled) > memory_limit():
            width = -(-width // 4)
            compiled = jax.jit(partial(_nested, cells, width)).lower(columns).compile()
        _remember(key, cells, compiled)
    return _compiled[key][1]


def _nested(cells: Cells, width: int, columns: tuple[Columns, ...]) -> Outputs:
    """Nested over the axes, so that what depends on the outer ones only is computed once along the inner ones.

    The last axis is vectorised, in rows of ``width``; the others are walked: a row fits in the cache, a plane does not.
    """

    def nest(outer: dict[str, Any], rest: tuple[Columns, ...]) -> Outputs:
        def cell(values: dict[str, Any]) -> Outputs:
            together = {**outer, **values}
            return nest(together, rest[1:]) if len(rest) > 1 else _one(cells, together)

        if len(rest) > 1:
            return jax.lax.map(cell, rest[0])
        if next(iter(rest[0].values())).size <= width:
            return jax.vmap(cell)(rest[0])
        return jax.lax.map(cell, rest[0], batch_size=width)

    return nest({}, columns)


def _bytes(compiled: Any) -> float:
    """What a compiled call needs beside its arguments; 0 where the backend does not say."""
    analysis = compiled.memory_analysis()
    return getattr(analysis, "temp_size_in_bytes", 0) or 0


def _padded_length(count: int) -> int:
    """A power of two, so that a store that is nearly full does not compile anew for every tile."""
    return 1 << (count - 1).bit_length()


def _corners(cells: Sequence[Cell], axes: Sequence[Sequence[str]]) -> list[int]:
    """The cells that are farthest out in each combination of directions, up to a few."""
    ranks = np.stack(
        [np.argsort(np.argsort([cell[name] for cell in cells])) / len(cells) for axis in axes for name in axis]
    )
    signs = np.array(list(itertools.product((-1, 1), repeat=min(len(ranks), 3))))
    if len(ranks) > 3:
        signs = np.random.default_rng(0).choice((-1, 1), (_CORNERS, len(ranks)))
    return sorted({int(place) for place in np.argmax(signs @ ranks, axis=1)})


def _not_finite(found: dict[str, np.ndarray]) -> list[int]:
    bad: Any = False
    for name, array in found.items():
        if array.dtype.kind in "fc" and name != "numerical_error":
            bad = bad | ~np.isfinite(array).all(axis=tuple(range(1, array.ndim)))
    return np.flatnonzero(bad).tolist()


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    if one.dtype.kind not in "fc":
        return bool((one == other).all())
    finite = np.abs(one[np.isfinite(one)])
    largest = float(finite.max()) if finite.size else 0.0
    return bool(np.allclose(one, other, rtol=_RELATIVE, atol=_OF_LARGEST * largest, equal_nan=True))


def _identity(cells: Cells) -> str:
    """Cache key for compiled functions: sweeps with the same key compute the same in a cell."""
    functions = [id(value) for value in (cells.make, cells.quantity.target, *cells.fixed.values()) if callable(value)]
    swept = (cells.swept_options, cells.swept_training, repr(cells.training))
    return json.dumps([cells.settings(), cells.kind.__module__, functions, swept])


def _remember(key: Any, cells: Cells, value: Any) -> None:
    # The cells are kept, too: while their functions live, no others can have their addresses.
    _compiled[key] = (cells, value)
    while len(_compiled) > _MOST_COMPILED:
        _compiled.popitem(last=False)
