"""Circle networks: when a finite width stops lazy learning, against the width.

Lazy networks of a finite width follow the model tangent to them at their initialisation, whose loss is known at all
times from one diagonalisation. Its excess over that of the infinite width is measured as a function of the width: in
the solvable model, corrections have the relative size ``t^x / N``.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.fits import power_law
from solvable.networks.tasks.circle import fourier_decay
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._circle import linearised
from solvable.papers.feature_scaling._shared import shades
from solvable.plotting import COLOURS, log_losses, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = (0.5, 0.75, 1.25)
WIDTHS = {"quick": (64, 128, 256, 512), "full": (64, 128, 256, 512, 1024, 2048, 4096, 8192)}
SEEDS = {"quick": 16, "full": 32}
POINTS = {"quick": 256, "full": 512}
# The bottleneck sets in at this many times the loss of the infinite width: fluctuations of low eigenvalues make less.
ONSET = 1.5
# A time at which the excess is of leading order for most widths.
EXCESS_TIME = {"quick": 100.0, "full": 1000.0}
# A width whose exponent has fallen off before t = 1000.
FALLEN = {"quick": 128, "full": 1024}
TIMES = np.geomspace(1.0, 1e5, 101)
# Later onsets would depend on waves that the grid does not resolve.
GRID_ENDS = {"quick": 2.5e3, "full": 1e4}
SHOWN = 1.25


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Losses of linearised networks of each width and of the infinite width, and the onsets of the bottleneck."""
    decays = [float(fourier_decay(source)) for source in SOURCES]
    points, widths = POINTS[scale], list(WIDTHS[scale])
    infinite = linearised(decays, TIMES, width=np.inf, points=points, seeds=1)[:, 0].assign_coords(task=list(SOURCES))
    curves = xr.concat(
        [linearised(decays, TIMES, width=width, points=points, seeds=SEEDS[scale]) for width in widths],
        xr.DataArray(widths, dims="width", name="width"),
    ).assign_coords(task=list(SOURCES))
    return {
        "curves": curves.to_dataset(name="loss"),
        "infinite": infinite.to_dataset(name="loss"),
        "onsets": _onsets(curves / infinite),
    }


def _onsets(ratio: xr.DataArray, resamples: int = 200) -> xr.Dataset:
    """When the mean over seeds first exceeds the infinite width so much, and its error from resampled seeds.

    Where there is no crossing, the onset is infinite and has no error.
    """
    generator = np.random.default_rng(3)
    runs = ratio.transpose("task", "width", "seed", "time").values
    draws = generator.integers(0, runs.shape[2], (resamples, runs.shape[2]))
    central = _crossing(runs.mean(2))
    again = np.stack([_crossing(runs[:, :, draw].mean(2)) for draw in draws])
    with np.errstate(invalid="ignore"):
        error = central * np.log(again).std(0)
    dims, about = ("task", "width"), {"long_name": f"time at which the loss is {ONSET:g} times that of infinite width"}
    return xr.Dataset(
        {"onset": (dims, central, about), "onset_error": (dims, error)},
        {"task": ratio.task, "width": ratio.width},
    )


def _crossing(ratios: np.ndarray) -> np.ndarray:
    """Times of the first crossing, between two points by a power law; infinite where there is none."""
    crosses = (ratios > ONSET).any(-1)
    first = np.maximum(np.argmax(ratios > ONSET, axis=-1), 1)
    below, above = (np.take_along_axis(ratios, (first - shift)[..., None], -1)[..., 0] for shift in (1, 0))
    fraction = np.where(crosses, np.log(ONSET / below) / np.log(above / below), 0.0)
    logarithms = np.log(TIMES)
    times = np.exp(logarithms[first - 1] + fraction * (logarithms[first] - logarithms[first - 1]))
    return np.where(crosses, times, np.inf)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """How excess and onset depend on the width, and that the exponent of a finite width falls off."""
    scale = scale_of(data)
    curves, infinite = data["curves"].loss, data["infinite"].loss
    made: list[Claim] = []
    for source in SOURCES:
        excess = (curves / infinite - 1).sel(task=source).sel(time=EXCESS_TIME[scale], method="nearest")
        made += [_excess_claim(source, excess, EXCESS_TIME[scale]), _onset_claim(source, data["onsets"], scale)]
    width = FALLEN[scale]
    return made + [_fallen(curves.sel(task=one, width=width), infinite.sel(task=one), one, width) for one in SOURCES]


