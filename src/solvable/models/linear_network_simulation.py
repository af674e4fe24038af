"""Training of both layers of a linear network: how they start, how they are trained, and what is measured of them.

The training is that of ``f(x) = x^T W1 W2`` on whitened inputs, for which the correlation ``C = E[x f*(x)^T]`` is all
that the network learns from: the loss is ``|C - W1 W2|^2 / 2``.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.numerics.descent import TrainingProblem
from solvable.numerics.kappa import effective_dimension

if TYPE_CHECKING:
    from solvable.models.linear_network import LinearNetwork

# A direction of the features counts for their rank when it is at least this strong, relative to the strongest.
RANK_CUTOFF = 1e-2


class Target(NamedTuple):
    """The correlation and its singular vectors."""

    correlation: Float[Array, "input output"]
    left: Float[Array, "input mode"]
    right: Float[Array, "mode output"]

    @classmethod
    def of(cls, model: "LinearNetwork") -> Self:
        correlation = model.correlation if model.correlation is not None else np.diag(np.asarray(model.modes))
        left, _, right = np.linalg.svd(np.asarray(correlation), full_matrices=False)
        return cls(jnp.asarray(correlation), jnp.asarray(left), jnp.asarray(right))


def _layers(model: "LinearNetwork", target: Target, initial: str, key: Array) -> tuple[Array, Array]:
    inputs, outputs = target.correlation.shape
    first_key, second_key = jax.random.split(key)
    if initial == "random":
        deviation = model.initial_scale * np.sqrt(2 / model.width)
        shapes = ((inputs, model.width), (model.width, outputs))
        first, second = (jax.random.normal(k, s) for k, s in zip((first_key, second_key), shapes, strict=True))
        return deviation * first, deviation * second
    active = min(model.width, target.left.shape[1])
    rotation = jnp.linalg.qr(jax.random.normal(first_key, (model.width, active)))[0].T
    scale = model.initial_scale
    return scale * target.left[:, :active] @ rotation, scale * rotation.T @ target.right[:active]


def drawn(model: "LinearNetwork", target: Target, initial: str, weights: bool, key: Array) -> TrainingProblem:
    """The two matrices at the start, their gradients and what is measured of them."""
    layers = _layers(model, target, initial, key)

    def gradient(state: tuple[Array, Array]) -> tuple[Array, Array]:
        error = state[0] @ state[1] - target.correlation
        return error @ state[1].T, state[0].T @ error

    def measure(state: tuple[Array, Array]) -> dict[str, Array]:
        found = _measure(target, _difference(layers), *state)
        return found | ({"first": state[0], "second": state[1]} if weights else {})

    return TrainingProblem(gradient, measure, layers)


def train_with_all(
    model: "LinearNetwork",
    target: Target,
    times: Any,
    initial: str,
    weights: bool,
    tolerances: Any,
    key: Array,
) -> dict[str, Array]:
    """One run with each of the tolerances, all at once: compiling takes longer than training."""
    train = partial(_train, model, target, times, initial, weights)
    return jax.vmap(lambda tolerance: train(tolerance, key))(tolerances)


def _train(
    model: "LinearNetwork", target: Target, times: Array, initial: str, weights: bool, tolerance: Array, key: Array
) -> dict[str, Array]:
    """One run: ``W1' = (C - W1 W2) W2^T``, ``W2' = W1^T (C - W1 W2)``.

    Neither layer leaves the span of the incoming and outgoing weights of the start, so that a wide network is one with
    as many units as inputs and outputs together, exactly. The error never grows: once it is below the tolerance nothing
    is left to integrate, which an explicit method would do in steps of one length forever.
    """
    import diffrax

    wide = _layers(model, target, initial, key)
    basis = jnp.linalg.qr(jnp.concatenate([wide[0].T, wide[1]], axis=1))[0]
    layers = (wide[0] @ basis, basis.T @ wide[1])
    negligible = tolerance * jnp.linalg.norm(target.correlation)

    def flow(_: Any, state: tuple[Array, Array], __: Any) -> tuple[Array, Array]:
        first, second = state
        error = target.correlation - first @ second
        return error @ second.T, first.T @ error

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(flow),
        diffrax.Dopri8(),
        t0=0.0,
        t1=jnp.maximum(times[-1], 1e-12),
        dt0=None,
        y0=layers,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance * model.initial_scale),
        event=diffrax.Event(
            lambda _, state, __, **___: jnp.linalg.norm(target.correlation - state[0] @ state[1]) < negligible
        ),
        max_steps=1_000_000,
        throw=False,
    )
    (during, last), (_, (when,)) = solution.ys, solution.ts
    learned = (solution.result == diffrax.RESULTS.event_occurred) & (times > when)
    states = jax.tree.map(lambda past, end: jnp.where(learned[:, None, None], end, past), during, last)
    begin = _difference(layers)
    measured = jax.vmap(lambda first, second: _measure(target, begin, first, second))(*states)
    if weights:
        measured |= {"first": states[0] @ basis.T, "second": basis @ states[1]}
    return {**measured, "steps": solution.stats["num_steps"]}


def _difference(layers: tuple[Array, Array]) -> Array:
    first, second = layers
    return first.T @ first - second @ second.T


def _measure(target: Target, begin: Array, first: Array, second: Array) -> dict[str, Array]:
    difference = _difference((first, second))
    values = jnp.linalg.svd(first, compute_uv=False)
    return {
        "strength": jnp.einsum("dm,dc,mc->m", target.left, first @ second, target.right),
        "test_loss": jnp.sum((first @ second - target.correlation) ** 2) / 2,
        "singular_value": values,
        "rank": rank(jnp, values**2),
        "feature_dimension": effective_dimension(values**2),
        "imbalance": jnp.linalg.norm(difference),
        "drift": jnp.linalg.norm(difference - begin),
    }


def rank(xp: Any, intensities: Any) -> Any:
    """How many directions are stronger than the cutoff; intensities are squares of strengths."""
    return xp.sum(intensities > RANK_CUTOFF**2 * xp.max(intensities, axis=-1, keepdims=True), axis=-1)
