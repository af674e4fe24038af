"""The learning rates, and the batch sizes, of which the loss after T steps is least: lazy networks on new samples.

The second moments ``V_k`` of the modes' errors move linearly (see ``two_time``; N = inf, gamma = 0),

    V_k(t+1) = (1 - eta_t lambda_k)^2 V_k(t) + (eta_t^2 / B_t) m_k lambda_k (L_t + sigma^2),   L_t = sum_k lambda_k V_k

so that the loss is linear in every ``V(t)``: ``L_T = g(t) . V(t) + const`` with the costates

    g_k(t) = (1 - eta_t lambda_k)^2 g_k(t+1) + (eta_t^2 / B_t) lambda_k kappa_t,   kappa_t = sum_k g_k(t+1) m_k lambda_k

and quadratic in ``eta_t``, with its minimum at

    eta_t = sum_k g_k lambda_k V_k / (sum_k g_k lambda_k^2 V_k + (L_t + sigma^2) kappa_t / B_t)

clipped to ``[0, max_learning_rate]``. A sweep forward in time sets each rate to its minimum, with the costates of
the last sweep and the moments as they come; a sweep backward does it with the moments of the last sweep and the
costates as they come. Because the loss is linear in either, no sweep raises it (Krotov's method). For a fixed number of
samples ``sum_t B_t`` the best batches are ``B_t ~ eta_t sqrt((L_t + sigma^2) kappa_t)``.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int

from solvable.models.feature_scaling.mode_quadrature import nodes_until
from solvable.progress import progress_bar

if TYPE_CHECKING:
    from solvable.models.feature_scaling.model import FeatureScaling

_TOLERANCE = 1e-10
_MOST_SWEEPS = 400
# Peak learning rates that are tried, and the shapes that are tuned: fractions of the run that warm up and decay.
_PEAKS = np.geomspace(1e-3, 1.0, 49)
_DECAYS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
_WARM_UPS = (0.0, 0.02, 0.1, 0.3)
# What a schedule of this kind is before it is tuned.
_USUAL_DECAY, _USUAL_WARM_UP = 0.2, 0.02
SHAPES = ("constant", "cosine", "linear", "warm-up-stable-decay")
SCHEDULES = ("optimal", *SHAPES, *(f"tuned {shape}" for shape in SHAPES))


class Task(NamedTuple):
    """The modes: eigenvalues, counts, squared targets, and the variance of the label noise."""

    eigenvalues: Array
    counts: Array
    targets: Array
    label_noise: Array


class Optimum(NamedTuple):
    """The best schedule of a horizon, the sweeps it took and the relative change of the loss in the last ones."""

    rates: Float[np.ndarray, "step"]
    batches: Float[np.ndarray, "step"]
    loss: float
    sweeps: int
    change: float


def task_of(model: "FeatureScaling", flow_time: float) -> tuple[Task, float]:
    """The task of a model, for schedules of this total learning rate, and the relative error of its nodes."""
    modes, error = nodes_until(model, flow_time)
    numbers = (modes.eigenvalues, modes.counts, modes.targets, model.label_noise**2)
    return Task(*(jnp.asarray(value, float) for value in numbers)), float(error or 0.0)


def _next(task: Task, moments: Array, rate: Array, batch: Array) -> Array:
    loss = task.eigenvalues @ moments + task.label_noise
    noise = rate**2 / batch * task.counts * task.eigenvalues * loss
    return (1 - rate * task.eigenvalues) ** 2 * moments + noise


@jax.jit
def final_loss(task: Task, rates: Float[Array, "step"], batches: Float[Array, "step"]) -> Array:
    """The loss after the last step."""
    moments = jax.lax.scan(lambda v, now: (_next(task, v, *now), None), task.targets, (rates, batches))[0]
    return task.eigenvalues @ moments


def _best_rate(task: Task, moments: Array, costates: Array, batch: Array, largest: Array) -> tuple[Array, Array]:
    """The rate that minimises the loss, and ``(L + sigma^2) kappa``, which sets the batch."""
    pulled = costates * task.eigenvalues * moments
    noise = (task.eigenvalues @ moments + task.label_noise) * (costates @ (task.counts * task.eigenvalues))
    curvature = pulled @ task.eigenvalues + noise / batch
    return jnp.clip(pulled.sum() / jnp.maximum(curvature, 1e-300), 0.0, largest), noise


@jax.jit
def _forward(task: Task, costates: Array, batches: Array, largest: Array) -> tuple[Array, Array, Array, Array]:
    """Rates, moments before each step, noises, and the loss, with the costates after each step.

    ``largest`` is the largest rate of every step: where it is zero the run has ended.
    """

    def step(moments: Array, now: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array, Array]]:
        rate, noise = _best_rate(task, moments, *now)
        return _next(task, moments, rate, now[1]), (rate, moments, noise)

    last, (rates, moments, noises) = jax.lax.scan(step, task.targets, (costates, batches, largest))
    return rates, moments, noises, task.eigenvalues @ last


@jax.jit
def _backward(task: Task, moments: Array, batches: Array, largest: Array) -> tuple[Array, Array]:
    """Rates and the costates after each step, with the moments before it."""

    def step(costates: Array, now: tuple[Array, Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        rate, _ = _best_rate(task, now[0], costates, *now[1:])
        kappa = costates @ (task.counts * task.eigenvalues)
        decay = (1 - rate * task.eigenvalues) ** 2
        return decay * costates + rate**2 / now[1] * task.eigenvalues * kappa, (rate, costates)

    return jax.lax.scan(step, task.eigenvalues, (moments, batches, largest), reverse=True)[1]


@jax.jit
def _moments(task: Task, rates: Array, batches: Array) -> Array:
    """The moments before each step."""
    return jax.lax.scan(lambda v, now: (_next(task, v, *now), v), task.targets, (rates, batches))[1]


def _padded(rates: Float[np.ndarray, "*kind step"], length: int) -> Array:
    """Rates of a longer run that rests after its last step: programs are compiled for one length."""
    return jnp.asarray(np.pad(rates, [(0, 0)] * (rates.ndim - 1) + [(0, length - rates.shape[-1])]))


def optimum(
    task: Task,
    start: Float[np.ndarray, "step"],
    largest: float,
    batch: float,
    samples: float | None = None,
    length: int | None = None,
) -> Optimum:
    """Sweep forward and backward from the rates ``start`` until the loss falls no more.

    With ``samples``, batch sizes are optimised as well, their sum being fixed. Arrays are ``length`` long.
    """
    steps = start.size
    length = length or steps
    most = _padded(np.full(steps, largest), length)
    batches = jnp.full(length, batch if samples is None else samples / steps, float)
    moments = _moments(task, _padded(start, length), batches)
    losses: list[float] = []
    change, sweeps = np.inf, 0
    while sweeps < _MOST_SWEEPS and change > _TOLERANCE:
        _, costates = _backward(task, moments, batches, most)
        rates, moments, noises, loss = _forward(task, costates, batches, most)
        if samples is not None:
            batches = _batches(rates, noises, samples, batches, most > 0)
            moments = _moments(task, rates, batches)
            loss = final_loss(task, rates, batches)
        losses.append(float(loss))
        sweeps += 1
        change = abs(losses[-2] / losses[-1] - 1) if sweeps > 1 else np.inf
    return Optimum(np.asarray(rates)[:steps], np.asarray(batches)[:steps], losses[-1], sweeps, change)


def _batches(rates: Array, noises: Array, samples: float, before: Array, active: Array) -> Array:
    """Batches of this many samples in all, half the way (in logarithms) from the last ones to the best ones."""
    wanted = jnp.maximum(rates * jnp.sqrt(noises), 1e-300)
    mixed = jnp.sqrt(before * jnp.maximum(wanted / wanted.sum() * samples, 1.0))
    return jnp.where(active, mixed / (mixed * active).sum() * samples, 1.0)


def shaped(shape: str, steps: int, decay: float = _USUAL_DECAY, warm_up: float = _USUAL_WARM_UP) -> np.ndarray:
    """A schedule with a peak of 1; ``decay`` and ``warm_up`` are fractions of the run (warm-up-stable-decay only)."""
    now = np.arange(steps) / steps
    if shape == "constant":
        return np.ones(steps)
    if shape == "cosine":
        return (1 + np.cos(np.pi * now)) / 2
    if shape == "linear":
        return 1 - now
    begin = np.minimum(1.0, (np.arange(steps) + 1) / max(warm_up * steps, 1.0))
    return begin * np.clip((1 - now) / decay, 0.0, 1.0)


def _candidates() -> list[tuple[str, float, float]]:
    """Shapes that are tried: name, decay and warm-up."""
    usual = [(shape, _USUAL_DECAY, _USUAL_WARM_UP) for shape in SHAPES[:-1]]
    return [*usual, *((SHAPES[-1], decay, warm_up) for decay in _DECAYS for warm_up in _WARM_UPS)]


@jax.jit
def _losses(task: Task, shapes: Array, peaks: Float[Array, "shape peak"], batches: Array) -> Float[Array, "shape peak"]:
    one = partial(final_loss, task)
    return jax.vmap(lambda shape, own: jax.vmap(lambda peak: one(peak * shape, batches))(own))(shapes, peaks)


class Tuned(NamedTuple):
    """Rates and losses of each of :data:`SHAPES`, at the largest peak and with tuned peak and fractions."""

    plain_rates: Float[np.ndarray, "shape step"]
    plain_losses: Float[np.ndarray, "shape"]
    rates: Float[np.ndarray, "shape step"]
    losses: Float[np.ndarray, "shape"]


def tuned(task: Task, steps: int, largest: float, batch: float, length: int) -> Tuned:
    """All shapes with all peaks in one program, then once more between the neighbours of the best peaks."""
    tried, batches = _candidates(), jnp.full(length, batch, float)
    shapes, peaks = np.stack([shaped(name, steps, *how) for name, *how in tried]), largest * _PEAKS
    losses = np.asarray(_losses(task, _padded(shapes, length), jnp.tile(peaks, (len(tried), 1)), batches))
    chosen, near, usual = [], [], []
    for shape in SHAPES:
        own = [place for place, (name, *_) in enumerate(tried) if name == shape]
        row, peak = (int(one) for one in np.unravel_index(np.nanargmin(losses[own]), losses[own].shape))
        chosen.append(own[row])
        near.append(np.geomspace(peaks[max(peak - 1, 0)], peaks[min(peak + 1, peaks.size - 1)], peaks.size))
        usual.append(tried.index((shape, _USUAL_DECAY, _USUAL_WARM_UP)))
    finer = np.asarray(_losses(task, _padded(shapes[chosen], length), jnp.asarray(np.stack(near)), batches))
    best = np.nanargmin(finer, axis=1)
    top = np.take_along_axis(np.stack(near), best[:, None], 1)
    return Tuned(largest * shapes[usual], losses[usual, -1], top * shapes[chosen], np.nanmin(finer, axis=1))


class Comparison(NamedTuple):
    """Rates, batches and final losses of every schedule of :data:`SCHEDULES` at one horizon."""

    rates: Float[np.ndarray, "schedule step"]
    batches: Float[np.ndarray, "schedule step"]
    losses: Float[np.ndarray, "schedule"]
    sweeps: int
    change: float


def compared(
    task: Task, steps: int, largest: float, batch: float, vary_batch: bool, start: Any, length: int
) -> Comparison:
    """The best schedule of one horizon beside the usual ones, as they are and tuned; in arrays of a length."""
    found = tuned(task, steps, largest, batch, length)
    if start is None:
        start = found.rates[int(np.argmin(found.losses))]
    best = optimum(task, start, largest, batch, samples=batch * steps if vary_batch else None, length=length)
    rates = np.concatenate([best.rates[None], found.plain_rates, found.rates])
    sizes = np.stack([best.batches, *[np.full(steps, float(batch))] * (len(SCHEDULES) - 1)])
    values = np.concatenate([[best.loss], found.plain_losses, found.losses])
    return Comparison(rates, sizes, values, best.sweeps, best.change)


def stretched(rates: Float[np.ndarray, "step"], steps: int) -> Float[np.ndarray, "new_step"]:
    """A schedule of another horizon with the same shape: where to begin."""
    return np.interp((np.arange(steps) + 0.5) / steps, (np.arange(rates.size) + 0.5) / rates.size, rates)


def predicted_exponents(capacity: float, source: float, label_noise: float) -> dict[str, float]:
    """Exponents of the final loss in the number of steps, where they are known.

    Without label noise the noise of batches dies with the loss: decay at the end only buys a prefactor, and only a
    warm-up removes the noise of the start, ``min(b, 3 - 1/a)`` in place of ``min(b, 2 - 1/a)`` (which is not known of
    schedules whose warm-up is tuned). With label noise hard
    tasks (``b < 1 - 1/a``) keep ``b``, and easy ones reach ``a b / (1 + a b)``.
    """
    if label_noise:
        hard = source < 1 - 1 / capacity
        return {"optimal": source if hard else capacity * source / (1 + capacity * source)}
    usual = min(source, 2 - 1 / capacity)
    return {"optimal": min(source, 3 - 1 / capacity), **{f"tuned {shape}": usual for shape in SHAPES[:3]}}


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):.2g} %" if ratio < 1.99 else f"a factor {ratio:.2g}"


def best_schedules(
    model: "FeatureScaling",
    horizons: Int[np.ndarray, "horizon"],
    largest: float,
    batch: float,
    vary_batch: bool,
    progress: bool | None,
) -> xr.Dataset:
    """The dataset of :meth:`FeatureScaling.best_schedule`."""
    task, error = task_of(model, largest * float(horizons[-1]))
    # Half of the first horizon, for its exponent.
    lengths = [max(2, int(horizons[0]) // 2), *map(int, horizons)]
    found: list[Comparison] = []
    with progress_bar("optimising", float(sum(lengths)), progress) as advance:
        for steps in lengths:
            start = stretched(found[-1].rates[0], steps) if found else None
            # The first two share their programs, which take longer to compile than to run.
            found.append(compared(task, steps, largest, batch, vary_batch, start, max(steps, lengths[1])))
            advance(float(steps))
    losses = np.stack([one.losses for one in found])
    slopes = -np.diff(np.log(losses), axis=0) / np.diff(np.log(lengths))[:, None]
    last = found[-1]
    over = ("horizon", "schedule")
    variables: dict[str, Any] = {
        "learning_rate": (("schedule", "step"), last.rates),
        "batch_size": (("schedule", "step"), last.batches),
        "test_loss": (over, losses[1:]),
        "excess": (over, losses[1:] / losses[1:, :1] - 1),
        "exponent": (over, slopes),
    }
    if model.spectrum is None:
        known = predicted_exponents(float(model.capacity or 0), float(model.source or 0), model.label_noise)
        variables["predicted_exponent"] = (("schedule",), [known.get(name, np.nan) for name in SCHEDULES])
    coordinates = {"horizon": horizons, "schedule": list(SCHEDULES), "step": np.arange(lengths[-1])}
    settings = {"solver": "costate sweeps", "sweeps": last.sweeps, "change": last.change, "batch_size": batch}
    by_name = (dict(zip(SCHEDULES, values, strict=True)) for values in (last.losses, slopes[-1]))
    dataset = model.dataset("theory", variables, coordinates, settings, error=max(error, last.change))
    return dataset.assign_attrs(sentence=sentence(last.rates[0], *by_name))


def sentence(rates: Float[np.ndarray, "step"], losses: dict[str, float], exponents: dict[str, float]) -> str:
    """What the best schedule does, and what the usual ones lose, in words."""
    steps, high = rates.size, np.flatnonzero(rates >= rates.max() / 2)
    warm_up, decay = high[0] / steps, 1 - (high[-1] + 1) / steps
    best = losses["optimal"]
    parts = [f"{shape} loses {_percent(losses[shape] / best)}" for shape in SHAPES]
    simple = min(SCHEDULES[len(SHAPES) + 1 :], key=lambda name: losses[name])
    return (
        f"The best schedule reaches half of its peak after {warm_up:.1%} of the steps and is above it until the last "
        f"{decay:.1%}; its loss is {best:.4g} and falls with the number of steps as T^-{exponents['optimal']:.3g}. "
        f"Relative to it, at the same largest rate, {', '.join(parts)}; the best of the tuned ones is the {simple}, "
        f"which loses {_percent(losses[simple] / best)} and falls as T^-{exponents[simple]:.3g}."
    )
