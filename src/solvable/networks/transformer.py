"""A small decoder-only transformer that reads a sequence of tokens and predicts at the last position."""

from collections.abc import Callable
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from solvable.checks import check_choice, check_count

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
}


def causal_attention(
    query: Float[Array, "last width"],
    key: Float[Array, "position width"],
    value: Float[Array, "position width"],
    heads: int,
) -> Float[Array, "last width"]:
    """softmax(q kᵀ/√d_head) v in several heads. Queries are those of the last positions; none sees a later position."""
    positions, last = len(key), len(query)
    queries, keys, values = (part.reshape(len(part), heads, -1) for part in (query, key, value))
    scores = jnp.einsum("qhd,khd->hqk", queries, keys) * queries.shape[-1] ** -0.5
    visible = jnp.arange(positions) <= jnp.arange(positions - last, positions)[:, None]
    # The softmax is computed in float32 at least, whatever the precision of the products.
    scores = jnp.where(visible, scores.astype(jnp.promote_types(scores.dtype, jnp.float32)), -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(query.dtype)
    return jnp.einsum("hqk,khd->qhd", weights, values).reshape(last, -1)


class Attention(eqx.Module):
    """Causal self-attention in several heads, without biases, followed by a linear map that mixes the heads."""

    query: Float[Array, "width width"]
    key: Float[Array, "width width"]
    value: Float[Array, "width width"]
    mix: Float[Array, "width width"]
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray, dtype: jnp.dtype) -> None:
        keys = jax.random.split(key, 4)
        matrices = [jax.random.normal(k, (width, width), dtype) / jnp.sqrt(width).astype(dtype) for k in keys]
        self.query, self.key, self.value, self.mix = matrices
        self.heads = heads

    def __call__(self, states: Float[Array, "position width"], last: int) -> Float[Array, "last width"]:
        """Attention at the ``last`` positions."""
        query, key, value = states[-last:] @ self.query, states @ self.key, states @ self.value
        return causal_attention(query, key, value, self.heads) @ self.mix


class Block(eqx.Module):
    """Attention, then a two-layer network at each position; both read the residual stream through a LayerNorm."""

    attention: Attention
    first: eqx.nn.Linear
    second: eqx.nn.Linear
    norms: tuple[eqx.nn.LayerNorm, eqx.nn.LayerNorm] | None
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        width: int,
        heads: int,
        hidden: int,
        activation: str,
        normalise: bool,
        *,
        key: PRNGKeyArray,
        dtype: jnp.dtype,
    ) -> None:
        attention_key, first_key, second_key = jax.random.split(key, 3)
        self.attention = Attention(width, heads, key=attention_key, dtype=dtype)
        self.first = eqx.nn.Linear(width, hidden, key=first_key, dtype=dtype)
        self.second = eqx.nn.Linear(hidden, width, key=second_key, dtype=dtype)
        norms = [eqx.nn.LayerNorm(width, dtype=dtype) for _ in range(2)]
        self.norms = (norms[0], norms[1]) if normalise else None
        self.activation = activation

    def __call__(self, states: Float[Array, "position width"], last: int) -> Float[Array, "last width"]:
        """The residual stream after this block, at the ``last`` positions."""
        read = jax.vmap(self.norms[0])(states) if self.norms else states
        states = states[-last:] + self.attention(read, last)
        read = jax.vmap(self.norms[1])(states) if self.norms else states
        hidden = ACTIVATIONS[self.activation](jax.vmap(self.first)(read))
        return states + jax.vmap(self.second)(hidden)


class Transformer(eqx.Module):
    """A transformer that maps tokens to logits, read off at the last position.

    Learned embeddings of tokens and positions are added; blocks of causal attention and two-layer networks follow. The
    last layer is an :class:`equinox.nn.Linear`, whose inputs are the features for :func:`solvable.equinox.diagnose`.

    Parameters
    ----------
    tokens
        Number of different tokens.
    outputs
        Number of logits.
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
    activation
        ``"relu"`` or ``"gelu"``.
    normalise
        Whether blocks and the last layer read the residual stream through a LayerNorm.
    dtype
        Type of the weights.

    >>> import equinox, jax
    >>> from solvable.networks.transformer import Transformer
    >>> network = Transformer(tokens=9, outputs=7, length=4, layers=1, width=16, heads=2, key=jax.random.key(0))
    >>> equinox.filter_jit(network)(jax.numpy.array([3, 7, 5, 8])).shape
    (7,)
    """

    embedding: Float[Array, "tokens width"]
    positions: Float[Array, "length width"]
    blocks: tuple[Block, ...]
    norm: eqx.nn.LayerNorm | None
    last: eqx.nn.Linear

    def __init__(
        self,
        tokens: int,
        outputs: int,
        length: int,
        *,
        key: PRNGKeyArray,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        expansion: int = 4,
        activation: str = "relu",
        normalise: bool = True,
        dtype: jnp.dtype = jnp.float32,  # type: ignore[assignment]
    ) -> None:
        sizes = {"tokens": tokens, "outputs": outputs, "length": length, "width": width, "layers": layers}
        for name, value in (sizes | {"heads": heads, "expansion": expansion}).items():
            check_count(name, value)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, not {width} with {heads} heads")
        embedding_key, positions_key, blocks_key, last_key = jax.random.split(key, 4)
        size = jnp.sqrt(width).astype(dtype)
        self.embedding = jax.random.normal(embedding_key, (tokens, width), dtype) / size
        self.positions = jax.random.normal(positions_key, (length, width), dtype) / size
        self.blocks = tuple(
            Block(width, heads, expansion * width, activation, normalise, key=block_key, dtype=dtype)
            for block_key in jax.random.split(blocks_key, layers)
        )
        self.norm = eqx.nn.LayerNorm(width, dtype=dtype) if normalise else None
        self.last = eqx.nn.Linear(width, outputs, key=last_key, dtype=dtype)

    def states(self, tokens: Int[Array, " position"], last: int | None = None) -> Float[Array, "last width"]:
        """The features: inputs of the last layer at the ``last`` positions (all if None), independent of later ones."""
        positions = tokens.shape[0]
        if positions > self.positions.shape[0]:
            raise ValueError(f"there are {self.positions.shape[0]} positions, but {positions} tokens")
        last = positions if last is None else last
        # A product instead of indexing: the gradient of indexing is a scatter, whose sums a GPU takes in any order, and
        # a training that is resumed from a checkpoint would not be the same bit for bit.
        one_hot = jax.nn.one_hot(tokens, self.embedding.shape[0], dtype=self.embedding.dtype)
        stream = jnp.matmul(one_hot, self.embedding, precision="highest") + self.positions[:positions]
        for block in self.blocks[:-1]:
            stream = block(stream, positions)
        # Other positions are not used after the last block: for four tokens this saves almost half the work.
        stream = self.blocks[-1](stream, last)
        return jax.vmap(self.norm)(stream) if self.norm else stream

    def __call__(self, tokens: Int[Array, " position"]) -> Float[Array, " outputs"]:
        return self.last(self.states(tokens, last=1)[0])
