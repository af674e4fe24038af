"""Fig. 1.3: benign overfitting; the tail of eq. 1.36 that makes it so; signal first, noise later."""

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.layerwise._features import (
    GRID,
    HEAD,
    MODES,
    PRINTED_TAIL,
    SAMPLES,
    TAIL,
    agreement,
    draw_fit,
    draw_phases,
    head_and_tail,
)
from solvable.plotting import new_figure
from solvable.timegrid import log_times

TARGET_MODE = 1


def reproduce(scale: Scale) -> Reproduction:
    seeds = 40 if scale == "quick" else 400
    model, printed = head_and_tail(TAIL, TARGET_MODE), head_and_tail(PRINTED_TAIL, TARGET_MODE)
    times = log_times(0.05, 2000, 40)
    theory, theory_printed = model.predict(times, modes=2 * HEAD), printed.predict(times, modes=2 * HEAD)
    gaussian = model.simulate(times, seeds=seeds, key=3, modes=2 * HEAD)
    gaussian_printed = printed.simulate([1.0], seeds=seeds, key=3, modes=2 * HEAD)
    sine = model.simulate([1.0], seeds=seeds, key=3, features="sine")
    phases, phases_printed = model.phases(), printed.phases()

    figure, grid = new_figure(2, rows=2)
    axes = grid.ravel()
    draw_fit(axes[:3], sine.isel(seed=0), np.sin(2 * np.pi * TARGET_MODE * GRID))
    draw_phases(axes[3], theory, phases)

    def head(dataset: xr.Dataset) -> xr.DataArray:
        return dataset.learnability.sel(mode=TARGET_MODE)

    tail_rate = TAIL * (MODES - HEAD) / SAMPLES
    median = float(2 * sine.limit_test_loss.median())
    claims = [
        agreement("learnability of the head, tail 1e-3", float(head(theory)), head(gaussian)),
        agreement(
            "learnability of the head, tail n/(p-d) as printed",
            float(head(theory_printed)),
            head(gaussian_printed),
            1.0,
        ),
        agreement(
            "test loss after training, Gaussian features", float(theory.limit_test_loss), gaussian.limit_test_loss
        ),
        agreement(
            f"test loss at t = {times[20]:.3g}, between signal and noise",
            float(theory.test_loss[20]),
            gaussian.test_loss.isel(time=20),
        ),
        Claim(
            "share of the target's variance in error, sine features (median)",
            median / 0.5,
            0.0,
            0.05,
            "benign: the interpolating function misses less than a twentieth of the target",
        ),
        Claim(
            "time by which half of the noise is fitted",
            float(phases.noise_time),
            np.log(2) / tail_rate,
            0.1,
            "rate sum(tail)/n of eq. 1.36's tail as a ridge; fluctuations of its kernel are of order sqrt(n/p)/2",
            relative=True,
            printed=f"(p-d)/n = {1 / PRINTED_TAIL:.3g}, or 1/ρ = {1 / TAIL:.3g} for this tail",
        ),
        Claim(
            "noise time over signal time with the printed tail",
            float(phases_printed.noise_time / phases_printed.signal_time),
            2.0,
            0.5,
            "signal and noise are fitted together: no two phases",
            printed="much above 1",
        ),
    ]
    datasets = {
        "theory": theory,
        "theory-printed-tail": theory_printed,
        "gaussian": gaussian,
        "gaussian-printed-tail": gaussian_printed,
        "sine": sine.drop_vars("coefficient"),
        "phases": phases,
        "phases-printed-tail": phases_printed,
    }
    return Reproduction(datasets, figure, claims)
