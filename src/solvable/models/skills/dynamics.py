"""How one skill is learned: frequencies, growth, and the expectation over how often the data shows it.

Time is flow time here. A learning rate multiplies ``rate`` in every equation, so that :func:`in_units_of` a training
gives the model whose flow time is the time of that training.

========== ================== ===========================================================
symbol     name               meaning
========== ================== ===========================================================
α          ``exponent``       frequencies fall as ``k^-(α + 1)``
A          ``normalisation``  makes the frequencies sum to one
P_k        ``chance``         frequency of skill k (eq. 4.1)
g          ``growth``         2 B S (linear model: B); progress is ``g P_k t``
φ          ``unlearned**2``   skill loss relative to S²/2, as a function of the progress
r          ``share``          share of its basis functions that a skill has (eq. 5.7)
========== ================== ===========================================================
"""

import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.models.skills.binomial import gauss_rule, small_count_chances
from solvable.models.skills.tail_sums import power_sum, rounded_up
from solvable.numerics.arrays import numpy_unless_traced
from solvable.training import Training

if TYPE_CHECKING:
    from solvable.models.skills.parameters import SkillParameters

# Counts up to this many are summed one by one; skills that need more are learned smoothly in the count.
MOST_COUNTS = 1024
GAUSS_NODES = 24
# Beyond this many e-folds after its midpoint, a skill's loss is below 1e-17 of its start.
SATURATED = 20.0
_LARGEST_TABLE = 2**22


def growth(model: "SkillParameters") -> Any:
    """How fast a skill of frequency one is learned: 2 B S for the sigmoid (eqs. 4.11, 5.2), B for the linear model.

    Equation 5.2 prints B squared where gradient flow of the model of eq. 5.1 gives B (corrected: see docs/errata).
    ``rate`` is whatever stands there.
    """
    return 2 * model.rate * model.target_scale if model.kind == "multilinear" else model.rate


def in_units_of(model: "SkillParameters", training: Training) -> "SkillParameters":
    """The model whose flow time is the time of ``training``: its ``rate`` is multiplied by the learning rate."""
    if training.counts_steps or not training.is_constant:
        raise ValueError(f"this is for GradientFlow of a constant learning rate, not {training!r}: use predict")
    rate: Any = training.learning_rate  # type: ignore[attr-defined]
    return eqx.tree_at(lambda one: one.rate, model, model.rate * rate)


def on_its_clock(
    model: "SkillParameters", training: Training, times: np.ndarray
) -> tuple["SkillParameters", np.ndarray]:
    """The model and the flow times at which it is where ``training`` has it at ``times``; a schedule is a clock."""
    if training.is_constant:
        return in_units_of(model, training), times
    return model, training.flow_time(times)


class Law(NamedTuple):
    """The numbers that decide how skills are learned."""

    exponent: Any
    normalisation: Any
    """A of eq. 4.1: frequencies are ``A k^-(exponent + 1)``, normalised over the given number of skills."""
    growth: Any
    log_odds: Any
    """log(S/R0 - 1), the midpoint of the sigmoid in e-folds; None for the linear model, which starts from zero."""


def law(model: "SkillParameters") -> Law:
    plain(model, "skills")
    return _law(model)


@numpy_unless_traced
def _law(xp: Any, model: "SkillParameters") -> Law:
    odds = None
    if model.kind == "multilinear":
        odds = xp.log(model.target_scale - model.initial_strength) - xp.log(model.initial_strength)
    scale = 1 / power_sum(model.exponent + 1, 1, model.skills)
    return Law(xp.asarray(model.exponent, float), scale, xp.asarray(growth(model), float), odds)


@numpy_unless_traced
def frequencies(xp: Any, rules: Law, skills: Any) -> Any:
    """P(k) of eq. 4.1; also between whole numbers."""
    return rules.normalisation * xp.exp(-(rules.exponent + 1) * xp.log(xp.asarray(skills, float)))


@numpy_unless_traced
def unlearned(xp: Any, rules: Law, progress: Any) -> Any:
    """1 - R/S after ``progress = growth * frequency * time`` (eqs. 4.11, C.4); the loss is S^2/2 times its square."""
    return xp.exp(-progress) if rules.log_odds is None else _sigmoid(xp, rules.log_odds - progress)


def _sigmoid(xp: Any, values: Any) -> Any:
    return 1 / (1 + np.exp(-values)) if xp is np else jax.nn.sigmoid(values)


@numpy_unless_traced
def midpoint(xp: Any, rules: Law) -> Any:
    """The progress at which a skill is half learned, or zero where it is from the start."""
    return xp.zeros(()) if rules.log_odds is None else xp.maximum(rules.log_odds, 0.0)


def plain(model: "SkillParameters", name: str) -> float:
    """A count that decides how large arrays are, and so cannot be traced."""
    value = getattr(model, name)
    if isinstance(value, jax.core.Tracer):
        raise ValueError(f"{name} cannot be traced by JAX, because the size of the sums depends on it: keep it fixed")
    return value


def shares(model: "SkillParameters", skills: np.ndarray, basis: float | None = None) -> np.ndarray:
    """Which share of its basis functions each skill has: eq. 5.7 assigns them in the order of frequency."""
    basis = plain(model, "basis") if basis is None else basis
    if math.isinf(basis):
        return np.ones_like(skills, dtype=float)
    each = plain(model, "neurons_per_skill")
    return np.clip((basis - (np.asarray(skills) - 1.0) * each) / each, 0.0, 1.0)


