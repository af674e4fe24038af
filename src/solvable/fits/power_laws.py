"""Local exponents of curves and sweeps, and power laws with errors.

Exponents are defined by ``y = prefactor x^-exponent``, as in every model: they are positive if values fall. Values are
:class:`xarray.DataArray` with any number of dimensions, or plain arrays, whose last axis is fitted. With a dimension
``seed``, the mean over seeds is fitted and the seeds determine the errors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from solvable.checks import check_fraction
from solvable.numerics import fits

_MINIMUM_RESAMPLES = 100


def local_exponent(values: Any, x: Any = "time", *, errors: Any = None) -> xr.Dataset:
    """Compute the local exponent ``-d log y / d log x`` at every point, to second order on uneven grids, ends included.

    Parameters
    ----------
    values
        The positive values y.
    x
        Name of a dimension of the values, or an array.
    errors
        Standard errors of the values, assumed to be independent at different points. Errors from seeds may be
        correlated.

    Returns
    -------
    Dataset
        ``exponent`` and, with seeds or errors, its standard error ``exponent_error``.
    """
    curve = _Curve(values, x, errors)
    slopes, error = curve.slopes()
    dims = (*curve.others, curve.dim)
    found = {"exponent": (dims, -slopes, {"long_name": "local exponent", "units": "1"})}
    if error is not None:
        found["exponent_error"] = (dims, error, {"long_name": "standard error of the local exponent", "units": "1"})
    return xr.Dataset(found, curve.coords())


def straight_window(values: Any, x: Any = "time", *, drift: float = 0.02, errors: Any = None) -> xr.Dataset:
    """Find the longest window, in the logarithm of x, in which the local exponents are equal.

    Of two windows of equal length, the later one is chosen.

    Parameters
    ----------
    values
        The positive values of one curve.
    x
        Name of a dimension of the values, or an array.
    drift
        The exponent of the window may differ from each local one by half of this, and by three standard errors if the
        values have errors or seeds.
    errors
        Standard errors of the values.

    Returns
    -------
    Dataset
        ``first`` and ``last``, the values of x at the ends of the window, both included.
    """
    curve = _Curve(values, x, errors)
    if curve.others:
        raise ValueError(f"a window is that of one curve: select along {', '.join(curve.others)}")
    ends = curve.limits(curve.chosen("straight", drift, 0))
    described = {name: ((), end, _describe(name, 0.0)) for name, end in zip(("first", "last"), ends, strict=True)}
    return xr.Dataset(described)


def power_law(
    values: Any,
    x: Any = "time",
    *,
    window: tuple[float, float] | str | None = None,
    drift: float = 0.02,
    errors: Any = None,
    offset: bool = False,
    resample: str = "auto",
    resamples: int = 1000,
    confidence: float = 0.68,
    key: int = 0,
) -> xr.Dataset:
    """Fit ``y = prefactor x^-exponent``, with ``offset=True`` plus a constant, along one dimension of any data.

    Every parameter has a standard error and a confidence interval (``_low``, ``_high``) from fits to resampled data.
    These account for noise alone. How far a curve is from a power law is measured by ``exponent_drift``, the exponent
    of the later half of the window minus that of the earlier half (NaN with fewer than four points, or if values lie on
    both sides of the offset).

    Parameters
    ----------
    values
        The values to fit; positive, unless ``errors`` and an offset are given.
    x
        Name of a dimension of the values, or an array.
    window
        A pair of x, both included, or ``"straight"`` for the window of :func:`straight_window` of each curve. Values
        outside of a given window may be zero, negative or missing.
    drift
        The drift that ``window="straight"`` allows.
    errors
        Standard errors of the values, used as weights. Otherwise all points have the same weight in the logarithm.
    offset
        Whether a constant is fitted as well.
    resample
        What is resampled: ``"seeds"``, whole runs (the default if there is such a dimension); ``"errors"``, Gaussian
        noise (the default if errors are given); ``"residuals"``, for equal noise at all points (the default otherwise);
        or ``"pairs"``, points with their noise.
    resamples
        Number of resampled fits, at least 100; or 0 for no errors.
    confidence
        Probability that an interval contains the true value.
    key
        Random seed of the resampling.

    Returns
    -------
    Dataset
        ``exponent``, ``prefactor``, ``offset`` with errors and intervals, ``exponent_drift``, and the ends ``first``
        and ``last`` of the window, over all dimensions but x and the seeds.
    """
    # Values outside a given window are ignored: they may be zero, negative or missing.
    within = window if isinstance(window, tuple | list) else None
    if within is not None and len(within) != 2:
        raise ValueError(f"window must be a pair of x, 'straight' or None, not {window!r}")
    curve = _Curve(values, x, errors, positive=not (offset and errors is not None), within=within)
    how = fits.check_resampling(resample, curve.seeds, errors) if resamples else resample
    if resamples and resamples < _MINIMUM_RESAMPLES:
        raise ValueError(f"resamples must be 0, or at least {_MINIMUM_RESAMPLES}, not {resamples!r}")
    check_fraction(confidence, "confidence")
    fewest = (4 if offset else 3) if resamples and how != "seeds" else (3 if offset else 2)
    rows = []
    for row, runs in enumerate(curve.rows()):
        chosen = curve.chosen(window, drift, row)
        part, own = curve.x[chosen], None if curve.errors is None else curve.row_errors(row)[chosen]
        fits.check_curve(part, runs[..., chosen], fewest)
        generator = np.random.default_rng([key, row])
        mean = _mean(runs)[chosen]
        found = _fitted(part, mean, own, offset)
        if resamples:
            drawn = runs[..., chosen] if how == "seeds" else mean
            again = fits.resample(part, drawn, own, offset, how, resamples, generator)
            for name in ("exponent", "prefactor", "offset")[: 3 if offset else 2]:
                error, low, high = fits.error_and_interval(getattr(again.laws, name), again, confidence)
                found |= {f"{name}_error": error, f"{name}_low": low, f"{name}_high": high}
        first, last = curve.limits(chosen)
        rows.append(found | {"first": first, "last": last})
    arrays = {name: np.array([row[name] for row in rows]).reshape(curve.shape) for name in rows[0]}
    return xr.Dataset(
        {name: (curve.others, array, _describe(name, confidence)) for name, array in arrays.items()},
        {name: coordinate for name, coordinate in curve.coords().items() if name != curve.dim},
        {"resample": how, "resamples": resamples, "confidence": confidence},
    )


def _mean(runs: np.ndarray) -> np.ndarray:
    return runs.mean(0) if runs.ndim == 2 else runs


def _fitted(x: np.ndarray, mean: np.ndarray, errors: np.ndarray | None, offset: bool) -> dict[str, float]:
    law = fits.fit(x, mean, errors, offset)
    found = {"exponent": float(law.exponent), "prefactor": float(law.prefactor), "exponent_drift": float("nan")}
    if offset:
        found["offset"] = float(law.offset)
    half = x.size // 2
    if x.size >= 4 and (mean - law.offset > 0).all():
        parts = (slice(half), slice(half, None))
        early, late = (fits.straight_line(np.log(x[part]), np.log(mean[part] - law.offset[()]))[0] for part in parts)
        found["exponent_drift"] = float(early - late)
    return found


class _Curve:
    """Values to be fitted: the fitted dimension is the last, seeds come before it, and other dimensions first."""

    def __init__(
        self, values: Any, x: Any, errors: Any, positive: bool = True, within: Sequence[float] | None = None
    ) -> None:
        if not isinstance(values, xr.DataArray):
            array = np.asarray(values, float)
            if isinstance(x, str):
                raise ValueError("plain arrays need the values of x: pass x=...")
            dims = (*(f"axis_{axis}" for axis in range(array.ndim - 1)), "x")
            values, x = xr.DataArray(array, dims=dims, coords={"x": np.asarray(x, float)}), "x"
        elif not isinstance(x, str):
            (dim,) = [dim for dim in values.dims if values.sizes[dim] == np.size(x)][-1:] or [values.dims[-1]]
            values, x = values.assign_coords({dim: np.asarray(x, float)}), str(dim)
        if x not in values.dims:
            raise ValueError(f"the values have no dimension {x!r}; they are over {list(values.dims)}")
        self.dim = str(x)
        self.others = tuple(str(dim) for dim in values.dims if dim not in (x, "seed"))
        self.seeds = values.sizes.get("seed")
        self.data = values.transpose(*self.others, *(["seed"] if self.seeds is not None else []), x)
        self.shape = tuple(self.data.sizes[dim] for dim in self.others)
        self.x = np.asarray(self.data[self.dim].values, float)
        self.mean = self.data.values.mean(-2) if self.seeds is not None else self.data.values
        self.errors = None if errors is None else self._check_errors(errors, values)
        # Points that are not in order have no window; the check below says so.
        ordered = self.x.ndim == 1 and bool((np.diff(self.x) > 0).all())
        looked_at = self._between(*within) if within is not None and ordered else slice(None)
        fits.check_curve(self.x[looked_at], self.mean[..., looked_at], 0 if within else 2, positive)

    def _check_errors(self, errors: Any, values: xr.DataArray) -> np.ndarray:
        if isinstance(errors, xr.DataArray):
            like = values.isel(seed=0, drop=True) if self.seeds is not None else values
            errors = errors.broadcast_like(like).transpose(*self.others, self.dim).values
        return fits.check_errors(errors, (*self.shape, self.x.size))

    def slopes(self) -> tuple[np.ndarray, np.ndarray | None]:
        if self.errors is None and self.seeds is not None and self.seeds > 1:
            return fits.local_slopes_of_mean(self.x, self.data.values)
        return fits.local_slopes(self.x, self.mean, self.errors)

    def rows(self) -> np.ndarray:
        """The single curves, each over x or over seed and x."""
        return self.data.values.reshape(-1, *self.data.values.shape[len(self.others) :])

    def row_errors(self, row: int) -> np.ndarray:
        assert self.errors is not None
        return self.errors.reshape(-1, self.x.size)[row]

    def chosen(self, window: tuple[float, float] | str | None, drift: float, row: int) -> slice:
        """The points of one curve that lie in a window."""
        if window is None:
            return slice(0, self.x.size)
        if not isinstance(window, str):
            return self._between(*window)
        if window != "straight":
            raise ValueError(f"window must be a pair of x, 'straight' or None, not {window!r}")
        if not 0 < drift < np.inf:
            raise ValueError(f"drift must be a positive number, the spread of exponents that is allowed, not {drift!r}")
        slopes, errors = (None if array is None else array.reshape(-1, self.x.size)[row] for array in self.slopes())
        assert slopes is not None
        return fits.straight_window(self.x, slopes, drift, errors)

    def _between(self, low: float, high: float) -> slice:
        # A window includes its ends, whatever their rounding errors.
        return slice(
            int(np.searchsorted(self.x, low * (1 - 1e-9))), int(np.searchsorted(self.x, high * (1 + 1e-9), "right"))
        )

    def limits(self, chosen: slice) -> tuple[float, float]:
        part = self.x[chosen]
        return (float(part[0]), float(part[-1])) if part.size else (float("nan"), float("nan"))

    def coords(self) -> dict[str, Any]:
        return {name: self.data[name] for name in (*self.others, self.dim) if name in self.data.coords}


_NAMES = {
    "exponent": "exponent of the power law",
    "prefactor": "prefactor of the power law",
    "offset": "limit of the power law",
    "exponent_drift": "exponent of the later half of the window minus that of the earlier half",
    "first": "first point of the window",
    "last": "last point of the window",
}


def _describe(name: str, confidence: float) -> dict[str, str]:
    base, _, kind = name.rpartition("_")
    kinds = {
        "error": "standard error of the {}",
        "low": f"lower end of a {100 * confidence:g} % interval of the {{}}",
        "high": f"upper end of a {100 * confidence:g} % interval of the {{}}",
    }
    text = _NAMES[name] if name in _NAMES else kinds[kind].format(_NAMES[base])
    return {"long_name": text, "units": "1"}
