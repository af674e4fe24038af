"""Sums of products of a batch about a fixed shift, in float64: by BLAS on the host, by JAX or PyTorch on a GPU."""

import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from solvable.diagnostics.batches import Batch, Library, to_numpy

# Rows that are cast to float64 at once: enough for BLAS to run at full speed, and little beside the Gram matrix.
_ROWS = 2048


@dataclasses.dataclass(frozen=True)
class Moments:
    """Sums over samples of z zᵀ, z aᵀ and a aᵀ, where z = Φ - shift and a = (f̂ - shift, f* - shift, 1).

    With labels the targets f* are their indicators, which need no shift. The last entry of ``side`` is the number of
    samples, its last column the sums of the outputs and targets, the last column of ``cross`` the sum of z. On the host
    only the lower triangle of ``gram`` is filled, which is half the work.
    """

    library: Library
    feature_shift: Any
    side_shift: Any
    gram: Any
    cross: Any
    side: Any

    @functools.cached_property
    def feature_covariance(self) -> np.ndarray:
        """⟨zzᵀ⟩ - ⟨z⟩⟨z⟩ᵀ. Only for moments in host memory that no longer change: it is cached."""
        count, total = self.side[-1, -1], self.cross[:, -1]
        covariance = self.gram / count - np.outer(total / count, total / count)
        covariance.flags.writeable = False
        return covariance

    def on_host(self) -> "Moments":
        """A copy in host memory, with both triangles of ``gram``."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "library"]
        # Copies, because batches are added in place, which BLAS needs Fortran order for.
        arrays = {name: np.array(to_numpy(getattr(self, name)), order="F") for name in names}
        lower = np.tril(arrays["gram"])
        arrays["gram"] = np.asfortranarray(lower + np.tril(lower, -1).T)
        return Moments("numpy", **arrays)

    def about(self, feature_shift: np.ndarray, side_shift: np.ndarray) -> "Moments":
        """The same sums about another shift, exact up to rounding. Only for moments in host memory."""
        count, total, side_total = self.side[-1, -1], self.cross[:, -1], self.side[:, -1]
        move = self.feature_shift - feature_shift
        side_move = np.append(self.side_shift - side_shift, 0.0)
        gram = self.gram + _symmetric(total, move) + count * np.outer(move, move)
        cross = self.cross + np.outer(move, side_total) + np.outer(total + count * move, side_move)
        side = self.side + _symmetric(side_total, side_move) + count * np.outer(side_move, side_move)
        return Moments("numpy", feature_shift, side_shift, gram, cross, side)

    def plus(self, other: "Moments") -> "Moments":
        """The sums over both sets of samples, about the shift of the first, in host memory."""
        first, second = self.on_host(), other.on_host()
        second = second.about(first.feature_shift, first.side_shift)
        gram, cross, side = (
            np.asfortranarray(getattr(first, name) + getattr(second, name)) for name in ("gram", "cross", "side")
        )
        return dataclasses.replace(first, gram=gram, cross=cross, side=side)


def _symmetric(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    product = np.outer(left, right)
    return product + product.T


def start(batch: Batch, targets: int) -> Moments:
    """Empty sums about the means of a first batch, on its device."""
    features, outputs = batch.sizes
    side = outputs + targets + 1
    xp = _namespace(batch.library)
    options = {"dtype": xp.float64} | ({"device": batch.features.device} if batch.library == "torch" else {})
    # Fortran order lets BLAS add to the Gram matrix in place.
    order = {"order": "F"} if batch.library == "numpy" else {}
    target_shift = xp.zeros(targets, **options) if batch.labelled else batch.targets.mean(axis=0, dtype=xp.float64)
    return Moments(
        batch.library,
        feature_shift=batch.features.mean(axis=0, dtype=xp.float64),
        side_shift=xp.concatenate([batch.outputs.mean(axis=0, dtype=xp.float64), target_shift]),
        gram=xp.zeros((features, features), **options, **order),
        cross=xp.zeros((features, side), **options),
        side=xp.zeros((side, side), **options),
    )


def add(moments: Moments, batch: Batch, targets: int) -> tuple[Moments, bool]:
    """The moments with a batch added, and whether they are still finite. On the host they are changed in place."""
    if batch.library == "numpy":
        return _add_numpy(moments, batch, targets), True
    classes = targets if batch.labelled else 0
    if batch.library == "jax":
        gram, cross, side, finite = _jax_step()(moments, batch.features, batch.outputs, batch.targets, classes)
    else:
        torch = _namespace("torch")
        with torch.no_grad():
            arrays = batch.features, batch.outputs, batch.targets
            gram, cross, side, finite = _step(torch, {"device": batch.features.device}, moments, *arrays, classes)
    return dataclasses.replace(moments, gram=gram, cross=cross, side=side), bool(finite)


def compiled_sums(batch: Batch, targets: int) -> tuple[tuple[Any, ...], Any]:
    """The sums of one batch about its means, and whether they are finite, inside a compiled function of JAX.

    The sums are the fields of :class:`Moments` after the library, in their order.
    """
    empty = start(batch, targets)
    arrays = batch.features, batch.outputs, batch.targets
    *sums, finite = _step(_namespace("jax"), {}, empty, *arrays, targets if batch.labelled else 0)
    return (empty.feature_shift, empty.side_shift, *sums), finite


def _add_numpy(moments: Moments, batch: Batch, targets: int) -> Moments:
    """A symmetric rank-k update of one triangle, at half the cost of a general product, block by block."""
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
        np.subtract(batch.outputs[rows], moments.side_shift[:outputs], out=a[:, :outputs], dtype=np.float64)
        if batch.labelled:
            a[:, outputs:-1] = 0
            a[np.arange(count), outputs + batch.targets[rows]] = 1
        else:
            np.subtract(batch.targets[rows], moments.side_shift[outputs:], out=a[:, outputs:-1], dtype=np.float64)
        gram = dsyrk(1.0, z.T, beta=1.0, c=gram, lower=1, overwrite_c=1)
        np.add(moments.cross, z.T @ a, out=moments.cross)
        np.add(moments.side, a.T @ a, out=moments.side)
    return dataclasses.replace(moments, gram=gram)


def _step(
    xp: Any, options: Mapping[str, Any], moments: Any, features: Any, outputs: Any, targets: Any, classes: int
) -> tuple[Any, ...]:
    """The new sums and whether they are finite, in functions that jax.numpy and torch have in common."""
    z = xp.asarray(features, dtype=xp.float64) - moments.feature_shift
    if classes:
        targets = targets[:, None] == xp.arange(classes, **options)
    side = xp.concatenate([xp.asarray(array, dtype=xp.float64) for array in (outputs, targets)], axis=1)
    ones = xp.ones((z.shape[0], 1), dtype=xp.float64, **options)
    a = xp.concatenate([side - moments.side_shift, ones], axis=1)
    gram, cross, side = moments.gram + z.T @ z, moments.cross + z.T @ a, moments.side + a.T @ a
    return gram, cross, side, xp.isfinite(xp.trace(gram) + xp.trace(side))


@functools.cache
def _jax_step() -> Callable[..., tuple[Any, ...]]:
    import jax

    from solvable.numerics.determinism import jit

    jax.tree_util.register_dataclass(
        Moments, data_fields=["feature_shift", "side_shift", "gram", "cross", "side"], meta_fields=["library"]
    )
    return jit(functools.partial(_step, _namespace("jax"), {}))


def _namespace(library: Library) -> Any:
    if library == "numpy":
        return np
    if library == "torch":
        return sys.modules["torch"]
    import jax.numpy as jnp

    return jnp
