"""Rows of ``Z_k = (1 + lambda_k K)^-1`` for many modes k and one lower triangular matrix K that grows row by row.

The two-time equations need the last row of every ``Z_k``, and sums ``sum_k Z_k v_k``. Both are triangular systems with
the same K for all modes, so that nothing but K is kept: with ``x (1 + lambda_k K) = e_t`` solved backwards in time and
``(1 + lambda_k K) u = v_k`` forwards, block by block, almost all work is products of matrices (modes times time) with
blocks of K, at the speed of the processor. Keeping the ``Z_k`` instead would read all of them twice for each row, at
the speed of the memory. Of every ``Z_k`` only the blocks on the diagonal are kept.

>>> import numpy as np
>>> from solvable.models.feature_scaling.resolvents import Resolvents
>>> solver = Resolvents(np.array([1.0, 0.5]))
>>> for kernel_row in ([0.0], [2.0, 0.0]):
...     row = solver.row(np.array(kernel_row))
...     solver.append(row)
>>> row  # of (1 + lambda [[0, 0], [2, 0]])^-1, for both modes
array([[-2.,  1.],
       [-1.,  1.]])
"""

import numpy as np
from jaxtyping import Float

# Rows in a block: long enough for products at full speed, short enough for the blocks on the diagonal to be cheap.
BLOCK = 32


class Resolvents:
    """The rows so far; ``row`` finds the next one for a guess of K's row, and ``append`` keeps the last that was found.

    Parameters
    ----------
    eigenvalues
        ``lambda_k`` of the modes.
    capacity
        For how many rows there is room at first; more is made when it is needed.
    """

    def __init__(self, eigenvalues: Float[np.ndarray, "node"], capacity: int = 64) -> None:
        self._eigenvalues = np.ascontiguousarray(eigenvalues, float)
        self.count = 0
        self.kernel = np.zeros((capacity, capacity))
        # The diagonal blocks of every Z_k; only the last may be unfinished.
        self._diagonal: list[np.ndarray] = []

    def row(self, kernel_row: Float[np.ndarray, "time"]) -> Float[np.ndarray, "node time"]:
        """The last row of every ``Z_k``, if ``kernel_row`` is the last row of K, its diagonal included."""
        t, lam = self.count, self._eigenvalues
        if t >= len(self.kernel):
            more = max(BLOCK, len(self.kernel) // 2)
            self.kernel = np.pad(self.kernel, ((0, more), (0, more)))
        kernel = self.kernel
        kernel[t, : t + 1] = kernel_row
        # Time comes first in memory: OpenBLAS multiplies tall matrices by narrow ones faster than the other way round.
        found = np.empty((t + 1, lam.size))
        found[t] = 1 / (1 + lam * kernel_row[t])
        for place in range((t - 1) // BLOCK, -1, -1) if t else ():
            begin, end = place * BLOCK, min((place + 1) * BLOCK, t)
            fed = (kernel[end : t + 1, begin:end].T @ found[end:]).T
            fed = np.multiply(fed, -lam[:, None], order="C")
            size = end - begin
            found[begin:end] = np.matmul(fed[:, None, :], self._diagonal[place][:, :size, :size])[:, 0].T
        return found.T

    def from_left(self, vector: Float[np.ndarray, "time"]) -> Float[np.ndarray, "node time"]:
        """``v Z_k`` of every mode, for the rows that are kept."""
        t, lam = self.count, self._eigenvalues
        found = np.empty((lam.size, t))
        for place in range(len(self._diagonal) - 1, -1, -1):
            begin, end = place * BLOCK, min((place + 1) * BLOCK, t)
            size = end - begin
            fed = vector[begin:end] - lam[:, None] * (found[:, end:] @ self.kernel[end:t, begin:end])
            found[:, begin:end] = np.matmul(fed[:, None, :], self._diagonal[place][:, :size, :size])[:, 0]
        return found

    def append(self, row: Float[np.ndarray, "node time"]) -> None:
        """Keep the last row that :meth:`row` gave."""
        place, inside = divmod(self.count, BLOCK)
        if inside == 0:
            self._diagonal.append(np.zeros((self._eigenvalues.size, BLOCK, BLOCK)))
        self._diagonal[place][:, inside, : inside + 1] = row[:, place * BLOCK :]
        self.count += 1

    def applied(self, vectors: Float[np.ndarray, "node time"]) -> Float[np.ndarray, "kept"]:
        """``sum_k Z_k v_k`` of the rows that are kept; later entries of the vectors are not used."""
        t, lam, kernel = self.count, self._eigenvalues, self.kernel
        found = np.empty((t, lam.size))
        for place in range(len(self._diagonal)):
            begin, end = place * BLOCK, min((place + 1) * BLOCK, t)
            size = end - begin
            right = vectors[:, begin:end]
            if begin:
                right = right - lam[:, None] * (kernel[begin:end, :begin] @ found[:begin]).T
            blocks = self._diagonal[place][:, :size, :size]
            found[begin:end] = np.matmul(blocks, np.ascontiguousarray(right)[:, :, None])[:, :, 0].T
        return found.sum(1)
