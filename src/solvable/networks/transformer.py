"""A small decoder-only transformer that reads a sequence of tokens and predicts at the last position."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from solvable.checks import check_choice, check_count
from solvable.networks.mlp import Dense
from solvable.networks.parameterisations import (
    OptimiserName,
    check_base_width,
    check_optimiser_name,
    rate_factor,
    uniform_factors,
)
from solvable.networks.parts import Constant

TransformerParameterisation = Literal["standard", "maximal-update"]

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
    """Causal self-attention in several heads, without biases, followed by a linear map that mixes the heads.

    Scores are multiplied by ``score_factor``, beside 1 / √d_head.
    """

    query: Float[Array, "width width"]
    key: Float[Array, "width width"]
    value: Float[Array, "width width"]
    mix: Float[Array, "width width"]
    heads: int = eqx.field(static=True)
    score_factor: float = eqx.field(static=True)

    def __init__(
        self, width: int, heads: int, *, key: PRNGKeyArray, dtype: jnp.dtype, score_factor: float = 1.0
    ) -> None:
        keys = jax.random.split(key, 4)
        matrices = [jax.random.normal(k, (width, width), dtype) / jnp.sqrt(width).astype(dtype) for k in keys]
        self.query, self.key, self.value, self.mix = matrices
        self.heads, self.score_factor = heads, score_factor

    def __call__(self, states: Float[Array, "position width"], last: int) -> Float[Array, "last width"]:
        """Attention at the ``last`` positions."""
        query, key, value = states[-last:] @ self.query, states @ self.key, states @ self.value
        if self.score_factor != 1:
            query = query * self.score_factor
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
        width_ratio: float = 1.0,
    ) -> None:
        attention_key, first_key, second_key = jax.random.split(key, 3)
        self.attention = Attention(width, heads, key=attention_key, dtype=dtype, score_factor=width_ratio**-0.5)
        self.first = _with_biases_of_base(eqx.nn.Linear(width, hidden, key=first_key, dtype=dtype), width_ratio)
        self.second = _with_biases_of_base(eqx.nn.Linear(hidden, width, key=second_key, dtype=dtype), width_ratio)
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


def _with_biases_of_base(layer: eqx.nn.Linear, ratio: float) -> eqx.nn.Linear:
    """The layer with initial biases as large as at the base width: they are drawn within 1 / √fan_in."""
    return eqx.tree_at(lambda own: own.bias, layer, layer.bias * ratio**0.5) if ratio != 1 else layer


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
    parameterisation
        ``"standard"``, or ``"maximal-update"`` (μP) as in :class:`MLP`, at a fixed number of heads: scores of attention
        are divided by the width of a head in place of its root.
    base_width
        Width at which ``"maximal-update"`` is the standard parameterisation; by default 64.

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
    width_ratio: Constant | None

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
        parameterisation: TransformerParameterisation = "standard",
        base_width: int | None = None,
    ) -> None:
        sizes = {"tokens": tokens, "outputs": outputs, "length": length, "width": width, "layers": layers}
        for name, value in (sizes | {"heads": heads, "expansion": expansion}).items():
            check_count(name, value)
        check_choice("activation", activation, tuple(ACTIVATIONS))
        check_choice("parameterisation", parameterisation, get_args(TransformerParameterisation))
        base_width = check_base_width(parameterisation, base_width)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, not {width} with {heads} heads")
        embedding_key, positions_key, blocks_key, last_key = jax.random.split(key, 4)
        ratio = 1.0 if base_width is None else width / base_width
        self.width_ratio = None if base_width is None else Constant(jnp.asarray(ratio, dtype))
        size = jnp.sqrt(width if base_width is None else base_width).astype(dtype)
        self.embedding = jax.random.normal(embedding_key, (tokens, width), dtype) / size
        self.positions = jax.random.normal(positions_key, (length, width), dtype) / size
        self.blocks = tuple(
            Block(width, heads, expansion * width, activation, normalise, key=block_key, dtype=dtype, width_ratio=ratio)
            for block_key in jax.random.split(blocks_key, layers)
        )
        self.norm = eqx.nn.LayerNorm(width, dtype=dtype) if normalise else None
        last = eqx.nn.Linear(width, outputs, key=last_key, dtype=dtype)
        # Weights and biases as large as at the base width, and the output multiplier.
        self.last = last if ratio == 1 else Dense(last.weight * ratio**0.5, last.bias * ratio**0.5, 1 / ratio)

    def learning_rate_factors(self, optimiser: OptimiserName = "sgd") -> Any:
        """Factors of the learning rate, one number in place of each trained array, as those of :class:`MLP`.

        Parameters
        ----------
        optimiser
            ``"sgd"``, with or without momentum, or ``"adam"``.
        """
        check_optimiser_name(optimiser)
        if self.width_ratio is None:
            return uniform_factors(self, 1.0)
        # Embeddings, biases and LayerNorms have one axis that grows with the width.
        factors = uniform_factors(self, rate_factor("vector", optimiser, self.width_ratio.value))
        hidden, output, bias = (
            rate_factor(role, optimiser, self.width_ratio.value) for role in ("hidden", "output", "output-bias")
        )
        matrices = _hidden_matrices(self)
        factors = eqx.tree_at(_hidden_matrices, factors, [hidden] * len(matrices))
        return eqx.tree_at(_last_arrays, factors, [output, bias])

    def layer_outputs(self, tokens: Int[Array, " position"]) -> dict[str, Array]:
        """The residual stream after the embedding and after every block, and the logits, by name.

        Parameters
        ----------
        tokens
            One sequence.
        """
        one_hot = jax.nn.one_hot(tokens, self.embedding.shape[0], dtype=self.embedding.dtype)
        stream = one_hot @ self.embedding + self.positions[: len(tokens)]
        found = {"embedding": stream}
        for index, block in enumerate(self.blocks):
            found[f"block_{index + 1}"] = stream = block(stream, len(tokens))
        return {**found, "output": self(tokens)}

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


def _hidden_matrices(network: Transformer) -> list[Array]:
    """All weights both of whose axes grow with the width."""
    return [
        matrix
        for block in network.blocks
        for matrix in (
            block.attention.query,
            block.attention.key,
            block.attention.value,
            block.attention.mix,
            block.first.weight,
            block.second.weight,
        )
    ]


def _last_arrays(network: Transformer) -> list[Any]:
    return [network.last.weight, network.last.bias]
