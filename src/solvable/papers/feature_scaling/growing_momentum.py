"""A prediction beyond the paper: momentum that grows, and when the noise of the batches ends what it gains.

With momentum ``1 - c / (t + c)`` the loss of lazy networks falls as ``t^-min(2 beta, c)`` (heavy ball) or
``t^-min(2 beta, beta + c/2)`` (Nesterov, whose look-ahead damps modes that are learned), in place of ``t^-beta``. The
noise of batches of B samples is as large as the signal at ``t ~ c B / (eta Tr Lambda)`` for the heavy ball, which heats
all modes, and at ``t ~ B^alpha`` for Nesterov's momentum, which heats only those with ``eta lambda t < c``. With
batches that grow as ``t^(1/alpha)`` Nesterov's loss falls as ``D^-(2 alpha beta/(alpha + 1))`` in the number of samples
D, and that of plain SGD as ``D^-beta``.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.models.feature_scaling.data_reuse import crossing
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._shared import CAPACITY, TRACE, draw_power, fall, finish
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD, GradientDescent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATE = 0.5
STEPS = {"quick": 20_000, "full": 100_000}
# Exponents are between means of the loss over all steps of a factor of 1.5 in time, because losses oscillate.
WINDOW, FACTOR = 10.0, 1.5
METHODS = ("heavy ball", "Nesterov")
# Source and c.
CASES = ((0.4, 1.0), (0.4, 3.0), (1.0, 1.0), (1.0, 3.0))
# How far exponents are from their limits at these times: most where two terms of the loss fall almost alike.
APPROACH = {"quick": 0.04, "full": 0.03}
# The task with noise, and its c.
NOISY, FRICTION = 0.8, 3.0
BATCHES = {
    "quick": {"heavy ball": (256, 1024, 4096), "Nesterov": (32, 128, 512)},
    "full": {"heavy ball": (1024, 4096, 16384), "Nesterov": (64, 256, 1024)},
}
# A run ends where the noise would feed itself.
MOST_GAIN = 0.85
RICH = 0.4


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Losses with growing momentum, without noise and with batches that grow; when noise is as large as the signal."""
    every = np.arange(1.0, STEPS[scale] + 1)
    data = {
        _name(method, *case): _smoothed(_run(case[0], every, momentum=growing(case[1]), nesterov=method == "Nesterov"))
        for case in CASES
        for method in METHODS
    }
    ends = {method: [_end(method, size) for size in sizes] for method, sizes in BATCHES[scale].items()}
    data |= {
        f"end of {method}": xr.Dataset(
            {"end": ("batch_size", ends[method], {"long_name": "time at which noise is as large as signal"})},
            {"batch_size": list(sizes)},
        )
        for method, sizes in BATCHES[scale].items()
    }
    steps = whole_steps(log_times(10, STEPS[scale], 300))
    ramp: dict[str, Any] = {"momentum": growing(FRICTION), "nesterov": True}
    data["growing batches"] = _over_samples(_run(NOISY, steps, batch_size=_ramp, **ramp), _ramp)
    data["plain SGD"] = _over_samples(
        _run(NOISY, steps, batch_size=lambda step: 64 + 0 * step), lambda step: 64 + 0 * step
    )
    few = np.arange(1.0, 4001.0)
    data["rich"] = _smoothed(_run(RICH, few, richness=1.0, rate=0.02, momentum=growing(FRICTION), nesterov=True))
    return data


def _name(method: str, source: float, friction: float) -> str:
    return f"{method}, β = {source:g}, c = {friction:g}"


def growing(friction: float) -> Callable[[Any], Any]:
    """Momentum 1 - c / (t + c) as a schedule."""
    return lambda step: step / (step + friction)


def _ramp(step: Any) -> Any:
    """Batches that grow as t^(1/alpha)."""
    return jnp.ceil(64 * (1 + step / 10) ** (1 / CAPACITY)).astype(int)


def _run(
    source: float, times: np.ndarray, *, richness: float = 0.0, rate: float = RATE, batch_size: Any = None, **how: Any
) -> xr.Dataset:
    model = FeatureScaling(CAPACITY, source, richness=richness, modes=np.inf)
    training = GradientDescent(rate, **how) if batch_size is None else SGD(rate, batch_size=batch_size, **how)
    return model.predict(times, training)[["test_loss"]]


def _over_samples(curve: xr.Dataset, batch_size: Callable[[Any], Any]) -> xr.Dataset:
    """The loss over the number of samples that were used."""
    sizes = np.broadcast_to(batch_size(np.arange(int(curve.time[-1]))), (int(curve.time[-1]),))
    used = np.append(0, np.cumsum(sizes))[curve.time.values.astype(int)]
    return xr.Dataset({"test_loss": ("samples", curve.test_loss.values)}, {"samples": used.astype(float)})


