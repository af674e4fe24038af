"""Losses summed over all skills, also infinitely many, for many times and basis sizes at once."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.checks import is_traced
from solvable.models.skills.dynamics import (
    GAUSS_NODES,
    SATURATED,
    Law,
    expected_rest,
    frequencies,
    law,
    midpoint,
    plain,
    rest_with_share,
    unlearned,
)
from solvable.models.skills.emergence import unseen
from solvable.models.skills.tail_sums import SumGrid, partial_sums, power_sum, rounded_up, sum_grid
from solvable.numerics.arrays import numpy_unless_traced

if TYPE_CHECKING:
    from solvable.models.skills.parameters import SkillParameters

# For rates and frequencies that JAX traces the grid cannot be fitted to them: one that is fine enough for all that
# is reasonable (R0 / S down to 1e-6, exponents up to 1, progress of the first skill up to 1e12).
_TRACED_HEAD, _TRACED_WIDTH, _TRACED_REACH = 320, 0.05, math.exp(44)
# Progress below which the summand is replaced by its first two powers; the error is of the order of its square.
_SMALL = 1e-7
_LARGEST_TABLE = 2**23
# How much coarser the grid is that the error of a sum is estimated with; the error is that of the coarser one.
_COARSER = 1.3


def with_error(values: Callable[[float], Any]) -> tuple[Any, float | None]:
    """Sums, and how much a coarser grid changes them; none where JAX traces them."""
    result = values(1.0)
    if isinstance(result, jax.core.Tracer):
        return result, None
    result, coarser = np.asarray(result), np.asarray(values(_COARSER))
    return result, float(np.max(np.abs(coarser - result) / np.maximum(result, 1e-300)))


def time_losses(model: "SkillParameters", times: np.ndarray, basis: np.ndarray, coarser: float = 1.0) -> Any:
    """Eq. 4.17 with its expectation over the data, at each time (rows) and number of basis functions (columns).

    ``coarser`` widens the grid, to see what that changes.
    """
    # Repeated rows and columns are cut off at the end.
    rows, columns = _padded(times), _padded(basis)
    whole, part = _whole_skills(model, columns)
    rules, samples = law(model), plain(model, "samples")
    scale = 0.0 if is_traced(model) else min(float(rules.growth * np.max(times)), samples)
    grid, endless = _grid(model, rules, whole, scale, coarser)
    nodes = GAUSS_NODES if coarser == 1 else 2 * GAUSS_NODES // 3

    def learned(block: np.ndarray) -> Any:
        if math.isinf(samples):
            return _sums_of_unlimited(rules, grid, endless, block)
        chance = frequencies(rules, grid.points)
        left = expected_rest(rules, samples, chance, block, nodes)[1]
        start = unlearned(rules, np.zeros(())) ** 2
        slope = samples * (unlearned(rules, rules.growth * block / samples) ** 2 - start)
        return _sums(rules, grid, endless, chance[:, None] * left, start, slope)

    size = max(1, _LARGEST_TABLE // grid.size)
    parts = [learned(rows[begin : begin + size]).T for begin in range(0, rows.size, size)]
    total = parts[0] if len(parts) == 1 else (jnp if is_traced(parts) else np).concatenate(parts)
    if part.any():
        total = total + part * _partial_skill(rules, whole, part, rows)
    losses = _with_untaught(model, rules, whole, part, total)
    return losses[: times.size, : basis.size]


def data_losses(model: "SkillParameters", samples: np.ndarray, coarser: float = 1.0) -> Any:
    """The loss after training on each number of samples, eq. 4.29 and, for more shots than one, B.42 averaged."""
    shots, rules = int(plain(model, "shots")), law(model)
    whole, part = _whole_skills(model, np.array([plain(model, "basis")]))

    def learned(count: float) -> Array:
        if math.isinf(count):
            return jnp.zeros(())
        grid, endless = _grid(model, rules, whole, count, coarser, steepest=SATURATED + 3 * math.sqrt(shots))
        chance = frequencies(rules, grid.points)
        left = unseen(count, chance, shots)
        return _sums(rules, grid, endless, (chance * left)[:, None], np.ones(()), -count / shots)[0, 0]

    total = jnp.asarray([learned(float(count)) for count in samples])
    return _with_untaught(model, rules, whole, part, total)


def parameter_losses(model: "SkillParameters", basis: np.ndarray) -> Any:
    """The loss after training on unlimited data: what the skills without basis functions leave (eqs. 4.35, 5.9)."""
    return _with_untaught(model, law(model), *_whole_skills(model, _padded(basis)), np.zeros(()))[: basis.size]


def _padded(values: np.ndarray) -> np.ndarray:
    """Values with the last repeated, to a length that many calls share, and compiled code with it."""
    return np.pad(np.asarray(values, float), (0, rounded_up(values.size) - values.size), mode="edge")


def _whole_skills(model: "SkillParameters", basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many skills have all their basis functions, and the share that the next one has (eq. 5.7)."""
    each, skills = plain(model, "neurons_per_skill"), plain(model, "skills")
    finite = np.isfinite(basis)
    count = np.where(finite, basis, 0.0)
    whole = np.where(finite, np.floor(count / each), np.inf)
    part = np.where(finite & (whole < skills), np.mod(count, each) / each, 0.0)
    return np.minimum(whole, skills), part


