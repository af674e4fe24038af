"""A decoder-only transformer that predicts the next token at every position, with an output scaled by its richness."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from solvable.checks import check_count
from solvable.networks.mlp import check_positive
from solvable.networks.parts import Constant
from solvable.networks.transformer import causal_attention


class LanguageBlock(eqx.Module):
    """Causal attention, then a two-layer network at each position; both read the normalised residual stream.

    Every matrix has entries of unit variance and is divided by √fan_in where it is used, so that one learning rate is
    suitable for all of them at every width.
    """

    query: Float[Array, "width width"]
    key: Float[Array, "width width"]
    value: Float[Array, "width width"]
    mix: Float[Array, "width width"]
    first: Float[Array, "width hidden"]
    second: Float[Array, "hidden width"]
    heads: int = eqx.field(static=True)
    residual_scale: float = eqx.field(static=True)

    def __init__(self, width: int, heads: int, hidden: int, residual_scale: float, *, key: PRNGKeyArray) -> None:
        shapes = [(width, width)] * 4 + [(width, hidden), (hidden, width)]
        keys = jax.random.split(key, len(shapes))
        drawn = [jax.random.normal(k, shape, jnp.float32) for k, shape in zip(keys, shapes, strict=True)]
        self.query, self.key, self.value, self.mix, self.first, self.second = drawn
        self.heads, self.residual_scale = heads, residual_scale

    def __call__(self, stream: Float[Array, "position width"]) -> Float[Array, "position width"]:
        states = normalised(stream)
        query, key, value = (_product(states, matrix) for matrix in (self.query, self.key, self.value))
        attended = _product(causal_attention(query, key, value, self.heads), self.mix)
        stream = stream + self.residual_scale * attended
        hidden = jax.nn.gelu(_product(normalised(stream), self.first))
        return stream + self.residual_scale * _product(hidden, self.second)


def _product(states: Array, matrix: Array) -> Array:
    return states @ (matrix * matrix.shape[0] ** -0.5)


def normalised(states: Array) -> Array:
    """Rows with mean 0 and variance 1: a LayerNorm without parameters, in float32 at least."""
    exact = states.astype(jnp.promote_types(states.dtype, jnp.float32))
    exact = exact - jnp.mean(exact, axis=-1, keepdims=True)
    return (exact * jax.lax.rsqrt(jnp.mean(exact**2, axis=-1, keepdims=True) + 1e-5)).astype(states.dtype)


class LanguageModel(eqx.Module):
    """A transformer from tokens (positions,) to logits of the next token (positions, vocabulary), ``W h / (γ₀ width)``.

    h are the normalised states after all blocks, and W has entries of unit variance. The learning rate of gradient
    descent is to be multiplied by :attr:`learning_rate_scale`, γ₀² width: then the logits move at a speed that depends
    on neither width nor γ₀, while features move in proportion to γ₀ (as in :class:`solvable.networks.MLP` with
    ``parameterisation="mean-field"``).

    Parameters
    ----------
    vocabulary
        Number of different tokens.
    length
        Largest length of a sequence.
    key
        JAX key of the initial weights.
    width
        Dimension of the residual stream; a multiple of ``heads``.
    layers
        Number of blocks.
    heads
        Number of attention heads.
    expansion
        Width of the two-layer networks, in units of ``width``.
    richness
        The richness γ₀, which may be traced.

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
        check_positive("richness", richness, ": for the lazy limit train networks.linearised(network)")
        embedding_key, positions_key, blocks_key, last_key = jax.random.split(key, 4)
        self.embedding = jax.random.normal(embedding_key, (vocabulary, width), jnp.float32)
        self.positions = jax.random.normal(positions_key, (length, width), jnp.float32)
        self.blocks = tuple(
            LanguageBlock(width, heads, expansion * width, (2 * layers) ** -0.5, key=block_key)
            for block_key in jax.random.split(blocks_key, layers)
        )
        self.last = jax.random.normal(last_key, (width, vocabulary), jnp.float32)
        richness = jnp.asarray(richness, jnp.float32)
        self.output_scale = Constant(1 / (richness * width))
        self.learning_rate = Constant(richness**2 * width)

    @property
    def learning_rate_scale(self) -> Array:
        """The factor by which the learning rate of gradient descent is to be multiplied."""
        return self.learning_rate.value

    def features(self, tokens: Int[Array, " position"]) -> Float[Array, "position width"]:
        """The inputs of the last layer at every position, which depend on this token and those before it."""
        positions = tokens.shape[0]
        if positions > self.positions.shape[0]:
            raise ValueError(f"there are {self.positions.shape[0]} positions, but {positions} tokens")
        # A product instead of indexing, whose gradient is a scatter, which is slow on a GPU.
        stream = jax.nn.one_hot(tokens, self.embedding.shape[0], dtype=self.embedding.dtype) @ self.embedding
        stream = stream + self.positions[:positions]
        for block in self.blocks:
            stream = block(stream)
        return normalised(stream)

    def __call__(self, tokens: Int[Array, " position"]) -> Float[Array, "position vocabulary"]:
        return (self.features(tokens) @ self.last) * self.output_scale.held


def next_token_loss(
    outputs: Float[Array, "sample position vocabulary"], targets: Int[Array, "sample position"]
) -> Float[Array, " sample"]:
    """Cross entropy of the next token in nats, averaged over the positions of each sequence: for ``train(loss=...)``.

    Parameters
    ----------
    outputs
        Logits at each position.
    targets
        The token after each position.
    """
    # A comparison instead of indexing, whose gradient would be a scatter.
    correct = targets[..., None] == jnp.arange(outputs.shape[-1])
    logarithms = jax.nn.log_softmax(outputs, axis=-1)
    return -jnp.mean(jnp.sum(jnp.where(correct, logarithms, 0), axis=-1), axis=-1)
