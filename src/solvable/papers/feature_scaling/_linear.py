"""The runs of the two-layer linear network that figs. 11 and 12 share."""

from functools import lru_cache

import numpy as np
import xarray as xr

from solvable.engines.timegrid import log_times, whole_steps
from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Scale
from solvable.papers.feature_scaling._shared import fitted

CAPACITY = 2.0
TASKS = {"easy": 1.2, "hard": 0.2}
RICHNESS = (1e-3, 1e-2, 1e-1, 1.0)
# Features, batch, modes, steps and seeds; the paper's are 100, 128, 10000 and 10000 steps.
SIZES = {"quick": (50, 64, 1000, 2000, 4), "full": (100, 128, 10_000, 10_000, 8)}
LEARNING_RATE = 0.1


@lru_cache(maxsize=4)
def train(source: float, scale: Scale) -> dict[float, xr.Dataset]:
    """Runs at each richness, the same for both figures."""
    features, batch, modes, steps, seeds = SIZES[scale]
    times = whole_steps(log_times(1, steps, 20))
    network = FeatureScaling(CAPACITY, source, features=features, batch=batch, learning_rate=LEARNING_RATE, modes=modes)
    return {
        richness: network.replace(richness=richness).simulate_linear_network(times, seeds=seeds, key=4, progress=False)
        for richness in RICHNESS
    }


def mean_exponent(values: xr.DataArray, first: float, last: float) -> tuple[float, float]:
    """Decay exponent of each run, their mean and its standard error."""
    found = [fitted(values.sel(seed=seed), first, last) for seed in values.seed]
    return float(np.mean(found)), float(np.std(found, ddof=1)) / len(found) ** 0.5
