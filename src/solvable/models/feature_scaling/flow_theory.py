"""Predictions in the limit of small steps: flows on logarithmic times, with the noise of batches over them."""

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from solvable.checks import is_traced
from solvable.models.feature_scaling import kernel_flow
from solvable.models.feature_scaling.march_cost import check_slots
from solvable.models.feature_scaling.mode_quadrature import Modes, listed, nodes_until
from solvable.models.feature_scaling.noise_profile import NoiseProfile
from solvable.models.feature_scaling.prediction import Curves, batch_size, batch_sizes
from solvable.training import SGD, GradientDescent, Schedule, Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

# Above this number of features, the noise's modes are those of the infinite network.
_MOST_FEATURES = 256
# Errors of the loss over the rounding of the largest eigenvalue times the time: 1 to 4 where the loss of infinitely
# many modes (capacity 2, source 0.1 to 0.5, richness 0.3 to 100) leaves its power law, at t = 1e7 to 1e10.
_ROUNDING = 4.0
# A time at which rounding has at most this effect is suggested in place of one at which it hides the loss.
_ROUNDED_AWAY = 0.1
# Schedules are looked up at every step.
_MOST_STEPS = 10_000_000


def has_flow_limit(training: Training) -> bool:
    """Whether a training of steps is, in the limit of small ones, the flow with the noise of batches."""
    if isinstance(training, SGD) and training.sampling in ("epochs", "cyclic"):
        return False
    extra = {"weight_decay": 0.0, "feature_learning_rate": None, "ema_decay": None, "average_from": None}
    return isinstance(training, GradientDescent) and all(
        not isinstance(getattr(training, name), Schedule) and getattr(training, name) == value
        for name, value in extra.items()
    )


def intrinsic_time(training: Training, times: np.ndarray) -> np.ndarray:
    """The flow time ``sum_s eta_s / (1 - mu_s)`` at each time: momentum makes the same steps longer."""
    if not isinstance(training, GradientDescent):
        return np.asarray(training.flow_time(times))
    if not isinstance(training.momentum, Schedule):
        return np.asarray(training.flow_time(times)) / (1 - training.momentum)
    last = int(times[-1])
    passed = np.append(0.0, np.cumsum(training.learning_rates(0, last) / (1 - training.momenta(0, last))))
    return passed[times.astype(int)]


def noise_of(model: "FeatureScaling", training: Training, times: np.ndarray) -> NoiseProfile:
    """The noise of the batches over flow time."""
    if not isinstance(training, SGD):
        return NoiseProfile.constant(0.0)
    if training.is_constant:
        rate = float(training.learning_rate) / (1 - float(training.momentum))
        return NoiseProfile.constant(rate / float(batch_size(model, training)))
    last = max(1, int(times[-1]))
    rates, momenta = training.learning_rates(0, last), training.momenta(0, last)
    sizes = np.broadcast_to(np.asarray(batch_sizes(model, training, last), float), (last,))
    return NoiseProfile.of_steps(rates, momenta, sizes)


def check_small_steps(model: "FeatureScaling", training: Training, times: np.ndarray) -> None:
    """Refuse schedules over too many steps, and warn of momentum that remembers longer than its modes take."""
    if not isinstance(training, GradientDescent):
        return
    if not training.is_constant and times[-1] > _MOST_STEPS:
        raise ValueError(
            f"a schedule over {times[-1]:g} steps is looked up at each of them, at most {_MOST_STEPS:g}: "
            "use larger steps of smaller batches, whose limit of small steps is the same"
        )
    steps = 1 if training.is_constant else max(1, int(times[-1]))
    momenta = training.momenta(0, steps)
    strongest = 1.0 if model.spectrum is None else float(np.max(model.spectrum))
    memory = float(np.max(training.learning_rates(0, steps) * strongest * (momenta > 0) / (1 - momenta) ** 2))
    if memory > 1:
        warnings.warn(
            f"learning_rate * lambda_1 / (1 - momentum)^2 = {memory:.3g} is not small: steps remember longer than the "
            "strongest mode takes, and are not a flow yet; lower momentum, or follow the steps",
            stacklevel=7,
        )


