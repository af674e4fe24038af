"""Gradients of linear layers as the products that they are, which makes tangent kernels cheap.

The gradient of an output with respect to the weights of a layer ``W x + b`` is an outer product ``δ (x, 1)^T`` of the
output's slope δ with respect to what the layer gives, and of what the layer takes. Inner products of two such gradients
are ``(δ · δ') (x · x' + 1)``: as many operations as the layer has rows and columns, where the gradients themselves have
rows times columns. Layers for which this does not hold (run twice, applied to many positions, tied) are left alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

PyTree = Any
# Networks of fewer parameters are not looked at: finding their layers takes longer than it saves.
WORTHWHILE = 5000


def worthwhile(parameters: int) -> bool:
    """Whether a network of so many parameters is large enough to look for outer products in its gradients."""
    return parameters >= WORTHWHILE


class OuterProducts(NamedTuple):
    """Gradients of a layer's weights: ``slopes`` (inputs, weights, rows) and ``below`` (inputs, columns)."""

    slopes: Any
    below: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The first two axes are those of a plain gradient."""
        return tuple(self.slopes.shape)


def inner_products(left: Sequence[Any], right: Sequence[Any], pairs: bool) -> Any:
    """Inner products of gradients, parameter array by array, so that they are never copied into one long vector.

    As matrix products, which run at full speed in NumPy, JAX and torch alike.
    """
    shape = (left[0].shape[0], left[0].shape[1], right[0].shape[0], right[0].shape[1])
    rows, others = (shape[0] * shape[1], shape[2] * shape[3]) if pairs else (shape[0], shape[2])
    found: Any = 0.0
    for one, other in zip(left, right, strict=True):
        if isinstance(one, OuterProducts):
            part = (one.slopes.reshape(rows, -1) @ other.slopes.reshape(others, -1).T).reshape(shape if pairs else -1)
            below = one.below @ other.below.T
            found = found + (part * below[:, None, :, None] if pairs else part.reshape(rows, others) * below)
        else:
            part = one.reshape(rows, -1) @ other.reshape(others, -1).T
            found = found + (part.reshape(shape) if pairs else part)
    return found


def squared_norms(gradients: Sequence[Any]) -> Any:
    """Each input's squared gradient, summed over weights and parameters."""
    return sum(
        (part.slopes**2).sum((1, 2)) * (part.below**2).sum(1)
        if isinstance(part, OuterProducts)
        else (part**2).sum((1, 2))
        for part in gradients
    )


def as_arrays(part: Any) -> Any:
    """The same in host memory."""
    return OuterProducts(*map(np.asarray, part)) if isinstance(part, OuterProducts) else np.asarray(part)


class _Seen:
    """What went into the layers of one pass; compared by identity, so that it can be a static field."""

    def __init__(self, count: int) -> None:
        self.below: list[list[Any]] = [[] for _ in range(count)]


class _Tapped(eqx.Module):
    """A linear layer with an offset on top, the derivative in which is the slope of the layer's sums."""

    layer: eqx.nn.Linear
    offset: Any
    seen: _Seen = eqx.field(static=True)
    place: int = eqx.field(static=True)

    def __call__(self, x: Any, **options: Any) -> Any:
        self.seen.below[self.place].append(x)
        return self.layer(x, **options) + self.offset


def linear_layers(tree: PyTree) -> list[Any]:
    """The linear layers of a module, in the order of its tree."""
    nodes = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, eqx.nn.Linear))
    return [node for node in nodes if isinstance(node, eqx.nn.Linear)]


def candidates(module: PyTree) -> tuple[int, ...]:
    """Places of the layers that may have gradients of this form: those of vectors."""
    return tuple(
        place
        for place, layer in enumerate(linear_layers(module))
        if isinstance(layer.in_features, int)
        and isinstance(layer.out_features, int)
        and eqx.is_inexact_array(layer.weight)
    )


def separate(trained: PyTree, places: tuple[int, ...]) -> tuple[PyTree, PyTree]:
    """Trained arrays outside of these layers, and those inside."""

    def arrays(tree: PyTree) -> list[Any]:
        layers = linear_layers(tree)
        return [part for place in places for part in (layers[place].weight, layers[place].bias) if part is not None]

    everything = jax.tree.map(lambda _: True, trained)
    return eqx.partition(trained, eqx.tree_at(arrays, everything, [False] * len(arrays(trained))))


def tapped(
    apply: Callable[[PyTree], Any], module: PyTree, places: tuple[int, ...], offsets: list[Any], factors: Any
) -> tuple[Any, list[Any]]:
    """What ``apply`` makes of the module with offsets on its layers, and what went into each of them.

    ``factors`` has a row for each layer: what its inputs, and the one for its bias, are multiplied by in its gradient.
    """
    seen = _Seen(len(places))

    def pick(tree: PyTree) -> list[Any]:
        layers = linear_layers(tree)
        return [layers[place] for place in places]

    taps = [
        _Tapped(layer, offset, seen, number)
        for number, (layer, offset) in enumerate(zip(pick(module), offsets, strict=True))
    ]
    values = apply(eqx.tree_at(pick, module, taps) if places else module)
    for place, inputs in zip(places, seen.below, strict=True):
        if len(inputs) != 1 or jnp.ndim(inputs[0]) != 1:
            raise NotAnOuterProductError(place)
    # In the precision of what goes into a layer, which float64 factors must not widen.
    inside = [below[0] for below in seen.below]
    scales = [jnp.asarray(factor, below.dtype) for factor, below in zip(factors, inside, strict=True)]
    return values, [
        jnp.append(scale[0] * below, scale[1]) if layer.bias is not None else scale[0] * below
        for below, layer, scale in zip(inside, pick(module), scales, strict=True)
    ]


def factors_of(whole: np.ndarray, product: np.ndarray, bias: bool, plain: bool) -> tuple[float, float] | None:
    """What turns outer products (inputs, rows, columns) into the gradients of a layer; None if nothing does.

    Layers with constant factors inside, as in tangent-kernel parameterisation, have one for the weights and one for
    the ``bias``, the last column. Two inputs tell whether they are constant; ``plain`` layers have none.
    """
    if not plain and len(whole) < 2:
        return None
    columns = [slice(None, -1), slice(-1, None)] if bias else [slice(None)]
    found = []
    for part in columns:
        size = float(np.sum(product[..., part] ** 2))
        if size == 0 and not plain:
            return None
        found.append(1.0 if plain else float(np.sum(whole[..., part] * product[..., part])) / size)
        apart = np.abs(found[-1] * product[..., part] - whole[..., part]).max()
        if apart > 1000 * np.finfo(whole.dtype).eps * np.abs(whole[..., part]).max():
            return None
    return found[0], found[-1]


class NotAnOuterProductError(Exception):
    """A layer ran never or more than once for one input, so that its gradients are no outer products."""

    def __init__(self, place: Any) -> None:
        super().__init__(place)
        self.place = place
