"""Eigenvalues and spectral density of a large symmetric matrix from products with vectors: Lanczos, reorthogonalised.

| symbol | name | meaning |
|---|---|---|
| q_j | ``basis[j]`` | orthonormal Krylov vectors |
| T | ``projected`` | the matrix in their basis, tridiagonal up to rounding |
| θ_i, s_i | ``values``, ``coefficients`` | eigenvalues (Ritz values) and eigenvectors of T |
| r_i | ``residuals`` | the norm ``|A v_i - θ_i v_i|`` of the Ritz vectors ``v_i = sum_j s_ij q_j`` |
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import get_blas_funcs

# A function of a vector v that returns A v, and, for each part A_b of A, the products of A_b v with all basis vectors.
Operator = Callable[[np.ndarray, list[np.ndarray]], tuple[np.ndarray, np.ndarray]]
# A new vector is rounding if it is below this many units of rounding of the operator.
_BREAKDOWN = 100.0


class Krylov(NamedTuple):
    """What Lanczos found: Ritz values, largest first, with the norms of their residuals and their vectors.

    Some eigenvalue lies within the residual of each Ritz value, and the largest eigenvalue is not below the first Ritz
    value. ``weights`` are the squared overlaps of the Ritz vectors with the start. ``parts`` holds the matrices of the
    parts of the operator in the basis, (parts, steps, steps). ``changes`` is how far the last step moved each value.
    ``asymmetry`` is the largest entry of the projected matrix that a symmetric one would not have, over the largest.
    ``exhausted`` says that no further vector can be found.
    """

    values: np.ndarray
    residuals: np.ndarray
    coefficients: np.ndarray
    basis: list[np.ndarray]
    parts: np.ndarray
    changes: np.ndarray
    asymmetry: float
    exhausted: bool

    @property
    def weights(self) -> np.ndarray:
        return self.coefficients[0] ** 2

    @property
    def errors(self) -> np.ndarray:
        """Estimated distances of the Ritz values from eigenvalues: the residual, or less where the value is separate.

        There it is the residual squared over the gap to the interval of the nearest other Ritz value, but at least the
        change of the last step: an eigenvalue close by may not have been seen yet. In clusters it is the residual.
        """
        found = self.residuals.copy()
        for place, (value, residual) in enumerate(zip(self.values, self.residuals, strict=True)):
            others = np.arange(len(self.values)) != place
            gap = np.min(np.abs(self.values[others] - value) - self.residuals[others], initial=math.inf)
            if 0 < gap < math.inf and residual < gap:
                found[place] = min(residual, max(residual**2 / gap, self.changes[place]))
        return found

    def vector(self, count: int = 1) -> np.ndarray:
        """The sum of the first Ritz vectors, normalised."""
        sums = self.coefficients[:, :count].sum(axis=1) / math.sqrt(min(count, len(self.values)))
        total = np.zeros_like(self.basis[0])
        for coefficient, vector in zip(sums, self.basis, strict=True):
            total += vector.dtype.type(coefficient) * vector
        return total

    def quotients(self) -> np.ndarray:
        """The Rayleigh quotient of the first Ritz vector in each part."""
        first = self.coefficients[:, 0]
        return np.einsum("i,bij,j->b", first, self.parts, first)


def lanczos(
    operator: Operator,
    start: np.ndarray,
    steps: int,
    tolerance: float = 0.0,
    affordable: Callable[[], bool] = lambda: True,
) -> Krylov:
    """Run Lanczos from ``start`` for at most ``steps`` products, with full reorthogonalisation.

    Parameters
    ----------
    operator
        The symmetric operator.
    start
        The first vector, of any norm above zero.
    steps
        The largest number of products.
    tolerance
        Stop when the estimated error of the largest Ritz value is below this fraction of it; 0 uses all steps.
    affordable
        Asked before every product but the first whether there is budget left for it.
    """
    basis = [_unit(start)]
    columns: list[np.ndarray] = []
    parts: list[np.ndarray] = []
    found: Krylov | None = None
    for step in range(1, min(steps, start.size) + 1):
        if step > 1 and not affordable():
            break
        product, inner = operator(basis[-1], basis)
        parts.append(inner)
        rest = product.astype(basis[0].dtype)
        overlaps = np.array([np.dot(q, rest) for q in basis], float)
        columns.append(overlaps)
        add = get_blas_funcs("axpy", (rest,))
        for _ in range(2):  # once more: the first pass leaves rounding errors of the size of the product
            for q in basis:
                rest = add(q, rest, a=-np.dot(q, rest))  # in place
        left = float(np.linalg.norm(rest))
        scale = max(float(np.abs(column).max()) for column in columns)
        exhausted = left <= _BREAKDOWN * float(np.finfo(basis[0].dtype).eps) * scale
        found = _ritz(basis, columns, parts, 0.0 if exhausted else left, exhausted)
        # The first Ritz value alone has no gap that could be known.
        if exhausted or (step > 1 and found.errors[0] < tolerance * abs(found.values[0])):
            return found
        basis = [*basis, _unit(rest)]
    assert found is not None
    return found._replace(basis=basis[: len(found.values)])


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / vector.dtype.type(np.linalg.norm(vector))


def _ritz(
    basis: list[np.ndarray], columns: list[np.ndarray], parts: list[np.ndarray], left: float, exhausted: bool
) -> Krylov:
    """Ritz values of the projected matrix; each column was computed when its vector was the last of the basis."""
    steps = len(columns)
    projected = np.zeros((steps, steps))
    for place, column in enumerate(columns):
        projected[: place + 1, place] = projected[place, : place + 1] = column
    # Above the first off-diagonal, a symmetric operator has only rounding errors.
    outside = np.triu(projected, 2)
    largest = np.abs(projected).max()
    tridiagonal = projected - outside - outside.T
    before = np.linalg.eigvalsh(tridiagonal[:-1, :-1])[::-1]
    values, vectors = np.linalg.eigh(tridiagonal)
    values, vectors = values[::-1], vectors[:, ::-1]
    together = np.zeros((len(parts[0]), steps, steps))
    for place, inner in enumerate(parts):
        together[:, : place + 1, place] = together[:, place, : place + 1] = inner
    asymmetry = float(np.abs(outside).max() / largest) if largest > 0 else 0.0
    changes = np.abs(values - np.append(before, -np.inf))
    return Krylov(values, left * np.abs(vectors[-1]), vectors, basis, together, changes, asymmetry, exhausted)


class Density(NamedTuple):
    """Quadrature nodes of the spectral density for each probe: ``nodes`` and ``weights``, which sum to 1."""

    nodes: list[np.ndarray]
    weights: list[np.ndarray]

    def trace(self, size: int) -> tuple[float, float]:
        """The trace of a matrix of this size, and its standard error over probes."""
        means = size * np.array([float(w @ x) for x, w in zip(self.nodes, self.weights, strict=True)])
        return float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means)))

    def on(self, grid: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
        """The density on a grid, every node a Gaussian of this width, and its standard error over probes."""
        curves = np.array([_smooth(grid, x, w, width) for x, w in zip(self.nodes, self.weights, strict=True)])
        return curves.mean(axis=0), curves.std(axis=0, ddof=1) / math.sqrt(len(curves))


def _smooth(grid: np.ndarray, nodes: np.ndarray, weights: np.ndarray, width: float) -> np.ndarray:
    bells = np.exp(-0.5 * ((grid[:, None] - nodes) / width) ** 2) / (width * math.sqrt(2 * math.pi))
    return bells @ weights


def quadrature(
    operator: Operator,
    size: int,
    dtype: np.dtype,
    probes: int,
    steps: int,
    key: int,
) -> Density:
    """Stochastic Lanczos quadrature: the spectral density seen by random vectors of independent signs.

    Parameters
    ----------
    operator
        The symmetric operator.
    size, dtype
        Number of rows of the operator, and the type of its vectors.
    probes
        Number of random vectors, at least 2, so that their spread gives an error.
    steps
        Products for each of them.
    key
        Random seed.
    """
    nodes, weights = [], []
    for probe in range(probes):
        signs = np.random.default_rng([key, 1, probe]).integers(0, 2, size) * 2 - 1
        found = lanczos(operator, signs.astype(dtype), steps)
        nodes.append(found.values)
        weights.append(found.weights)
    return Density(nodes, weights)
