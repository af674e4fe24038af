"""How far training left its linearisation: exact models, limits, and two libraries."""

import copy
import json
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvable.diagnostics import LazinessReport, laziness, tangent_model
from solvable.models.scalar_network import ScalarNetwork

INPUTS = np.random.default_rng(0).normal(size=(10, 4))
SAMPLE = np.random.default_rng(1).normal(size=(12, 1))


def linear(parameters, inputs):
    return inputs @ parameters


def test_linear_model_is_lazy_however_far_it_goes():
    report = laziness(linear, np.ones(4), np.array([50.0, -3.0, 0.0, 7.0]), INPUTS)
    assert report.distance < 1e-14
    assert report.kernel_change.distance == 0
    assert report.verdict == "lazy"
    assert report.parameter_motion == pytest.approx(np.linalg.norm([49, -4, -1, 6]) / 2, rel=1e-14)


# The scalar linear network: theorem 1 says where it ends, and everything here is a formula of that.


def scalar_apply(scale):
    return lambda layers, inputs: inputs * jnp.sum(layers["first"] * layers["second"]) / scale


def trained_by_theorem(model):
    last = model.predict([0.0, 1e9]).isel(time=-1)
    before = {"first": np.asarray(model.initial_first), "second": np.asarray(model.initial_second)}
    return before, {"first": last["first"].values, "second": last["second"].values}


MODELS = {
    "small": ScalarNetwork.small(30, scale=0.05, key=1),
    "ntk": ScalarNetwork.ntk(300, target=0.7, key=2),
    "target": ScalarNetwork.target_downscaled(20, factor=30, key=3),
    "output": ScalarNetwork.output_downscaled(20, factor=50, key=4),
    "any": ScalarNetwork([1.0, -2.0, 0.3], [0.5, 0.1, -0.4], -1.3, output_scale=1.7),
}


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("small", "rich"), ("ntk", "lazy"), ("target", "lazy"), ("output", "rich"), ("any", "intermediate")],
)
def test_scalar_network_by_its_formulas(name, verdict):
    """The tangent model misses sum_i Δa_i Δb_i / Z = [(√γ - 1)² P - (1/√γ - 1)² Q] / 2, the kernel goes to K/Σ_0."""
    model = MODELS[name]
    before, after = trained_by_theorem(model)
    report = laziness(scalar_apply(model.output_scale), before, after, SAMPLE)
    plus, minus = model.initial_first + model.initial_second, model.initial_first - model.initial_second
    aligned, opposed = (np.sum(part**2) / (2 * model.output_scale) for part in (plus, minus))
    root = np.sqrt(model.final_growth)
    missed = ((root - 1) ** 2 * aligned - (1 / root - 1) ** 2 * opposed) / 2
    gap = model.target - model.initial_output
    assert report.distance == pytest.approx(abs(missed / gap), rel=1e-8)
    assert report.kernel_change.distance == pytest.approx(abs(float(model.kernel_ratio().kernel_ratio) - 1), rel=1e-8)
    assert report.kernel_change.misalignment < 1e-25
    assert report.verdict == verdict
    if name != "target":  # which starts at zero
        assert report.function_motion == pytest.approx(abs(gap / model.initial_output), rel=1e-8)
    moved = {key: np.linalg.norm(after[key] - before[key]) / np.linalg.norm(before[key]) for key in before}
    assert dict(report.parameter_motion_of) == {f"['{key}']": pytest.approx(value) for key, value in moved.items()}


@pytest.mark.parametrize("name", ["ntk", pytest.param("output", marks=pytest.mark.slow)])
def test_trained_tangent_model_is_as_far_as_the_scalar_network_says(name):
    """Both models descend side by side; distance_from_linear is an exact maximum over time.

    Steps of 1/500 of the fastest relaxation shift a curve by at most half a step, 1e-3 of it.
    """
    model = MODELS[name]
    apply = scalar_apply(model.output_scale)
    start = {"first": jnp.asarray(model.initial_first), "second": jnp.asarray(model.initial_second)}
    tangent, one = tangent_model(apply, start), jnp.ones(1)
    rate = 2 * max(model.weight_size, model.weight_size * float(model.kernel_ratio().kernel_ratio)) / model.output_scale
    step, steps = 1 / (500 * rate), 40_000

    def followed(own):
        def update(parameters, _):
            output, pull = jax.vjp(lambda layers: own(layers, one), parameters)
            (slope,) = pull(output - model.target)
            return jax.tree.map(lambda value, down: value - step * down, parameters, slope), output[0]

        return jax.lax.scan(update, start, None, steps)[1]

    apart = jnp.max(jnp.abs(jax.jit(followed, static_argnums=0)(apply) - jax.jit(followed, static_argnums=0)(tangent)))
    expected = float(model.distance_from_linear().distance_from_linear)
    assert float(apart) / abs(model.target - model.initial_output) == pytest.approx(expected, abs=2e-3)


