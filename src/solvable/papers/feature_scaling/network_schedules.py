"""A test beyond the paper: the schedule that theory calls best for the kernel of a network, on the network itself.

Networks on the circle are trained on mini-batches of new samples, with constant, cosine and warm-up-stable-decay
schedules and with the one that ``FeatureScaling.best_schedule`` finds for the spectrum of their tangent kernel and the
target. Every schedule has its peak tuned on some seeds, and is measured on others, the same for all schedules.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.models.feature_scaling.best_schedule import shaped
from solvable.models.feature_scaling.calibration import fit_source_capacity
from solvable.networks import MLP, Fresh, centred, circle, train
from solvable.networks.tasks.circle import fourier_decay
from solvable.networks.tasks.circle_kernel import wave_spectrum
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._circle import DEPTH, kernel, scales
from solvable.plotting import COLOURS, new_figure
from solvable.training import SGD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEDULES = ("constant", "cosine", "warm-up-stable-decay", "best")
# Source, and standard deviation of the noise on labels.
TASKS = {"hard": (0.5, 0.0), "easy": (1.25, 0.0), "easy, noisy labels": (1.25, 0.3)}
REGIMES = {"lazy": 0.1, "rich": 1.0}
# Width, steps, batch size, seeds for tuning and for measuring, points of the grid.
SIZES = {"quick": (48, 256, 16, 2, 8, 64), "full": (512, 8000, 16, 8, 16, 512)}
# Peaks that are tried, the same for all schedules, as multiples of theory's largest learning rate. Trained networks may
# bear more than that: the largest peaks diverge, so that the best one is not at the edge of what is tried.
PEAKS = {"quick": 2.0 ** np.arange(1, -4, -1), "full": 2.0 ** np.arange(1.5, -5.5, -0.5)}
# The largest rate, as a fraction of where the strongest mode, or the noise of the batches, becomes unstable.
LARGEST = 0.75
# By how much theory's schedule may lose to another one: errors of tuning on few seeds.
TUNING = {"quick": 0.1, "full": 0.03}


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """The kernel and its best schedules, the tuning of all peaks, and the losses of the tuned schedules."""
    measured = _kernel(scale)
    theory = {name: _theory(scale, measured, *task) for name, task in TASKS.items()}
    shapes = np.stack([found.shape.values for found in theory.values()])
    names = [(task, regime, schedule) for task in TASKS for regime in REGIMES for schedule in SCHEDULES]
    peaks = {name: float(theory[name[0]].largest_rate) * PEAKS[scale] for name in names}
    tried = [(name, peak) for name in names for peak in peaks[name]]
    losses = _trained(scale, shapes, tried, seeds=SIZES[scale][3], key=1)
    tuning, chosen = {}, {}
    for name in names:
        mine = np.array([losses[place] for place, (own, _) in enumerate(tried) if own == name])
        typical = np.exp(np.log(mine).mean(1))
        chosen[name] = peaks[name][int(np.nanargmin(np.where(np.isfinite(typical), typical, np.inf)))]
        tuning[name] = (peaks[name], typical)
    final = _trained(scale, shapes, list(chosen.items()), seeds=SIZES[scale][4], key=2)
    return {
        "kernel": measured,
        **{f"theory, {name}": found for name, found in theory.items()},
        "final": _final(names, chosen, final),
        **{", ".join(name): _tuned(*pair) for name, pair in tuning.items()},
    }


def _kernel(scale: Scale) -> xr.Dataset:
    """Eigenvalues of the waves on the grid: the mean over networks at their initialisation."""
    width, *_, points = SIZES[scale]
    found = np.mean([wave_spectrum(kernel(width, points, seed=seed)) for seed in range(4)], axis=0)
    return xr.Dataset({"eigenvalue": ("wave", found)}, {"wave": np.arange(found.size)})


def _modes(measured: xr.Dataset, source: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of the constant, of cosines and of sines, and the target's coefficients: it is a sum of cosines."""
    waves, values = measured.wave.values[1:], measured.eigenvalue.values
    signal = waves ** -fourier_decay(source) / np.sqrt(2 * values[1:])
    nothing = np.zeros_like(signal)
    return np.concatenate([values, values[1:]]), np.concatenate([[0.0], signal, nothing])


