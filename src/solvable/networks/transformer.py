"""A small decoder-only transformer that reads a sequence of tokens and answers at the last position."""

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


class Attention(eqx.Module):
    """Causal self-attention in ``heads`` heads, without biases: softmax(q kᵀ/√d_head) v, then a mixing of the heads."""

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

    def __call__(
        self, states: Float[Array, "place width"], asking: Float[Array, "last width"]
    ) -> Float[Array, "last width"]:
        """``asking`` are the last rows of ``states``: each looks at all places up to its own."""
        places, width = states.shape
        last = asking.shape[0]
        query, key, value = (
            (rows @ matrix).reshape(-1, self.heads, width // self.heads)
            for rows, matrix in ((asking, self.query), (states, self.key), (states, self.value))
        )
        scores = jnp.einsum("qhd,khd->hqk", query, key) * (width // self.heads) ** -0.5
        seen = jnp.arange(places) <= jnp.arange(places - last, places)[:, None]
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
        return jnp.einsum("hqk,khd->qhd", weights, value).reshape(last, width) @ self.mix


class Block(eqx.Module):
    """Attention, then a two-layer network at each place; both add to the stream, and read it through a LayerNorm."""

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
        for_attention, for_first, for_second = jax.random.split(key, 3)
        self.attention = Attention(width, heads, key=for_attention, dtype=dtype)
        self.first = eqx.nn.Linear(width, hidden, key=for_first, dtype=dtype)
        self.second = eqx.nn.Linear(hidden, width, key=for_second, dtype=dtype)
        norms = [eqx.nn.LayerNorm(width, dtype=dtype) for _ in range(2)]
        self.norms = (norms[0], norms[1]) if normalise else None
        self.activation = activation

    def __call__(self, states: Float[Array, "place width"], last: int) -> Float[Array, "last width"]:
        """The stream after this block, at the ``last`` places."""
        read = jax.vmap(self.norms[0])(states) if self.norms else states
        states = states[-last:] + self.attention(read, read[-last:])
        read = jax.vmap(self.norms[1])(states) if self.norms else states
        hidden = ACTIVATIONS[self.activation](jax.vmap(self.first)(read))
        return states + jax.vmap(self.second)(hidden)


class Transformer(eqx.Module):
    """Tokens in, ``outputs`` logits out, read off at the last position.

    Learned embeddings of tokens and places are added up; ``layers`` blocks of causal attention and a ``expansion``
    times wider network (activation ``"relu"`` or ``"gelu"``) follow; with ``normalise`` each block reads the stream
    through a LayerNorm, and so does the last layer, an :class:`equinox.nn.Linear`. What enters it are the features:
    :func:`solvable.equinox.diagnose` works as it is.

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
        for name, value in (("tokens", tokens), ("outputs", outputs), ("length", length), ("width", width)):
            check_count(name, value)
        for name, value in (("layers", layers), ("heads", heads), ("expansion", expansion)):
            check_count(name, value)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, not {width} with {heads} heads")
        for_embedding, for_positions, for_blocks, for_last = jax.random.split(key, 4)
        size = jnp.sqrt(width).astype(dtype)
        self.embedding = jax.random.normal(for_embedding, (tokens, width), dtype) / size
        self.positions = jax.random.normal(for_positions, (length, width), dtype) / size
        self.blocks = tuple(
            Block(width, heads, expansion * width, activation, normalise, key=block_key, dtype=dtype)
            for block_key in jax.random.split(for_blocks, layers)
        )
        self.norm = eqx.nn.LayerNorm(width, dtype=dtype) if normalise else None
        self.last = eqx.nn.Linear(width, outputs, key=for_last, dtype=dtype)

    def states(self, tokens: Int[Array, " place"], last: int | None = None) -> Float[Array, "last width"]:
        """What the last layer reads, at the ``last`` places (all, if not given). Places see only earlier ones."""
        places = tokens.shape[0]
        if places > self.positions.shape[0]:
            raise ValueError(f"there are {self.positions.shape[0]} positions, but {places} tokens")
        last = places if last is None else last
        # As a product and not as rows picked by index: the gradient is then no scatter, whose sums a GPU makes in any
        # order, and a training that goes on from a checkpoint stays the same bit for bit.
        picked = jax.nn.one_hot(tokens, self.embedding.shape[0], dtype=self.embedding.dtype)
        stream = jnp.matmul(picked, self.embedding, precision="highest") + self.positions[:places]
        for block in self.blocks[:-1]:
            stream = block(stream, places)
        # Nobody looks at the other places after the last block: at four tokens that spares almost half the work.
        stream = self.blocks[-1](stream, last)
        return jax.vmap(self.norm)(stream) if self.norm else stream

    def __call__(self, tokens: Int[Array, " place"]) -> Float[Array, " outputs"]:
        return self.last(self.states(tokens, last=1)[0])
