"""Measures on kernels: alignment with the target, change, similarity of representations, spectrum.

A kernel comes as an n x n array, or as features (n x p) whose Gram matrix it is; features never become n x n unless
there are more of them than inputs. What :mod:`solvable.diagnostics.kernels` gives is recognised by its dims; of plain
arrays, those that are square and symmetric are taken for kernels, unless ``kind`` says otherwise.
"""

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import xarray as xr

from solvable.diagnostics.batches import to_numpy

Kind = Literal["auto", "kernel", "features"]


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
    goal = _Operand(None, _centre_columns(_targets(targets), centred))
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
    target's mean square in each mode. Eigenvalues that are rounding are left out; ``cutoff`` says below what,
    ``outside`` what share of the target that leaves.
    """
    operand = _operand("kernel", kernel, kind, False)
    goal = _targets(targets)
    _check_sizes(("kernel", operand), ("targets", _Operand(None, goal)))
    eigenvalues, vectors, epsilon = _eigen(operand)
    cutoff = operand.size * epsilon * eigenvalues[0]
    kept = int(np.sum(eigenvalues > cutoff))
    if kept == 0:
        raise ValueError("the kernel is zero on these inputs: it has no spectrum")
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
        },
    )


class _Operand(NamedTuple):
    """A kernel over inputs: as a matrix, or as features whose Gram matrix it is."""

    matrix: np.ndarray | None
    features: np.ndarray | None

    @property
    def size(self) -> int:
        return len(self.features if self.matrix is None else self.matrix)

    def dense(self) -> np.ndarray:
        return self.features @ self.features.T if self.matrix is None else self.matrix

    def diagonal(self) -> np.ndarray:
        return np.sum(self.features**2, axis=1) if self.matrix is None else np.diagonal(self.matrix)

    def row_sums(self) -> np.ndarray:
        return self.features @ self.features.sum(axis=0) if self.matrix is None else self.matrix.sum(axis=1)


def _inner(a: _Operand, b: _Operand) -> float:
    """``<K_a, K_b>`` by the shortest way: two sets of features meet in p x p."""
    if a.matrix is None and b.matrix is None:
        if a.features.shape[1] * b.features.shape[1] <= a.size**2:
            return float(np.sum((a.features.T @ b.features) ** 2))
        return float(np.sum(a.dense() * b.dense()))
    if a.matrix is None:
        a, b = b, a
    if b.matrix is None:
        return float(np.sum(b.features * (a.matrix @ b.features)))
    return float(np.sum(a.matrix * b.matrix))


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
    if a.matrix is not None or b.matrix is not None or a.features.shape[1] + b.features.shape[1] >= a.size:
        return a.dense(), b.dense()
    triangle = np.linalg.qr(np.hstack([a.features, b.features]), mode="r")
    first, second = np.split(triangle, [a.features.shape[1]], axis=1)
    return first @ first.T, second @ second.T


def _eigen(operand: _Operand) -> tuple[np.ndarray, np.ndarray, float]:
    """Eigenvalues in decreasing order, eigenvectors, and the relative rounding of the smallest."""
    if operand.matrix is None:
        vectors, singular, _ = np.linalg.svd(operand.features, full_matrices=False)
        # Singular values are good to epsilon of the largest, so their squares to its square.
        return singular**2, vectors, operand.size * np.finfo(float).eps ** 2
    eigenvalues, vectors = np.linalg.eigh(operand.matrix)
    return eigenvalues[::-1], vectors[:, ::-1], float(np.finfo(float).eps)


def _operand(name: str, value: Any, kind: str, centred: bool) -> _Operand:
    if kind not in get_args(Kind):
        raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, not {kind!r}")
    dims = value.dims if isinstance(value, xr.DataArray) else ()
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
        kind = next((known[dim] for dim in dims if dim in known), "kernel" if _symmetric(array) else "features")
    if kind == "features":
        return _Operand(None, _centre_columns(array, centred))
    if not _symmetric(array):
        raise ValueError(f"{name} must be a symmetric kernel of inputs with themselves, not of shape {array.shape}")
    if centred:
        means = array.mean(axis=0)
        array = array - means - means[:, None] + means.mean()
    return _Operand(array, None)


def _symmetric(array: np.ndarray) -> bool:
    if array.shape[0] != array.shape[1]:
        return False
    return bool(np.abs(array - array.T).max() <= 1e-5 * np.abs(array).max())


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
