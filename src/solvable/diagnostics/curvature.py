"""Gradients, and products of the Hessian and the Gauss-Newton matrix of a training loss with vectors, batch by batch.

The loss is ``L = sum_b l_b / sum_b n_b`` over batches b, with the sum ``l_b`` of the losses of ``n_b`` samples. With
outputs f and their Jacobian J, the Hessian is ``H = J^T H_f J + sum_c (dL/df_c) d^2 f_c``; the first term, with the
Hessian ``H_f`` of the loss in the outputs, is the Gauss-Newton matrix.

Here for JAX; :mod:`solvable.diagnostics._torch_curvature` has the same for PyTorch.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.diagnostics.batches import as_batches
from solvable.diagnostics.losses import LossName, checked_values, sample_loss
from solvable.diagnostics.outputs import Field, find_outputs
from solvable.diagnostics.precision import holds_float64, in_float64_if
from solvable.numerics.determinism import jit

PyTree = Any
Kind = Literal["hessian", "gauss-newton"]
Loss = LossName | Callable[[Any, Any], Any]
# The label that losses in PyTorch and Hugging Face ignore: padded tokens.
IGNORED = -100
NAMES = ("mse", "half-mse", "cross-entropy")
# Upper bounds of the operations of a product in those of a gradient, where layers multiply inputs and weights. The
# derivative of such a layer has two terms: along a direction it costs two multiplications, and so does each of the
# layer's two products in reverse mode. A gradient is 1 + 2 multiplications; a Hessian product adds 2 + 4 to them, and a
# Gauss-Newton product is 1 + 2 + 2 of them with the derivative along a direction by forward mode.
FORWARD = {"hessian": 3.0, "gauss-newton": 2.0}
REVERSE = {"hessian": 3.0, "gauss-newton": 3.0}


class NoSecondDerivativeError(ValueError):
    """The library cannot differentiate the gradient of this loss."""


class Curvature(Protocol):
    """The training loss of a network at given parameters, as a sum over batches that are read anew in every pass."""

    names: tuple[str, ...]
    size: int
    precision: str
    converted_from: str
    library: str
    dtype: np.dtype
    loss_name: str

    @property
    def costs(self) -> Mapping[str, float]:
        """What a product costs, in gradients of the same data."""

    def gradient(self) -> Iterator[tuple[float, float, np.ndarray]]:
        """For each batch: the number of samples, the sum of their losses, and its gradient."""

    def product(self, kind: Kind, vector: np.ndarray) -> Iterator[np.ndarray]:
        """For each batch: the product of the Hessian or the Gauss-Newton matrix of its summed loss with a vector."""

    def flatten(self, tree: Any) -> np.ndarray:
        """Arrays like the parameters as one vector."""


def check_loss(loss: Any) -> None:
    """Raise a ValueError unless this is a loss by name, a function, or None."""
    if loss is None or callable(loss) or loss in NAMES:
        return
    raise ValueError(f"loss must be one of {', '.join(NAMES)}, or a function of outputs and targets, not {loss!r}")


def chosen_loss(loss: Any, integers: bool) -> Any:
    """The loss, by default cross-entropy for class labels; for real targets it has to be named."""
    if loss is not None:
        return loss
    if integers:
        return "cross-entropy"
    raise ValueError(
        "targets are real numbers, for which losses differ by factors: give loss='mse' (mean square over samples and "
        "outputs, as torch.nn.MSELoss), 'half-mse' (half the sum over outputs) or your function of outputs and targets"
    )


def name_of(loss: Any) -> str:
    """What a loss is called in reports."""
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def check_sums(loss: Any) -> None:
    """Raise a ValueError for a loss that is a sum over the samples of a batch, not their mean."""
    if getattr(loss, "reduction", "mean") == "sum":
        raise ValueError(
            f"{name_of(loss)} sums over the samples of a batch: give the mean, reduction='mean' (curvatures of the sum "
            "are larger by the batch size)"
        )


def check_labels(labels: np.ndarray, classes: int) -> None:
    """Raise a ValueError unless these are class numbers from 0, or ignored."""
    kept = labels[labels != IGNORED]
    if kept.size and (kept.min() < 0 or kept.max() >= classes):
        wrong = kept.min() if kept.min() < 0 else kept.max()
        raise ValueError(
            f"label {wrong} is none of the {classes} classes that the outputs have: number classes from 0 to "
            f"{classes - 1}, and mark ignored ones by {IGNORED}"
        )


def check_shapes(loss: str, outputs: tuple[int, ...], targets: tuple[int, ...], integers: bool) -> None:
    """Raise a ValueError if targets of this shape do not fit the outputs."""
    remedy = "give one target for each output"
    if loss == "cross-entropy":
        if len(outputs) > 1 and targets in ((outputs[:-1], (*outputs[:-1], 1)) if integers else (outputs,)):
            return
        remedy = "give class numbers (samples,) or rows of probabilities like the outputs (samples, classes)"
    elif math.prod(outputs) == math.prod(targets) and outputs[:1] == targets[:1]:
        return
    elif integers:
        remedy = "give one-hot rows, or loss='cross-entropy' for class numbers"
    raise ValueError(f"loss={loss!r}: the outputs have shape {outputs} and the targets {targets}; {remedy}")


def data_passes(data: Any, convert: Callable[..., tuple[Any, ...]] = lambda *rows: rows) -> Callable[[], Iterator[Any]]:
    """A function that reads all batches anew."""
    batches = as_batches(data, "training data", convert)
    if isinstance(batches, Iterator):
        raise ValueError(
            "the training data are read several times: give a list or a loader, not an iterator that runs out"
        )
    return lambda: iter(batches)


class JaxCurvature:
    """The loss of a JAX function ``apply(parameters, inputs)`` of a batch."""

    library = "jax"

    def __init__(
        self,
        apply: Callable[[PyTree, Any], Any],
        parameters: PyTree,
        data: Any,
        loss: Any,
        dtype: str | None,
        trainable: Any,
        output_field: Field | None,
    ) -> None:
        check_loss(loss)
        check_sums(loss)
        self._passes, self._loss = data_passes(data), loss
        trained, rest = eqx.partition(parameters, eqx.is_inexact_array if trainable is None else trainable)
        frozen, rest = eqx.partition(rest, eqx.is_inexact_array)
        not_real = [leaf for leaf in jax.tree.leaves(trained) if not eqx.is_inexact_array(leaf)]
        if not_real:
            raise ValueError(f"trainable chooses {type(not_real[0]).__name__}, not arrays of floats: choose others")
        if not jax.tree.leaves(trained):
            raise ValueError("the model has no trainable parameters: a Hessian needs arrays of floats")
        if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(trained)):
            raise ValueError("complex parameters have no real Hessian: give their real and imaginary parts")
        with in_float64_if(dtype == "float64" or (dtype is None and holds_float64(trained))):
            given = str(jnp.result_type(*jax.tree.leaves(trained)))
            self.precision = dtype or ("float32" if given in ("float16", "bfloat16") else given)
            trained, frozen = (
                jax.tree.map(lambda leaf: jnp.asarray(leaf, self.precision), t) for t in (trained, frozen)
            )
        self.converted_from = given if given in ("float16", "bfloat16") else ""
        leaves = jax.tree_util.tree_leaves_with_path(trained)
        self.names = tuple(jax.tree_util.keystr(path).lstrip(".") or "parameters" for path, _ in leaves)
        self.size = sum(leaf.size for _, leaf in leaves)
        self.dtype = np.dtype(self.precision)
        self.loss_name = "" if loss is None else name_of(loss)
        self._trained = trained
        self._batch_loss: _BatchLoss | None = None
        self._call = apply, eqx.combine(frozen, rest), output_field
        self._forward = True

    @property
    def costs(self) -> Mapping[str, float]:
        return FORWARD if self._forward else REVERSE

    def _batches(self) -> Iterator[tuple["_BatchLoss", Any, Array]]:
        number = 0
        for number, batch in enumerate(self._passes(), start=1):
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                length = f" of {len(batch)}" if isinstance(batch, tuple | list) else ""
                raise ValueError(
                    f"batch {number} must be a pair (inputs, targets), not {type(batch).__name__}{length}: the loss "
                    "needs targets"
                )
            with in_float64_if(self.precision == "float64"):
                inputs = jax.tree.map(self._cast, batch[0])
                targets = self._cast(batch[1])
                if self._batch_loss is None:
                    loss = chosen_loss(self._loss, bool(jnp.issubdtype(targets.dtype, jnp.integer)))
                    self.loss_name = name_of(loss)
                    self._batch_loss = _BatchLoss(self._call[0], self._call[1], loss, self._call[2])
            yield self._batch_loss, inputs, targets
        if not number:
            raise ValueError("the training data are empty: no batch was given")

    def _cast(self, values: Any) -> Array:
        values = jnp.asarray(values)
        return values.astype(self.precision) if jnp.issubdtype(values.dtype, jnp.inexact) else values

    def gradient(self) -> Iterator[tuple[float, float, np.ndarray]]:
        for batch_loss, inputs, targets in self._batches():
            with in_float64_if(self.precision == "float64"):
                total, count, slope = _gradient(batch_loss, self._trained, inputs, targets)
                found = float(count), float(total), np.asarray(slope)
                batch_loss.check_labels(self._trained, inputs, targets)
            yield found

    def product(self, kind: Kind, vector: np.ndarray) -> Iterator[np.ndarray]:
        for batch_loss, inputs, targets in self._batches():
            with in_float64_if(self.precision == "float64"):
                found = np.asarray(self._one_product(kind, batch_loss, inputs, targets, jnp.asarray(vector)))
            yield found

    def _one_product(self, kind: Kind, batch_loss: "_BatchLoss", inputs: Any, targets: Array, vector: Array) -> Array:
        if self._forward:
            try:
                return _product(kind, True, batch_loss, self._trained, inputs, targets, vector)
            except (TypeError, NotImplementedError) as error:
                if "custom_vjp" not in str(error) and "forward-mode" not in str(error):
                    raise no_second_derivative(error) from error
                self._forward = False
        try:
            return _product(kind, False, batch_loss, self._trained, inputs, targets, vector)
        except (TypeError, NotImplementedError) as error:
            raise no_second_derivative(error) from error

    def flatten(self, tree: Any) -> np.ndarray:
        found = jax.tree.leaves(tree)
        shapes = [tuple(np.shape(leaf)) for leaf in found]
        expected = [tuple(leaf.shape) for leaf in jax.tree.leaves(self._trained)]
        if shapes != expected:
            raise ValueError(
                f"the scale of the optimizer has arrays of the shapes {shapes} and the trained parameters {expected}: "
                "give a PyTree like the parameters"
            )
        return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in found])


def no_second_derivative(error: Exception) -> NoSecondDerivativeError:
    """The error of a library, in one line with a remedy."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return NoSecondDerivativeError(
        f"the loss has no second derivative that can be computed ({lines[0][:160]}): use functions whose derivatives "
        "are differentiable in place of custom ones"
    )


