"""Fit early, predict late: forecasts of a run's end with their errors, and laws compared by what they predict.

The width of a forecast has three parts: noise, parameters, and the discrepancy of the law, which is measured by fitting
the beginning of what is known and predicting the rest of it (rolling origin). Quantiles are those of Student's t with
four degrees of freedom, because few origins are independent; finished sibling runs can replace them by a conformal
factor.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import t as student_t

from solvable._version import __version__
from solvable.dataset import Meaning, make_dataset
from solvable.inference.empirical_laws import PowerLaw
from solvable.inference.fitting import Fit, Point, Problem, fit
from solvable.inference.law import Law
from solvable.inference.profiles import covariance
from solvable.inference.runs import Run

LEVELS = (0.68, 0.95)
FACTORS = tuple(float(student_t.ppf((1 + level) / 2, 4)) for level in LEVELS)
LAST_VALUE = "last-value"
# Fractions of the known records that inner origins fit.
_INNER = (0.2, 0.35, 0.5, 0.65, 0.8)
_FEWEST = 5
_BLOCKS = (0.5, 0.6, 0.7, 0.8, 0.9)
_NOISE = "gaussian"
_STARTS = 8
# Scores that differ by less than this are equal: laws that coincide differ by rounding errors.
_EQUAL_SCORES = 0.01
_MEANINGS = {
    "error": Meaning("logarithm of the measured over the predicted final loss", "1"),
    "noise": Meaning("relative standard deviation from noise", "1"),
    "parameter_error": Meaning("relative standard deviation from the parameters", "1"),
    "discrepancy": Meaning("relative standard deviation from the discrepancy of the law", "1"),
    "fraction": Meaning("fraction of the last step up to which records are known", "1"),
    "run": Meaning("run", ""),
    "law": Meaning("law", ""),
    "score": Meaning("expected log score of later records", "1"),
    "difference": Meaning("score minus that of the best law", "1"),
    "difference_error": Meaning("standard error of the difference, over blocks", "1"),
    "rms_error": Meaning("root-mean-square relative error of later records", "1"),
    "verdict": Meaning("best, undecided or worse", ""),
}
# A law, or a law with values of parameters and terms that are fixed, such as a borrowed kernel.
Candidate = Law | tuple[Law, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Forecast:
    """The forecast of the end of a run: errors are logarithms of measured over predicted losses.

    Parameters
    ----------
    error
        Error of the final loss.
    noise, parameters, discrepancy
        The three parts of the relative standard deviation.
    """

    error: float
    noise: float
    parameters: float
    discrepancy: float

    @property
    def width(self) -> float:
        """The relative standard deviation."""
        return math.sqrt(self.noise**2 + self.parameters**2 + self.discrepancy**2)


def later(found: Fit, runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms that a fit predicts for later records of its runs, and their standard deviation from the parameters.

    Parameters
    ----------
    found
        The fit.
    runs
        Later parts of the fitted runs, or other runs of the same groups.
    """
    problem = Problem(found.problem.law, runs, found.problem.fixed, found.problem.separate, found.problem.noise)
    matrix, known = problem.design(found.best.coordinates)
    logs = np.log(np.maximum(matrix @ found.best.coefficients + known, 1e-300))
    slopes = problem.jacobian(Point(found.best.coordinates, found.best.coefficients, problem.split(logs), np.zeros(0)))
    spread = np.einsum("ij,jk,ik->i", slopes, covariance(found), slopes)
    return logs, np.sqrt(np.maximum(spread, 0.0))


def fit_part(law: Candidate, runs: Sequence[Run], noise: str = _NOISE, starts: int = _STARTS) -> Fit:
    """Fit a law whose boxes suit these runs.

    Parameters
    ----------
    law
        The law, or a pair of a law and values of its parameters and terms that are fixed.
    runs
        The runs.
    noise
        Kind of the noise.
    starts
        Number of starts.
    """
    one, fixed = law if isinstance(law, tuple) else (law, {})
    # One exponent has one optimum, which the law's own start finds.
    free = [parameter for parameter in one.parameters if parameter.name not in fixed]
    return fit(one.prepare(runs), runs, noise=noise, starts=starts if len(free) > 1 else 0, fixed=fixed)


