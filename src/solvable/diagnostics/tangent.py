"""Anybody's network as a function of its trainable parameters: outputs, gradients, tangents. JAX, Equinox, PyTorch."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.diagnostics.linear_layers import (
    NotAnOuterProductError,
    OuterProducts,
    as_arrays,
    candidates,
    factors_of,
    inner_products,
    linear_layers,
    separate,
    squared_norms,
    tapped,
    worthwhile,
)
from solvable.diagnostics.outputs import Field, find_outputs, only_row
from solvable.diagnostics.users_precision import holds_float64, in_float64_if

PyTree = Any
Precision = str | None
P = ParamSpec("P")
R = TypeVar("R")


class Network(Protocol):
    """A network at given parameters. Each input is seen alone: none may change what another gives."""

    names: tuple[str, ...]
    size: int
    precision: str
    library: str

    def outputs(self, inputs: Any) -> np.ndarray:
        """What the network says of each input, as (inputs, outputs)."""

    def gradients(self, inputs: Any, weights: np.ndarray) -> list[Any]:
        """Of each weighted sum of the outputs: arrays (inputs, weights, entries) of parameters, or outer products."""

    def gradient_size(self, inputs: Any) -> int:
        """How many numbers the gradient of one output for one input takes, as :meth:`gradients` gives it."""

    def contract(self, left: Sequence[Any], right: Sequence[Any], pairs: bool) -> np.ndarray:
        """Inner products of gradients: (inputs, inputs) summed over weights, or with ``pairs`` all four axes."""

    def squared_norms(self, gradients: Sequence[Any]) -> np.ndarray:
        """Each input's squared gradient, summed over weights and parameters."""

    def tangent(self, inputs: Any, direction: Sequence[np.ndarray]) -> np.ndarray:
        """The derivative of the outputs along a direction in parameter space, as (inputs, outputs)."""

    def arrays(self) -> list[np.ndarray]:
        """The trainable parameters, in the order of ``names``."""


def network_of(
    model: Any, parameters: Any = None, dtype: Precision = None, output_field: Field | None = None
) -> "Network":
    """See ``model`` as a :class:`Network`.

    ``model`` is a JAX function ``apply(parameters, inputs)`` of a batch, an Equinox module of a single input, or a
    torch module of a batch; the modules bring their parameters along, and ``parameters`` (another module of that kind,
    or a state dict) replaces them. Modules are seen as they infer, without dropout. Trainable means: inexact arrays in
    JAX, what requires a gradient in torch. Where the model returns several fields, ``output_field`` chooses, or
    :func:`solvable.diagnostics.outputs.find_outputs` finds, the one with the outputs.
    """
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype must be 'float32', 'float64' or None (as the parameters are), not {dtype!r}")
    if is_torch(model):
        from solvable.diagnostics._torch_tangent import TorchNetwork

        return TorchNetwork(model, parameters, dtype, output_field)
    if isinstance(model, eqx.Module):
        own = model if parameters is None else parameters
        if not isinstance(own, eqx.Module):
            raise ValueError(f"the parameters of an Equinox module are a module like it, not {type(own).__name__}")
        return JaxNetwork(_call_module, eqx.nn.inference_mode(own), dtype, alone=True, output_field=output_field)
    if not callable(model):
        raise ValueError(
            f"model must be a function apply(parameters, inputs), an Equinox module or a torch module, not {model!r}"
        )
    if parameters is None:
        raise ValueError("a function apply(parameters, inputs) needs its parameters: pass parameters=...")
    return JaxNetwork(model, parameters, dtype, alone=False, output_field=output_field)


def is_torch(model: Any) -> bool:
    """Whether it is a torch module, without importing torch."""
    return any(
        base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module" for base in type(model).__mro__
    )


def _call_module(module: Any, one: jax.Array) -> jax.Array:
    return module(one)


def _in_own_precision(
    method: Callable[Concatenate["JaxNetwork", P], R],
) -> Callable[Concatenate["JaxNetwork", P], R]:
    """Decorator: run a method with JAX in float64 where the network computes in float64, and otherwise as JAX is."""

    @functools.wraps(method)
    def call(self: "JaxNetwork", *arguments: P.args, **options: P.kwargs) -> R:
        with in_float64_if(self.precision == "float64"):
            return method(self, *arguments, **options)

    return call


