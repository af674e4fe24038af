"""Effective dimension of a spectrum, and the self-consistent constant of overparameterised regression.

A linear model with intensities ``rho_k`` that is fitted to ``n`` samples behaves as if each mode were shrunk by a
ridge ``kappa`` of its own making (layerwise thesis, eq. 1.35; with an explicit ridge ``delta`` the second term):

    sum_k m_k rho_k / (rho_k + kappa)  +  delta / kappa  =  n

``m_k`` are multiplicities (1 unless given). They serve degenerate spectra, and power laws: :func:`power_law` writes
one with up to infinitely many modes as a few thousand weighted ones.

The equation is solved in ``log kappa``, so that intensities of any size are handled alike.

>>> import numpy as np
>>> from solvable.numerics.kappa import kappa, learnability
>>> intensities = np.arange(1, 101) ** -2.0
>>> shrunk = kappa(intensities, samples=10)
>>> round(float(learnability(intensities, shrunk).sum()), 8)
10.0
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.checks import is_traced
from solvable.numerics.arrays import array_module, numpy_unless_traced
from solvable.precision import in_float64

Bracket = tuple[Any, ...]

_ITERATIONS = 200
# Steps in log kappa below this, relative to its size, change nothing any more.
_TOLERANCE = 4e-15


class Spectrum(NamedTuple):
    """Intensities and how many modes share each."""

    intensities: Float[np.ndarray, "mode"]
    multiplicities: Float[np.ndarray, "mode"]


def effective_dimension(intensities: Any, multiplicities: Any = None) -> Any:
    """Number of modes that matter: the exponential of the entropy of the normalised intensities (eq. 1.16).

    The modes are along the last axis.
    """
    return _exponential_of_entropy(*_checked(intensities, multiplicities))


@numpy_unless_traced
def _exponential_of_entropy(xp: Any, intensities: Any, multiplicities: Any) -> Any:
    """Over the last axis."""
    scaled = intensities / xp.max(intensities, axis=-1, keepdims=True)
    weights = 1.0 if multiplicities is None else multiplicities
    shares = scaled / xp.sum(weights * scaled, axis=-1, keepdims=True)
    safe = xp.where(shares > 0, shares, 1.0)
    return xp.exp(-xp.sum(weights * shares * xp.log(safe), axis=-1))


@in_float64
def kappa(intensities: Any, samples: Any, ridge: Any = 0.0, multiplicities: Any = None) -> Any:
    """The constant of eq. 1.35 for one spectrum, differentiable in intensities, samples and ridge.

    Without a ridge it needs fewer samples than modes of positive intensity; at their number it vanishes, and with
    it the formula. Inside ``jax.jit`` and friends, where samples cannot be checked, it is then zero.
    """
    intensities, multiplicities = _checked(intensities, multiplicities)
    if intensities.ndim != 1:
        raise ValueError(f"intensities must be one-dimensional, not of shape {intensities.shape}: use jax.vmap")
    _check_samples(samples, ridge, intensities, multiplicities)
    weights = np.ones(np.shape(intensities)) if multiplicities is None else multiplicities
    return solve(intensities, weights, samples, ridge)


@in_float64
def learnability(intensities: Any, kappa: Any) -> Any:
    """Fraction of each mode that is learned, ``rho / (rho + kappa)`` (eq. 1.35)."""
    if is_traced(intensities, kappa):
        return shares(jnp.asarray(intensities, float), jnp.asarray(kappa))[0]
    return shares(np.asarray(intensities, float), np.asarray(kappa))[0]


def shares(intensities: Any, kappa: Any) -> tuple[Any, Any]:
    """``rho / (rho + kappa)`` and ``kappa / (rho + kappa)`` in full relative precision; with both zero, 0 and 1."""
    xp = array_module(intensities, kappa)
    total = intensities + kappa
    safe = xp.where(total == 0, 1.0, total)
    return intensities / safe, xp.where(total == 0, 1.0, kappa / safe)


def solve(intensities: Any, weights: Any, samples: Any, ridge: Any) -> Any:
    """:func:`kappa` without checks: zero where it does not exist. Unless traced, for one ridge or an array of them."""
    if is_traced(intensities, weights, samples, ridge):
        return _solve(*(jnp.asarray(values, float) for values in (intensities, weights, samples, ridge)))
    with np.errstate(all="ignore"):
        return _solved(np, *(np.asarray(values, float) for values in (intensities, weights, samples, ridge)))


@jax.custom_jvp
@jax.jit
def _solve(intensities: Array, weights: Array, samples: Array, ridge: Array) -> Array:
    return _solved(jnp, intensities, weights, samples, ridge)


def _solved(xp: Any, intensities: Any, weights: Any, samples: Any, ridge: Any) -> Any:
    log_intensities = xp.log(intensities)
    present = intensities > 0
    modes = xp.sum(xp.where(present, weights, 0.0))
    # Taking the modes above kappa as learned and those below as not, what is left of the balance are two sums of
    # positive terms, ``gain`` and ``lack``. Neither loses digits, however flat the balance is between two groups.

    def sides(log_kappa: Any) -> tuple[Any, Any, Any, Any]:
        distance = log_intensities - log_kappa[..., None]
        above = distance >= 0
        small = xp.exp(-xp.abs(distance))
        minor = weights * small / (1 + small)
        slope = minor / (1 + small)
        surplus = xp.sum(xp.where(above, weights, 0.0), -1) - samples
        from_ridge = xp.exp(xp.log(ridge) - log_kappa)
        gain = xp.maximum(surplus, 0.0) + xp.sum(xp.where(above, 0.0, minor), -1) + from_ridge
        lack = xp.maximum(-surplus, 0.0) + xp.sum(xp.where(above, minor, 0.0), -1)
        gain_slope = xp.sum(xp.where(above, 0.0, slope), -1) + from_ridge
        return gain, lack, gain_slope, xp.sum(xp.where(above, slope, 0.0), -1)

    def unfinished(state: Bracket) -> Any:
        low, high, point, step, count = state
        small = _TOLERANCE * xp.maximum(1.0, xp.abs(point))
        return (count < _ITERATIONS) & (xp.abs(step) > small) & (high - low > small)

    def refine(state: Bracket) -> Bracket:
        low, high, point, step, count = state
        gain, lack, gain_slope, lack_slope = sides(point)
        low, high = xp.where(gain > lack, point, low), xp.where(gain > lack, high, point)
        both = (gain > 0) & (lack > 0)
        newton = xp.log(gain / lack) / (gain_slope / gain + lack_slope / lack)
        good = both & (point + newton >= low) & (point + newton <= high) & (2 * xp.abs(newton) <= xp.abs(step))
        # A converged point stays where it is, although rounding may put its last step outside the bracket.
        move = xp.where(good, newton, xp.where(gain == lack, 0.0, (low + high) / 2 - point))
        return low, high, point + move, move, count + 1

    low, high = _bracket(xp, log_intensities, present, weights, modes, samples, ridge)
    possible = (samples < modes) | (ridge > 0)
    low, high = xp.where(possible, low, 0.0), xp.where(possible, high, 0.0)
    state = (low, high, (low + high) / 2, xp.full_like(low, xp.inf), xp.zeros(low.shape, int))
    last = jax.lax.while_loop(unfinished, refine, state) if xp is jnp else _repeated(unfinished, refine, state)
    return xp.where(possible, xp.exp(last[2]), 0.0)


def _repeated(unfinished: Callable[..., Any], refine: Callable[..., Any], state: Bracket) -> Bracket:
    """A loop over many brackets at once; those that are finished stay as they are."""
    while (going := unfinished(state)).any():
        state = tuple(np.where(going, new, old) for new, old in zip(refine(state), state, strict=True))
    return state


def _bracket(
    xp: Any, log_intensities: Any, present: Any, weights: Any, modes: Any, samples: Any, ridge: Any
) -> tuple[Any, Any]:
    """Bounds of ``log kappa``: every mode as the weakest one or the ridge alone, and ``rho / kappa`` for its share."""
    weakest = xp.min(xp.where(present, log_intensities, xp.inf))
    missing = xp.where(samples < modes, modes - samples, 1.0)
    flat = xp.where(samples < modes, weakest + xp.log(missing / samples), -xp.inf)
    ridge_alone = xp.log(ridge / samples)
    strongest = xp.max(log_intensities)
    total = xp.log(xp.sum(weights * xp.exp(log_intensities - strongest))) + strongest
    return xp.maximum(flat, ridge_alone) - 1e-9, xp.logaddexp(total, xp.log(ridge)) - xp.log(samples) + 1e-9


@_solve.defjvp
def _implicit(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    """The implicit function theorem: how the balance moves, over its slope in ``log kappa``."""
    intensities, weights, samples, ridge = primals
    d_intensities, d_weights, d_samples, d_ridge = tangents
    value = _solve(intensities, weights, samples, ridge)
    solvable = value > 0
    safe = jnp.where(solvable, value, 1.0)
    learned, left = shares(intensities, safe)
    moved = jnp.sum(weights * left * d_intensities / (intensities + safe)) + jnp.sum(learned * d_weights)
    slope = jnp.sum(weights * learned * left) + ridge / safe
    change = safe * (moved - d_samples + d_ridge / safe) / slope
    return value, jnp.where(solvable, change, 0.0)


def power_law(exponent: float, modes: float = np.inf, direct: int = 64, order: int = 20) -> Spectrum:
    """The spectrum ``rho_k = k^-exponent``, ``k = 1 ... modes``, for any number of modes, also infinitely many.

    The first ``direct`` modes are kept. The rest is cut into octaves, and each octave summed by the Gauss rule of the
    discrete uniform measure (nodes between the integers, positive weights), which sums smooth functions of k to
    rounding. Of infinitely many modes those after the 200th octave are so weak that only their sum matters.
    """
    if not exponent > 0 or (not exponent > 1 and modes == np.inf):
        raise ValueError(
            f"exponent must be positive, and above 1 for infinitely many modes (their sum diverges), not {exponent!r}"
        )
    if not modes >= 1 or (modes != np.inf and modes % 1):
        raise ValueError(f"modes must be a whole number, 1 or more, or inf, not {modes!r}")
    first = np.arange(1, min(direct, modes) + 1, dtype=float)
    ranks, counts = [first], [np.ones_like(first)]
    begin = float(direct)
    while begin < modes and begin < direct * 2.0**200:
        length = min(begin, modes - begin)
        nodes, weights = _uniform_sum(length, order)
        ranks.append(begin + 1 + nodes)
        counts.append(weights)
        begin += length
    intensities = np.concatenate(ranks) ** -float(exponent)
    multiplicities = np.concatenate(counts)
    if modes == np.inf:
        # The tail has the sum of the power law and the strength of its first mode.
        intensities = np.append(intensities, begin**-exponent)
        multiplicities = np.append(multiplicities, begin / (exponent - 1))
    return Spectrum(intensities, multiplicities)


def _uniform_sum(length: float, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule of ``sum_{j=0}^{length-1} f(j)``, from the recurrence of the discrete Chebyshev polynomials."""
    if length <= order:
        return np.arange(length), np.ones(int(length))
    degree = np.arange(1, order, dtype=float)
    # In units of the length, which may be beyond 1e60.
    coupling = degree * np.sqrt((1 - (degree / length) ** 2) / (4 * (4 * degree**2 - 1)))
    positions, vectors = np.linalg.eigh(np.diag(coupling, 1) + np.diag(coupling, -1))
    return length * (positions + 0.5) - 0.5, length * vectors[0] ** 2


