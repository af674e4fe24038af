"""Losses of the linear estimator: each eigenmode of the data relaxes alone, the losses are averages over modes.

Symbols (linear-grokking paper; see docs/models/linear-estimator):

    kappa = 2 eta / d_out          relaxation rate per unit eigenvalue
    g     = gamma / 2              shift of the eigenvalues by weight decay
    e(nu) = exp(-kappa (nu+g) t)   what is left of the start; (1 - kappa (nu+g))^t after gradient-descent steps
    b(nu) = (e nu + g) / (nu + g)  what is left to learn of the teacher

    L_gen = E[alpha^2 e^2 + b^2] / (2 d_out) + sigma^2 lambda E[nu ((1-e)/(nu+g))^2]
    L_tr  = E[nu (alpha^2 e^2 + b^2)] / (2 d_out) + sigma^2 (1 - lambda + lambda E[b^2])

with E the Marchenko-Pastur average (eq. 15; initial scale and label noise as corrected in docs/errata). The learning
rate eta and the weight decay gamma belong to the training; everything else belongs to the model.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import is_traced
from solvable.models.linear_estimator.chi_square import probability_below
from solvable.models.linear_estimator.spectra import MarchenkoPastur, Numbers, TrapezoidRule, trapezoid_rule
from solvable.numerics.arrays import stop_gradient
from solvable.training import GradientDescent, GradientFlow

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

# What the theory covers; SGD is a kind of GradientDescent.
AnyTraining = GradientFlow | GradientDescent
# Near the largest exponent of a float64. Past it, the derivative in the weight decay of a loss that has itself
# underflowed is capped instead of overflowing.
_LARGEST_EXPONENT = 700.0


class Decay(NamedTuple):
    """``e(nu)`` at one time as ``sign * exp(reference + relative)``: late losses fall below the smallest float64."""

    reference: Float[Numbers, "*time"]
    relative: Float[Numbers, "node *time"]
    sign: Float[Numbers, "node *time"]
    at_zero: Float[Numbers, "*time"]


class Losses(NamedTuple):
    """Logarithms of the losses, and how unevenly they are shared.

    A spread ``s`` over data modes makes the loss of a single output fluctuate with relative variance ``2 s / d_in``.
    ``uneven`` is the same for the outputs, which differ only behind a hidden layer: the mean over outputs of the
    squared loss, over the squared mean, minus one.
    """

    log_train: Float[Numbers, "*time"]
    log_test: Float[Numbers, "*time"]
    train_spread: Float[Numbers, "*time"]
    test_spread: Float[Numbers, "*time"]
    train_uneven: Float[Numbers, "*time"]
    test_uneven: Float[Numbers, "*time"]


def accuracies(
    model: "LinearEstimator", curve: Losses, dimension: int | None
) -> tuple[Float[Numbers, "*time"], Float[Numbers, "*time"]]:
    """Training and test accuracy (eq. 13): the chance that the mean square over outputs is within the threshold.

    The errors of the outputs act as ``degrees`` independent ones; at finite input dimension these are fewer than the
    outputs, because the outputs' losses fluctuate.
    """
    train_inverse = (1 + curve.train_uneven) / model.outputs
    test_inverse = (1 + curve.test_uneven) / model.outputs
    if dimension is not None:
        # The residuals of the training set are a fixed set of N numbers per output, hence - lambda / d_in = - 1 / N.
        train_inverse = train_inverse + (curve.train_spread - model.aspect_ratio) / dimension
        test_inverse = test_inverse + curve.test_spread / dimension
    xp = jnp if is_traced(curve) else np
    return (
        probability_below(model.threshold, xp.exp(curve.log_train), 1 / train_inverse),
        probability_below(model.threshold, xp.exp(curve.log_test), 1 / test_inverse),
    )


def rule_for(training: AnyTraining, offset: float = 0.0) -> TrapezoidRule:
    """Quadrature nodes. Steps near the stability limit need the upper edge of the spectrum as finely as the lower one;
    for the flow only the lower edge survives to late times."""
    if isinstance(training, GradientFlow):
        return trapezoid_rule(offset=offset)
    return trapezoid_rule(upper=38.0, offset=offset)


def rate(model: "LinearEstimator", training: AnyTraining) -> Any:
    """``kappa``: how fast a mode of eigenvalue one relaxes, per unit of time."""
    return 2 * training.learning_rate / model.outputs


def losses_at(
    model: "LinearEstimator", training: AnyTraining, spectrum: MarchenkoPastur, time: Any, xp: Any = jnp
) -> Losses:
    """The losses at one time, or at many with a spectrum in rows. They interpolate between gradient-descent steps."""
    decay = _flow_decay if isinstance(training, GradientFlow) else _descent_decay
    kappa, shift = rate(model, training), training.weight_decay / 2
    return losses_of(model, shift, spectrum, decay(xp, kappa, shift, spectrum, time), xp)


def _flow_decay(xp: Any, kappa: Any, shift: Any, spectrum: MarchenkoPastur, time: Any) -> Decay:
    """Gradient flow (eq. 4)."""
    scaled_time = kappa * time
    return Decay(
        reference=-scaled_time * (spectrum.edge + shift),
        # The distance from the edge as such: forming it by subtraction would cost digits.
        relative=-scaled_time * spectrum.offsets,
        sign=xp.ones_like(spectrum.offsets),
        at_zero=xp.exp(-scaled_time * shift),
    )


def _descent_decay(xp: Any, kappa: Any, shift: Any, spectrum: MarchenkoPastur, time: Any) -> Decay:
    """Gradient descent (eq. 3)."""
    moves = kappa * (spectrum.nodes + shift)
    logs = _log_abs_one_minus(xp, moves)
    slowest = stop_gradient(xp, xp.max(logs))
    odd = xp.mod(time, 2) == 1
    move_at_zero = xp.asarray(kappa * shift, float)
    return Decay(
        reference=time * slowest,
        relative=time * (logs - slowest),
        sign=xp.where(odd & (moves > 1), -1.0, 1.0),
        at_zero=xp.where(odd & (move_at_zero > 1), -1.0, 1.0) * xp.exp(time * _log_abs_one_minus(xp, move_at_zero)),
    )


def _log_abs_one_minus(xp: Any, move: Any) -> Any:
    """``log|1 - move|``, exact for small moves and finite at ``move = 1``."""
    below = move < 1
    small = xp.log1p(-xp.where(below, move, 0.0))
    large = xp.log(xp.maximum(xp.where(below, 1.0, move - 1), 1e-300))
    return xp.where(below, small, large)


def losses_of(model: "LinearEstimator", shift: Any, spectrum: MarchenkoPastur, decay: Decay, xp: Any = jnp) -> Losses:
    """The losses at one time, from what each mode has left."""
    nodes = spectrum.nodes
    # All modes share the factor scale^2, so that nothing underflows; no result depends on it, hence no gradient.
    log_shift = xp.where(shift > 0, xp.log(xp.where(shift > 0, shift, 1.0)), -xp.inf)
    log_scale = stop_gradient(xp, xp.maximum(decay.reference, log_shift))
    start_left = decay.sign * xp.exp(decay.reference - log_scale + decay.relative)
    scaled_shift = shift * xp.exp(xp.minimum(-log_scale, _LARGEST_EXPONENT))
    # ``b = e + g (1 - e) / (nu + g)``: written so, with 1 - e exact, its derivative in g is right also at g = 0 and
    # nu -> 0, where that of ``(e nu + g) / (nu + g)`` is the difference of two infinities.
    log_left = decay.reference + decay.relative
    fitted = xp.where(decay.sign > 0, -xp.expm1(log_left), 1 + xp.exp(log_left)) / (nodes + shift)
    teacher_left = start_left + scaled_shift * fitted
    signal = (model.initial_scale**2 * start_left**2 + teacher_left**2) / 2
    null_signal = (model.initial_scale**2 * decay.at_zero**2 + 1) / 2

    overfit, noise_left, noise_outside = _noise_parts(xp, model, spectrum, fitted, teacher_left * xp.exp(log_scale))

    log_factor = 2 * log_scale - xp.log(xp.asarray(model.outputs, float))
    log_test = _log_sum(
        xp,
        log_factor + xp.log(spectrum.bulk_average(signal)),
        spectrum.null_mass * null_signal / model.outputs + spectrum.bulk_average(overfit),
    )
    log_train = _log_sum(
        xp, log_factor + xp.log(spectrum.weighted_average(signal)), spectrum.bulk_average(noise_left) + noise_outside
    )

    # Losses below exp(-300) have neither null modes nor noise: what is divided by them is zero, and must not overflow.
    over_test, over_train = (xp.exp(xp.minimum(-log_loss, 300.0)) for log_loss in (log_test, log_train))
    test_share = signal * xp.exp(log_factor - log_test) + overfit * over_test
    null_share = null_signal / model.outputs * over_test
    train_share = nodes * signal * xp.exp(log_factor - log_train) + noise_left * over_train
    outside_share = model.label_noise**2 * model.aspect_ratio * over_train
    return Losses(
        log_train,
        log_test,
        train_spread=spectrum.bulk_average(train_share**2)
        + xp.maximum(1 / model.aspect_ratio - 1, 0.0) * outside_share**2,
        test_spread=spectrum.average(test_share**2, null_share**2),
        train_uneven=xp.zeros_like(log_train),
        test_uneven=xp.zeros_like(log_test),
    )


def _noise_parts(
    xp: Any, model: "LinearEstimator", spectrum: MarchenkoPastur, fitted: Any, teacher_left: Any
) -> tuple[Any, Any, Any]:
    """What label noise adds: to the test loss of each mode, to the training loss of each mode, and outside of them.

    ``fitted`` is ``(1 - e) / (nu + g)``.
    """
    if isinstance(model.label_noise, float) and model.label_noise == 0:
        nothing = xp.zeros_like(spectrum.offsets)
        return nothing, nothing, xp.zeros(())
    size = model.label_noise**2 * model.aspect_ratio
    overfit = size * spectrum.nodes * fitted**2
    return overfit, size * teacher_left**2, model.label_noise**2 * xp.maximum(1 - model.aspect_ratio, 0.0)


def _log_sum(xp: Any, log_first: Any, second: Any) -> Any:
    """``log(exp(log_first) + second)`` for ``second >= 0``, with the right derivatives also at ``second = 0``.

    A second part of zero may be about to grow, as the mass of the null modes is at aspect ratio 1: its derivative
    then counts, and is capped only where it would overflow.
    """
    positive = second > 0
    at_zero = log_first + second * stop_gradient(xp, xp.exp(xp.minimum(-log_first, _LARGEST_EXPONENT)))
    return xp.where(positive, xp.logaddexp(log_first, xp.log(xp.where(positive, second, 1.0))), at_zero)


@jax.jit
def limits(model: "LinearEstimator", training: AnyTraining, spectrum: MarchenkoPastur) -> tuple[Array, Array]:
    """Training and test loss as ``t -> infinity`` (eq. 16 corrected, at any weight decay).

    Two derivatives do not exist. Without weight decay the test limit is not differentiable at aspect ratio 1, where the
    null modes appear (its derivative in the aspect ratio is given as the mean of both sides). And at zero weight decay
    the limit jumps at aspect ratios above 1, because any decay at all forgets the start, and is infinitely steep at 1
    itself; its derivative in the weight decay, which is that from the right below 1, is there that of the smooth part.
    """
    aspect_ratio, shift = model.aspect_ratio, jnp.asarray(training.weight_decay / 2, float)
    noise = model.label_noise**2
    decays = shift > 0
    left = shift / (spectrum.nodes + shift)
    # Without weight decay the null modes keep their start and the noise is fitted in full: 1/nu has a closed average.
    null = spectrum.null_mass * jnp.where(decays, 1.0, 1 + model.initial_scale**2)
    distance = jnp.abs(1 - jnp.asarray(aspect_ratio, float))
    apart = distance > 0
    safe_distance = jnp.where(apart, distance, 1.0)
    undamped = jnp.minimum(aspect_ratio, 1.0) / safe_distance
    # The first effect of a weight decay that is zero here: nothing in value, all of the derivative.
    steepness = aspect_ratio / safe_distance**3
    undamped = undamped - 2 * shift * jax.lax.stop_gradient(steepness)
    damped = aspect_ratio * spectrum.bulk_average(spectrum.nodes / (spectrum.nodes + shift) ** 2)
    overfit = noise * jnp.where(decays, damped, jnp.where(apart, undamped, 0.0))
    overfit = jnp.where((noise > 0) & ~decays & ~apart, jnp.inf, overfit)
    test = (spectrum.bulk_average(left**2) + null) / (2 * model.outputs) + overfit
    train = spectrum.weighted_average(left**2) / (2 * model.outputs) + noise * (
        jnp.maximum(1 - aspect_ratio, 0.0) + aspect_ratio * spectrum.bulk_average(left**2)
    )
    return train, test


def with_excess(full: Losses, spectrum: MarchenkoPastur, excess: Float[Array, "node"]) -> Losses:
    """The losses of full batches with the excess that the noise of mini-batches adds to each mode."""
    return full._replace(
        log_train=jnp.logaddexp(full.log_train, jnp.log(spectrum.weighted_average(excess) + 1e-300)),
        log_test=jnp.logaddexp(full.log_test, jnp.log(spectrum.bulk_average(excess) + 1e-300)),
    )


def minibatch_losses(
    model: "LinearEstimator",
    training: AnyTraining,
    spectrum: MarchenkoPastur,
    steps: Float[Array, "time"],
    batch_ratio: Array | float,
) -> Losses:
    """Losses of SGD on mini-batches drawn with replacement; ``batch_ratio`` is ``d_in`` over the batch size.

    Sampling adds to each mode, at each step, a variance ``kappa^2 nu L_tr / batch_size`` per output, which later steps
    damp: with ``V`` the excess of a mode times the number of modes,

        V <- (1 - kappa (nu + g))^2 V + kappa^2 (d_in / batch_size) nu L_tr.
    """
    nodes, kappa = spectrum.nodes, rate(model, training)
    damping = (1 - kappa * (nodes + training.weight_decay / 2)) ** 2

    def step(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        count, excess = carry
        log_train = with_excess(losses_at(model, training, spectrum, count), spectrum, excess).log_train
        return count + 1, damping * excess + kappa**2 * batch_ratio * nodes * jnp.exp(log_train)

    def until(carry: tuple[Array, Array], target: Array) -> tuple[tuple[Array, Array], Losses]:
        carry = jax.lax.while_loop(lambda state: state[0] < target, step, carry)
        return carry, with_excess(losses_at(model, training, spectrum, target), spectrum, carry[1])

    return jax.lax.scan(until, (jnp.zeros(()), jnp.zeros_like(nodes)), steps)[1]
