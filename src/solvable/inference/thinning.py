"""Long logs in fewer points: means over bins that are even in the logarithm of the step."""

import math

import numpy as np

from solvable.inference.runs import Run

_PER_DECADE = 40
# Runs of up to this many records are left as they are.
SHORT = 250
# Bins of many records are not believed to be better than this fraction of the usual error.
_LEAST_ERROR = 0.3


def thin(run: Run, per_decade: int = _PER_DECADE) -> Run:
    """A run with one record per bin: mean step and loss, with an error from the spread within the bin.

    Parameters
    ----------
    run
        The run.
    per_decade
        Number of bins per decade of steps.

    >>> import numpy as np
    >>> from solvable.inference import Run, thin
    >>> steps = np.arange(1.0, 10_001)
    >>> thin(Run("long", steps, 1 + steps**-0.5)).size
    128
    """
    steps = run.steps
    logs = np.log(np.where(steps > 0, steps, steps[steps > 0][0] if (steps > 0).any() else 1.0))
    bins = np.floor(logs * per_decade / math.log(10)).astype(int)
    bins[steps <= 0] = bins.min() - 1
    first = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))
    counts = np.diff(np.append(first, steps.size))

    def mean(values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values, first) / counts

    loss = mean(run.loss)
    # Within a bin the loss also falls; differences of neighbours tell the noise without the trend.
    jumps = np.append(np.diff(np.log(run.loss)), 0.0)
    noise = np.sqrt(np.mean(jumps[:-1] ** 2) / 2) if run.size > 1 else 0.0
    inner = np.where(np.append(np.diff(bins) == 0, False), jumps, np.nan)
    with np.errstate(invalid="ignore"):
        own = np.array(
            [np.nanmean(inner[a : a + n] ** 2) if n > 8 else np.nan for a, n in zip(first, counts, strict=True)]
        )
    spread = np.where(np.isfinite(own), np.sqrt(own / 2), noise)
    relative = np.maximum(spread, 1e-12) / np.sqrt(counts)
    relative = np.maximum(relative, _LEAST_ERROR * np.median(relative))
    if run.errors is not None:
        relative = np.sqrt(mean(run.errors**2) / counts) / loss
    rates = None if run.learning_rate is None else mean(run.learning_rate)
    return Run(
        run.name, mean(steps), loss, mean(run.flow_time), rates, run.schedule, relative * loss, run.sizes, run.group,
        run.peak,
    )  # fmt: skip
