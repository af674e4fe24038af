"""Measures on kernels: alignment with the target, change, similarity of representations, spectrum.

A kernel comes as an n x n array, or as features (n x p) whose Gram matrix it is; features never become n x n unless
there are more of them than inputs. What :mod:`solvable.diagnostics.kernels` gives is recognised by its dims; of plain
arrays, those that are square and symmetric are taken for kernels, unless ``kind`` says otherwise.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import xarray as xr

from solvable.checks import check_choice
from solvable.diagnostics.batches import to_numpy
from solvable.diagnostics.rounding import FLOAT64, PRECISIONS, Rounding, coarser, rounding_of

Kind = Literal["auto", "kernel", "features"]
# A lowest eigenvalue so many times further below zero than rounding explains is a property of the kernel.
_FAR_BELOW = 100


class KernelChange(NamedTuple):
    """How far a kernel has moved: ``|K' - K| / |K|``, and one minus their cosine, blind to an overall factor."""

    distance: float
    misalignment: float


def kernel_alignment(kernel: Any, targets: Any, *, centred: bool = True, kind: Kind = "auto") -> float:
    """The cosine between a kernel and that of the targets, ``<K, Y Y^T> / (|K| |Y Y^T|)``.

    ``centred`` takes the mean over inputs out of both first, so that a constant part of the kernel, which every
    network has, does not count. Targets are numbers (one or several an input), or labels if they are integers.
    """
    operand = _operand("kernel", kernel, kind, centred)
    goal = _Operand(_centre_columns(_targets(targets), centred), True)
    _check_sizes(("kernel", operand), ("targets", goal))
    return _cosine(operand, goal, "the kernel or the targets")


def kernel_change(before: Any, after: Any, *, kind: Kind = "auto") -> KernelChange:
    """How far a kernel moved between two checkpoints on the same inputs: 0 and 0 for lazy training.

    Small changes keep their digits: what is summed is the difference, never a difference of sums.
    """
    first, last = _operand("before", before, kind, False), _operand("after", after, kind, False)
    _check_sizes(("before", first), ("after", last))
    old, new = _on_common_basis(first, last)
    size, new_size = np.linalg.norm(old), np.linalg.norm(new)
    if size == 0 or new_size == 0:
        raise ValueError("a kernel that is zero has no relative change: give inputs or parameters on which it is not")
    apart = np.linalg.norm(new / new_size - old / size)
    return KernelChange(float(np.linalg.norm(new - old) / size), float(apart**2 / 2))


def cka(a: Any, b: Any, *, debiased: bool = False, kind: Kind = "auto") -> float:
    """Centred kernel alignment of two representations of the same inputs: 1 if they are alike, 0 if unrelated.

    From features it is the linear one, ``|A^T B|^2 / (|A^T A| |B^T B|)`` with columns centred (layerwise, eq. 2.9).
    With fewer inputs than features that is near 1 for anything; ``debiased`` uses the estimator without diagonal
    instead, whose expectation does not depend on the number of inputs, and which can be below 0.
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
    """Eigenvalues of a kernel over the inputs' distribution, and how the target is spread over its modes.

    ``K(x, x') = sum_k lambda_k e_k(x) e_k(x')`` with ``<e_k e_l> = delta_kl`` averaged over the inputs, and target
    ``f* = sum_k <e_k f*> e_k = sum_k w_k sqrt(lambda_k) e_k``: ``spectrum`` holds the lambda, ``target`` the w (root
    of the summed squares over outputs), in decreasing order of lambda, as
    :func:`solvable.fit_source_capacity` ``(result.spectrum, result.target)`` takes them. ``power`` is the share of the
    target's mean square in each mode.

    Eigenvalues that rounding can make are set aside, in the precision of the numbers that were given (``precision``:
    that of the array, or the one that :func:`ntk` computed in; float64 arrays that hold float32 numbers count as
    float32). ``cutoff`` says up to what, ``set_aside`` how many, ``negative`` how many of them are below zero,
    ``outside`` what share of the target lies in none of the modes returned, and ``notes`` says all that in words.
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
        raise ValueError(f"the kernel is zero on these inputs but for rounding{lowest}: it has no positive spectrum")
    set_aside, negative = operand.size - kept, int(np.sum(eigenvalues < 0))
    if modes is not None:
        if isinstance(modes, bool) or int(modes) != modes or modes < 1:
            raise ValueError(f"modes must be a whole number, 1 or more, not {modes!r}")
        kept = min(kept, int(modes))
    eigenvalues = eigenvalues[:kept] / operand.size
    coefficients = vectors[:, :kept].T @ goal / np.sqrt(operand.size)
    strength = np.sum(coefficients**2, axis=1)
    total = float(np.sum(goal**2) / operand.size)
    if total == 0:
        raise ValueError("targets are all zero: they have no spectrum")
    variables = {
        "spectrum": ("mode", eigenvalues, "eigenvalue of the kernel", "λ_k"),
        "target": ("mode", np.sqrt(strength / eigenvalues), "target coefficient of the mode", "w_k"),
        "coefficient": (("mode", "output"), coefficients, "overlap of the target with the eigenfunction", "⟨e_k|f*⟩"),
        "power": ("mode", strength / total, "share of the target's mean square", "Q_k"),
    }
    return xr.Dataset(
        {
            name: xr.Variable(dims, values, {"long_name": text, "units": "1", "symbol": symbol})
            for name, (dims, values, text, symbol) in variables.items()
        },
        {"mode": ("mode", np.arange(1, kept + 1), {"long_name": "mode", "units": "1", "symbol": "k"})},
        {
            "inputs": operand.size,
            "modes": kept,
            "cutoff": float(cutoff / operand.size),
            "outside": max(0.0, 1 - float(strength.sum()) / total),
            "precision": str(operand.rounding),
            "set_aside": set_aside,
            "negative": negative,
            "notes": notes,
        },
    )