class _BatchLoss(eqx.Module):
    """The summed loss of a batch as a function of the trained parameters, in two steps."""

    apply: Callable[[PyTree, Any], Any] = eqx.field(static=True)
    rest: PyTree
    loss: Any = eqx.field(static=True)
    output_field: Field | None = eqx.field(static=True, default=None)

    def outputs(self, trained: PyTree, inputs: Any) -> Array:
        samples = jax.tree.leaves(inputs)[0].shape[0]
        # By default, accelerators round factors of products to ten bits.
        with jax.default_matmul_precision("highest"):
            returned = self.apply(eqx.combine(trained, self.rest), inputs)
            return find_outputs(returned, self.output_field, samples=samples)[0]

    def check_labels(self, trained: PyTree, inputs: Any, targets: Array) -> None:
        """Raise a ValueError if targets are whole numbers that are no classes. JAX takes them for others."""
        if self.loss == "cross-entropy" and jnp.issubdtype(targets.dtype, jnp.integer):
            check_labels(np.asarray(targets), eqx.filter_eval_shape(self.outputs, trained, inputs).shape[-1])

    def total(self, outputs: Array, targets: Array) -> tuple[Array, Array]:
        """The sum over samples, and their number."""
        with jax.default_matmul_precision("highest"):
            if isinstance(self.loss, str):
                return _named(self.loss, outputs, targets)
            samples = targets.shape[0] if targets.ndim else 1
            try:
                found = jnp.asarray(checked_values(self.loss(outputs, targets), samples))
            except jax.errors.TracerArrayConversionError:
                raise ValueError("loss must be made of functions of jax.numpy: NumPy has no derivatives") from None
        if not jnp.issubdtype(found.dtype, jnp.floating):
            raise ValueError(
                f"loss must return real numbers that have derivatives, not {found.dtype}: look for argmax in it"
            )
        if found.ndim == 0:
            return found * samples, jnp.asarray(float(samples))
        return jnp.sum(jnp.mean(found.reshape(samples, -1), axis=1)), jnp.asarray(float(samples))


