"""Empirical kernels of a network in JAX, Equinox or PyTorch: the tangent kernel and the kernel of its features."""

from collections.abc import Iterator
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_count
from solvable.diagnostics.batches import check_real, to_numpy
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.precision import rounding_of
from solvable.diagnostics.tangent import Network, check_inputs, network_of, slices
from solvable.numerics.memory import memory_limit as chosen_limit
from solvable.progress import progress_bar

Outputs = Literal["trace", "sum", "full"]
Method = Literal["auto", "jacobian", "products"]
# Larger blocks of gradients are not faster.
_LARGEST_BLOCK = 4096


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
    batch_size: int | None = None,
    memory_limit: float | None = None,
    progress: bool | None = None,
    output_field: Field | None = None,
) -> xr.DataArray:
    """The empirical neural tangent kernel, ``K_cd(x, x') = sum_p df_c(x)/dtheta_p df_d(x')/dtheta_p``.

    Parameters
    ----------
    model
        A JAX function ``apply(parameters, inputs)`` of a batch, an Equinox module of one input, or a torch module of a
        batch. Each input is passed alone, so outputs must not depend on the other inputs of a batch.
    inputs, other_inputs
        The inputs x and x', along the first axis; x' = x if ``other_inputs`` is not given. A tuple or a mapping of
        arrays holds several inputs, which modules take as positional arguments or keywords, and JAX functions as they
        are.
    parameters
        The parameters of a JAX function. For a module, other parameters than its own: a module like it, or a torch
        state dict.
    outputs
        ``"trace"`` sums over c = d, ``"full"`` keeps both axes, and ``"sum"`` gives the kernel of the sum of all
        outputs: one gradient per input instead of one per output, and equal to the trace for independent outputs, as
        those of a wide untrained network are.
    landmarks
        Approximate the kernel from this many of its columns (Nyström). The result is a factor F with dims ``("input",
        "component")`` and kernel ``F F^T``. Its attribute ``trace_error`` is exact: the trace of the remainder over
        that of the kernel. The remainder is positive semidefinite, so no entry and no norm is further off than that.
    key
        Random seed of the choice of landmarks.
    method
        ``"jacobian"`` contracts gradients, one block of inputs at a time; gradients of linear layers, and of matrices
        that a function uses as ``x @ matrix``, are kept as outer products. ``"products"`` (JAX, full) computes a
        vector-Jacobian and then a Jacobian-vector product for each output, which saves a factor of the number of
        outputs where a forward pass costs about as many operations as there are parameters. ``"auto"`` chooses by
        counting operations.
    dtype
        Recompute in this precision. The attribute ``precision`` states which was used.
    batch_size
        Number of inputs whose gradients are held at once; chosen by ``memory_limit`` if None.
    memory_limit
        Bytes that gradients may take at once; 2 GiB, or 60 % of the memory of an accelerator, if None.
    progress
        Whether to show a progress bar; by default on a terminal.
    output_field
        Which field holds the outputs of a model that returns several (a tuple, mapping or dataclass), by name or
        position. By default ``logits``, or the only array that can be outputs, which a loss cannot.
    """
    check_choice("outputs", outputs, get_args(Outputs))
    check_choice("method", method, get_args(Method))
    network = network_of(model, parameters, dtype, output_field)
    rows = check_inputs("inputs", inputs)
    columns = None if other_inputs is None else check_inputs("other_inputs", other_inputs)
    if columns is not None and columns.shape[1:] != rows.shape[1:]:
        shapes = f"{tuple(rows.shape[1:])} and {tuple(columns.shape[1:])}"
        raise ValueError(f"inputs and other_inputs must have the same shape, not {shapes}")
    width = network.outputs(rows[:1]).shape[1]
    blocks = _Blocks(network, rows, width, outputs, batch_size, memory_limit, progress)
    notes = {"precision": network.precision, "outputs": outputs, "parameters": network.size, "library": network.library}
    if landmarks is not None:
        if columns is not None or outputs == "full":
            raise ValueError("landmarks approximate a kernel of inputs with themselves, outputs='trace' or 'sum'")
        return _nystroem(blocks, rows, landmarks, key, notes)
    contraction = _contraction(network, rows, width, outputs, method)
    found = blocks.products(rows, columns) if contraction == "products" else blocks.jacobian(rows, columns)
    _check_finite(found, columns is None)
    dims = ("input", "output", "other_input", "other_output") if outputs == "full" else ("input", "other_input")
    attrs = {"long_name": "neural tangent kernel", "units": "1", "symbol": "Θ", "contraction": contraction, **notes}
    return xr.DataArray(found, dims=dims, name="ntk", attrs=attrs)


