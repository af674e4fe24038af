"""Finite-size runs: training sets are drawn, the parameters of every skill are trained, and strengths are measured."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.models.skills.dynamics import frequencies, law, shares
from solvable.numerics.descent import TrainingProblem, optimiser_step
from solvable.numerics.ensemble import ensemble
from solvable.training import SGD, GradientDescent, Training

if TYPE_CHECKING:
    from solvable.models.skills.parameters import SkillParameters


# Fewer samples than this for each skill are drawn one by one, which is faster than one binomial number for each skill.
_SAMPLES_PER_SKILL = 100
# Squared singular values below this, relative to the largest, are rounding: the direction was not drawn.
RANK = 1e-13


class Learner(NamedTuple):
    """The factors of each skill (the linear model has only the first), with ``R = first second`` for complete skills.

    A factor here is ``sqrt(B)`` times a parameter of the model of eq. 5.1, which makes the gradients B times as large
    and leaves momentum and weight decay as they are.
    """

    first: Array
    second: Array
    velocity: tuple[Array, Array]
    frequency: Array
    """How often the training set, or the distribution, shows each skill."""
    key: Array
    rounding: Array
    """Relative rounding error of the product of the factors, in units of the machine precision."""


def begin(model: "SkillParameters", key: Array) -> Learner:
    """Draw a training set of ``samples`` points, and let the factors start equal, as eq. 4.11 requires."""
    skills = _skills(model)
    chance = frequencies(law(model), skills)
    draw, later = jax.random.split(key)
    frequency = chance
    if np.isfinite(model.samples):
        frequency = _drawn(draw, model.samples, chance) / model.samples
    still, zero = (jnp.zeros(skills.size), jnp.zeros(skills.size)), jnp.zeros(skills.size)
    if model.kind == "linear":
        return Learner(zero, jnp.ones(skills.size), still, frequency, later, zero)
    # Of eq. 5.6 only the direction in which the basis functions of a skill add up is ever excited.
    start = jnp.sqrt(model.initial_strength * jnp.sqrt(shares(model, skills)))
    return Learner(start, start, still, frequency, later, zero)


def flow(model: "SkillParameters", training: Training, times: tuple[float, ...], max_skills: int, key: Array) -> Any:
    """Measure one run of gradient flow at each time.

    Skills do not interact, so that the flow on drawn data has a closed form. Equal factors stay equal, and their
    product follows ``p' = 2 s p (target - p)``, a sigmoid, where ``s`` is B times the frequency in the data. The one
    factor of the linear model follows ``p' = s (target - p)``.
    """
    learner = begin(model, key)
    speed, target = model.rate * learner.frequency, _target(model)
    first, second = learner.first, learner.second

    def measured(clock: Array) -> dict[str, Array]:
        if model.kind == "linear":
            return measure(model, max_skills, learner._replace(first=-jnp.expm1(-speed * clock) * target))
        progress = 2 * speed * target * clock
        later = first * second + (target - first * second) * jnp.exp(-progress)
        # A skill without basis functions has no target, and stays where it is: at zero.
        growth = jnp.sqrt(jnp.where(later > 0, target / jnp.where(later > 0, later, 1.0), 1.0))
        # The exponential of a rounded number of e-folds, where it still matters.
        rest = jnp.where(target > 0, 1 - first * second * growth**2 / jnp.where(target > 0, target, 1.0), 0.0)
        moved = learner._replace(first=growth * first, second=growth * second, rounding=progress * jnp.abs(rest))
        return measure(model, max_skills, moved)

    return jax.lax.map(measured, training.flow_time(np.array(times)))


def advance(model: "SkillParameters", training: GradientDescent, learner: Learner, count: Array) -> Learner:
    """One step along minus the gradient of the loss on the training set or, with SGD, on a batch drawn from it."""
    frequency = learner.frequency
    if isinstance(training, SGD):
        batch = training.samples_per_batch(model.samples)
        frequency = _drawn(jax.random.fold_in(learner.key, count), batch, frequency) / batch
    factors = first, second = learner.first, learner.second
    pull = model.rate * frequency * (_target(model) - first * second)
    of_first, of_second = training.weight_decay * first - pull * second, training.weight_decay * second - pull * first
    gradient = (of_first, jnp.zeros_like(second) if model.kind == "linear" else of_second)
    (first, second), velocity = optimiser_step(training, factors, learner.velocity, gradient, training.rate_at(count))
    return learner._replace(first=first, second=second, velocity=velocity, rounding=learner.rounding + 1)


def population_problem(model: "SkillParameters", max_skills: int) -> TrainingProblem:
    """Training on the distribution, which nothing random enters: what theory follows step by step."""
    learner = begin(model, jax.random.key(0))

    def gradient(factors: tuple[Array, ...]) -> tuple[Array, ...]:
        first, second = (*factors, learner.second)[:2]
        pull = model.rate * learner.frequency * (_target(model) - first * second)
        return (-pull * second, -pull * first)[: len(factors)]

    def values(factors: tuple[Array, ...]) -> dict[str, Array]:
        first, second = (*factors, learner.second)[:2]
        found = measure(model, max_skills, learner._replace(first=first, second=second))
        return {name: value for name, value in found.items() if not name.endswith("_error")}

    trained = (learner.first,) if model.kind == "linear" else (learner.first, learner.second)
    return TrainingProblem(gradient, values, trained)


def measure(model: "SkillParameters", max_skills: int, learner: Learner) -> dict[str, Array]:
    """Strengths and losses of the first ``max_skills`` skills (eqs. 4.7, 4.8), the loss over all, and their rounding.

    Each step rounds a factor a few times, which is a few machine precisions of it; N steps at most N times that.
    """
    skills = _skills(model)
    share, target = shares(model, skills), _target(model)
    product = learner.first * learner.second
    loss = ((target - product) ** 2 + model.target_scale**2 * (1 - share)) / 2
    rounding = 8 * jnp.finfo(float).eps * (learner.rounding + 1) * jnp.abs(product)
    loss_rounding = jnp.abs(target - product) * rounding + rounding**2 / 2
    chance = frequencies(law(model), skills)
    return {
        "strength": (product * jnp.sqrt(share))[:max_skills],
        "skill_loss": jnp.asarray(loss)[:max_skills],
        "test_loss": jnp.sum(chance * loss),
        "strength_error": (rounding * jnp.sqrt(share))[:max_skills],
        "skill_loss_error": loss_rounding[:max_skills],
        "test_loss_error": jnp.sum(chance * loss_rounding),
    }


def bytes_per_run(model: "SkillParameters", training: Training, values: int) -> float:
    """Memory that one run needs at its peak, to measure the given number of values."""
    sizes = [model.samples, training.samples_per_batch(model.samples) if isinstance(training, SGD) else 0]
    one_by_one = max((size for size in sizes if size <= _SAMPLES_PER_SKILL * model.skills), default=0)
    return 200.0 * model.skills + 24.0 * one_by_one + 64.0 * values


def _drawn(key: Array, samples: float, frequency: Array) -> Array:
    """How often each skill occurs in a number of independent samples."""
    if samples > _SAMPLES_PER_SKILL * frequency.size:
        return jax.random.multinomial(key, samples, frequency / frequency.sum())
    reached = jnp.cumsum(frequency)
    # The last entry is one exactly, which no uniform number reaches.
    drawn = jnp.searchsorted(reached / reached[-1], jax.random.uniform(key, (int(samples),)), side="right")
    return jnp.zeros(frequency.size).at[drawn].add(1.0)


def _skills(model: "SkillParameters") -> np.ndarray:
    return np.arange(1.0, model.skills + 1)


def _target(model: "SkillParameters") -> np.ndarray:
    """What the product of the factors tends to: with a share r of the basis functions, sqrt(r) S."""
    return model.target_scale * np.sqrt(shares(model, _skills(model)))


def trained_strengths(
    model: "SkillParameters", samples: np.ndarray, skills: np.ndarray, features: str, options: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Strengths after training the model of eq. 5.3 on drawn data: minimum-norm regression for each skill.

    Each skill has ``shots`` basis functions, orthonormal under the inputs: independent Gaussians or signs are drawn in
    their place. The limit of small starts is the minimum-norm solution (appendix B.1.6), here the projection of the
    target on the span of the features that were drawn.
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
