"""Which solver a prediction needs, the curves it gives, and the dataset that they make."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.checks import is_traced
from solvable.models.feature_scaling import kernel_flow
from solvable.models.feature_scaling.flow_theory import (
    check_small_steps,
    has_flow_limit,
    kernel_flow_curves,
    slot_curves,
)
from solvable.models.feature_scaling.march_cost import check_march
from solvable.models.feature_scaling.mode_quadrature import Modes, nodes_until
from solvable.models.feature_scaling.optimiser import (
    averaging_rows,
    averaging_weights,
    feature_rates,
    kernels_of,
    step_momenta,
    step_rates,
)
from solvable.models.feature_scaling.prediction import Curves, batch_sizes, has_batches
from solvable.models.feature_scaling.second_moments import NoisySteps, follow
from solvable.models.feature_scaling.two_time import Descent, Solution, is_compiled, march
from solvable.numerics.descent import check_stable
from solvable.optax_descent import OptaxDescent
from solvable.training import SGD, GradientDescent, Schedule, Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

SOLVERS = ("recursion", "march", "exponential-midpoint", "slot-march")
_CURVE_MEMORY = 2 * 2**30
# Fractions of the edge of stability, and of the noise that feeds itself, from which there is a warning.
_NEAR_EDGE, _QUIET = 0.95, 0.9


def _step_count(training: Training, times: np.ndarray) -> int:
    """Number of steps until the last time; 1 where all are alike, of which there may be more than fit in memory."""
    return 1 if training.is_constant else max(1, int(times[-1]))


def largest_rate(training: Training, times: np.ndarray) -> float:
    """The largest learning rate until the last time."""
    return float(np.max(training.learning_rates(0, _step_count(training, times))))


def predicted(model: "FeatureScaling", times: np.ndarray, training: Training, options: Mapping[str, Any]) -> xr.Dataset:
    """Solve, warn of instabilities, and label what was found."""
    traced = is_traced(model, training)
    if not traced:
        strongest = 1.0 if model.spectrum is None else float(np.max(model.spectrum))
        check_stable(training, 2 / strongest, times[-1])
    found = curves(model, times, training, options)
    coordinates = {"time": times, "node": np.arange(1, found.modes.ranks.shape[0] + 1)}
    if found.two_time is not None:
        coordinates["earlier_time"] = times
    system = {"modes": None if model.mode_count == np.inf else int(model.mode_count), "network": "projected"}
    dataset = model.dataset(
        "theory",
        _variables(found, times, traced),
        coordinates,
        found.solver,
        training=training,
        system=system,
        error=found.error,
    )
    return dataset if traced else dataset.assign_attrs(_guards(model, found, training, times))


def _guards(model: "FeatureScaling", found: Curves, training: Training, times: np.ndarray) -> dict[str, float]:
    """How near training is to its instabilities, with a warning where it is too near for theory to be trusted."""
    if not isinstance(training, GradientDescent):
        return {}
    growth, rate = float(np.max(found.growth)), largest_rate(training, times)
    strongest = float(np.max(found.modes.eigenvalues))
    steps = _step_count(training, times)
    momenta = training.momenta(0, steps)
    # Up to which product of learning rate and curvature steps are stable, as in numerics.descent.check_stable.
    edge = float(np.min(2 * (1 + momenta) / (1 + 2 * momenta if training.nesterov else 1)))
    guards = {}
    if found.solver["solver"] in ("recursion", "march"):
        guards["edge_of_stability"] = rate * growth * strongest / edge
        if guards["edge_of_stability"] > _NEAR_EDGE:
            warnings.warn(
                f"the kernel grew by {growth:.3g}, so that learning_rate * growth * lambda_1 = "
                f"{rate * growth * strongest:.3g} is near {edge:.3g}, the edge of stability: losses stop falling "
                "as a power law; lower learning_rate, or use GradientFlow",
                stacklevel=6,
            )
    if isinstance(training, SGD):
        speeds, batches = training.learning_rates(0, steps) / (1 - momenta), batch_sizes(model, training, steps)
        worst = int(np.argmax(speeds / batches))
        gains = speeds[worst] * growth * np.asarray(found.modes.eigenvalues, float)
        # Nesterov's momentum looks ahead, and damps modes that would move by more than their error.
        gains = np.minimum(gains, 1.0) if training.nesterov else gains
        size = np.broadcast_to(batches, momenta.shape)[worst]
        guards["noise_gain"] = float(np.asarray(found.modes.counts) @ gains / (2 * size))
        if guards["noise_gain"] > _QUIET:
            warnings.warn(
                f"learning_rate * growth * Tr Lambda / (2 batch_size) = {guards['noise_gain']:.3g} is near 1, "
                "where the noise of the batches feeds itself: lower learning_rate or raise batch_size",
                stacklevel=6,
            )
    return guards


def _variables(found: Curves, times: np.ndarray, traced: bool) -> dict[str, Any]:
    """What goes into the dataset of a prediction."""
    counts = found.modes.counts if traced else np.asarray(found.modes.counts)
    # Tail nodes stand for no number of modes: theirs is what all together add.
    library: Any = jnp if traced else np
    weight = library.where(counts > 0, counts, 1.0)
    variables: dict[str, Any] = {
        "test_loss": found.test_loss,
        "kernel_growth": found.growth,
        "mode_loss": found.node_loss / weight,
        "mode_weight": (("node",), weight),
        "mode_rank": (("node",), found.modes.ranks),
        "mode_eigenvalue": (("node",), found.modes.eigenvalues),
    }
    if found.train_loss is not None:
        variables["train_loss"] = found.train_loss
    if found.averaged_loss is not None:
        variables["averaged_test_loss"] = found.averaged_loss
    solution = found.two_time
    if solution is None:
        return variables
    places = np.ix_(times.astype(int), times.astype(int))
    matrices = {
        "C_2": solution.correlation_2,
        "C_3": solution.correlation_3,
        "C_w": solution.weight_correlation,
        "R_3": solution.response_3,
        "R_24": solution.response_24,
    }
    if found.train_loss is not None:
        # With new samples only its diagonal, the loss, is needed and computed.
        matrices["C_0"] = solution.correlation_0
    return variables | {name: (("time", "earlier_time"), values[places]) for name, values in matrices.items()}


def curves(model: "FeatureScaling", times: np.ndarray, training: Training, options: Mapping[str, Any]) -> Curves:
    """The curves at the given times, in the units of the training, from the solver that is asked for or fits."""
    unbounded = _infinite(model.features) and model.samples is None
    noiseless = unbounded and not has_batches(training)
    options = {"solver": None, "correlations": False, "exact_batch": False, "progress": False, **options}
    two_times = options["correlations"] or isinstance(training, OptaxDescent)
    closed = noiseless or (unbounded and _is_linear(model, training) and not options["exact_batch"])
    solver = options["solver"] or _exact_solver(noiseless, closed, training, two_times)
    _check_solver(solver, noiseless, closed, model, training, options)
    if solver in ("slot-march", "exponential-midpoint"):
        check_small_steps(model, training, times)
    if solver == "slot-march":
        return slot_curves(model, times, training, options)
    if solver == "exponential-midpoint":
        return kernel_flow_curves(model, times, training, options["per_decade"])
    if solver == "march":
        return _march(model, times, training, options)
    assert isinstance(training, GradientDescent)
    return _recursion(model, times, training) if noiseless else _moments(model, times, training)


def _is_linear(model: "FeatureScaling", training: Training) -> bool:
    """Whether modes move linearly and each alone, so that their second moments close; without averages of weights."""
    lazy = not is_traced(model.richness) and model.richness == 0
    return lazy and isinstance(training, SGD) and training.ema_decay is None and training.average_from is None


def _exact_solver(noiseless: bool, closed: bool, training: Training, two_times: bool) -> str:
    """The cheapest solver that is exact for the training; ``two_times`` asks for the two-time equations."""
    if training.counts_steps:
        return "recursion" if closed and not two_times else "march"
    return "exponential-midpoint" if noiseless and not two_times else "slot-march"


def _check_solver(
    solver: str, noiseless: bool, closed: bool, model: "FeatureScaling", training: Training, options: Mapping[str, Any]
) -> None:
    """Refuse a solver that does not solve the model, the training or what is asked for."""
    if options["exact_batch"] and (model.samples is not None or not has_batches(training)):
        raise ValueError("exact_batch is for batches of new samples: use SGD(..., batch_size=...), and no samples")
    if solver == "recursion" and not closed:
        raise ValueError(
            'solver="recursion" is for infinitely many features and the population: full batches, or batches of new '
            'samples of lazy networks without averages; use "march"'
        )
    if solver == "exponential-midpoint" and not noiseless:
        raise ValueError(
            f'solver={solver!r} is for infinitely many features and full batches of the population: use "slot-march"'
        )
    if solver in ("recursion", "march") and not training.counts_steps:
        raise ValueError(f"solver={solver!r} follows steps, and {training!r} has none: use GradientDescent or SGD")
    if solver == "recursion" and isinstance(training, OptaxDescent):
        raise ValueError(f'solver="recursion" is for GradientDescent, not for {training!r}: use "march"')
    if (options["correlations"] or options["exact_batch"]) and solver != "march":
        raise ValueError(
            f"correlations and exact_batch are for the march through whole steps, not for {training!r} with "
            f"solver={solver!r}: use GradientDescent or SGD"
        )
    if solver in ("exponential-midpoint", "slot-march"):
        if is_traced(training):
            raise ValueError("the times of a flow depend on learning_rate, which therefore cannot be traced by JAX")
        if training.counts_steps and not has_flow_limit(training):
            raise ValueError(
                f"solver={solver!r} is the limit of small steps without weight decay, averages and learning rates of "
                f"single layers, of batches that are drawn online or with replacement, not of {training!r}"
            )


def _infinite(size: Any) -> bool:
    return not is_traced(size) and size == np.inf


def _reach(training: Training, times: np.ndarray) -> float:
    """Flow time until the last time, which momentum lengthens. Of traced numbers only the size is needed."""
    if is_traced(training):
        return 0.1 * float(times[-1])
    passed = float(training.flow_time(times[-1:])[0])
    if not isinstance(training, GradientDescent) or not isinstance(training.momentum, Schedule):
        return passed / (1 - getattr(training, "momentum", 0.0))
    last = max(1, int(times[-1]))
    return max(passed, float(np.sum(training.learning_rates(0, last) / (1 - training.momenta(0, last)))))


def _recursion(model: "FeatureScaling", times: np.ndarray, training: GradientDescent) -> Curves:
    steps = int(times[-1]) + 1
    modes, error = nodes_until(model, _reach(training, times))
    _check_curve_memory(steps, modes, "exponential-midpoint")
    own = None if training.feature_learning_rate is None else feature_rates(training, steps)
    averaging = averaging_weights(training, steps)
    how = (step_momenta(training, steps), training.nesterov, training.weight_decay, training.decoupled)
    plan = kernel_flow.Steps(step_rates(training, steps), own, *how, averaging)
    curve = kernel_flow.descend(modes, model.richness, plan, steps)
    places = times.astype(int)
    averaged = None if averaging is None else curve.averaged_loss[places]
    node_loss = curve.node_loss[places]
    if not is_traced(model, training) and not np.isfinite(curve.growth).all():
        raise ValueError(
            f"training diverges at step {int(np.argmin(np.isfinite(curve.growth)))}: the kernel has grown beyond what "
            f"learning_rate = {largest_rate(training, times):g} allows; lower it, or use GradientFlow"
        )
    solver = {"solver": "recursion", "nodes": len(modes.ranks)}
    growth = curve.growth[places]
    return Curves(modes, node_loss.sum(1), None, node_loss, growth, solver, error, averaged_loss=averaged)


def _check_curve_memory(steps: int, modes: Modes, otherwise: str) -> None:
    needed = 8.0 * steps * (len(modes.ranks) + 2) * 2
    if needed > _CURVE_MEMORY:
        raise ValueError(
            f"{steps - 1:.7g} steps need about {needed / 2**30:.3g} GiB, more than {_CURVE_MEMORY / 2**30:g}: "
            f'use solver="{otherwise}", the limit of small steps, which reaches late times'
        )


def _moments(model: "FeatureScaling", times: np.ndarray, training: GradientDescent) -> Curves:
    steps = int(times[-1]) + 1
    modes, error = nodes_until(model, _reach(training, times))
    _check_curve_memory(steps, modes, "slot-march")
    plan = NoisySteps(
        step_rates(training, steps),
        batch_sizes(model, training, steps),
        step_momenta(training, steps),
        training.nesterov,
        training.weight_decay,
        training.decoupled,
        model.label_noise**2,
    )
    node_loss = follow(modes, plan, steps)
    loss = node_loss.sum(1)
    if not is_traced(model, training):
        _check_falling("test loss", loss)
    places, solver = times.astype(int), {"solver": "recursion", "nodes": len(modes.ranks)}
    return Curves(modes, loss[places], None, node_loss[places], np.ones(places.size), solver, error)


def _march(model: "FeatureScaling", times: np.ndarray, training: Training, options: Mapping[str, Any]) -> Curves:
    steps = int(times[-1]) + 1
    modes, error = nodes_until(model, _reach(training, times))
    check_march(steps, len(modes.ranks), is_compiled(modes) or is_traced(model, training))
    places = times.astype(int)
    lazy = not is_traced(model.richness) and model.richness == 0
    plan = Descent(
        None,
        model.richness,
        model.features,
        batch_sizes(model, training, steps),
        model.sample_count,
        label_noise=model.label_noise**2,
        sampling=getattr(training, "sampling", None) or "replacement",
        kernels=kernels_of(training, steps, lazy),
    )
    shares = averaging_weights(training, steps)
    averages = None if shares is None else averaging_rows(shares, places)
    march_options = {"exact_batch": options["exact_batch"], "progress": options["progress"]}
    solution = march(modes, plan, steps, averages=averages, **march_options)
    growth = 1 + model.richness * solution.weight_correlation[places, places]
    train = None if model.samples is None else solution.train_loss[places]
    solver = {"solver": "march", "nodes": len(modes.ranks), "rows": steps}
    if not is_traced(model, training):
        _check_diagonals(solution)
    shown = solution if options["correlations"] else None
    losses = (solution.test_loss[places], train, solution.node_loss[places])
    return Curves(modes, *losses, growth, solver, error, shown, solution.averaged_loss)


def _check_diagonals(solution: Solution) -> None:
    """Variances are positive; what breaks that has diverged."""
    for name, values in (("test loss", solution.test_loss), ("train loss", solution.train_loss)):
        _check_falling(name, values)
    drive = np.diagonal(np.asarray(solution.correlation_3))
    if not (drive > -1e-9 * drive.max()).all():
        raise ValueError(f"training diverges: C3 is negative on its diagonal from step {np.argmax(drive <= 0)} on")


def _check_falling(name: str, values: Any) -> None:
    losses = np.asarray(values)
    bad = ~(np.isfinite(losses) & (losses > -1e-9 * losses[0]))
    if bad.any():
        raise ValueError(f"training diverges: the {name} is {losses[np.argmax(bad)]:.3g} at step {np.argmax(bad)}")
