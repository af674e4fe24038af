"""The trainings of the two-layer linear network that figs. 11 and 12 share."""

from functools import lru_cache

import xarray as xr
from scipy.special import zeta

from solvable.fits import power_law
from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Scale
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD, GradientDescent

CAPACITY = 2.0
TASKS = {"easy": 1.2, "hard": 0.2}
RICHNESS = (1e-3, 1e-1, 1.0)
# Features, batch size (None: full batches), modes, seeds; full is the paper's size.
SIZES = {"quick": (100, None, 600, 2), "full": (100, 128, 10_000, 8)}
STEPS = 10_000
# Small: the spike multiplies the sharpness, and steps of 0.1 would reach the edge of stability at |w|^2 = 10.
LEARNING_RATE = 0.01
# Steps over which exponents are fitted. On an easy task the finite number of features shows later.
SPANS = {"easy": (300, 3000), "hard": (1000, 10_000)}


@lru_cache(maxsize=2)
def linear_networks(scale: Scale) -> dict[str, xr.Dataset]:
    """Runs of each task and richness, trained once for both figures.

    Modes beyond those simulated are not learned at these times: their signal is added to the loss.
    """
    features, batch, modes, seeds = SIZES[scale]
    times = whole_steps(log_times(1, STEPS, 25))
    training = GradientDescent(LEARNING_RATE) if batch is None else SGD(LEARNING_RATE, batch_size=batch)
    found = {}
    for task, source in TASKS.items():
        left_out = float(zeta(CAPACITY * source + 1, modes + 1))
        for richness in RICHNESS:
            model = FeatureScaling(CAPACITY, source, features=features, modes=modes, richness=richness)
            runs = model.simulate_linear_network(times, training, seeds=seeds, key=4, progress=False)
            loss = (runs.test_loss + left_out).assign_attrs(runs.test_loss.attrs)
            found[run_name(task, richness)] = runs.assign(test_loss=loss)
    return found


def run_name(task: str, richness: float) -> str:
    """The name of the dataset of a task and a richness."""
    return f"{task}-{richness:g}"


def mean_exponent(values: xr.DataArray, first: float, last: float) -> float:
    """Decay exponent, averaged over runs."""
    return float(power_law(values.rename(seed="run"), window=(first, last), resamples=0).exponent.mean())