def _with_untaught(model: "SkillParameters", rules: Law, whole: Any, part: Any, taught: Any) -> Any:
    """The loss from that of the taught skills and of those without basis functions."""
    return _halved(model.target_scale, taught, _untaught(rules, plain(model, "skills"), whole, part))


@numpy_unless_traced
def _untaught(xp: Any, rules: Law, skills: Any, whole: Any, part: Any) -> Any:
    """Frequencies of all skills, or shares of them, that have no basis functions."""
    finite = xp.isfinite(whole)
    first = xp.where(finite, whole, 0.0) + 1
    missing = rules.normalisation * power_sum(rules.exponent + 1, first, skills)
    return xp.where(finite, missing - part * frequencies(rules, first), 0.0)


@numpy_unless_traced
def _halved(xp: Any, scale: Any, taught: Any, untaught: Any) -> Any:
    return scale**2 / 2 * (taught + untaught)


def _partial_skill(rules: Law, whole: np.ndarray, part: np.ndarray, times: np.ndarray) -> Any:
    """Frequency times relative loss of the skill that has only some of its basis functions."""
    chance = frequencies(rules, np.where(np.isfinite(whole), whole, 0.0) + 1)
    return chance * rest_with_share(rules, chance, part, times) ** 2


def _grid(
    model: "SkillParameters", rules: Law, ends: np.ndarray, scale: float, coarser: float, steepest: float | None = None
) -> tuple[SumGrid, np.ndarray]:
    """A grid for summands that depend on ``scale`` times the frequency, and vary while that is moderate.

    In the logarithm of the frequency the summand varies over ``1 / progress``; beyond ``steepest`` it is zero. Also
    says which of the ends are infinite.
    """
    endless = np.isinf(ends)
    if is_traced(model):
        reach = _TRACED_REACH if endless.any() else None
        return sum_grid(ends[~endless], _TRACED_HEAD, lambda _: _TRACED_WIDTH * coarser, reach), endless
    power, top = model.exponent + 1, scale * float(rules.normalisation)
    most = float(midpoint(rules)) + SATURATED if steepest is None else steepest

    def width(log_skill: float) -> float:
        progress = min(top * math.exp(-min(power * log_skill, 700.0)), most)
        return coarser * min(0.7, 3.0 / (power * (1 + progress)))

    # Frequencies below the smallest float need no care.
    head = min(16 + 2.5 * power * (1 + min(top, most)), 10 ** min(300 / power, 18))
    reach = max(2 * head, 200.0, (top / _SMALL) ** (1 / power)) if endless.any() else None
    return sum_grid(ends[~endless], math.ceil(head), width, reach), endless


@numpy_unless_traced
def _sums_of_unlimited(xp: Any, rules: Law, grid: SumGrid, endless: Any, times: Any) -> Any:
    """The sums of ``P_k φ(growth P_k t)``, rows for ends and columns for times."""
    chance = frequencies(rules, grid.points)
    summand = chance[:, None] * unlearned(rules, rules.growth * chance[:, None] * times) ** 2
    start = unlearned(rules, np.zeros(()))
    # Of the sigmoid's square, and of exp(-2 progress).
    slope = -2 * start**2 * (1.0 if rules.log_odds is None else 1 - start)
    return _sums(rules, grid, endless, summand, start**2, rules.growth * times * slope)


@numpy_unless_traced
def _sums(xp: Any, rules: Law, grid: SumGrid, endless: Any, summand: Any, start: Any, slope: Any) -> Any:
    """Sums to each end; to infinity the summand goes on as ``P (start + slope P)``, integrated from the reach."""
    finite, reached = partial_sums(grid, summand)
    scale, power, edge = rules.normalisation, rules.exponent + 1, grid.reach
    beyond = start * scale * edge ** (-rules.exponent) / rules.exponent
    beyond = beyond + slope * scale**2 * edge ** (1 - 2 * power) / (2 * power - 1)
    # Rows of the finite ends first, then the one of infinity, to be picked from.
    rows = xp.concatenate([finite, (reached + beyond)[None]])
    return rows[xp.where(endless, finite.shape[0], xp.cumsum(~endless) - 1)]
