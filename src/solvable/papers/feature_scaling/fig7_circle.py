"""Fig. 7: spectra of networks on the circle, measured (a), and easy tasks that features do not speed up (b)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.special import zeta

from solvable.fits import power_law
from solvable.networks.tasks.circle import fourier_decay
from solvable.networks.tasks.circle_kernel import lazy_loss, wave_spectrum
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._circle import WINDOW, exponent, kernel, spectrum, trained
from solvable.papers.feature_scaling._shared import fall, finish, shades
from solvable.plotting import draw_curve, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POWERS = (0.75, 1.0, 1.25, 1.5, 1.75)
MEASURED: dict[str, dict[str, int]] = {
    "quick": {"width": 256, "points": 1024, "seeds": 4},
    "full": {"width": 2048, "points": 4096, "seeds": 8},
}
# Aliases of the grid are a fraction 2 ζ(2q) (k / points)^(2 q) of an eigenvalue: 5% at the last one for q = 0.75.
FITTED = {"quick": (10, 60), "full": (20, 200)}
SOURCES = {"quick": (1.2,), "full": (1.0, 1.2, 1.5, 1.8)}
RICH: dict[str, dict[str, Any]] = {
    "quick": {"width": 64, "points": 128, "until": 320.0, "seeds": 1},
    "full": {"width": 512, "points": 512, "until": WINDOW[1], "seeds": 3},
}
# Where exponents are fitted. A network of width 64 is still learning its features at t = 30.
WINDOWS = {"quick": (60.0, 320.0), "full": (100.0, WINDOW[1])}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Spectra of random networks, and losses and exponents of trained ones, with those of the infinite width."""
    curves = _easy_tasks(scale)
    return {"spectra": _spectra(scale), "curves": curves, "exponents": _exponents(curves, WINDOWS[scale])}


def _spectra(scale: Scale) -> xr.Dataset:
    size, waves = MEASURED[scale], np.arange(1, FITTED[scale][1] + 1)
    points = size["points"]
    measured = [
        [wave_spectrum(kernel(size["width"], points, power, seed), waves.size + 1)[1:] for seed in range(size["seeds"])]
        for power in POWERS
    ]
    infinite = [spectrum(power, points)[waves] for power in POWERS]
    about = {"long_name": "eigenvalue of the tangent kernel", "units": "1", "symbol": "λ_k"}
    return xr.Dataset(
        {
            "eigenvalue": (("power", "seed", "k"), np.array(measured), about),
            "infinite": (("power", "k"), infinite, {**about, "long_name": "eigenvalue of the infinite width"}),
        },
        {"power": list(POWERS), "k": waves},
    )


def _easy_tasks(scale: Scale) -> xr.Dataset:
    """Losses of rich networks on easy tasks, and of the infinitely wide lazy network."""
    sources = SOURCES[scale]
    decays = [float(fourier_decay(source)) for source in sources]
    rich = trained(decays, [1.0] * len(sources), **RICH[scale])
    infinite = [lazy_loss(rich.time, spectrum(1.0, 2**13), decay) for decay in decays]
    about = {**rich.attrs, "long_name": "loss of the infinite width, half the mean square"}
    return xr.Dataset({"loss": rich, "infinite": (("task", "time"), infinite, about)}).assign_coords(
        source=("task", list(sources))
    )