def discrepancy_per_decade(law: Candidate, run: Run, noise: str = _NOISE) -> float:
    """Relative error of a law per decade of time beyond the fitted part, from rolling origins within one run.

    Parameters
    ----------
    law
        The law.
    run
        The run.
    noise
        Kind of the noise.
    """
    squares, distances = [], []
    for fraction in _INNER:
        count = int(fraction * run.size)
        if count < _FEWEST or run.size - count < 3:
            continue
        early, late = run.part(slice(count)), run.part(slice(count, None))
        found = fit_part(law, [early], noise)
        logs, spread = later(found, [late])
        expected = found.problem.noise.deviation**2 + spread**2
        squares.append((np.log(late.loss) - logs) ** 2 - expected)
        distances.append(np.log10(late.flow_time / early.flow_time[-1]) ** 2)
    if not squares:
        return math.nan
    excess = max(0.0, float(np.concatenate(squares).mean()))
    return math.sqrt(excess / float(np.concatenate(distances).mean()))


def forecast_end(law: Candidate | str, run: Run, fraction: float, noise: str = _NOISE, widths: bool = True) -> Forecast:
    """Fit the records up to a fraction of the last step, and predict the last record.

    Parameters
    ----------
    law
        The law, or ``"last-value"`` for the baseline that predicts the last known loss.
    run
        A finished run.
    fraction
        Fraction of the last step.
    noise
        Kind of the noise.
    widths
        Whether to measure the discrepancy, which takes five more fits.
    """
    if not 0 < fraction < 1:
        raise ValueError(f"fraction must lie between 0 and 1, both excluded, not {fraction!r}")
    count = int((run.steps <= fraction * run.steps[-1]).sum())
    if count < _FEWEST:
        raise ValueError(
            f"run {run.name!r} has {count} records in the first {100 * fraction:g} % of its steps; a fit needs "
            f"{_FEWEST}: record more often, or take a larger fraction"
        )
    early, end = run.part(slice(count)), run.part(slice(run.size - 1, None))
    if isinstance(law, str):
        return Forecast(float(np.log(run.loss[-1] / early.loss[-1])), math.nan, math.nan, math.nan)
    found = fit_part(law, [early], noise)
    logs, spread = later(found, [end])
    drift = math.nan
    if widths:
        per_decade = discrepancy_per_decade(law, early, noise)
        drift = per_decade * math.log10(end.flow_time[-1] / early.flow_time[-1])
    return Forecast(float(np.log(end.loss[0]) - logs[0]), found.problem.noise.deviation, float(spread[0]), drift)


def early_to_late(
    runs: Sequence[Run],
    laws: Mapping[str, Candidate] | None = None,
    fractions: Sequence[float] = (0.2, 0.3, 0.5),
    *,
    widths: bool = False,
    noise: str = _NOISE,
) -> xr.Dataset:
    """Predict the final loss of finished runs from their beginning, with every law and with the baselines.

    Parameters
    ----------
    runs
        Finished runs.
    laws
        Laws by name, or pairs of a law and what is fixed in it. The baselines (last value, power law with an offset in
        steps and in intrinsic time) are always there.
    fractions
        Fractions of the last step up to which records are known.
    widths
        Whether to measure the three parts of the width of each forecast.
    noise
        Kind of the noise.

    Returns
    -------
    Dataset
        ``error`` over run, law and fraction: the logarithm of the measured over the predicted final loss; and the parts
        of the width, ``noise``, ``parameter_error`` and ``discrepancy``.
    """
    chosen: dict[str, Any] = {LAST_VALUE: LAST_VALUE, "power-law-steps": PowerLaw("steps"), "power-law": PowerLaw()}
    chosen |= dict(laws or {})
    shape = (len(runs), len(chosen), len(fractions))
    parts = {name: np.full(shape, np.nan) for name in ("error", "noise", "parameter_error", "discrepancy")}
    for i, run in enumerate(runs):
        for j, law in enumerate(chosen.values()):
            for k, fraction in enumerate(fractions):
                one = forecast_end(law, run, fraction, noise, widths)
                values = (one.error, one.noise, one.parameters, one.discrepancy)
                for name, value in zip(parts, values, strict=True):
                    parts[name][i, j, k] = value
    coordinates = {"run": [run.name for run in runs], "law": list(chosen), "fraction": list(fractions)}
    variables = {name: (("run", "law", "fraction"), values) for name, values in parts.items()}
    return make_dataset(variables, coordinates, {"version": __version__, "noise": noise}, _MEANINGS)


def coverage(forecasts: xr.Dataset, factors: Sequence[float] = FACTORS) -> dict[float, float]:
    """Share of forecasts whose interval holds the truth, at 68 % and 95 %.

    Parameters
    ----------
    forecasts
        Errors and parts of widths, as from :func:`early_to_late`.
    factors
        By how much the width is multiplied at each level; quantiles of Student's t by default.
    """
    width = np.sqrt(forecasts.noise**2 + forecasts.parameter_error**2 + forecasts.discrepancy**2)
    inside = [np.abs(forecasts.error.values) <= factor * width.values for factor in factors]
    return {level: float(np.mean(inside[place])) for place, level in enumerate(LEVELS)}


