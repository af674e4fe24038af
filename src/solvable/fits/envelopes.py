"""The compute-optimal envelope of a family of runs."""

from typing import Any

import numpy as np
import xarray as xr

from solvable.numerics import envelope as envelopes
from solvable.numerics import fits

_BUDGET = {"long_name": "budget", "units": "1", "symbol": "C"}


def envelope(cost: xr.DataArray, loss: xr.DataArray, budgets: Any = None, *, along: str = "time") -> xr.Dataset:
    """Find the smallest loss that each budget allows over a family of runs, and the member of the family that has it.

    Runs are interpolated to each budget, and the minimum over the family is that of a parabola through the best member
    and its neighbours, all in the logarithms: a coarse family gives a smooth envelope.

    Parameters
    ----------
    cost
        The cost of each run so far, over ``along`` and the dimension of the family, such as sizes * times.
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
        ``bracketed``. If that is False, the best member is the first or the last of the family, and errors are
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
    sizes, times = (np.asarray(loss[name].values, float) for name in (member, along))
    chosen = _budgets(budgets, price)
    curves = loss.transpose(*kept, *(["seed"] if "seed" in loss.dims else []), member, along)
    stacked = curves.values.reshape(-1, *curves.values.shape[len(kept) :])
    rows = [_envelope(price, runs, sizes, times, chosen) for runs in stacked]
    shape = (*(loss.sizes[dim] for dim in kept), chosen.size)
    name = str(loss.name or "loss")
    variables = {
        name: ("loss", _best(loss)),
        f"{name}_error": ("loss_error", _best(loss, "error of the ")),
        f"optimal_{member}": ("size", _best(loss[member])),
        f"optimal_{member}_error": ("size_error", _best(loss[member], "error of the ")),
        f"optimal_{along}": ("time", _best(loss[along])),
        "bracketed": ("bracketed", {"long_name": "whether the best member lies inside of the family", "units": "1"}),
    }
    return xr.Dataset(
        {
            label: ((*kept, "budget"), np.array([row[source] for row in rows]).reshape(shape), attrs)
            for label, (source, attrs) in variables.items()
        },
        {**{dim: loss[dim] for dim in kept}, "budget": ("budget", chosen, _BUDGET)},
    )


def _best(values: xr.DataArray, prefix: str = "") -> dict[str, str]:
    name = values.attrs.get("long_name", str(values.name))
    return {"long_name": f"{prefix}best {name}", "units": str(values.attrs.get("units", "1"))}


def _envelope(
    price: np.ndarray, runs: np.ndarray, sizes: np.ndarray, times: np.ndarray, budgets: np.ndarray
) -> dict[str, np.ndarray]:
    """The envelope of one family; ``runs`` has the dimensions member and time, and possibly seed before them."""
    mean = runs.mean(0) if runs.ndim == 3 else runs
    fits.check_curve(sizes, np.moveaxis(mean, 0, -1), 3)
    fits.check_curve(times, mean, 4)
    found, coarse = _at_budgets(price, mean, budgets)
    best = envelopes.lowest(sizes, found)
    nearest = np.argmin(found, axis=0)
    error = np.hypot(best.depth_error, best.depth * coarse[nearest, np.arange(budgets.size)])
    if runs.ndim == 3:
        error = np.hypot(error, _jackknife(price, runs, sizes, budgets))
    reached, _ = _at_budgets(price, np.broadcast_to(times, price.shape), budgets)
    return {
        "loss": best.depth,
        "loss_error": error,
        "size": best.place,
        "size_error": best.place_error,
        "time": _between(sizes, reached, best.place, nearest),
        "bracketed": best.bracketed,
    }


def _at_budgets(price: np.ndarray, values: np.ndarray, budgets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found, errors = zip(*(envelopes.at_costs(*pair, budgets) for pair in zip(price, values, strict=True)), strict=True)
    return np.array(found), np.array(errors)


def _jackknife(price: np.ndarray, runs: np.ndarray, sizes: np.ndarray, budgets: np.ndarray) -> np.ndarray:
    """Standard error of the envelope of the mean, from the envelopes of all runs but one."""
    count, total = runs.shape[0], runs.sum(0)
    if count < 2:
        return np.full(budgets.size, np.inf)
    without = [(total - run) / (count - 1) for run in runs]
    depths = np.array([envelopes.lowest(sizes, _at_budgets(price, mean, budgets)[0]).depth for mean in without])
    return np.sqrt((count - 1) * depths.var(0))


def _between(sizes: np.ndarray, reached: np.ndarray, best: np.ndarray, nearest: np.ndarray) -> np.ndarray:
    """The time that the best member has reached, from those of its neighbours by a parabola in the logarithms."""
    logs, out = np.log(sizes), np.empty(best.size)
    for column, middle in enumerate(nearest):
        around = slice(max(0, middle - 1), middle + 2)
        row = reached[around, column]
        if not np.isfinite(row).all() or row.size < 3:
            out[column] = reached[middle, column]
            continue
        through = np.polyfit(logs[around] - logs[middle], np.log(row), 2)
        out[column] = np.exp(np.polyval(through, np.log(best[column]) - logs[middle]))
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
