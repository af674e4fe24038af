"""Finite networks: the projected descent of eq. 4 in a cheap equivalent form, and the two-layer linear network.

Equation 4 moves ``A`` (N x M) along ``A(0)^T A(0)``. With ``A = V A(0)`` it is (appendix B)

    w += eta V v3,   V += (eta gamma / N) w v3^T,   v3 = A(0) v2,   v2 = Psi^T Psi v / B,   v = w* - A(0)^T V^T w / N

which costs two products with A(0) per step. Optimisers that act on each weight alone and are linear act on w and V as
they would on w and A; others, such as Adam, act on w and V.
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
from solvable.models.feature_scaling.prediction import batch_sizes
from solvable.numerics.descent import optimiser_step
from solvable.numerics.ensemble import trajectories
from solvable.optax_descent import OptaxDescent
from solvable.training import SGD, GradientDescent, Schedule, Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

# The number of modes of a power law if none is given.
MODES = 1000


class Plan(NamedTuple):
    """The sizes of a run, of which infinite ones are None, and how it is trained."""

    features: int | None
    # Of a schedule, the largest.
    batch: int | None
    samples: int | None
    training: GradientDescent | OptaxDescent
    richness: float
    eigenvalues: Float[np.ndarray, "mode"]
    target: Float[np.ndarray, "mode"]
    label_noise: float = 0.0


def _error(plan: Plan, weights: Any) -> Any:
    """v, from the readout ``w`` and, if features learn, ``A`` in units of ``A(0)``, less its start 1."""
    readout = weights["w"]
    moved = readout + weights["A"].T @ readout if plan.richness else readout
    return plan.target - (moved if plan.features is None else weights["A(0)"].T @ moved / plan.features)


def start(plan: Plan, key: Any) -> dict[str, Any]:
    """Weights at zero, features and samples drawn. ``A`` is what features moved in units of ``A(0)``, less its start 1.

    Labels of the training set have noise that stays; that of new samples is drawn with them.
    """
    of_features, of_samples, of_batches = jax.random.split(key, 3)
    size = plan.target.size if plan.features is None else plan.features
    state = {"w": jnp.zeros(size), "key": of_batches}
    if plan.richness:
        state["A"] = jnp.zeros((size, size))
    if plan.features is not None:
        state["A(0)"] = jax.random.normal(of_features, (plan.features, plan.target.size))
    if plan.samples is not None:
        draws = jax.random.normal(of_samples, (plan.samples, plan.target.size))
        state["inputs"] = draws * jnp.sqrt(plan.eigenvalues)
        if plan.label_noise:
            labels = jax.random.normal(jax.random.fold_in(of_samples, 1), (plan.samples,))
            state["noise"] = plan.label_noise * labels
    return _at_rest(plan, state, *(("w", "A") if plan.richness else ("w",)))


def _at_rest(plan: Plan, state: dict[str, Any], *moving: str) -> dict[str, Any]:
    """The state with the optimiser's state at the start, and the average of the weights if there is one."""
    weights = {name: state[name] for name in moving}
    training = plan.training
    if isinstance(training, OptaxDescent):
        optimiser = training.optimiser.init(_whole(weights))
    else:
        optimiser = jax.tree.map(jnp.zeros_like, weights) if training.momentum else None
    averaged = training.ema_decay is not None or training.average_from is not None
    return {**state, "optimiser": optimiser, **({"average": weights} if averaged else {})}


def _whole(weights: dict[str, Any]) -> dict[str, Any]:
    """The weights with the start 1 of the features, on which weight decay acts."""
    return {name: value + jnp.eye(len(value)) if name == "A" else value for name, value in weights.items()}


def _moved(plan: Plan, state: dict[str, Any], pulls: dict[str, Any], count: Any) -> dict[str, Any]:
    """The state after a step of the optimiser along the negative gradients ``pulls``."""
    training = plan.training
    weights = {name: state[name] for name in pulls}
    gradient = {name: -pull for name, pull in pulls.items()}
    if isinstance(training, OptaxDescent):
        updates, optimiser = training.optimiser.update(gradient, state["optimiser"], _whole(weights))
        moved = {name: weights[name] + updates[name] for name in weights}
    else:
        moved, velocities = {}, {}
        if training.weight_decay and not training.decoupled:
            decayed = _whole(weights)
            gradient = {name: pull + training.weight_decay * decayed[name] for name, pull in gradient.items()}
        momentum = training.momentum_at(count)
        for name, weight in weights.items():
            rate = training.feature_rate_at(count) if name == "A" else training.rate_at(count)
            velocity = None if state["optimiser"] is None else state["optimiser"][name]
            moved[name], velocities[name] = optimiser_step(training, weight, velocity, gradient[name], rate, momentum)
            if name == "A" and training.decoupled:
                moved[name] = moved[name] - rate * training.weight_decay * jnp.eye(len(weight))
        optimiser = None if state["optimiser"] is None else velocities
    state = {**state, **moved, "optimiser": optimiser}
    if "average" in state:
        share = _averaging_share(training, count + 1)
        state["average"] = jax.tree.map(lambda old, new: old + share * (new - old), state["average"], moved)
    return state


