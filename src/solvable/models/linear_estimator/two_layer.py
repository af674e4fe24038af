"""The linear estimator with a linear hidden layer: exact dynamics as the input dimension grows.

The paper freezes the kernel at its start, which is wrong by 10-15 % in the losses at a width of 50 and has no answer
for weight decay. Freezing is not necessary. In the eigenbasis of the data the first layer's row of eigenvalue ``nu`` is
driven only by its own start, its own teacher row and its own label noise,

    s(nu) = s_0 A(nu) + t B(nu) + xi C(nu),

and in the singular basis of the second layer's start all matrices stay diagonal. Each singular value ``m`` of the
second layer then obeys, with ``r = b m - 1`` and ``f = nu c m - 1``,

    a' = -kappa (nu m^2 + g) a
    b' = -kappa (nu r m + g b)
    c' = -kappa (f m + g c)
    m' = -kappa (E[nu (A_s a^2 m + A_t b r) + A_n nu c f] + g m)

with the layers' sizes A_s = alpha^2 / (2 d_h), A_t = 1 / (4 d_h d_out), A_n = lambda sigma^2. The start of ``m^2`` is
``mu / (2 d_out)``, mu Marchenko-Pastur of ratio d_out / d_h, and the losses are averages over mu and nu:

    L_gen = E[A_s a^2 m^2 + A_t r^2 + A_n nu c^2 m^2]
    L_tr  = E[nu (A_s a^2 m^2 + A_t r^2)] + sigma^2 ((1 - lambda)^+ + lambda E[f^2])

Two assumptions: the input dimension is large beside the width, ``d_in >> d_h``, so that sums over data modes average;
and the teacher's second layer is isotropic, ``d_out << d_h``.
Gradient flow conserves ``m^2 - E[A_s a^2 + A_t b^2 + A_n nu c^2]`` up to the factor ``exp(-2 kappa g t)`` (balancedness
of the layers), which gives ``m`` without solving for it.
"""

from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import is_traced
from solvable.models.linear_estimator.spectra import MarchenkoPastur, trapezoid_rule
from solvable.models.linear_estimator.theory import AnyTraining, Losses, rate

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

# Steps per e-fold of time in the coarser of the two marches whose difference estimates the error.
_STEPS_PER_EFOLD = 24
# Grids are filled up to a multiple of this many steps, so that most of them share a compiled program.
_STEPS_PER_PROGRAM = 64


class Rows(NamedTuple):
    """First-layer coefficients at each (second-layer mode, data mode), and on the null modes of the data."""

    start: Float[Array, "mode node"]
    teacher: Float[Array, "mode node"]
    noise: Float[Array, "mode node"]
    null_start: Float[Array, ""]


class Sizes(NamedTuple):
    """Mean squares of student start, teacher and label noise in one data mode, times the number of modes."""

    start: Array | float
    teacher: Array | float
    noise: Array | float


class Coefficients(NamedTuple):
    """Everything of model and training that the equations need."""

    data: MarchenkoPastur
    second: MarchenkoPastur
    sizes: Sizes
    rate: Array | float
    shift: Array | float
    aspect_ratio: Array | float
    noise: Array | float
    outputs: Array | float


def coefficients(model: "LinearEstimator", training: AnyTraining) -> Coefficients:
    width = cast(int, model.width)
    return Coefficients(
        data=MarchenkoPastur(model.aspect_ratio, trapezoid_rule(step=0.2)),
        second=MarchenkoPastur(model.outputs / width, trapezoid_rule(step=0.3, lower=-20.0, upper=9.0)),
        sizes=Sizes(
            model.initial_scale**2 / (2 * width),
            1 / (4 * width * model.outputs),
            model.aspect_ratio * model.label_noise**2,
        ),
        rate=rate(model, training),
        shift=training.weight_decay / 2,
        aspect_ratio=model.aspect_ratio,
        noise=model.label_noise**2,
        outputs=model.outputs,
    )


def initial_strength(world: Coefficients) -> Float[Array, "mode"]:
    """Singular values of the second layer at the start."""
    return jnp.sqrt(world.second.nodes / (2 * world.outputs))


def initial_rows(world: Coefficients) -> Rows:
    shape = (world.second.offsets.size, world.data.offsets.size)
    return Rows(jnp.ones(shape), jnp.zeros(shape), jnp.zeros(shape), jnp.ones(()))


