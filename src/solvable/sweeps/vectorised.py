"""Many cells in one compiled call, where JAX can trace the parameters of the model.

Traced parameters are not checked, neither when the model is built nor by its methods. Models whose parameters restrict
each other are therefore first built from plain numbers; and in every tile the corners, and one cell that is not finite,
are also computed individually. If one of these raises or differs, the tile is computed cell by cell.
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
from solvable.sweeps.cells import Cell, CellFunction
from solvable.sweeps.quantities import as_result
from solvable.sweeps.schema import error_text

# Wider rows do not fit into the cache of the processor; narrower ones leave its vector units idle.
_MINIMUM_WIDTH, _MAXIMUM_WIDTH = 32, 256
# Rows per call: all rows of a tile with few of them, otherwise a few, so that the last call computes little in vain.
_ROWS, _MAXIMUM_ROWS = 8, 16
_CORNERS = 8
# Vectorised and individual results differ by rounding errors, which root searches amplify a little.
_RELATIVE_TOLERANCE, _TOLERANCE_OF_LARGEST = 1e-6, 1e-8

# Compiled functions are kept for the next sweep of the same kind.
_cache: OrderedDict[Any, Any] = OrderedDict()
_MAXIMUM_CACHE_SIZE = 32

Columns = dict[str, np.ndarray]
Outputs = tuple[jax.Array, ...]


def obstacle(function: CellFunction, numeric: dict[str, bool]) -> str | None:
    """Why the quantity cannot be vectorised, or None if it can; ``numeric`` says which parameters are numbers."""
    if function.quantity.is_random:
        return "simulations are vectorised over seeds, not over cells"
    for name, is_number in numeric.items():
        if not is_number:
            return f"{name} is not a number"
    key = (_cache_key(function), "obstacle", tuple(numeric))
    if key not in _cache:
        row = {name: jax.ShapeDtypeStruct((2,), float) for name in numeric}
        try:
            jax.eval_shape(jax.vmap(partial(_traced_cell, function)), row)
            reason = None
        except Exception as error:
            reason = f"{function.quantity.name} cannot be traced by JAX ({error_text(error)[:120]})"
        _keep(key, function, reason)
    return _cache[key][1]


def has_common_program(function: CellFunction) -> bool:
    """Whether the class of models predicts many settings in a program of its own."""
    is_prediction = function.quantity.target == "predict" and function.training is not None
    return is_prediction and not function.swept_options and "predict_many" in vars(function.kind)


@dataclass(frozen=True)
class CommonProgram:
    """A :class:`CellFunction` that computes many cells by :meth:`solvable.Model.predict_many`."""

    function: CellFunction

    def __call__(self, cells: Sequence[Cell]) -> tuple[dict[str, np.ndarray], list[str | None]]:
        function, schema = self.function, self.function.schema
        assert schema is not None
        results = self._results(cells)
        values, errors = schema.empty(len(cells)), list[str | None]([None] * len(cells))
        alone = []
        for place, result in enumerate(results):
            matched = None if result is None else schema.match(as_result(result, function.quantity.name))
            # What is not finite has diverged, or is impossible: computed individually, the cell says why.
            if matched is None or not all(np.isfinite(array).all() for array in matched.values()):
                alone.append(place)
                continue
            for name, array in matched.items():
                values[name][place] = array
        found, reasons = function([cells[place] for place in alone]) if alone else ({}, [])
        for number, place in enumerate(alone):
            errors[place] = reasons[number]
            for name, array in found.items():
                values[name][place] = array[number]
        return values, errors

    def _results(self, cells: Sequence[Cell]) -> list[Any]:
        """A dataset for each cell, or None for those that must be computed individually."""
        function = self.function
        results: list[Any] = [None] * len(cells)
        built: list[tuple[int, Model, Any]] = []
        for place, cell in enumerate(cells):
            try:
                values = function.values(cell)
                built.append((place, function.model(values), function.trained(values)["training"]))
            except Exception:
                continue
        options = {name: value for name, value in function.quantity.options.items() if name != "times"}
        try:
            found = function.kind.predict_many(
                [model for _, model, _ in built],
                function.quantity.options["times"],
                [training for *_, training in built],
                **options,
                **({"progress": False} if function.quiet else {}),
            )
        except Exception:
            found = None
        for number, (place, *_) in enumerate(built):
            results[place] = found[number] if found else None
        return results


def _traced_cell(function: CellFunction, values: dict[str, Any]) -> Outputs:
    """The outputs of one cell with traced parameters."""
    schema = function.schema
    assert schema is not None
    options = {name: values[name] for name in function.swept_options} | function.trained(values)
    result = function.quantity.evaluate(function.model(values), options)
    schema.check_coordinates(result)
    arrays = []
    for output in schema.outputs:
        source = schema.naming.source(output.name)
        # The numerical error of a theory is only estimated for plain numbers.
        array = result.arrays[source][1] if source in result.arrays or source != "numerical_error" else jnp.nan
        array = jnp.asarray(array, dtype=output.dtype)
        if array.shape != output.shape:
            raise ValueError(f"{source} has the shape {array.shape}, in the first cell {output.shape}")
        arrays.append(array)
    return tuple(arrays)


@dataclass(frozen=True)
class VectorisedFunction:
    """A :class:`CellFunction` that computes many cells in one call.

    ``axes`` are the names of the parameters along each axis, ``tile`` is the shape of a tile.
    """

    function: CellFunction
    axes: tuple[tuple[str, ...], ...]
    tile: tuple[int, ...]

    def __call__(self, cells: Sequence[Cell]) -> tuple[dict[str, np.ndarray], list[str | None]]:
        errors = self._invalid(cells)
        valid = [index for index, error in enumerate(errors) if error is None]
        schema = self.function.schema
        assert schema is not None
        values = schema.empty(len(cells))
        if not valid:
            return values, errors
        chosen = [cells[index] for index in valid]
        try:
            found = self._together(chosen)
            suspicious = self._differs(chosen, found)
        except Exception:
            # Computed individually, each cell says what is wrong with it.
            suspicious = True
        if suspicious:
            found, reasons = self.function(chosen)
            for index, reason in zip(valid, reasons, strict=True):
                errors[index] = reason
        for name in values:
            values[name][valid] = found[name]
        return values, errors

    def _invalid(self, cells: Sequence[Cell]) -> list[str | None]:
        """Errors of cells with an impossible combination of parameters; each parameter was checked before the sweep."""
        kind = self.function.kind
        if self.function.make is kind and kind.__check_init__ is Model.__check_init__:
            return [None] * len(cells)
        errors: list[str | None] = []
        for cell in cells:
            try:
                self.function.model(self.function.values(cell))
                errors.append(None)
            except Exception as error:
                errors.append(error_text(error))
        return errors

    def _together(self, cells: Sequence[Cell]) -> dict[str, np.ndarray]:
        columns = {name: np.array([cell[name] for cell in cells], float) for axis in self.axes for name in axis}
        axes = self._as_product(columns)
        arrays = _run(self.function, axes, self.tile) if axes else _run(self.function, (columns,), (len(cells),))
        assert self.function.schema is not None
        return {
            output.name: array.reshape(len(cells), *output.shape)
            for output, array in zip(self.function.schema.outputs, arrays, strict=True)
        }

    def _as_product(self, columns: Columns) -> tuple[Columns, ...] | None:
        """The cells as a product of axes, if they are one: what depends on a single axis is then computed only once."""
        if len(self.axes) < 2 or self.tile[-1] < _MINIMUM_WIDTH:
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
        return tuple(along)

    def _differs(self, cells: Sequence[Cell], found: dict[str, np.ndarray]) -> bool:
        """Whether a corner, or a cell that is not finite, has another result when it is computed individually."""
        places = [*_corners(cells, self.axes), *_not_finite(found)[:1]]
        alone, errors = self.function([cells[place] for place in places])
        if any(errors):
            return True
        return not all(_close(alone[name], found[name][places]) for name in found if name != "numerical_error")


def _run(function: CellFunction, axes: tuple[Columns, ...], limits: Sequence[int]) -> list[np.ndarray]:
    """The outputs over a product of axes, a few rows at a time. All pieces have the shape of one compiled function."""
    shape = _lengths(axes)
    inner = [
        _padded(axis, min(limit, _padded_length(size)))
        for axis, limit, size in zip(axes[1:], limits[1:], shape[1:], strict=True)
    ]
    most = (limits[0] if limits[0] <= _MAXIMUM_ROWS else _ROWS) if inner else _MAXIMUM_WIDTH
    step = min(most, _padded_length(shape[0]))
    pieces = []
    for begin in range(0, shape[0], step):
        outer = _padded({name: column[begin : begin + step] for name, column in axes[0].items()}, step)
        pieces.append(_compiled(function, (outer, *inner))((outer, *inner)))
    kept = tuple(slice(size) for size in shape)
    return [np.concatenate([np.asarray(piece) for piece in parts])[kept] for parts in zip(*pieces, strict=True)]


def _lengths(axes: tuple[Columns, ...]) -> tuple[int, ...]:
    return tuple(next(iter(axis.values())).size for axis in axes)


def _padded(axis: Columns, length: int) -> Columns:
    return {name: np.pad(column, (0, length - column.size), mode="edge") for name, column in axis.items()}


def _compiled(function: CellFunction, columns: tuple[Columns, ...]) -> Callable[[Any], Outputs]:
    lengths = _lengths(columns)
    key = (_cache_key(function), tuple(tuple(axis) for axis in columns), lengths)
    if key not in _cache:
        width = min(lengths[-1], _MAXIMUM_WIDTH)
        compiled = jax.jit(partial(_nested, function, width)).lower(columns).compile()
        # Memory beside the arguments; some backends do not report it.
        while width > 1 and (getattr(compiled.memory_analysis(), "temp_size_in_bytes", 0) or 0) > memory_limit():
            width = -(-width // 4)
            compiled = jax.jit(partial(_nested, function, width)).lower(columns).compile()
        _keep(key, function, compiled)
    return _cache[key][1]


def _nested(function: CellFunction, width: int, columns: tuple[Columns, ...]) -> Outputs:
    """Nested loops over the axes, so that what depends only on outer axes is computed once for all of the inner ones.

    The last axis is vectorised, in rows of ``width``; the others are loops: a row fits into the cache, a plane does
    not.
    """

    def nest(outer: dict[str, Any], rest: tuple[Columns, ...]) -> Outputs:
        def cell(values: dict[str, Any]) -> Outputs:
            together = {**outer, **values}
            return nest(together, rest[1:]) if len(rest) > 1 else _traced_cell(function, together)

        if len(rest) > 1:
            return jax.lax.map(cell, rest[0])
        if next(iter(rest[0].values())).size <= width:
            return jax.vmap(cell)(rest[0])
        return jax.lax.map(cell, rest[0], batch_size=width)

    return nest({}, columns)


def _padded_length(count: int) -> int:
    """The next power of two, so that the few pending cells of a nearly complete store do not compile for every tile."""
    return 1 << (count - 1).bit_length()


def _corners(cells: Sequence[Cell], axes: Sequence[Sequence[str]]) -> list[int]:
    """A few cells that are extreme in combinations of directions."""
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
    return bool(np.allclose(one, other, rtol=_RELATIVE_TOLERANCE, atol=_TOLERANCE_OF_LARGEST * largest, equal_nan=True))


def _cache_key(function: CellFunction) -> str:
    """Cache key for compiled functions: equal for sweeps that compute the same in a cell."""
    parts = (function.make, function.quantity.target, *function.fixed.values())
    identities = [id(part) for part in parts if callable(part)]
    swept = (function.swept_options, function.swept_training, repr(function.training))
    return json.dumps([function.settings(), function.kind.__module__, identities, swept])


def _keep(key: Any, function: CellFunction, value: Any) -> None:
    # The function is kept, too: as long as it exists, no other object can have the same id.
    _cache[key] = (function, value)
    while len(_cache) > _MAXIMUM_CACHE_SIZE:
        _cache.popitem(last=False)
