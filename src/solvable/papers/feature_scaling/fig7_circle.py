"""Fig. 7: spectra of networks on the circle, measured (a), and easy tasks that features do not speed up (b)."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.fits import power_law
from solvable.networks.tasks.circle import fourier_decay
from solvable.networks.tasks.circle_kernel import lazy_loss, wave_spectrum
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._circle import WINDOW, exponent, kernel, spectrum, trained
from solvable.papers.feature_scaling._shared import fall, shades
from solvable.plotting import draw_curve, log_losses, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POWERS = (0.75, 1.0, 1.25, 1.5, 1.75)
MEASURED: dict[str, dict[str, int]] = {
    "quick": {"width": 256, "points": 1024, "seeds": 4},
    "full": {"width": 2048, "points": 4096, "seeds": 8},
}
# Aliases of the grid are a share 2 ζ(2q) (k / points)^(2 q) of an eigenvalue: 5% at the last one for q = 0.75.
FITTED = {"quick": (10, 60), "full": (20, 200)}
SOURCES = {"quick": (1.2,), "full": (1.0, 1.2, 1.5, 1.8)}
RICH: dict[str, dict[str, Any]] = {
    "quick": {"width": 64, "points": 128, "until": 320.0, "seeds": 1},
    "full": {"width": 512, "points": 512, "until": WINDOW[1], "seeds": 3},
}
# A network of width 64 is still learning its features at t = 30.
FIRST = {"quick": 60.0, "full": 100.0}


def reproduce(scale: Scale) -> Reproduction:
    figure, (left, right) = new_figure(2, width=5.6)
    spectra, claims = _spectra(left, scale)
    curves, fits, more = _easy(right, scale)
    return Reproduction({"spectra": spectra, "curves": curves, "exponents": fits}, figure, claims + more)


def _spectra(panel: "Axes", scale: Scale) -> tuple[xr.Dataset, list[Claim]]:
    size, (first, last) = MEASURED[scale], FITTED[scale]
    waves = np.arange(1, last + 1)
    claims: list[Claim] = []
    rows = []
    for power, colour in zip(POWERS, shades(len(POWERS)), strict=True):
        runs = [
            wave_spectrum(kernel(size["width"], size["points"], power, seed), last + 1)[1:]
            for seed in range(size["seeds"])
        ]
        rows.append(np.stack(runs))
        mean, error = rows[-1].mean(0), rows[-1].std(0, ddof=1) / np.sqrt(size["seeds"])
        theory = spectrum(power, size["points"])[waves]
        panel.loglog(waves, theory, color=colour, linewidth=1.0)
        panel.errorbar(waves, mean, error, fmt=".", markersize=3, color=colour, label=f"q = {power:g}")
        measured = xr.DataArray(rows[-1], dims=("seed", "k"), coords={"k": waves})
        fit = power_law(measured, "k", window=(first, last), resamples=200)
        claims.append(
            Claim(
                f"(a) q = {power:g}: measured capacity over k = {first} ... {last}",
                float(fit.exponent),
                2 * power,
                0.12,
                "corrections in 1/k: the infinite width has "
                f"{fall(waves[first - 1 :], theory[first - 1 :]):.3f} there; "
                f"error over seeds {float(fit.exponent_error):.3f}",
            )
        )
        # All waves of one network fluctuate together: seeds are compared by their means over the fitted waves.
        shares = (rows[-1] / theory)[:, first - 1 :].mean(1)
        gap = abs(shares.mean() - 1) / (shares.std(ddof=1) / np.sqrt(size["seeds"]))
        claims.append(
            Claim(
                f"(a) q = {power:g}: measured over analytic eigenvalues, standard errors from 1",
                gap,
                0.0,
                10.2 if size["seeds"] == 4 else 5.4,
                "beyond this with a chance of 0.2% (Student's t of 4 seeds) or 0.1% (of 8)",
            )
        )
        if power == 1:
            claims += _sources(measured, first, last)
    panel.set(xlabel="wave number, k", ylabel="eigenvalue, $\\lambda_k$")
    panel.set_title(f"(a) width {size['width']} (points), infinite (lines)", fontsize="medium")
    panel.legend(fontsize="small")
    data = xr.Dataset({"eigenvalue": (("power", "seed", "k"), np.stack(rows))}, {"power": list(POWERS), "k": waves})
    return data, claims


def _sources(measured: xr.DataArray, first: int, last: int) -> list[Claim]:
    """The source from a measured spectrum: what a target has beyond wave k falls as ``λ_k^β``."""
    from scipy.special import zeta

    eigenvalues = measured.mean("seed").sel(k=slice(first, last))
    waves = eigenvalues.k.values
    capacity = fall(waves, eigenvalues.values)
    claims = []
    for source in (0.5, 0.75, 1.25):
        beyond = zeta(2 * fourier_decay(source), waves)
        claims.append(
            Claim(
                f"(a) ReLU: source fitted from the measured spectrum, target of β = {source:g}",
                fall(waves, beyond) / capacity,
                source,
                0.05,
                f"corrections in 1/k at k = {first}",
            )
        )
    return claims


def _easy(panel: "Axes", scale: Scale) -> tuple[xr.Dataset, xr.Dataset, list[Claim]]:
    sources, window = SOURCES[scale], (FIRST[scale], RICH[scale]["until"])
    decays = [float(fourier_decay(source)) for source in sources]
    rich = trained(decays, [1.0] * len(sources), **RICH[scale]).assign_coords(source=("task", list(sources)))
    claims: list[Claim] = []
    rows = []
    for colour, task in zip(shades(len(sources)), range(len(sources)), strict=True):
        source = sources[task]
        infinite = lazy_loss(rich.time, spectrum(1.0, 2**13), decays[task])
        own, error, drift = exponent(rich[task], window)
        inside = (rich.time >= window[0]) & (rich.time <= window[1])
        lazy = fall(rich.time.values[inside], infinite[inside])
        rows.append((own, error, drift, lazy))
        draw_curve(panel, rich[task].mean("seed", keep_attrs=True), colour, f"β = {source:g}: {own:.3f}")
        panel.plot(rich.time, infinite, "--", color=colour, linewidth=0.9)
        claims.append(
            Claim(
                f"(b) β = {source:g}: rich exponent over t = {window[0]:g} ... {window[1]:.4g} less the lazy one",
                own - lazy,
                0.0,
                0.15 if scale == "quick" else 0.1,
                f"{own:.3f} and (infinite width) {lazy:.3f}; "
                + (f"error over {RICH[scale]['seeds']} seeds {error:.3f}, " if RICH[scale]["seeds"] > 1 else "")
                + f"change with the window {drift:.3f}",
            )
        )
    panel.plot([], [], "--", color="grey", label="lazy, infinitely wide")
    panel.set(xscale="log", xlabel="time, sum of learning rates, t", ylabel="loss, half the mean square")
    panel.set_title("(b) ReLU, easy tasks: rich and lazy exponents agree", fontsize="medium")
    log_losses(panel)
    panel.legend(fontsize="small", loc="lower left", title="rich: fitted exponents", title_fontsize="small")
    names = ("rich", "rich_error", "rich_window", "infinite")
    fits = xr.Dataset(
        {name: ("source", list(values)) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    )
    return rich.to_dataset(name="loss"), fits.assign_coords(source=list(sources)), claims
