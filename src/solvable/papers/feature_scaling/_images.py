"""Figure 6: streamed images, and lazy and rich convolutional networks that are trained on them.

Time is ``t = sum of learning rates`` on half of the squared error, summed over outputs, without the learning-rate scale
of the mean-field parameterisation: the modes of a lazy network decay as ``exp(-λ_k t)``, whatever its richness.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array

from solvable.networks import Fresh, Training, centred, load_images, train
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.data.augmentation import heavy_augmentation, stream_images
from solvable.networks.linearised import linearised
from solvable.networks.program import outputs_in_batches

# Variance 2 / fan_in, which keeps the size of activations from one ReLU layer to the next.
_HE = 2**0.5
_KEY = 6


class Task(NamedTuple):
    """Which images are streamed to which networks. ``None`` means all images.

    Targets are one-hot, with one output per class, or numbers, the classes spread from -1 to 1 over one output.
    """

    images: str
    channels: tuple[int, ...]
    width: int
    batch: int
    held_out: int | None = None
    train: int | None = None
    targets: Literal["one-hot", "number"] = "one-hot"

    @property
    def shape(self) -> tuple[int, int, int]:
        rows, columns, channels = stream(self).test_inputs.shape[1:]
        return rows, columns, channels

    def network(self, key: jax.Array, richness: Any = 1.0) -> CNN:
        return CNN(
            self.shape,
            stream(self).test_targets.shape[1],
            key=key,
            channels=self.channels,
            width=self.width,
            parameterisation="mean-field",
            richness=richness,
            weight_scale=_HE,
        )


@functools.lru_cache(maxsize=4)
def stream(task: Task) -> Fresh:
    """Heavily augmented images, new at every step, and a fixed test set of held-out images, augmented in the same way.

    The mean of the targets is subtracted, so that the constant, which is learned at once, is no part of the loss.
    """
    images = load_images(
        task.images,
        train=task.train,
        test=task.held_out,
        targets=task.targets,
        flatten=False,
        standardise=True,
    )
    mean = images.train_targets.mean(axis=0)
    images = dataclasses.replace(
        images, train_targets=images.train_targets - mean, test_targets=images.test_targets - mean
    )
    source = stream_images(images, heavy_augmentation())
    test = jax.jit(heavy_augmentation())(jax.random.key(_KEY), jnp.asarray(images.test_inputs))
    return Fresh(source.sample, test, images.test_targets)


def drawn(task: Task, count: int, seed: int = 0) -> tuple[Array, Array]:
    """Images from the stream, and their targets."""
    return eqx.filter_jit(stream(task).sample)(jax.random.fold_in(jax.random.key(_KEY), seed), count)


def measured_steps(last: int, per_decade: int = 12) -> list[int]:
    """Zero, and steps evenly spaced in the logarithm, rounded to multiples of 50 that run without interruption."""
    wanted = np.geomspace(50, last, int(per_decade * np.log10(last / 50)) + 1)
    return sorted({0, last, *(50 * np.round(wanted / 50).astype(int)).tolist()})


def training(
    task: Task,
    richness: Sequence[float],
    rates: Sequence[float],
    *,
    steps: int,
    seeds: int,
    lazy: bool = False,
    per_decade: int = 12,
) -> Training:
    """Train networks on the stream, one variant for each pair of richness and learning rate.

    With ``lazy``, the models tangent to the networks are trained instead.
    ``stream_loss`` is measured on images of the stream, ``test_loss`` on held-out ones.
    """

    def network(key: jax.Array, richness: Any, rate: Any) -> Any:
        del rate
        made = task.network(key, richness)
        return linearised(made) if lazy else centred(made)

    source = stream(task)

    def stream_loss(network: Any, data: Fresh, key: jax.Array) -> Array:
        # The same images at all times and for all networks, so that sampling noise does not blur slopes.
        inputs, targets = data.sample(jax.random.key(_KEY), len(source.test_targets))
        return 0.5 * jnp.mean(jnp.sum((outputs_in_batches(network, inputs) - targets) ** 2, axis=1))

    return train(
        network,
        source,
        lambda richness, rate: optax.sgd(rate * richness**2 * task.width),
        steps=steps,
        batch_size=task.batch,
        measure_at=measured_steps(steps, per_decade),
        loss="half-mse",
        measure={"stream_loss": stream_loss},
        variants={"richness": list(richness), "rate": list(rates)},
        seeds=seeds,
        key=_KEY,
        matmul_precision="highest",
        runs_per_group=1,
        # A run that diverges should not stop the others; a claim counts such runs.
        on_divergence="keep",
        progress=False,
    )


def curves(runs: Training, rate: float) -> xr.Dataset:
    """Losses (richness, seed, time) on held-out images and on the stream, against flow time."""
    found = runs.curves[["test_loss", "stream_loss", "diverged_at"]]
    if "variant" not in found.dims:
        found = found.expand_dims("variant")
    richness = np.atleast_1d(runs.curves.richness.values)
    found = found.drop_vars([name for name in found.coords if name not in ("seed", "time")])
    found = found.rename(variant="richness").assign_coords(richness=richness, time=rate * found.time.values)
    found.time.attrs.update(long_name="time, sum of learning rates", units="1", symbol="t")
    found.richness.attrs.update(long_name="richness", units="1", symbol="γ₀")
    for name, text in (("test_loss", "held-out images"), ("stream_loss", "the stream")):
        found[name].attrs.update(long_name=f"half the squared error on {text}", units="1", symbol="L")
    return found.isel(time=slice(1, None))