def feature_kernel(
    model: Any,
    inputs: Any = None,
    other_inputs: Any = None,
    *,
    parameters: Any = None,
    dtype: Literal["float32", "float64"] | None = None,
    batch_size: int = 256,
    progress: bool | None = None,
    output_field: Field | None = None,
) -> xr.DataArray:
    """The kernel of features, ``K(x, x') = Phi(x)^T Phi(x')`` (layerwise, the kernel of eq. 1.18).

    A kernel of n inputs is n x n. Where that is too large, pass features to :func:`cka`, :func:`kernel_alignment` and
    :func:`spectrum`, which never form it.

    Parameters
    ----------
    model
        A network whose outputs are the features, in any of the forms of :func:`ntk`; or the array of features itself,
        one row per input, and then without ``inputs``.
    inputs, other_inputs
        The inputs x and x'; x' = x if ``other_inputs`` is not given. Given features, ``other_inputs`` are features too.
    batch_size
        Number of inputs that are evaluated at once.
    parameters, dtype, progress, output_field
        As in :func:`ntk`.
    """
    if inputs is None:
        if callable(model):
            raise ValueError("a network needs inputs to have features: pass inputs=..., or the array of features")
        precision = rounding_of(model).name if dtype is None else dtype
        left, right = (None if one is None else _feature_array(one, dtype) for one in (model, other_inputs))
    else:
        network = network_of(model, parameters, dtype, output_field)
        precision, size = network.precision, check_count("batch_size", batch_size)
        left = _features(network, check_inputs("inputs", inputs), size, progress)
        right = None
        if other_inputs is not None:
            right = _features(network, check_inputs("other_inputs", other_inputs), size, progress)
    assert left is not None
    right = left if right is None else right
    if left.shape[1] != right.shape[1]:
        raise ValueError(f"features must have the same length, not {left.shape[1]} and {right.shape[1]}")
    found = left @ right.T
    _check_finite(found, right is left)
    attrs = {"long_name": "feature kernel", "units": "1", "symbol": "K", "precision": precision}
    return xr.DataArray(found, dims=("input", "other_input"), name="feature_kernel", attrs=attrs)


