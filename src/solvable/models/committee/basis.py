"""The growing basis of the latent closure: see :mod:`solvable.models.committee.closure`.

Arrays are (row, sample), one row for each coordinate, and products are taken over the rows in use. The products with
few rows dominate the cost: on a CPU they are NumPy's, which does them several times faster than JAX and compiles
nothing. On an accelerator the same operations are JAX's, on arrays with rows of zeros beyond those in use, so that
their shapes seldom change.
"""

import math
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee import latent_jacobian

# Memory is not touched before it is used, and copying it is avoided: the first rows do for most runs. An accelerator
# computes with all rows there are, and compiles anew when they become more: many rows grow more slowly.
_FIRST_ROWS, _GROWTH, _MANY_ROWS, _SLOW_GROWTH = 128, 2, 512, 1.5
# On an accelerator every size is a set of programs of its own, whose compilation takes longer than reading empty rows:
# there is room for many rows at once, as long as they take no more than these bytes.
_FIRST_ROWS_ON_DEVICE, _FIRST_BYTES = 512, 2**30
_ONE_BY_ONE = 8
# Products of at most this many multiplications are several times faster in OpenBLAS: it does not copy their factors.
_SMALL_PRODUCT, _LEAST_PART = 10**6, 512
# Up to this many rows are multiplied one by one: products of a matrix with a vector, while the matrix is in the cache,
# take half the time of one product with two rows. Numbers of the matrix that the cache holds.
_FEW_FACTORS, _CACHED = 3, 2**20
# Vectors that are at least this long, squared, after one pass of Gram-Schmidt are orthogonal to rounding.
_FAR_OUTSIDE = 0.1
# Signals this much smaller than the largest so far are the rounding errors of a network that has learned everything.
# All of them would lie outside the basis, and open a direction at every step.
ROUNDING = 1e-12
# Samples that are averaged at a time on an accelerator.
_AVERAGE_PART = 2048


