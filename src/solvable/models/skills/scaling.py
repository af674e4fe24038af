"""Scaling laws: exponents, prefactors, the correction for finitely many skills, and the compute optimum."""

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.models.skills.dynamics import Law, law, midpoint, unlearned
from solvable.models.skills.totals import time_losses
from solvable.numerics.roots import differentiable_root, minimum

if TYPE_CHECKING:
    from solvable.models.skills.parameters import SkillParameters

_GAUSS_NODES, _GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(16)
_PANELS = 160
_CANDIDATES = 12
_BLOCK = 64


def exponents(model: "SkillParameters") -> dict[str, Any]:
    """Table 4.1: the loss falls as ``resource^-exponent``; the optimal time and basis grow as ``budget^exponent``."""
    alpha = model.exponent
    return {
        "time": alpha / (alpha + 1),
        "samples": alpha / (alpha + 1),
        "basis": alpha,
        "budget": alpha / (alpha + 2),
        "optimal_time": (alpha + 1) / (alpha + 2),
        "optimal_basis": 1 / (alpha + 2),
    }


def prefactors(model: "SkillParameters") -> dict[str, Any]:
    """What multiplies the powers of :func:`exponents` when every other resource is unlimited.

    Time: (S²/2)(A/α)(g A)^-e ∫ φ(v^(1/e)) dv with φ the relative skill loss, g its growth and e = α/(α+1).
    Data: (S²/2) A Γ(e) / (α+1) (A)^-e / (number of shots to the right power). Basis: S² A / (2α).
    Compute: with u = g A T N^-(α+1) the loss is (S²/2)(A/α) N^-α (1 + u^-e ∫_u φ(w) e w^(e-1) dw), minimised over u.
    """
    rules = law(model)
    alpha, scale, speed = rules.exponent, rules.normalisation, rules.growth
    part = alpha / (alpha + 1)
    half = model.target_scale**2 / 2
    best, height = _optimal_progress(rules)
    steps = 1 / (alpha + 2)
    return {
        "time": half * scale / alpha * (speed * scale) ** (-part) * _lost_above(rules, jnp.zeros(())),
        "samples": half * scale / (alpha + 1) * scale ** (-part) * _shot_factor(model, part),
        "basis": half * scale / alpha * model.neurons_per_skill**alpha,
        "budget": half * scale / alpha * height * (model.neurons_per_skill / (speed * scale)) ** (alpha * steps),
        "optimal_time": (best / (speed * scale)) ** steps * model.neurons_per_skill ** (-(alpha + 1) * steps),
        "optimal_basis": (speed * scale / best) ** steps * model.neurons_per_skill ** ((alpha + 1) * steps),
    }


def _shot_factor(model: "SkillParameters", part: Any) -> Array:
    """``∫ x^(e-1) E[(1 - d/Dc)+] dx`` over the Poisson mean ``x`` of the count ``d``; Γ(e) for a single shot.

    Term by term ``∫ x^(e-1+d) exp(-x) / d! dx = Γ(e+d)/d!``.
    """
    count = np.arange(float(model.shots))
    terms = jnp.exp(jax.lax.lgamma(part + count) - jax.lax.lgamma(jnp.asarray(count + 1)))
    return jnp.sum(terms * (1 - count / model.shots))


@jax.jit
def _lost_above(rules: Law, progress: Array) -> Array:
    """``∫ e w^(e-1) φ(w) dw`` from ``progress`` on, by parts: ``∫ w^e (-φ'(w)) dw - progress^e φ(progress)``."""
    # φ' is below rounding outside of a window around the midpoint; from 0 to 1 the power of w asks for a log grid.
    middle = midpoint(rules)
    low = jnp.maximum(1.0, middle - 40)
    edges = low + (middle + 30 - low) * np.linspace(0, 1, _PANELS + 1)
    logs = np.linspace(-45.0, 0.0, _PANELS + 1)
    near = np.exp(_nodes(logs))
    nodes = jnp.concatenate([near, _nodes(edges)])
    weights = jnp.concatenate([_weights(logs) * near, _weights(edges)])
    part = rules.exponent / (rules.exponent + 1)
    return jnp.sum(weights * nodes**part * _fall(rules, nodes)) - _lost_below(rules, progress, part)