def kernel_flow_curves(model: "FeatureScaling", times: np.ndarray, training: Training, per_decade: int) -> Curves:
    clock = intrinsic_time(training, times)
    modes, error = nodes_until(model, float(clock[-1]))
    used = _with_signal(modes, is_traced(model))
    fine = kernel_flow.flow(used, model.richness, clock, 4 * per_decade)
    solver = {"solver": "exponential-midpoint", "nodes": len(used.ranks), "per_decade": 4 * per_decade}
    if is_traced(model):
        return Curves(used, fine.node_loss.sum(1), None, fine.node_loss, fine.growth, solver, None)
    coarse = kernel_flow.flow(used, model.richness, clock, 2 * per_decade)
    # Second order in the step: a third of the difference is left in the finer one, and removed.
    loss, rough = np.asarray(fine.node_loss.sum(1)), np.asarray(coarse.node_loss.sum(1))
    gap = (loss - rough) / 3
    seen = loss > 1e-12 * loss[0]
    # A loss is zero once that of the slowest of finitely many modes is below the smallest float64.
    relative = gap / np.where(loss == 0, 1.0, loss)
    error = max(error or 0.0, float(np.max(np.abs(relative)[seen], initial=0.0)))
    factor = np.where(seen, 1 + relative, 1.0)
    growth = fine.growth + (fine.growth - coarse.growth) / 3
    if model.richness > 0:
        error = max(error, _rounding(used, np.asarray(growth)[seen], clock[seen], times[seen]))
    return Curves(used, loss * factor, None, np.asarray(fine.node_loss) * factor[:, None], growth, solver, error)


def _rounding(modes: Modes, growth: np.ndarray, clock: np.ndarray, times: np.ndarray) -> float:
    """The error that rounding of the kernel's eigenvalues makes in the loss, or a ValueError where it is all there is.

    Eigenvalues are known to the rounding of the largest one, so that the slow modes' decay by time t is wrong by
    ``t K_max`` times that. On hard tasks the kernel grows nearly as t.
    """
    if not clock.size:
        return 0.0
    reached = np.maximum.accumulate(np.abs(growth)) * float(np.max(modes.eigenvalues)) * clock
    errors = _ROUNDING * np.finfo(float).eps * reached
    if errors[-1] > 1:
        earlier = "ask for earlier times"
        errors, times = errors[errors > 0], times[errors > 0]
        if errors[0] < _ROUNDED_AWAY:
            # Errors are nearly a power of the time.
            last = np.exp(np.interp(np.log(_ROUNDED_AWAY), np.log(errors), np.log(times)))
            earlier = f"ask for times up to {last:.1g}"
        raise ValueError(
            f"the kernel has grown by {np.abs(growth).max():.2g} at time {times[-1]:.3g}, and rounding of its "
            f"eigenvalues hides the modes that are learned then: {earlier}, or lower richness"
        )
    return float(errors[-1])


def _with_signal(modes: Modes, traced: bool) -> Modes:
    """The nodes that the flow of the infinite network moves; those without signal do nothing in it.

    Where it is differentiated eigenvalues must differ, or their vectors have no derivative: equal ones are one node of
    the whole signal, which is the same flow. The tail of a traced power law has a node of its trace alone, before the
    last, and its eigenvalue is that of the signal's node where ``source = 1 - 1 / capacity``.
    """
    if not traced:
        return Modes(*(value[np.asarray(modes.targets) > 0] for value in modes))
    if isinstance(modes.eigenvalues, np.ndarray):
        values, first, place = np.unique(-modes.eigenvalues, return_index=True, return_inverse=True)
        if values.size == modes.eigenvalues.size:
            return modes
        counts, targets = (jnp.zeros(values.size).at[place].add(jnp.asarray(part)) for part in modes[2:])
        return Modes(modes.ranks[first], -values, counts, targets)
    if isinstance(modes.ranks, np.ndarray):
        return modes
    kept = np.delete(np.arange(modes.ranks.shape[0]), -2)
    return Modes(*(value[kept] for value in modes))