def _averaging_share(training: Any, time: Any) -> Any:
    """Share of the weights at a time in their average, as in :func:`optimiser.averaging_weights`."""
    if training.ema_decay is not None:
        return 1 - training.ema_decay
    return 1 / jnp.maximum(time - training.average_from + 1.0, 1.0)


def _gradient(plan: Plan, state: dict[str, Any], error: Any, count: Any) -> Any:
    """v2: the covariance of the batch on the error, with the noise of its labels."""
    if plan.samples is None and plan.batch is None:
        return plan.eigenvalues * error
    inputs, noise, weights = _batch(plan, state, count)
    signal = inputs @ error
    return inputs.T @ ((signal if noise is None else signal + noise) * weights)


def _batch(plan: Plan, state: dict[str, Any], count: Any) -> tuple[Any, Any, Any]:
    """Inputs and label noise of the samples of a step, and their weights, which sum to 1."""
    key = jax.random.fold_in(state["key"], count)
    noise = None
    if plan.samples is None:
        assert plan.batch is not None
        inputs = jax.random.normal(key, (plan.batch, plan.eigenvalues.size)) * jnp.sqrt(plan.eigenvalues)
        if plan.label_noise:
            noise = plan.label_noise * jax.random.normal(jax.random.fold_in(key, 1), (plan.batch,))
    else:
        inputs, noise = state["inputs"], state.get("noise")
        if plan.batch is not None:
            drawn = _drawn(plan, state["key"], key, count)
            inputs, noise = inputs[drawn], None if noise is None else noise[drawn]
    size = getattr(plan.training, "batch_size", None)
    if not isinstance(size, Schedule):
        return inputs, noise, 1 / inputs.shape[0]
    # Of the largest batch of the schedule, the first samples.
    kept = jnp.asarray(size(count), float)
    return inputs, noise, (jnp.arange(inputs.shape[0]) < kept) / kept


def _drawn(plan: Plan, epochs_key: Any, step_key: Any, count: Any) -> Any:
    """The places of the samples of a step in the training set."""
    assert plan.samples is not None
    assert plan.batch is not None
    sampling = plan.training.sampling if isinstance(plan.training, SGD | OptaxDescent) else None
    if sampling == "replacement":
        return jax.random.randint(step_key, (plan.batch,), 0, plan.samples)
    per_epoch = plan.samples // plan.batch
    order = jnp.arange(plan.samples)
    if sampling == "epochs":
        order = jax.random.permutation(jax.random.fold_in(epochs_key, count // per_epoch), plan.samples)
    return jax.lax.dynamic_slice(order, (count % per_epoch * plan.batch,), (plan.batch,))


def step(plan: Plan, state: dict[str, Any], count: Any) -> dict[str, Any]:
    gradient = _gradient(plan, state, _error(plan, state), count)
    if plan.features is not None:
        gradient = state["A(0)"] @ gradient
    if not plan.richness:
        return _moved(plan, state, {"w": gradient}, count)
    # Without features of their own the weights count modes, each of size 1 instead of 1 / N.
    speed = plan.richness / (plan.features or 1)
    pulls = {"w": gradient + state["A"] @ gradient, "A": speed * jnp.outer(state["w"], gradient)}
    return _moved(plan, state, pulls, count)


def measure(plan: Plan, state: dict[str, Any]) -> dict[str, Any]:
    error = _error(plan, state)
    found = {
        "test_loss": (plan.eigenvalues * error**2).sum(),
        "kernel_growth": 1 + plan.richness * (state["w"] ** 2).sum() / (plan.features or 1),
    }
    if plan.samples is not None:
        found["train_loss"] = ((state["inputs"] @ error + state.get("noise", 0.0)) ** 2).mean()
    if "average" in state:
        found["averaged_test_loss"] = (plan.eigenvalues * _error(plan, {**state, **state["average"]}) ** 2).sum()
    return found


def run(plan: Plan, times: np.ndarray, options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Losses and kernel growth with axes (seed, time)."""
    modes, size = plan.target.size, plan.features or plan.target.size
    numbers = size**2 * 7 + (plan.features or 0) * modes * 2
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
    numbers = ((plan.features or 1) * 6 + (plan.batch or 0)) * plan.target.size
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
    largest = np.max(batch_sizes(model, training, max(1, int(times[-1]))))
    features, batch, samples = (
        None if size == math.inf else int(size) for size in (model.features, largest, model.sample_count)
    )
    assert isinstance(training, GradientDescent | OptaxDescent)
    plan = Plan(
        features, batch, samples, training, float(model.richness), eigenvalues, target, float(model.label_noise)
    )
    linear = network == "linear"
    if linear and (isinstance(training, OptaxDescent) or _beyond_momentum(training)):
        raise ValueError(
            "the linear network is trained by gradient descent with momentum: leave out other options of the training"
        )
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


def _beyond_momentum(training: GradientDescent) -> bool:
    """Whether a training has options whose meaning depends on the parametrisation of the first layer."""
    given = (training.weight_decay, training.feature_learning_rate, training.ema_decay, training.average_from)
    return any(value not in (0.0, None) for value in given)


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
