"""Finite-size runs: datasets are drawn, the parameters of every skill descend, and strengths are read off."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.models.skills.dynamics import frequencies, law, shares
from solvable.numerics.ensemble import ensemble

if TYPE_CHECKING:
    from solvable.models.skills.model import SkillModel


# Squared singular values below this, relative to the largest, are rounding: the direction was not drawn.
RANK = 1e-13


class Learner(NamedTuple):
    """The factors of each skill (the linear model has the first only), how often the data shows it, key and steps."""

    first: Array
    second: Array
    frequency: Array
    key: Array
    steps: Array


def begin(model: "SkillModel", skills: np.ndarray, key: Array) -> Learner:
    """Draw a training set of ``samples`` points, and start the factors equal, as eq. 4.11 wants them."""
    chance = frequencies(law(model), skills)
    draw, later = jax.random.split(key)
    shown = chance
    if np.isfinite(model.samples):
        shown = jax.random.multinomial(draw, model.samples, chance) / model.samples
    if model.kind == "linear":
        start = jnp.zeros(skills.size)
        return Learner(start, jnp.ones(skills.size), shown, later, jnp.zeros(()))
    # Of eq. 5.6 only the direction in which the basis functions of a skill add up is ever excited.
    start = jnp.sqrt(model.initial_strength * jnp.sqrt(shares(model, skills)))
    return Learner(start, start, shown, later, jnp.zeros(()))


def advance(
    model: "SkillModel", skills: np.ndarray, method: str, batch: int | None, learner: Learner, count: Array
) -> Learner:
    """One unit of time: a step of descent, or the flow on the data (or the batch) that is shown meanwhile."""
    shown = learner.frequency
    if batch is not None:
        drawn = jax.random.multinomial(jax.random.fold_in(learner.key, count), batch, shown / shown.sum())
        shown = drawn / batch
    speed = model.learning_rate * model.rate * shown
    target = model.target_scale * jnp.sqrt(shares(model, skills))
    moved = _step if method == "descent" else _flow
    first, second = moved(model.kind == "linear", speed, target, learner.first, learner.second)
    return learner._replace(first=first, second=second, steps=learner.steps + 1)


def _step(linear: bool, speed: Array, target: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """One step along minus the gradient of the empirical loss."""
    pull = speed * (target - first * second)
    return (first + pull, second) if linear else (first + pull * second, second + pull * first)


def _flow(linear: bool, speed: Array, target: Array, first: Array, second: Array) -> tuple[Array, Array]:
    """The flow of skills that do not know of each other for one unit of time, in closed form.

    Equal factors stay equal, and their product follows ``p' = 2 speed p (target - p)``: a sigmoid. The one factor of
    the linear model follows ``p' = speed (target - p)``.
    """
    if linear:
        return first - jnp.expm1(-speed) * (target - first), second
    product = first * second
    later = product + (target - product) * jnp.exp(-2 * speed * target)
    # A skill without basis functions has no target, and stays where it is: at zero.
    growth = jnp.sqrt(jnp.where(later > 0, target / jnp.where(later > 0, later, 1.0), 1.0))
    return growth * first, growth * second


def measure(model: "SkillModel", skills: np.ndarray, shown: int, learner: Learner) -> dict[str, Array]:
    """Strengths and skill losses of the first ``shown`` skills (eqs. 4.7, 4.8), the loss over all, and their rounding.

    Each step rounds a factor a few times, which is a few machine precisions of it; N steps at most N times that.
    """
    share = shares(model, skills)
    product = learner.first * learner.second
    target = model.target_scale * jnp.sqrt(share)
    loss = ((target - product) ** 2 + model.target_scale**2 * (1 - share)) / 2
    rounding = 8 * jnp.finfo(float).eps * (learner.steps + 1) * product
    loss_rounding = jnp.abs(target - product) * rounding + rounding**2 / 2
    chance = frequencies(law(model), skills)
    return {
        "strength": (product * jnp.sqrt(share))[:shown],
        "skill_loss": loss[:shown],
        "test_loss": jnp.sum(chance * loss),
        "strength_error": (rounding * jnp.sqrt(share))[:shown],
        "skill_loss_error": loss_rounding[:shown],
        "test_loss_error": jnp.sum(chance * loss_rounding),
    }


def trained_strengths(
    model: "SkillModel", samples: np.ndarray, skills: np.ndarray, features: str, options: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Strengths after training the model of eq. 5.3 on drawn data: minimum-norm regression for each skill.

    Each skill has ``shots`` basis functions, orthonormal under the inputs: independent Gaussians or signs stand in.
    The limit of small starts is the minimum-norm solution (appendix B.1.6), here the projection of the target on the
    span of the features that were drawn.
    """
    shots = int(model.shots)
    chance = frequencies(law(model), skills)
    direction = jnp.full(shots, shots**-0.5)

    def strength(count: Array, key: Array) -> tuple[Array, Array]:
        draw = jax.random.rademacher if features == "signs" else jax.random.normal
        drawn = draw(key, (shots, 2 * shots), dtype=float)
        # Twice the shots determine the skill whatever comes after; unused columns are zero.
        drawn = drawn * (jnp.arange(2 * shots) < count)
        values, vectors = jnp.linalg.eigh(drawn @ drawn.T)
        solution = vectors @ (jnp.where(values > RANK * values[-1], 1.0, 0.0) * (direction @ vectors))
        return solution @ direction, jnp.sum((direction - solution) ** 2) / 2

    def run(key: Array) -> tuple[Array, Array]:
        def at(trials: Array, key: Array) -> tuple[Array, Array]:
            draw, rest = jax.random.split(key)
            counts = jnp.broadcast_to(trials, chance.shape)
            # A single skill is in every sample; drawing that takes seconds to compile.
            if model.skills > 1:
                # JAX draws zero successes where success is certain.
                counts = jnp.where(chance < 1, jax.random.binomial(draw, trials, chance), trials)
            return jax.vmap(strength)(counts, jax.random.split(rest, skills.size))

        return jax.vmap(at)(jnp.asarray(samples), jax.random.split(key, samples.size))

    bytes_per_run = 80.0 * samples.size * skills.size * shots**2
    strengths, losses = ensemble(run, bytes_per_run=bytes_per_run, **options)
    return {"strength": model.target_scale * strengths, "skill_loss": model.target_scale**2 * losses}
