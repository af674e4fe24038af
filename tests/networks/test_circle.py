"""Functions on the circle: the task, kernels of wide and finite networks there, and training against them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from solvable.fits import power_law
from solvable.networks import MLP, Fixed, Fresh, centred, train, trainable
from solvable.networks.compensation import compensated
from solvable.networks.tasks.circle import circle, circle_grid, circle_inputs, circle_target, fourier_decay
from solvable.networks.tasks.circle_kernel import (
    circle_spectrum,
    dual_activation,
    he_scale,
    lazy_loss,
    linearised_loss,
    mlp_tangent_kernel,
    wave_spectrum,
)

SETTING = {"weight_scale": he_scale(), "bias_scale": 0.3, "input_scale": 0.7}


def test_a_grid_integrates_the_target_exactly() -> None:
    task = circle(source=0.75, capacity=1.6, points=64, dtype=jnp.float64)
    assert isinstance(task, Fixed)
    decay = fourier_decay(0.75, 1.6)
    coefficients = np.fft.rfft(np.asarray(task.targets[:, 0])) * 2 / 64
    waves = np.arange(1, 32)
    np.testing.assert_allclose(coefficients[1:32], waves**-decay, rtol=0, atol=1e-14)
    assert abs(coefficients[[0, 32]]).max() < 1e-14
    assert (2 * decay - 1) / 1.6 == pytest.approx(0.75)
    np.testing.assert_allclose((task.inputs**2).sum(1), 1, rtol=1e-15)


def test_phases_turn_waves_and_keep_their_sizes() -> None:
    plain, turned = (
        circle(1.2, points=64, random_phases=phases, key=jax.random.key(1), dtype=jnp.float64).targets[:, 0]
        for phases in (False, True)
    )
    sizes = [np.abs(np.fft.rfft(np.asarray(values))) for values in (plain, turned)]
    np.testing.assert_allclose(*sizes, atol=1e-13)
    assert float(jnp.abs(plain - turned).max()) > 0.1


def test_many_waves_are_summed_in_parts() -> None:
    angles = jnp.asarray([0.3, 2.0])
    waves = np.arange(1, 701)
    expected = [(waves**-1.5 * np.cos(waves * angle)).sum() for angle in (0.3, 2.0)]
    np.testing.assert_allclose(circle_target(angles, 1.5, 700), expected, rtol=1e-12)


def test_fresh_points_lie_on_the_same_function() -> None:
    task = circle(1.0, kind="fresh", points=64, dtype=jnp.float64)
    assert isinstance(task, Fresh)
    inputs, targets = task.sample(jax.random.key(0), 64)
    angles = jnp.arctan2(inputs[:, 1], inputs[:, 0])
    np.testing.assert_allclose(targets[:, 0], circle_target(angles, 1.0, 31), atol=1e-12)
    assert task.test_inputs.shape == (64, 2)


def test_fresh_points_of_several_decays_are_trained_side_by_side() -> None:
    """The decay of a variant is traced: it used to leak out of the program that made the task."""
    runs = train(
        lambda key, **_: MLP(2, 1, 4, 2, key=key),
        lambda key, decay: circle(decay, kind="fresh", points=8),
        optax.sgd(0.0),
        steps=1,
        batch_size=2,
        measure_at=[1],
        variants={"decay": [1.0, 4.0]},
    )
    # Outputs are the same; with modes 1 ... 3 of amplitude k^-q the mean square of the target is half of sum k^-2q.
    smooth, rough = (float(circle(decay, points=8).targets.var()) for decay in (4.0, 1.0))
    assert smooth == pytest.approx(0.5, rel=0.01)
    assert rough == pytest.approx(0.5 * (1 + 1 / 4 + 1 / 9), rel=1e-5)
    assert runs.curves.test_loss.sizes["variant"] == 2
    assert float(runs.curves.test_loss[0, 0, -1]) != float(runs.curves.test_loss[1, 0, -1])


def test_tasks_of_many_sources_are_made_side_by_side() -> None:
    sources = jnp.asarray([0.5, 1.25])
    made = jax.vmap(lambda source: circle(source=source, points=64).targets)(sources)
    np.testing.assert_array_equal(made[1], circle(source=1.25, points=64).targets)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({}, "either decay"),
        ({"decay": 1.0, "source": 0.5}, "either decay"),
        ({"decay": 0.5}, "above 1/2"),
        ({"source": -1.0}, "source must be"),
        ({"source": 0.5, "capacity": float("inf")}, "capacity must be"),
        ({"decay": 1.0, "kind": "grid"}, "kind must be"),
        ({"decay": 1.0, "points": 64, "modes": 32}, "more points"),
        ({"decay": 1.0, "points": 2}, "more points"),
        ({"decay": 1.0, "random_phases": True}, "need a key"),
    ],
)
def test_impossible_tasks_are_refused(arguments: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        circle(**arguments)


@settings(max_examples=20, deadline=None)
@given(st.floats(-0.2, 3.0), st.floats(-0.99, 0.99))
def test_dual_activation_is_the_gaussian_mean(power: float, correlation: float) -> None:
    # Polar coordinates: the radius gives 2^q Γ(q + 1), the angle is integrated over the overlap of two half planes.
    from scipy.special import gamma

    turn = np.arccos(correlation)
    edge = (np.pi - turn) / 2

    # x = edge sin(s) takes away the end points' singularity of negative powers.
    def integrand(s: float) -> float:
        x = edge * np.sin(s)
        return max(np.cos(x - turn / 2) * np.cos(x + turn / 2), 0.0) ** power * edge * np.cos(s)

    expected = 2**power * gamma(power + 1) / (2 * np.pi) * quad(integrand, -np.pi / 2, np.pi / 2, epsabs=1e-12)[0]
    assert float(dual_activation(power, correlation)) == pytest.approx(expected, rel=1e-6, abs=1e-13)


def test_the_arc_cosine_kernels() -> None:
    turn = np.linspace(0, np.pi, 9)
    np.testing.assert_allclose(dual_activation(0, np.cos(turn)), (np.pi - turn) / (2 * np.pi), atol=1e-12)
    arc = (np.sin(turn) + (np.pi - turn) * np.cos(turn)) / (2 * np.pi)
    np.testing.assert_allclose(dual_activation(1, np.cos(turn)), arc, atol=1e-15)


@pytest.mark.parametrize("power", [0.75, 1.0, 1.5])
@pytest.mark.parametrize("depth", [2, 3])
def test_eigenvalues_fall_with_twice_the_power(power: float, depth: int) -> None:
    values = circle_spectrum(depth, power, weight_scale=he_scale(power), bias_scale=0.5, points=2**15)
    waves = np.arange(200, 801)
    slope = float(power_law(values[waves], waves, resamples=0).exponent)
    # Corrections are of relative order k^(1 - 2 power) at the slowest: 200^-1/2 shared by two layers.
    assert slope == pytest.approx(2 * power, abs=0.05 if power < 1 else 0.005)


def test_without_bias_and_depth_every_second_eigenvalue_is_missing() -> None:
    bare = circle_spectrum(2, bias=False, points=2**12)
    assert abs(bare[3:200:2]).max() < 1e-15 < 1e-7 < bare[2:200:2].min()
    for filled in (circle_spectrum(2, points=2**12), circle_spectrum(3, bias=False, points=2**12)):
        assert filled[1:200].min() > 1e-7


@pytest.mark.parametrize(("depth", "power", "bias"), [(3, 1.5, True)])
def test_the_kernel_by_layers_is_that_of_all_gradients(depth: int, power: float, bias: bool) -> None:
    network = MLP(
        2, 1, 7, depth, key=jax.random.key(3), parameterisation="mean-field", richness=0.3, power=power, bias=bias,
        **SETTING, dtype=jnp.float64,
    )  # fmt: skip
    trained, rest = eqx.partition(network, trainable(network))
    gradients = jax.jit(jax.vmap(lambda point: jax.grad(lambda part: eqx.combine(part, rest)(point)[0])(trained)))
    rows = jax.tree.leaves(gradients(circle_inputs(circle_grid(32))))
    jacobian = np.concatenate([np.asarray(leaf).reshape(32, -1) for leaf in rows], axis=1)
    np.testing.assert_allclose(mlp_tangent_kernel(network, 32), jacobian @ jacobian.T * 0.3**2 * 7, atol=1e-13)


def test_wide_networks_have_the_spectrum_of_the_recursion() -> None:
    seeds = range(6)
    measured = []
    for seed in seeds:
        network = MLP(2, 1, 512, 3, key=jax.random.key(seed), parameterisation="mean-field", **SETTING)
        measured.append(wave_spectrum(mlp_tangent_kernel(network, 32))[:12])
    expected = circle_spectrum(3, **SETTING, points=32)[:12]
    error = np.std(measured, axis=0, ddof=1) / np.sqrt(len(seeds))
    # Six seeds: Student's t with 5 degrees beyond 6.9 has a chance of 1e-3; twelve waves, 1%. The key is fixed.
    assert (abs(np.mean(measured, axis=0) - expected) < 6.9 * error).all()
    assert (error < 0.08 * expected).all()


def test_the_linearised_loss_of_the_infinite_network_is_the_sum_over_waves() -> None:
    points = 32
    eigenvalues = circle_spectrum(3, **SETTING, points=points)
    waves = np.arange(-points // 2, points // 2)
    angle = 2 * np.pi * np.arange(points) / points
    kernel = (eigenvalues[abs(waves)] * np.exp(1j * np.subtract.outer(angle, angle)[..., None] * waves)).sum(-1).real
    target = circle(1.25, points=points, dtype=jnp.float64).targets
    times = [0.0, 1.0, 30.0]
    np.testing.assert_allclose(
        linearised_loss(times, kernel, target)[0], lazy_loss(times, eigenvalues, 1.25), rtol=1e-9
    )
    np.testing.assert_allclose(wave_spectrum(kernel), eigenvalues[: points // 2], atol=1e-14)


@pytest.mark.slow
def test_a_lazy_network_trains_like_the_model_tangent_to_it() -> None:
    rate, at, richness = 0.2, np.array([0, 20, 200]), 1e-3
    task = circle(source=0.75, points=32)
    runs = train(
        lambda key: centred(MLP(2, 1, 64, 2, key=key, parameterisation="mean-field", richness=richness, **SETTING)),
        task,
        optax.sgd(rate * richness**2 * 64),
        steps=int(at[-1]),
        measure_at=at,
        loss="half-mse",
        precision="float64",
        progress=False,
    )
    kernel = mlp_tangent_kernel(runs.network().initial.value, 32)
    values, vectors = np.linalg.eigh(np.asarray(kernel) / 32)
    shares = (vectors.T @ np.asarray(task.targets[:, 0], float)) ** 2 / 64
    expected = [shares @ (1 - rate * values) ** (2 * steps) for steps in at]
    # Features move by the richness of what they are, 1e-3; targets are of 32 bits.
    np.testing.assert_allclose(runs.curves.train_loss[0], expected, rtol=2e-3)
    flow = linearised_loss(rate * at, kernel, task.targets)[0]
    # Flow and descent: rates differ by (η λ) / 2, a few percent of the waves that are being learned.
    np.testing.assert_allclose(flow, expected, rtol=0.05)


def test_steps_below_the_rounding_of_a_weight_are_not_lost() -> None:
    optimiser, plain = compensated(optax.sgd(1.0)), optax.sgd(1.0)
    start = jnp.asarray([1.0, 0.3], jnp.float32)
    gradient = jnp.asarray([1e-8, -1e-9], jnp.float32)

    def descend(method: optax.GradientTransformation) -> np.ndarray:
        def step(carry: tuple, _: None) -> tuple:
            weights, state = carry
            updates, state = method.update(gradient, state, weights)
            return (optax.apply_updates(weights, updates), state), None

        return np.asarray(jax.lax.scan(step, (start, method.init(start)), length=1000)[0][0] - start)

    # A thousand steps of a sixth and a fifteenth of half a unit in the last place; one such unit may still be owed.
    assert (descend(plain) == 0).all()
    np.testing.assert_allclose(descend(optimiser), [-1e-5, 1e-6], atol=6e-8)
    with pytest.raises(ValueError, match="needs the parameters"):
        optimiser.update(gradient, optimiser.init(start))


def test_the_lazy_exponent_is_the_source() -> None:
    eigenvalues = circle_spectrum(3, weight_scale=he_scale(), input_scale=0.25, points=2**14)
    times = np.geomspace(100, 3000, 16)
    for source in (0.5, 0.75, 1.25):
        losses = lazy_loss(times, eigenvalues, fourier_decay(source))
        # The spectrum of k^-2 holds within some percent from k of about 5 on.
        assert float(power_law(losses, times, resamples=0).exponent) == pytest.approx(source, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"depth": 0}, "depth"),
        ({"depth": 2, "power": 0.5}, "power must be above 1/2"),
        ({"depth": 2, "weight_scale": 0.0}, "weight_scale"),
        ({"depth": 2, "input_scale": float("inf")}, "input_scale"),
        ({"depth": 2, "bias_scale": -1.0}, "bias_scale"),
    ],
)
def test_impossible_networks_are_refused(arguments: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        circle_spectrum(**arguments)


def test_impossible_curves_are_refused() -> None:
    with pytest.raises(ValueError, match="a row for each point"):
        linearised_loss([1.0], np.eye(4), np.ones((3, 1)))
    with pytest.raises(ValueError, match="resolves 2 waves"):
        wave_spectrum(np.eye(4), 3)
    with pytest.raises(ValueError, match="modes must be below"):
        lazy_loss([1.0], np.ones(4), 1.0, modes=4)
    with pytest.raises(ValueError, match="power must be above"):
        dual_activation(-0.5, 0.0)
    masked = MLP(2, 1, 7, 3, key=jax.random.key(0), parameterisation="mean-field", active_width=4, dtype=jnp.float64)
    with pytest.raises(ValueError, match="active_width"):
        mlp_tangent_kernel(masked, 8)