def _lost_below(rules: Law, progress: Array, part: Any) -> Array:
    """``∫ w^e (-φ') dw`` up to ``progress``, plus ``progress^e φ(progress)``; on panels that end there."""
    safe = jnp.where(progress > 0, progress, 1.0)
    logs = np.linspace(-45.0, 0.0, 4 * _PANELS + 1)
    nodes = safe * np.exp(_nodes(logs))
    below = (
        jnp.sum(_weights(logs) * nodes ** (part + 1) * _fall(rules, nodes)) + safe**part * unlearned(rules, safe) ** 2
    )
    return jnp.where(progress > 0, below, 0.0)


def _fall(rules: Law, progress: Array) -> Array:
    """Minus the derivative of the relative skill loss."""
    rest = unlearned(rules, progress)
    return 2 * rest**2 * (1.0 if rules.log_odds is None else 1 - rest)


def _nodes(edges: Any) -> Any:
    half = (edges[1:] - edges[:-1])[:, None] / 2
    return (edges[:-1, None] + half * (1 + _GAUSS_NODES)).ravel()


def _weights(edges: Any) -> Any:
    return ((edges[1:] - edges[:-1])[:, None] / 2 * _GAUSS_WEIGHTS).ravel()


@jax.jit
def _optimal_progress(rules: Law) -> tuple[Array, Array]:
    """How far the last skill of the basis has got when compute is spent best, and the loss there in its units."""
    alpha = rules.exponent
    part, power = alpha / (alpha + 1), alpha / (alpha + 2)

    def height(log_progress: Array) -> Array:
        progress = jnp.exp(log_progress)
        return progress**power * (1 + progress ** (-part) * _lost_above(rules, progress))

    # The optimum lies near the midpoint of the sigmoid; golden section on the logarithm finds it.
    lowest = minimum(height, jnp.full((), -8.0), jnp.log(midpoint(rules) + 60.0), iterations=60)
    best = differentiable_root(jax.grad(height), lowest)
    return jnp.exp(best), height(best)


def corrected_time_law(model: "SkillParameters", times: np.ndarray, start: float) -> tuple[Array, Array]:
    """Eq. C.2, integrated from ``start``: ``L + L_C`` falls as a power, with ``L_C = S² A n^-α / 2α`` for ``n`` skills.

    Gives the corrected and the plain power law, both through the exact loss at ``start``. What counts is the number of
    skills that exist: skills without basis functions keep their loss, and their part of the constant with it.
    """
    basis = np.array([float(model.basis)])
    at_start = time_losses(model, np.array([start]), basis)[0, 0]
    alpha, skills = model.exponent, float(model.skills)
    missing = 0.0
    if math.isfinite(skills):
        missing = model.target_scale**2 / 2 * law(model).normalisation / alpha * skills ** (-alpha)
    decay = (times / start) ** (-alpha / (alpha + 1))
    return (at_start + missing) * decay - missing, at_start * decay


def optimal_split(model: "SkillParameters", budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loss, basis size and time that spend each budget ``time * basis`` best, over all whole numbers of skills.

    Zooms in on the minimum of the exact loss, for all budgets at once, by a factor of five each time.
    """
    each = float(model.neurons_per_skill)
    most = np.minimum(np.maximum(budgets / each, 1.0), float(model.skills))
    low, high = np.ones_like(most), np.floor(most)
    while True:
        offsets = np.linspace(0, 1, _CANDIDATES)
        tried = np.round(low[:, None] * (high / low)[:, None] ** offsets)
        basis = (tried * each).ravel()
        times = np.repeat(budgets, _CANDIDATES) / basis
        losses = _paired_losses(model, times, basis).reshape(tried.shape)
        best = np.argmin(losses, axis=1)
        rows = np.arange(budgets.size)
        if np.all(high - low < _CANDIDATES):
            return losses[rows, best], tried[rows, best] * each, budgets / (tried[rows, best] * each)
        low = tried[rows, np.maximum(best - 1, 0)]
        high = tried[rows, np.minimum(best + 1, _CANDIDATES - 1)]


def _paired_losses(model: "SkillParameters", times: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """The loss at ``times[i]`` with ``basis[i]``, in blocks: each is a table of which the diagonal is kept."""
    order = np.argsort(times)
    out = np.empty(times.size)
    for begin in range(0, times.size, _BLOCK):
        # The last block repeats entries until it is full: one shape to compile.
        chosen = np.resize(order[begin : begin + _BLOCK], _BLOCK)
        out[chosen] = np.diagonal(np.asarray(time_losses(model, times[chosen], basis[chosen])))
    return out
