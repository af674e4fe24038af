"""Fits to measured curves, with how well the data determine what is fitted."""

from typing import TYPE_CHECKING

import numpy as np

from solvable.models.skills.dynamics import frequencies, law
from solvable.numerics.fits import straight_line

if TYPE_CHECKING:
    from solvable.models.skills.parameters import SkillParameters

_PROFILE = np.geomspace(1e-6, 1e-1, 11)
_LARGEST = 1_000_000


def check_curve(where: str, points: np.ndarray, strength: object, model: "SkillParameters", least: int) -> np.ndarray:
    """A measured curve: as many finite strengths as points, and enough of them to fit to."""
    values = np.asarray(strength, dtype=float)
    if values.shape != points.shape:
        raise ValueError(f"strength must have one value for each of {where}: {values.shape} is not {points.shape}")
    if not np.isfinite(values).all():
        raise ValueError("strength must be finite: remove what was not measured")
    if values.size < least:
        raise ValueError(f"a fit needs at least {least} points, not {values.size}: measure more of the curve")
    return values / model.target_scale


def time_fit(
    model: "SkillParameters", learning_rate: float, times: np.ndarray, curve: np.ndarray, skill: int
) -> dict[str, object]:
    """Fit ``rate`` and ``initial_strength`` together to a sigmoid.

    In terms of the midpoint ``t_half = log(S/R0 - 1) / g`` and the slope ``g`` the curve is well determined; the two
    parameters are these two combined, and their errors go together. The profile shows what ``rate`` becomes when the
    initial strength is only assumed.
    """
    from scipy.optimize import least_squares

    per_rate = 2 * learning_rate * model.target_scale * float(frequencies(law(model), float(skill)))

    def curve_of(odds: float, slope: float) -> np.ndarray:
        return 1 / (1 + np.exp(np.clip(odds - slope * times, -700, 700)))

    odds, slope = _first_guess(times, curve)
    fit = least_squares(
        lambda at: curve_of(at[0], np.exp(at[1])) - curve, [odds, np.log(slope)], xtol=1e-15, ftol=1e-15, gtol=1e-15
    )
    odds, slope = fit.x[0], float(np.exp(fit.x[1]))
    freedom = max(times.size - 2, 1)
    variance = 2 * fit.cost / freedom
    information = fit.jac.T @ fit.jac
    if np.linalg.cond(information) > 1e14:
        raise ValueError("the curve does not determine a sigmoid: measure it where the skill is half learned")
    covariance = variance * np.linalg.inv(information)
    share = 1 / (1 + np.exp(odds))
    # d log R0 / d odds = -(1 - R0/S)
    error_odds, error_rate = np.sqrt(np.diag(covariance))
    assumed, rates, misfits = _profile(times, curve, curve_of, slope)
    tiny = np.finfo(float).tiny
    return {
        "rate": slope / per_rate,
        "rate_error": slope / per_rate * error_rate,
        "initial_strength": model.target_scale * share,
        "log_initial_strength_error": (1 - share) * error_odds,
        "correlation": -covariance[0, 1] / max(error_odds * error_rate, tiny),
        "half_time": odds / slope,
        "half_time_error": _half_time_error(covariance, odds, slope),
        "misfit": np.sqrt(2 * fit.cost / times.size),
        "assumed_initial_strength": model.target_scale * assumed,
        "assumed_rate": rates / per_rate,
        "assumed_misfit": misfits,
    }


def _half_time_error(covariance: np.ndarray, odds: float, slope: float) -> float:
    direction = np.array([1.0, -odds]) / slope
    return float(np.sqrt(direction @ covariance @ direction))


def _profile(times: np.ndarray, curve: np.ndarray, curve_of: object, slope: float) -> tuple[np.ndarray, ...]:
    """The best slope, and the misfit, for each assumed ratio of initial to final strength."""
    from scipy.optimize import least_squares

    slopes, misfits = [], []
    half = np.interp(0.5, np.maximum.accumulate(curve), times)
    for share in _PROFILE:
        odds = np.log(1 / share - 1)
        guess = np.log(odds / half) if half > 0 else np.log(slope)
        fit = least_squares(lambda at, odds=odds: curve_of(odds, np.exp(at[0])) - curve, [guess])  # type: ignore[operator]
        slopes.append(np.exp(fit.x[0]))
        misfits.append(np.sqrt(2 * fit.cost / times.size))
    return _PROFILE, np.array(slopes), np.array(misfits)