def conformal_factor(errors: Any, widths: Any, level: float) -> float:
    """By how much to multiply widths so that they would have held a share of the errors of finished sibling runs.

    Parameters
    ----------
    errors
        Errors of forecasts for siblings.
    widths
        Their predicted widths.
    level
        The share, such as 0.68.

    >>> from solvable.inference.backtest import conformal_factor
    >>> conformal_factor([0.1, -0.2, 0.3, 0.1], [0.1, 0.1, 0.1, 0.1], 0.5)
    2.0
    """
    ratios = np.sort(np.abs(np.ravel(errors)) / np.ravel(widths))
    if ratios.size == 0 or not np.isfinite(ratios).all():
        raise ValueError("a conformal factor needs finite errors and widths of at least one sibling run")
    # The (n + 1)-quantile of finite samples; beyond the largest ratio there is no bound.
    place = math.ceil(level * (ratios.size + 1)) - 1
    return float(ratios[place]) if place < ratios.size else math.inf


def compare_laws(runs: Sequence[Run], laws: Mapping[str, Candidate] | None = None, noise: str = _NOISE) -> xr.Dataset:
    """Compare laws by the expected log score of records that come later than those they were fitted to.

    Each run is fitted up to 50, 60, 70, 80 and 90 % of its records, and the next tenth is predicted.

    Parameters
    ----------
    runs
        The runs; each is fitted alone.
    laws
        Laws by name, or pairs of a law and what is fixed in it, beside the baselines.
    noise
        Kind of the noise.

    Returns
    -------
    Dataset
        Over ``law``: ``score`` (higher is better), its ``difference`` from the best with its error over blocks, the
        root-mean-square error, and a ``verdict``: "best", "undecided" within two errors of it, or "worse".
    """
    chosen: dict[str, Any] = {LAST_VALUE: LAST_VALUE, "power-law-steps": PowerLaw("steps"), "power-law": PowerLaw()}
    chosen |= dict(laws or {})
    scores, squares = {}, {}
    for name, law in chosen.items():
        blocks = [block for run in runs for block in _block_errors(law, run, noise)]
        if not blocks:
            raise ValueError(f"no run has {2 * _FEWEST} records: too few to fit early ones and predict later ones")
        scores[name] = np.array([_scores(error, width) for error, width in blocks])
        squares[name] = np.concatenate([error for error, _ in blocks]) ** 2
    best = max(scores, key=lambda name: float(scores[name].mean()))
    variables: dict[str, list[Any]] = {name: [] for name in ("score", "difference", "difference_error", "rms_error")}
    verdicts = []
    for name in chosen:
        difference = scores[name] - scores[best]
        error = float(difference.std(ddof=1) / math.sqrt(difference.size)) if difference.size > 1 else math.inf
        values = (scores[name].mean(), difference.mean(), error, math.sqrt(squares[name].mean()))
        for column, value in zip(variables.values(), values, strict=True):
            column.append(float(value))
        close = -float(difference.mean()) < max(2 * error, _EQUAL_SCORES)
        verdicts.append("best" if name == best else "undecided" if close else "worse")
    described: dict[str, Any] = {name: (("law",), np.array(values)) for name, values in variables.items()}
    described["verdict"] = (("law",), np.array(verdicts))
    return make_dataset(described, {"law": list(chosen)}, {"version": __version__, "noise": noise}, _MEANINGS)


def _block_errors(law: Any, run: Run, noise: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Errors and widths of each tenth behind an origin."""
    found = []
    for fraction in _BLOCKS:
        count, stop = int(fraction * run.size), int((fraction + 0.1) * run.size + 0.5)
        if count < _FEWEST or stop <= count:
            continue
        early, late = run.part(slice(count)), run.part(slice(count, stop))
        if isinstance(law, str):
            # Noise of the last value: differences of neighbouring records.
            noise_width = float(np.std(np.diff(np.log(early.loss[-max(10, count // 4) :])))) + 1e-12
            found.append((np.log(late.loss / early.loss[-1]), np.full(late.size, noise_width)))
            continue
        fitted = fit_part(law, [early], noise)
        logs, spread = later(fitted, [late])
        found.append((np.log(late.loss) - logs, np.hypot(spread, fitted.problem.noise.deviation)))
    return found


def _scores(error: np.ndarray, width: np.ndarray) -> float:
    return float(np.mean(student_t.logpdf(error / width, 4) - np.log(width)))