def measure(world: Coefficients, rows: Rows, strength: Float[Array, "mode"]) -> Losses:
    """Losses and spreads from the coefficients."""
    m = strength[:, None]
    return _average(
        world,
        start=rows.start * m,
        residual=rows.teacher * m - 1,
        noise=rows.noise * m,
        misfit=world.data.nodes * rows.noise * m - 1,
        null_start=rows.null_start * strength,
    )


def _average(
    world: Coefficients, start: Array, residual: Array, noise: Array, misfit: Array, null_start: Array
) -> Losses:
    """Losses from what the product of the layers has left of the start, has to learn of the teacher (``residual``)
    and of the label noise (``misfit``), and has taken up of that noise, in each mode."""
    data, sizes, nodes = world.data, world.sizes, world.data.nodes
    signal = sizes.start * start**2 + sizes.teacher * residual**2
    test_profile = signal + sizes.noise * nodes * noise**2
    train_profile = nodes * signal + sizes.noise * misfit**2
    null_profile = sizes.start * null_start**2 + sizes.teacher
    outside = world.noise * jnp.maximum(1 - world.aspect_ratio, 0.0)
    test_of_mode = data.average(test_profile, null_profile)
    train_of_mode = data.bulk_average(train_profile) + outside
    test, train = world.second.average(test_of_mode), world.second.average(train_of_mode)
    return Losses(
        jnp.log(train),
        jnp.log(test),
        train_spread=world.second.average(data.bulk_average(train_profile**2)) / train**2,
        test_spread=world.second.average(data.average(test_profile**2, null_profile**2)) / test**2,
        train_uneven=world.second.average(train_of_mode**2) / train**2 - 1,
        test_uneven=world.second.average(test_of_mode**2) / test**2 - 1,
    )


@jax.jit
def descent_losses(model: "LinearEstimator", training: AnyTraining, steps: Float[Array, "time"]) -> Losses:
    """Losses after gradient-descent steps: the recursion itself."""
    world = coefficients(model, training)
    data, sizes, nodes = world.data, world.sizes, world.data.nodes

    def step(carry: tuple[Array, Rows, Array]) -> tuple[Array, Rows, Array]:
        count, rows, strength = carry
        m = strength[:, None]
        residual, misfit = rows.teacher * m - 1, nodes * rows.noise * m - 1
        pull = (
            data.weighted_average(sizes.start * rows.start**2 * m + sizes.teacher * rows.teacher * residual)
            + data.weighted_average(sizes.noise * rows.noise * misfit)
            + world.shift * strength
        )
        moved = Rows(
            rows.start - world.rate * (nodes * m**2 + world.shift) * rows.start,
            rows.teacher - world.rate * (nodes * residual * m + world.shift * rows.teacher),
            rows.noise - world.rate * (misfit * m + world.shift * rows.noise),
            rows.null_start * (1 - world.rate * world.shift),
        )
        return count + 1, moved, strength - world.rate * pull

    def until(carry: tuple[Array, Rows, Array], target: Array) -> tuple[tuple[Array, Rows, Array], Losses]:
        carry = jax.lax.while_loop(lambda state: state[0] < target, step, carry)
        return carry, measure(world, carry[1], carry[2])

    start = (jnp.zeros(()), initial_rows(world), initial_strength(world))
    return jax.lax.scan(until, start, steps)[1]


def flow_losses(
    model: "LinearEstimator", training: AnyTraining, times: Float[np.ndarray, "time"], refine: int = 1
) -> Losses:
    """Losses of gradient flow by the exponential midpoint rule, on a grid that is logarithmic in time.

    Within a step the second layer is frozen at its midpoint and the rows are advanced exactly, which is stable for
    any step; the second layer follows from the conserved quantity.
    """
    grid, keep = _march_grid(model, training, times, refine)
    marched = _march(model, training, jnp.asarray(grid))
    return Losses(*(values[keep] for values in marched))