def _end(method: str, batch: int) -> float:
    """When the noise is as large as the signal: the loss is twice that without noise."""
    # Modes whose speed eta lambda t / c is s^-alpha add min(1, s) each to the gain of Nesterov, s to the other's.
    of_one = CAPACITY / (CAPACITY - 1)
    size = 2 * batch * MOST_GAIN
    last = (size / of_one) ** CAPACITY if method == "Nesterov" else size / TRACE
    times = whole_steps(log_times(1, FRICTION / RATE * last, 400))
    how: dict[str, Any] = {"momentum": growing(FRICTION), "nesterov": method == "Nesterov"}
    noisy, quiet = (_run(NOISY, times, batch_size=size, **how).test_loss.values for size in (batch, None))
    return crossing(times, quiet / noisy, 0.5)


def _smoothed(curve: xr.Dataset) -> xr.Dataset:
    """The loss of some of the steps, and its mean over all steps of a factor in time that ends there."""
    last = int(curve.time[-1])
    total = np.append(0.0, np.cumsum(curve.test_loss.values))
    times = whole_steps(log_times(1, last, 1200))
    ends = np.union1d(times, last / WINDOW).astype(int)
    begins = (ends / FACTOR).astype(int)
    means = (total[ends] - total[begins]) / (ends - begins)
    return xr.Dataset(
        {"test_loss": ("time", curve.test_loss.values[ends - 1]), "mean_loss": ("time", means)},
        {"time": ends.astype(float)},
    )


def exponent(curve: xr.Dataset) -> float:
    """The exponent with which the mean loss falls over the last decade."""
    last = float(curve.time[-1])
    first, second = (float(curve.mean_loss.sel(time=end)) for end in (last / WINDOW, last))
    return float(np.log(first / second) / np.log(WINDOW))


def expected(method: str, source: float, friction: float) -> float:
    """The exponent that theory gives."""
    return min(2 * source, friction if method == "heavy ball" else source + friction / 2)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Exponents of the loss in time and in samples, and of the end of the gain in the batch size."""
    scale = scale_of(data)
    found = [
        Claim(
            f"{_name(method, *case)}: exponent over the last decade to t = {STEPS[scale]}",
            exponent(data[_name(method, *case)]),
            expected(method, *case),
            APPROACH[scale],
            "approach at these times",
        )
        for case in CASES
        for method in METHODS
    ]
    for method, law in (("heavy ball", 1.0), ("Nesterov", CAPACITY)):
        ends = data[f"end of {method}"]
        sizes = BATCHES[scale][method]
        found.append(
            Claim(
                f"{method}: exponent of the end of the gain in the batch size, B = {sizes[0]} ... {sizes[-1]}",
                -fall(ends.batch_size.values, ends.end.values),
                law,
                0.03,
                "approach at these batches",
            )
        )
    for name, law in (("growing batches", 2 * CAPACITY * NOISY / (CAPACITY + 1)), ("plain SGD", NOISY)):
        curve = data[name].test_loss
        part = curve.isel(samples=slice(curve.sizes["samples"] // 2, None))
        measured = fall(part.samples.values, part.values)
        found.append(Claim(f"{name}: exponent of the loss in the samples", measured, law, 0.01, "approach"))
    rich = exponent(data["rich"]) / (4 * RICH / (1 + RICH))
    found.append(
        Claim(
            f"rich, hard, Nesterov, c = {FRICTION:g}: exponent to t = 4000 over twice that of the flow",
            rich,
            1.0,
            0.12,
            "open: steps of second order do not conserve what the flow conserves; 0.90 to 0.95 was found before",
        )
    )
    return found


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses with growing momentum, when the gain ends, and losses over samples."""
    scale = scale_of(data)
    figure, (left, middle, right) = new_figure(3)
    for colour, case in zip(COLOURS, CASES, strict=False):
        for method in METHODS:
            curve = data[_name(method, *case)].test_loss.sel(time=slice(3, None))
            draw_curve(left, curve, colour, _name(method, *case), dashed=method == "Nesterov")
    finish(left, f"momentum 1 - c / (t + c), η = {RATE:g}", "steps, t", "test loss", loc="lower left")
    for colour, (method, law) in zip(COLOURS, (("heavy ball", 1.0), ("Nesterov", CAPACITY)), strict=False):
        ends = data[f"end of {method}"].end
        middle.plot(ends.batch_size, ends, "o", color=colour, label=method)
        draw_power(middle, ends, -law, f"B^{law:g}", anchor=1.0, shift=1.0, color=colour)
    finish(middle, f"noise as large as signal, β = {NOISY:g}, c = {FRICTION:g}", "batch size, B", "steps, t")
    for colour, name, label in (
        (COLOURS[1], "growing batches", "Nesterov, growing batches"),
        (COLOURS[2], "plain SGD", "plain SGD, B = 64"),
    ):
        draw_curve(right, data[name].test_loss, colour, label, dim="samples")
    finish(right, f"β = {NOISY:g}, T = {STEPS[scale]}", "samples, D", "test loss")
    return figure