def _first_guess(times: np.ndarray, curve: np.ndarray) -> tuple[float, float]:
    """Midpoint and slope from the straight line through the log odds where they are moderate."""
    moderate = (curve > 0.05) & (curve < 0.95)
    if moderate.sum() < 2 or np.ptp(times[moderate]) == 0:
        raise ValueError("the curve has fewer than 2 points between 5 % and 95 % learned: measure its rise more finely")
    slope, intercept = straight_line(times[moderate], np.log(curve[moderate] / (1 - curve[moderate])))
    if slope <= 0:
        raise ValueError("the curve does not rise, so no rate fits it: check that strength grows with time")
    return -float(intercept), float(slope)


def linear_fit(
    model: "SkillParameters", learning_rate: float, times: np.ndarray, curve: np.ndarray, skill: int
) -> dict[str, object]:
    """Fit ``rate`` to the exponential saturation of the linear model (eq. C.4)."""
    from scipy.optimize import least_squares

    per_rate = learning_rate * float(frequencies(law(model), float(skill)))
    if not (curve > 0).any():
        raise ValueError("the curve does not rise, so no rate fits it: check that strength grows with time")
    half = times[np.argmax(curve >= curve.max() / 2)] or times[1]
    fit = least_squares(
        lambda at: -np.expm1(-np.exp(at[0]) * times) - curve, [np.log(np.log(2) / half)], xtol=1e-15, ftol=1e-15
    )
    slope = float(np.exp(fit.x[0]))
    variance = 2 * fit.cost / max(times.size - 1, 1)
    error = np.sqrt(variance / max(float(np.sum(fit.jac**2)), np.finfo(float).tiny))
    return {
        "rate": slope / per_rate,
        "rate_error": slope / per_rate * error,
        "half_time": np.log(2) / slope,
        "half_time_error": np.log(2) / slope * error,
        "misfit": np.sqrt(2 * fit.cost / times.size),
    }


def shots_fit(model: "SkillParameters", samples: np.ndarray, curve: np.ndarray, skill: int) -> dict[str, object]:
    """The whole number of shots whose data emergence (eq. 5.5, corrected) is nearest to the measured one."""
    from scipy.stats import binom

    # The frequency of the only skill may round to just above one, where the distribution function is NaN.
    chance = min(float(frequencies(law(model), float(skill))), 1.0)

    def misfit(shots: int) -> float:
        # E[max(0, shots - d)] from two distribution functions: no compiling for each number of shots.
        missing = shots * binom.cdf(shots - 1, samples, chance)
        missing -= samples * chance * binom.cdf(shots - 2, samples - 1, chance)
        return float(np.mean((1 - missing / shots - curve) ** 2))

    return _whole_fit("shots", misfit, samples.size, min(_LARGEST, int(4 * samples.max() + 4)))


def neurons_fit(model: "SkillParameters", basis: np.ndarray, curve: np.ndarray, skill: int) -> dict[str, object]:
    """The whole number of neurons for each skill whose parameter emergence (eq. 5.9) is nearest to the measured one."""

    def misfit(each: int) -> float:
        expected = np.clip((basis - (skill - 1) * each) / each, 0, 1)
        return float(np.mean((expected - curve) ** 2))

    return _whole_fit("neurons_per_skill", misfit, basis.size, min(_LARGEST, int(4 * basis.max() + 4)))


def _whole_fit(name: str, misfit: object, points: int, largest: int) -> dict[str, object]:
    """Minimise over the whole numbers: a geometric scan, then ever finer around the best.

    The error is where the misfit has grown by its own size over the number of points: one standard error for noise
    that is the same at all points.
    """
    known: dict[int, float] = {}

    def value(number: int) -> float:
        if number not in known:
            known[number] = misfit(number)  # type: ignore[operator]
        return known[number]

    tried = np.unique(np.round(np.geomspace(1, largest, 40)).astype(int))
    while True:
        best = int(np.argmin([value(int(number)) for number in tried]))
        low, high = tried[max(best - 1, 0)], tried[min(best + 1, tried.size - 1)]
        if high - low <= 2 or tried.size == high - low + 1:
            break
        tried = np.unique(np.round(np.linspace(low, high, 12)).astype(int))
    found = int(tried[best])
    allowed = value(found) * (1 + 1 / max(points - 1, 1))

    def edge(direction: int) -> int:
        step = 1
        while 1 <= found + direction * step <= largest and value(found + direction * step) <= allowed:
            step *= 2
        inside, outside = step // 2, step
        while outside - inside > 1:
            middle = (inside + outside) // 2
            within = 1 <= found + direction * middle <= largest and value(found + direction * middle) <= allowed
            inside, outside = (middle, outside) if within else (inside, middle)
        return found + direction * inside

    return {name: found, f"{name}_low": edge(-1), f"{name}_high": edge(1), "misfit": np.sqrt(value(found))}
