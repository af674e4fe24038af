"""Helpers shared by the figures: closed forms, fitted exponents, theory in the limit of small steps, and drawing."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable import fits
from solvable.fits import power_law
from solvable.models.feature_scaling import FeatureScaling
from solvable.numerics.envelope import lowest
from solvable.papers.claims import Claim
from solvable.plotting import draw_curve, log_losses
from solvable.timegrid import whole_steps
from solvable.training import SGD, GradientFlow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The paper does not state the capacity of its figures.
CAPACITY = 1.5
# The sum of the eigenvalues k^-1.5 of this capacity, a value of the zeta function.
TRACE = 2.612375348685488


def rich_exponent(source: float) -> float:
    """The time exponent where features learn (eq. 10), written out again so that claims test the model against it."""
    return source * max(1.0, 2 / (1 + source))


def compute_exponents(source: float, rich: bool) -> tuple[float, float]:
    """Table 1: the compute exponent of the loss, and that of the number of features which the same balance implies."""
    if source < 1:
        time = rich_exponent(source) if rich else source
        return CAPACITY * source * time / (CAPACITY * source + time), time / (CAPACITY * source + time)
    if source < 2 - 1 / CAPACITY:
        loss = CAPACITY * source / (CAPACITY * source + 1)
        return loss, 1 - loss / source
    return 1 - 1 / (2 * CAPACITY), 0.5


def fitted(values: xr.DataArray, first: float, last: float, dim: str = "time") -> float:
    """The exponent with which values fall between ``first`` and ``last``."""
    return float(power_law(values, dim, window=(first, last), resamples=0).exponent)


def fall(x: Any, y: Any) -> float:
    """The exponent with which plain numbers fall, fitted to all of them."""
    return float(power_law(y, x, resamples=0).exponent)


def local_exponent(values: xr.DataArray, dim: str = "time") -> xr.DataArray:
    """The exponent with which values fall at each point."""
    return fits.local_exponent(values, dim).exponent


def agreement(
    label: str, theory: xr.Dataset, simulation: xr.Dataset, bias: float, because: str, name: str = "test_loss"
) -> Claim:
    """Theory is of leading order in the sizes: it may miss the mean over runs by ``bias``, a fraction of its value."""
    what = f"{label}: {name.replace('_', ' ')} of theory and simulation agree"
    return Claim.agrees(what, theory, simulation, name, because, bias=bias)


def infinite_agreement(
    label: str, pairs: Mapping[int, tuple[xr.Dataset, xr.Dataset]], because: str, name: str = "test_loss"
) -> Claim:
    """Theory and runs, by number of features: the ratio of the losses, extrapolated to infinitely many, is 1.

    Theory itself is that of each number of features, so that what is extrapolated is the error of its leading order.
    """
    ratios = []
    for size, (theory, runs) in pairs.items():
        ratio = (runs[name] / theory[name].sel(time=runs.time)).rename(name).to_dataset()
        ratios.append(ratio.assign_attrs(system=json.dumps({"features": size})))
    one = xr.ones_like(ratios[0].isel(seed=0, drop=True)).assign_attrs(system=json.dumps({"features": None}))
    sizes = " and ".join(f"{size:g}" for size in pairs)
    what = f"{label}: {name.replace('_', ' ')} of runs over theory's, extrapolated from N = {sizes}, is 1"
    return Claim.agrees(what, one, ratios, name, because, extrapolate="features")


def draw_power(
    ax: "Axes",
    values: xr.DataArray,
    exponent: float,
    label: str,
    *,
    anchor: float = 0.5,
    shift: float = 0.7,
    first: float = 0.0,
    **style: Any,
) -> None:
    """Draw a line with a given decay exponent beside a curve.

    Parameters
    ----------
    ax
        The panel.
    values
        The curve.
    exponent
        The decay exponent of the line.
    label
        What the legend says of it.
    anchor
        Which point of the curve sets the height of the line, as a fraction of the number of its points.
    shift
        The line is this many times as high as the curve at that point.
    first
        Where the line begins.
    style
        Options of matplotlib in place of a thin dotted black line.
    """
    dim = str(values.dims[0])
    x, y = values[dim].values, values.values
    x, y = x[x > 0], y[x > 0]
    place = int(anchor * (x.size - 1))
    x, level = x[x >= first], shift * y[place] * x[place] ** exponent
    style = {"color": "black", "linestyle": ":", "linewidth": 1.2, **style}
    ax.plot(x, level * x**-exponent, label=label, **style)


def draw_both(ax: "Axes", theory: xr.Dataset, simulation: xr.Dataset, colour: str, label: str) -> None:
    """Draw test losses: theory as a line after its time 0, and simulation as points with error bars."""
    draw_curve(ax, theory.test_loss[1:], colour, label)
    draw_curve(ax, simulation.test_loss, colour)


def finish(ax: "Axes", title: str, xlabel: str, ylabel: str, /, **legend: Any) -> None:
    """Give a panel a title, logarithmic axes with names, and a legend with these options of matplotlib."""
    ax.set(xscale="log", xlabel=xlabel, ylabel=ylabel)
    ax.set_title(title, fontsize="medium")
    log_losses(ax)
    ax.legend(fontsize="small", **legend)


def over_flow_time(curves: xr.Dataset) -> xr.Dataset:
    """Curves with flow time in place of steps."""
    return curves.assign_coords(time=("time", curves.flow_time.values, curves.flow_time.attrs)).drop_vars("flow_time")


def small_steps(model: FeatureScaling, times: np.ndarray, noise: float, per_decade: int = 16) -> xr.Dataset:
    """Theory over flow time in the limit of small steps, where batch noise has the strength learning rate / batch size.

    With noise, the times are those of the nearest whole steps with mini-batches of one sample.
    """
    if noise == 0:
        return model.predict(times, GradientFlow(), per_decade=per_decade)
    training = SGD(noise, batch_size=1)
    steps = whole_steps(times / noise)
    return over_flow_time(model.predict(steps, training, solver="slot-march", per_decade=per_decade))


def noisy_envelope(model: FeatureScaling, budgets: np.ndarray, noise: float, per_decade: int) -> xr.Dataset:
    """The compute optimum of a super-easy task with batch noise, whose best networks have ``N > t``.

    Only such networks are tried. Others have reached their plateau, where noise keeps time steps short and the
    computation long.
    """
    first, last = np.log2(np.sqrt(budgets[[0, -1]]))
    sizes = 2 ** np.arange(round(first), round(last) + 6)
    losses = np.full((sizes.size, budgets.size), np.inf)
    for row, size in enumerate(sizes):
        times = budgets / size
        usable = (times > 0.5) & (times < size)
        if usable.any():
            network = model.replace(features=int(size))
            losses[row, usable] = small_steps(network, times[usable], noise, per_decade).test_loss
    best = lowest(sizes, losses)
    return xr.Dataset(
        {
            "test_loss": ("budget", best.depth, {"long_name": "least test loss", "units": "1"}),
            "features": ("budget", best.place, {"long_name": "best number of features", "units": "1"}),
        },
        {"budget": ("budget", budgets, {"long_name": "compute, features times flow time", "units": "1"})},
    )


def shades(count: int) -> list[Any]:
    """Ordered colours, for families of curves."""
    import matplotlib

    return [matplotlib.colormaps["viridis"](place) for place in np.linspace(0.0, 0.88, count)]
