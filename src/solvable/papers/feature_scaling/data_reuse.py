"""A prediction beyond the paper: how much infinitely many epochs over P samples are worth.

They end at the loss ``limit()`` of P samples, which new samples reach after E(inf) epochs. Without noise of batches
``E(inf) ~ (B / eta) P^(alpha - 1)`` for lazy networks, and ``P^(alpha (1 + beta) / 2 - 1)`` for networks whose features
learn a hard task: they get to the same end sooner. The noise of batches stops feature learning, so that the second law
holds only while ``eta / B`` is small.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.models.feature_scaling.data_reuse import crossing
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._shared import CAPACITY, draw_power, fall, finish, small_steps
from solvable.plotting import COLOURS, new_figure
from solvable.timegrid import log_times

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SOURCES = (0.2, 0.4, 0.7)
SAMPLES = {"quick": 2 ** np.arange(5, 14), "full": 2 ** np.arange(5, 17)}
# The loss falls as slowly as t^-beta, so that late times are needed.
LATEST = {"quick": 1e7, "full": 3e8}
# Strength of the noise, learning rate over batch size; the first is that of a learning rate of 0.1 on batches of 8.
NOISES = (1 / 80, 1 / 400, 1 / 1600)
NOISY_SOURCE, NOISY_SAMPLES = 0.4, 2 ** np.arange(5, 10)
REGIMES = {"lazy": 0.0, "rich": 1.0}
# How far local exponents at the largest P are from their limits.
APPROACH = {"quick": 0.015, "full": 0.01}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """E(inf) in units of B / eta over the samples, without noise and with it."""
    data = {}
    for source in SOURCES:
        for regime, richness in REGIMES.items():
            model = FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf)
            curve = small_steps(model, log_times(1, LATEST[scale], 400), 0.0)
            data[_name(source, regime)] = _worth(model, curve, SAMPLES[scale])
    model = FeatureScaling(CAPACITY, NOISY_SOURCE, modes=math.inf)
    for noise in NOISES:
        curve = small_steps(model, log_times(1, 1e4, 200), noise, per_decade=8 if scale == "quick" else 16)
        data[f"noise {noise:g}"] = _worth(model, curve, NOISY_SAMPLES)
    return data


def _name(source: float, regime: str) -> str:
    return f"β = {source:g}, {regime}"


def _worth(model: FeatureScaling, curve: xr.Dataset, samples: np.ndarray) -> xr.Dataset:
    """When new samples reach the end of each training set, in epochs of it, times eta / B."""
    ends = [float(model.replace(samples=int(count)).limit().test_loss) for count in samples]
    reached = [crossing(curve.time.values, curve.test_loss.values, end) for end in ends]
    about = {"long_name": "worth of infinitely many epochs, times η / B", "units": "1"}
    return xr.Dataset({"worth": ("samples", np.array(reached) / samples, about)}, {"samples": samples})


def expected(source: float, regime: str) -> float:
    """The exponent with which E(inf) grows in the samples."""
    return CAPACITY - 1 if regime == "lazy" else CAPACITY * (1 + source) / 2 - 1


def growth(found: xr.Dataset, first: int = 0, last: int = -1) -> float:
    """The exponent with which E(inf) grows between two numbers of samples."""
    places = [first, last]
    return -fall(found.samples.values[places], found.worth.values[places])


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Exponents at the largest P, and over the window of 32 to 512, and what noise does to them."""
    scale = scale_of(data)
    found = []
    for source in SOURCES:
        for regime in REGIMES:
            worth, law = data[_name(source, regime)], expected(source, regime)
            last = int(worth.samples[-1])
            found.append(
                Claim(
                    f"{_name(source, regime)}: growth exponent of E(∞) at P = {last // 2} ... {last}",
                    growth(worth, -2),
                    law,
                    APPROACH[scale],
                    "approach at these P",
                )
            )
    window = int(np.flatnonzero(data[_name(0.4, "rich")].samples.values == 512)[0])
    for regime, allowed in (("lazy", 0.04), ("rich", 0.04)):
        found.append(
            Claim(
                f"{_name(0.4, regime)}: growth exponent of E(∞) over P = 32 ... 512",
                growth(data[_name(0.4, regime)], 0, window),
                expected(0.4, regime),
                allowed,
                "approach at these P: local exponents are within 0.015 only beyond P = 4096",
            )
        )
    noisy = [growth(data[f"noise {noise:g}"]) for noise in NOISES]
    found += [
        Claim.ordered(
            "rich: growth exponent of E(∞) over P = 32 ... 512 without noise and with η/B = 1/1600, 1/400, 1/80",
            [growth(data[_name(NOISY_SOURCE, "rich")], 0, window), *noisy[::-1]],
            "noise ends feature learning, the sooner the stronger it is",
        ),
        Claim.at_least(
            "rich, η/B = 1/80: growth exponent of E(∞) at P = 256 ... 512",
            growth(data[f"noise {NOISES[0]:g}"], -2),
            0.15,
            "it grows towards the lazy 0.5, and the law of 0.05 does not hold with this noise",
        ),
    ]
    return found


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """E(inf) over P without noise, lazy and rich, and of one rich task with noise."""
    figure, (free, noisy) = new_figure(2)
    for colour, source in zip(COLOURS, SOURCES, strict=False):
        for regime, marker in (("lazy", "s"), ("rich", "o")):
            worth = data[_name(source, regime)].worth
            free.plot(worth.samples, worth, marker, color=colour, markersize=4, label=_name(source, regime))
            law = expected(source, regime)
            draw_power(free, worth, -law, "", anchor=1.0, shift=1.0, color=colour)
    finish(free, "without noise; dotted: laws through the last point", "samples, P", "E(∞) η / B")
    for colour, noise in zip(COLOURS, (0.0, *NOISES[::-1]), strict=False):
        worth = (
            data[f"noise {noise:g}"].worth
            if noise
            else data[_name(NOISY_SOURCE, "rich")].worth.sel(samples=NOISY_SAMPLES)
        )
        label = f"η/B = 1/{1 / noise:g}" if noise else "no noise"
        noisy.plot(worth.samples, worth / float(worth[0]), "o-", color=colour, markersize=4, label=label)
    finish(noisy, f"rich, β = {NOISY_SOURCE:g}", "samples, P", "E(∞), relative to P = 32")
    noisy.set_yscale("linear")
    noisy.set_xticks(NOISY_SAMPLES, [str(count) for count in NOISY_SAMPLES])
    noisy.minorticks_off()
    return figure