# Limits


def two_layers(parameters, inputs):
    """In NTK parameterisation."""
    first, second = parameters
    return jnp.tanh(inputs @ first.T / 2) @ second / jnp.sqrt(second.size)


TARGETS = np.sin(2 * INPUTS[:, 0])


@partial(jax.jit, static_argnums=2)
def descended(start, rate, steps):
    def loss(parameters):
        return jnp.mean((two_layers(parameters, INPUTS) - TARGETS) ** 2) / 2

    def update(parameters, _):
        return jax.tree.map(lambda value, down: value - rate * down, parameters, jax.grad(loss)(parameters)), None

    return jax.lax.scan(update, start, None, steps)[0]


def start_of(width, key=0, scale=1.0):
    draw = np.random.default_rng(key).normal
    # Units cancel in pairs, so that the output starts at zero and all widths travel the same way.
    first, second = draw(size=(width // 2, 4)), draw(size=width // 2)
    return scale * jnp.tile(first, (2, 1)), scale * jnp.concatenate([jnp.asarray(second), -jnp.asarray(second)])


def test_wide_networks_are_lazy_as_one_over_width():
    """From 128 to 512 units distance and kernel change fall by 4.

    The general bound is the square root; with one hidden layer the leading change is a sum of terms of random sign,
    a root smaller. Over 20 other keys the logarithms of the ratios spread by 0.36 and 0.16; four errors of 8 keys.
    """
    found = {128: [], 512: []}
    for width, measured in found.items():
        for key in range(8):
            start = start_of(width, key)
            report = laziness(two_layers, start, descended(start, 1.0, 60), INPUTS)
            measured.append((report.distance, report.kernel_change.distance))
            assert report.verdict == "lazy"
    distance, kernel = np.mean(np.log(found[128]) - np.log(found[512]), axis=0)
    assert distance == pytest.approx(np.log(4), abs=0.51)
    assert kernel == pytest.approx(np.log(4), abs=0.23)


def test_small_start_is_rich():
    start = start_of(64, scale=0.05)
    report = laziness(two_layers, start, descended(start, 2.0, 4000), INPUTS)
    assert report.verdict == "rich"
    assert report.distance > 0.5
    assert report.kernel_change.misalignment > 0.1


def random_weights(key):
    draw = np.random.default_rng(key).normal
    return jnp.asarray(draw(size=(8, 4))), jnp.asarray(draw(size=8))


@settings(max_examples=8)
@given(st.floats(1e-6, 1e-3), st.integers(1, 100))
def test_distance_is_second_order_in_a_step(step, key):
    """Along any direction the tangent misses half the second derivative: distance/step tends to |f''|/(2|f'|)."""
    start, toward = random_weights(0), random_weights(key)
    first, second, third = derivatives(start, toward)
    after = jax.tree.map(lambda value, way: value + step * way, start, toward)
    report = laziness(two_layers, start, after, INPUTS, kernel_inputs=0)
    size = [np.linalg.norm(part) for part in (first, second, third)]
    next_order = step * (size[2] / (3 * size[1]) + size[1] / (2 * size[0]))
    assert report.distance == pytest.approx(
        step * size[1] / (2 * size[0]), rel=1.5 * next_order, abs=10 * report.rounding
    )


@jax.jit
def derivatives(start, toward):
    line = lambda s: two_layers(jax.tree.map(lambda value, way: value + s * way, start, toward), INPUTS)  # noqa: E731
    slope = jax.jacfwd(line)
    return slope(0.0), jax.jacfwd(slope)(0.0), jax.jacfwd(jax.jacfwd(slope))(0.0)


# Libraries


def test_torch_and_equinox_agree():
    torch = pytest.importorskip("torch")
    module = eqx.nn.MLP(4, 2, 8, 1, key=jax.random.key(0), activation=jnp.tanh)
    moved = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.sin(7 * leaf) if eqx.is_array(leaf) else leaf, module)

    def twin(source):
        network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).double()
        for layer, own in zip((network[0], network[2]), source.layers, strict=True):
            layer.weight.data, layer.bias.data = (torch.as_tensor(np.array(part)) for part in (own.weight, own.bias))
        return network

    here = laziness(module, module, moved, INPUTS, batch_size=3)
    there = laziness(twin(module), twin(module).state_dict(), twin(moved), INPUTS, batch_size=4)
    assert there.distance == pytest.approx(here.distance, rel=1e-10)
    assert there.kernel_change == pytest.approx(here.kernel_change, rel=1e-8)
    assert there.parameter_motion == pytest.approx(here.parameter_motion, rel=1e-12)
    assert list(there.parameter_motion_of) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert next(iter(here.parameter_motion_of)) == "layers[0].weight"


