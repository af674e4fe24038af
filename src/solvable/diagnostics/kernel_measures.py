"""Measures on kernels: alignment with the target, change, similarity of representations, spectrum.

A kernel is given as an n x n array, or as features (n x p) whose Gram matrix it is; the Gram matrix of features is not
formed unless there are more features than inputs. Results of :mod:`solvable.diagnostics.kernels` are recognised by
their dims. Plain arrays that are square and symmetric are taken for kernels, unless ``kind`` says otherwise.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_count
from solvable.dataset import Meaning, make_dataset
from solvable.diagnostics.batches import check_real, to_numpy
from solvable.diagnostics.precision import FLOAT64, PRECISIONS, Rounding, coarser, rounding_of

Kind = Literal["auto", "kernel", "features"]
# If the lowest eigenvalue is this many times further below zero than rounding explains, it belongs to the kernel.
_FAR_BELOW = 100
_SPECTRUM = {
    "spectrum": Meaning("eigenvalue of the kernel", "1", "λ_k"),
    "target": Meaning("target coefficient of the mode", "1", "w_k"),
    "coefficient": Meaning("overlap of the target with the eigenfunction", "1", "⟨e_k|f*⟩"),
    "power": Meaning("fraction of the target's mean square", "1", "Q_k"),
    "mode": Meaning("mode", "1", "k"),
}


class KernelChange(NamedTuple):
    """How far a kernel has moved.

    Parameters
    ----------
    distance
        ``|K' - K| / |K|``.
    misalignment
        One minus the cosine between the two, which ignores an overall factor.
    """

    distance: float
    misalignment: float


def kernel_alignment(kernel: Any, targets: Any, *, centred: bool = True, kind: Kind = "auto") -> float:
    """The cosine between a kernel and that of the targets, ``<K, Y Y^T> / (|K| |Y Y^T|)``.

    Parameters
    ----------
    kernel
        A kernel (n x n), or features (n x p).
    targets
        One or several real numbers per input, or integer labels.
    centred
        Subtract the mean over inputs from both first, so that a constant part of the kernel does not count.
    kind
        Whether a plain array is a ``"kernel"`` or ``"features"``; ``"auto"`` takes symmetric arrays for kernels.
    """
    operand = _operand("kernel", kernel, kind, centred)
    goal = _Operand(_centre_columns(_targets(targets), centred), True)
    _check_sizes(("kernel", operand), ("targets", goal))
    return _cosine(operand, goal, "the kernel or the targets")


def kernel_change(before: Any, after: Any, *, kind: Kind = "auto") -> KernelChange:
    """How far a kernel moved between two checkpoints on the same inputs: 0 and 0 for lazy training.

    Small changes are accurate: the difference is summed, and no difference of sums is taken.

    Parameters
    ----------
    before, after
        Two kernels (n x n), or features (n x p).
    kind
        As in :func:`kernel_alignment`.
    """
    first, last = _operand("before", before, kind, False), _operand("after", after, kind, False)
    _check_sizes(("before", first), ("after", last))
    old, new = _on_common_basis(first, last)
    size, new_size = np.linalg.norm(old), np.linalg.norm(new)
    if size == 0 or new_size == 0:
        raise ValueError("a kernel that is zero has no relative change: give inputs or parameters on which it is not")
    distance = np.linalg.norm(new / new_size - old / size)
    return KernelChange(float(np.linalg.norm(new - old) / size), float(distance**2 / 2))


def cka(a: Any, b: Any, *, debiased: bool = False, kind: Kind = "auto") -> float:
    """Centred kernel alignment of two representations of the same inputs: 1 if they are alike, 0 if unrelated.

    From features it is the linear one, ``|A^T B|^2 / (|A^T A| |B^T B|)`` with columns centred (layerwise, eq. 2.9).

    Parameters
    ----------
    a, b
        Two kernels (n x n), or features (n x p).
    debiased
        Use the estimator without diagonals, whose expectation does not depend on the number of inputs, and which can be
        below 0. The default is close to 1 for any pair with fewer inputs than features.
    kind
        As in :func:`kernel_alignment`.
    """
    first, second = _operand("a", a, kind, not debiased), _operand("b", b, kind, not debiased)
    _check_sizes(("a", first), ("b", second))
    if not debiased:
        return _cosine(first, second, "a or b")
    if first.size < 4:
        raise ValueError(f"the debiased estimator needs at least 4 inputs, not {first.size}")
    powers = _without_diagonal(first, first) * _without_diagonal(second, second)
    if not powers > 0:
        raise ValueError("a or b is constant, or noise, over the inputs: debiased similarity is not defined")
    return float(_without_diagonal(first, second) / np.sqrt(powers))


def spectrum(kernel: Any, targets: Any, *, modes: int | None = None, kind: Kind = "auto") -> xr.Dataset:
    """Eigenvalues of a kernel over the distribution of inputs, and the distribution of the target over its modes.

    ``K(x, x') = sum_k lambda_k e_k(x) e_k(x')`` with ``<e_k e_l> = delta_kl`` averaged over the inputs, and target
    ``f* = sum_k <e_k f*> e_k = sum_k w_k sqrt(lambda_k) e_k``: ``spectrum`` holds the lambda, ``target`` the w (root
    of the summed squares over outputs), in decreasing order of lambda, as
    :func:`solvable.fit_source_capacity` ``(result.spectrum, result.target)`` takes them. ``power`` is the fraction of
    the target's mean square in each mode.

    Eigenvalues that rounding can produce are set aside, in the precision of the numbers that were given
    (``precision``: that of the array, or the one that :func:`ntk` computed in; float64 arrays of float32 numbers count
    as float32). The attribute ``cutoff`` is the largest of these, ``set_aside`` their number, ``negative`` how many of
    them are below zero, ``outside`` the fraction of the target in none of the modes returned; ``notes`` describe it.

    Parameters
    ----------
    kernel
        A kernel (n x n), or features (n x p).
    targets
        One or several real numbers per input, or integer labels.
    modes
        Return at most this many modes; by default all above the cutoff.
    kind
        As in :func:`kernel_alignment`.
    """
    operand = _operand("kernel", kernel, kind, False)
    goal = _targets(targets)
    _check_sizes(("kernel", operand), ("targets", _Operand(goal, True)))
    eigenvalues, vectors = _eigen(operand)
    cutoff, notes = _cutoff(operand, eigenvalues)
    kept = int(np.sum(eigenvalues > cutoff))
    if kept == 0:
        lowest = (
            f", and has eigenvalues down to {eigenvalues[-1] / operand.size:.2g}" if eigenvalues[-1] < -cutoff else ""
        )
        raise ValueError(f"the kernel is zero on these inputs up to rounding{lowest}: it has no positive spectrum")
    set_aside, negative = operand.size - kept, int(np.sum(eigenvalues < 0))
    if modes is not None:
        kept = min(kept, check_count("modes", modes))
    eigenvalues = eigenvalues[:kept] / operand.size
    coefficients = vectors[:, :kept].T @ goal / np.sqrt(operand.size)
    strength = np.sum(coefficients**2, axis=1)
    total = float(np.sum(goal**2) / operand.size)
    if total == 0:
        raise ValueError("targets are all zero: they have no spectrum")
    variables = {
        "spectrum": (("mode",), eigenvalues),
        "target": (("mode",), np.sqrt(strength / eigenvalues)),
        "coefficient": (("mode", "output"), coefficients),
        "power": (("mode",), strength / total),
    }
    attributes = {
        "inputs": operand.size,
        "modes": kept,
        "cutoff": float(cutoff / operand.size),
        "outside": max(0.0, 1 - float(strength.sum()) / total),
        "precision": str(operand.rounding),
        "set_aside": set_aside,
        "negative": negative,
        "notes": notes,
    }
    return make_dataset(variables, {"mode": np.arange(1, kept + 1)}, attributes, _SPECTRUM)


def _cutoff(operand: "_Operand", eigenvalues: np.ndarray) -> tuple[float, str]:
    """The largest eigenvalue that rounding can produce, and a note on the eigenvalues that are set aside.

    Independent errors of n x n entries add up to eigenvalues of ``±2 σ √n`` (Wigner), those of n x p features to
    singular values of ``σ (√n + √p)``; both in addition to the rounding of the decomposition in float64.
    """
    size, rounding = operand.size, operand.rounding
    if operand.factored:
        # Singular values are accurate to epsilon of the largest, so their squares to its square.
        cutoff = (size * FLOAT64.unit) ** 2 * eigenvalues[0]
        largest = float(np.mean(operand.array**2, axis=0).max())
        cutoff += rounding.error**2 * largest * (np.sqrt(size) + np.sqrt(operand.array.shape[1])) ** 2
    else:
        cutoff = size * FLOAT64.unit * float(np.abs(eigenvalues).max())
        if rounding.unit > FLOAT64.unit:
            cutoff += 2 * np.sqrt(size) * rounding.error * float(np.abs(operand.array).max())
    lowest = -float(eigenvalues[-1])
    semidefinite = lowest <= _FAR_BELOW * cutoff
    if semidefinite:
        # A kernel has no negative eigenvalues: rounding produced the most negative one, and others as far above zero.
        cutoff = max(cutoff, lowest)
    count, negative = int(np.sum(eigenvalues <= cutoff)), int(np.sum(eigenvalues < 0))
    notes = f"numbers in {rounding}: {count} of {size} eigenvalues are not above rounding ({cutoff / size:.2g})"
    notes += f" and set aside, {negative} of them negative" if negative else " and set aside" if count else ""
    if not semidefinite:
        notes += (
            f"; the lowest, {-lowest / size:.2g}, is not due to rounding: this kernel is not positive semidefinite, "
            "check how it was computed"
        )
    return float(cutoff), notes


class _Operand(NamedTuple):
    """A kernel over inputs: as a matrix, or as features (``factored``) whose Gram matrix it is."""

    array: np.ndarray
    factored: bool
    rounding: Rounding = FLOAT64

    @property
    def size(self) -> int:
        return len(self.array)

    def dense(self) -> np.ndarray:
        return self.array @ self.array.T if self.factored else self.array

    def diagonal(self) -> np.ndarray:
        return np.sum(self.array**2, axis=1) if self.factored else np.diagonal(self.array)

    def row_sums(self) -> np.ndarray:
        return self.array @ self.array.sum(axis=0) if self.factored else self.array.sum(axis=1)


def _inner(a: _Operand, b: _Operand) -> float:
    """``<K_a, K_b>`` by the cheapest route: for two sets of features, through a p x p matrix."""
    if a.factored and b.factored and a.array.shape[1] * b.array.shape[1] <= a.size**2:
        return float(np.sum((a.array.T @ b.array) ** 2))
    if a.factored and not b.factored:
        a, b = b, a
    if b.factored:
        return float(np.sum(b.array * (a.dense() @ b.array)))
    return float(np.sum(a.array * b.array))


def _cosine(a: _Operand, b: _Operand, names: str) -> float:
    powers = _inner(a, a), _inner(b, b)
    if min(powers) <= 0:
        raise ValueError(f"{names} is constant (or zero) over the inputs: it has no alignment")
    return _inner(a, b) / float(np.sqrt(powers[0]) * np.sqrt(powers[1]))


def _without_diagonal(a: _Operand, b: _Operand) -> float:
    """The estimator of Song et al. (2012): <K, L> without diagonals, centred so that it is unbiased."""
    n = a.size
    product = _inner(a, b) - float(a.diagonal() @ b.diagonal())
    left, right = a.row_sums() - a.diagonal(), b.row_sums() - b.diagonal()
    means = float(left.sum() * right.sum()) / ((n - 1) * (n - 2))
    return (product + means - 2 / (n - 2) * float(left @ right)) / (n * (n - 3))


def _on_common_basis(a: _Operand, b: _Operand) -> tuple[np.ndarray, np.ndarray]:
    """Both kernels as matrices of equal size: on the span of both sets of features, if that is smaller than n."""
    if not (a.factored and b.factored) or a.array.shape[1] + b.array.shape[1] >= a.size:
        return a.dense(), b.dense()
    triangle = np.linalg.qr(np.hstack([a.array, b.array])).R
    first, second = np.split(triangle, [a.array.shape[1]], axis=1)
    return first @ first.T, second @ second.T


def _eigen(operand: _Operand) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues in decreasing order, and eigenvectors."""
    if operand.factored:
        vectors, singular, _ = np.linalg.svd(operand.array, full_matrices=False)
        return singular**2, vectors
    eigenvalues, vectors = np.linalg.eigh(operand.array)
    return eigenvalues[::-1], vectors[:, ::-1]


