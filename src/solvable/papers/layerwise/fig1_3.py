"""Fig. 1.3: benign overfitting; the tail of eq. 1.36 that makes it so; signal first, noise later."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale
from solvable.papers.layerwise._features import (
    HEAD,
    MODES,
    PRINTED_TAIL,
    SAMPLES,
    TAIL,
    agreement,
    draw_overfitting,
    head_and_tail,
)
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TARGET_MODE = 1
# Index of a time between the fit of the signal and that of the noise.
BETWEEN = 20


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation with a benign tail and with the printed one."""
    seeds = 40 if scale == "quick" else 400
    model, printed = head_and_tail(TAIL, TARGET_MODE), head_and_tail(PRINTED_TAIL, TARGET_MODE)
    times = log_times(0.05, 2000, 40)
    sine = model.simulate([1.0], seeds=seeds, key=3, features="sine")
    return {
        "theory": model.predict(times, modes=2 * HEAD),
        "theory-printed-tail": printed.predict(times, modes=2 * HEAD),
        "gaussian": model.simulate(times, seeds=seeds, key=3, modes=2 * HEAD),
        "gaussian-printed-tail": printed.simulate([1.0], seeds=seeds, key=3, modes=2 * HEAD),
        "sine": sine.drop_vars("coefficient"),
        "phases": model.phases(),
        "phases-printed-tail": printed.phases(),
    }


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Learnability and test loss against simulation, and the times of the two phases."""
    theory, gaussian = data["theory"], data["gaussian"]
    name = "test loss after training, Gaussian features"
    made = [
        _head_claim("learnability of the head, tail 1e-3", theory, gaussian),
        _head_claim(
            "learnability of the head, tail n/(p-d) as printed",
            data["theory-printed-tail"],
            data["gaussian-printed-tail"],
            1.0,
        ),
        agreement(name, float(theory.limit_test_loss), gaussian.limit_test_loss),
        agreement(
            f"test loss at t = {float(theory.time[BETWEEN]):.3g}, between signal and noise",
            float(theory.test_loss[BETWEEN]),
            gaussian.test_loss.isel(time=BETWEEN),
        ),
        Claim(
            "share of the target's variance in error, sine features (median)",
            float(2 * data["sine"].limit_test_loss.median()) / 0.5,
            0.0,
            0.05,
            "benign: the interpolating function misses less than a twentieth of the target",
        ),
    ]
    return made + _phase_claims(data["phases"], data["phases-printed-tail"])


def _head_claim(name: str, theory: xr.Dataset, runs: xr.Dataset, printed: float | None = None) -> Claim:
    expected, found = (part.learnability.sel(mode=TARGET_MODE) for part in (theory, runs))
    return agreement(name, float(expected), found, printed)


def _phase_claims(phases: xr.Dataset, printed: xr.Dataset) -> list[Claim]:
    return [
        Claim(
            "time by which half of the noise is fitted",
            float(phases.noise_time),
            np.log(2) * SAMPLES / (TAIL * (MODES - HEAD)),
            0.1,
            "rate sum(tail)/n of eq. 1.36's tail as a ridge; fluctuations of its kernel are of order sqrt(n/p)/2",
            relative=True,
            printed=f"(p-d)/n = {1 / PRINTED_TAIL:.3g}, or 1/ρ = {1 / TAIL:.3g} for this tail",
        ),
        Claim(
            "noise time over signal time with the printed tail",
            float(printed.noise_time / printed.signal_time),
            2.0,
            0.5,
            "signal and noise are fitted together: no two phases",
            printed="much above 1",
        ),
    ]


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The learned function, its parts in the head and in the tail, and the two phases of training."""
    return draw_overfitting(data, TARGET_MODE)