class JaxNetwork:
    """A function of a tree of parameters and a batch (``alone``: a single input).

    It runs in the precision of the program that it comes from: see :mod:`solvable.diagnostics.users_precision`.
    """

    library = "jax"

    def __init__(
        self,
        apply: Callable[[PyTree, Any], Any],
        parameters: PyTree,
        dtype: Precision,
        alone: bool,
        output_field: Field | None = None,
    ) -> None:
        trained, rest = eqx.partition(parameters, eqx.is_inexact_array)
        with in_float64_if(dtype == "float64" or (dtype is None and holds_float64(trained))):
            trained = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), trained)
            self.precision = str(jnp.result_type(*jax.tree.leaves(trained))) if jax.tree.leaves(trained) else ""
        leaves = jax.tree_util.tree_leaves_with_path(trained)
        self.names = tuple(jax.tree_util.keystr(path).lstrip(".") or "parameters" for path, _ in leaves)
        _check_parameters([leaf.dtype for _, leaf in leaves])
        self.size = sum(leaf.size for _, leaf in leaves)
        self._trained = trained
        self._single = _Single(apply, rest, alone, output_field)
        self._layers: tuple[tuple[int, ...], np.ndarray] | None = None
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
        layers = linear_layers(self._trained)
        chosen = [layers[place] for place in self._outer_products(self._cast(inputs[:2]))[0]]
        inside = sum(leaf.size for leaf in jax.tree.leaves(chosen))
        return self.size - inside + sum(sum(layer.weight.shape) + 1 for layer in chosen)

    def _outer_products(self, rows: jax.Array) -> tuple[tuple[int, ...], np.ndarray]:
        """The linear layers whose gradients are outer products, and factors, seen by the gradients on two inputs."""
        if self._layers is None:
            if not worthwhile(self.size):
                self._layers = (), np.ones((0, 2))
            else:
                self._layers = _find_outer_products(self._single, self._trained, rows[:2])
        return self._layers

    @_in_own_precision
    def contract(self, left: Sequence[Any], right: Sequence[Any], pairs: bool) -> np.ndarray:
        if self._on_host:
            left, right = ([as_arrays(part) for part in parts] for parts in (left, right))
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
        """Floating-point operations of the network on one input, as the compiler counts them; None if it does not."""
        of_one = jax.jit(lambda trained, one: self._single(trained, one))
        counted = of_one.lower(self._trained, self._cast(inputs)[0]).compile().cost_analysis()
        flops = counted.get("flops") if isinstance(counted, Mapping) else None
        return float(flops) if flops and flops > 0 else None

    def arrays(self) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in jax.tree.leaves(self._trained)]

    def _cast(self, inputs: Any) -> jax.Array:
        """Inputs in the parameters' precision, unless they are counts, such as tokens."""
        inputs = jnp.asarray(inputs)
        return inputs.astype(self.precision) if jnp.issubdtype(inputs.dtype, jnp.inexact) else inputs


class _Single(eqx.Module):
    """The outputs for one input as a function of the trained parameters; equal ones share what is compiled."""

    apply: Callable[[PyTree, Any], Any] = eqx.field(static=True)
    rest: PyTree
    alone: bool = eqx.field(static=True)
    output_field: Field | None = eqx.field(static=True, default=None)

    def __call__(self, trained: PyTree, one: jax.Array) -> jax.Array:
        return self.outputs(eqx.combine(trained, self.rest), one)

    def outputs(self, parameters: PyTree, one: jax.Array) -> jax.Array:
        # Products and, through them, their derivatives: accelerators round factors to ten bits unless told otherwise.
        with jax.default_matmul_precision("highest"):
            if self.alone:
                return jnp.ravel(find_outputs(self.apply(parameters, one), self.output_field)[0])
            found, _ = find_outputs(self.apply(parameters, one[None]), self.output_field, samples=1)
            return jnp.ravel(only_row(found))


@eqx.filter_jit
def _outputs(single: _Single, trained: PyTree, inputs: jax.Array) -> jax.Array:
    return jax.vmap(lambda one: single(trained, one))(inputs)


@eqx.filter_jit
def _tangent(single: _Single, trained: PyTree, inputs: jax.Array, direction: PyTree) -> jax.Array:
    return jax.jvp(lambda own: jax.vmap(lambda one: single(own, one))(inputs), (trained,), (direction,))[1]