def _excess_claim(source: float, excess: xr.DataArray, time: float) -> Claim:
    seeds = excess.sizes["seed"]
    mean, error = excess.mean("seed"), excess.std("seed", ddof=1) / np.sqrt(seeds)
    # Wide networks whose excess is within its error say nothing about how it falls.
    seen = (mean > 3 * error).values
    fit = power_law(mean[seen], "width", errors=error[seen])
    return Claim(
        f"β = {source:g}: excess at t = {time:g} over the infinite width, exponent in the width",
        float(fit.exponent),
        1.0,
        0.15 + 3 * float(fit.exponent_error),
        f"of order 1/N; 3 standard errors of {float(fit.exponent_error):.3f} from {seeds} seeds, and 0.15 for "
        "higher orders where the excess is not small",
    )


def _onset_law(onsets: xr.Dataset, source: float, scale: Scale) -> tuple[xr.Dataset, xr.Dataset]:
    """The onsets of a task that the grid resolves, and the power law in the width that is fitted to them."""
    one = onsets.sel(task=source)
    one = one.isel(width=(one.onset < GRID_ENDS[scale]).values)
    return one, power_law(one.onset, "width", errors=one.onset_error)


def _onset_claim(source: float, onsets: xr.Dataset, scale: Scale) -> Claim:
    _, law = _onset_law(onsets, source, scale)
    return Claim(
        f"β = {source:g}: onset of the bottleneck, exponent in the width",
        -float(law.exponent),
        1.5,
        0.5,
        f"faster than the width, slower than its square; error {float(law.exponent_error):.3f}. Random features have "
        "2 for β < 1 and 1 / (β - 1/2) for β > 1 while the excess is small; here it is half of the loss",
    )


def _fallen(curves: xr.DataArray, infinite: xr.DataArray, source: float, width: int) -> Claim:
    """The exponent before t = 1000 of a width at which it is below that of the infinite width, on the same grid."""
    window = (300.0, 1000.0)
    fit = power_law(curves, "time", window=window, resamples=200)
    own, error = float(fit.exponent), float(fit.exponent_error)
    other = float(power_law(infinite, "time", window=window, resamples=0).exponent)
    return Claim(
        f"β = {source:g}, width {width}: the exponent over t = 300 ... 1000 has fallen off, by over 2 errors",
        float(other - own > 2 * error),
        1.0,
        0.0,
        f"it is {own:.3f} with an error of {error:.3f}; that of the infinite width {other:.3f}",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses of one task at each width, and the onsets of the bottleneck over the width."""
    figure, (left, right) = new_figure(2)
    mean = data["curves"].loss.sel(task=SHOWN).mean("seed")
    for colour, width in zip(shades(mean.sizes["width"]), mean.width.values, strict=True):
        left.loglog(TIMES, mean.sel(width=width), color=colour, label=f"N = {width}")
    left.loglog(TIMES, data["infinite"].loss.sel(task=SHOWN), "k--", label="infinite")
    left.set(xlabel="time, sum of learning rates, t", ylabel="loss, half the mean square")
    left.set_title(f"lazy networks, β = {SHOWN:g}", fontsize="medium")
    log_losses(left)
    left.set_ylim(bottom=float(mean.min()) / 3)
    left.legend(fontsize="small", loc="lower left")
    _draw_onsets(right, data["onsets"], scale_of(data))
    return figure


def _draw_onsets(panel: "Axes", onsets: xr.Dataset, scale: Scale) -> None:
    widths = onsets.width.values.astype(float)
    for colour, source in zip(COLOURS, SOURCES, strict=False):
        one, law = _onset_law(onsets, source, scale)
        rise = -float(law.exponent)
        label = f"β = {source:g}: $N^{{{rise:.2f} \\pm {float(law.exponent_error):.2f}}}$"
        panel.errorbar(one.width, one.onset, one.onset_error, fmt="o", markersize=4, color=colour, label=label)
        panel.plot(widths, float(law.prefactor) * widths**rise, color=colour, linewidth=0.9)
    ylabel = f"onset: loss {ONSET:g} times the infinite width's"
    panel.set(xscale="log", yscale="log", xlabel="width, N", ylabel=ylabel)
    panel.legend(fontsize="small")
