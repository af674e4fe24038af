"""Fits over curves and sweeps: local exponents, power laws with errors, and the compute-optimal envelope.

An exponent means ``y = prefactor x^-exponent``, as in every model: it is positive where values fall, and negative where
they grow. Values are :class:`xarray.DataArray`, of any number of dimensions, or plain arrays, whose last axis is then
fitted. With a dimension ``seed`` the mean over seeds is fitted, and the seeds give the errors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from solvable.checks import check_fraction
from solvable.numerics import envelope as envelopes
from solvable.numerics import fits

__all__ = ["envelope", "local_exponent", "power_law", "straight_window"]

_FEWEST_RESAMPLES = 100


def local_exponent(values: Any, x: Any = "time", *, errors: Any = None) -> xr.Dataset:
    """Compute ``-d log y / d log x`` at every point, of second order on uneven grids, the ends included.

    Parameters
    ----------
    values
        The positive values y.
    x
        Name of a dimension of the values, or an array.
    errors
        Standard errors of the values, taken to be independent from point to point. Errors from seeds need not be.

    Returns
    -------
    Dataset
        ``exponent`` and, with seeds or errors, its standard error ``exponent_error``.
    """
    curve = _Curve(values, x, errors)
    slopes, error = curve.slopes()
    found = {"exponent": -slopes} | ({} if error is None else {"exponent_error": error})
    return xr.Dataset(
        {name: ((*curve.others, curve.dim), array, _MEANINGS[name]) for name, array in found.items()}, curve.coords()
    )


def straight_window(values: Any, x: Any = "time", *, drift: float = 0.02, errors: Any = None) -> xr.Dataset:
    """Find the longest window, in the logarithm of x, in which one exponent describes all local ones.

    Of two equal windows the later one is taken.

    Parameters
    ----------
    values
        The positive values of one curve.
    x
        Name of a dimension of the values, or an array.
    drift
        The exponent may differ from each local one by half of this, and by three standard errors where the values have
        errors or seeds.
    errors
        Standard errors of the values.

    Returns
    -------
    Dataset
        ``first`` and ``last``, the values of x at the ends of the window, both included.
    """
    curve = _Curve(values, x, errors)
    if curve.others:
        raise ValueError(f"a window is found for one curve: select along {', '.join(curve.others)}")
    ends = curve.limits(fits.straight_window(curve.x, *_window_arguments(curve, drift)))
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

    Every parameter comes with its standard error and an interval (``_low``, ``_high``) from fits to resampled data.
    Resampling knows of noise alone; how far a curve is from a power is ``exponent_drift``, the exponent of the later
    half of the window less that of the earlier half (NaN with fewer than four points, or where values lie on both sides
    of the offset).

    Parameters
    ----------
    values
        The values to fit; positive, unless there are ``errors`` and an offset.
    x
        Name of a dimension of the values, or an array.
    window
        A pair of x, both included, or ``"straight"`` for that of :func:`straight_window`, found for each curve. Values
        outside of a given window may be zero, negative or missing.
    drift
        The drift that ``window="straight"`` allows.
    errors
        Standard errors of the values, which weigh them. Otherwise all points count the same in the logarithm.
    offset
        Whether a constant is fitted, too.
    resample
        What is resampled: ``"seeds"``, whole runs (the default where there is such a dimension); ``"errors"``, Gaussian
        noise (the default where errors are given); ``"residuals"``, for the same noise at all points (the default
        otherwise); or ``"pairs"``, points with their noise.
    resamples
        Number of resampled fits, at least 100; or 0, for no errors.
    confidence
        Probability with which an interval holds the truth.
    key
        Random seed of the resampling.

    Returns
    -------
    Dataset
        ``exponent``, ``prefactor``, ``offset`` with errors and intervals, ``exponent_drift``, and the ends ``first``
        and ``last`` of the window, over all dimensions but x and the seeds.
    """
    # What lies outside a window that is given is not looked at: it may be zero, negative or missing.
    within = window if isinstance(window, tuple | list) else None
    if within is not None and len(within) != 2:
        raise ValueError(f"window must be a pair of x, 'straight' or None, not {window!r}")
    curve = _Curve(values, x, errors, positive=not (offset and errors is not None), within=within)
    how = fits.check_resampling(resample, curve.seeds, errors) if resamples else resample
    if resamples and resamples < _FEWEST_RESAMPLES:
        raise ValueError(f"resamples must be 0, or at least {_FEWEST_RESAMPLES}, not {resamples!r}")
    check_fraction(confidence, "confidence")
    fewest = (4 if offset else 3) if resamples and how != "seeds" else (3 if offset else 2)
    rows = []
    for row, runs in enumerate(curve.rows()):
        chosen = curve.chosen(window, drift, row)
        part, own = curve.x[chosen], None if curve.errors is None else curve.row_errors(row)[chosen]
        fits.check_curve(part, runs[..., chosen], fewest)
        generator = np.random.default_rng([key, row])
        found = _fitted(part, runs[..., chosen], own, offset)
        if resamples:
            drawn = runs[..., chosen] if how == "seeds" else _mean(runs)[chosen]
            again = fits.resample(part, drawn, own, offset, how, resamples, generator)
            found |= _spreads(again, offset, confidence)
        first, last = curve.limits(chosen)
        rows.append(found | {"first": first, "last": last})
    shape = curve.shape()
    return xr.Dataset(
        {
            name: (curve.others, np.array([row[name] for row in rows]).reshape(shape), _describe(name, confidence))
            for name in rows[0]
        },
        {name: coordinate for name, coordinate in curve.coords().items() if name != curve.dim},
        {"resample": how, "resamples": resamples, "confidence": confidence},
    )


