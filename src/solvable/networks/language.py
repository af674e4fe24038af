"""A decoder-only transformer that says at every place what comes next, with an output scaled by its richness."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from solvable.checks import check_count, is_traced
from solvable.networks.parts import Constant


class LanguageBlock(eqx.Module):
    """Causal attention, then a two-layer network at each place; both read the normalised stream and add to it.

    Every matrix has entries of unit variance and is divided by √fan_in where it is used, so that one learning rate
    suits all of them at every width.
    """

    query: Float[Array, "width width"]
    key: Float[Array, "width width"]
    value: Float[Array, "width width"]
    mix: Float[Array, "width width"]
    first: Float[Array, "width hidden"]
    second: Float[Array, "hidden width"]
    heads: int = eqx.field(static=True)
    share: float = eqx.field(static=True)

    def __init__(self, width: int, heads: int, hidden: int, share: float, *, key: PRNGKeyArray) -> None:
        shapes = [(width, width)] * 4 + [(width, hidden), (hidden, width)]
        keys = jax.random.split(key, len(shapes))
        drawn = [jax.random.normal(k, shape, jnp.float32) for k, shape in zip(keys, shapes, strict=True)]
        self.query, self.key, self.value, self.mix, self.first, self.second = drawn
        self.heads, self.share = heads, share

    def __call__(self, stream: Float[Array, "place width"]) -> Float[Array, "place width"]:
        stream = stream + self.share * self._attention(normalised(stream))
        hidden = jax.nn.gelu(_through(normalised(stream), self.first))
        return stream + self.share * _through(hidden, self.second)

    def _attention(self, states: Float[Array, "place width"]) -> Float[Array, "place width"]:
        places, width = states.shape
        query, key, value = (
            _through(states, matrix).reshape(places, self.heads, width // self.heads)
            for matrix in (self.query, self.key, self.value)
        )
        scores = jnp.einsum("qhd,khd->hqk", query, key) * (width // self.heads) ** -0.5
        seen = jnp.tril(jnp.ones((places, places), bool))
        # Sums in 32 bits, whatever the products have.
        scores = jnp.where(seen, scores.astype(jnp.promote_types(scores.dtype, jnp.float32)), -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1).astype(states.dtype)
        return _through(jnp.einsum("hqk,khd->qhd", weights, value).reshape(places, width), self.mix)


def _through(states: Array, matrix: Array) -> Array:
    return states @ (matrix * matrix.shape[0] ** -0.5)


def normalised(states: Array) -> Array:
    """Rows with mean 0 and variance 1: a LayerNorm without parameters."""
    exact = states.astype(jnp.promote_types(states.dtype, jnp.float32))
    exact = exact - jnp.mean(exact, axis=-1, keepdims=True)
    return (exact * jax.lax.rsqrt(jnp.mean(exact**2, axis=-1, keepdims=True) + 1e-5)).astype(states.dtype)


class LanguageModel(eqx.Module):
    """Tokens (places,) to logits (places, vocabulary) of the token after each: ``f = W h / (γ₀ width)``.

    h are the normalised states after ``layers`` blocks, and W has entries of unit variance. A step of gradient descent
    is to be multiplied by :attr:`learning_rate_scale`, γ₀² width: then the logits move at a speed that depends on
    neither width nor γ₀, while features move in proportion to ``richness`` γ₀ (as in :class:`solvable.networks.MLP`
    with ``parameterisation="mean-field"``). The richness may be traced.

    >>> import jax
    >>> from solvable.networks.language import LanguageModel
    >>> network = LanguageModel(256, 16, key=jax.random.key(0), width=32, layers=1, heads=2)
    >>> network(jax.numpy.arange(10)).shape
    (10, 256)
    """

    embedding: Float[Array, "vocabulary width"]
    positions: Float[Array, "length width"]
    blocks: tuple[LanguageBlock, ...]
    last: Float[Array, "width vocabulary"]
    output_scale: Constant
    learning_rate: Constant

    def __init__(
        self,
        vocabulary: int,
        length: int,
        *,
        key: PRNGKeyArray,
        width: int = 128,
        layers: int = 4,
        heads: int = 4,
        expansion: int = 4,
        richness: Any = 1.0,
    ) -> None:
        counts = {"vocabulary": vocabulary, "length": length, "width": width, "layers": layers, "heads": heads}
        for name, value in (counts | {"expansion": expansion}).items():
            check_count(name, value)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, not {width} with {heads} heads")
        if not is_traced(richness) and not 0 < float(richness) < math.inf:
            raise ValueError(
                f"richness must be a positive finite number, not {richness!r}: for the lazy limit train "
                "networks.linearised.linearised(network)"
            )
        for_embedding, for_positions, for_blocks, for_last = jax.random.split(key, 4)
        self.embedding = jax.random.normal(for_embedding, (vocabulary, width), jnp.float32)
        self.positions = jax.random.normal(for_positions, (length, width), jnp.float32)
        self.blocks = tuple(
            LanguageBlock(width, heads, expansion * width, (2 * layers) ** -0.5, key=block_key)
            for block_key in jax.random.split(for_blocks, layers)
        )
        self.last = jax.random.normal(for_last, (width, vocabulary), jnp.float32)
        richness = jnp.asarray(richness, jnp.float32)
        self.output_scale = Constant(1 / (richness * width))
        self.learning_rate = Constant(richness**2 * width)

    @property
    def learning_rate_scale(self) -> Array:
        """What the step of gradient descent must be multiplied by."""
        return self.learning_rate.value

    def features(self, tokens: Int[Array, " place"]) -> Float[Array, "place width"]:
        """What the last layer reads at every place, which depends on this token and those before it."""
        places = tokens.shape[0]
        if places > self.positions.shape[0]:
            raise ValueError(f"there are {self.positions.shape[0]} positions, but {places} tokens")
        # As a product and not as rows picked by index: its gradient is then no scatter, which is slow on a GPU.
        stream = jax.nn.one_hot(tokens, self.embedding.shape[0], dtype=self.embedding.dtype) @ self.embedding
        stream = stream + self.positions[:places]
        for block in self.blocks:
            stream = block(stream)
        return normalised(stream)

    def __call__(self, tokens: Int[Array, " place"]) -> Float[Array, "place vocabulary"]:
        return (self.features(tokens) @ self.last) * self.output_scale.held


def next_token_loss(outputs: Float[Array, "point place vocabulary"], targets: Int[Array, "point place"]) -> Array:
    """Cross entropy of the next token, nats, the mean over all places of each window: for ``train(loss=...)``."""
    # A comparison in place of an index, whose gradient would be a scatter.
    right = targets[..., None] == jnp.arange(outputs.shape[-1])
    found = jax.nn.log_softmax(outputs, axis=-1)
    return -jnp.mean(jnp.sum(jnp.where(right, found, 0), axis=-1), axis=-1)
