"""Implicit steps of gradient flow: order, damping, the Jacobian, and agreement with explicit steps."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from committees import problem

from solvable import GradientFlow, activations, solvers, teachers
from solvable.models.committee import basis
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.flow import chebyshev_step
from solvable.models.committee.implicit import Linearisation, NotConvergedError, implicit_step
from solvable.models.committee.problem import OutputRequest
from solvable.models.committee.protocol import Weights


class Exact:
    """Solutions with the Jacobian of a linear flow."""

    def __init__(self, matrix: np.ndarray) -> None:
        self._matrix = matrix

    def solve(self, factor: float, right: np.ndarray) -> np.ndarray:
        return np.linalg.solve(np.eye(len(self._matrix)) - factor * self._matrix, right.ravel()).reshape(right.shape)


def task(neurons: int = 2, ratio: float = 3.0):
    return problem(
        activations.quadratic(0.3),
        teachers.square(),
        np.full(neurons, 0.5 / neurons),
        alignment=0.2 * np.where(np.arange(neurons) % 2, -1.0, 1.0)[:, None],
        overlap=np.eye(neurons),
        ratio=ratio,
        training=GradientFlow(),
    )


def closure_of(one, samples: int = 1024, namespace=None) -> LatentClosure:
    return LatentClosure(
        one, samples=samples, tolerance=3e-3, shrunk=0.5, key=(0, 0), memory_limit=2.0**31, namespace=namespace
    )


def after(rates: np.ndarray, length: float, steps: int) -> np.ndarray:
    state, matrix = np.ones((1, rates.size)), np.diag(-rates)
    for _ in range(steps):
        state = implicit_step(lambda now: now @ matrix, Exact(matrix), state, length / steps)
    return state[0]


def test_the_scheme_is_second_order():
    rates = np.array([0.3, 1.0, 2.0])
    errors = [np.abs(after(rates, 1.0, steps) - np.exp(-rates)).max() for steps in (8, 16, 32)]
    # Halving a step divides the error by 4, up to terms of third order.
    assert np.allclose(np.divide(errors[:-1], errors[1:]), 4, rtol=0.1)


def test_what_has_relaxed_stays_so_and_slow_modes_stay_right():
    rates = np.array([1e-3, 1e6])
    slow, fast = after(rates, 100.0, 10)
    assert abs(slow - np.exp(-0.1)) < 1e-6
    # An L-stable scheme divides a mode of rate r by about r h at every step: here to nothing.
    assert abs(fast) < 1e-12


def test_the_jacobian_is_the_derivative_of_the_velocity():
    """In a basis that no signal leaves any more, by central differences."""
    one = task()
    closure = closure_of(one)
    weights = closure.start.coordinates
    for _ in range(12):
        velocity = closure.velocity(weights)
        weights = 0.3 * velocity + np.pad(weights, ((0, 0), (0, velocity.shape[1] - weights.shape[1])))
    width, decay, factor = closure.width, 0.2, 0.7
    weights = np.pad(weights, ((0, 0), (0, width - weights.shape[1])))
    linear = Linearisation(closure, weights, decay)
    direction = np.random.default_rng(1).normal(size=weights.shape)

    def velocity_at(step: float) -> np.ndarray:
        moved = weights + step * direction
        signals = closure.signals(closure.fields(Weights(moved)))
        return closure.basis.average(np.asarray(signals), closure.basis.latents) - decay * moved

    # Two-point differences of a polynomial of third degree are wrong by h^2 times its third derivative.
    along = (velocity_at(1e-4) - velocity_at(-1e-4)) / 2e-4
    right = direction - factor * along
    assert np.allclose(linear.solve(factor, right), direction, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("namespace", [np, jnp])
def test_moments_of_a_grown_basis_are_those_computed_at_once(namespace):
    one = task()
    closure = closure_of(one, 512, namespace)
    weights = closure.start.coordinates
    closure.velocity(weights)
    slopes = np.random.default_rng(2).normal(size=(2, 2, 512))
    slopes = slopes if namespace is np else jnp.asarray(slopes)
    early, since = closure.basis.moments(slopes, None), closure.width
    closure.velocity(np.pad(weights, ((0, 0), (0, since - weights.shape[1]))) + 0.1)
    assert closure.width > since
    grown, whole = closure.basis.moments(slopes, early, since), closure.basis.moments(slopes, None)
    assert np.allclose(grown, whole, rtol=1e-12, atol=1e-12)
    rows, width = len(whole) // 2, closure.width
    latents = np.asarray(closure.basis.latents)[:width]
    direct = np.einsum("ijs,as,bs->iajb", np.asarray(slopes), latents, latents) / 512
    blocks = np.asarray(whole).reshape(2, rows, 2, rows)[:, :width, :, :width]
    assert np.allclose(blocks, direct, rtol=1e-10, atol=1e-10)


def test_stiff_steps_of_the_committee_agree_with_short_explicit_ones():
    """In a fixed basis, where both schemes integrate the same flow: the difference falls as the square of the step."""
    one = task(ratio=6.0)
    closure = closure_of(one)
    weights = closure.start.coordinates
    for _ in range(10):
        velocity = closure.velocity(weights)
        weights = 0.5 * velocity + np.pad(weights, ((0, 0), (0, velocity.shape[1] - weights.shape[1])))
    weights = np.pad(weights, ((0, 0), (0, closure.width - weights.shape[1])))

    def flow(now: np.ndarray) -> np.ndarray:
        signals = closure.signals(closure.fields(Weights(now)))
        return closure.basis.average(np.asarray(signals), closure.basis.latents)

    exact, length, steps = weights, 4.0, 400
    for _ in range(steps):
        exact = chebyshev_step(flow, exact, flow(exact), length / steps, 3)
    errors = []
    for count in (4, 8, 16):
        now = weights
        for _ in range(count):
            now = implicit_step(flow, Linearisation(closure, now, 0.0), now, length / count)
        errors.append(np.abs(now - exact).max())
    assert errors[-1] < 2e-3 * np.abs(exact - weights).max()
    assert np.allclose(np.divide(errors[:-1], errors[1:]), 4, rtol=0.25)


def test_a_jacobian_of_an_earlier_step_finds_the_same_state():
    """What a step ends at is where Newton's iteration rests, whichever Jacobian led there; up to its accuracy, 1e-7."""
    one = task(ratio=6.0)
    closure = closure_of(one)
    weights = closure.start.coordinates
    for _ in range(10):
        velocity = closure.velocity(weights)
        weights = 0.5 * velocity + np.pad(weights, ((0, 0), (0, velocity.shape[1] - weights.shape[1])))
    weights = np.pad(weights, ((0, 0), (0, closure.width - weights.shape[1])))

    def flow(now: np.ndarray) -> np.ndarray:
        signals = closure.signals(closure.fields(Weights(now)))
        return closure.basis.average(np.asarray(signals), closure.basis.latents)

    early = Linearisation(closure, weights, 0.0)
    fresh = aged = weights
    for _ in range(4):
        fresh = implicit_step(flow, Linearisation(closure, fresh, 0.0), fresh, 0.5)
        aged = implicit_step(flow, early, aged, 0.5)
    assert np.linalg.norm(fresh - aged) < 1e-6 * np.linalg.norm(fresh)
    assert np.linalg.norm(fresh - weights) > 1e-2 * np.linalg.norm(fresh)


