"""Empirical kernels of anybody's network: the tangent kernel and the kernel of its features, in bounded memory."""

from collections.abc import Iterator
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.checks import check_choice
from solvable.diagnostics.batches import to_numpy
from solvable.diagnostics.kernel_measures import KernelChange, cka, kernel_alignment, kernel_change, spectrum
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.rounding import rounding_of
from solvable.diagnostics.tangent import Network, batches, check_inputs, network_of
from solvable.numerics.memory import memory_limit as chosen_limit
from solvable.progress import progress_bar

__all__ = [
    "KernelChange",
    "cka",
    "feature_kernel",
    "kernel_alignment",
    "kernel_change",
    "ntk",
    "spectrum",
]

Outputs = Literal["trace", "sum", "full"]
Method = Literal["auto", "jacobian", "products"]
# Gradients of more inputs at a time gain nothing.
_LARGEST_BLOCK = 4096
_FULL = ("input", "output", "other_input", "other_output")


def ntk(
    model: Any,
    inputs: Any,
    other_inputs: Any = None,
    *,
    parameters: Any = None,
    outputs: Outputs = "trace",
    landmarks: int | None = None,
    key: int = 0,
    method: Method = "auto",
    dtype: Literal["float32", "float64"] | None = None,
    batch: int | None = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    output_field: Field | None = None,
) -> xr.DataArray:
    """The empirical neural tangent kernel, ``K_cd(x, x') = sum_p df_c(x)/dtheta_p df_d(x')/dtheta_p``.

    ``model`` is a JAX function ``apply(parameters, inputs)`` of a batch, an Equinox module of one input or a torch
    module of a batch; each input is passed alone, so inputs must not see each other.

    ``outputs`` says what becomes of the outputs c and d: ``"trace"`` sums c = d, ``"full"`` keeps both, ``"sum"`` is
    the kernel of the sum of all outputs: one gradient an input instead of one an output, and the same as the trace
    for independent outputs, as a network's are when it is wide and untrained.

    With ``landmarks``, the kernel of many inputs is approximated from its columns at that many of them, drawn with
    ``key`` (Nyström): back comes a factor F, dims ``("input", "component")``, with kernel ``F F^T``. Its attribute
    ``trace_error`` is exact: the trace of what is missing over that of the kernel. What is missing is positive, so no
    entry, and no norm, is further off than that trace.

    ``method="jacobian"`` contracts gradients, a block of inputs at a time, those of linear layers as the outer products
    that they are; ``"products"`` (JAX, full) pulls each
    output back and pushes it forward through the network, which saves a factor of the number of outputs where a
    forward pass costs about as much as there are parameters. ``"auto"`` chooses by counting operations.

    A model may return fields (a tuple, mapping or dataclass): the outputs are its ``logits``, or the only array that
    can be outputs, which a loss cannot; ``output_field`` chooses by name or place where that is not clear.

    ``dtype`` recomputes in that precision (attribute ``precision`` says which was used). Gradients held at a time keep
    below ``memory_limit`` bytes (2 GiB, or 60 % of an accelerator's memory, if None), or are those of ``batch`` inputs.
    """
    check_choice("outputs", outputs, get_args(Outputs))
    check_choice("method", method, get_args(Method))
    network = network_of(model, parameters, dtype, output_field)
    rows = check_inputs("inputs", inputs)
    columns = None if other_inputs is None else check_inputs("other_inputs", other_inputs)
    if columns is not None and columns.shape[1:] != rows.shape[1:]:
        shapes = f"{tuple(rows.shape[1:])} and {tuple(columns.shape[1:])}"
        raise ValueError(f"inputs and other_inputs must be alike, not of shapes {shapes}")
    width = network.outputs(rows[:1]).shape[1]
    plan = _Plan(network, rows, width, outputs, batch, memory_limit, progress)
    notes = {"precision": network.precision, "outputs": outputs, "parameters": network.size, "library": network.library}
    if landmarks is not None:
        if columns is not None or outputs == "full":
            raise ValueError("landmarks approximate a kernel of inputs with themselves, outputs='trace' or 'sum'")
        return _nystroem(plan, rows, landmarks, key, notes)
    contraction = _contraction(network, rows, width, outputs, method)
    found = plan.products(rows, columns) if contraction == "products" else plan.jacobian(rows, columns)
    _check_finite(found, columns is None)
    dims = _FULL if outputs == "full" else ("input", "other_input")
    attrs = {"long_name": "neural tangent kernel", "units": "1", "symbol": "Θ", "contraction": contraction, **notes}
    return xr.DataArray(found, dims=dims, name="ntk", attrs=attrs)


