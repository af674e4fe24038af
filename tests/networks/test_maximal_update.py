"""Maximal-update parameterisation: the standard one at the base width, and exponents of sizes and changes beside it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import solvable.networks as networks
from solvable.networks.parts import trainable

BASE = 32
WIDTHS = np.array([32, 128, 512])
INPUTS = jnp.asarray(np.random.default_rng(0).normal(size=(12, 6)))
# Far larger than initial outputs, which fall with the width and would change the size of gradients with it.
TARGETS = jnp.asarray(10 * np.random.default_rng(1).normal(size=(12, 2)))


def mlp(width, seed=0, parameterisation="maximal-update", depth=4, **options):
    if parameterisation == "maximal-update":
        options |= {"base_width": BASE}
    key = jax.random.key(seed)
    return networks.MLP(6, 2, width, depth, key=key, parameterisation=parameterisation, dtype=jnp.float64, **options)


def transformer(width, seed=0, parameterisation="maximal-update", **options):
    if parameterisation == "maximal-update":
        options |= {"base_width": BASE}
    sizes = {"tokens": 9, "outputs": 7, "length": 4, "layers": 1, "heads": 4, "expansion": 2}
    return networks.Transformer(
        **sizes, key=jax.random.key(seed), width=width, parameterisation=parameterisation, dtype=jnp.float64, **options
    )


TOKENS = jnp.asarray(np.random.default_rng(2).integers(0, 9, (12, 4)))
CLASSES = jnp.asarray(np.random.default_rng(3).integers(0, 7, 12))


def mlp_loss(network):
    return jnp.mean((jax.vmap(network)(INPUTS) - TARGETS) ** 2)


def transformer_loss(network):
    logits = jax.vmap(network)(TOKENS)
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), CLASSES[:, None], axis=1))


@pytest.mark.parametrize("initialisation", ["normal", "uniform"])
def test_the_mlp_is_the_standard_one_at_its_base_width(initialisation):
    plain, other = (
        mlp(BASE, parameterisation=name, initialisation=initialisation) for name in ("standard", "maximal-update")
    )
    np.testing.assert_array_equal(jax.vmap(plain)(INPUTS), jax.vmap(other)(INPUTS))
    for optimiser in ("sgd", "adam"):
        assert {float(leaf) for leaf in jax.tree.leaves(other.learning_rate_factors(optimiser))} == {1.0}


def test_the_table_of_variances_and_factors():
    """At 16 times the base width: table 8 of Tensor Programs V. Variances of 1500 weights and more: five errors."""
    made, ratio = mlp(16 * BASE, depth=3), 16.0
    for layer, expected in zip(made.layers, (1 / 6, 1 / (16 * BASE), 1 / BASE), strict=True):
        variance = np.var(np.asarray(layer.weight))
        assert variance == pytest.approx(expected, rel=5 * (2 / layer.weight.size) ** 0.5)
    assert float(made.layers[2].input_factor.value) == 1 / ratio
    sgd, adam = (
        [[float(layer.weight), float(layer.bias)] for layer in made.learning_rate_factors(name).layers]
        for name in ("sgd", "adam")
    )
    assert sgd == [[ratio, ratio], [1, ratio], [ratio, 1]]
    assert adam == [[1, 1], [1 / ratio, 1], [1, 1]]


def test_gradient_descent_is_that_of_mean_field():
    """Maximal-update and mean-field are one parameterisation in two gauges: the same function after every SGD step.

    With base width 1 and one input, which has the same factor in both; an independent route to all factors of SGD.
    """
    inputs = INPUTS[:, :1]
    options = {"key": jax.random.key(0), "dtype": jnp.float64}
    ours = networks.MLP(1, 2, 24, 3, parameterisation="maximal-update", base_width=1, **options)
    theirs = networks.MLP(1, 2, 24, 3, parameterisation="mean-field", **options)

    def loss(network):
        return jnp.mean((jax.vmap(network)(inputs) - TARGETS) ** 2)

    start, advance = jax.vmap(ours)(inputs), eqx.filter_jit(lambda network: step(network, loss, "sgd", 0.05))
    for _ in range(3):
        np.testing.assert_allclose(jax.vmap(ours)(inputs), jax.vmap(theirs)(inputs), rtol=1e-9)
        ours, theirs = advance(ours), advance(theirs)
    np.testing.assert_allclose(jax.vmap(ours)(inputs), jax.vmap(theirs)(inputs), rtol=1e-9)
    assert float(jnp.abs(jax.vmap(ours)(inputs) - start).max()) > 0.1


def step(network, loss, optimiser, rate):
    """One step with learning rates per layer."""
    parameters, rest = eqx.partition(network, trainable(network))
    gradient = jax.grad(lambda own: loss(eqx.combine(own, rest)))(parameters)
    make = optax.sgd(rate) if optimiser == "sgd" else optax.adam(rate, eps=1e-12)
    scaled = networks.scale_layers(make, network.learning_rate_factors(optimiser))
    updates, _ = scaled.update(gradient, scaled.init(parameters), parameters)
    return eqx.combine(optax.apply_updates(parameters, updates), rest)


def exponents(make, loss, outputs, optimiser, rate, parameterisation, seeds=4, widths=WIDTHS):
    """Exponents in the width of the outputs of every layer at the start, and of their change in one step."""

    def measure(network):
        after = step(network, loss, optimiser, rate)
        first, last = outputs(network), outputs(after)
        return {
            name: (jnp.mean(first[name] ** 2) ** 0.5, jnp.mean((last[name] - first[name]) ** 2) ** 0.5)
            for name in first
        }

    measure = eqx.filter_jit(measure)
    rows = [[measure(make(int(width), seed, parameterisation)) for seed in range(seeds)] for width in widths]
    sizes = {
        name: np.array([[np.asarray(one[name], float) for one in row] for row in rows]).mean(axis=1)
        for name in rows[0][0]
    }
    return {name: np.polyfit(np.log2(widths), np.log2(values), 1)[0] for name, values in sizes.items()}


def layer_outputs(network):
    return jax.vmap(network.layer_outputs)(INPUTS if isinstance(network, networks.MLP) else TOKENS)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_changes_of_activations_do_not_depend_on_the_width(optimiser):
    """One step changes all layers alike at all widths. Exponents are those of the limit, to 0.15 at these widths."""
    found = exponents(mlp, mlp_loss, layer_outputs, optimiser, 1e-4, "maximal-update")
    assert list(found) == ["layer_1", "layer_2", "layer_3", "output"]
    for name, (initial, change) in found.items():
        assert abs(change) < 0.15, name
        # The initial output falls as the root of the width, and nothing else does.
        assert initial == pytest.approx(-0.5 if name == "output" else 0, abs=0.15), name


def test_changes_of_activations_in_standard_parameterisation():
    """By SGD with one rate: the first layer changes as n^-1/2, deeper ones as n^1/2, the output as n."""
    found = exponents(mlp, mlp_loss, layer_outputs, "sgd", 1e-5, "standard")
    expected = {"layer_1": -0.5, "layer_2": 0.5, "layer_3": 0.5, "output": 1.0}
    for name, (initial, change) in found.items():
        assert change == pytest.approx(expected[name], abs=0.2), name
        assert abs(initial) < 0.15, name


@pytest.mark.parametrize(("parameterisation", "expected"), [("standard", -1.0), ("maximal-update", 0.0)])
def test_the_stable_rate_of_deep_linear_networks(parameterisation, expected):
    """E[K] = x.x' (1 + (L - 1) n / d), with the base width for n in maximal-update, so that 2 / λ is known.

    Six networks per width; five of their standard errors are allowed (0.4 % false alarms by Student's t), and 5 % more
    as λ_max is convex in the kernel. The exponent between the widths differs from its limit by log2(65/257)/2 + 1.
    """
    widths, depth, inputs = (64, 256), 3, INPUTS[:8, :2]
    spectrum = np.linalg.eigvalsh(np.asarray(inputs @ inputs.T))[-1]
    means, errors = [], []
    for width in widths:
        found = []
        for seed in range(6):
            options = {"base_width": BASE} if parameterisation == "maximal-update" else {}
            made = networks.MLP(
                2, 1, width, depth, key=jax.random.key(seed), activation="linear", bias=False, dtype=jnp.float64,
                parameterisation=parameterisation, **options,
            )  # fmt: skip
            factors = made.learning_rate_factors("sgd")
            stable = networks.stable_learning_rate(made, inputs, loss="half-mse", factors=factors)
            found.append(float(stable.largest_eigenvalue) / 2)
        effective = width if parameterisation == "standard" else BASE
        theory = spectrum * (1 + (depth - 1) * effective / 2) / (2 * len(inputs))
        means.append(np.mean(found))
        errors.append(np.std(found, ddof=1) / 6**0.5 / theory)
        assert abs(means[-1] / theory - 1) < 5 * errors[-1] + 0.05
    slope = -np.log2(means[1] / means[0]) / 2
    exact = np.log2(65 / 257) / 2 if expected else 0.0
    assert abs(exact - expected) < 0.01
    assert slope == pytest.approx(exact, abs=5 * np.hypot(*errors) / np.log(2) / 2)


def test_the_stable_rate_is_where_gradient_descent_turns_unstable():
    """A linear model has the tangent kernel for good: below the rate it converges, above it diverges."""
    made = networks.MLP(6, 2, 4, 1, key=jax.random.key(0), bias=False, dtype=jnp.float64)
    largest = float(networks.stable_learning_rate(made, INPUTS).stable_learning_rate)
    for factor, stable in ((0.98, True), (1.02, False)):
        advance = eqx.filter_jit(lambda network, factor=factor: step(network, mlp_loss, "sgd", factor * largest))
        network = made
        for _ in range(300):
            network = advance(network)
        assert (float(mlp_loss(network)) < float(mlp_loss(made))) is stable


def test_the_transformer_is_the_standard_one_at_its_base_width():
    plain, other = (transformer(BASE, parameterisation=name) for name in ("standard", "maximal-update"))
    np.testing.assert_allclose(jax.vmap(plain)(TOKENS), jax.vmap(other)(TOKENS), rtol=1e-12)
    assert {float(leaf) for leaf in jax.tree.leaves(other.learning_rate_factors("adam"))} == {1.0}
    # The streams that the coordinate check sees end in the features that the last layer sees.
    outputs = other.layer_outputs(TOKENS[0])
    assert list(outputs) == ["embedding", "block_1", "output"]
    stream = jax.vmap(other.norm)(outputs["block_1"])
    np.testing.assert_allclose(stream, other.states(TOKENS[0]), rtol=1e-9)


def test_the_table_of_the_transformer():
    ratio, made = 4.0, transformer(4 * BASE)
    for name, (hidden, vector, output) in {"sgd": (1, ratio, ratio), "adam": (1 / ratio, 1, 1)}.items():
        factors = made.learning_rate_factors(name)
        block = factors.blocks[0]
        matrices = (block.attention.query, block.attention.mix, block.first.weight, block.second.weight)
        assert [float(one) for one in matrices] == [hidden] * 4
        vectors = (factors.embedding, factors.positions, factors.norm.weight, block.norms[0].bias, block.first.bias)
        assert [float(one) for one in vectors] == [vector] * 5
        assert (float(factors.last.weight), float(factors.last.bias)) == (output, 1)
    assert made.blocks[0].attention.score_factor == 0.5
    assert np.var(np.asarray(made.embedding)) == pytest.approx(1 / BASE, rel=0.25)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_changes_of_the_transformer_do_not_depend_on_the_width(optimiser):
    """One step of a transformer of one block: exponents of the limit, to 0.2 from width 32 to 128."""
    found = exponents(transformer, transformer_loss, layer_outputs, optimiser, 1e-4, "maximal-update", 3, WIDTHS[:2])
    for name, (_, change) in found.items():
        assert abs(change) < 0.2, name


def test_masked_widths_have_factors_of_their_own():
    masked = mlp(128, depth=3, active_width=64)
    small = mlp(64, depth=3)
    ours, theirs = (network.learning_rate_factors("sgd").layers for network in (masked, small))
    assert [float(layer.weight) for layer in ours] == [float(layer.weight) for layer in theirs]
    assert float(masked.layers[2].input_factor.value) == 0.5


def test_what_is_refused():
    with pytest.raises(ValueError, match="base_width belongs to parameterisation='maximal-update'"):
        networks.MLP(6, 2, 8, 2, key=jax.random.key(0), base_width=4)
    with pytest.raises(ValueError, match="base_width must be a whole number"):
        networks.MLP(6, 2, 8, 2, key=jax.random.key(0), parameterisation="maximal-update", base_width=0.5)
    with pytest.raises(ValueError, match="a learning rate for each array: use learning_rate_factors"):
        _ = mlp(64).learning_rate_scale
    with pytest.raises(ValueError, match="mean-field parameterisation has no learning rates for 'adam'"):
        networks.MLP(6, 2, 8, 2, key=jax.random.key(0), parameterisation="mean-field").learning_rate_factors("adam")
    with pytest.raises(ValueError, match="optimiser must be one of"):
        mlp(64).learning_rate_factors("lion")
    with pytest.raises(ValueError, match="parameterisation must be one of"):
        networks.CNN((8, 8, 1), 3, key=jax.random.key(0), parameterisation="maximal-update")
