"""Designs that fill a box of parameters with few cells: Latin hypercubes and Sobol sequences."""

import math
import numbers
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from solvable.checks import check_count
from solvable.numerics.sobol import sequence
from solvable.sweeps.design import Design, zipped


def latin_hypercube(ranges: Mapping[str, tuple[Any, ...]], count: int, key: int = 0) -> Design:
    """``count`` cells such that each parameter's range, cut into as many slices, has one cell in every slice.

    ``ranges`` maps names to ``(low, high)`` or ``(low, high, "log")``. A longer one is another design altogether;
    to add cells later, use :func:`sobol`.
    """
    from scipy.stats import qmc

    count = check_count("count", count)
    return _scaled(ranges, _sequence(qmc.LatinHypercube, ranges, key).random(count))


def sobol(ranges: Mapping[str, tuple[Any, ...]], count: int, key: int = 0) -> Design:
    """The first ``count`` cells of a scrambled Sobol sequence: a longer one begins with a shorter one of the same key.

    ``ranges`` as in :func:`latin_hypercube`. Counts that are powers of two fill the box most evenly.
    """
    from scipy.stats import qmc

    count = check_count("count", count)
    sequence = _sequence(qmc.Sobol, ranges, key)
    with warnings.catch_warnings():
        # Counts between powers of two are what growing a sweep is about.
        warnings.simplefilter("ignore", UserWarning)
        return _scaled(ranges, sequence.random(count))


def _sequence(kind: Any, ranges: Mapping[str, tuple[Any, ...]], key: int) -> Any:
    _check(ranges)
    return sequence(kind, len(ranges), np.random.default_rng(check_count("key", key, least=0)))


def _check(ranges: Mapping[str, tuple[Any, ...]]) -> None:
    if not isinstance(ranges, Mapping) or not ranges:
        raise ValueError('ranges must map parameter names to (low, high) or (low, high, "log")')
    for name, bounds in ranges.items():
        usage = f'{name} must run over (low, high) or (low, high, "log"), not {bounds!r}'
        if not isinstance(bounds, tuple | list) or len(bounds) not in (2, 3) or tuple(bounds[2:]) not in ((), ("log",)):
            raise ValueError(usage)
        low, high = bounds[:2]
        if not all(isinstance(value, numbers.Real) and math.isfinite(value) for value in (low, high)) or low >= high:
            raise ValueError(f"{usage}: two finite numbers, the smaller one first")
        if len(bounds) == 3 and low <= 0:
            raise ValueError(f"{usage}: a log range runs between positive numbers")


def _scaled(ranges: Mapping[str, tuple[Any, ...]], points: np.ndarray) -> Design:
    columns = {}
    for (name, (low, high, *log)), share in zip(ranges.items(), points.T, strict=True):
        columns[name] = low * (high / low) ** share if log else low + (high - low) * share
    return zipped("sample", **columns)
