"""Circle networks: when a finite width stops lazy learning, against the width.

Lazy networks of a finite width follow the model tangent to them at the start, whose loss is known at all times from
one diagonalisation. Its excess over that of the infinite width is held against the width: the solvable model has
corrections of relative size ``t^x / N``.
"""

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.fits import power_law
from solvable.networks.tasks.circle import fourier_decay
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._circle import linearised
from solvable.papers.feature_scaling._shared import shades
from solvable.plotting import COLOURS, log_losses, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SOURCES = (0.5, 0.75, 1.25)
WIDTHS = {"quick": (64, 128, 256, 512), "full": (64, 128, 256, 512, 1024, 2048, 4096, 8192)}
SEEDS = {"quick": 16, "full": 32}
POINTS = {"quick": 256, "full": 512}
# Half as much again as the infinite width: more than its low eigenvalues' fluctuations make of it.
ONSET = 1.5
# Where the excess is of leading order for most widths.
EXCESS_AT = {"quick": 100.0, "full": 1000.0}
# Whose exponent is shown to have fallen off at t = 1000.
FALLEN = {"quick": 128, "full": 1024}
TIMES = np.geomspace(1.0, 1e5, 101)
# Later, waves that the grid does not resolve would decide.
GRID_ENDS = {"quick": 2.5e3, "full": 1e4}
SHOWN = 1.25


def reproduce(scale: Scale) -> Reproduction:
    decays = [float(fourier_decay(source)) for source in SOURCES]
    infinite = linearised(decays, TIMES, width=np.inf, points=POINTS[scale], seeds=1)[:, 0]
    infinite = infinite.assign_coords(task=list(SOURCES))
    curves = xr.concat(
        [linearised(decays, TIMES, width=width, points=POINTS[scale], seeds=SEEDS[scale]) for width in WIDTHS[scale]],
        xr.DataArray(list(WIDTHS[scale]), dims="width", name="width"),
    ).assign_coords(task=list(SOURCES))
    ratio = curves / infinite
    onsets = _onsets(ratio)
    figure, (left, right) = new_figure(2)
    for colour, width in zip(shades(curves.sizes["width"]), WIDTHS[scale], strict=True):
        left.loglog(TIMES, curves.sel(task=SHOWN, width=width).mean("seed"), color=colour, label=f"N = {width}")
    left.loglog(TIMES, infinite[SOURCES.index(SHOWN)], "k--", label="infinite")
    left.set(xlabel="time, sum of learning rates, t", ylabel="loss, half the mean square")
    left.set_title(f"lazy networks, β = {SHOWN:g}", fontsize="medium")
    log_losses(left)
    left.set_ylim(bottom=float(curves.sel(task=SHOWN).mean("seed").min()) / 3)
    left.legend(fontsize="small", loc="lower left")
    claims: list[Claim] = []
    for colour, source in zip(COLOURS, SOURCES, strict=False):
        claims += _claims(right, colour, source, ratio, onsets, scale)
    right.set(xscale="log", yscale="log", xlabel="width, N", ylabel=f"onset: loss {ONSET:g} times the infinite width's")
    right.legend(fontsize="small")
    claims += _fallen(curves, infinite, FALLEN[scale])
    datasets = {"curves": curves.to_dataset(name="loss"), "infinite": infinite.to_dataset(name="loss")}
    return Reproduction({**datasets, "onsets": onsets}, figure, claims)


def _onsets(ratio: xr.DataArray, resamples: int = 200) -> xr.Dataset:
    """When the mean over seeds first exceeds the infinite width so much, and its error from seeds drawn anew."""
    generator = np.random.default_rng(3)
    runs = ratio.transpose("task", "width", "seed", "time").values
    draws = generator.integers(0, runs.shape[2], (resamples, runs.shape[2]))
    central = _crossing(runs.mean(2))
    again = np.stack([_crossing(runs[:, :, draw].mean(2)) for draw in draws])
    dims = ("task", "width")
    return xr.Dataset(
        {"onset": (dims, central), "onset_error": (dims, central * np.log(again).std(0))},
        {"task": ratio.task, "width": ratio.width},
    )


def _crossing(ratios: np.ndarray) -> np.ndarray:
    """Times of the first crossing, between two points by a power; infinite where there is none."""
    first = np.maximum(np.argmax(ratios > ONSET, axis=-1), 1)
    below, above = (np.take_along_axis(ratios, (first - shift)[..., None], -1)[..., 0] for shift in (1, 0))
    share = np.log(ONSET / below) / np.log(above / below)
    logarithms = np.log(TIMES)
    times = np.exp(logarithms[first - 1] + share * (logarithms[first] - logarithms[first - 1]))
    return np.where((ratios > ONSET).any(-1), times, np.inf)


def _claims(
    panel: "Axes", colour: str, source: float, ratio: xr.DataArray, onsets: xr.Dataset, scale: Scale
) -> list[Claim]:
    widths, seeds = ratio.width.values.astype(float), ratio.sizes["seed"]
    one = onsets.sel(task=source)
    kept = (one.onset < GRID_ENDS[scale]).values
    one = one.isel(width=kept)
    law = power_law(one.onset, "width", errors=one.onset_error)
    rise, rise_error = -float(law.exponent), float(law.exponent_error)
    label = f"β = {source:g}: $N^{{{rise:.2f} \\pm {rise_error:.2f}}}$"
    panel.errorbar(one.width, one.onset, one.onset_error, fmt="o", markersize=4, color=colour, label=label)
    panel.plot(widths, float(law.prefactor) * widths**rise, color=colour, linewidth=0.9)
    at = EXCESS_AT[scale]
    excess = ratio.sel(task=source).sel(time=at, method="nearest") - 1
    mean, error = excess.mean("seed"), excess.std("seed", ddof=1) / np.sqrt(seeds)
    # Wide networks whose excess is within its error say nothing of how it falls.
    seen = (mean > 3 * error).values
    fit = power_law(mean[seen], "width", errors=error[seen])
    return [
        Claim(
            f"β = {source:g}: excess at t = {at:g} over the infinite width, exponent in the width",
            float(fit.exponent),
            1.0,
            0.15 + 3 * float(fit.exponent_error),
            f"of order 1/N; 3 standard errors of {float(fit.exponent_error):.3f} from {seeds} seeds, and 0.15 for "
            "higher orders where the excess is not small",
        ),
        Claim(
            f"β = {source:g}: onset of the bottleneck, exponent in the width",
            rise,
            1.5,
            0.5,
            f"faster than the width, slower than its square; error {rise_error:.3f}. Random features have 2 for "
            "β < 1 and 1 / (β - 1/2) for β > 1 while the excess is small; here it is half of the loss",
        ),
    ]


def _fallen(curves: xr.DataArray, infinite: xr.DataArray, width: int) -> list[Claim]:
    """The exponent before t = 1000 of a width at which it is below that of the infinite width, on the same grid."""
    window = (300.0, 1000.0)
    claims = []
    for source in SOURCES:
        fit = power_law(curves.sel(task=source, width=width), "time", window=window, resamples=200)
        own, error = float(fit.exponent), float(fit.exponent_error)
        other = float(power_law(infinite.sel(task=source), "time", window=window, resamples=0).exponent)
        claims.append(
            Claim(
                f"β = {source:g}, width {width}: the exponent over t = 300 ... 1000 has fallen off, by over 2 errors",
                float(other - own > 2 * error),
                1.0,
                0.0,
                f"it is {own:.3f} with an error of {error:.3f}; that of the infinite width {other:.3f}",
            )
        )
    return claims
