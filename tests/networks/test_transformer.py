"""The transformer: an independent forward pass, causality, symmetries, gradients, and what the diagnostics see."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, softmax

import solvable.equinox
from solvable.networks.transformer import Transformer

TOKENS, OUTPUTS, LENGTH, WIDTH, HEADS = 9, 7, 4, 12, 3


@functools.cache
def network(**options) -> Transformer:
    settings = {"width": WIDTH, "heads": HEADS, "dtype": jnp.float64} | options
    made = eqx.filter_eval_shape(Transformer, TOKENS, OUTPUTS, LENGTH, key=jax.random.key(1), **settings)
    # LayerNorms start as ones and zeros, which would hide a mistake in their scale or shift.
    draw = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: jnp.asarray(0.4 * draw.standard_normal(leaf.shape), leaf.dtype), made)


@eqx.filter_jit
def states(net: Transformer, tokens: jax.Array) -> jax.Array:
    return net.states(tokens)


@eqx.filter_jit
def answer(net: Transformer, tokens: jax.Array) -> jax.Array:
    return net(tokens)


def numpy_norm(rows: np.ndarray, norm: eqx.nn.LayerNorm | None) -> np.ndarray:
    if norm is None:
        return rows
    centred = rows - rows.mean(1, keepdims=True)
    scale = np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + 1e-5)
    return centred / scale * np.asarray(norm.weight) + np.asarray(norm.bias)


def numpy_states(net: Transformer, tokens: np.ndarray, heads: int = HEADS) -> np.ndarray:
    """Place by place and head by head, with loops, in the order of a textbook."""
    stream = np.stack([np.asarray(net.embedding)[t] + np.asarray(net.positions)[i] for i, t in enumerate(tokens)])
    width = stream.shape[1]
    for block in net.blocks:
        first, second = block.norms or (None, None)
        read = numpy_norm(stream, first)
        attended = np.zeros_like(stream)
        for head in range(heads):
            own = slice(head * width // heads, (head + 1) * width // heads)
            query, key, value = (
                read @ np.asarray(matrix)[:, own]
                for matrix in (block.attention.query, block.attention.key, block.attention.value)
            )
            for place in range(len(tokens)):
                weights = softmax(key[: place + 1] @ query[place] / np.sqrt(width // heads))
                attended[place, own] = weights @ value[: place + 1]
        stream = stream + attended @ np.asarray(block.attention.mix)
        hidden = numpy_norm(stream, second) @ np.asarray(block.first.weight).T + np.asarray(block.first.bias)
        gelu = hidden * (1 + erf(hidden / np.sqrt(2))) / 2
        hidden = np.maximum(hidden, 0) if block.activation == "relu" else gelu
        stream = stream + hidden @ np.asarray(block.second.weight).T + np.asarray(block.second.bias)
    return numpy_norm(stream, net.norm)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"normalise": False, "layers": 1, "heads": 1}, marks=pytest.mark.slow),
        pytest.param({"activation": "gelu", "layers": 3, "expansion": 2}, marks=pytest.mark.slow),
    ],
    ids=["default", "plain", "deep"],
)
def test_forward_pass_is_that_of_numpy(options: dict) -> None:
    net = network(**options)
    for tokens in ([3, 7, 5, 8], [0, 5, 1, 1]):
        expected = numpy_states(net, np.array(tokens), options.get("heads", HEADS))
        assert np.allclose(states(net, jnp.array(tokens)), expected, rtol=1e-12, atol=1e-12)
        logits = np.asarray(net.last.weight) @ expected[-1] + np.asarray(net.last.bias)
        assert np.allclose(answer(net, jnp.array(tokens)), logits, rtol=1e-12, atol=1e-12)


def test_no_place_sees_a_later_one() -> None:
    net = network()
    tokens = np.array([3, 7, 5, 8])
    before = np.asarray(states(net, jnp.asarray(tokens)))
    for place in range(LENGTH):
        after = np.asarray(states(net, jnp.asarray(np.where(np.arange(LENGTH) == place, 0, tokens))))
        assert (after[:place] == before[:place]).all(), "an earlier place changed"
        assert (np.abs(after - before)[place:].max(1) > 1e-3).all(), "a later place did not notice"


def test_number_of_parameters() -> None:
    """V d + L d embeddings; 4 d² of attention, 2 e d² + e d + d of a network, 4 d of norms a block; 2 d; C d + C."""
    for tokens, outputs, d, layers, e, norm in (
        (9, 7, 12, 2, 4, True),
        (99, 97, 128, 2, 4, True),
        (5, 3, 8, 3, 2, False),
    ):
        settings = {"width": d, "layers": layers, "expansion": e, "normalise": norm}
        net = eqx.filter_eval_shape(Transformer, tokens, outputs, 4, heads=4, key=jax.random.key(0), **settings)
        count = sum(leaf.size for leaf in jax.tree.leaves(net))
        block = 4 * d**2 + 2 * e * d**2 + e * d + d + 4 * d * norm
        assert count == (tokens + 4) * d + layers * block + 2 * d * norm + outputs * (d + 1)
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(net))
        assert eqx.filter_eval_shape(net, jnp.array([0, 1, 2])).dtype == jnp.float32


def test_names_of_tokens_and_order_of_heads_do_not_matter() -> None:
    net = network()
    tokens = jnp.array([3, 7, 5, 8])
    renaming = np.random.default_rng(5).permutation(TOKENS)
    embedding = jnp.asarray(np.asarray(net.embedding)[np.argsort(renaming)])
    renamed = eqx.tree_at(lambda n: n.embedding, net, embedding)
    assert (answer(renamed, jnp.asarray(renaming[np.asarray(tokens)])) == answer(net, tokens)).all()

    def shuffled(matrix, axis):
        parts = np.split(np.asarray(matrix), HEADS, axis)
        return jnp.asarray(np.concatenate([parts[i] for i in (2, 0, 1)], axis))

    def where(n):
        return [getattr(block.attention, name) for block in n.blocks for name in ("query", "key", "value", "mix")]

    others = [shuffled(matrix, 0 if index % 4 == 3 else 1) for index, matrix in enumerate(where(net))]
    assert np.allclose(answer(eqx.tree_at(where, net, others), tokens), answer(net, tokens), rtol=1e-12)


@pytest.mark.slow
def test_order_of_tokens_is_known_by_positions_only_in_one_layer() -> None:
    """Attention is a sum over places: without positions one layer answers a ∘ b and b ∘ a alike; two need not."""
    tokens, swapped = jnp.array([3, 7, 5, 8]), jnp.array([5, 7, 3, 8])
    for layers, alike in ((1, True), (2, False)):
        net = network(layers=layers)
        blind = eqx.tree_at(lambda n: n.positions, net, jnp.zeros_like(net.positions))
        difference = np.abs(np.asarray(answer(blind, tokens)) - np.asarray(answer(blind, swapped))).max()
        assert (difference < 1e-12) == alike
        assert np.abs(np.asarray(answer(net, tokens)) - np.asarray(answer(net, swapped))).max() > 1e-3


@pytest.mark.slow
def test_logits_are_of_order_one_at_the_start() -> None:
    """The last layer reads unit-variance features with weights of variance 1/(3 d): logits of variance about 1/3."""

    @jax.jit
    def at_start(key, tokens):
        net = Transformer(99, 97, 4, key=key, layers=1)
        return jax.vmap(lambda one: net.states(one, last=1)[0])(tokens), jax.vmap(net)(tokens)

    tokens = np.random.default_rng(1).integers(0, 99, (64, 4))
    features, logits = (np.asarray(array) for array in at_start(jax.random.key(0), jnp.asarray(tokens)))
    assert np.allclose(features.var(1), 1, atol=1e-3)
    assert 0.5 < 3 * logits.var() < 2


@pytest.mark.slow
def test_gradients_reach_every_parameter() -> None:
    net = network(activation="gelu", layers=3, expansion=2)
    draw = np.random.default_rng(6)
    batch = jnp.asarray(draw.integers(0, TOKENS, (64, LENGTH)))
    classes = jnp.asarray(draw.integers(0, OUTPUTS, 64))

    def loss(n):
        rows = jax.nn.log_softmax(jax.vmap(n)(batch))
        return -jnp.take_along_axis(rows, classes[:, None], 1).mean()

    gradient = eqx.filter_jit(eqx.filter_grad(loss))(net)
    for leaf in jax.tree.leaves(gradient):
        sizes = np.abs(np.asarray(leaf))
        assert np.isfinite(sizes).all()
        assert (sizes > 0).all()


@pytest.mark.slow
def test_diagnostics_read_the_state_at_the_last_place() -> None:
    net = network(dtype=jnp.float32, layers=1)
    inputs = jnp.asarray(np.random.default_rng(8).integers(0, TOKENS, (40, LENGTH)))
    classes = jnp.asarray(np.arange(40) % OUTPUTS)
    report = solvable.equinox.diagnose(net, (inputs, classes), (inputs, classes))
    features = np.stack([numpy_states(net, np.asarray(row))[-1] for row in inputs]).astype(float)
    expected = np.linalg.eigvalsh(features.T @ features / 40)[::-1]
    # A state after a LayerNorm with shift has at most the rank of its width less one, plus the constant.
    assert report.features == WIDTH
    assert np.allclose(report.intensity, expected[: report.rank], rtol=1e-4, atol=1e-5 * expected[0])
    assert report.outputs == report.classes == OUTPUTS


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 10, "heads": 4}, "width must be a multiple of heads, not 10 with 4 heads"),
        ({"layers": 0}, "layers must be a whole number, 1 or more, not 0"),
        ({"activation": "sine"}, "activation must be one of 'relu', 'gelu', not 'sine'"),
    ],
)
def test_bad_input_is_named(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Transformer(9, 7, 4, key=jax.random.key(0), **options)
    with pytest.raises(ValueError, match="there are 4 positions, but 5 tokens"):
        network()(jnp.zeros(5, int))