def test_single_precision_says_so():
    start = jax.tree.map(lambda part: part.astype(jnp.float32), random_weights(2))
    after = jax.tree.map(lambda part: part * jnp.float32(1 + 1e-4), start)
    single = laziness(two_layers, start, after, INPUTS, kernel_inputs=0)
    double = laziness(two_layers, start, after, INPUTS, kernel_inputs=0, dtype="float64")
    assert (single.precision, double.precision) == ("float32", "float64")
    assert single.rounding > 1e8 * double.rounding
    half = jax.tree.map(lambda part: part.astype(jnp.bfloat16), start)
    assert laziness(two_layers, half, jax.tree.map(lambda part: part * 2, half), INPUTS).precision == "bfloat16"


# The report


def test_report_as_text_and_json():
    start = (np.zeros((2, 4)), np.ones(2))
    after = (np.full((2, 4), 0.1), np.ones(2) * 1.1)
    report = laziness(two_layers, start, after, INPUTS)
    assert report.parameter_motion_of["[0]"] == np.inf
    assert repr(report).startswith(f"LazinessReport({report.verdict}: distance={report.distance:.4g}, kernel change=")
    assert "10 inputs, kernel on 10, in float64" in report.summary()
    assert "lazy below 0.1, rich above 0.5" in report.summary()
    values = json.loads(report.to_json())
    assert values["verdict"] == report.verdict
    assert values["parameter_motion_of"]["[0]"] == "inf"
    assert values["kernel_change"]["distance"] == report.kernel_change.distance
    assert values["thresholds"] == [0.1, 0.5]


@pytest.mark.parametrize(
    ("distance", "kernel", "verdict"),
    [
        (0.05, 0.05, "lazy"),
        (0.05, 0.3, "intermediate"),
        (0.3, 0.05, "intermediate"),
        (0.6, 0.0, "rich"),
        (0, 2, "rich"),
    ],
)
def test_verdict_takes_the_larger_of_both(distance, kernel, verdict):
    from solvable.diagnostics import KernelChange

    report = LazinessReport(distance, 1.0, 0.1, {"w": 0.1}, KernelChange(kernel, 0.0), (0.1, 0.5), 3, 3, "float64", 0.0)
    assert report.verdict == verdict


def test_bad_input():
    start = (np.ones((2, 4)), np.ones(2))
    with pytest.raises(ValueError, match="copy.deepcopy"):
        laziness(two_layers, start, copy.deepcopy(start), INPUTS)
    with pytest.raises(ValueError, match="only one of them has"):
        laziness(linear, {"a": np.ones(4)}, {"b": np.ones(4)}, INPUTS)
    with pytest.raises(ValueError, match=r"shape \(4,\) before and \(5,\) after"):
        laziness(linear, np.ones(4), np.ones(5), INPUTS)
    with pytest.raises(ValueError, match="thresholds must be two positive numbers"):
        laziness(linear, np.ones(4), np.zeros(4), INPUTS, thresholds=(0.5, 0.1))
    with pytest.raises(ValueError, match="after is not finite on input 0"):
        laziness(linear, np.ones(4), np.full(4, np.nan), INPUTS)
    with pytest.raises(ValueError, match="kernel_inputs must be"):
        laziness(linear, np.ones(4), np.zeros(4), INPUTS, kernel_inputs=-1)
    with pytest.raises(ValueError, match="batch_size must be"):
        laziness(linear, np.ones(4), np.zeros(4), INPUTS, batch_size=0)
