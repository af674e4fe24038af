"""Eq. 16: where the losses end with weight decay; printed twice too large, and good only for tiny decay."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale
from solvable.papers.linear_grokking._shared import DESCENT, FLOW, resolvent_square, sizes
from solvable.plotting import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ASPECT_RATIOS = (0.5, 0.9, 1.5)
# Weight decays at which the limits are claimed, beside those of the curves.
CLAIMED_DECAYS = (1e-7, 1e-5, 1e-2)
SIMULATED_DECAY = 1e-2


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The losses after infinite time over weight decay, and a simulation that comes close to it."""
    dimension, seeds = sizes(scale)
    training = DESCENT.replace(weight_decay=SIMULATED_DECAY)
    runs = LinearEstimator(aspect_ratio=0.9).simulate([10**6], training, dimension=dimension, seeds=seeds, key=5)
    return {
        "limits": _limits(np.geomspace(1e-6, 1.0, 50)),
        "claimed-limits": _limits(np.array(CLAIMED_DECAYS)),
        "simulation": runs,
    }


def _limits(decays: np.ndarray) -> xr.Dataset:
    def limit(ratio: float, decay: float) -> xr.Dataset:
        return LinearEstimator(aspect_ratio=ratio).limit(FLOW.replace(weight_decay=decay))

    rows = [
        xr.concat([limit(ratio, decay) for decay in decays], "weight_decay", combine_attrs="drop_conflicts")
        for ratio in ASPECT_RATIOS
    ]
    found = xr.concat(rows, "aspect_ratio", combine_attrs="drop_conflicts")
    return found.assign_coords(aspect_ratio=list(ASPECT_RATIOS), weight_decay=decays)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """The limits against closed forms and against simulation, and as the decay vanishes."""
    limits = data["claimed-limits"]
    return [
        *_limit_claims(limits, 0.9, 1e-5, printed=(1e-10 / (4 * 0.1), 1e-10 / (4 * 0.1**3))),
        *_limit_claims(limits, 0.9, 1e-2, printed=(1e-4 / (4 * 0.1), 1e-4 / (4 * 0.1**3))),
        *_limit_claims(limits, 1.5, 1e-2, printed=("same as λ < 1", "same as λ < 1")),
        _simulated(data["simulation"], limits.test_loss),
        _small_decay(limits.test_loss),
    ]


def _limit_claims(
    limits: xr.Dataset, ratio: float, decay: float, printed: tuple[float | str, float | str]
) -> list[Claim]:
    """Against the closed form: E[nu g^2/(nu+g)^2] = g E[g/(nu+g)] - g E[(g/(nu+g))^2]."""
    shift = decay / 2
    square = resolvent_square(ratio, shift)
    b = 1 - ratio + shift
    first = (np.sqrt(b**2 + 4 * ratio * shift) - b) / (2 * ratio)
    found = limits.sel(aspect_ratio=ratio, weight_decay=decay)
    reason = "closed form of the Stieltjes transform, less the digits its differences lose"
    return [
        Claim(f"λ = {ratio:g}, γ = {decay:g}: training loss ends at", float(found.train_loss),
              shift * (first - square) / 2, 1e-5, reason, relative=True, printed=printed[0]),
        Claim(f"λ = {ratio:g}, γ = {decay:g}: test loss ends at", float(found.test_loss),
              square / 2, 1e-5, reason, relative=True, printed=printed[1]),
    ]  # fmt: skip


def _simulated(simulation: xr.Dataset, limits: xr.DataArray) -> Claim:
    runs = simulation.test_loss.isel(time=0)
    error = float(runs.std("seed", ddof=1)) / np.sqrt(runs.sizes["seed"])
    return Claim(
        "λ = 0.9, γ = 0.01: simulated test loss at t = 1e6",
        float(runs.mean()),
        float(limits.sel(aspect_ratio=0.9, weight_decay=SIMULATED_DECAY)),
        3 * error,
        "three standard errors over seeds",
        printed=1e-4 / (4 * 0.1**3),
    )


def _small_decay(limits: xr.DataArray) -> Claim:
    return Claim(
        "test limit x 8 (1-λ)³ / γ² as γ -> 0",
        float(limits.sel(aspect_ratio=0.9, weight_decay=1e-7)) * 8 * 0.1**3 / 1e-14,
        1.0,
        1e-3,
        "next order 3γ E[ν⁻³] / 2 E[ν⁻²] = 3e-4 at γ = 1e-7",
        printed=2.0,
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The test loss after infinite time over weight decay, exact and as printed."""
    figure, (panel,) = new_figure(width=6.2)
    limits = data["limits"].test_loss
    decays = limits.weight_decay
    for colour, ratio in zip(COLOURS, ASPECT_RATIOS, strict=False):
        panel.plot(decays, limits.sel(aspect_ratio=ratio), color=colour, label=f"λ = {ratio:g}, exact")
        if ratio < 1:
            panel.plot(decays, decays**2 / (4 * (1 - ratio) ** 3), color=colour, linestyle=":", label="printed")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(1e-13, 3)
    panel.set_xlabel("weight decay, γ")
    panel.set_ylabel("test loss after infinite time")
    panel.legend()
    return figure
