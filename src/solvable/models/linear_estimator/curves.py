"""Loss curves with an estimate of their numerical error, for one layer and for two."""

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import is_traced
from solvable.models.linear_estimator import theory, two_layer
from solvable.models.linear_estimator.recursion import stepped_losses
from solvable.models.linear_estimator.spectra import MarchenkoPastur, TrapezoidRule
from solvable.models.linear_estimator.theory import AnyTraining, Losses
from solvable.numerics.cost import check_cost
from solvable.training import SGD, GradientDescent, GradientFlow

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

# With a hidden layer, losses are differences of student and teacher, and float64 resolves them down to here.
_TWO_LAYER_FLOOR = 1e-28
# For more times a compiled program is faster, also the first time.
_FEW_TIMES, _TIMES_AT_ONCE = 5000, 256


def loss_curve(
    model: "LinearEstimator", training: AnyTraining, times: Float[np.ndarray, "time"], batch_ratio: float
) -> tuple[Losses, float | None]:
    """The losses at the given times, and their relative numerical error.

    The error is the difference from a second, independent grid. It is None for traced models, and with a hidden layer
    for gradient descent, whose recursion has no error but rounding.
    """
    if isinstance(training, GradientFlow) and not training.is_constant:
        # A schedule of a flow is another clock.
        times, training = training.flow_time(times), training.replace(learning_rate=1.0)
    _check_step_cost(model, training, times)
    if model.width is not None:
        if needs_recursion(training):
            raise ValueError(
                "with a hidden layer theory is for gradient descent of a constant learning rate without momentum: "
                "simulate it"
            )
        return _two_layer_curve(model, training, times)
    rates = None
    if isinstance(training, GradientDescent) and needs_recursion(training):
        steps = max(1, int(times[-1]))
        rates = jnp.asarray(training.learning_rates(0, steps))
        # Rates are numbers from here on, so that schedules share compiled code.
        training = training.replace(learning_rate=1.0)
    closed = rates is None and not isinstance(training, SGD)
    if closed and len(times) <= _FEW_TIMES and not is_traced(model, training):
        one_layer = partial(_closed_curve, model, training, times)
    else:
        one_layer = partial(_one_layer_curve, model, training, jnp.asarray(times), batch_ratio, rates)
    curve = one_layer(theory.rule_for(training))
    if is_traced(model, training):
        return curve, None
    return curve, _relative_error(curve, one_layer(theory.rule_for(training, offset=0.5)))


def needs_recursion(training: AnyTraining) -> bool:
    """Whether modes do not simply shrink by the same factor at every step."""
    if isinstance(training, GradientFlow):
        return False
    return not training.is_constant or is_traced(training.momentum) or training.momentum > 0


def _check_step_cost(model: "LinearEstimator", training: AnyTraining, times: Float[np.ndarray, "time"]) -> None:
    """Mini-batches and hidden layers are followed step by step; refuse runs of too many steps."""
    closed = model.width is None and not isinstance(training, SGD) and not needs_recursion(training)
    if isinstance(training, GradientFlow) or closed:
        return
    check_cost(
        f"{times[-1]:.3g} gradient-descent steps",
        # For every mode of the data and, with a hidden layer, for every mode of the second layer.
        operations=times[-1] * (1e4 if model.width is None else 1e6),
        remedy="ask for earlier times, or use GradientFlow",
    )


def _closed_curve(
    model: "LinearEstimator", training: AnyTraining, times: Float[np.ndarray, "time"], rule: TrapezoidRule
) -> Losses:
    """The losses of full batches at a few times, by NumPy: computing them takes milliseconds, compiling seconds."""
    blocks = np.array_split(times, 1 + len(times) // _TIMES_AT_ONCE)
    with np.errstate(all="ignore"):
        spectrum = MarchenkoPastur(model.aspect_ratio, rule, np, in_rows=True)
        found = [theory.losses_at(model, training, spectrum, block, np) for block in blocks]
    return Losses(*map(np.concatenate, zip(*found, strict=True)))


# The nodes are an argument, so that the grid of the error estimate needs no second compilation.
@jax.jit
def _one_layer_curve(
    model: "LinearEstimator",
    training: AnyTraining,
    times: Float[Array, "time"],
    batch_ratio: Array | float,
    rates: Float[Array, "step"] | None,
    rule: TrapezoidRule,
) -> Losses:
    spectrum = MarchenkoPastur(model.aspect_ratio, rule)
    if rates is not None:
        ratio = batch_ratio if isinstance(training, SGD) else None
        return stepped_losses(model, training, spectrum, rates, times, ratio)
    if isinstance(training, SGD):
        return theory.minibatch_losses(model, training, spectrum, times, batch_ratio)
    return jax.vmap(lambda time: theory.losses_at(model, training, spectrum, time))(times)


def _two_layer_curve(
    model: "LinearEstimator", training: AnyTraining, times: Float[np.ndarray, "time"]
) -> tuple[Losses, float | None]:
    if not isinstance(training, GradientFlow):
        curve = two_layer.descent_losses(model, training, jnp.asarray(times))
        _check_resolved(curve, times)
        return curve, None
    if is_traced(model, training):
        return two_layer.flow_losses(model, training, times, refine=2), None
    coarse = two_layer.flow_losses(model, training, times, refine=1)
    # The coarse march sees what float64 does not resolve, before the fine one spends twice its time.
    _check_resolved(coarse, times)
    fine = two_layer.flow_losses(model, training, times, refine=2)
    # The march is of second order: the finer one is in error by a third of the difference, which is then removed.
    curve = Losses(*(f + (f - c) / 3 for f, c in zip(fine, coarse, strict=True)))
    _check_resolved(curve, times)
    return curve, _relative_error(curve, fine)


def _check_resolved(curve: Losses, times: Float[np.ndarray, "time"]) -> None:
    """Refuse two-layer losses below what float64 resolves."""
    if is_traced(curve):
        return
    lost = np.minimum(curve.log_train, curve.log_test) < np.log(_TWO_LAYER_FLOOR)
    if lost.any():
        raise ValueError(
            f"with a hidden layer, losses below {_TWO_LAYER_FLOOR:g} are lost to rounding, which happens from "
            f"time {times[int(np.argmax(lost))]:g} on: choose earlier times"
        )


def _relative_error(curve: Losses, other: Losses) -> float:
    """Largest relative difference of the losses; where they are below 1e-300, of their logarithms."""
    return max(
        float(np.max(np.abs(one - two) / np.maximum(1.0, np.abs(one) / 700)))
        for one, two in (map(np.asarray, pair) for pair in zip(curve[:2], other[:2], strict=True))
    )
