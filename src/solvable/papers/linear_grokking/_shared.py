"""What the figures share: independent closed forms, and theory held against simulation."""

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr
from scipy.optimize import brentq
from scipy.special import ive
from scipy.stats import ncx2

from solvable.comparison import compare
from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale

Z_LIMIT = 3.0
Z_REASON = "root mean square z-score over times; 3 standard errors, seeds fixed"


def bessel_train_loss(aspect_ratio: float, s: np.ndarray | float) -> np.ndarray:
    """Training loss for one output, no weight decay, at ``s = 4 eta t`` (eq. 9): a Bessel function."""
    root = np.sqrt(aspect_ratio)
    x = np.maximum(2 * np.asarray(s, float) * root, 1e-12)
    return 2 * np.exp(-((1 - root) ** 2) * np.asarray(s)) * ive(1, x) / x


def marcum_test_loss(aspect_ratio: float, s: np.ndarray | float) -> np.ndarray:
    """Test loss for one output, no weight decay: the closed form that the paper says does not exist.

    It is the survival function of the busy period of an M/M/1 queue, whose density is the training loss.
    """
    root, s = np.sqrt(aspect_ratio), np.asarray(s, float)
    x = 2 * s * root
    bessel = np.exp(-((1 - root) ** 2) * s) * (ive(0, x) + root * ive(1, x)) / aspect_ratio
    return (1 - 1 / aspect_ratio) * ncx2.sf(2 * s, 2, 2 * aspect_ratio * s) + bessel


def closed_form_times(model: LinearEstimator, threshold_loss: float) -> tuple[float, float]:
    """Training and test time from the closed forms alone; NaN where never."""

    def time(loss: Callable[[float, float], np.ndarray], limit: float) -> float:
        if limit >= threshold_loss:
            return float("nan")
        late = -5.0
        while loss(model.aspect_ratio, np.exp(late)) > threshold_loss:
            late += 0.5
        excess = partial(_log_excess, loss, model.aspect_ratio, threshold_loss)
        return float(np.exp(brentq(excess, -5.0, late, xtol=1e-13))) / (4 * model.learning_rate)

    return time(bessel_train_loss, 0.0), time(marcum_test_loss, max(0.0, 1 - 1 / model.aspect_ratio))


def _log_excess(
    loss: Callable[[float, float], np.ndarray], aspect_ratio: float, threshold_loss: float, log_s: float
) -> float:
    return float(np.log(loss(aspect_ratio, np.exp(log_s)) / threshold_loss))


def held_against_simulation(
    model: LinearEstimator, times: np.ndarray, scale: Scale, key: int = 0, inputs: int | None = None, **options: object
) -> tuple[xr.Dataset, xr.Dataset, xr.Dataset]:
    """Theory for whole steps, simulation, and their comparison. ``full`` is the paper's input dimension of 1000."""
    size, seeds = (400, 40) if scale == "quick" else (1000, 100)
    inputs = inputs or size
    theory = model.predict(times, descent="discrete", inputs=inputs if model.outputs > 1 else None)
    simulation = model.simulate(times, inputs=inputs, seeds=seeds, key=key, **options)  # type: ignore[arg-type]
    return theory, simulation, compare(theory, simulation)


def agreement(
    label: str, comparison: xr.Dataset, variables: tuple[str, ...] = ("train_loss", "test_loss")
) -> list[Claim]:
    """One claim for each variable: theory and simulation differ by no more than their noise."""
    claims = []
    for name in variables:
        scores = comparison[name].sel(statistic="z_score").values
        spread = float(np.sqrt(np.mean(scores[np.isfinite(scores)] ** 2)))
        claims.append(Claim(f"{label}: {name.replace('_', ' ')} agrees", spread, 0.0, Z_LIMIT, Z_REASON))
    return claims