@eqx.filter_jit
def _gradients(
    single: _Single, trained: PyTree, places: tuple[int, ...], factors: Any, inputs: jax.Array, weights: jax.Array
) -> list[Any]:
    """Arrays for the parameters outside of the linear layers at these places, outer products for those inside."""
    plain, inside = separate(trained, places) if places else (trained, jax.tree.map(lambda _: None, trained))
    layers = linear_layers(trained) if places else []
    offsets = [jnp.zeros(layers[place].weight.shape[0], layers[place].weight.dtype) for place in places]

    def of_one(one: jax.Array) -> list[Any]:
        def run(own: PyTree, taps: list[Any]) -> tuple[jax.Array, list[Any]]:
            module = eqx.combine(own, inside, single.rest)
            return tapped(lambda tree: single.outputs(tree, one), module, places, taps, factors)

        values, pull, below = jax.vjp(run, plain, offsets, has_aux=True)
        found, slopes = jax.vmap(pull)(weights.astype(values.dtype))
        arrays = [jnp.reshape(_wide(leaf), (weights.shape[0], -1)) for leaf in jax.tree.leaves(found)]
        products = [OuterProducts(_wide(slope), _wide(own)) for slope, own in zip(slopes, below, strict=True)]
        return [*arrays, *products]

    return jax.vmap(of_one)(inputs)


def _wide(leaf: jax.Array) -> jax.Array:
    """Half precision is too coarse to add up in."""
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def _find_outer_products(single: _Single, trained: PyTree, rows: jax.Array) -> tuple[tuple[int, ...], np.ndarray]:
    """The linear layers whose gradients are outer products: those where these agree with the gradients themselves."""
    none = (), np.ones((0, 2))
    if not single.alone:
        return none
    places = candidates(eqx.combine(trained, single.rest))
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(1, _outputs(single, trained, rows).shape[1])))
    while places:
        try:
            gradients = _gradients(single, trained, places, np.ones((len(places), 2)), rows, weights)
        except NotAnOuterProductError as odd:
            places = tuple(place for place in places if place != odd.place)
            continue
        except jax.errors.UnexpectedTracerError:  # the layers run inside of a transformation, on many positions
            return none
        layers = linear_layers(eqx.combine(trained, single.rest))
        known = {}
        for place, part in zip(places, gradients[-len(places) :], strict=True):
            whole = np.stack([_layer_gradient(single, trained, place, one, weights[0]) for one in rows])
            product = np.asarray(part.slopes[:, 0, :, None] * part.below[:, None])
            plain = type(layers[place]) is eqx.nn.Linear
            known[place] = factors_of(whole, product, layers[place].bias is not None, plain)
        found = {place: factors for place, factors in known.items() if factors is not None}
        return tuple(found), np.array(list(found.values())).reshape(-1, 2)
    return none


def _layer_gradient(single: _Single, trained: PyTree, place: int, one: jax.Array, weight: jax.Array) -> np.ndarray:
    """The gradient of a layer's weights, with the bias as a last column."""
    outside, inside = separate(trained, (place,))
    values, pull = jax.vjp(lambda own: single(eqx.combine(own, outside), one), inside)
    layer = linear_layers(pull(weight.astype(values.dtype))[0])[place]
    parts = [layer.weight] if layer.bias is None else [layer.weight, layer.bias[:, None]]
    return np.asarray(_wide(jnp.concatenate(parts, axis=1)))


@eqx.filter_jit
def _columns(single: _Single, trained: PyTree, rows: jax.Array, inputs: jax.Array, weights: jax.Array) -> jax.Array:
    """Kernel columns without a Jacobian of the rows: pull each output of the columns back, push it forward."""

    def of_one(one: jax.Array) -> jax.Array:
        values, pull = jax.vjp(lambda own: single(own, one), trained)
        return jax.vmap(lambda weight: _tangent(single, trained, rows, pull(weight)[0]))(weights.astype(values.dtype))

    return jax.vmap(of_one)(inputs)


def _check_parameters(dtypes: Sequence[Any]) -> None:
    if not dtypes:
        raise ValueError("the model has no trainable parameters: a tangent kernel needs arrays of floats")
    if any(jnp.issubdtype(dtype, jnp.complexfloating) for dtype in dtypes):
        raise ValueError("complex parameters have no real tangent kernel: give their real and imaginary parts")


def check_inputs(name: str, inputs: Any) -> Any:
    """An array with the inputs along its first axis; torch tensors stay what they are."""
    if not hasattr(inputs, "shape"):
        inputs = np.asarray(inputs)
    if inputs.ndim == 0 or inputs.shape[0] == 0:
        raise ValueError(
            f"{name} must hold at least one input along its first axis, not have shape {tuple(inputs.shape)}"
        )
    return inputs


def batches(count: int, size: int) -> list[slice]:
    """Consecutive slices of at most ``size``."""
    return [slice(begin, min(begin + size, count)) for begin in range(0, count, size)]


def relative_motion(before: np.ndarray, after: np.ndarray) -> float:
    """``|after - before| / |before|``; infinite for what left zero."""
    moved, size = float(np.linalg.norm(after - before)), float(np.linalg.norm(before))
    return moved / size if size > 0 else (math.inf if moved > 0 else 0.0)