def _exponents(curves: xr.Dataset, window: tuple[float, float]) -> xr.Dataset:
    rich = np.transpose([exponent(loss, window) for loss in curves.loss])
    inside = curves.infinite.sel(time=slice(*window))
    found = dict(zip(("rich", "rich_error", "rich_window"), rich, strict=True))
    found["infinite"] = np.array([fall(inside.time.values, loss.values) for loss in inside])
    return xr.Dataset({name: ("source", values) for name, values in found.items()}, {"source": curves.source.values})


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Capacities and sources of measured spectra, and the exponents of easy tasks."""
    made: list[Claim] = []
    first, last = FITTED[scale_of(data)]
    for power in POWERS:
        one = data["spectra"].sel(power=power)
        made += _spectrum_claims(power, one, first, last)
        if power == 1:
            made += _source_claims(one.eigenvalue.mean("seed").sel(k=slice(first, last)))
    fits = data["exponents"]
    return made + [_easy_claim(fits.isel(source=place), scale_of(data)) for place in range(fits.sizes["source"])]


def _spectrum_claims(power: float, one: xr.Dataset, first: int, last: int) -> list[Claim]:
    seeds = one.sizes["seed"]
    fit = power_law(one.eigenvalue, "k", window=(first, last), resamples=200)
    within = one.sel(k=slice(first, last))
    # All waves of one network fluctuate together: seeds are compared by their means over the fitted waves.
    ratios = (within.eigenvalue / within.infinite).mean("k").values
    return [
        Claim(
            f"(a) q = {power:g}: measured capacity over k = {first} ... {last}",
            float(fit.exponent),
            2 * power,
            0.12,
            f"corrections in 1/k: the infinite width has {fall(within.k.values, within.infinite.values):.3f} there; "
            f"error over seeds {float(fit.exponent_error):.3f}",
        ),
        Claim(
            f"(a) q = {power:g}: measured over analytic eigenvalues, standard errors from 1",
            abs(ratios.mean() - 1) / (ratios.std(ddof=1) / np.sqrt(seeds)),
            0.0,
            10.2 if seeds == 4 else 5.4,
            "beyond this with a chance of 0.2% (Student's t of 4 seeds) or 0.1% (of 8)",
        ),
    ]


def _source_claims(eigenvalues: xr.DataArray) -> list[Claim]:
    """The source from a measured spectrum: what a target has beyond wave k falls as ``λ_k^β``."""
    waves = eigenvalues.k.values
    capacity = fall(waves, eigenvalues.values)
    return [
        Claim(
            f"(a) ReLU: source fitted from the measured spectrum, target of β = {source:g}",
            fall(waves, zeta(2 * fourier_decay(source), waves)) / capacity,
            source,
            0.05,
            f"corrections in 1/k at k = {waves[0]}",
        )
        for source in (0.5, 0.75, 1.25)
    ]


def _easy_claim(fit: xr.Dataset, scale: Scale) -> Claim:
    (first, last), seeds = WINDOWS[scale], RICH[scale]["seeds"]
    own, lazy = float(fit.rich), float(fit.infinite)
    return Claim(
        f"(b) β = {float(fit.source):g}: rich exponent over t = {first:g} ... {last:.4g} less the lazy one",
        own - lazy,
        0.0,
        0.15 if scale == "quick" else 0.1,
        f"{own:.3f} and (infinite width) {lazy:.3f}; "
        + (f"error over {seeds} seeds {float(fit.rich_error):.3f}, " if seeds > 1 else "")
        + f"change with the window {float(fit.rich_window):.3f}",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Measured spectra, and losses of rich and lazy networks on easy tasks."""
    figure, (left, right) = new_figure(2, width=5.6)
    _draw_spectra(left, data["spectra"], MEASURED[scale_of(data)]["width"])
    curves, fits = data["curves"], data["exponents"]
    for colour, task in zip(shades(curves.sizes["task"]), range(curves.sizes["task"]), strict=True):
        label = f"β = {float(curves.source[task]):g}: {float(fits.rich[task]):.3f}"
        draw_curve(right, curves.loss[task].mean("seed"), colour, label)
        right.plot(curves.time, curves.infinite[task], "--", color=colour, linewidth=0.9)
    right.plot([], [], "--", color="grey", label="lazy, infinitely wide")
    title = "(b) ReLU, easy tasks: rich and lazy exponents agree"
    legend = {"loc": "lower left", "title": "rich: fitted exponents", "title_fontsize": "small"}
    finish(right, title, "time, sum of learning rates, t", "loss, half the mean square", **legend)
    return figure


def _draw_spectra(panel: "Axes", spectra: xr.Dataset, width: int) -> None:
    measured = spectra.eigenvalue
    mean, error = measured.mean("seed"), measured.std("seed", ddof=1) / np.sqrt(measured.sizes["seed"])
    for power, colour in zip(POWERS, shades(len(POWERS)), strict=True):
        panel.loglog(spectra.k, spectra.infinite.sel(power=power), color=colour, linewidth=1.0)
        bars = mean.sel(power=power), error.sel(power=power)
        panel.errorbar(spectra.k, *bars, fmt=".", markersize=3, color=colour, label=f"q = {power:g}")
    panel.set(xlabel="wave number, k", ylabel="eigenvalue, $\\lambda_k$")
    panel.set_title(f"(a) width {width} (points), infinite (lines)", fontsize="medium")
    panel.legend(fontsize="small")