def _fitted(x: np.ndarray, runs: np.ndarray, errors: np.ndarray | None, offset: bool) -> dict[str, float]:
    mean = _mean(runs)
    law = fits.fit(x, mean, errors, offset)
    found = {"exponent": float(law.exponent), "prefactor": float(law.prefactor)}
    if offset:
        found["offset"] = float(law.offset)
    half = x.size // 2
    if x.size >= 4 and (mean - law.offset > 0).all():
        parts = (slice(half), slice(half, None))
        early, late = (fits.straight_line(np.log(x[part]), np.log(mean[part] - law.offset[()]))[0] for part in parts)
        found["exponent_drift"] = float(early - late)
    else:
        found["exponent_drift"] = float("nan")
    return found


def _mean(runs: np.ndarray) -> np.ndarray:
    return runs.mean(0) if runs.ndim == 2 else runs


def _spreads(again: fits.Resampled, offset: bool, confidence: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in ("exponent", "prefactor", "offset")[: 3 if offset else 2]:
        values = getattr(again.laws, name)
        error, low, high = fits.error_and_interval(values, again, confidence)
        found |= {f"{name}_error": error, f"{name}_low": low, f"{name}_high": high}
    return found


def envelope(cost: xr.DataArray, loss: xr.DataArray, budgets: Any = None, *, along: str = "time") -> xr.Dataset:
    """Find the smallest loss that each budget allows over a family of runs, and the member of the family that has it.

    Runs are interpolated to each budget, and the minimum over the family is that of a parabola through the best member
    and its neighbours, all in the logarithms: a coarse family gives a smooth envelope.

    Parameters
    ----------
    cost
        The cost of each run so far, over ``along`` and the dimension that numbers the family, such as sizes * times.
    loss
        The loss over these dimensions; further dimensions are kept. The mean over a dimension ``seed`` is taken, and
        the jackknife over seeds contributes to the error.
    budgets
        Costs at which the envelope is computed; by default 31 between the smallest and the largest cost.
    along
        The dimension along which the cost of a run rises.

    Returns
    -------
    Dataset
        The loss under its own name with its error, ``optimal_<member>`` with its error, ``optimal_<along>``, and
        ``bracketed``. Where that is False, the best member is the first or the last of the family, and errors are
        infinite.
    """
    members = [dim for dim in cost.dims if dim != along and dim in loss.dims]
    if along not in loss.dims or along not in cost.dims or len(members) != 1:
        raise ValueError(
            f"cost must be over {along!r} and one dimension that numbers the family, as in "
            f"sizes * times; it is over {list(cost.dims)}, and the loss over {list(loss.dims)}"
        )
    member = str(members[0])
    kept = [str(dim) for dim in loss.dims if dim not in (along, member, "seed")]
    price = cost.transpose(member, along).values
    places, stations = (np.asarray(loss[name].values, float) for name in (member, along))
    chosen = _budgets(budgets, price)
    curves = loss.transpose(*kept, *(["seed"] if "seed" in loss.dims else []), member, along)
    stacked = curves.values.reshape(-1, *curves.values.shape[len(kept) :])
    rows = [_row(price, runs, places, stations, chosen) for runs in stacked]
    dims, shape = (*kept, "budget"), (*(loss.sizes[dim] for dim in kept), chosen.size)
    names = {"loss": loss.name or "loss", "place": member, "station": along}
    variables: dict[str, Any] = {}
    for name in rows[0]:
        base, _, suffix = name.partition("_")
        label = f"optimal_{names[base]}" if base in ("place", "station") else str(names.get(base, base))
        label += f"_{suffix}" if suffix else ""
        array = np.array([row[name] for row in rows]).reshape(shape)
        variables[label] = (dims, array, _envelope_meaning(base, suffix, loss, member, along))
    coordinates = {dim: loss[dim] for dim in kept}
    return xr.Dataset(variables, {**coordinates, "budget": ("budget", chosen, _BUDGET)})


def _row(
    price: np.ndarray, runs: np.ndarray, places: np.ndarray, stations: np.ndarray, budgets: np.ndarray
) -> dict[str, np.ndarray]:
    """One envelope; ``runs`` is over the family and along it, with seeds in front where there are some."""
    mean = runs.mean(0) if runs.ndim == 3 else runs
    fits.check_curve(places, np.moveaxis(mean, 0, -1), 3)
    fits.check_curve(stations, mean, 4)
    found, coarse = _at_budgets(price, mean, budgets)
    best = envelopes.lowest(places, found)
    nearest = np.argmin(found, axis=0)
    error = np.hypot(best.depth_error, best.depth * coarse[nearest, np.arange(budgets.size)])
    if runs.ndim == 3:
        error = np.hypot(error, _jackknife(price, runs, places, budgets))
    reached, _ = _at_budgets(price, np.broadcast_to(stations, price.shape), budgets)
    return {
        "loss": best.depth,
        "loss_error": error,
        "place": best.place,
        "place_error": best.place_error,
        "station": _between(places, reached, best.place, nearest),
        "bracketed": best.bracketed,
    }


def _at_budgets(price: np.ndarray, values: np.ndarray, budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found, errors = zip(*(envelopes.at_costs(*pair, budgets) for pair in zip(price, values, strict=True)), strict=True)
    return np.array(found), np.array(errors)


def _jackknife(price: np.ndarray, runs: np.ndarray, places: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """Standard error of the envelope of the mean, from the envelopes of all runs but one."""
    count, total = runs.shape[0], runs.sum(0)
    if count < 2:
        return np.full(budgets.size, np.inf)
    without = [(total - run) / (count - 1) for run in runs]
    depths = np.array([envelopes.lowest(places, _at_budgets(price, mean, budgets)[0]).depth for mean in without])
    return np.sqrt((count - 1) * depths.var(0))


def _between(places: np.ndarray, reached: np.ndarray, place: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """How far the best member has got, from its neighbours' progress by the parabola in the logarithms."""
    logs, out = np.log(places), np.empty(place.size)
    for column, middle in enumerate(nearest):
        around = slice(max(0, middle - 1), middle + 2)
        row = reached[around, column]
        if not np.isfinite(row).all() or row.size < 3:
            out[column] = reached[middle, column]
            continue
        through = np.polyfit(logs[around] - logs[middle], np.log(row), 2)
        out[column] = np.exp(np.polyval(through, np.log(place[column]) - logs[middle]))
    return out


def _budgets(budgets: Any, price: np.ndarray) -> np.ndarray:
    if budgets is None:
        return np.geomspace(price.min(), price.max(), 31)
    chosen = np.atleast_1d(np.asarray(budgets, float))
    reachable = np.array([((price[:, 0] <= one) & (one <= price[:, -1])).any() for one in chosen])
    if not reachable.all():
        raise ValueError(
            f"no run has the cost {chosen[np.argmin(reachable)]:g}: budgets must lie between "
            f"{price.min():g} and {price.max():g}"
        )
    return chosen


class _Curve:
    """Values to be fitted, with the dimension fitted last, seeds before it, and the others in front."""

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
        self.x = np.asarray(self.data[self.dim].values, float)
        self.errors = None if errors is None else self._errors(errors, values)
        # A window has no place among points that are not in order, which is said below.
        ordered = self.x.ndim == 1 and bool((np.diff(self.x) > 0).all())
        looked_at = self._between(*within) if within is not None and ordered else slice(None)
        fits.check_curve(self.x[looked_at], self._mean_values()[..., looked_at], 0 if within else 2, positive)

    def _errors(self, errors: Any, values: xr.DataArray) -> np.ndarray:
        if isinstance(errors, xr.DataArray):
            like = values.isel(seed=0, drop=True) if self.seeds is not None else values
            errors = errors.broadcast_like(like).transpose(*self.others, self.dim).values
        return fits.check_errors(errors, (*self.shape(), self.x.size))

    def _mean_values(self) -> np.ndarray:
        return self.data.values.mean(-2) if self.seeds is not None else self.data.values

    def slopes(self) -> tuple[np.ndarray, np.ndarray | None]:
        if self.errors is None and self.seeds is not None and self.seeds > 1:
            return fits.local_slopes_of_mean(self.x, self.data.values)
        return fits.local_slopes(self.x, self._mean_values(), self.errors)

    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.sizes[dim] for dim in self.others)

    def rows(self) -> np.ndarray:
        """One curve after the other, each over x or over seed and x."""
        return self.data.values.reshape(-1, *self.data.values.shape[len(self.others) :])

    def row_errors(self, row: int) -> np.ndarray:
        assert self.errors is not None
        return self.errors.reshape(-1, self.x.size)[row]

    def chosen(self, window: tuple[float, float] | str | None, drift: float, row: int) -> slice:
        if window is None:
            return slice(0, self.x.size)
        if isinstance(window, str):
            if window != "straight":
                raise ValueError(f"window must be a pair of x, 'straight' or None, not {window!r}")
            return fits.straight_window(self.x, *_window_arguments(self, drift, row))
        return self._between(*window)

    def _between(self, low: float, high: float) -> slice:
        # A window that ends on a point holds it, rounding or not.
        return slice(
            int(np.searchsorted(self.x, low * (1 - 1e-9))), int(np.searchsorted(self.x, high * (1 + 1e-9), "right"))
        )

    def limits(self, chosen: slice) -> tuple[float, float]:
        part = self.x[chosen]
        return (float(part[0]), float(part[-1])) if part.size else (float("nan"), float("nan"))

    def coords(self) -> dict[str, Any]:
        return {name: self.data[name] for name in (*self.others, self.dim) if name in self.data.coords}


def _window_arguments(curve: _Curve, drift: float, row: int = 0) -> tuple[np.ndarray, float, np.ndarray | None]:
    if not 0 < drift < np.inf:
        raise ValueError(f"drift must be a positive number, the spread of exponents that is allowed, not {drift!r}")
    slopes, errors = (None if array is None else array.reshape(-1, curve.x.size)[row] for array in curve.slopes())
    assert slopes is not None
    return slopes, drift, errors


_MEANINGS = {
    "exponent": {"long_name": "local exponent", "units": "1"},
    "exponent_error": {"long_name": "standard error of the local exponent", "units": "1"},
}
_BUDGET = {"long_name": "budget", "units": "1", "symbol": "C"}
_NAMES = {
    "exponent": "exponent of the power law",
    "prefactor": "prefactor of the power law",
    "offset": "value that the power law tends to",
    "exponent_drift": "exponent of the later half of the window less that of the earlier half",
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


def _envelope_meaning(base: str, suffix: str, loss: xr.DataArray, member: str, along: str) -> dict[str, str]:
    if base == "bracketed":
        return {"long_name": "whether the best member lies inside of the family", "units": "1"}
    source = loss if base == "loss" else loss[member if base == "place" else along]
    name = f"best {source.attrs.get('long_name', str(source.name))}"
    return {
        "long_name": f"error of the {name}" if suffix else name,
        "units": str(source.attrs.get("units", "1")),
    }
