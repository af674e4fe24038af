"""Finite-size runs: datasets are drawn, the parameters of every skill descend, and strengths are read off."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.engines.ensemble import ensemble
from solvable.models.skills.dynamics import frequencies, law, shares

if TYPE_CHECKING:
    from solvable.models.skills.model import SkillModel


# Squared singular values below this, relative to the largest, are rounding: the direction was not drawn.
_RANK = 1e-13


class Learner(NamedTuple):
    """The two factors of each skill (the linear model has the first only), how often the data shows it, the key."""

    first: Array
    second: Array
    frequency: Array
    key: Array


def begin(model: "SkillModel", skills: np.ndarray, key: Array) -> Learner:
    """Draw a training set of ``samples`` points, and start the factors equal, as eq. 4.11 wants them."""
    chance = frequencies(law(model), skills)
    draw, later = jax.random.split(key)
    shown = chance
    if np.isfinite(model.samples):
        shown = jax.random.multinomial(draw, model.samples, chance) / model.samples
    if model.kind == "linear":
        start = jnp.zeros(skills.size)
        return Learner(start, jnp.ones(skills.size), shown, later)
    # Of eq. 5.6 only the direction in which the basis functions of a skill add up is ever excited.
    start = jnp.sqrt(model.initial_strength * jnp.sqrt(shares(model, skills)))
    return Learner(start, start, shown, later)


def gradient(model: "SkillModel", skills: np.ndarray, learner: Learner, shown: Array) -> tuple[Array, Array]:
    """Minus the gradient of the empirical loss in the two factors, times learning rate and ``rate``."""
    target = model.target_scale * jnp.sqrt(shares(model, skills))
    error = target - learner.first * learner.second
    pull = model.learning_rate * model.rate * shown * error
    if model.kind == "linear":
        return pull, jnp.zeros_like(pull)
    return pull * learner.second, pull * learner.first


def advance(
    model: "SkillModel", skills: np.ndarray, method: str, batch: int | None, learner: Learner, count: Array
) -> Learner:
    """One unit of time: a step of descent, or a step of the fourth-order Runge-Kutta method for the flow."""
    shown = learner.frequency
    if batch is not None:
        drawn = jax.random.multinomial(jax.random.fold_in(learner.key, count), batch, shown / shown.sum())
        shown = drawn / batch

    def moved(by: tuple[Array, Array], share: float) -> Learner:
        return learner._replace(first=learner.first + share * by[0], second=learner.second + share * by[1])

    one = gradient(model, skills, learner, shown)
    if method == "descent":
        return moved(one, 1.0)
    two = gradient(model, skills, moved(one, 0.5), shown)
    three = gradient(model, skills, moved(two, 0.5), shown)
    four = gradient(model, skills, moved(three, 1.0), shown)
    mean = tuple((a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(one, two, three, four, strict=True))
    return moved((mean[0], mean[1]), 1.0)


def measure(model: "SkillModel", skills: np.ndarray, shown: int, learner: Learner) -> dict[str, Array]:
    """Strengths and skill losses of the first ``shown`` skills (eqs. 4.7, 4.8), and the loss over all of them."""
    share = shares(model, skills)
    product = learner.first * learner.second
    target = model.target_scale * jnp.sqrt(share)
    loss = ((target - product) ** 2 + model.target_scale**2 * (1 - share)) / 2
    return {
        "strength": (product * jnp.sqrt(share))[:shown],
        "skill_loss": loss[:shown],
        "test_loss": jnp.sum(frequencies(law(model), skills) * loss),
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
        solution = vectors @ (jnp.where(values > _RANK * values[-1], 1.0, 0.0) * (direction @ vectors))
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