def slot_curves(model: "FeatureScaling", times: np.ndarray, training: Training, options: Mapping[str, Any]) -> Curves:
    from solvable.models.feature_scaling.slot_march import Curve, Flow, slot_march

    if is_traced(model):
        raise ValueError(
            "the slot march is computed without JAX and cannot be differentiated: use GradientDescent or SGD, and "
            'solver="march"'
        )
    clock = intrinsic_time(training, times)
    last = max(float(clock[-1]), 1e-6)
    modes, error = nodes_until(model, last)
    noise = noise_of(model, training, times)
    sizes = (float(model.features), float(model.sample_count))
    plan = Flow(float(model.richness), *sizes, noise, float(model.label_noise) ** 2)
    fast = _fast_modes(model) if noise.largest > 0 and model.features <= _MOST_FEATURES else None
    per_decade, progress = options["per_decade"], options["progress"]
    # With noise the rows of two steps per decade have no solution that can be found.
    rough = per_decade // 2 if noise.largest == 0 else max(3, per_decade // 2)
    begin = 0.3 / float(np.max(modes.eigenvalues))
    check_slots(per_decade, np.log1p(last / begin) / np.log(10), 3 if noise.largest > 0 else 2, len(modes.ranks))
    runs = [
        slot_march(modes, plan, last, per_decade=count, fast=fast, progress=progress) for count in (per_decade, rough)
    ]
    # Without noise the scheme is of second order: this fraction of the difference is left in the finer run.
    left = 1 / ((per_decade / rough) ** 2 - 1)

    # Where noise jumps the loss has a kink, which a smooth interpolation would overshoot.
    through = _cubic if noise.is_constant else _monotone

    def at(values: Any, curve: Curve, floor: float, places: np.ndarray = clock) -> np.ndarray:
        logs = np.log(np.maximum(values, floor))
        when = np.minimum(places, curve.times[-1])
        return through(np.log1p(curve.times / begin), logs)(np.log1p(when / begin))

    def both(name: str, floor: float) -> tuple[np.ndarray, np.ndarray]:
        fine, coarse = (at(getattr(curve, name), curve, floor) for curve in runs)
        return np.exp(fine + left * (fine - coarse) if noise.largest == 0 else fine), np.abs(fine - coarse)

    tiny = 1e-14 * runs[0].test_loss[0]
    test, gap = both("test_loss", tiny)
    train = both("train_loss", tiny)[0] if plan.samples < np.inf else None
    node_loss = np.exp(at(runs[0].node_loss, runs[0], tiny * 1e-9))
    node_loss *= (test / node_loss.sum(1))[:, None]
    solver = {
        "solver": "slot-march",
        "nodes": len(modes.ranks),
        "per_decade": per_decade,
        "slots": len(runs[0].times) - 1,
        "row_residual": runs[0].residual,
        "at_rest": runs[0].at_rest,
    }
    # The whole difference of the two grids: the coarser one may not be in the asymptotic range yet.
    error = max(error or 0.0, float(np.max(gap)))
    if noise.largest > 0:
        # With noise errors are carried on: those of the decade before the first time, and between the times, count too.
        between = np.geomspace(max(0.1 * float(clock[0]), begin), last, 64)
        fine, coarse = (at(curve.test_loss, curve, tiny, between) for curve in runs)
        error = max(error, float(np.max(np.abs(fine - coarse))))
    return Curves(modes, test, train, node_loss, both("growth", 0.0)[0], solver, error)


def _cubic(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from scipy.interpolate import CubicSpline

    return CubicSpline(x, y)


def _monotone(x: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    from scipy.interpolate import PchipInterpolator

    return PchipInterpolator(x, y)


def _fast_modes(model: "FeatureScaling") -> tuple[np.ndarray, np.ndarray]:
    """The spectrum of the finite network's kernel, which is what holds the noise of its batches."""
    from solvable.models.feature_scaling.slot_noise import random_feature_spectrum

    most = 20 * int(model.features)
    if model.spectrum is not None:
        eigenvalues = np.sort(model.spectrum)[::-1]
    else:
        eigenvalues = listed(model.replace(modes=min(most, model.mode_count)))[0]
        if model.mode_count > most:
            # All weaker modes act as one: they only shift the eigenvalues.
            whole = nodes_until(model, 1.0)[0].trace
            eigenvalues = np.append(eigenvalues, whole - eigenvalues.sum())
    draws = 8
    found = random_feature_spectrum(eigenvalues, int(model.features), draws)
    # Neighbours of the merged draws are the same eigenvalue but for its fluctuations: their mean stands for one mode.
    return found.reshape(-1, draws).mean(1), np.ones(found.size // draws)