def _named(loss: Any, outputs: Array, targets: Array) -> tuple[Array, Array]:
    integers = bool(jnp.issubdtype(targets.dtype, jnp.integer))
    check_shapes(loss, outputs.shape, targets.shape, integers)
    if loss == "cross-entropy":
        rows = outputs.reshape(-1, outputs.shape[-1])
        if not integers:
            return jnp.sum(sample_loss(loss)(rows, targets.reshape(rows.shape))), jnp.asarray(float(len(rows)))
        labels = targets.reshape(-1)
        kept = labels != IGNORED
        each = sample_loss(loss)(rows, jnp.where(kept, labels, 0))
        return jnp.sum(jnp.where(kept, each, 0)), jnp.sum(kept).astype(float)
    rows = outputs.reshape(outputs.shape[0], -1)
    return jnp.sum(sample_loss(loss)(rows, targets.reshape(rows.shape))), jnp.asarray(float(len(rows)))


def _flat(tree: PyTree) -> Array:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


def _like(tree: PyTree, vector: Array) -> PyTree:
    leaves, structure = jax.tree.flatten(tree)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1].tolist()
    parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(vector, ends), leaves, strict=True)]
    return jax.tree.unflatten(structure, parts)


@jit
def _gradient(batch_loss: _BatchLoss, trained: PyTree, inputs: Any, targets: Array) -> tuple[Array, Array, Array]:
    def run(own: PyTree) -> tuple[Array, Array]:
        return batch_loss.total(batch_loss.outputs(own, inputs), targets)

    (total, count), slope = jax.value_and_grad(run, has_aux=True)(trained)
    return total, count, _flat(slope)


