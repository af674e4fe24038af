"""Theory against simulation: difference, standard error over seeds, z-score."""

import numpy as np
import xarray as xr

_ROUNDING = 16 * np.finfo(float).eps
STATISTICS = ("theory", "simulation", "difference", "standard_error", "z_score")


def compare(theory: xr.Dataset, simulation: xr.Dataset) -> xr.Dataset:
    """Hold theory against simulation, variable by variable.

    Every variable that both have keeps its name and gains a dimension ``statistic``: ``theory``, ``simulation`` (mean
    over seeds), ``difference`` (simulation minus theory), ``standard_error`` and ``z_score``. So
    ``compare(theory, simulation).test_loss.sel(statistic="z_score")`` is the z-score of the test loss at each time.

    The standard error is that of the mean over seeds, joined by theory's own error where it gives one
    (``<name>_error``). Fractions counted over a number of trials (attribute ``trials``) have at least the binomial
    error that theory's value implies: ten runs that all count 1000 of 1000 do not prove a probability of one.

    >>> import solvable, xarray as xr
    >>> theory = xr.Dataset({"loss": ("time", [1.0, 0.5])}, {"time": [0.0, 1.0]})
    >>> runs = xr.Dataset({"loss": (("seed", "time"), [[1.0, 0.6], [1.2, 0.5], [0.8, 0.7]])}, {"time": [0.0, 1.0]})
    >>> solvable.compare(theory, runs).loss.sel(statistic="z_score").values.round(2)
    array([0.  , 1.73])
    """
    if "seed" not in simulation.dims:
        raise ValueError("the second dataset has no dimension 'seed': pass theory first, simulation second")
    if "seed" in theory.dims:
        raise ValueError("the first dataset has a dimension 'seed': pass theory first, simulation second")
    seeds = simulation.sizes["seed"]
    if seeds < 2:
        raise ValueError(f"a standard error needs at least 2 seeds, not {seeds}: simulate more")
    shared = [name for name in simulation.data_vars if name in theory.data_vars and "seed" in simulation[name].dims]
    if not shared:
        raise ValueError(
            f"nothing to compare: theory has {', '.join(map(str, theory.data_vars))}; "
            f"simulation has {', '.join(map(str, simulation.data_vars))}"
        )
    _check_same_coordinates(theory, simulation)
    result = xr.Dataset({name: _statistics(theory, simulation, str(name), seeds) for name in shared})
    result.attrs = {
        "method": "comparison",
        **{key: theory.attrs[key] for key in ("model", "parameters", "version") if key in theory.attrs},
        **{f"theory_{key}": theory.attrs[key] for key in ("solver", "numerical_error") if key in theory.attrs},
        **{f"simulation_{key}": simulation.attrs[key] for key in ("solver", "device") if key in simulation.attrs},
    }
    return result


def _check_same_coordinates(theory: xr.Dataset, simulation: xr.Dataset) -> None:
    for dim in set(theory.dims) & set(simulation.dims):
        if dim not in theory.coords or dim not in simulation.coords:
            continue
        one, two = theory[dim].values, simulation[dim].values
        if one.shape != two.shape or not np.allclose(one, two, rtol=1e-12, atol=0):
            raise ValueError(
                f"theory and simulation are at different values of {dim!r} ({one.size} and {two.size} of them): "
                f"predict at simulation.{dim}.values"
            )


def _statistics(theory: xr.Dataset, simulation: xr.Dataset, name: str, seeds: int) -> xr.DataArray:
    expected, runs = theory[name], simulation[name]
    mean = runs.mean("seed")
    error = runs.std("seed", ddof=1) / np.sqrt(seeds)
    if f"{name}_error" in theory:
        error = np.hypot(error, theory[f"{name}_error"])
    if "trials" in runs.attrs:
        chance = expected.clip(0, 1)
        error = np.maximum(error, np.sqrt(chance * (1 - chance) / (runs.attrs["trials"] * seeds)))
    # Numbers that are the same in every run are known no better than rounding.
    error = np.maximum(error, _ROUNDING * abs(expected))
    difference = mean - expected
    score = xr.where(difference == 0, 0.0, difference / error.where(error > 0, 0.0))
    parts = xr.concat(
        [expected, mean, difference, error, score], xr.Variable("statistic", list(STATISTICS)), coords="minimal"
    )
    parts.attrs = {**expected.attrs}
    return parts


def first_crossing(values: xr.DataArray, level: float, dim: str = "time") -> xr.DataArray:
    """When each curve first rises to ``level``, interpolated linearly in log time; NaN where it never does.

    >>> import xarray as xr
    >>> from solvable.comparison import first_crossing
    >>> accuracy = xr.DataArray([0.0, 0.5, 1.0], coords={"time": [1.0, 10.0, 100.0]}, name="accuracy")
    >>> round(float(first_crossing(accuracy, 0.75)), 3)
    31.623
    """

    def along(curve: np.ndarray, times: np.ndarray) -> float:
        above = np.nonzero(curve >= level)[0]
        if above.size == 0:
            return np.nan
        last = above[0]
        if last == 0 or times[last - 1] <= 0:
            return float(times[last])
        share = (level - curve[last - 1]) / (curve[last] - curve[last - 1])
        return float(times[last - 1] * (times[last] / times[last - 1]) ** share)

    crossing = xr.apply_ufunc(along, values, values[dim], input_core_dims=[[dim], [dim]], vectorize=True)
    return crossing.assign_attrs(long_name=f"time at which {values.name} reaches {level:g}", units="steps")