class _Blocks:
    """Computes a kernel block by block: a large block of rows is held while small blocks of columns pass by.

    Gradients of a column are computed once for each block of rows, and only up to the diagonal of a symmetric kernel.
    If the gradients of one input are too many, outputs are taken in groups as well.
    """

    def __init__(
        self,
        network: Network,
        rows: Any,
        width: int,
        outputs: str,
        batch_size: int | None,
        memory_limit: float | None,
        progress: bool | None,
    ) -> None:
        self.network, self.full, self.progress = network, outputs == "full", progress
        self.weights = np.ones((1, width)) if outputs == "sum" else np.eye(width)
        gradient_bytes = max(4, jnp.finfo(network.precision).bits // 8) * network.gradient_size(rows)
        gradients = chosen_limit(memory_limit) / gradient_bytes
        self.group = int(np.clip(gradients // 4, 1, len(self.weights)))
        self.rows = int(np.clip(0.6 * gradients // self.group, 1, _LARGEST_BLOCK))
        if batch_size is not None:
            self.rows = check_count("batch_size", batch_size)
        self.columns = max(1, self.rows // 4)

    def jacobian(self, rows: Any, columns: Any) -> np.ndarray:
        symmetric = columns is None
        others = rows if symmetric else columns
        shape = (len(rows), len(self.weights), len(others), len(self.weights))
        found = np.zeros(shape if self.full else (len(rows), len(others)))
        groups = slices(len(self.weights), self.group)
        with progress_bar("tangent kernel", len(rows) * len(groups) ** (1 + self.full), self.progress) as advance:
            for row in slices(len(rows), self.rows):
                for group in groups:
                    held = self.network.gradients(rows[row], self.weights[group])
                    for other_group in groups if self.full else [group]:
                        for column, passing in self._column_blocks(held, row, group, other_group, others, symmetric):
                            part = self.network.contract(held, passing, self.full)
                            if self.full:
                                found[row, group, column, other_group] = part
                            else:
                                found[row, column] += part
                        advance(row.stop - row.start)
        return _mirror(found) if symmetric else found

    def _column_blocks(
        self, held: list[Any], row: slice, group: slice, other_group: slice, others: Any, symmetric: bool
    ) -> Iterator[tuple[slice, list[Any]]]:
        """Gradients of the columns for a block of rows; those that are held already are not computed again."""
        available = symmetric and other_group == group
        last = row.start if available else row.stop if symmetric else len(others)
        for column in slices(last, self.columns):
            yield column, self.network.gradients(others[column], self.weights[other_group])
        if available:
            yield row, held

    def products(self, rows: Any, columns: Any) -> np.ndarray:
        others = rows if columns is None else columns
        width = len(self.weights)
        found = np.zeros((len(rows), width, len(others), width))
        with progress_bar("tangent kernel", len(others) * width, self.progress) as advance:
            # A direction has a tangent at every layer of every row, which takes about as much memory as a gradient.
            for column in slices(len(others), max(1, self.rows // min(len(rows), self.rows))):
                for group in slices(width, self.group):
                    for row in slices(len(rows), self.rows):
                        part = self.network.columns(  # type: ignore[attr-defined]
                            rows[row], others[column], self.weights[group]
                        )
                        found[row, :, column, group] = part
                    advance((column.stop - column.start) * (group.stop - group.start))
        return found

    def diagonal(self, rows: Any) -> np.ndarray:
        found = np.zeros(len(rows))
        for row in slices(len(rows), self.rows):
            for group in slices(len(self.weights), self.group):
                found[row] += self.network.squared_norms(self.network.gradients(rows[row], self.weights[group]))
        return found


def _contraction(network: Network, rows: Any, width: int, outputs: str, method: str) -> str:
    """The cheaper method: for each pair of inputs, gradients cost ``2 C^2 P`` operations, products ``3 C F``."""
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


def _nystroem(blocks: _Blocks, rows: Any, landmarks: int, key: int, notes: dict[str, Any]) -> xr.DataArray:
    """``F = K_nm K_mm^(-1/2)`` on the directions of ``K_mm`` that are above rounding."""
    if isinstance(landmarks, bool) or int(landmarks) != landmarks or not 1 <= landmarks <= len(rows):
        raise ValueError(f"landmarks must be a whole number from 1 to the {len(rows)} inputs, not {landmarks!r}")
    chosen = np.sort(np.random.default_rng(key).choice(len(rows), int(landmarks), replace=False))
    columns, diagonal = blocks.jacobian(rows, rows[chosen]), blocks.diagonal(rows)
    _check_finite(columns, False)
    core = columns[chosen]
    eigenvalues, directions = np.linalg.eigh((core + core.T) / 2)
    epsilon = float(jnp.finfo(blocks.network.precision).eps)
    kept = eigenvalues > len(rows) * epsilon * eigenvalues.max(initial=0.0)
    if not kept.any():
        raise ValueError("the kernel vanishes at all landmarks: choose others with key, or more")
    factor = columns @ (directions[:, kept] / np.sqrt(eigenvalues[kept]))[:, ::-1]
    attrs = {
        "long_name": "Nyström factor of the neural tangent kernel",
        "units": "1",
        "symbol": "F",
        "contraction": "jacobian",
        **notes,
        "landmarks": int(landmarks),
        # Rounding can leave a tiny negative number where the landmarks determine the whole kernel.
        "trace_error": max(0.0, float(1 - np.sum(factor**2) / diagonal.sum())),
    }
    return xr.DataArray(factor, dims=("input", "component"), name="ntk_factor", attrs=attrs)


def _features(network: Network, inputs: Any, batch_size: int, progress: bool | None) -> np.ndarray:
    parts = []
    with progress_bar("features", len(inputs), progress) as advance:
        for rows in slices(len(inputs), batch_size):
            parts.append(network.outputs(inputs[rows]))
            advance(rows.stop - rows.start)
    return np.concatenate(parts)


def _feature_array(features: Any, dtype: str | None) -> np.ndarray:
    """Features as rows, in a type in which products can be summed: half precision is too coarse."""
    array = check_real(to_numpy(features), "features")
    if dtype is None and array.dtype.itemsize < 4:
        dtype = "float32"
    array = array if dtype is None else array.astype(dtype)
    if array.ndim == 0 or not array.size:
        raise ValueError(f"features must have one row per input, not shape {array.shape}")
    return array.reshape(len(array), -1)


def _mirror(kernel: np.ndarray) -> np.ndarray:
    """Fill the upper triangle of a symmetric kernel from the lower one."""
    flat = kernel.reshape(kernel.shape[0] * (kernel.shape[1] if kernel.ndim == 4 else 1), -1)
    return (np.tril(flat) + np.tril(flat, -1).T).reshape(kernel.shape)


def _check_finite(kernel: np.ndarray, symmetric: bool) -> None:
    if np.isfinite(kernel).all():
        return
    axes = tuple(range(1, kernel.ndim))
    rows = ~np.isfinite(kernel).any(axis=axes) if symmetric else ~np.isfinite(kernel).all(axis=axes)
    first = int(np.argmax(rows)) if rows.any() else int(np.argmax(~np.isfinite(kernel).all(axis=axes)))
    raise ValueError(
        f"the kernel is not finite from input {first} on: look for NaN or overflow in inputs and parameters"
    )