def _operand(name: str, value: Any, kind: str, centred: bool) -> _Operand:
    check_choice("kind", kind, get_args(Kind))
    dims = value.dims if isinstance(value, xr.DataArray) else ()
    rounding = _rounding(value)
    array = _real_array(value).astype(float)
    if array.ndim == 4 and array.shape[:2] == array.shape[2:]:
        array = array.reshape(array.shape[0] * array.shape[1], -1)
        kind = "kernel"
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} must be a kernel (n x n) or features (n x p), not of shape {array.shape}")
    if not np.isfinite(array).all():
        row = int(np.argmax(~np.isfinite(array).all(axis=1)))
        raise ValueError(f"{name} is not finite in row {row}: look for NaN or overflow in the computation of it")
    if kind == "auto":
        known = {"other_input": "kernel", "component": "features"}
        kind = next(
            (known[dim] for dim in dims if dim in known), "kernel" if _symmetric(array, rounding) else "features"
        )
    if kind == "features":
        return _Operand(_centre_columns(array, centred), True, rounding)
    if not _symmetric(array, rounding):
        raise ValueError(f"{name} must be a symmetric kernel of inputs with themselves, not of shape {array.shape}")
    if centred:
        means = array.mean(axis=0)
        array = array - means - means[:, None] + means.mean()
    return _Operand(array, False, rounding)