def feature_kernel(
    model: Any,
    inputs: Any = None,
    other_inputs: Any = None,
    *,
    parameters: Any = None,
    dtype: Literal["float32", "float64"] | None = None,
    batch: int = 256,
    progress: bool | None = None,
    output_field: Field | None = None,
) -> xr.DataArray:
    """The kernel of features, ``K(x, x') = Phi(x)^T Phi(x')`` (layerwise, the kernel of eq. 1.18).

    ``model`` gives the features of ``inputs``, in any of the forms of :func:`ntk`; or it is the array of features
    itself, one row an input, and ``inputs`` stays out. A kernel of n inputs is n x n: where that is too large, pass
    features to :func:`cka`, :func:`kernel_alignment` and :func:`spectrum`, which never make it.
    """
    if inputs is None:
        if callable(model):
            raise ValueError("a network needs inputs to have features: pass inputs=..., or the array of features")
        precision = rounding_of(model).name if dtype is None else dtype
        left = _flat(_wide(model, dtype))
        right = left if other_inputs is None else _flat(_wide(other_inputs, dtype))
    else:
        network = network_of(model, parameters, dtype, output_field)
        left = _features(network, check_inputs("inputs", inputs), batch, progress)
        right = left
        if other_inputs is not None:
            right = _features(network, check_inputs("other_inputs", other_inputs), batch, progress)
        precision = network.precision
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"features of one length are needed, not {left.shape[1]} and {right.shape[1]}")
    found = left @ right.T
    _check_finite(found, right is left)
    attrs = {"long_name": "feature kernel", "units": "1", "symbol": "K", "precision": precision}
    return xr.DataArray(found, dims=("input", "other_input"), name="feature_kernel", attrs=attrs)


