"""Claims that compare networks trained in different ways: which has the tighter features, which the better accuracy.

Runs are datasets of :func:`trained` at one moment (dim seed). Seeds of different runs are independent, so the strict
claims compare the worst seed of one run with the best seed of the other: with three seeds each, that order arises by
chance in one case of twenty. The weaker claims compare means over seeds.
"""

from typing import Literal

import xarray as xr

from solvable.papers.claims import Claim

Comparison = Literal["every seed", "means"]


def better_claim(
    name: str,
    run: xr.Dataset,
    other: str,
    worse: xr.Dataset,
    because: str,
    least: float = 0.0,
    of: Comparison = "every seed",
) -> Claim:
    """The test accuracy of ``run`` is above that of ``worse`` by ``least`` or more; no gap is larger than 1."""
    high, low = _pair(worse.test_accuracy, run.test_accuracy, of)
    gained = "" if least == 0 else f" by {least:g} or more"
    return Claim(
        f"test accuracy, {name} above {other}{gained} ({_which(of, 'lowest', 'highest')})",
        low - high,
        1.0,
        1 - least,
        because,
    )


def tighter_claim(
    name: str, run: xr.Dataset, other: str, looser: xr.Dataset, because: str, of: Comparison = "every seed"
) -> Claim:
    """κ_CKA of ``run`` is below that of ``looser``: their ratio is between 0 and 1."""
    high, low = _pair(run.mp_distance, looser.mp_distance, of)
    return Claim(
        f"κ_CKA, {name} over {other}, below 1 ({_which(of, 'largest', 'smallest')})", high / low, 0.0, 1.0, because
    )


def _pair(lower: xr.DataArray, upper: xr.DataArray, of: Comparison) -> tuple[float, float]:
    """The largest of the values that should be lower, and the smallest of the others; NaN if a seed has no value."""
    if of == "means":
        return float(lower.mean(skipna=False)), float(upper.mean(skipna=False))
    return float(lower.max(skipna=False)), float(upper.min(skipna=False))


def _which(of: Comparison, first: str, second: str) -> str:
    return "means over seeds" if of == "means" else f"{first} seed against {second}"
