"""Eq. 16: where the losses end with weight decay; printed twice too large, and good only for tiny decay."""

import numpy as np
import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import DESCENT, FLOW, resolvent_square, sizes
from solvable.plotting import COLOURS, new_figure


def reproduce(scale: Scale) -> Reproduction:
    decays = np.geomspace(1e-6, 1.0, 50)
    figure, (panel,) = new_figure(width=6.2)
    limits = {}
    for colour, ratio in zip(COLOURS, (0.5, 0.9, 1.5), strict=False):
        model = LinearEstimator(aspect_ratio=ratio)
        values = [float(model.limit(FLOW.replace(weight_decay=decay)).test_loss) for decay in decays]
        limits[f"{ratio:g}"] = values
        panel.plot(decays, values, color=colour, label=f"λ = {ratio:g}, exact")
        if ratio < 1:
            panel.plot(decays, decays**2 / (4 * (1 - ratio) ** 3), color=colour, linestyle=":", label="printed")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_ylim(1e-13, 3)
    panel.set_xlabel("weight decay, γ")
    panel.set_ylabel("test loss after infinite time")
    panel.legend()
    data = xr.Dataset(
        {f"test_loss_{name}": ("weight_decay", values) for name, values in limits.items()},
        coords={"weight_decay": decays},
    )
    claims = [
        *_limit_claims(0.9, 1e-5, printed=(1e-10 / (4 * 0.1), 1e-10 / (4 * 0.1**3))),
        *_limit_claims(0.9, 1e-2, printed=(1e-4 / (4 * 0.1), 1e-4 / (4 * 0.1**3))),
        *_limit_claims(1.5, 1e-2, printed=("same as λ < 1", "same as λ < 1")),
        _simulated(scale),
        _small_decay(),
    ]
    return Reproduction({"limits": data}, figure, claims)


def _limit_claims(ratio: float, decay: float, printed: tuple[float | str, float | str]) -> list[Claim]:
    """Against the closed form: E[nu g^2/(nu+g)^2] = g E[g/(nu+g)] - g E[(g/(nu+g))^2]."""
    shift = decay / 2
    square = resolvent_square(ratio, shift)
    b = 1 - ratio + shift
    first = (np.sqrt(b**2 + 4 * ratio * shift) - b) / (2 * ratio)
    limits = LinearEstimator(aspect_ratio=ratio).limit(FLOW.replace(weight_decay=decay))
    reason = "closed form of the Stieltjes transform, less the digits its differences lose"
    return [
        Claim(f"λ = {ratio:g}, γ = {decay:g}: training loss ends at", float(limits.train_loss),
              shift * (first - square) / 2, 1e-5, reason, relative=True, printed=printed[0]),
        Claim(f"λ = {ratio:g}, γ = {decay:g}: test loss ends at", float(limits.test_loss),
              square / 2, 1e-5, reason, relative=True, printed=printed[1]),
    ]  # fmt: skip


def _simulated(scale: Scale) -> Claim:
    model, training = LinearEstimator(aspect_ratio=0.9), DESCENT.replace(weight_decay=1e-2)
    dimension, seeds = sizes(scale)
    run = model.simulate([10**6], training, dimension=dimension, seeds=seeds, key=5).test_loss.isel(time=0)
    error = float(run.std("seed", ddof=1)) / np.sqrt(seeds)
    return Claim(
        "λ = 0.9, γ = 0.01: simulated test loss at t = 1e6",
        float(run.mean()),
        float(model.limit(training).test_loss),
        3 * error,
        "three standard errors over seeds",
        printed=1e-4 / (4 * 0.1**3),
    )


def _small_decay() -> Claim:
    limits = LinearEstimator(aspect_ratio=0.9).limit(FLOW.replace(weight_decay=1e-7))
    return Claim(
        "test limit x 8 (1-λ)³ / γ² as γ -> 0", float(limits.test_loss) * 8 * 0.1**3 / 1e-14, 1.0, 1e-3,
        "next order 3γ E[ν⁻³] / 2 E[ν⁻²] = 3e-4 at γ = 1e-7", printed=2.0,
    )  # fmt: skip