def _theory(scale: Scale, measured: xr.Dataset, source: float, noise: float) -> xr.Dataset:
    """The best schedule for the spectrum, the largest rate, the losses that theory expects, and fitted exponents."""
    _, steps, batch, *_ = SIZES[scale]
    spectrum, target = _modes(measured, source)
    largest = LARGEST * min(2 / spectrum.max(), 2 * batch / spectrum.sum())
    model = FeatureScaling(spectrum=spectrum, target=target, richness=0.0, label_noise=noise)
    # Long loops of small steps are for the processor, not for an accelerator.
    with jax.default_device(jax.devices("cpu")[0]):
        best = model.best_schedule(steps, largest, batch, progress=False)
        rates = best.learning_rate.sel(schedule="optimal").values
        usual = [shaped(name, steps) for name in SCHEDULES[:-1]]
        tuned = [_least_loss(model, shape, largest * PEAKS[scale], batch) for shape in usual]
    cosines = slice(1, measured.wave.size)
    fit = fit_source_capacity(spectrum[cosines], target[cosines], first=2, last=measured.wave.size // 2)
    return xr.Dataset(
        {
            "shape": (("schedule", "step"), np.stack([*usual, rates / rates.max()])),
            # Losses of the networks are half the mean square.
            "test_loss": ("schedule", np.array([*tuned, float(best.test_loss.sel(schedule="optimal")[0])]) / 2),
            "largest_rate": largest,
            "best_peak": rates.max(),
            "capacity": float(fit.capacity),
            "source": float(fit.source),
        },
        {"schedule": list(SCHEDULES)},
    )


def _least_loss(model: FeatureScaling, shape: np.ndarray, peaks: np.ndarray, batch: int) -> float:
    """The loss that theory expects of a schedule, at the best of the stable peaks."""
    stable = peaks[peaks < 1.9 / np.max(model.spectrum)]
    table = jnp.asarray(shape)
    trainings = [SGD(lambda step, peak=peak: peak * table[step], batch_size=batch) for peak in stable]
    return min(float(model.predict([shape.size], training).test_loss[0]) for training in trainings)


class _Noisy(eqx.Module):
    """New samples with noise on their labels."""

    clean: Any
    noise: Any

    def __call__(self, key: jax.Array, count: int) -> tuple[Any, Any]:
        inputs, targets = self.clean(key, count)
        errors = jax.random.normal(jax.random.fold_in(key, 1), targets.shape, targets.dtype)
        return inputs, targets + jnp.asarray(self.noise, targets.dtype) * errors


def _trained(scale: Scale, shapes: np.ndarray, plan: list[Any], *, seeds: int, key: int) -> np.ndarray:
    """Final test losses (run, seed) of networks, a run for each pair of a name and a peak; infinite if it diverged."""
    width, steps, batch, _, _, points = SIZES[scale]
    tasks, table = list(TASKS), jnp.asarray(shapes, jnp.float32)

    def network(key: jax.Array, richness: Any, **_: Any) -> Any:
        options = {**scales(), "parameterisation": "mean-field", "richness": richness}
        return centred(MLP(2, 1, width, DEPTH, key=key, **options))

    def data(key: jax.Array, decay: Any, noise: Any, **_: Any) -> Fresh:
        clean = circle(decay, kind="fresh", points=points)
        assert isinstance(clean, Fresh)
        return Fresh(_Noisy(clean.sample, noise), clean.test_inputs, clean.test_targets)

    def optimiser(richness: Any, task: Any, schedule: Any, peak: Any, **_: Any) -> Any:
        return optax.sgd(lambda step: richness**2 * width * peak * table[task, schedule, step])

    runs = train(
        network,
        data,
        optimiser,
        steps=steps,
        batch_size=batch,
        measure_at=[steps],
        loss="half-mse",
        variants={
            "task": [tasks.index(name[0]) for name, _ in plan],
            "schedule": [SCHEDULES.index(name[2]) for name, _ in plan],
            "peak": [float(peak) for _, peak in plan],
            "richness": [REGIMES[name[1]] for name, _ in plan],
            "decay": [float(fourier_decay(TASKS[name[0]][0])) for name, _ in plan],
            "noise": [TASKS[name[0]][1] for name, _ in plan],
        },
        seeds=seeds,
        key=key,
        on_divergence="keep",
        progress=False,
    )
    losses = runs.curves.test_loss.isel(time=-1).values
    stopped = runs.curves.diverged_at.values >= 0
    return np.where(stopped | ~np.isfinite(losses), np.inf, losses)


def _tuned(peaks: np.ndarray, typical: np.ndarray) -> xr.Dataset:
    return xr.Dataset({"test_loss": ("peak", typical)}, {"peak": peaks})


def _final(names: list[Any], chosen: Mapping[Any, float], losses: np.ndarray) -> xr.Dataset:
    shape = (len(TASKS), len(REGIMES), len(SCHEDULES))
    dims = ("task", "regime", "schedule")
    return xr.Dataset(
        {
            "test_loss": ((*dims, "seed"), losses.reshape(*shape, -1)),
            "peak": (dims, np.array([chosen[name] for name in names]).reshape(shape)),
        },
        {"task": list(TASKS), "regime": list(REGIMES), "schedule": list(SCHEDULES)},
    )


def advantage(data: Mapping[str, xr.Dataset], task: str, regime: str, schedule: str) -> tuple[float, float]:
    """Mean and standard error of the logarithm of a schedule's loss over that of the best, seed by seed."""
    losses = data["final"].test_loss.sel(task=task, regime=regime)
    ratio = np.log(losses.sel(schedule=schedule) / losses.sel(schedule="best"))
    return float(ratio.mean()), float(ratio.std("seed", ddof=1) / np.sqrt(ratio.sizes["seed"]))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Whether theory's schedule is the best of the four, and whether a constant rate loses what theory says."""
    allowed = TUNING[scale_of(data)]
    found = []
    for task in TASKS:
        for regime in REGIMES:
            ratios = {schedule: advantage(data, task, regime, schedule) for schedule in SCHEDULES[:-1]}
            rival = min(ratios, key=lambda schedule: ratios[schedule][0])
            mean, error = ratios[rival]
            found.append(
                Claim.at_least(
                    f"{task}, {regime}: log of the least loss of the usual schedules over that of theory's",
                    mean,
                    -(3 * error + allowed),
                    f"{rival} is the best of them; three standard errors, {error:.3f} each, "
                    f"and {allowed:g} for peaks tuned on few seeds",
                )
            )
        expected = data[f"theory, {task}"].test_loss
        lost = float(np.log(expected.sel(schedule="constant") / expected.sel(schedule="best")))
        mean, error = advantage(data, task, "lazy", "constant")
        found.append(
            Claim(
                f"{task}, lazy: log of the loss of the best constant rate over that of theory's schedule",
                mean,
                lost,
                3 * error + 0.5 * lost,
                "three standard errors, and half of it for a finite width and a kernel that moves",
            )
        )
    return found


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses relative to the best schedule of theory: what theory expects, and what networks have."""
    figure, panels = new_figure(len(TASKS))
    for panel, task in zip(panels, TASKS, strict=True):
        places = np.arange(len(SCHEDULES) - 1)
        expected = data[f"theory, {task}"].test_loss
        panel.plot(100 * (expected[:-1] / expected[-1] - 1), places, "kx", label="theory, lazy")
        for colour, shift, regime in zip(COLOURS, (-0.15, 0.15), REGIMES, strict=False):
            pairs = [advantage(data, task, regime, schedule) for schedule in SCHEDULES[:-1]]
            means, errors = (np.array(part) for part in zip(*pairs, strict=True))
            panel.errorbar(
                100 * np.expm1(means),
                places + shift,
                xerr=100 * np.exp(means) * errors,
                fmt="o",
                color=colour,
                label=f"networks, {regime}",
            )
        panel.axvline(0.0, color="grey", linewidth=1)
        panel.set_yticks(places, SCHEDULES[:-1] if task == next(iter(TASKS)) else [""] * len(places))
        panel.set(xlabel="loss above that of theory's best schedule, in percent", ylim=(-0.5, len(places) - 0.5))
        panel.set_title(task, fontsize="medium")
    panels[0].legend(fontsize="small")
    return figure
