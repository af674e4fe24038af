"""Finite networks: the projected descent of eq. 4 in a cheap equivalent form, and the two-layer linear network.

Equation 4 moves ``A`` (N x M) along ``A(0)^T A(0)``. With ``A = V A(0)`` it is (appendix B)

    w += eta V v3,   V += (eta gamma / N) w v3^T,   v3 = A(0) v2,   v2 = Psi^T Psi v / B,   v = w* - A(0)^T V^T w / N

which costs two products with A(0) per step. Momentum acts on w and V as it would on w and A.
Infinitely many features mean ``A(0)^T A(0) / N = 1``.
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float

from solvable.checks import check_count
from solvable.models.feature_scaling.mode_quadrature import listed
from solvable.models.feature_scaling.theory import batch_size
from solvable.numerics.descent import optimiser_step
from solvable.numerics.ensemble import trajectories
from solvable.training import GradientDescent, Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

# The number of modes of a power law if none is given.
MODES = 1000


class Plan(NamedTuple):
    """The sizes of a run, of which infinite ones are None, and how it is trained."""

    features: int | None
    batch: int | None
    samples: int | None
    training: GradientDescent
    richness: float
    eigenvalues: Float[np.ndarray, "mode"]
    target: Float[np.ndarray, "mode"]


def _error(plan: Plan, state: dict[str, Any]) -> Any:
    weights, goal = state["w"], plan.target
    moved = weights + state["V"].T @ weights if plan.richness else weights
    return goal - moved if plan.features is None else goal - state["A"].T @ moved / plan.features


def start(plan: Plan, key: Any) -> dict[str, Any]:
    """Weights at zero, features and samples drawn. ``V`` is what features moved, without its beginning 1."""
    of_features, of_samples, of_batches = jax.random.split(key, 3)
    size = plan.target.size if plan.features is None else plan.features
    state = {"w": jnp.zeros(size), "key": of_batches}
    if plan.richness:
        state["V"] = jnp.zeros((size, size))
    if plan.features is not None:
        state["A"] = jax.random.normal(of_features, (plan.features, plan.target.size))
    if plan.samples is not None:
        draws = jax.random.normal(of_samples, (plan.samples, plan.target.size))
        state["inputs"] = draws * jnp.sqrt(plan.eigenvalues)
    return _at_rest(plan, state, *(("w", "V") if plan.richness else ("w",)))


def _at_rest(plan: Plan, state: dict[str, Any], *moving: str) -> dict[str, Any]:
    """The state with velocities of zero for what moves, if there is momentum."""
    zeros = {name: jnp.zeros_like(state[name]) for name in moving}
    return {**state, "velocity": zeros if plan.training.momentum else None}


def _moved(plan: Plan, state: dict[str, Any], pulls: dict[str, Any], count: Any) -> dict[str, Any]:
    """The state after a step of the optimiser along the negative gradients ``pulls``."""
    weights, gradient = {name: state[name] for name in pulls}, {name: -pull for name, pull in pulls.items()}
    rate = plan.training.rate_at(count)
    moved, velocity = optimiser_step(plan.training, weights, state["velocity"], gradient, rate)
    return {**state, **moved, "velocity": velocity}


def _gradient(plan: Plan, state: dict[str, Any], error: Any, count: Any) -> Any:
    """v2: the covariance of the batch on the error."""
    key = jax.random.fold_in(state["key"], count)
    if plan.samples is not None:
        inputs = state["inputs"]
        if plan.batch is not None:
            inputs = inputs[jax.random.randint(key, (plan.batch,), 0, plan.samples)]
        return inputs.T @ (inputs @ error) / inputs.shape[0]
    eigenvalues = plan.eigenvalues
    if plan.batch is None:
        return eigenvalues * error
    inputs = jax.random.normal(key, (plan.batch, eigenvalues.size)) * jnp.sqrt(eigenvalues)
    return inputs.T @ (inputs @ error) / plan.batch


def step(plan: Plan, state: dict[str, Any], count: Any) -> dict[str, Any]:
    gradient = _gradient(plan, state, _error(plan, state), count)
    if plan.features is not None:
        gradient = state["A"] @ gradient
    if not plan.richness:
        return _moved(plan, state, {"w": gradient}, count)
    # Without features of their own the weights count modes, each of size 1 instead of 1 / N.
    speed = plan.richness / (plan.features or 1)
    pulls = {"w": gradient + state["V"] @ gradient, "V": speed * jnp.outer(state["w"], gradient)}
    return _moved(plan, state, pulls, count)


def measure(plan: Plan, state: dict[str, Any]) -> dict[str, Any]:
    error = _error(plan, state)
    found = {
        "test_loss": (plan.eigenvalues * error**2).sum(),
        "kernel_growth": 1 + plan.richness * (state["w"] ** 2).sum() / (plan.features or 1),
    }
    if plan.samples is not None:
        found["train_loss"] = ((state["inputs"] @ error) ** 2).mean()
    return found


def run(plan: Plan, times: np.ndarray, options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Losses and kernel growth with axes (seed, time)."""
    modes, size = plan.target.size, plan.features or plan.target.size
    numbers = size**2 * (5 if plan.training.momentum else 3) + (plan.features or 0) * modes * 2
    numbers += ((plan.batch or 0) + 2 * (plan.samples or 0)) * modes
    begin, move, look = (partial(function, plan) for function in (start, step, measure))
    return trajectories(begin, move, look, times.astype(int).tolist(), bytes_per_run=8.0 * numbers + 1e5, **options)


