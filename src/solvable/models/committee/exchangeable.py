"""The latent closure of networks with exchangeable neurons, in coordinates that no exchange of neurons mixes.

Neurons that begin alike, with equal alignments, readouts and overlaps, stay alike as D grows: exchanging two of them
changes nothing. A set of samples can then stand for itself together with all permutations of its neurons, and the
closure of that much larger set (:mod:`solvable.models.committee.closure`) is not more expensive but cheaper. By Schur's
lemma averages over permutations couple only quantities that transform alike. For ``G`` groups of ``n_g`` neurons these
are

* the collective fields ``H_g = sum_i h_i / sqrt(n_g)``, G of them, coupled with each other and with the index fields;
* the deviations ``d_i = (h_i - mean of the group) sqrt(n_g / (n_g - 1))``, one for each group of two or more: the same
  weights serve all neurons, and the average is over samples and neurons.

Each of these sectors is a closure of its own, with a :class:`~solvable.models.committee.basis.Basis`: collective fields
have S samples, deviations ``n_g S``. Signals couple them, because the network's output depends on all fields.

A sample acts back on itself through the coefficients it helps to estimate: with all coordinates of N neurons the bias
is of order ``rank * gamma / S`` and the rank proportional to N. Here it is the number of collective coordinates, which
does not grow with N, and for the deviations it is smaller by another factor ``n_g - 1``: a finite system of dimension
``(n_g - 1) S / gamma``.

Weights are (row, column), with a row for each collective field and for the deviations of each group, and columns in the
order in which they were opened, each of one sector.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from solvable.models.committee.basis import Basis, bound_weakly
from solvable.models.committee.closure import LatentClosure, square_root
from solvable.models.committee.problem import Problem
from solvable.models.committee.protocol import AnyArray, Weights, namespace
from solvable.models.committee.sector_jacobian import grown_blocks, sector_blocks

# Deviations have a row for each direction, and not one for each neuron.
_FEW_ROWS = 32
# Most neurons for which steps may be implicit.
_MOST_COUPLED = 16


class Sector(NamedTuple):
    """A basis, the rows of the weights that it belongs to, and the numbers of its columns."""

    basis: Basis
    rows: slice
    columns: list[int]


class ExchangeableClosure(LatentClosure):
    """The closure of a set of samples together with all permutations of exchangeable neurons.

    Parameters
    ----------
    problem
        Network, target, start and samples per dimension.
    groups
        Neurons that may be exchanged: see :mod:`solvable.models.committee.symmetry`.
    rotation
        The rotation that led to these neurons from those whose order parameters are asked for
        (:mod:`solvable.models.committee.symmetry`); None if they are the same.
    **options
        As in :class:`~solvable.models.committee.closure.LatentClosure`.
    """

    def __init__(
        self,
        problem: Problem,
        groups: list[Int[np.ndarray, "_"]],
        rotation: Float[np.ndarray, "neuron neuron"] | None = None,
        **options: Any,
    ) -> None:
        self._groups, self._rotation = groups, rotation
        self._members = tuple(tuple(group.tolist()) for group in groups)
        super().__init__(problem, **options)

    def _begin(self, problem: Problem, first: np.ndarray, tolerance: float, shrunk: float, namespace: Any) -> Weights:
        """One basis for each sector, and the initial weights in their coordinates."""
        groups, indices = self._groups, self._indices
        self._drawn = self._indices + self._neurons
        settings = {"tolerance": tolerance, "shrunk": shrunk, "namespace": namespace}
        ratio = float(problem.samples_per_dimension)
        starts = first[indices:]
        together = np.stack([starts[group].sum(axis=0) / math.sqrt(len(group)) for group in groups])
        self._sectors: list[Sector] = []
        self._columns_in_use = 0

        def add(first: np.ndarray, rows: slice, members: int, dimension: float, **options: Any) -> None:
            normals = functools.partial(bound_weakly(self._normals), {}, members)
            memory = functools.partial(bound_weakly(self._check_memory_with), len(self._sectors), first.shape[1])
            basis = Basis(first, normals, ratio=ratio, check_memory=memory, dimension=dimension, **settings, **options)
            self._sectors.append(Sector(basis, rows, []))

        add(np.concatenate([first[:indices], together]), slice(0, len(groups)), 1, self.samples / ratio)
        self._deviating = [group for group in groups if len(group) > 1]
        for place, group in enumerate(self._deviating, len(groups)):
            size, rows = len(group), slice(place, place + 1)
            add(
                _deviations(starts[group], np),
                rows,
                size,
                (size - 1) * self.samples / ratio,
                first_rows=_FEW_ROWS,
            )
        self._number_columns()
        return Weights(self._start(problem))

    def _start(self, problem: Problem) -> Float[np.ndarray, "row column"]:
        """The symmetric root of ``C - A A^T`` in the sectors: collective fields, then deviations."""
        alignment, overlap = np.asarray(problem.initial_alignment), np.asarray(problem.initial_overlap)
        groups = self._groups
        sums = np.zeros((len(groups), problem.neurons))
        for row, group in enumerate(groups):
            sums[row, group] = 1 / math.sqrt(len(group))
        rest = overlap - alignment @ alignment.T
        weights = np.zeros((len(groups) + len(self._deviating), self._columns_in_use))
        collective = np.concatenate([sums @ alignment, square_root(sums @ rest @ sums.T)], axis=1)
        weights[self._sectors[0].rows, self._sectors[0].columns] = collective
        for sector, group in zip(self._sectors[1:], self._deviating, strict=True):
            one, other = group[:2]
            weights[sector.rows, sector.columns] = math.sqrt(max(rest[one, one] - rest[one, other], 0.0))
        return weights

    def _normals(self, places: dict[int, int], members: int, begin: int, end: int) -> Any:
        """Fresh normals for coordinates of a sector, of which each takes as many as the sector has members."""
        found = []
        for column in range(begin, end):
            if column not in places:
                places[column] = self._drawn
                self._drawn += members
            rows = self._columns.normals(places[column], places[column] + members)
            found.append(rows if members == 1 else _deviations(rows, namespace(rows)))
        return namespace(*found).concatenate(found)

    def _number_columns(self) -> None:
        """Number the columns that sectors have opened."""
        for basis, _, columns in self._sectors:
            new = basis.used - len(columns)
            columns.extend(range(self._columns_in_use, self._columns_in_use + new))
            self._columns_in_use += new

    @property
    def rank(self) -> int:
        return sum(sector.basis.used - sector.basis.fixed for sector in self._sectors)

    @property
    def width(self) -> int:
        return self._columns_in_use

    @property
    def fixed(self) -> int:
        return sum(sector.basis.fixed for sector in self._sectors)

    def _compute_fields(self, weights: Float[np.ndarray, "row column"]) -> Any:
        parts = []
        for basis, rows, columns in self._sectors:
            there = columns[: int(np.searchsorted(columns, weights.shape[1]))]
            parts.append(basis.fields(weights[rows, there]))
        return _join_on_device(parts, self._members) if self._on_device else _join(parts, self._members)

    def pull(self, signals: Float[AnyArray, "neuron sample"]) -> Weights:
        """``<v Y>`` in every sector; directions of the signals that are new join it."""
        self.evaluations += 1
        parts, sizes = (_split_on_device if self._on_device else _split)(signals, self._members)
        pulled = [
            sector.basis.pull(part, np.sqrt(size))
            for sector, part, size in zip(self._sectors, parts, map(np.asarray, sizes), strict=True)
        ]
        self._number_columns()
        total = np.zeros((self._sectors[-1].rows.stop, self.width))
        for sector, part in zip(self._sectors, pulled, strict=True):
            total[sector.rows, sector.columns] = part
        return Weights(total)

    def overlap(self, weights: Weights) -> Float[np.ndarray, "neuron neuron"]:
        """Overlaps of all neurons, from those of collective fields and deviations."""
        coordinates = np.asarray(weights.coordinates)
        products = coordinates @ coordinates.T
        total = np.zeros((self._neurons, self._neurons))
        for row, group in enumerate(self._groups):
            for column, other in enumerate(self._groups):
                total[np.ix_(group, other)] = products[row, column] / math.sqrt(len(group) * len(other))
        for place, group in enumerate(self._deviating, len(self._groups)):
            own = products[place, place]
            total[np.ix_(group, group)] -= own / len(group)
            total[group, group] += own
        return total if self._rotation is None else self._rotation.T @ total @ self._rotation

    def alignment(self, weights: Weights) -> Float[np.ndarray, "neuron index"]:
        """Alignments of all neurons: those of a group are equal."""
        total = np.zeros((self._neurons, self._indices))
        for row, group in enumerate(self._groups):
            total[group] = np.asarray(weights.coordinates[row, : self._indices]) / math.sqrt(len(group))
        return total if self._rotation is None else self._rotation.T @ total

    def projections(self, weights: Weights) -> Float[np.ndarray, "neuron direction"]:
        """Not available: signals at two times are compared neuron by neuron."""
        raise NotImplementedError("projections need the closure of single neurons")

    def squared_pull(self, values: Float[AnyArray, "row sample"]) -> Float[np.ndarray, "row"]:
        """Not available, as :meth:`projections`."""
        raise NotImplementedError("squared_pull needs the closure of single neurons")

    @property
    def unknowns(self) -> int:
        return sum(self._block_rows())

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(sector.basis.used for sector in self._sectors)

    def _block_rows(self) -> list[int]:
        """Rows of the Jacobian that belong to each sector; on an accelerator for all coordinates there is room for."""
        return [(rows.stop - rows.start) * len(basis.latents) for basis, rows, _ in self._sectors]

    def jacobian_worth(self) -> float:
        """Explicit steps only for so many neurons that the derivatives of all signals by all fields take over."""
        if self._neurons > _MOST_COUPLED:
            return math.inf
        return max(sector.basis.evaluations_worth(1) for sector in self._sectors)

    def jacobian(self, slopes: Float[AnyArray, "neuron neuron2 sample"], known: Any, since: tuple[int, ...]) -> Any:
        """The blocks of :mod:`~solvable.models.committee.sector_jacobian`."""
        latents = [sector.basis.latents for sector in self._sectors]
        if known is None or self._on_device:
            slopes = slopes if self._on_device else np.asarray(slopes)
            return sector_blocks(slopes, latents, latents, self._members)
        return grown_blocks(known, np.asarray(slopes), latents, since, self._members)

    def factorise(self, jacobian: Any, factor: float, diagonal: float) -> Any:
        together = jnp.block(jacobian) if self._on_device else np.block(jacobian)
        return self._sectors[0].basis.factorise(together, factor, diagonal)

    def solve(self, factors: Any, right: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
        parts = []
        for basis, rows, columns in self._sectors:
            own = right[rows, columns]
            parts.append(np.pad(own, ((0, 0), (0, len(basis.latents) - len(columns)))).reshape(1, -1))
        found = self._sectors[0].basis.solve(factors, np.concatenate(parts, axis=1))
        total, begin = np.zeros_like(right), 0
        for (_, rows, columns), size in zip(self._sectors, self._block_rows(), strict=True):
            own = found[0, begin : begin + size].reshape(rows.stop - rows.start, -1)
            total[rows, columns] = own[:, : len(columns)]
            begin += size
        return total

    def memory(self) -> float:
        return sum(self._sector_bytes(sector.basis.samples, sector.basis.used) for sector in self._sectors)

    def _sector_bytes(self, samples: int, rows: int) -> float:
        return 8.0 * samples * (3 * rows + 8)

    def _check_memory_with(self, place: int, samples: int, rows: int) -> None:
        """Raise a MemoryError where one sector with more rows and the others as they are take too much."""
        others = sum(
            self._sector_bytes(sector.basis.samples, sector.basis.used)
            for number, sector in enumerate(self._sectors)
            if number != place
        )
        self._require(others + self._sector_bytes(samples, rows), rows)


def _deviations(rows: Any, xp: Any) -> Float[AnyArray, "1 member_and_sample"]:
    """Deviations from the mean of the members (member, sample), with the variance of a member, as one row."""
    size = rows.shape[0]
    rows = xp.asarray(rows)
    return ((rows - rows.mean(axis=0)) * math.sqrt(size / (size - 1))).reshape(1, -1)


def _join(parts: list[Any], groups: tuple[tuple[int, ...], ...]) -> Float[AnyArray, "neuron sample"]:
    """Fields of the neurons from collective fields and the deviations of each group."""
    xp = namespace(*parts)
    together, deviations = parts[0], iter(parts[1:])
    fields = []
    for row, group in enumerate(groups):
        size = len(group)
        own = together[row : row + 1] / math.sqrt(size)
        if size > 1:
            own = own + math.sqrt(1 - 1 / size) * next(deviations).reshape(size, -1)
        fields.append(own)
    joined, order = xp.concatenate(fields), np.argsort(np.concatenate(groups))
    return joined if (order == np.arange(len(order))).all() else joined[order]


def _split(
    signals: Float[AnyArray, "neuron sample"], groups: tuple[tuple[int, ...], ...]
) -> tuple[list[Any], list[Any]]:
    """Collective signals and deviations, and what they are measured in: the mean square of a neuron of each group."""
    xp = namespace(signals)
    members = [signals[group[0] : group[-1] + 1] if _adjacent(group) else signals[np.array(group)] for group in groups]
    sizes = xp.stack([xp.mean(each**2) for each in members])
    together = xp.stack([each.sum(axis=0) / math.sqrt(len(each)) for each in members])
    several = [row for row, group in enumerate(groups) if len(group) > 1]
    deviations = [_deviations(members[row], xp) for row in several]
    return [together, *deviations], [sizes, *(sizes[row : row + 1] for row in several)]


_join_on_device = jax.jit(_join, static_argnums=1)
_split_on_device = jax.jit(_split, static_argnums=1)


def _adjacent(group: tuple[int, ...]) -> bool:
    return group[-1] - group[0] + 1 == len(group)
