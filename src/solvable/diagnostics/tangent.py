"""A network in JAX, Equinox or PyTorch as a function of its trainable parameters: outputs, gradients, tangents."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.diagnostics import matrix_products
from solvable.diagnostics.batches import SeveralInputs, several
from solvable.diagnostics.linear_layers import (
    NotAnOuterProductError,
    OuterProducts,
    candidates,
    factors_of,
    inner_products,
    linear_layers,
    on_host,
    separate,
    squared_norms,
    tapped,
    worthwhile,
)
from solvable.diagnostics.outputs import Field, find_outputs, only_row
from solvable.diagnostics.precision import holds_float64, in_float64_if
from solvable.numerics.determinism import jit

PyTree = Any
Precision = str | None
P = ParamSpec("P")
R = TypeVar("R")


class Network(Protocol):
    """A network at given parameters. Inputs are evaluated one by one: the outputs of one must not depend on another."""

    names: tuple[str, ...]
    size: int
    precision: str
    library: str

    def outputs(self, inputs: Any) -> np.ndarray:
        """The outputs of the network, as (inputs, outputs)."""

    def gradients(self, inputs: Any, weights: np.ndarray) -> list[Any]:
        """Gradients of weighted sums of the outputs: arrays (inputs, weights, entries), or outer products."""

    def gradient_size(self, inputs: Any) -> int:
        """How many numbers :meth:`gradients` returns for one input and one weighted sum."""

    def contract(self, left: Sequence[Any], right: Sequence[Any], pairs: bool) -> np.ndarray:
        """Inner products of gradients: (inputs, inputs) summed over weights, or with ``pairs`` all four axes."""

    def squared_norms(self, gradients: Sequence[Any]) -> np.ndarray:
        """The squared gradient of each input, summed over weights and parameters."""

    def tangent(self, inputs: Any, direction: Sequence[np.ndarray]) -> np.ndarray:
        """The derivative of the outputs along a direction in parameter space, as (inputs, outputs)."""

    def arrays(self) -> list[np.ndarray]:
        """The trainable parameters, in the order of ``names``."""


def network_of(
    model: Any, parameters: Any = None, dtype: Precision = None, output_field: Field | None = None
) -> "Network":
    """Wrap a model as a :class:`Network`.

    ``model`` is a JAX function ``apply(parameters, inputs)`` of a batch, an Equinox module of a single input, or a
    torch module of a batch, where a compiled one is unwrapped. Several inputs are a tuple or a mapping of arrays, which
    modules take as positional arguments or keywords, and functions as they are. Modules contain their parameters, which
    ``parameters`` (a module like it, or a state dict) replaces. Modules run in inference mode, without dropout.
    Trainable are inexact arrays in JAX, and parameters that require a gradient in PyTorch. Where the model returns
    several fields, ``output_field`` chooses the one with the outputs; by default
    :func:`solvable.diagnostics.outputs.find_outputs` finds it.
    """
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype must be 'float32', 'float64' or None (as the parameters are), not {dtype!r}")
    if is_torch(model):
        from solvable.diagnostics._torch_tangent import TorchNetwork

        return TorchNetwork(model, parameters, dtype, output_field)
    if isinstance(model, eqx.Module):
        module = model if parameters is None else parameters
        if not isinstance(module, eqx.Module):
            raise ValueError(f"the parameters of an Equinox module are a module like it, not {type(module).__name__}")
        return JaxNetwork(call_module, eqx.nn.inference_mode(module), dtype, batched=False, output_field=output_field)
    if not callable(model):
        raise ValueError(
            f"model must be a function apply(parameters, inputs), an Equinox module or a torch module, not "
            f"{shown(model)}"
        )
    if parameters is None:
        raise ValueError("a function apply(parameters, inputs) needs its parameters: pass parameters=...")
    return JaxNetwork(model, parameters, dtype, batched=True, output_field=output_field)


def shown(value: Any) -> str:
    """A value for an error message: plain ones in full, others by their type, because networks print on many lines."""
    return repr(value) if value is None or isinstance(value, str | int | float) else type(value).__name__


def is_torch(model: Any) -> bool:
    """Whether a model is a torch module, without importing torch."""
    return any(
        base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module" for base in type(model).__mro__
    )


def call_module(module: Any, x: Any) -> Any:
    """A module of one sample: several inputs are positional arguments or keywords."""
    try:
        if isinstance(x, dict):
            return module(**x)
        return module(*x) if isinstance(x, tuple) else module(x)
    except TypeError as error:
        raise more_arguments(module, error) from error


def more_arguments(module: Any, error: TypeError) -> TypeError:
    """The error of a call that lacked an argument, such as the state of batch normalisation, with a remedy."""
    words = str(error)
    if "required positional argument" not in words and "required keyword" not in words:
        return error
    return TypeError(
        f"{words}: give a function of {type(module).__name__} and a batch of inputs that adds it, as apply= to "
        "diagnose and trackers, and elsewhere in place of the module, with parameters=module"
    )


def _in_own_precision(method: Callable[Concatenate["JaxNetwork", P], R]) -> Callable[Concatenate["JaxNetwork", P], R]:
    """Decorator: run a method with JAX in float64 if the network computes in float64, and otherwise as JAX is."""

    @functools.wraps(method)
    def call(self: "JaxNetwork", *arguments: P.args, **options: P.kwargs) -> R:
        with in_float64_if(self.precision == "float64"):
            return method(self, *arguments, **options)

    return call


class JaxNetwork:
    """A function of a PyTree of parameters and of a batch, or (not ``batched``) of a single input.

    It runs in the precision of the program that it comes from: see :mod:`solvable.diagnostics.precision`.
    """

    library = "jax"

    def __init__(
        self,
        apply: Callable[[PyTree, Any], Any],
        parameters: PyTree,
        dtype: Precision,
        batched: bool,
        output_field: Field | None = None,
    ) -> None:
        trained, rest = eqx.partition(parameters, eqx.is_inexact_array)
        with in_float64_if(dtype == "float64" or (dtype is None and holds_float64(trained))):
            trained = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), trained)
            self.precision = str(jnp.result_type(*jax.tree.leaves(trained))) if jax.tree.leaves(trained) else ""
        leaves = jax.tree_util.tree_leaves_with_path(trained)
        self.names = tuple(jax.tree_util.keystr(path).lstrip(".") or "parameters" for path, _ in leaves)
        if not leaves:
            raise ValueError("the model has no trainable parameters: a tangent kernel needs arrays of floats")
        if any(jnp.iscomplexobj(leaf) for _, leaf in leaves):
            raise ValueError("complex parameters have no real tangent kernel: give their real and imaginary parts")
        self.size = sum(leaf.size for _, leaf in leaves)
        self._trained = trained
        self._single = _OneInput(apply, rest, batched, output_field)
        # Positions of the linear layers whose gradients are outer products, and their constant factors.
        self._products: tuple[tuple[int, ...], np.ndarray] | None = None
        # BLAS multiplies large matrices on a CPU several times faster than XLA, and reads the same memory.
        self._on_host = all(device.platform == "cpu" for _, leaf in leaves for device in leaf.devices())

    @_in_own_precision
    def outputs(self, inputs: Any) -> np.ndarray:
        return np.asarray(_outputs(self._single, self._trained, self._cast(inputs)))

    @_in_own_precision
    def gradients(self, inputs: Any, weights: np.ndarray) -> list[Any]:
        rows = self._cast(inputs)
        return _gradients(self._single, self._trained, *self._outer_products(rows), rows, jnp.asarray(weights))

    @_in_own_precision
    def gradient_size(self, inputs: Any) -> int:
        positions, _ = self._outer_products(self._cast(inputs[:2]))
        if self._single.batched:
            found = [jax.tree.leaves(self._trained)[position] for position in positions]
            return self.size - sum(leaf.size for leaf in found) + sum(sum(leaf.shape) for leaf in found)
        layers = [linear_layers(self._trained)[position] for position in positions]
        inside = sum(leaf.size for leaf in jax.tree.leaves(layers))
        return self.size - inside + sum(sum(layer.weight.shape) + 1 for layer in layers)

    def _outer_products(self, rows: jax.Array) -> tuple[tuple[int, ...], np.ndarray]:
        if self._products is None:
            self._products = (), np.ones((0, 2))
            if worthwhile(self.size):
                self._products = _find_outer_products(
                    self._single, self._trained, jax.tree.map(lambda array: array[:2], rows)
                )
        return self._products

    @_in_own_precision
    def contract(self, left: Sequence[Any], right: Sequence[Any], pairs: bool) -> np.ndarray:
        if self._on_host:
            left, right = ([on_host(part) for part in parts] for parts in (left, right))
        with jax.default_matmul_precision("highest"):
            return np.asarray(inner_products(left, right, pairs))

    @_in_own_precision
    def squared_norms(self, gradients: Sequence[Any]) -> np.ndarray:
        return np.asarray(squared_norms(gradients))

    @_in_own_precision
    def tangent(self, inputs: Any, direction: Sequence[np.ndarray]) -> np.ndarray:
        leaves, tree = jax.tree.flatten(self._trained)
        parts = [
            jnp.asarray(part, leaf.dtype).reshape(leaf.shape) for part, leaf in zip(direction, leaves, strict=True)
        ]
        return np.asarray(_tangent(self._single, self._trained, self._cast(inputs), jax.tree.unflatten(tree, parts)))

    @_in_own_precision
    def columns(self, rows: Any, inputs: Any, weights: np.ndarray) -> np.ndarray:
        """The kernel between all outputs of ``rows`` and the weighted outputs of ``inputs``, all four axes."""
        found = _columns(self._single, self._trained, self._cast(rows), self._cast(inputs), jnp.asarray(weights))
        return np.asarray(jnp.transpose(found, (2, 3, 0, 1)))

    @_in_own_precision
    def forward_work(self, inputs: Any) -> float | None:
        """Floating-point operations of a forward pass for one input, as the compiler counts them; None if unknown."""
        compiled = jax.jit(lambda trained, x: self._single(trained, x)).lower(
            self._trained, jax.tree.map(lambda array: array[0], self._cast(inputs))
        )
        counted = compiled.compile().cost_analysis()
        flops = counted.get("flops") if isinstance(counted, Mapping) else None
        return float(flops) if flops and flops > 0 else None

    def arrays(self) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self._trained)]

    def _cast(self, inputs: Any) -> Any:
        """Inputs in the precision of the parameters, unless they are integers, such as tokens."""
        if isinstance(inputs, SeveralInputs):
            return inputs.map(self._cast)
        inputs = jnp.asarray(inputs)
        return inputs.astype(self.precision) if jnp.issubdtype(inputs.dtype, jnp.inexact) else inputs


class _OneInput(eqx.Module):
    """The outputs for one input as a function of the trained parameters; equal ones share compiled functions."""

    apply: Callable[[PyTree, Any], Any] = eqx.field(static=True)
    rest: PyTree
    batched: bool = eqx.field(static=True)
    output_field: Field | None = eqx.field(static=True, default=None)

    def __call__(self, trained: PyTree, x: jax.Array) -> jax.Array:
        return self.outputs(eqx.combine(trained, self.rest), x)

    def outputs(self, parameters: PyTree, x: jax.Array) -> jax.Array:
        # For products, and through them for derivatives: by default, accelerators round factors to ten bits.
        with jax.default_matmul_precision("highest"):
            if not self.batched:
                return jnp.ravel(find_outputs(self.apply(parameters, x), self.output_field)[0])
            found, _ = find_outputs(
                self.apply(parameters, jax.tree.map(lambda array: array[None], x)), self.output_field, samples=1
            )
            return jnp.ravel(only_row(found))


@jit
def _outputs(single: _OneInput, trained: PyTree, inputs: jax.Array) -> jax.Array:
    return jax.vmap(lambda x: single(trained, x))(inputs)


@jit
def _tangent(single: _OneInput, trained: PyTree, inputs: jax.Array, direction: PyTree) -> jax.Array:
    return jax.jvp(lambda own: _outputs(single, own, inputs), (trained,), (direction,))[1]


@jit
def _gradients(
    single: _OneInput, trained: PyTree, positions: tuple[int, ...], factors: Any, inputs: jax.Array, weights: jax.Array
) -> list[Any]:
    """Arrays for parameters outside the layers, or matrices, at these positions, outer products for those inside."""
    offsets: list[Any]
    if single.batched:
        plain, inside = matrix_products.separate(trained, positions)
        held = [jax.tree.leaves(trained)[position] for position in positions]
        offsets = [jnp.zeros(matrix.shape[1], matrix.dtype) for matrix in held]
    else:
        plain, inside = separate(trained, positions)
        layers = [linear_layers(trained)[position] for position in positions]
        offsets = [jnp.zeros(layer.weight.shape[0], layer.weight.dtype) for layer in layers]

    def gradients(x: jax.Array) -> list[Any]:
        def run(own: PyTree, taps: list[Any]) -> tuple[jax.Array, list[Any]]:
            if single.batched:
                whole = eqx.combine(own, inside)
                return matrix_products.tapped(lambda tree: single.outputs(tree, x), whole, single.rest, positions, taps)
            module = eqx.combine(own, inside, single.rest)
            return tapped(lambda tree: single.outputs(tree, x), module, positions, taps, factors)

        values, pullback, below = jax.vjp(run, plain, offsets, has_aux=True)
        found, slopes = jax.vmap(pullback)(weights.astype(values.dtype))
        arrays = [jnp.reshape(_widened(leaf), (weights.shape[0], -1)) for leaf in jax.tree.leaves(found)]
        return [*arrays, *(OuterProducts(_widened(a), _widened(b)) for a, b in zip(slopes, below, strict=True))]

    return jax.vmap(gradients)(inputs)


def _widened(leaf: jax.Array) -> jax.Array:
    """At least float32: half precision is too coarse for sums."""
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def _find_outer_products(single: _OneInput, trained: PyTree, rows: jax.Array) -> tuple[tuple[int, ...], np.ndarray]:
    """The linear layers whose gradients are outer products: those where both agree on two inputs."""
    none = (), np.ones((0, 2))
    if single.batched:
        return _find_matrix_products(single, trained, rows)
    positions = candidates(eqx.combine(trained, single.rest))
    if not positions:
        return none
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, _outputs(single, trained, rows).shape[1])))
    full = jax.tree.unflatten(jax.tree.structure(trained), _gradients(single, trained, *none, rows, weights))
    while positions:
        try:
            gradients = _gradients(single, trained, positions, np.ones((len(positions), 2)), rows, weights)
        except NotAnOuterProductError as error:
            positions = tuple(position for position in positions if position != error.layer)
            continue
        except jax.errors.UnexpectedTracerError:  # the layers run inside a transformation, on many positions
            return none
        found = {}
        for position, part in zip(positions, gradients[-len(positions) :], strict=True):
            layer, gradient = linear_layers(trained)[position], linear_layers(full)[position]
            parts = [gradient.weight.reshape(-1, *layer.weight.shape)]
            if layer.bias is not None:
                parts.append(gradient.bias.reshape(len(parts[0]), -1, 1))
            product = np.asarray(part.slopes[:, 0, :, None] * part.below[:, None])
            plain = type(layer) is eqx.nn.Linear
            factors = factors_of(np.concatenate(parts, axis=2), product, layer.bias is not None, plain)
            if factors is not None:
                found[position] = factors
        return tuple(found), np.array(list(found.values())).reshape(-1, 2)
    return none


def _find_matrix_products(single: _OneInput, trained: PyTree, rows: Any) -> tuple[tuple[int, ...], np.ndarray]:
    """The matrices of a function whose gradients are outer products: those where both agree on two inputs."""
    none = (), np.ones((0, 2))
    positions = matrix_products.matrices(trained)
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, _outputs(single, trained, rows).shape[1])))
    full = _gradients(single, trained, *none, rows, weights) if positions else []
    while positions:
        try:
            gradients = _gradients(single, trained, positions, np.ones((len(positions), 2)), rows, weights)
        except NotAnOuterProductError as error:
            positions = tuple(position for position in positions if position != error.layer)
            continue
        # A function that does something else with a matrix, or with all of them inside a transformation.
        except (TypeError, AttributeError, jax.errors.UnexpectedTracerError):
            return none
        found = []
        for position, part in zip(positions, gradients[-len(positions) :], strict=True):
            product = np.asarray(part.below[:, :, None] * part.slopes[:, 0, None])
            gradient = np.asarray(full[position]).reshape(product.shape)
            if factors_of(gradient, product, False, True) is not None:
                found.append(position)
        return tuple(found), np.ones((len(found), 2))
    return none


@jit
def _columns(single: _OneInput, trained: PyTree, rows: jax.Array, inputs: jax.Array, weights: jax.Array) -> jax.Array:
    """Columns of the kernel without a Jacobian of the rows: a pullback of each output, then a pushforward."""

    def column(x: jax.Array) -> jax.Array:
        values, pullback = jax.vjp(lambda own: single(own, x), trained)
        return jax.vmap(lambda w: _tangent(single, trained, rows, pullback(w)[0]))(weights.astype(values.dtype))

    return jax.vmap(column)(inputs)


def check_inputs(name: str, inputs: Any) -> Any:
    """An array with the inputs along its first axis, or several of them; torch tensors remain tensors."""
    if several(inputs):
        return SeveralInputs(inputs, name)
    if not hasattr(inputs, "shape"):
        inputs = np.asarray(inputs)
    if inputs.ndim == 0 or inputs.shape[0] == 0:
        raise ValueError(f"{name} must have at least one input along the first axis, not shape {tuple(inputs.shape)}")
    return inputs


def slices(count: int, size: int) -> list[slice]:
    """Consecutive slices of at most ``size``."""
    return [slice(begin, min(begin + size, count)) for begin in range(0, count, size)]
