"""Expected gradient flow on finite samples, against exact transforms, the Marchenko-Pastur law and its own limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.models.linear_estimator.spectra import MarchenkoPastur
from solvable.models.linear_features.laplace import hyperbola, invert, invert_twice
from solvable.models.linear_features.regression_flow import FlowState, flow_state, kappa_along, kappa_or_zero
from solvable.numerics.kappa import learnability

NODES = 14
# What quadrature with 14 nodes and rounding leave, relative to values of order one; see the module laplace.
ERROR = 5e-12


def state(intensities: np.ndarray, target: np.ndarray, samples: float, noise: float, time: float) -> FlowState:
    arrays = (jnp.asarray(value, float) for value in (intensities, target, samples, noise, time))
    return _compiled(*arrays)


_compiled = jax.jit(lambda *arrays: flow_state(*arrays, NODES))


@pytest.mark.parametrize("time", [1e-4, 1.0, 1e6])
def test_exponentials_and_their_products_are_inverted(time: float) -> None:
    contour = hyperbola(jnp.asarray(time), NODES)
    z = contour.points
    for rate in (0.0, 1e-5, 0.3, 50.0):
        assert float(invert(contour, 1 / (z + rate))) == pytest.approx(np.exp(-rate * time), abs=ERROR)
    # sum_ij c_ij exp(-(a_i + b_j) t) has the transform sum_ij c_ij / (z + a_i) / (z' + b_j).
    same = 1 / (z[:, None] + 0.3) / (z + 1.0) + 1 / z[:, None] / (z + 0.1)
    mirrored = 1 / (z[:, None] + 0.3) / (z.conj() + 1.0) + 1 / z[:, None] / (z.conj() + 0.1)
    expected = np.exp(-1.3 * time) + np.exp(-0.1 * time)
    assert float(invert_twice(contour, same, mirrored)) == pytest.approx(expected, abs=ERROR)


@pytest.mark.parametrize("samples", [5.0, 29.0, 30.0, 31.0, 200.0])
def test_kappa_keeps_its_equation_and_its_sheet_all_along_the_contour(samples: float) -> None:
    intensities = jnp.arange(1, 31.0) ** -3
    follow = jax.jit(kappa_along)
    for time in (1e-3, 1.0, 1e3, 1e7):
        contour = hyperbola(jnp.asarray(time), NODES)
        values = follow(intensities, jnp.asarray(samples), contour)
        balance = jnp.sum(intensities / (intensities + values[:, None]), axis=1) + samples * contour.points / values
        assert np.allclose(balance, samples, rtol=1e-11)
        # The resolvent of a positive matrix: kappa lies between the positive axis and z.
        assert np.all((np.angle(values) >= 0) & (np.angle(values) <= np.angle(contour.points)))


@pytest.mark.parametrize("ratio", [0.25, 0.9, 1.0, 1.5, 4.0])
@pytest.mark.parametrize("time", [0.1, 3.0, 100.0])
def test_alike_modes_follow_the_marchenko_pastur_law(ratio: float, time: float) -> None:
    """With all intensities 1 every curve is an average over that law, for which there is another quadrature."""
    modes, noise = 40, 0.7
    samples = modes / ratio
    target = np.linspace(1, 2, modes)
    found = state(np.ones(modes), target, samples, noise, time)
    law = MarchenkoPastur(ratio)
    power, nodes = np.sum(target**2), law.nodes
    left = jnp.exp(-time * nodes)
    missing = float(law.average(left, 1.0))
    noise_left = 1 - ratio * float(law.average(1 - left, 0.0))
    noise_left_twice = 1 - ratio * float(law.average(1 - left**2, 0.0))
    train = power / 2 * float(law.average(nodes * left**2)) + noise**2 / 2 * noise_left_twice
    assert np.allclose(found.missing, missing, atol=ERROR)
    assert float(found.noise_left) == pytest.approx(noise_left, abs=ERROR)
    assert float(found.train_loss) == pytest.approx(train, abs=ERROR * power)
    assert float(found.signal_loss) == pytest.approx(power / 2 * float(law.average(left**2, 1.0)), abs=ERROR * power)
    by_noise = noise**2 / 2 * ratio * float(law.average((1 - left) ** 2 / nodes, 0.0))
    # At ratio 1 the law has weight down to zero and the average of 1/nu grows with time: compare relative to it.
    assert float(found.noise_loss) == pytest.approx(by_noise, abs=ERROR, rel=1e-10)


@pytest.mark.parametrize("samples", [12.0, 45.0, 50.0, 90.0])
def test_noise_is_a_signal_nobody_can_learn(samples: float) -> None:
    """A target on a mode of no intensity acts as label noise of the same power: two formulas for one number."""
    intensities = np.r_[np.arange(1, 51.0) ** -1.5, 0.0]
    dead = np.r_[np.zeros(50), 0.6]
    for time in (0.5, 20.0, 1e4):
        as_signal = state(intensities, dead, samples, 0.0, time)
        as_noise = state(intensities, 0 * dead, samples, 0.6, time)
        # The unlearned mode itself stays in the loss.
        assert float(as_signal.signal_loss) == pytest.approx(float(as_noise.noise_loss) + 0.18, abs=ERROR)
        assert float(as_signal.train_loss) == pytest.approx(float(as_noise.train_loss), abs=ERROR)


def test_late_times_end_in_the_interpolating_solution() -> None:
    intensities, samples, noise = np.r_[np.ones(5), np.full(395, 1e-3)], 60.0, 0.3
    target = np.r_[1.0, 0.5, np.zeros(398)]
    found = state(intensities, target, samples, noise, 1e9)
    shares = learnability(intensities, kappa_or_zero(jnp.asarray(intensities), jnp.asarray(samples)))
    gamma = float(jnp.sum(shares**2)) / samples
    assert np.allclose(1 - found.missing, shares, atol=ERROR)
    bias = float(jnp.sum(target**2 * (1 - shares) ** 2)) / 2
    assert float(found.signal_loss) == pytest.approx(bias / (1 - gamma), abs=ERROR)
    assert float(found.noise_loss) == pytest.approx(noise**2 / 2 * gamma / (1 - gamma), abs=ERROR)
    assert float(found.train_loss) == pytest.approx(0, abs=ERROR)


def test_early_times_are_those_of_the_population() -> None:
    """To first order in time: w_k rho_k t learned, whatever the samples."""
    intensities = np.arange(1, 41.0) ** -1
    found = state(intensities, np.ones(40), 15.0, 0.5, 1e-6)
    assert np.allclose((1 - found.missing) / 1e-6, intensities, rtol=2e-4, atol=1e-6)
    assert float(found.noise_left) == pytest.approx(1 - 1e-6 * intensities.sum() / 15, abs=1e-10)


def test_derivatives_agree_with_differences() -> None:
    intensities, target = jnp.arange(1, 21.0) ** -1.5, jnp.arange(1, 21.0) ** -0.5

    def loss(scale: jax.Array, samples: jax.Array, noise: jax.Array) -> jax.Array:
        values = intensities.at[3].multiply(scale)
        found = flow_state(values, target, samples, noise, jnp.asarray(30.0), NODES)
        return found.signal_loss + found.noise_loss + found.train_loss

    point = (1.0, 12.0, 0.3)
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*point)
    compiled = jax.jit(loss)
    for index in range(3):
        step = 1e-4
        up, down = ([v + sign * step * (i == index) for i, v in enumerate(point)] for sign in (1, -1))
        difference = (compiled(*up) - compiled(*down)) / (2 * step)
        # Rounding 1e-13 over the step, and its square times a third derivative of order one.
        assert float(gradient[index]) == pytest.approx(float(difference), abs=3e-8)
