"""The compute optimum: which number of features makes the loss least at a given product of features and time."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.models.feature_scaling.theory import curves
from solvable.numerics.envelope import lowest
from solvable.numerics.fits import local_slopes
from solvable.progress import progress_bar
from solvable.training import Training

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

_AN_OCTAVE = 1.0
# How far from the optimum that the exponents suggest sizes are tried, in decades.
_MARGIN = 1.2


def envelope(
    model: "FeatureScaling",
    budgets: np.ndarray,
    training: Training,
    share: float,
    per_decade: int,
    progress: bool | None,
) -> dict[str, Any]:
    """Least loss, best size, its time and local exponents at each budget."""
    if budgets[0] < 1e2:
        raise ValueError(f"budgets must be at least 100, not {budgets[0]:g}: less leaves no time to train a network")
    sizes, losses = np.zeros(0, int), np.zeros((0, budgets.size))
    low, high = _first_range(training.flow_time(budgets), share)
    with progress_bar("compute optimum", 1.0, progress) as advance:
        for attempt in range(4):
            wanted = np.unique(np.round(2.0 ** np.arange(low, high + 1e-9, _AN_OCTAVE)).astype(int))
            new = np.setdiff1d(wanted, sizes)
            rows = []
            for size in new:
                rows.append(_losses(model, int(size), budgets, training, per_decade))
                advance(1 / (len(new) * 4))
            order = np.argsort(np.concatenate([sizes, new]))
            sizes = np.concatenate([sizes, new])[order]
            losses = np.concatenate([losses, rows])[order] if rows else losses
            best = np.argmin(losses, axis=0)
            inside = (best.min() > 0 or sizes[0] <= 2) and best.max() < sizes.size - 1
            if inside or attempt == 3:
                break
            low, high = (low - 2 if best.min() == 0 else low), (high + 2 if best.max() == sizes.size - 1 else high)
            low = max(low, 1.0)
    return _refined(sizes, losses, budgets)


def _first_range(budgets: np.ndarray, share: float) -> tuple[float, float]:
    decade = math.log2(10)
    low = share * math.log2(budgets[0]) - _MARGIN * decade
    high = share * math.log2(budgets[-1]) + _MARGIN * decade
    return max(1.0, round(low)), max(3.0, round(high))


def _losses(model: "FeatureScaling", size: int, budgets: np.ndarray, training: Training, per_decade: int) -> np.ndarray:
    """Loss of one size at the time that each budget leaves it; infinite where it leaves none."""
    times = budgets / size
    usable = training.flow_time(times) > 0.5
    result = np.full(budgets.size, np.inf)
    if usable.any():
        options = {"solver": "slot-march", "per_decade": per_decade}
        result[usable] = curves(model.replace(features=size), times[usable], training, options).test_loss
    return result


def _refined(sizes: np.ndarray, losses: np.ndarray, budgets: np.ndarray) -> dict[str, Any]:
    """The minimum of the parabola through the best size and its neighbours, in the logarithms."""
    best = lowest(sizes, losses)
    return {
        "test_loss": best.depth,
        "features": best.place,
        "time": budgets / best.place,
        "exponent": -_slope(budgets, best.depth),
        "features_exponent": _slope(budgets, best.place),
    }


def _slope(budgets: np.ndarray, values: np.ndarray) -> np.ndarray:
    return local_slopes(budgets, values)[0] if budgets.size > 1 else np.full(1, np.nan)