def linear_start(plan: Plan, key: Any) -> dict[str, Any]:
    """Both layers Gaussian of variance 1/N, so that the kernel begins as that of the inputs, twice."""
    of_readout, of_layer, of_batches = jax.random.split(key, 3)
    width = plan.features or 1
    readout = jax.random.normal(of_readout, (width,)) / width**0.5
    layer = jax.random.normal(of_layer, (width, plan.target.size)) / width**0.5
    return _at_rest(plan, {"w": readout, "A": layer, "begin": layer.T @ readout, "key": of_batches}, "w", "A")


def _linear_error(plan: Plan, state: dict[str, Any]) -> Any:
    return plan.target - (state["A"].T @ state["w"] - state["begin"]) / plan.richness


def linear_step(plan: Plan, state: dict[str, Any], count: Any) -> dict[str, Any]:
    """Descent on both layers of eq. 84, its rate times gamma squared, so that gamma -> 0 is the kernel limit."""
    gradient = _gradient(plan, state, _linear_error(plan, state), count)
    pulls = {"w": plan.richness * state["A"] @ gradient, "A": plan.richness * jnp.outer(state["w"], gradient)}
    return _moved(plan, state, pulls, count)


def linear_measure(plan: Plan, state: dict[str, Any]) -> dict[str, Any]:
    error = _linear_error(plan, state)
    return {"test_loss": (plan.eigenvalues * error**2).sum(), "spike": (state["w"] ** 2).sum()}


def run_linear(plan: Plan, times: np.ndarray, options: dict[str, Any]) -> dict[str, np.ndarray]:
    numbers = ((plan.features or 1) * (6 if plan.training.momentum else 4) + (plan.batch or 0)) * plan.target.size
    begin, move, look = (partial(function, plan) for function in (linear_start, linear_step, linear_measure))
    return trajectories(begin, move, look, times.astype(int).tolist(), bytes_per_run=8.0 * numbers + 1e5, **options)


def simulated(
    model: "FeatureScaling",
    network: str,
    times: Any,
    training: Training | None,
    modes: int | None,
    options: dict[str, Any],
) -> xr.Dataset:
    """Check, train the ``"projected"`` network of eq. 4 or the ``"linear"`` one, and label what was measured."""
    times, training = model.check_run(times, training, "simulate")
    seeds = options["seeds"]
    trained = _with_modes(model, modes)
    eigenvalues, target = listed(trained)
    features, batch, samples = (
        None if size == math.inf else int(size)
        for size in (model.features, batch_size(model, training), model.sample_count)
    )
    assert isinstance(training, GradientDescent)
    plan = Plan(features, batch, samples, training, float(model.richness), eigenvalues, target)
    linear = network == "linear"
    random = linear or features or batch or samples
    runs = seeds if random else 1
    found = (run_linear if linear else run)(plan, times, {**options, "seeds": runs})
    settings = {"modes": target.size, "seeds": seeds, "runs": runs, "key": options["key"]}
    # Each step adds sums over the modes to the weights, rounded by the machine precision; errors of steps add up.
    rounding = float(np.finfo(float).eps) * (target.size + float(times[-1]))
    system = {"modes": target.size, "network": network}
    return trained.dataset(
        "simulation",
        {name: np.repeat(values, seeds // runs, 0) for name, values in found.items()},
        {"seed": np.arange(seeds), "time": times},
        settings,
        training=training,
        system=system,
        error=rounding,
    )


def _with_modes(model: "FeatureScaling", modes: int | None) -> "FeatureScaling":
    """The model that is trained: this one, or the first ``modes`` of its infinitely many modes."""
    if modes is None:
        if model.mode_count == math.inf:
            raise ValueError(
                f"infinitely many modes cannot be trained: replace(modes={MODES}), say, which theory then has, too"
            )
        return model
    count, own = check_count("modes", modes), model.mode_count
    if own < math.inf:
        if count != own:
            raise ValueError(
                f"modes = {count}, but the model has {own:g} and theory is about all of them: leave modes out, or "
                "build the model with as many"
            )
        return model
    return model.replace(modes=count)