def _rounding(value: Any) -> Rounding:
    """The precision of a kernel or of features: the one that its attributes state, or that of its numbers."""
    if isinstance(value, xr.DataArray):
        stated = str(value.attrs.get("precision", "float64"))
        return coarser(rounding_of(value.values), Rounding(stated) if stated in PRECISIONS else FLOAT64)
    return rounding_of(value)


def _symmetric(array: np.ndarray, rounding: Rounding) -> bool:
    if array.shape[0] != array.shape[1]:
        return False
    return bool(np.abs(array - array.T).max() <= max(1e-5, rounding.error) * np.abs(array).max())


def _centre_columns(array: np.ndarray, centred: bool) -> np.ndarray:
    return array - array.mean(axis=0) if centred else array


def _targets(targets: Any) -> np.ndarray:
    array = _real_array(targets)
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        return (array[:, None] == np.unique(array)).astype(float)
    if array.ndim not in (1, 2) or not array.size:
        raise ValueError(f"targets must have a row (or a label) for each input, not shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("targets are not all finite: leave out the inputs without a target")
    return array.reshape(len(array), -1).astype(float)


def _real_array(value: Any) -> np.ndarray:
    return check_real(to_numpy(value), "kernels, features and targets")


def _check_sizes(*operands: tuple[str, _Operand]) -> None:
    (first, a), (second, b) = operands
    if a.size != b.size:
        raise ValueError(f"{first} has {a.size} inputs and {second} {b.size}: both must be of the same inputs")
