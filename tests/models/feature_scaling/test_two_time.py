"""The march of the two-time equations: against iteration, exact recursions and its own limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from benchmarks.two_time_fixed_point import fixed_point

from solvable.models.feature_scaling.kernel_flow import Steps, descend, flow
from solvable.models.feature_scaling.mode_quadrature import Modes, power_law_modes
from solvable.models.feature_scaling.optimiser import update_kernel
from solvable.models.feature_scaling.two_time import Descent, march

# All marches here have 64 rows of 24 nodes, so that each kind of them is compiled once.
ROWS = 64
SMALL = power_law_modes(1.5, 0.4, 24, 10.0)
EASY = power_law_modes(1.5, 1.2, 24, 10.0)


@pytest.mark.parametrize("modes", [SMALL, EASY], ids=["hard", "easy"])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"features": 16, "batch": 8},
        {"batch": 4},
        {"features": 30, "samples": 12},
        {"features": 8},
        {"features": 16, "batch": 8, "momentum": 0.4, "nesterov": True},
    ],
    ids=str,
)
def test_one_pass_is_the_fixed_point(modes: Modes, sizes: dict[str, float]) -> None:
    plan = Descent(0.2, 0.7, **sizes)
    solution, iterated = march(modes, plan, ROWS), fixed_point(modes, plan, ROWS)
    # The iteration stops at changes of 1e-12 and converges by about a third a sweep.
    np.testing.assert_allclose(solution.test_loss, iterated.test_loss, rtol=1e-9)
    np.testing.assert_allclose(solution.train_loss, iterated.train_loss, rtol=1e-9)
    largest = np.max(np.abs(iterated.correlation_3))
    np.testing.assert_allclose(solution.correlation_3, iterated.correlation_3, atol=1e-9 * largest)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.7, False), (0.7, True)])
def test_the_kernel_of_an_optimiser_moves_as_its_steps_do(momentum: float, nesterov: bool) -> None:
    """PyTorch's and Optax's recursion on any gradients, with a learning rate that changes at every step."""
    generator = np.random.default_rng(0)
    gradients, rates = generator.normal(size=12), generator.uniform(0.1, 1.0, 12)
    weight, velocity, path = 0.0, 0.0, []
    for gradient, rate in zip(gradients, rates, strict=True):
        path.append(weight)
        velocity = momentum * velocity + gradient
        weight -= rate * (gradient + momentum * velocity if nesterov else velocity)
    kernel = update_kernel(rates, 12, momentum, nesterov)
    np.testing.assert_allclose(-kernel @ gradients, path, rtol=1e-12)


def test_a_little_momentum_has_a_derivative() -> None:
    """d Theta / d mu at mu = 0: the step before last counts once more."""
    found = jax.jacfwd(lambda momentum: update_kernel(0.1, 4, momentum))(0.0)
    np.testing.assert_allclose(found, [[0, 0, 0, 0], [0, 0, 0, 0], [0.1, 0, 0, 0], [0.1, 0.1, 0, 0]])


def test_stretches_of_the_march_join() -> None:
    """Arrays grow at row 64; rows beyond must see all earlier ones."""
    plan = Descent(0.2, 0.5, features=16, batch=8)
    np.testing.assert_allclose(march(SMALL, plan, 70).test_loss, fixed_point(SMALL, plan, 70).test_loss, rtol=1e-9)


def test_infinite_sizes_are_descent_of_the_network_itself() -> None:
    solution = march(SMALL, Descent(0.2, 0.7), ROWS)
    network = descend(SMALL, 0.7, Steps(0.2), ROWS)
    np.testing.assert_allclose(solution.node_loss, network.node_loss, rtol=1e-12)
    np.testing.assert_allclose(1 + 0.7 * np.diagonal(solution.weight_correlation), network.growth, rtol=1e-13)


def test_lazy_noiseless_descent_shrinks_each_mode() -> None:
    lam, target = SMALL.eigenvalues, SMALL.targets
    expected = [(lam * target * (1 - 0.2 * lam) ** (2 * step)).sum() for step in range(ROWS)]
    np.testing.assert_allclose(march(SMALL, Descent(0.2, 0.0), ROWS).test_loss, expected, rtol=1e-12)


@pytest.mark.parametrize("exact", [False, True])
def test_lazy_batches_are_the_exact_recursion_of_second_moments(exact: bool) -> None:
    """<v_k^2> shrinks and is fed by (lambda_k L + lambda_k^2 <v_k^2>) eta^2 / B; theory drops the last term."""
    rate, batch = 0.3, 3
    lam, moment = SMALL.eigenvalues, SMALL.targets.copy()
    expected = []
    for _ in range(ROWS):
        loss = (lam * moment).sum()
        expected.append(loss)
        noise = lam * loss + (lam**2 * moment if exact else 0.0)
        moment = (1 - rate * lam) ** 2 * moment + rate**2 / batch * noise
    solution = march(SMALL, Descent(rate, 0.0, batch=batch), ROWS, exact_batch=exact)
    np.testing.assert_allclose(solution.test_loss, expected, rtol=1e-11)


@pytest.mark.slow
def test_reused_samples_become_new_ones_as_they_grow() -> None:
    online = march(SMALL, Descent(0.2, 0.5, features=20, batch=8), ROWS)
    many = march(SMALL, Descent(0.2, 0.5, features=20, batch=8, samples=1e7), ROWS)
    # Corrections are of order modes / samples.
    np.testing.assert_allclose(many.test_loss, online.test_loss, rtol=1e-4)
    np.testing.assert_allclose(many.train_loss, online.test_loss, rtol=1e-4)
    whole = march(SMALL, Descent(0.2, 0.5, samples=12), ROWS)
    large = march(SMALL, Descent(0.2, 0.5, samples=12, batch=1e9), ROWS)
    np.testing.assert_allclose(large.train_loss, whole.train_loss, rtol=1e-6)


def test_batches_of_reused_samples_agree_with_averaged_datasets() -> None:
    """Second moments over batches are exact for each drawn dataset; their mean over datasets is what theory gives.

    Many equal modes make what theory drops (of order 1/24, 1/48) small; half of the training loss is noise of batches.
    """
    modes, samples, batch, rate, steps = 96, 48, 2, 0.01, 64
    generator = np.random.default_rng(11)
    test, train = np.zeros(steps), np.zeros(steps)
    for _ in range(12):
        inputs = generator.standard_normal((samples, modes))
        goal = generator.standard_normal(modes)
        goal *= np.sqrt(modes) / np.linalg.norm(goal)
        covariance, moment = inputs.T @ inputs / samples, np.outer(goal, goal)
        for step in range(steps):
            errors = np.einsum("si,ij,sj->s", inputs, moment, inputs)
            test[step] += np.trace(moment) / 12
            train[step] += errors.mean() / 12
            drawn = inputs.T @ (errors[:, None] * inputs) / samples
            shrunk = moment - rate * (covariance @ moment + moment @ covariance)
            moment = shrunk + rate**2 * (drawn / batch + (1 - 1 / batch) * covariance @ moment @ covariance)
    flat = Modes(np.arange(1.0, 25), np.ones(24), np.full(24, modes / 24), np.full(24, modes / 24))
    solution = march(flat, Descent(rate, 0.0, batch=batch, samples=samples), steps)
    # Standard error of 12 datasets 1 %, and what theory drops.
    np.testing.assert_allclose(solution.test_loss, test, rtol=0.05)
    np.testing.assert_allclose(solution.train_loss, train, rtol=0.1)


def test_flow_is_the_solution_of_its_differential_equation() -> None:
    from scipy.integrate import solve_ivp

    lam, signal = SMALL.eigenvalues, np.sqrt(SMALL.eigenvalues * SMALL.targets)
    size = lam.size

    def slope(_: float, state: np.ndarray) -> np.ndarray:
        error, kernel = state[:size], state[size:].reshape(size, size)
        mixed = np.outer(signal - error, error) * lam
        change = mixed + mixed.T + 2 * ((signal - error) @ error) * np.diag(lam)
        return np.concatenate([-kernel @ error, change.ravel()])

    times = np.array([1.0, 10.0, 60.0])
    begin = np.concatenate([signal, np.diag(lam).ravel()])
    exact = solve_ivp(slope, (0, 60), begin, t_eval=times, rtol=1e-11, atol=1e-14, method="DOP853").y[:size] ** 2
    coarse, fine = (np.asarray(flow(SMALL, 1.0, times, count).node_loss.sum(1)) for count in (32, 64))
    errors = [np.max(np.abs(values / exact.sum(0) - 1)) for values in (coarse, fine)]
    assert 3 < errors[0] / errors[1] < 5  # second order
    # Extrapolated; the next order at 64 a decade, measured 4e-6.
    np.testing.assert_allclose(fine + (fine - coarse) / 3, exact.sum(0), rtol=2e-5)


def test_small_steps_become_the_flow() -> None:
    times = np.array([1.0, 4.0])
    exact = np.asarray(flow(SMALL, 1.0, times, 128).node_loss.sum(1))
    far, near = (
        np.asarray(descend(SMALL, 1.0, Steps(rate), int(4 / rate) + 1).node_loss.sum(1))[
            (times / rate).round().astype(int)
        ]
        for rate in (0.02, 0.01)
    )
    # First order in the step; what is left after extrapolation is of second order.
    np.testing.assert_allclose(2 * near - far, exact, rtol=1e-4)
    assert (np.abs(near - exact) < 0.6 * np.abs(far - exact)).all()


def test_reverse_derivatives_of_the_march() -> None:
    """In one program: of the learning rate, batch size and momentum of single steps, of richness and features."""
    steps = 12

    @jax.jit
    def loss(changes: jax.Array) -> jax.Array:
        rate, batch, momentum, richness, features = changes
        step = jnp.arange(steps)
        plan = Descent(
            0.2 + rate * (step == 3),
            0.5 + richness,
            features=16 + features,
            batch=8 + batch * (step == 5),
            momentum=0.3 + momentum * (step == 4),
        )
        return march(SMALL, plan, steps).test_loss[-1]

    backward = jax.jit(jax.grad(loss))(jnp.zeros(5))
    each = 1e-4 * np.eye(5)
    numerical = [(loss(change) - loss(-change)) / 2e-4 for change in each]
    assert (np.abs(numerical) > 1e-5).all()
    np.testing.assert_allclose(backward, numerical, rtol=1e-5)


def test_the_iteration_says_when_it_fails() -> None:
    with pytest.raises(ValueError, match="use time stepping"):
        fixed_point(SMALL, Descent(0.2, 0.5, batch=4, samples=12), 10)