def strengths_and_losses(model: "SkillParameters", skills: np.ndarray, times: np.ndarray) -> tuple[Any, Any]:
    """Expected R_k and skill loss at each time (rows) for each skill (columns).

    A skill with a share ``r`` of its basis functions follows the sigmoid towards ``r S``, at a rate lower by
    ``sqrt(r)`` (gradient flow of eq. 5.6 from a balanced start with the same ratio to its end), and keeps the loss
    ``(1 - r) S^2 / 2``.
    """
    share, rules = shares(model, skills), law(model)
    chance = frequencies(rules, skills)
    samples = plain(model, "samples")
    if math.isinf(samples):
        squared = rest_with_share(rules, chance, share, np.asarray(times, float)) ** 2
        learned = learned_with_share(rules, chance, share, np.asarray(times, float))
    else:
        mean, square = expected_rest(rules, samples, chance, np.asarray(times))
        learned, squared = 1 - mean.T, square.T
    return _strengths_and_losses(model.target_scale, share, learned, squared)


def spreads(model: "SkillParameters", skills: np.ndarray, times: np.ndarray) -> tuple[Any, Any]:
    """Standard deviations of R_k and skill loss over training sets of finite size, as :func:`strengths_and_losses`."""
    share, rules, scale = jnp.asarray(shares(model, skills)), law(model), model.target_scale
    chance = frequencies(rules, skills)
    mean, square, fourth = expected_rest(rules, plain(model, "samples"), chance, np.asarray(times), powers=(1, 2, 4))
    of_strength, of_loss = (
        jnp.sqrt(jnp.maximum(of_square - expected**2, 0.0)).T
        for expected, of_square in ((mean, square), (square, fourth))
    )
    return scale * share * of_strength, scale**2 / 2 * share * of_loss


@numpy_unless_traced
def rest_with_share(xp: Any, rules: Law, chance: Any, share: Any, times: Any) -> Any:
    """What skills (columns) that have a share of their basis functions have not learned of it, at each time."""
    return unlearned(rules, _progress(xp, rules, chance, share, times))


@numpy_unless_traced
def learned_with_share(xp: Any, rules: Law, chance: Any, share: Any, times: Any) -> Any:
    """One less :func:`rest_with_share`, with all digits also where next to nothing has been learned."""
    progress = _progress(xp, rules, chance, share, times)
    return -xp.expm1(-progress) if rules.log_odds is None else _sigmoid(xp, progress - rules.log_odds)


def _progress(xp: Any, rules: Law, chance: Any, share: Any, times: Any) -> Any:
    slower = 1.0 if rules.log_odds is None else xp.sqrt(share)
    return rules.growth * times[:, None] * (chance * slower)


@numpy_unless_traced
def _strengths_and_losses(xp: Any, scale: Any, share: Any, learned: Any, squared: Any) -> tuple[Any, Any]:
    return scale * share * learned, scale**2 / 2 * (share * squared + (1 - share))


def expected_rest(
    rules: Law,
    samples: float,
    chance: Any,
    times: np.ndarray,
    nodes: int = GAUSS_NODES,
    powers: tuple[int, ...] = (1, 2),
) -> tuple[Array, ...]:
    """Powers of ``1 - R/S``, expected over the number of samples ``d ~ Binomial(D, P)`` that show the skill.

    Rows are frequencies, columns times. Where a skill is learned by a few samples the counts are summed one by one;
    where it takes many, it is learned smoothly in the count and a Gauss rule for the binomial is exact to rounding.
    """
    per_sample = rules.growth * jnp.asarray(times) / samples
    # Counts above the number of samples have chance zero, and lengths that are rounded up share compiled code.
    most = rounded_up(int(min(samples, MOST_COUNTS)), 64)
    learned_by = (midpoint(rules) + SATURATED) / jnp.maximum(per_sample, 1e-300)
    counted = learned_by <= most
    use = (True, True)
    if samples <= MOST_COUNTS:
        # With few samples every count is summed, whatever it takes to learn.
        counted, use = jnp.ones_like(counted), (True, False)
    elif not isinstance(counted, jax.core.Tracer):
        use = (bool(counted.any()), not bool(counted.all()))
    # Sizes that are not in use are zero, so that they cause no further compilation.
    most, nodes = most if use[0] else 0, nodes if use[1] else 0
    size = max(1, _LARGEST_TABLE // max(most + 1, nodes * times.size))
    parts = [
        _expected_rest(rules, samples, chance[begin : begin + size], per_sample, counted, most, nodes, use, powers)
        for begin in range(0, chance.size, size)
    ]
    return tuple(jnp.concatenate(values) for values in zip(*parts, strict=True))


@partial(jax.jit, static_argnames=("most", "nodes", "use", "powers"))
def _expected_rest(
    rules: Law,
    samples: Array,
    chance: Array,
    per_sample: Array,
    counted: Array,
    most: int,
    nodes: int,
    use: tuple[bool, bool],
    powers: tuple[int, ...],
) -> tuple[Array, ...]:
    """Both ways that are in use, and for each time the right one."""
    both = []
    if use[0]:
        rest = unlearned(rules, np.arange(most + 1.0)[:, None] * per_sample)
        table = small_count_chances(samples, chance, most)
        both.append([table @ rest**power for power in powers])
    if use[1]:
        counts, weights = gauss_rule(samples, chance, nodes)
        rest = unlearned(rules, counts[:, :, None] * per_sample)
        both.append([jnp.einsum("pn,pnt->pt", weights, rest**power) for power in powers])
    return tuple(jnp.where(counted, one, other) for one, other in zip(both[0], both[-1], strict=True))
