"""The runs of fig. 6.5: networks with the scales of table 6.1 learn images, and when they fit and generalise."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from solvable.equinox import diagnose
from solvable.models.scalar_network import ScalarNetwork
from solvable.networks import MLP, Fixed, Training, log_steps, train
from solvable.networks.data import Images, load_images

SCALES = ("weight_scale", "target_scale", "input_scale", "output_scale")
TABLE = {
    "default": (5.0, 3.0, 1.0, 1.0),
    "weight": (1.0, 3.0, 1.0, 1.0),
    "target": (5.0, 30.0, 1.0, 1.0),
    "input": (5.0, 3.0, 0.01, 1.0),
    "output": (5.0, 3.0, 1.0, 0.1),
}
# Weight decay as part of the gradient that Adam receives, none, and decoupled from Adam (AdamW).
DECAYS = ("gradient", "none", "beside")
FITTED, SHARE = 0.99, 0.9


class Row(NamedTuple):
    """One variant: a configuration of table 6.1, the kind of weight decay, and whether pixels are standardised."""

    configuration: str
    decay: str = "gradient"
    standardised: bool = False


@dataclasses.dataclass(frozen=True)
class Setting:
    """Sizes and learning rates; the defaults are those of section 6.4.3."""

    images: str = "mnist"
    points: int = 1000
    drawn_from: int = 10_000
    test_points: int | None = 4000
    width: int = 512
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    batch: int = 128
    epochs: int = 2000
    seeds: int = 5

    @property
    def batches(self) -> int:
        """Full batches per epoch; the remaining samples are used in the next epoch."""
        return self.points // self.batch

    @property
    def steps(self) -> int:
        return self.epochs * self.batches

    @property
    def early(self) -> int:
        """A step at which the default network has fitted and does not generalise yet: a twentieth of the training."""
        return self.steps // 20


def run(setting: Setting, rows: list[Row], key: int = 0) -> Training:
    """Train all rows with all seeds side by side. Each seed draws a training set of its own."""
    scales = {name: [TABLE[row.configuration][i] for row in rows] for i, name in enumerate(SCALES)}
    scales["standardised"] = [float(row.standardised) for row in rows]
    decays = {
        name: [setting.weight_decay if row.decay == wanted else 0.0 for row in rows]
        for name, wanted in (("gradient_decay", "gradient"), ("beside_decay", "beside"))
    }
    images = load_images(setting.images, train=setting.drawn_from, test=setting.test_points)
    pixels = images.train_inputs.shape[1]

    def network(key: jax.Array, weight_scale: Any, input_scale: Any, output_scale: Any, **_: Any) -> MLP:
        scales = {"weight_scale": weight_scale, "input_scale": input_scale, "output_scale": output_scale}
        return MLP(pixels, 10, setting.width, 4, key=key, activation="tanh", **scales)

    def optimiser(gradient_decay: Any, beside_decay: Any, **_: Any) -> optax.GradientTransformation:
        # In the precision of the training: float64 values would promote everything else to float64.
        in_gradient, beside = (jnp.asarray(decay, jnp.float32) for decay in (gradient_decay, beside_decay))
        return optax.chain(
            optax.add_decayed_weights(in_gradient),
            optax.scale_by_adam(),
            optax.add_decayed_weights(beside),
            optax.scale(-setting.learning_rate),
        )

    return train(
        network,
        _data(images, setting.points),
        optimiser,
        steps=setting.steps,
        batch_size=setting.batch,
        variants=scales | decays,
        seeds=setting.seeds,
        key=key,
        measure_at=log_steps(setting.steps, per_decade=30),
        snapshots_at=(0, setting.early, setting.steps),
    )


def _data(images: Images, points: int) -> Callable[..., Fixed]:
    """A function that draws the training set of a seed. Pixels lie in [0, 1] unless they are standardised."""
    mean, spread = float(images.train_inputs.mean()), float(images.train_inputs.std())

    def make(key: jax.Array, target_scale: Any, standardised: Any, **_: Any) -> Fixed:
        rows = jax.random.choice(key, len(images.train_inputs), (points,), replace=False)
        scale = jnp.asarray(target_scale, jnp.float32)
        inputs, test_inputs = (
            jnp.where(standardised > 0, (pixels - mean) / spread, pixels)
            for pixels in (jnp.asarray(images.train_inputs)[rows], jnp.asarray(images.test_inputs))
        )
        targets, test_targets = jnp.asarray(images.train_targets)[rows], jnp.asarray(images.test_targets)
        return Fixed(inputs, scale * targets, test_inputs, scale * test_targets)

    return make


def delays(curves: xr.Dataset, batches: int, share: float = SHARE) -> xr.Dataset:
    """The epochs at which each run fits and generalises, and their ratio: its delay.

    A run fits when its training accuracy reaches ``FITTED``. It generalises when its test accuracy reaches the fraction
    ``share`` of the best that any row reaches (the mean over its seeds, at its best step). The level is the same for
    all runs, so that a run that never generalises does not count its own poor best as success; its delay is infinite. A
    run that never fits counts as fitting at its end. With a delay below 1 a network generalises before it fits.
    """
    level = share * float(curves.test_accuracy.mean("seed").max())
    fits = _first(curves.train_accuracy, FITTED).clip(max=float(curves.time[-1])) / batches
    generalises = _first(curves.test_accuracy, level) / batches
    return xr.Dataset(
        {
            "fits": fits.assign_attrs(long_name="epoch at which the training set is fitted", units="epochs"),
            "generalises": generalises.assign_attrs(long_name="epoch at which the run generalises", units="epochs"),
            "delay": (generalises / fits).assign_attrs(long_name="delay of generalisation", units="1"),
            "best": curves.test_accuracy.max("time").assign_attrs(long_name="best test accuracy", units="1"),
            "at_fit": _when_first(curves.test_accuracy, curves.train_accuracy >= FITTED).assign_attrs(
                long_name="test accuracy when the training set is fitted", units="1"
            ),
        },
        attrs={"level": level, "fitted": FITTED},
    )


def _first(accuracy: xr.DataArray, level: float) -> xr.DataArray:
    return accuracy.time.where(accuracy >= level).min("time").fillna(np.inf)


def _when_first(values: xr.DataArray, reached: xr.DataArray) -> xr.DataArray:
    return values.isel(time=reached.argmax("time")).where(reached.any("time")).drop_vars("time")


def feature_table(training: Training, setting: Setting, variants: list[int]) -> xr.Dataset:
    """κ_CKA and effective dimensions at three steps: features of the training set, overlaps on the test set."""
    steps = (0, setting.early, setting.steps)
    names = ("mp_distance", "intensity", "quality_above_noise", "utilisation_above_noise")
    values = np.zeros((len(names), len(variants), setting.seeds, len(steps)))
    for row, variant in enumerate(variants):
        for seed in range(setting.seeds):
            data = training.data(seed, variant)
            assert isinstance(data, Fixed)
            train_set, test_set = (
                (inputs, np.argmax(targets, axis=1))
                for inputs, targets in ((data.inputs, data.targets), (data.test_inputs, data.test_targets))
            )
            for column, step in enumerate(steps):
                report = diagnose(training.network(seed, variant, step=step), train_set, test_set, progress=False)
                measured = {"mp_distance": report.mp_distance, **report.effective_dimensions}
                values[:, row, seed, column] = [measured[name] for name in names]
    return xr.Dataset(
        {name: (("variant", "seed", "step"), part) for name, part in zip(names, values, strict=True)},
        {"variant": variants, "step": list(steps)},
    )


def final_growth(configuration: str, width: int) -> float:
    """gamma_+ (eq. 6.14) of a scalar linear network of the same width with the scales of a configuration.

    The layers are those of LeCun's initialisation for one input, 1 and 1/sqrt(width), times the weight scale, with
    signs that make the initial output zero. The slope of the target is the target scale over the input scale, and Z is
    one over the output scale.
    """
    weight, target, inputs, output = TABLE[configuration]
    signs = np.where(np.arange(width) % 2, -1.0, 1.0)
    network = ScalarNetwork(
        np.full(width, weight), weight * signs / np.sqrt(width), target / inputs, output_scale=1 / output
    )
    return float(network.final_growth)