def _checked(intensities: Any, multiplicities: Any) -> tuple[Any, Any]:
    """Both as NumPy arrays after the checks; what is traced is passed on."""
    if is_traced(intensities):
        return intensities, multiplicities
    values = np.asarray(intensities, dtype=float)
    if values.ndim == 0 or values.size == 0:
        raise ValueError(f"intensities must be a list of numbers with at least one mode, not of shape {values.shape}")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        place = tuple(int(index) for index in np.argwhere(bad)[0])
        raise ValueError(
            f"intensities must be finite and not negative, but intensities{list(place)} = {values[place]:g}"
        )
    if not values.any(axis=-1).all():
        raise ValueError("at least one of the intensities must be positive: a spectrum of zeros has no modes")
    if multiplicities is None or is_traced(multiplicities):
        return values, multiplicities
    counts = np.asarray(multiplicities, dtype=float)
    if counts.shape != values.shape[-1:]:
        raise ValueError(f"multiplicities must have one entry for each of the {values.shape[-1]} intensities")
    if not (np.isfinite(counts) & (counts > 0)).all():
        raise ValueError("multiplicities must be positive finite numbers: leave out absent modes")
    return values, counts


def _check_samples(samples: Any, ridge: Any, intensities: Any, multiplicities: Any) -> None:
    if not is_traced(samples) and not 0 < float(samples) < np.inf:
        raise ValueError(f"samples must be a positive finite number, not {samples!r}")
    if not is_traced(ridge) and not 0 <= float(ridge) < np.inf:
        raise ValueError(f"ridge must be a finite number, zero or more, not {ridge!r}")
    if is_traced(samples, ridge, intensities, multiplicities) or float(ridge) > 0:
        return
    present = intensities > 0
    modes = float(present.sum() if multiplicities is None else multiplicities[present].sum())
    if float(samples) >= modes:
        raise ValueError(
            f"kappa needs fewer samples than modes of positive intensity, not {float(samples):g} samples for "
            f"{modes:g} modes: with as many or more there is nothing to choose between (add a ridge, or drop samples)"
        )
