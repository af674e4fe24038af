"""Forms of a scaling law compared by predictions of runs that lie beyond those they were fitted to."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.stats import t as student_t

from solvable._version import __version__
from solvable.checks import check_choice
from solvable.dataset import Meaning, make_dataset
from solvable.fits.scaling_objective import FORMS, HUBER, Law, Robust
from solvable.fits.scaling_table import Table
from solvable.fits.scaling_uncertainty import covariance, fit_table, predictive_width

_BLOCKS = 10
_FIRST_ORIGIN = 5
_FEWEST_RUNS = 40
_MEANINGS = {
    "score": Meaning("expected log score of runs beyond the fitted ones", "1"),
    "difference": Meaning("score minus that of the best form", "1"),
    "difference_error": Meaning("standard error of the difference, over blocks", "1"),
    "rms_error": Meaning("root-mean-square relative error beyond the fitted runs", "1"),
    "aic": Meaning("Akaike's information criterion", "1"),
    "bic": Meaning("Bayesian information criterion", "1"),
    "size": Meaning("number of parameters", "1"),
    "verdict": Meaning("best, undecided or worse", ""),
    "form": Meaning("form of the law", ""),
}


def compare_forms(table: Table, robust: Robust, forms: Sequence[str]) -> xr.Dataset:
    """Expected log scores on blocks of compute beyond rolling origins, with errors over blocks."""
    names = list(dict.fromkeys(forms))
    for name in names:
        check_choice("form", name, tuple(FORMS))
    if "compute" not in table.values or table.loss.size < _FEWEST_RUNS:
        raise ValueError(
            f"{table.loss.size} runs are too few to compare forms by prediction: it needs {_FEWEST_RUNS}, with compute"
        )
    # The score is a density: Huber's loss has none, and Student's t takes its place.
    likelihood = Robust() if robust.kind == HUBER else robust
    blocks = np.array_split(np.argsort(table.values["compute"], kind="stable"), _BLOCKS)
    scores, squares, criteria = {}, {}, {}
    for name in names:
        own = table.with_form(FORMS[name])
        found = fit_table(own, likelihood)
        normal = _log_density(found.residuals, np.full(found.residuals.size, found.scale), likelihood).sum()
        size = FORMS[name].size + 1
        criteria[name] = 2 * size - 2 * normal, np.log(own.loss.size) * size - 2 * normal
        parts = [_predicted(own, likelihood, blocks, origin) for origin in range(_FIRST_ORIGIN, _BLOCKS)]
        scores[name] = np.array([_log_density(error, width, likelihood).mean() for error, width in parts])
        squares[name] = np.concatenate([error for error, _ in parts]) ** 2
    best = max(names, key=lambda name: float(scores[name].mean()))
    differences = {name: scores[name] - scores[best] for name in names}
    errors = {name: float(value.std(ddof=1) / np.sqrt(value.size)) for name, value in differences.items()}
    verdicts = [
        "best" if name == best else "undecided" if -differences[name].mean() < 2 * errors[name] else "worse"
        for name in names
    ]
    variables = {
        "score": [float(scores[name].mean()) for name in names],
        "difference": [float(differences[name].mean()) for name in names],
        "difference_error": [errors[name] for name in names],
        "rms_error": [float(np.sqrt(squares[name].mean())) for name in names],
        "aic": [float(criteria[name][0]) for name in names],
        "bic": [float(criteria[name][1]) for name in names],
        "size": [FORMS[name].size for name in names],
        "verdict": verdicts,
    }
    described = {name: (("form",), np.array(values)) for name, values in variables.items()}
    attributes = {"blocks": _BLOCKS, "version": __version__}
    return make_dataset(described, {"form": names}, attributes, _MEANINGS)


def _predicted(table: Table, robust: Robust, blocks: list[np.ndarray], origin: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors and widths at the block behind an origin, from a fit to all blocks before it."""
    early = table.take(np.sort(np.concatenate(blocks[:origin])))
    early = dataclasses.replace(early, groups=np.unique(early.groups, return_inverse=True)[1])
    late = table.take(np.sort(blocks[origin]))
    found = fit_table(early, robust)
    cov = covariance(early, found, robust)
    value, spread = predictive_width(early, found, cov, Law(table.form, late.points))
    return np.log(late.loss) - value, np.hypot(spread, found.scale)


def _log_density(error: np.ndarray, width: np.ndarray, robust: Robust) -> np.ndarray:
    """Logarithm of the predictive density, Student's t of the likelihood (Gaussian: many degrees of freedom)."""
    degrees = robust.degrees if robust.kind == "student" else 1e6
    return np.asarray(student_t.logpdf(error / width, degrees) - np.log(width))