def _cutoff(operand: "_Operand", eigenvalues: np.ndarray) -> tuple[float, str]:
    """The largest eigenvalue that rounding can make, and in words what is set aside for it.

    Independent errors of n x n entries add up to eigenvalues of ``±2 σ √n`` (Wigner), those of n x p features to
    singular values of ``σ (√n + √p)``; both on top of what the decomposition in float64 rounds.
    """
    size, rounding = operand.size, operand.rounding
    if operand.factored:
        # Singular values are good to epsilon of the largest, so their squares to its square.
        cutoff = (size * FLOAT64.unit) ** 2 * eigenvalues[0]
        largest = float(np.mean(operand.array**2, axis=0).max())
        cutoff += rounding.error**2 * largest * (np.sqrt(size) + np.sqrt(operand.array.shape[1])) ** 2
    else:
        cutoff = size * FLOAT64.unit * float(np.abs(eigenvalues).max())
        if rounding.unit > FLOAT64.unit:
            cutoff += 2 * np.sqrt(size) * rounding.error * float(np.abs(operand.array).max())
    lowest = -float(eigenvalues[-1])
    positive = lowest <= _FAR_BELOW * cutoff
    if positive:
        # A kernel has no negative eigenvalues: the most negative one is what rounding made, on either side of zero.
        cutoff = max(cutoff, lowest)
    count, negative = int(np.sum(eigenvalues <= cutoff)), int(np.sum(eigenvalues < 0))
    notes = f"numbers in {rounding}: {count} of {size} eigenvalues are not above rounding ({cutoff / size:.2g})"
    notes += f" and set aside, {negative} of them negative" if negative else " and set aside" if count else ""
    if not positive:
        notes += (
            f"; the lowest, {-lowest / size:.2g}, is no rounding: this kernel is not positive semidefinite, look at "
            "what made it"
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
    """``<K_a, K_b>`` by the shortest way: two sets of features meet in p x p."""
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
    """The estimator of Song et al. (2012): <K, L> without diagonals, centred so that its mean has no bias."""
    n = a.size
    product = _inner(a, b) - float(a.diagonal() @ b.diagonal())
    left, right = a.row_sums() - a.diagonal(), b.row_sums() - b.diagonal()
    means = float(left.sum() * right.sum()) / ((n - 1) * (n - 2))
    return (product + means - 2 / (n - 2) * float(left @ right)) / (n * (n - 3))


def _on_common_basis(a: _Operand, b: _Operand) -> tuple[np.ndarray, np.ndarray]:
    """Both kernels as matrices of the same size: on the span of both sets of features, if that is smaller than n."""
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
    array = _host(value)
    if array.ndim == 4 and array.shape[:2] == array.shape[2:]:
        array = array.reshape(array.shape[0] * array.shape[1], -1)
        kind = "kernel"
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or not array.size:
        raise ValueError(f"{name} must be a kernel (n x n) or features (n x p), not of shape {array.shape}")
    if not np.isfinite(array).all():
        row = int(np.argmax(~np.isfinite(array).all(axis=1)))
        raise ValueError(f"{name} is not finite in row {row}: look for NaN or overflow in what made it")
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
    """The precision of a kernel or of features: what they were computed in, if they say so, or that of the numbers."""
    if isinstance(value, xr.DataArray):
        said = str(value.attrs.get("precision", "float64"))
        found = rounding_of(value.values)
        return coarser(found, Rounding(said) if said in PRECISIONS else FLOAT64)
    return rounding_of(value)


def _symmetric(array: np.ndarray, rounding: Rounding) -> bool:
    if array.shape[0] != array.shape[1]:
        return False
    return bool(np.abs(array - array.T).max() <= max(1e-5, rounding.error) * np.abs(array).max())


def _centre_columns(array: np.ndarray, centred: bool) -> np.ndarray:
    return array - array.mean(axis=0) if centred else array


def _targets(targets: Any) -> np.ndarray:
    array = _host(targets, keep_integers=True)
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        return (array[:, None] == np.unique(array)).astype(float)
    if array.ndim not in (1, 2) or not array.size:
        raise ValueError(f"targets must hold a row (or a label) for each input, not have shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("targets are not all finite: leave out the inputs without a target")
    return array.reshape(len(array), -1).astype(float)


def _host(value: Any, keep_integers: bool = False) -> np.ndarray:
    """A NumPy array in float64, from NumPy, JAX, xarray or torch."""
    array = to_numpy(value)
    if array.dtype.kind not in "fiubV" or array.dtype == object:
        raise ValueError(f"kernels, features and targets must be arrays of real numbers, not of {array.dtype}")
    return array if keep_integers and np.issubdtype(array.dtype, np.integer) else array.astype(float)


def _check_sizes(*operands: tuple[str, _Operand]) -> None:
    (first, a), (second, b) = operands
    if a.size != b.size:
        raise ValueError(f"{first} has {a.size} inputs and {second} {b.size}: both must be of the same inputs")