@jit
def _product(
    kind: Kind, forward: bool, batch_loss: _BatchLoss, trained: PyTree, inputs: Any, targets: Array, vector: Array
) -> Array:
    direction = _like(trained, vector)

    def outputs(own: PyTree) -> Array:
        return batch_loss.outputs(own, inputs)

    def loss(found: Array) -> Array:
        return batch_loss.total(found, targets)[0]

    if kind == "hessian":
        return _flat(_derivative(jax.grad(lambda own: loss(outputs(own))), trained, direction, forward, symmetric=True))
    found = outputs(trained)
    along = _derivative(outputs, trained, direction, forward)
    return _flat(jax.vjp(outputs, trained)[1](_derivative(jax.grad(loss), found, along, forward, symmetric=True))[0])


def _derivative(
    function: Callable[[Any], Any], at: PyTree, along: PyTree, forward: bool, symmetric: bool = False
) -> PyTree:
    """The derivative of a function along a direction, by forward mode or by reverse mode alone."""
    if forward:
        return jax.jvp(function, (at,), (along,))[1]
    value, pullback = jax.vjp(function, at)
    if symmetric:
        return pullback(along)[0]
    # The pullback is linear, so its own pullback is the pushforward.
    return jax.vjp(lambda weights: pullback(weights)[0], jnp.zeros_like(value))[1](along)[0]