@pytest.mark.slow
def test_implicit_steps_of_a_growing_basis_agree_with_explicit_ones(monkeypatch):
    """Four neurons that grok, to t = 1000, on the same samples; fewer directions are opened on the way.

    The two runs open different directions, and the bracket of the two conventions for these is 3 % of the test loss
    here: the difference stays below it.
    """
    one, times = task(4, 4.5), np.geomspace(10, 1000, 6)
    one = dataclasses.replace(one, activation=activations.quadratic(0.05))
    solver, found = solvers.Flow(samples=16384, replicates=2), {}
    for name, worth in (("explicit", np.inf), ("implicit", 0.0)):
        monkeypatch.setattr(basis.Basis, "evaluations_worth", lambda self, neurons, worth=worth: worth)
        found[name] = solver.run(one, times, OutputRequest(), 0, 0.5, 0, lambda part: None)
    assert found["implicit"].rank < found["explicit"].rank
    for loss in ("train_loss", "test_loss"):
        both = [found[name].arrays(times.size)[loss] for name in ("implicit", "explicit")]
        assert np.allclose(*both, rtol=0.03)


def test_a_step_without_a_solution_is_said():
    """``x' = x^2`` from 1 leaves every bound at t = 1: no stage of a step of length 10 has a solution."""
    with pytest.raises(NotConvergedError, match="still change"):
        implicit_step(lambda now: now**2, Exact(np.array([[2.0]])), np.ones((1, 1)), 10.0)