class _Plan:
    """How to go through inputs and outputs: a large block of rows is held while small blocks of columns pass by.

    Gradients of a column are found once for each block of rows, and only up to the diagonal of a symmetric kernel.
    If one input's gradients are too many, outputs are taken in groups as well.
    """

    def __init__(
        self,
        network: Network,
        rows: Any,
        width: int,
        outputs: str,
        batch: int | None,
        memory_limit: float | None,
        progress: bool | None,
    ) -> None:
        self.network, self.full, self.progress = network, outputs == "full", progress
        self.weights = np.ones((1, width)) if outputs == "sum" else np.eye(width)
        if batch is not None and (isinstance(batch, bool) or int(batch) != batch or batch < 1):
            raise ValueError(f"batch must be a whole number of inputs, 1 or more, not {batch!r}")
        held = chosen_limit(memory_limit) / (
            max(4, jnp.finfo(network.precision).bits // 8) * network.gradient_size(rows)
        )
        self.group = int(np.clip(held // 4, 1, len(self.weights)))
        self.block = int(np.clip(0.6 * held // self.group, 1, _LARGEST_BLOCK)) if batch is None else int(batch)
        self.sliver = max(1, self.block // 4)

    def jacobian(self, rows: Any, columns: Any) -> np.ndarray:
        symmetric = columns is None
        others = rows if symmetric else columns
        shape = (len(rows), len(self.weights), len(others), len(self.weights))
        found = np.zeros(shape if self.full else (len(rows), len(others)))
        groups = batches(len(self.weights), self.group)
        with progress_bar("tangent kernel", len(rows) * len(groups) ** (1 + self.full), self.progress) as advance:
            for row in batches(len(rows), self.block):
                for group in groups:
                    held = self.network.gradients(rows[row], self.weights[group])
                    for other_group in groups if self.full else [group]:
                        for column, passing in self._passing(held, row, group, other_group, others, symmetric):
                            part = self.network.contract(held, passing, self.full)
                            if self.full:
                                found[row, group, column, other_group] = part
                            else:
                                found[row, column] += part
                        advance(row.stop - row.start)
        return _mirror(found) if symmetric else found

    def _passing(
        self, held: list[Any], row: slice, group: slice, other_group: slice, others: Any, symmetric: bool
    ) -> Iterator[tuple[slice, list[Any]]]:
        """Gradients of the columns that a block of rows has to meet; what is held already is not found again."""
        at_hand = symmetric and other_group == group
        last = row.start if at_hand else row.stop if symmetric else len(others)
        for column in batches(last, self.sliver):
            yield column, self.network.gradients(others[column], self.weights[other_group])
        if at_hand:
            yield row, held

    def products(self, rows: Any, columns: Any) -> np.ndarray:
        others = rows if columns is None else columns
        width = len(self.weights)
        found = np.zeros((len(rows), width, len(others), width))
        with progress_bar("tangent kernel", len(others) * width, self.progress) as advance:
            # What a direction leaves at every layer of every row is held at a time, and counted as a gradient would be.
            for column in batches(len(others), max(1, self.block // min(len(rows), self.block))):
                for group in batches(width, self.group):
                    for row in batches(len(rows), self.block):
                        part = self.network.columns(  # type: ignore[attr-defined]
                            rows[row], others[column], self.weights[group]
                        )
                        found[row, :, column, group] = part
                    advance((column.stop - column.start) * (group.stop - group.start))
        return found

    def diagonal(self, rows: Any) -> np.ndarray:
        found = np.zeros(len(rows))
        for row in batches(len(rows), self.block):
            for group in batches(len(self.weights), self.group):
                found[row] += self.network.squared_norms(self.network.gradients(rows[row], self.weights[group]))
        return found


def _contraction(network: Network, rows: Any, width: int, outputs: str, method: str) -> str:
    """Which route is cheaper: for each pair of inputs, gradients cost ``2 C^2 P`` operations, products ``3 C F``."""
    possible = outputs == "full" and network.library == "jax"
    if method == "products" and not possible:
        raise ValueError("method='products' is for JAX and outputs='full': use method='jacobian'")
    if method != "auto":
        return method
    if not possible or width < 4:
        return "jacobian"
    work = network.forward_work(rows)  # type: ignore[attr-defined]
    gradients = 2 * width * network.gradient_size(rows)
    return "products" if work is not None and 3 * work < gradients else "jacobian"


def _nystroem(plan: _Plan, rows: Any, landmarks: int, key: int, notes: dict[str, Any]) -> xr.DataArray:
    """``F = K_nm K_mm^(-1/2)`` on the directions of ``K_mm`` that rounding leaves."""
    if isinstance(landmarks, bool) or int(landmarks) != landmarks or not 1 <= landmarks <= len(rows):
        raise ValueError(f"landmarks must be a whole number from 1 to the {len(rows)} inputs, not {landmarks!r}")
    chosen = np.sort(np.random.default_rng(key).choice(len(rows), int(landmarks), replace=False))
    columns, diagonal = plan.jacobian(rows, rows[chosen]), plan.diagonal(rows)
    _check_finite(columns, False)
    core = columns[chosen]
    strengths, directions = np.linalg.eigh((core + core.T) / 2)
    epsilon = float(jnp.finfo(plan.network.precision).eps)
    kept = strengths > len(rows) * epsilon * strengths.max(initial=0.0)
    if not kept.any():
        raise ValueError("the kernel vanishes at all landmarks: choose others with key, or more")
    factor = columns @ (directions[:, kept] / np.sqrt(strengths[kept]))[:, ::-1]
    attrs = {
        "long_name": "Nyström factor of the neural tangent kernel",
        "units": "1",
        "symbol": "F",
        "contraction": "jacobian",
        **notes,
        "landmarks": int(landmarks),
        # Rounding can leave a tiny negative number where the landmarks say it all.
        "trace_error": max(0.0, float(1 - np.sum(factor**2) / diagonal.sum())),
    }
    return xr.DataArray(factor, dims=("input", "component"), name="ntk_factor", attrs=attrs)


def _features(network: Network, inputs: Any, batch: int, progress: bool | None) -> np.ndarray:
    parts = []
    with progress_bar("features", len(inputs), progress) as advance:
        for row in batches(len(inputs), batch):
            parts.append(network.outputs(inputs[row]))
            advance(row.stop - row.start)
    return np.concatenate(parts)


def _wide(features: Any, dtype: str | None) -> np.ndarray:
    """Features as an array in which products can be added up: half precision is too coarse for that."""
    array = to_numpy(features)
    if array.dtype.kind not in "fiubV":
        raise ValueError(f"features must be an array of real numbers, not of {array.dtype}")
    if dtype is None and array.dtype.itemsize < 4:
        dtype = "float32"
    return array if dtype is None else array.astype(dtype)


def _flat(features: np.ndarray) -> np.ndarray:
    if features.ndim == 0 or not features.size:
        raise ValueError(f"features must hold one row for each input, not have shape {features.shape}")
    return features.reshape(len(features), -1)


def _mirror(kernel: np.ndarray) -> np.ndarray:
    """The lower half of a symmetric kernel on both sides."""
    flat = kernel.reshape(kernel.shape[0] * (kernel.shape[1] if kernel.ndim == 4 else 1), -1)
    lower = np.tril(flat)
    return (lower + np.tril(flat, -1).T).reshape(kernel.shape)


def _check_finite(kernel: np.ndarray, symmetric: bool) -> None:
    if np.isfinite(kernel).all():
        return
    axes = tuple(range(1, kernel.ndim))
    rows = ~np.isfinite(kernel).any(axis=axes) if symmetric else ~np.isfinite(kernel).all(axis=axes)
    first = int(np.argmax(rows)) if rows.any() else int(np.argmax(~np.isfinite(kernel).all(axis=axes)))
    raise ValueError(
        f"the kernel is not finite from input {first} on: look for NaN or overflow in inputs and parameters"
    )
