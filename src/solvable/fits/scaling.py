"""Scaling laws fitted to tables of runs: ``L(N, D) = E + A N^-alpha + B D^-beta`` and its relatives."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from solvable.checks import check_choice, check_count
from solvable.fits.scaling_allocation import directions
from solvable.fits.scaling_objective import FORMS, HUBER, LOSSES, Fit, Robust
from solvable.fits.scaling_report import ScalingLawReport
from solvable.fits.scaling_table import Table, read_table
from solvable.fits.scaling_uncertainty import (
    Backtest,
    bootstrap,
    covariance,
    fit_table,
    profile,
    rolling_origin,
)

_INTERVALS = ("bootstrap", "profile", "sandwich")
_LEVELS = (0.68, 0.95)
_NORMAL_DRAWS = 1000
# Exponents outside of this range are flagged: data do not determine them, or the law does not hold.
_EXPONENT_RANGE = (0.02, 2.0)
_FEWEST_RESAMPLES = 100


def scaling_law(
    table: Any,
    *,
    form: str = "parameters-tokens",
    robust: str = "student",
    degrees: float = 4.0,
    delta: float = 1e-3,
    columns: Mapping[str, str] | None = None,
    errors: str | None = None,
    group: str | None = None,
    drop_largest: int = 0,
    flops: float = 6.0,
    intervals: str = "bootstrap",
    resamples: int = 1000,
    discrepancy: float | None = None,
    key: int = 0,
) -> ScalingLawReport:
    """Fit a scaling law to the final losses of a table of runs.

    The logarithm of the loss is fitted, in coordinates centred at the geometric means of the data. Coefficients start
    from nonnegative least squares on a grid of exponents (variable projection), and the three best starts are polished
    by a trust-region Newton method.

    Parameters
    ----------
    table
        One row per run: a data frame, a mapping of columns, a dataset or the path of a CSV file. Needed are the loss
        and the quantities of the form; of parameters N, tokens D and compute C one may be missing, and is computed from
        ``C = 6 N D``.
    form
        ``"parameters-tokens"``, ``L = E + A N^-alpha + B D^-beta``; ``"equal-exponents"``, with ``alpha = beta``;
        ``"without-floor"``, with ``E = 0``; ``"compute"``, ``L = E + A C^-alpha``; or ``"data-reuse"``, in which tokens
        that are seen again count less: ``D' = U (1 + R* (1 - exp(-(D/U - 1)/R*)))`` with the unique tokens U.
    robust
        Loss of the residuals: ``"student"``, the likelihood of Student's t with an estimated scale; ``"huber"``; or
        ``"none"``, Gaussian least squares.
    degrees
        Degrees of freedom of Student's t.
    delta
        Threshold of Huber's loss, in units of the logarithm of the loss.
    columns
        Names of the columns, such as ``{"loss": "val/loss"}``; others are found by their usual names.
    errors
        Name of a column of standard errors of the loss, of which only the ratios matter.
    group
        Name of a column: rows with the same entry are resampled together, such as records of one run.
    drop_largest
        How many runs with the largest losses are left out.
    flops
        Floating-point operations per parameter and token.
    intervals
        ``"bootstrap"`` over whole runs, ``"profile"`` likelihood (not for Huber's loss), or ``"sandwich"``, the
        asymptotic covariance, which takes no time.
    resamples
        Number of resampled fits.
    discrepancy
        Relative error of the law per decade of compute beyond the data. By default it is measured, by fitting the runs
        of small compute and predicting the others, where the table is large enough.
    key
        Random seed of the resampling.

    Returns
    -------
    ScalingLawReport
        Parameters with intervals, predictions, optimal allocation of compute, picture.

    >>> import numpy as np
    >>> from solvable.fits import scaling_law
    >>> n, d = (grid.ravel() for grid in np.meshgrid(np.geomspace(1e7, 1e9, 5), np.geomspace(1e8, 1e11, 5)))
    >>> runs = {"parameters": n, "tokens": d, "loss": 1.7 + 400 * n**-0.34 + 410 * d**-0.28}
    >>> law = scaling_law(runs, intervals="sandwich")
    >>> print(round(law["alpha"], 4), round(law["beta"], 4), round(law["E"], 4))
    0.34 0.28 1.7
    """
    check_choice("form", form, tuple(FORMS))
    check_choice("robust", robust, LOSSES)
    check_choice("intervals", intervals, _INTERVALS)
    check_count("drop_largest", drop_largest, 0)
    for name, value in (("degrees", degrees), ("delta", delta), ("flops", flops)):
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be positive and finite, not {value!r}")
    if discrepancy is not None and not 0 <= discrepancy < np.inf:
        raise ValueError(f"discrepancy must be zero or more, a relative error per decade, not {discrepancy!r}")
    if intervals == "bootstrap":
        check_count("resamples", resamples, _FEWEST_RESAMPLES)
    if intervals == "profile" and robust == HUBER:
        raise ValueError("intervals='profile' needs a likelihood, which Huber's loss is not: use robust='student'")
    runs = read_table(table, form, columns or {}, errors, group, drop_largest, flops)
    loss = Robust(robust, float(degrees), float(delta))
    found = fit_table(runs, loss)
    if intervals == "bootstrap":
        draws = bootstrap(runs, found, loss, int(resamples), key)
    else:
        draws = _normal_draws(found, covariance(runs, found, loss), key)
    back = rolling_origin(runs, loss) if discrepancy is None else None
    profiles = _profiles(runs, found, loss) if intervals == "profile" else {}
    return ScalingLawReport(
        table=runs,
        theta=found.theta,
        scale=found.scale,
        objective=found.objective,
        residuals=found.residuals,
        draws=draws,
        intervals=intervals,
        robust=loss,
        profiles=profiles,
        backtest=back,
        discrepancy=discrepancy if discrepancy is not None else None if back is None else back.discrepancy,
        notes=(*runs.notes, *_warnings(runs, found, back, discrepancy)),
    )


def _normal_draws(found: Fit, cov: np.ndarray, key: int) -> np.ndarray:
    generator = np.random.default_rng(key)
    return generator.multivariate_normal(found.theta, cov, size=_NORMAL_DRAWS, method="eigh")


def _profiles(table: Table, found: Fit, robust: Robust) -> dict[str, tuple[tuple[float, float], ...]]:
    """Intervals of all named parameters, at both levels."""
    return {
        name: tuple(profile(table, found, robust, direction, level) for level in _LEVELS)
        for name, direction in directions(table).items()
    }


def _warnings(table: Table, found: Fit, back: Backtest | None, discrepancy: float | None) -> list[str]:
    """What a reader of the numbers has to know."""
    notes = []
    form, terms = table.form, int(table.form.floor) + len(table.form.powers)
    if not found.converged:
        notes.append("the optimiser did not converge: parameters may not be at an optimum")
    for name, value in zip(form.exponents, found.theta[terms:], strict=False):
        if not _EXPONENT_RANGE[0] < value < _EXPONENT_RANGE[1]:
            notes.append(f"{name} = {value:.3g} is at the edge of what is plausible: the runs do not determine it")
    smallest = float(table.loss.min())
    if form.floor and np.exp(found.theta[0]) > smallest:
        notes.append(f"the floor E = {np.exp(found.theta[0]):.4g} lies above the smallest loss, {smallest:.4g}")
    if form.floor and np.exp(found.theta[0]) < 1e-3 * smallest:
        notes.append("the floor E is zero within the data: its interval is open below")
    if back is None and discrepancy is None:
        notes.append(
            "the table is too small to fit its small runs and predict its large ones: the discrepancy of the law is "
            "unknown, and there is no interval beyond three times the range; pass discrepancy= to state it"
        )
    return notes
