"""A linear optimiser as a kernel: ``w_t = rho_t w_0 - sum_s Theta(t, s) g_s`` with the gradients ``g_s`` of the steps.

Momentum, learning-rate schedules, weight decay and any chain of Optax that is linear in the gradients differ in Theta
(zero for ``s >= t``) and rho only, which are the optimiser's responses to unit impulses and to its start:

    gradient descent   Theta(t + 1, s) = Theta(t, s) + eta_t delta(t, s)                        rho_t = 1
    heavy ball         Theta(t + 1, s) = Theta(t, s) + eta_t mu^(t - s)                         rho_t = 1
    Nesterov           Theta(t + 1, s) = Theta(t, s) + eta_t (delta(t, s) + mu^(t - s + 1))     rho_t = 1
    weight decay       Theta(t + 1, s) = (1 - eta_t omega) Theta(t, s) + eta_t delta(t, s)      the same without impulse

>>> import numpy as np
>>> from solvable.models.feature_scaling.optimiser import update_kernel
>>> np.asarray(update_kernel(0.1, 3, momentum=0.5), float).round(3)
array([[0.  , 0.  , 0.  ],
       [0.1 , 0.  , 0.  ],
       [0.15, 0.1 , 0.  ]])
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import is_traced
from solvable.optax_descent import OptaxDescent
from solvable.training import GradientDescent, Schedule, Training

# How well an optimiser must be what its kernel says, relative to the largest weight.
_LINEAR = 1e-6


class Kernels(NamedTuple):
    """Theta of the readout ``w`` and of the features ``A``, and what is left of ``A(0)``."""

    readout: Float[Array | np.ndarray, "time time"]
    features: Float[Array | np.ndarray, "time time"]
    kept: Float[Array | np.ndarray, "time"]


def rates_of(learning_rate: Any, steps: int) -> Float[Array | np.ndarray, "time"]:
    """The learning rate (or momentum) of each step, from one number or one number per step."""
    library: Any = jnp if is_traced(learning_rate) else np
    return library.broadcast_to(library.asarray(learning_rate, float), (steps,))


def update_kernel(
    learning_rate: Any, steps: int, momentum: Any = 0.0, nesterov: bool = False
) -> Float[Array | np.ndarray, "time time"]:
    """Theta at the times ``0 ... steps - 1``.

    Parameters
    ----------
    learning_rate
        One number, or one number per step.
    steps
        Number of times.
    momentum
        Momentum mu, one number or one number per step; may be traced.
    nesterov
        Whether momentum is Nesterov's.
    """
    return _of_descent(rates_of(learning_rate, steps), momentum, 0.0, nesterov, False)[0]


def _of_descent(
    rates: Array | np.ndarray, momentum: Any, decay: Any, nesterov: bool, decoupled: bool
) -> tuple[Float[Array | np.ndarray, "time time"], Float[Array | np.ndarray, "time"]]:
    """Theta and rho of gradient descent."""
    steps = rates.size
    if not is_traced(momentum, decay) and not np.any(momentum) and decay == 0:
        library: Any = jnp if is_traced(rates) else np
        return library.tril(library.broadcast_to(rates, (steps, steps)), -1), np.ones(steps)
    momenta = rates_of(momentum, steps)
    if is_traced(rates, momenta, decay):
        return _impulses(rates, momenta, jnp.asarray(decay, float), nesterov, decoupled)
    paths = np.empty((steps, steps + 1))
    weights = (np.arange(steps + 1) == steps) * 1.0
    velocity = np.zeros(steps + 1)
    for count in range(steps):
        paths[count] = weights
        impulse = (np.arange(steps + 1) == count) * 1.0
        how = (rates[count], momenta[count], float(decay), nesterov, decoupled)
        weights, velocity = descent_step(weights, velocity, impulse, *how)
    return paths[:, :steps], paths[:, steps]


@partial(jax.jit, static_argnames=("nesterov", "decoupled"))
def _impulses(rates: Array, momentum: Array, decay: Array, nesterov: bool, decoupled: bool) -> tuple[Array, Array]:
    steps = rates.size

    def step(state: tuple[Array, Array], plan: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], Array]:
        weights, velocity = state
        rate, inertia, count = plan
        impulse = (jnp.arange(steps + 1) == count) * 1.0
        moved, velocity = descent_step(weights, velocity, impulse, rate, inertia, decay, nesterov, decoupled)
        return (moved, velocity), weights

    # The last entry begins at 1 and gets no impulse.
    start = (jnp.arange(steps + 1) == steps) * 1.0
    paths = jax.lax.scan(step, (start, jnp.zeros_like(start)), (rates, momentum, jnp.arange(steps)))[1]
    return paths[:, :steps], paths[:, steps]


def descent_step(
    weights: Any, velocity: Any, pull: Any, rate: Any, momentum: Any, decay: Any, nesterov: bool, decoupled: bool
) -> tuple[Any, Any]:
    """One step of gradient descent along ``pull``, minus the gradient: see :class:`solvable.GradientDescent`."""
    pull = pull if decoupled else pull - decay * weights
    velocity = momentum * velocity + pull
    move = pull + momentum * velocity if nesterov else velocity
    move = move - decay * weights if decoupled else move
    return weights + rate * move, velocity


def kernels_of(training: Training, steps: int, lazy: bool) -> Kernels:
    """The kernels of a training at the times ``0 ... steps - 1``; lazy features stay, so that nothing decays there.

    Raises a ValueError for an Optax optimiser that is not linear.
    """
    if isinstance(training, OptaxDescent):
        found = _of_optax(training.optimiser, steps)
    else:
        assert isinstance(training, GradientDescent)
        how = (step_momenta(training, steps), training.weight_decay, training.nesterov, training.decoupled)
        readout, kept = _of_descent(rates_of(step_rates(training, steps), steps), *how)
        features = readout
        if training.feature_learning_rate is not None:
            features, kept = _of_descent(rates_of(feature_rates(training, steps), steps), *how)
        found = Kernels(readout, features, kept)
    return found._replace(kept=np.ones(steps)) if lazy else found


def step_rates(training: GradientDescent, steps: int) -> Any:
    """The learning rate, or that of each step where it follows a schedule."""
    rate = training.learning_rate
    return training.learning_rates(0, steps) if isinstance(rate, Schedule) else rate


def step_momenta(training: GradientDescent, steps: int) -> Any:
    """The momentum, or that of each step where it follows a schedule."""
    return training.momenta(0, steps) if isinstance(training.momentum, Schedule) else training.momentum


def feature_rates(training: GradientDescent, steps: int) -> Any:
    """The learning rate of the features, or that of each step where it follows a schedule."""
    rate = training.feature_learning_rate
    if rate is None:
        return step_rates(training, steps)
    return training.feature_learning_rates(0, steps) if isinstance(rate, Schedule) else rate


def _of_optax(optimiser: Any, steps: int) -> Kernels:
    """The responses of an Optax optimiser to impulses on each layer, if they say all about it."""
    impulses, none = jnp.eye(steps), jnp.zeros((steps, steps))
    zeros = {"w": jnp.zeros(steps), "A": jnp.zeros(steps)}
    alone = jax.jit(jax.vmap(lambda start, pulls: optax_path(optimiser, start, pulls), in_axes=(0, 1), out_axes=1))
    readout = alone(zeros, {"w": impulses, "A": none})["w"]
    features = alone(zeros, {"w": none, "A": impulses})["A"]
    ones = {name: jnp.ones(steps) for name in zeros}
    starts = alone(ones, {"w": none, "A": none})
    found = Kernels(readout, features, starts["A"][:, 0])
    _check_linear(optimiser, found, starts["w"][:, 0])
    return found


def optax_path(optimiser: Any, start: Any, pulls: Any) -> Any:
    """The weights before each step along the given descent directions, whose first axis is time."""
    start = jax.tree.map(lambda value: jnp.asarray(value, float), start)

    def step(carry: tuple[Any, Any], pull: Any) -> tuple[tuple[Any, Any], Any]:
        weights, state = carry
        updates, state = optimiser.update(jax.tree.map(jnp.negative, pull), state, weights)
        return (jax.tree.map(jnp.add, weights, updates), state), weights

    return jax.lax.scan(step, (start, optimiser.init(start)), pulls)[1]


def _check_linear(optimiser: Any, kernels: Kernels, kept: Array) -> None:
    """Refuse an optimiser whose path on random gradients, small and large, is not what its kernels say."""
    generator, steps = np.random.default_rng(0), kept.size
    # The features are a matrix, which some optimisers treat as a whole.
    shapes = {"w": (3,), "A": (3, 2)}
    responses = {"w": (kept, kernels.readout), "A": (kernels.kept, kernels.features)}
    run = jax.jit(lambda start, pulls: optax_path(optimiser, start, pulls))
    for size in (1e-3, 1.0, 1e3):
        pulls = {name: jnp.asarray(size * generator.normal(size=(steps, *shape))) for name, shape in shapes.items()}
        start = {name: jnp.asarray(size * generator.normal(size=shape)) for name, shape in shapes.items()}
        path = run(start, pulls)
        for name, (left, kernel) in responses.items():
            flat = pulls[name].reshape(steps, -1)
            values = left[:, None] * start[name].ravel() + kernel @ flat
            allowed = _LINEAR * float(jnp.max(jnp.abs(values)))
            off = np.asarray(jnp.max(jnp.abs(path[name].reshape(steps, -1) - values), axis=1))
            if not (off <= allowed).all():
                raise ValueError(
                    "the theory covers optimisers that are linear in the gradients and act on each weight alone "
                    "(momentum, weight decay, schedules and chains of them), and this one is not, as seen at step "
                    f"{int(np.argmax(~(off <= allowed)))}: Adam, clipping and signs are not linear. simulate covers it"
                )


def averaging_weights(training: Any, steps: int) -> Float[np.ndarray, "time"] | None:
    """The share c_t of the weights at each time in the update ``average <- (1 - c_t) average + c_t w_t``; or None."""
    count = np.arange(steps)
    if training.ema_decay is not None:
        return np.where(count == 0, 1.0, 1 - training.ema_decay)
    if training.average_from is not None:
        return 1 / np.maximum(count - training.average_from + 1.0, 1.0)
    return None


def averaging_rows(shares: Float[np.ndarray, "time"], places: np.ndarray) -> Float[np.ndarray, "place time"]:
    """Rows a(t, s) of the average ``sum_s a(t, s) w_s`` at the given times."""
    rows = np.zeros((places.size, shares.size))
    for row, last in zip(rows, places, strict=True):
        # What enters at s is left by the shares of all later times.
        left = np.append(np.cumprod((1 - shares[1 : last + 1])[::-1])[::-1], 1.0)
        row[: last + 1] = shares[: last + 1] * left
    return rows
