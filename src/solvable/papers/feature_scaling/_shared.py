"""What the figures share: fitted exponents, theory held against simulated networks, lines that show a power."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable import fits
from solvable.fits import power_law
from solvable.models.feature_scaling import FeatureScaling
from solvable.numerics.envelope import lowest
from solvable.papers.claims import Claim
from solvable.plotting import draw_curve
from solvable.timegrid import whole_steps
from solvable.training import SGD, GradientFlow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The paper does not say which capacity its figures have.
CAPACITY = 1.5


def rich_exponent(source: float) -> float:
    """The time exponent where features learn (eq. 10), once more, so that claims do not test the model by itself."""
    return source * max(1.0, 2 / (1 + source))


def fitted(values: xr.DataArray, first: float, last: float, dim: str = "time") -> float:
    """The exponent with which values fall between ``first`` and ``last``."""
    return float(power_law(values, dim, window=(first, last), resamples=0).exponent)


def fall(x: Any, y: Any) -> float:
    """The same for plain numbers, all of them."""
    return float(power_law(y, x, resamples=0).exponent)


def local_exponent(values: xr.DataArray, dim: str = "time") -> xr.DataArray:
    """The exponent with which values fall at each point."""
    return fits.local_exponent(values, dim).exponent


def agreement(
    label: str, theory: xr.Dataset, simulation: xr.Dataset, own_error: float, because: str, name: str = "test_loss"
) -> Claim:
    """Theory is of leading order in the sizes: it may miss the mean of runs by ``own_error``, a fraction of it."""
    what = f"{label}: {name.replace('_', ' ')} of theory and simulation agree"
    return Claim.agrees(what, theory, simulation, name, because, bias=own_error)


def draw_power(
    ax: "Axes",
    values: xr.DataArray,
    exponent: float,
    label: str,
    *,
    at: float = 0.5,
    shift: float = 0.7,
    since: float = 0.0,
    **style: Any,
) -> None:
    """A line with the given decay exponent, ``shift`` times as high as a curve at the share ``at`` of its points."""
    dim = str(values.dims[0])
    x, y = values[dim].values, values.values
    kept = x > 0
    x, y = x[kept], y[kept]
    place = int(at * (x.size - 1))
    x, level = x[x >= since], shift * y[place] * x[place] ** exponent
    style = {"color": "black", "linestyle": ":", "linewidth": 1.2, **style}
    ax.plot(x, level * x**-exponent, label=label, **style)


def draw_both(
    ax: "Axes", theory: xr.Dataset, simulation: xr.Dataset, colour: str, label: str, name: str = "test_loss"
) -> None:
    draw_curve(ax, theory[name], colour, label)
    draw_curve(ax, simulation[name], colour)


def over_flow_time(curves: xr.Dataset) -> xr.Dataset:
    """The same curves with flow time in place of steps."""
    return curves.assign_coords(time=("time", curves.flow_time.values, curves.flow_time.attrs)).drop_vars("flow_time")


def small_steps(model: FeatureScaling, times: np.ndarray, noise: float, per_decade: int = 16) -> xr.Dataset:
    """Theory over flow time in the limit of small steps, whose batch noise has the strength learning rate / batch.

    With noise, times are those of the nearest whole steps of batches of one sample.
    """
    if noise == 0:
        return model.predict(times, GradientFlow(), per_decade=per_decade)
    training = SGD(noise, batch_size=1)
    steps = whole_steps(times / noise)
    return over_flow_time(model.predict(steps, training, solver="slot-march", per_decade=per_decade))


def noisy_envelope(model: FeatureScaling, budgets: np.ndarray, noise: float, per_decade: int) -> xr.Dataset:
    """The compute optimum of a super-easy task with batch noise, whose best networks have ``N > t``.

    Only such networks are tried: others sit at their plateau, where noise keeps time steps short and the march long.
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
    found = {"test_loss": ("budget", best.depth), "features": ("budget", best.place)}
    return xr.Dataset(found, {"budget": budgets})


def shades(count: int) -> list[Any]:
    """Colours in an order, for families of curves."""
    import matplotlib

    return [matplotlib.colormaps["viridis"](share) for share in np.linspace(0.0, 0.88, count)]
