"""Time grids, and the rules for times given by a user.

>>> from solvable.timegrid import log_times, whole_steps
>>> whole_steps(log_times(1, 1000, 7))
array([   1.,    3.,   10.,   32.,  100.,  316., 1000.])
"""

import datetime
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

# Larger numbers of steps do not fit into an integer.
_MOST_STEPS = 2.0**62


def check_times(times: Any, whole: bool = False) -> Float[np.ndarray, "time"]:
    """Times as a float64 array: one-dimensional, not empty, finite, not negative, increasing, and whole if asked.

    Only real numbers are times: complex numbers, dates, durations, strings, truth values and masked entries are
    refused, although NumPy would convert them to numbers.

    Parameters
    ----------
    times
        One time or a flat list of them.
    whole
        Whether they must be whole numbers.
    """
    array = np.atleast_1d(_real_numbers(times))
    if array.ndim != 1:
        raise ValueError(f"times must be one-dimensional, not of shape {array.shape}: pass a flat list")
    if array.size == 0:
        raise ValueError("times is empty: pass at least one time")
    for rule, bad, remedy in (
        ("finite", ~np.isfinite(array), "remove it"),
        ("not negative", array < 0, "training starts at time 0"),
    ):
        if bad.any():
            place = int(np.argmax(bad))
            raise ValueError(f"times must be {rule}, but times[{place}] = {array[place]:g}: {remedy}")
    steps = np.diff(array)
    if (steps <= 0).any():
        place = int(np.argmax(steps <= 0))
        raise ValueError(
            f"times must increase, but times[{place}] = {array[place]:g} is followed by {array[place + 1]:g}: "
            "sort them and remove duplicates"
        )
    if whole and array[-1] >= _MOST_STEPS:
        raise ValueError(
            f"times count the steps of this training, at most 2^62, but times[{array.size - 1}] = {array[-1]:g}: "
            "ask for earlier times, or use GradientFlow"
        )
    if whole and (array != np.round(array)).any():
        place = int(np.argmax(array != np.round(array)))
        raise ValueError(
            f"times count the steps of this training, but times[{place}] = {array[place]:g}: round them "
            "(solvable.timegrid.whole_steps), or use GradientFlow"
        )
    return array


def _real_numbers(times: Any) -> np.ndarray:
    """The times as float64, if they are numbers at all; a ValueError says what else they are."""
    if isinstance(times, jax.core.Tracer):
        raise ValueError(
            "times cannot be traced by JAX, because grids and checks depend on their values: pass plain numbers, and "
            "differentiate with respect to parameters"
        )
    masked = isinstance(times, np.ma.MaskedArray) and np.ma.getmaskarray(times)
    if np.any(masked):
        place = int(np.argmax(masked))
        raise ValueError(f"times must be numbers, but times[{place}] is masked: pass times.compressed()")
    try:
        # NumPy makes ones and zeros of truth values beside numbers.
        mixed = isinstance(times, list | tuple) and any(isinstance(value, bool | np.bool_) for value in times)
        array = np.asarray(times, dtype=object if mixed else None)
    except (TypeError, ValueError) as error:
        raise ValueError(f"times must be a flat list of numbers, not {_short(times)}") from error
    kinds = {
        "b": ("truth values", "pass the times themselves"),
        "c": ("complex numbers", "pass their real parts"),
        "M": ("dates", "pass numbers since the start of training"),
        "m": ("durations", "pass numbers since the start of training"),
        "U": ("strings", "convert them with float"),
        "S": ("strings", "convert them with float"),
    }
    kind: str = array.dtype.kind
    if kind == "O":
        kind = next((kind for kind in map(_kind_of, array.ravel()) if kind in kinds), kind)
    if kind in kinds:
        words, remedy = kinds[kind]
        raise ValueError(f"times must be real numbers, but {_short(times)} is made of {words}: {remedy}")
    try:
        return array.astype(float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"times must be numbers, not {_short(times)}") from error


def _kind_of(value: Any) -> str:
    """NumPy's letter for the kind of one entry of a mixed list."""
    if isinstance(value, datetime.timedelta):
        return "m"
    return "M" if isinstance(value, datetime.date) else np.asarray(value).dtype.kind


def _short(values: Any) -> str:
    """A value on one line that can be read at a glance."""
    text = " ".join(repr(values).split())
    return text if len(text) <= 60 else text[:57] + "..."


def whole_steps(times: Any, step: float = 1.0) -> Float[np.ndarray, "time"]:
    """The distinct whole steps nearest to the given times, as times again.

    Parameters
    ----------
    times
        Increasing times.
    step
        Time of one step.
    """
    return np.unique(np.round(check_times(times) / step)) * step


def log_times(first: float, last: float, count: int) -> Float[np.ndarray, "time"]:
    """``count`` times from ``first`` to ``last``, evenly spaced in the logarithm.

    Parameters
    ----------
    first, last
        The ends.
    count
        Number of times.
    """
    if not (0 < first < last < np.inf):
        raise ValueError(f"a log grid needs 0 < first < last, not first = {first:g}, last = {last:g}")
    if count < 2:
        raise ValueError(f"a grid needs at least 2 times, not {count}")
    return np.geomspace(first, last, count)
