"""Networks on the circle, shared by several figures: the network, its learning-rate schedule, and its exponents.

The paper gives neither depth, width, scales nor learning rates. Here the network has two hidden layers, weights of
variance ``2 / fan_in``, biases that start at zero (they, or the depth, fill the parity gap of integer powers) and the
mean-field parameterisation, and its function is centred. The population is a grid of angles, the loss half the mean
square, and time is that of gradient flow, ``t = sum of learning rates``, in which the infinitely wide lazy network
learns wave k at the rate ``λ_k``.
"""

from typing import Any

import jax
import numpy as np
import optax
import xarray as xr

from solvable.fits import power_law
from solvable.networks import MLP, Training, centred, train
from solvable.networks.tasks.circle import circle, circle_grid, circle_target
from solvable.networks.tasks.circle_kernel import (
    circle_spectrum,
    he_scale,
    lazy_loss,
    linearised_loss,
    mlp_tangent_kernel,
)

DEPTH = 3
RICHNESS = 1.0
# 1.5 decades. Before them the waves k = 1 ... 3 are learned, whose eigenvalues do not follow the power law yet.
WINDOW = (50.0, 1600.0)
# Learning rates fall as steps^-1/4, that is t^-1/3, as fast as the kernel of the hardest task shown grows
# (M ~ t^(1 - χ), χ = 2/3 for β = 1/2): at a fixed rate gradient descent would reach the edge of stability.
FIRST_RATE = 0.15
DECAY_STEPS = 100


def scales(power: float = 1.0, input_scale: float = 1.0) -> dict[str, Any]:
    """Scales of the network, as arguments of both MLP and circle_spectrum."""
    return {"weight_scale": he_scale(power), "bias_scale": 0.0, "input_scale": input_scale}


def spectrum(power: float, points: int, input_scale: float = 1.0) -> np.ndarray:
    """Eigenvalues of the tangent kernel of the infinitely wide network on a grid, from wave 0 on."""
    return circle_spectrum(DEPTH, power, **scales(power, input_scale), points=points)


def rate(step: Any) -> Any:
    """The learning-rate schedule."""
    return FIRST_RATE * (1 + step / DECAY_STEPS) ** -0.25


def flow_time(steps: Any) -> np.ndarray:
    """The sum of the learning rates of all steps before."""
    rates = rate(np.arange(int(np.max(steps)) + 1))
    return np.concatenate([[0.0], np.cumsum(rates)])[np.asarray(steps, int)]


def steps_until(time: float) -> int:
    """The first step at which flow time has reached a time."""
    steps = int(4 * DECAY_STEPS + 4 * (time / (FIRST_RATE * DECAY_STEPS) + 1) ** (4 / 3) * DECAY_STEPS)
    return int(np.searchsorted(flow_time(np.arange(steps + 1)), time))


def measured_steps(last: int, per_decade: int = 12) -> np.ndarray:
    """Steps evenly spaced in the logarithm of flow time, from a tenth of the window's start on."""
    times = flow_time(np.arange(last + 1))
    wanted = np.geomspace(WINDOW[0] / 10, times[-1], int(per_decade * np.log10(10 * times[-1] / WINDOW[0])) + 1)
    return np.unique(np.append(np.searchsorted(times, wanted[:-1]), last))


def training(
    decays: list[float],
    powers: list[float],
    *,
    width: int,
    points: int,
    until: float,
    seeds: int,
    richness: float = RICHNESS,
    precision: Any = "float32",
    snapshots_at: tuple[int, ...] = (),
) -> Training:
    """Networks trained on the grid until a time, one variant for each pair of decay and power."""
    same = len(set(powers)) == 1

    def network(key: jax.Array, power: Any, scale: Any, **_: Any) -> Any:
        settings = {**scales(powers[0]), "power": powers[0]} if same else {"power": power, "weight_scale": scale}
        return centred(MLP(2, 1, width, DEPTH, key=key, parameterisation="mean-field", richness=richness, **settings))

    last = steps_until(until)
    return train(
        network,
        lambda key, decay, **_: circle(decay, points=points, dtype=precision),
        optax.sgd(lambda step: (richness**2 * width * rate(step)).astype(precision)),
        steps=last,
        measure_at=measured_steps(last),
        snapshots_at=snapshots_at,
        loss="half-mse",
        variants={"decay": decays, "power": powers, "scale": [he_scale(power) for power in powers]},
        seeds=seeds,
        key=5,
        precision=precision,
        matmul_precision="high",
        progress=False,
    )