def bound_weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A bound method that does not keep its object alive.

    A basis is a part of the closure whose methods it calls. Held as usual, each would keep the other, and with it
    hundreds of megabytes of samples, until Python looks for cycles; the command line and its workers let it do so
    seldom, and there are too few objects in a cycle to make it look.

    Parameters
    ----------
    method
        A bound method of an object that lives at least as long as the result is called.
    """
    found = weakref.WeakMethod(method)

    def call(*arguments: Any) -> Any:
        alive = found()
        assert alive is not None
        return alive(*arguments)

    return call


class Basis:
    """Latent coordinates ``Y_a`` of every sample, and the directions ``e_a`` that opened them.

    Parameters
    ----------
    first
        The coordinates that are there from the start, (row, sample).
    normals
        ``normals(begin, end)`` gives fresh normals, (row, sample), for coordinates by number.
    ratio
        Samples per dimension.
    tolerance
        Fraction of a signal that must lie outside the basis for the basis to grow.
    shrunk
        How much of ``1 - n/D`` shortens the step into the n-th coordinate: 0 for "open", 1 for "shrunk".
    check_memory
        Called with the number of rows before they are allocated; raises a MemoryError.
    dimension
        Dimension D of the finite system that "shrunk" describes; samples over ``ratio`` if None.
    first_rows
        Number of rows to make room for at first.
    namespace
        ``numpy``, or ``jax.numpy`` on an accelerator; chosen by the device if None.
    """

    def __init__(
        self,
        first: Float[np.ndarray, "row sample"],
        normals: Callable[[int, int], Any],
        *,
        ratio: float,
        tolerance: float,
        shrunk: float,
        check_memory: Callable[[int], None],
        dimension: float | None = None,
        first_rows: int = _FIRST_ROWS,
        namespace: Any = None,
    ) -> None:
        self._xp = namespace or (np if jax.default_backend() == "cpu" else jnp)
        self.fixed, self.samples = first.shape
        self.used = self.fixed
        self._normals, self._check_memory = normals, check_memory
        self._ratio, self._tolerance, self._shrunk = ratio, tolerance, shrunk
        self._dimension = self.samples / ratio if dimension is None else dimension
        self._capacity, self._far_outside, self._largest = 0, False, 0.0
        self._first_rows = first_rows if self._xp is np else _first_rows_on_device(self.samples, first_rows)
        self._latents = self._directions = self._xp.zeros((0, self.samples))
        self._reserve(self.fixed)
        self._latents = self._write(self._latents, 0, first)

    @property
    def latents(self) -> Any:
        """``Y``, (row, sample)."""
        return self._in_use(self._latents, self.used)

    @property
    def directions(self) -> Any:
        """``e``, (row, sample), one for each coordinate beyond the fixed ones."""
        return self._in_use(self._directions, self.used - self.fixed)

    def fields(self, weights: Float[np.ndarray, "neuron column"]) -> Any:
        """``h = U . Y``. Columns that the weights do not have yet are zero."""
        if self._xp is np:
            return self._combine(weights, self._latents[: weights.shape[1]])
        return self._combine(np.pad(weights, ((0, 0), (0, self._capacity - weights.shape[1]))), self._latents)

    def _combine(self, factors: np.ndarray, rows: Any) -> Any:
        """Combinations of rows."""
        if self._xp is not np:
            return self._xp.asarray(factors) @ rows
        out = np.empty((len(factors), self.samples))
        for part in self._parts(factors, rows):
            if len(factors) <= _FEW_FACTORS:
                for factor, one in zip(factors, out, strict=True):
                    np.matmul(factor, rows[:, part], out=one[part])
            else:
                np.matmul(factors, rows[:, part], out=out[:, part])
        return out

    def _without(self, values: Any, factors: np.ndarray, rows: Any) -> Any:
        """Values less combinations of rows."""
        taken = self._combine(factors, rows)
        return np.subtract(values, taken, out=taken) if self._xp is np else values - taken

    def average(self, values: Any, rows: Any) -> Float[np.ndarray, "value row"]:
        """``<v r>`` over the samples, for values and rows of each sample."""
        if self._xp is not np:
            # A copy, since the caller may write to it.
            return np.array(_averaged(values, rows))
        total = np.zeros((len(values), len(rows)))
        for part in self._parts(values, rows):
            if len(values) <= _FEW_FACTORS:
                for value, one in zip(values, total, strict=True):
                    one += rows[:, part] @ value[part]
            else:
                total += values[:, part] @ rows[:, part].T
        total /= self.samples
        return total

    def _parts(self, values: np.ndarray, rows: np.ndarray) -> list[slice]:
        """The samples in parts of which products are small."""
        few = len(values) <= _FEW_FACTORS
        step = max(
            _CACHED // max(len(rows), 1) if few else _SMALL_PRODUCT // (len(values) * max(len(rows), 1)), _LEAST_PART
        )
        if step >= self.samples:
            return [slice(None)]
        return [slice(begin, begin + step) for begin in range(0, self.samples, step)]

    def pull(
        self, signals: Any, sizes: Float[np.ndarray, "neuron"] | None = None
    ) -> Float[np.ndarray, "neuron column"]:
        """``<v Y>`` of signals (neuron, sample); those of their directions that are new join the basis.

        Parameters
        ----------
        signals
            The signals.
        sizes
            As in :meth:`extend`.
        """
        signals = self._xp.asarray(signals)
        self.extend(signals, sizes)
        return self.average(signals, self.latents)[:, : self.used]

    def extend(self, signals: Any, sizes: Float[np.ndarray, "neuron"] | None = None) -> None:
        """Add what of the signals lies outside the basis to it.

        Parameters
        ----------
        signals
            The signals, (neuron, sample).
        sizes
            What the tolerance is relative to, for each signal; its root mean square if None.
        """
        signals, directions, count = self._xp.asarray(signals), self.directions, len(signals)
        gram = self.average(signals, signals)
        if not np.isfinite(gram).all():
            return
        # Where batches are new at every step so are their directions: one product does for signals and normals then.
        both = self._beside(signals) if self._far_outside and self._xp is np else signals
        along = self.average(both, directions)
        size = np.sqrt(np.diagonal(gram)) if sizes is None else np.asarray(sizes)
        self._largest = max(self._largest, float(size.max()))
        # What is divided by infinity has no part outside.
        size = np.where(size > ROUNDING * self._largest, size, np.inf)[:, None]
        known = along[:count] / size
        # How much lies outside is seen from small matrices; they cancel, which only tolerances near 1e-8 would notice.
        least, most = extreme_eigenvalues(gram / (size * size.T) - known @ known.T)
        self._far_outside = least > _FAR_OUTSIDE
        if not most > self._tolerance**2:
            return
        if self._xp is not np:
            fresh = self._normals(self.used, self.used + count)
            rest, fresh, left = _outside(signals, size, fresh, directions, known)
            turn = orthonormal(np.asarray(left), self._tolerance)
            if len(turn):
                self._open_on_device(turn, rest, fresh)
            return
        rest = signals / size
        if self._far_outside:
            fresh = both[count:] if len(both) > count else self._normals(self.used, self.used + count)
            others = along[count:] if len(both) > count else self.average(fresh, directions)
            rest, fresh = self._without(rest, known, directions), self._without(fresh, others, directions)
            turn = orthonormal(self.average(rest, rest), self._tolerance)
            self._append_directions(self._combine(turn, rest), fresh[: len(turn)])
            return
        rest = self._without(rest, known, directions)
        turn = orthonormal(self.average(rest, rest), self._tolerance)
        if len(turn):
            # Gram-Schmidt twice: after one pass the directions would lose a factor `tolerance` of orthogonality each.
            both = np.concatenate([self._combine(turn, rest), self._normals(self.used, self.used + len(turn))])
            both = self._without(both, self.average(both, directions), directions)
            self._append_directions(both[: len(turn)], both[len(turn) :])

    def _append_directions(self, new: np.ndarray, fresh: np.ndarray) -> None:
        """Append orthonormal directions and their coordinates, from as many normals that know nothing of others."""
        fresh = self._without(fresh, self.average(fresh, new), new)
        self._append(fresh + new * self._steps(len(new))[:, None], new)

    def _steps(self, count: int) -> Float[np.ndarray, "new"]:
        """How much of each new direction its coordinate has: ``1 / sqrt(gamma)``, or less in a finite system."""
        taken = self._shrunk * (self.used + np.arange(count)) / self._dimension
        return np.sqrt(np.maximum(1 - taken, 0.0) / self._ratio)

    def _open_on_device(self, turn: Float[np.ndarray, "new neuron"], rest: Array, fresh: Array) -> None:
        """Append the combinations ``turn`` of what lies outside, with as many of the fresh normals."""
        count, room = turn.shape
        # Rows of zeros for all that could open: a program for each number of them would be compiled otherwise.
        self._reserve(self.used + room)
        padded, factors = np.pad(turn, ((0, room - count), (0, 0))), np.pad(self._steps(count), (0, room - count))
        begin = np.array([self.used, self.used - self.fixed])
        self._latents, self._directions = _opened(
            self._latents, self._directions, rest, fresh, padded, factors, count, begin
        )
        self.used += count

    def _beside(self, signals: Any) -> Any:
        """Signals, and as many normals of coordinates to come."""
        fresh = self._normals(self.used, self.used + len(signals))
        return self._xp.concatenate([signals, self._xp.asarray(fresh)])

    def projections(self, signals: Any) -> Float[np.ndarray, "neuron direction"]:
        """``<v e>`` along the directions that there are."""
        return self.average(self._xp.asarray(signals), self.directions)[:, : self.used - self.fixed]

    def open_noise(self, count: int) -> int:
        """Open coordinates to which no sample contributes; returns the number of the first."""
        self._append(self._normals(self.used, self.used + count), np.zeros((count, self.samples)))
        return self.used - count

    def squared_pull(self, values: Any) -> Float[np.ndarray, "row"]:
        """``|(1/gamma) sum_mu v^mu x^mu|^2 / D`` for functions ``v`` (row, sample) of the samples.

        Along directions that are there by the latents; what lies outside all of them is noise of weight 1/gamma.
        """
        values = self._xp.asarray(values)
        inside = np.sum(self.projections(values) ** 2, axis=1)
        outside = np.maximum(np.mean(np.asarray(values) ** 2, axis=1) - inside, 0.0)
        return np.sum(self.average(values, self.latents) ** 2, axis=1) + outside / self._ratio

    def moments(self, weights: Any, known: Any, since: int = 0) -> Any:
        """``<w_ij Y_a Y_b>`` of weights (neuron, neuron, sample), as a matrix of rows (i, a) and columns (j, b).

        Given the matrix of the first ``since`` coordinates, only the rows and columns of later ones are computed. On an
        accelerator the matrix has rows for all coordinates there is room for.

        Parameters
        ----------
        weights
            Weights of every sample.
        known
            The matrix of the first coordinates, or None.
        since
            How many coordinates it has.
        """
        if self._xp is np:
            return latent_jacobian.moments(np.asarray(weights), self.latents, known, since)
        return latent_jacobian.moments_on_device(weights, self._latents, known, since, self.used)

    def evaluations_worth(self, neurons: int) -> float:
        """How many evaluations of a velocity take as long as one matrix of :meth:`moments`, roughly.

        On a CPU both are products, of few rows and of many; on an accelerator an evaluation waits for memory.

        Parameters
        ----------
        neurons
            Number of neurons.
        """
        return neurons * self.used / 15 if self._xp is np else neurons**2 * self._capacity / 600

    def factorise(self, matrix: Any, factor: float, diagonal: float) -> Any:
        """The LU decomposition of ``diagonal 1 - factor matrix``.

        Parameters
        ----------
        matrix
            A matrix of :meth:`moments`.
        factor
            What it is multiplied by.
        diagonal
            What is on the diagonal beside it.
        """
        if self._xp is np:
            return latent_jacobian.factorised(matrix, factor, diagonal)
        return latent_jacobian.factorised_on_device(matrix, factor, diagonal)

    def solve(self, factors: Any, right: Float[np.ndarray, "neuron column"]) -> Float[np.ndarray, "neuron column"]:
        """The solution of a linear system that :meth:`factorise` has decomposed."""
        if self._xp is np:
            return latent_jacobian.solution(factors, right)
        return latent_jacobian.solution_on_device(factors, right)

    def _append(self, latents: Any, directions: Any) -> None:
        self._reserve(self.used + len(latents))
        self._latents = self._write(self._latents, self.used, latents)
        self._directions = self._write(self._directions, self.used - self.fixed, directions)
        self.used += len(latents)

    def _reserve(self, needed: int) -> None:
        if needed <= self._capacity:
            return
        self._check_memory(needed)
        growth = _GROWTH if self._xp is np or self._capacity < _MANY_ROWS else _SLOW_GROWTH
        self._capacity = max(needed, self._first_rows, int(growth * self._capacity))
        for name, rows in (("_latents", self._capacity), ("_directions", self._capacity - self.fixed)):
            empty = np.empty if self._xp is np else jnp.zeros
            setattr(self, name, self._write(empty((rows, self.samples)), 0, getattr(self, name)))

    def _write(self, array: Any, begin: int, rows: Any) -> Any:
        """The array with some of its rows replaced; in place where it can be."""
        if self._xp is np:
            array[begin : begin + len(rows)] = rows
            return array
        return jax.lax.dynamic_update_slice(array, jnp.asarray(rows), (begin, 0))

    def _in_use(self, array: Any, rows: int) -> Any:
        return array[:rows] if self._xp is np else array


def _first_rows_on_device(samples: int, least: int) -> int:
    fitting = max(1, _FIRST_BYTES // (8 * samples))
    return max(least, min(_FIRST_ROWS_ON_DEVICE, 2 ** int(math.log2(fitting))))


@jax.jit
def _averaged(values: Array, rows: Array) -> Array:
    """``<v r>``. A product with few rows keeps few processors of an accelerator busy; many short ones keep all."""
    samples = rows.shape[1]
    parts = samples // math.gcd(samples, _AVERAGE_PART)
    each = jnp.einsum("vps,rps->pvr", values.reshape(len(values), parts, -1), rows.reshape(len(rows), parts, -1))
    return jnp.sum(each, axis=0) / samples


@jax.jit
def _outside(signals: Array, sizes: Array, fresh: Array, directions: Array, known: Array) -> tuple[Array, Array, Array]:
    """Signals over their sizes and fresh normals, less their parts inside the basis, and the Gram matrix of the first.

    Gram-Schmidt twice for the signals: after one pass the directions would lose a factor ``tolerance`` of
    orthogonality each.
    """
    rest = signals / sizes
    rest = rest - known @ directions
    both = jnp.concatenate([rest, fresh])
    both = both - _averaged(both, directions) @ directions
    rest, fresh = both[: len(signals)], both[len(signals) :]
    return rest, fresh, _averaged(rest, rest)


@jax.jit
def _opened(
    latents: Array, directions: Array, rest: Array, fresh: Array, turn: Array, steps: Array, count: int, begin: Array
) -> tuple[Array, Array]:
    """Latents and directions with new rows, of which those beyond ``count`` are zero."""
    new = turn @ rest
    fresh = jnp.where(jnp.arange(len(turn))[:, None] < count, fresh, 0.0)
    fresh = fresh - _averaged(fresh, new) @ new
    latents = jax.lax.dynamic_update_slice(latents, fresh + new * steps[:, None], (begin[0], 0))
    return latents, jax.lax.dynamic_update_slice(directions, new, (begin[1], 0))


def extreme_eigenvalues(matrix: Float[np.ndarray, "row row"]) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of a symmetric matrix; those of two rows by hand, which is faster."""
    if len(matrix) != 2:
        values = np.linalg.eigvalsh(matrix)
        return float(values[0]), float(values[-1])
    (one, across), (_, other) = matrix.tolist()
    middle, radius = (one + other) / 2, math.hypot((one - other) / 2, across)
    return middle - radius, middle + radius


def orthonormal(gram: Float[np.ndarray, "vector vector"], tolerance: float) -> Float[np.ndarray, "combination vector"]:
    """Combinations of vectors with these inner products that are orthonormal; those shorter than ``tolerance`` are not.

    A few vectors are taken one by one, many by eigenvectors.
    """
    if len(gram) > _ONE_BY_ONE:
        strength, turn = np.linalg.eigh(gram)
        kept = strength[::-1] > tolerance**2
        return (turn[:, ::-1][:, kept] / np.sqrt(strength[::-1][kept])).T
    found = np.zeros((0, len(gram)))
    for unit in np.eye(len(gram)):
        rest = unit
        # Twice, as everywhere: the vectors may be nearly parallel.
        for _ in range(2):
            rest = rest - (found @ (gram @ rest)) @ found
        square = rest @ gram @ rest
        if square > tolerance**2:
            found = np.concatenate([found, rest[None] / np.sqrt(square)])
    return found
