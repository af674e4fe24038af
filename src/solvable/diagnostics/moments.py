"""Sums of products of a batch about a fixed shift, in float64: with BLAS on the host, with JAX or PyTorch on a GPU."""

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from solvable.diagnostics.batches import Batch, Library, to_numpy

# Rows cast to float64 at a time: enough for BLAS to run at its full rate, and small beside the Gram matrix.
_ROWS = 2048


@dataclasses.dataclass(frozen=True)
class Moments:
    """Sums over samples of z zᵀ, z aᵀ and a aᵀ, where z = Φ - shift and a = (f̂ - shift, targets, 1).

    With labels the targets are their indicators. The last entry of ``side`` is the number of samples, its last column
    the sums of the outputs and targets, the last column of ``cross`` the sum of z. On the host only the lower triangle
    of ``gram`` is filled, which is half the work.
    """

    library: Library
    feature_shift: Any
    output_shift: Any
    gram: Any
    cross: Any
    side: Any

    def on_host(self) -> "Moments":
        """The same in host memory, with both triangles of ``gram``."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "library"]
        # Copies, since batches are added in place; Fortran's order lets BLAS do so.
        arrays = {name: np.array(to_numpy(getattr(self, name)), order="F") for name in names}
        lower = np.tril(arrays["gram"])
        arrays["gram"] = np.asfortranarray(lower + np.tril(lower, -1).T)
        return Moments("numpy", **arrays)

    def about(self, feature_shift: np.ndarray, output_shift: np.ndarray) -> "Moments":
        """The same sums about another shift, exact but for rounding. Only for moments in host memory."""
        count, total, side_total = self.side[-1, -1], self.cross[:, -1], self.side[:, -1]
        move = self.feature_shift - feature_shift
        side_move = np.zeros(side_total.size)
        side_move[: output_shift.size] = self.output_shift - output_shift
        gram = self.gram + _both(total, move) + count * np.outer(move, move)
        cross = self.cross + np.outer(move, side_total) + np.outer(total + count * move, side_move)
        side = self.side + _both(side_total, side_move) + count * np.outer(side_move, side_move)
        return Moments("numpy", feature_shift, output_shift, gram, cross, side)

    def plus(self, other: "Moments") -> "Moments":
        """Both sets of samples together, about the shift of the first, in host memory."""
        first, second = self.on_host(), other.on_host()
        second = second.about(first.feature_shift, first.output_shift)
        sums = {name: getattr(first, name) + getattr(second, name) for name in ("gram", "cross", "side")}
        return dataclasses.replace(first, **{name: np.asfortranarray(total) for name, total in sums.items()})


def _both(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    product = np.outer(left, right)
    return product + product.T


def start(batch: Batch, targets: int) -> Moments:
    """Empty sums about the means of a first batch, where that batch lives."""
    features, outputs = batch.sizes
    side = outputs + targets + 1
    shapes = {"gram": (features, features), "cross": (features, side), "side": (side, side)}
    if batch.library == "numpy":
        shifts = (np.mean(array, axis=0, dtype=np.float64) for array in (batch.features, batch.outputs))
        return Moments("numpy", *shifts, **{name: np.zeros(shape, order="F") for name, shape in shapes.items()})
    if batch.library == "jax":
        import jax.numpy as jnp

        shifts = (jnp.mean(array, axis=0, dtype=jnp.float64) for array in (batch.features, batch.outputs))
        return Moments("jax", *shifts, **{name: jnp.zeros(shape) for name, shape in shapes.items()})
    torch = sys.modules["torch"]
    device = batch.features.device
    shifts = (array.to(torch.float64).mean(0) for array in (batch.features, batch.outputs))
    empty = {name: torch.zeros(shape, dtype=torch.float64, device=device) for name, shape in shapes.items()}
    return Moments("torch", *shifts, **empty)


def add(moments: Moments, batch: Batch, targets: int) -> tuple[Moments, bool]:
    """The moments with a batch added, and whether they are still finite; on the host they are changed in place."""
    if batch.library == "numpy":
        return _add_numpy(moments, batch, targets), True
    step = _jax_step() if batch.library == "jax" else _torch_step
    sums = (moments.gram, moments.cross, moments.side)
    shifts = (moments.feature_shift, moments.output_shift)
    labels_of = targets if batch.labelled else 0
    *sums, finite = step(sums, shifts, batch.features, batch.outputs, batch.targets, labels_of)
    return dataclasses.replace(moments, gram=sums[0], cross=sums[1], side=sums[2]), bool(finite)


def _add_numpy(moments: Moments, batch: Batch, targets: int) -> Moments:
    """A symmetric update of one triangle, which costs half of a general product, block by block."""
    from scipy.linalg.blas import dsyrk

    samples, (features, outputs) = batch.features.shape[0], batch.sizes
    shifted = np.empty((min(_ROWS, samples), features))
    side = np.empty((min(_ROWS, samples), outputs + targets + 1))
    side[:, -1] = 1
    gram = moments.gram
    for begin in range(0, samples, _ROWS):
        rows = slice(begin, min(begin + _ROWS, samples))
        count = rows.stop - begin
        z, a = shifted[:count], side[:count]
        np.subtract(batch.features[rows], moments.feature_shift, out=z, dtype=np.float64)
        np.subtract(batch.outputs[rows], moments.output_shift, out=a[:, :outputs], dtype=np.float64)
        if batch.labelled:
            a[:, outputs:-1] = 0
            a[np.arange(count), outputs + batch.targets[rows]] = 1
        else:
            a[:, outputs:-1] = batch.targets[rows]
        gram = dsyrk(1.0, z.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        np.add(moments.cross, z.T @ a, out=moments.cross)
        np.add(moments.side, a.T @ a, out=moments.side)
    return dataclasses.replace(moments, gram=gram)


@functools.cache
def _jax_step() -> Callable[..., tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp

    def step(sums: Any, shifts: Any, features: Any, outputs: Any, targets: Any, labels_of: int) -> tuple[Any, ...]:
        z = features.astype(jnp.float64) - shifts[0]
        if labels_of:
            targets = targets[:, None] == jnp.arange(labels_of)
        ones = jnp.ones((z.shape[0], 1))
        a = jnp.concatenate([outputs - shifts[1], targets.astype(jnp.float64), ones], axis=1)
        new = tuple(total + product for total, product in zip(sums, (z.T @ z, z.T @ a, a.T @ a), strict=True))
        return *new, jnp.isfinite(jnp.trace(new[0]) + jnp.trace(new[2]))

    return jax.jit(step, static_argnums=5)


def _torch_step(sums: Any, shifts: Any, features: Any, outputs: Any, targets: Any, labels_of: int) -> tuple[Any, ...]:
    torch = sys.modules["torch"]
    with torch.no_grad():
        z = features.to(torch.float64) - shifts[0]
        if labels_of:
            targets = targets[:, None] == torch.arange(labels_of, device=targets.device)
        ones = torch.ones((z.shape[0], 1), dtype=torch.float64, device=z.device)
        a = torch.cat([outputs.to(torch.float64) - shifts[1], targets.to(torch.float64), ones], dim=1)
        new = tuple(total + product for total, product in zip(sums, (z.T @ z, z.T @ a, a.T @ a), strict=True))
        return *new, torch.isfinite(torch.trace(new[0]) + torch.trace(new[2])).item()