def trained(decays: list[float], powers: list[float], **settings: Any) -> xr.DataArray:
    """Losses (task, seed, time) of trained networks, one task for each pair of decay and power."""
    return losses_of(training(decays, powers, **settings))


def losses_of(runs: Training) -> xr.DataArray:
    """Losses (task, seed, time) of networks that were trained."""
    losses = runs.curves.train_loss.rename(variant="task")
    losses = losses.drop_vars([name for name in losses.coords if name not in ("task", "seed", "time")])
    return _described(losses.assign_coords(time=flow_time(losses.time.values)))


def _described(losses: xr.DataArray) -> xr.DataArray:
    losses.time.attrs.update(long_name="time, sum of learning rates", units="1", symbol="t")
    return losses.assign_attrs(long_name="loss, half the mean square", units="1", symbol="L")


def linearised(
    decays: list[float],
    times: np.ndarray,
    *,
    width: float,
    points: int,
    seeds: int,
    power: float = 1.0,
    input_scale: float = 1.0,
) -> xr.DataArray:
    """Losses (task, seed, time) of networks linearised at their initialisation: lazy training, without its cost.

    For an infinite width they are the sum over waves.
    """
    if width == np.inf:
        eigenvalues = spectrum(power, points, input_scale)
        losses = np.stack([[lazy_loss(times, eigenvalues, decay)] for decay in decays])
    else:
        targets = np.stack([_target(decay, points) for decay in decays], axis=1)
        kernels = (kernel(int(width), points, power, seed, input_scale) for seed in range(seeds))
        losses = np.stack([linearised_loss(times, one, targets) for one in kernels], axis=1)
    return _described(xr.DataArray(losses, dims=("task", "seed", "time"), coords={"time": times}))


def _target(decay: float, points: int) -> np.ndarray:
    return np.asarray(circle_target(circle_grid(points), decay, (points - 1) // 2))


def kernel(width: int, points: int, power: float = 1.0, seed: int = 0, input_scale: float = 1.0) -> jax.Array:
    """The tangent kernel of one network at its initialisation."""
    key = jax.random.fold_in(jax.random.key(7), seed)
    settings = {**scales(power, input_scale), "power": power, "parameterisation": "mean-field"}
    return mlp_tangent_kernel(MLP(2, 1, width, DEPTH, key=key, **settings), points)


def lazy_and_tangent(decay: float, *, width: int, points: int, until: float, seeds: int, richness: float) -> xr.Dataset:
    """Losses (seed, time) of trained lazy networks and of the models tangent to them."""
    runs = training(
        [decay], [1.0], width=width, points=points, until=until, seeds=seeds, richness=richness, precision="float64"
    )
    losses = losses_of(runs).isel(task=0, drop=True)
    target = _target(decay, points)
    starts = [runs.network(seed).initial.value for seed in range(seeds)]
    expected = [linearised_loss(losses.time, mlp_tangent_kernel(start, points), target)[0] for start in starts]
    return xr.Dataset({"trained": losses, "linearised": losses.copy(data=np.stack(expected))})


def exponent(losses: xr.DataArray, window: tuple[float, float] = WINDOW) -> tuple[float, float, float]:
    """The exponent with which the mean over seeds falls, its error over seeds, and how far it depends on the window.

    The error is that of the mean of the exponents of single seeds (NaN for one seed). The last number is the largest
    change when half a decade is cut off either end of the window.
    """

    def fitted(values: xr.DataArray, part: tuple[float, float]) -> float:
        return float(power_law(values, "time", window=part, resamples=0).exponent)

    mean, seeds = losses.mean("seed"), losses.sizes["seed"]
    found = fitted(mean, window)
    each = [fitted(losses.isel(seed=seed), window) for seed in range(seeds)]
    error = float(np.std(each, ddof=1) / np.sqrt(seeds)) if seeds > 1 else float("nan")
    shorter = ((window[0] * 10**0.5, window[1]), (window[0], window[1] / 10**0.5))
    return found, error, max(abs(fitted(mean, part) - found) for part in shorter)
