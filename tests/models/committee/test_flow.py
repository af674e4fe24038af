"""The stabilised explicit integrator: its order, its stability, and states that grow."""

import jax.numpy as jnp
import numpy as np
import pytest

from solvable.models.committee.flow import chebyshev_step, geometric_steps, local_error, stages_needed
from solvable.models.committee.protocol import combine_arrays


def _integrate(velocity, state, end, steps, stages):
    for _ in range(steps):
        state = chebyshev_step(velocity, state, velocity(state), end / steps, stages)
    return state


@pytest.mark.parametrize("stages", [2, 3, 5, 12])
def test_the_scheme_is_second_order(stages):
    # y' = -y^2 from 1 is 1 / (1 + t); the error falls fourfold per halving of the step.
    exact = 1 / 3
    errors = [
        abs(float(_integrate(lambda y: -(y**2), np.ones((1, 1)), 2.0, n, stages)[0, 0]) - exact) for n in (16, 32)
    ]
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)


@pytest.mark.parametrize("stiffness", [3.0, 40.0, 3e3, 1e5])
def test_steps_far_beyond_the_fastest_rate_are_stable_and_slow_modes_stay_right(stiffness):
    rates = np.asarray([[0.1, stiffness / 3, stiffness]])
    stages = stages_needed(1.0, stiffness)
    assert stages <= 3 + 1.25 * np.sqrt(stiffness)
    state = _integrate(lambda y: -rates * y, np.ones((1, 3)), 10.0, 10, stages)
    # The local error of the slow mode is below (0.1)^3 / 6 a step.
    assert float(state[0, 0]) == pytest.approx(np.exp(-1), abs=10 * 1e-3 / 6)
    assert np.abs(np.asarray(state[0, 1:])).max() < 1


def test_too_few_stages_would_be_unstable():
    # The same flow with the stages of a tenth of its rate: what stages_needed protects from.
    stages = stages_needed(1.0, 300.0)
    state = _integrate(lambda y: -3000.0 * y, np.ones((1, 1)), 4.0, 4, stages)
    assert not abs(float(state[0, 0])) < 1


def test_the_error_estimate_is_that_of_one_step():
    # For y' = -y the exact local error is known; the estimate is right to the order it claims.
    for stages in (2, 4):
        state = np.ones((1, 1))
        step = 0.05
        after = chebyshev_step(lambda y: -y, state, -state, step, stages)
        estimate = float(local_error(state, -state, after, -after, step)[0, 0])
        exact = np.exp(-step)
        assert abs(estimate) < step**3
        # The third-order part of exp(-h) is -h^3/6; RKC2's own differs by less than that.
        assert abs(float(after[0, 0]) - exact) < step**3 / 6
        assert np.sign(estimate) == np.sign(float(0.8 * (1 - exact) - 0.4 * step * (1 + exact)))


def test_states_may_gain_columns_on_the_way():
    # The velocity opens a column at each call; what flows into it is kept. dy0/dt = -y0, dz/dt = y0.
    width = [1]

    def velocity(state):
        width[0] = min(width[0] + 1, 4)
        wide = np.zeros((1, width[0]))
        wide[0, :2] = -state[0, 0], state[0, 0]
        return wide

    state = _integrate(velocity, np.ones((1, 1)), 1.0, 32, 4)
    assert state.shape == (1, 4)
    np.testing.assert_allclose(np.asarray(state)[0, :2], [np.exp(-1), 1 - np.exp(-1)], atol=2e-4)


def test_combine_pads_with_zeros():
    for xp in (np, jnp):
        out = combine_arrays((2.0, -1.0), (xp.ones((2, 1)), np.ones((2, 3))))
        assert isinstance(out, xp.ndarray)
        np.testing.assert_array_equal(out, [[1, -1, -1], [1, -1, -1]])


def test_geometric_steps_land_on_the_end_and_grow_by_the_ratio():
    steps = geometric_steps(3.0, 800.0, 1.2, 2.0)
    assert steps.sum() == pytest.approx(797.0, rel=1e-14)
    assert (steps[1:] / steps[:-1]).max() <= 1.2 + 1e-12
    assert geometric_steps(1.0, 1.01, 1.2, 2.0).size == 1
