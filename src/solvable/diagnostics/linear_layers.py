"""Gradients of linear layers as outer products, which makes tangent kernels cheap.

The gradient of an output with respect to the weights of a layer ``W x + b`` is an outer product ``δ (x, 1)^T`` of the
derivative δ of the output with respect to the layer's output, and of the layer's input. Inner products of two such
gradients are ``(δ · δ') (x · x' + 1)``: as many operations as the layer has rows and columns, where the gradients
themselves have rows times columns. Layers for which this does not hold (run twice, applied to many positions, with
shared weights) are differentiated as usual.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

PyTree = Any
# Smaller networks are not examined: finding their layers takes longer than it saves.
WORTHWHILE = 5000


def worthwhile(parameters: int) -> bool:
    """Whether a network with this many parameters is large enough to look for outer products in its gradients."""
    return parameters >= WORTHWHILE


class OuterProducts(NamedTuple):
    """Gradients of a layer: ``slopes`` δ of shape (inputs, weights, rows), and ``below`` x of shape (inputs, columns).

    Arrays of full gradients have the shape (inputs, weights, entries).
    """

    slopes: Any
    below: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The first two axes are those of a full gradient."""
        return tuple(self.slopes.shape)


def inner_products(left: Sequence[Any], right: Sequence[Any], pairs: bool) -> Any:
    """Inner products of gradients, one parameter array at a time, so that they are never concatenated.

    They are matrix products, which are fast in NumPy, JAX and PyTorch alike.
    """
    shape = (left[0].shape[0], left[0].shape[1], right[0].shape[0], right[0].shape[1])
    rows, others = (shape[0] * shape[1], shape[2] * shape[3]) if pairs else (shape[0], shape[2])
    found: Any = 0.0
    for one, other in zip(left, right, strict=True):
        product = isinstance(one, OuterProducts)
        first, second = (one.slopes, other.slopes) if product else (one, other)
        part = first.reshape(rows, -1) @ second.reshape(others, -1).T
        part = part.reshape(shape) if pairs else part
        if product:
            below = one.below @ other.below.T
            part = part * (below[:, None, :, None] if pairs else below)
        found = found + part
    return found


def squared_norms(gradients: Sequence[Any]) -> Any:
    """The squared gradient of each input, summed over weights and parameters."""
    return sum(
        (part.slopes**2).sum((1, 2)) * (part.below**2).sum(1)
        if isinstance(part, OuterProducts)
        else (part**2).sum((1, 2))
        for part in gradients
    )


def on_host(part: Any) -> Any:
    """The same gradient in host memory."""
    return OuterProducts(*map(np.asarray, part)) if isinstance(part, OuterProducts) else np.asarray(part)


class NotAnOuterProductError(Exception):
    """A layer ran never or more than once for one input, so that its gradient is not an outer product."""

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self.layer = layer


class _Recorder:
    """The inputs of the layers during one forward pass; compared by identity, so that it can be a static field."""

    def __init__(self, count: int) -> None:
        self.below: list[list[Any]] = [[] for _ in range(count)]


class _Tapped(eqx.Module):
    """A linear layer with an offset added to its output: the derivative in the offset is the slope δ."""

    layer: eqx.nn.Linear
    offset: Any
    recorder: _Recorder = eqx.field(static=True)
    number: int = eqx.field(static=True)

    def __call__(self, x: Any, **options: Any) -> Any:
        self.recorder.below[self.number].append(x)
        return self.layer(x, **options) + self.offset


def linear_layers(tree: PyTree) -> list[Any]:
    """The linear layers of a module, in the order of its tree."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
    return [node for node in nodes if isinstance(node, eqx.nn.Linear)]


def candidates(module: PyTree) -> tuple[int, ...]:
    """Positions (among :func:`linear_layers`) of layers whose gradients may be outer products: those of vectors."""
    return tuple(
        position
        for position, layer in enumerate(linear_layers(module))
        if isinstance(layer.in_features, int)
        and isinstance(layer.out_features, int)
        and eqx.is_inexact_array(layer.weight)
    )


def separate(trained: PyTree, positions: tuple[int, ...]) -> tuple[PyTree, PyTree]:
    """The trained arrays outside these layers, and those inside."""

    def arrays(tree: PyTree) -> list[Any]:
        layers = [linear_layers(tree)[position] for position in positions]
        return [part for layer in layers for part in (layer.weight, layer.bias) if part is not None]

    outside = jax.tree.map(lambda _: True, trained)
    if positions:
        outside = eqx.tree_at(arrays, outside, [False] * len(arrays(trained)))
    return eqx.partition(trained, outside)


def tapped(
    apply: Callable[[PyTree], Any], module: PyTree, positions: tuple[int, ...], offsets: list[Any], factors: Any
) -> tuple[Any, list[Any]]:
    """The value of ``apply`` for the module with offsets on its layers, and the input of each of these layers.

    ``factors`` has a row for each layer: the constants that multiply its input, and the 1 of its bias, in its gradient.
    """
    recorder = _Recorder(len(positions))

    def pick(tree: PyTree) -> list[Any]:
        layers = linear_layers(tree)
        return [layers[position] for position in positions]

    layers = pick(module)
    taps = [_Tapped(layer, offset, recorder, i) for i, (layer, offset) in enumerate(zip(layers, offsets, strict=True))]
    values = apply(eqx.tree_at(pick, module, taps) if positions else module)
    inputs = []
    for position, layer, seen, factor in zip(positions, layers, recorder.below, factors, strict=True):
        if len(seen) != 1 or jnp.ndim(seen[0]) != 1:
            raise NotAnOuterProductError(position)
        # In the precision of the layer's input, which float64 factors must not widen.
        scale = jnp.asarray(factor, seen[0].dtype)
        below = scale[0] * seen[0]
        inputs.append(below if layer.bias is None else jnp.append(below, scale[1]))
    return values, inputs


def factors_of(gradient: np.ndarray, product: np.ndarray, bias: bool, plain: bool) -> tuple[float, float] | None:
    """The constants that turn outer products (inputs, rows, columns) into the gradients of a layer; None if none do.

    Layers with constant factors inside, as in tangent-kernel parameterisation, have one for the weights and one for
    the ``bias``, which is the last column. Two inputs show whether they are constant; ``plain`` layers have none.
    """
    if not plain and len(gradient) < 2:
        return None
    found = []
    for part in [slice(None, -1), slice(-1, None)] if bias else [slice(None)]:
        size = float(np.sum(product[..., part] ** 2))
        if size == 0 and not plain:
            return None
        found.append(1.0 if plain else float(np.sum(gradient[..., part] * product[..., part])) / size)
        error = np.abs(found[-1] * product[..., part] - gradient[..., part]).max()
        if error > 1000 * np.finfo(gradient.dtype).eps * np.abs(gradient[..., part]).max():
            return None
    return found[0], found[-1]