@jax.jit
def _march(model: "LinearEstimator", training: AnyTraining, grid: Float[Array, "step"]) -> Losses:
    """Losses at the end of each step."""
    world = coefficients(model, training)
    initial = initial_strength(world)
    first_balance = initial**2 - world.sizes.start

    def balance(rows: Rows, time: Array) -> Array:
        sizes, data = world.sizes, world.data
        held = data.average(
            sizes.start * rows.start**2 + sizes.teacher * rows.teacher**2, sizes.start * rows.null_start**2
        ) + sizes.noise * data.weighted_average(rows.noise**2)
        kept = first_balance * jnp.exp(-2 * world.rate * world.shift * time)
        return jnp.sqrt(jnp.maximum(held + kept, 0.0))

    def advance(rows: Rows, strength: Array, span: Array) -> Rows:
        nodes, m = world.data.nodes, strength[:, None]
        pull = nodes * m**2 + world.shift
        left, gained = jnp.exp(-world.rate * pull * span), -jnp.expm1(-world.rate * pull * span)
        return Rows(
            rows.start * left,
            rows.teacher * left + gained * nodes * m / pull,
            rows.noise * left + gained * m / pull,
            rows.null_start * jnp.exp(-world.rate * world.shift * span),
        )

    def step(carry: tuple[Rows, Array, Array], end: Array) -> tuple[tuple[Rows, Array, Array], Losses]:
        rows, strength, begin = carry

        def correct(_: int, guess: Array) -> Array:
            return balance(advance(rows, (strength + guess) / 2, end - begin), end)

        after = jax.lax.fori_loop(0, 4, correct, strength)
        rows = advance(rows, (strength + after) / 2, end - begin)
        return (rows, after, end), measure(world, rows, after)

    start = (initial_rows(world), initial, jnp.zeros(()))
    return jax.lax.scan(step, start, grid)[1]


def _march_grid(
    model: "LinearEstimator", training: AnyTraining, times: np.ndarray, refine: int
) -> tuple[np.ndarray, np.ndarray]:
    """Step ends that include the wanted times, and where those are; at the end come steps of length zero.

    The grid needs only the order of the fastest relaxation time, so traced parameters take a stand-in.
    """
    values = (training.learning_rate, model.outputs, model.aspect_ratio)
    learning_rate, outputs, aspect_ratio = (1.0 if is_traced(value) else value for value in values)
    begin = 0.02 * outputs**2 / (learning_rate * (1 + aspect_ratio**0.5) ** 2)
    count = 2 + int(_STEPS_PER_EFOLD * refine * np.log1p(times[-1] / begin))
    regular = begin * np.expm1(np.linspace(0, np.log1p(times[-1] / begin), count))
    grid = np.union1d(regular, times)
    filled = np.pad(grid, (0, -grid.size % _STEPS_PER_PROGRAM), mode="edge")
    return filled, np.searchsorted(grid, times)


def limits(model: "LinearEstimator", training: AnyTraining) -> tuple[Array, Array]:
    """Training and test loss of the flow as ``t -> infinity``.

    Without weight decay the conserved quantity makes ``m^2`` the root of a quadratic. With it, ``m`` solves
    ``1 = E[(A_t nu^2 + A_n nu) / (nu m^2 + g)^2]``, or vanishes where weight decay is too strong for any ``m``.
    """
    world = coefficients(model, training)
    data, sizes, shape = world.data, world.sizes, (world.second.offsets.size, world.data.offsets.size)
    initial, nothing = initial_strength(world), jnp.zeros(shape)
    if float(world.shift) > 0:
        square = _decayed_strength(world) ** 2
        pull = data.nodes * square + world.shift
        left = jnp.broadcast_to(-world.shift / pull, shape)
        final = _average(world, nothing, left, jnp.broadcast_to(square / pull, shape), left, jnp.zeros(()))
        return jnp.exp(final.log_train), jnp.exp(final.log_test)
    fitted_noise = 0.0
    if float(world.noise) > 0:
        distance = abs(1 - float(world.aspect_ratio))
        if distance == 0:
            return jnp.zeros(()), jnp.full((), jnp.inf)
        fitted_noise = min(1.0, 1 / float(world.aspect_ratio)) / distance
    free = initial**2 - sizes.start * (1 - data.null_mass)
    learned = sizes.teacher * (1 - data.null_mass) + sizes.noise * fitted_noise
    strength = jnp.sqrt((free + jnp.sqrt(free**2 + 4 * learned)) / 2)
    fitted = jnp.broadcast_to(1 / data.nodes, shape)
    final = _average(world, nothing, nothing, fitted, nothing, null_start=strength)
    return jnp.exp(final.log_train), jnp.exp(final.log_test)


def _decayed_strength(world: Coefficients) -> float:
    """The second layer's singular values that gradient and weight decay hold in balance."""
    from scipy.optimize import brentq

    def excess(log_square: float) -> float:
        pull = (world.data.nodes * np.exp(log_square) + world.shift) ** 2
        fit = world.data.weighted_average((world.sizes.teacher * world.data.nodes + world.sizes.noise) / pull)
        return float(jnp.log(fit))

    if excess(-700.0) <= 0:
        return 0.0
    return float(np.exp(brentq(excess, -700.0, 100.0, xtol=1e-14) / 2))
