"""Image networks trained as in the thesis and measured along the way: shared by all of its figures of image networks.

The thesis gives momentum 0.9, weight decay 1e-3, learning rates of 0.05 (ResNet18) and 0.01 (VGG16) and 200 epochs, in
which the rate falls to a fifth every 60; it gives no batch size. Here batches have 128 images, and the rate falls at
the same fractions of a training that may be shorter.

Its loss is half the squared error (eq. 1.11) "unless explicitly specified", and nothing is specified for images. Here
it is "mse", the mean over outputs as in PyTorch, unless a figure says otherwise; half the sum over ten outputs is five
times as large, so that the same training has a fifth of the rate and five times the decay. The last layer bounds the
rate: by 0.053 for ResNet18 and ten outputs, just above the thesis' 0.05, and by a tenth of that for one output. With
cross-entropy, features are as few, but not equally strong: ResNet18 on CIFAR-10 ended at κ_CKA = 0.024 with it and at
0.0024 with the squared error, as in the thesis (0.003).

One compiled program serves all trainings of a network on images of one shape. Rates, decays, lengths and the choice of
augmentation are arguments of the program, and a small training set is repeated until it has as many rows as the whole
set, so that one epoch of the repeated set is several epochs of the small one.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.dataset import Meaning, make_dataset
from solvable.networks import MLP, Fixed, Images, feature_record, load_images, train
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.convolutional.resnet import ResNet18
from solvable.networks.convolutional.vgg import VGG16
from solvable.networks.data.augmentation import crops_and_flips
from solvable.papers.layerwise._image_store import stored

CLASSES = 10
# The rate is multiplied by DROP after these fractions of the training: every 60 of 200 epochs.
DROPS, DROP = (0.3, 0.6, 0.9), 0.2
# With the schedule "held" the rate is constant for this fraction of the training, and then falls linearly to zero.
HELD = 0.8


class Experiment(NamedTuple):
    """How networks are trained and measured.

    ``train`` images are drawn, equally many of each of the first ``classes``; None takes all. ``measured`` are the
    steps at which everything is measured, besides the first and the last step: on ``points`` images of each set, and on
    all images at the last step. ``decay`` is added to the gradient. The learning-rate schedules are "thesis",
    "constant", "held" and "cosine"; the rate rises over the first ``warmup`` steps.
    """

    network: str = "resnet18"
    images: str = "cifar-10"
    train: int | None = None
    classes: int = CLASSES
    label_noise: float = 0.0
    targets: str = "one-hot"
    loss: str = "mse"
    augmented: bool = False
    last_layer_only: bool = False
    steps: int = 1000
    batch: int = 128
    rate: float = 0.05
    decay: float = 1e-3
    momentum: float = 0.9
    schedule: str = "thesis"
    warmup: int = 0
    optimiser: str = "sgd"
    precision: str = "float32"
    seeds: int = 3
    key: int = 0
    measured: tuple[int, ...] = ()
    points: int = 5000


class Augmentation(eqx.Module):
    """Crops and flips, or no change: ``used`` is 0 or 1, so that one program serves both."""

    used: jax.Array
    change: Any = eqx.field(static=True)

    def __call__(self, key: jax.Array, images: jax.Array) -> jax.Array:
        return jax.lax.cond(self.used > 0, lambda: self.change(key, images), lambda: images)


def _fully_connected(shape: tuple[int, ...], outputs: int, *, key: jax.Array, width: int, depth: int) -> MLP:
    return MLP(shape[0], outputs, width, depth, key=key, initialisation="uniform")


# Name -> the network, the smallest image size it accepts, and whether it takes images (or else rows of pixels).
_NETWORKS: dict[str, tuple[Any, int | None, bool]] = {
    "resnet18": (ResNet18, 32, True),
    "vgg16": (VGG16, 32, True),
    "vgg16-plain": (functools.partial(VGG16, batch_norm=False), 32, True),
    "cnn": (functools.partial(CNN, weight_scale=3**-0.5), None, True),  # variances as PyTorch's
    "fcn": (functools.partial(_fully_connected, width=512, depth=4), None, False),
    "resnet-small": (functools.partial(ResNet18, width=8, blocks=(1, 1, 1)), None, True),
    "vgg-small": (functools.partial(VGG16, width=8), None, True),
    "vgg-small-plain": (functools.partial(VGG16, width=8, batch_norm=False), None, True),
    "cnn-small": (functools.partial(CNN, channels=(8, 16), width=64), None, True),
    "fcn-small": (functools.partial(_fully_connected, width=64, depth=4), None, False),
}


@functools.cache
def trained(experiment: Experiment) -> xr.Dataset:
    """Networks of all seeds, measured along their training. An experiment that several figures use is trained once.

    Dims are (seed, step) and (seed, step, mode); ``epoch`` counts passes over the drawn training images.
    """
    return stored(experiment, lambda: _train(experiment))


def _train(experiment: Experiment) -> xr.Dataset:
    images = load_experiment(experiment)
    data, distinct = training_set(images, experiment)
    once = eqx.tree_at(
        lambda tree: (tree.inputs, tree.targets), data, (data.inputs[:distinct], data.targets[:distinct])
    )

    def record(points: int | None) -> Any:
        measures = feature_record(points, last_layer=_last_layer, loss=experiment.loss)  # type: ignore[arg-type]

        def inspect(network: Any, given: Any = None, initial: Any = None) -> dict[str, Any]:
            # The given data are not used: they repeat a small training set.
            found = measures(network, once, initial)
            return found if experiment.targets == "one-hot" else found | _regression_accuracy(network, once, experiment)

        return inspect

    training = train(
        lambda key, **_: new_network(experiment, images, key),
        data,
        lambda **settings: optimiser_of(experiment, **settings),
        steps=experiment.steps,
        batch_size=experiment.batch,
        loss=experiment.loss,  # type: ignore[arg-type]
        variants={"rate": [experiment.rate], "decay": [experiment.decay], "length": [float(experiment.steps)]},
        seeds=experiment.seeds,
        key=experiment.key,
        measure_at=[],
        inspect=record(min(distinct, experiment.points)),
        inspect_at=sorted({0, *experiment.measured} - {experiment.steps}),
        precision=experiment.precision,  # type: ignore[arg-type]
        runs_per_group=1,
    )
    last = [record(None)(training.network(seed)) for seed in range(experiment.seeds)]
    return _dataset(training.curves, last, experiment, distinct)


def load_experiment(experiment: Experiment) -> Images:
    """The images of an experiment, in the form that its network takes."""
    _, size, shaped = _network(experiment)
    return load_images(
        experiment.images,
        train=experiment.train,
        balanced=experiment.train is not None,
        classes=None if experiment.classes == CLASSES else list(range(experiment.classes)),
        label_noise=experiment.label_noise,
        targets=experiment.targets,  # type: ignore[arg-type]
        flatten=not shaped,
        standardise=True,
        size=size,
        key=experiment.key,
    )


def training_set(images: Images, experiment: Experiment) -> tuple[Fixed, int]:
    """The training data, repeated to the size of the whole set, and the number of rows that are not repeats."""
    distinct = len(images.train_inputs)
    repeats = 1
    if experiment.train is not None:
        whole = load_images(experiment.images).train_inputs.shape[0] * experiment.classes // CLASSES
        repeats = max(1, whole // distinct)
    shaped = images.train_inputs.ndim == 4
    padding = images.train_inputs.shape[1] // 8 if shaped else 0
    change = crops_and_flips(padding, experiment.images.startswith("cifar"), fill=images.black) if shaped else None
    augment = None if change is None else Augmentation(jnp.asarray(float(experiment.augmented), jnp.float32), change)
    if experiment.augmented and not shaped:
        raise ValueError(f"{experiment.network} takes rows of pixels, which cannot be cropped: set augmented=False")
    inputs, targets = (
        jnp.asarray(np.concatenate([array] * repeats)) for array in (images.train_inputs, images.train_targets)
    )
    test = jnp.asarray(images.test_inputs), jnp.asarray(images.test_targets)
    return Fixed(inputs, targets, *test, augment=augment), distinct


def _network(experiment: Experiment) -> tuple[Any, int | None, bool]:
    if experiment.network not in _NETWORKS:
        raise ValueError(f"network must be one of {', '.join(_NETWORKS)}, not {experiment.network!r}")
    return _NETWORKS[experiment.network]


def new_network(experiment: Experiment, images: Images, key: jax.Array) -> Any:
    """A network before training."""
    make = _network(experiment)[0]
    return make(images.train_inputs.shape[1:], images.train_targets.shape[1], key=key)


def _last_layer(network: Any) -> Any:
    return network.layers[-1] if isinstance(network, MLP) else network.last


def optimiser_of(experiment: Experiment, rate: Any, decay: Any, length: Any) -> Any:
    """SGD with momentum and weight decay as in PyTorch, or AdamW; the schedule is that of ``length`` steps."""
    import optax

    def rate_at(step: Any) -> Any:
        share = step / length
        if experiment.schedule == "thesis":
            factor = DROP ** sum((share >= drop).astype(jnp.float32) for drop in DROPS)
        elif experiment.schedule == "cosine":
            factor = 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(share, 1)))
        elif experiment.schedule == "constant":
            factor = jnp.ones_like(share)
        elif experiment.schedule == "held":
            factor = jnp.clip((1 - share) / (1 - HELD), 0, 1)
        else:
            raise ValueError(f"schedule must be thesis, cosine, constant or held, not {experiment.schedule!r}")
        rising = jnp.minimum(1, (step + 1) / max(experiment.warmup, 1))
        return (rate * rising * factor).astype(jnp.float32)

    if experiment.optimiser == "sgd":
        chosen = optax.chain(optax.add_decayed_weights(decay), optax.sgd(rate_at, momentum=experiment.momentum))
    elif experiment.optimiser == "adamw":
        chosen = optax.adamw(rate_at, weight_decay=decay)
    else:
        raise ValueError(f"optimiser must be sgd or adamw, not {experiment.optimiser!r}")
    return optax.chain(chosen, optax.stateless(_only_last)) if experiment.last_layer_only else chosen


def _only_last(updates: Any, _: Any) -> Any:
    nothing = jax.tree.map(jnp.zeros_like, updates)
    return eqx.tree_at(_last_layer, nothing, _last_layer(updates))


def _regression_accuracy(network: Any, data: Fixed, experiment: Experiment) -> dict[str, float]:
    """Fraction of images whose output is nearer to their number than to any other."""
    half = 1 / (experiment.classes - 1)  # numbers are spread from -1 to 1
    found = {}
    for name, inputs, targets in (
        ("train", data.inputs, data.targets),
        ("test", data.test_inputs, data.test_targets),
    ):
        hits = [
            jnp.sum(jnp.abs(_outputs(network, inputs[i : i + 1000]) - targets[i : i + 1000]) < half)
            for i in range(0, len(inputs), 1000)
        ]
        found[f"{name}_accuracy"] = float(sum(hits)) / len(inputs)
    return found


@eqx.filter_jit
def _outputs(network: Any, inputs: jax.Array) -> jax.Array:
    return jax.vmap(network)(inputs)


_MEANINGS = {
    "step": Meaning("step", "steps", "t"),
    "seed": Meaning("index of the random seed", "1"),
    "mode": Meaning("feature, in falling order of intensity", "1", "k"),
    "intensity": Meaning("intensity", "1", "ρ_k"),
    "quality": Meaning("quality", "1", "Q*_k"),
    "utilisation": Meaning("utilisation", "1", "Q̂_k"),
    "cumulative_quality": Meaning("cumulative quality", "1", "Π*(k)"),
    "cumulative_utilisation": Meaning("cumulative utilisation", "1", "Π̂(k)"),
    "mp_distance": Meaning("distance to the minimum projection", "1", "κ_CKA"),
    "constant_overlap": Meaning("overlap of the first feature with a constant", "1", "⟨e_1|1⟩"),
    "within_class": Meaning("within-class over between-class variance", "1", "NC1"),
    "self_duality": Meaning("distance of the weights from the class means", "1", "NC3"),
    "nearest_class": Meaning("disagreement with the nearest class mean", "1", "NC4"),
}


def _dataset(curves: xr.Dataset, last: list[dict[str, Any]], experiment: Experiment, distinct: int) -> xr.Dataset:
    """The measurements along training and of the final networks, under the names that the figures use."""
    found = curves.isel(variant=0, drop=True)
    variables: dict[str, Any] = {}
    for name in last[0]:
        end = np.asarray([row[name] for row in last], float)[:, None]
        values = np.concatenate([found[name].values, end], axis=1)
        variables[name] = (("seed", "step", "mode")[: values.ndim], values)
    steps = np.append(found.inspected_at.values, float(experiment.steps))
    modes = variables["intensity"][1].shape[-1]
    attributes = {f"experiment_{name}": _plain(value) for name, value in experiment._asdict().items()}
    attributes |= {name: curves.attrs[name] for name in ("model", "method", "device", "version", "seconds")}
    meanings = {name: Meaning(name.replace("_", " "), "1", "") for name in variables} | _MEANINGS
    coordinates = {"seed": np.arange(experiment.seeds), "step": steps, "mode": np.arange(1, modes + 1)}
    data = make_dataset(variables, coordinates, attributes, meanings)
    epochs = steps * experiment.batch / distinct
    return data.assign_coords(epoch=("step", epochs, {"long_name": "epoch", "units": "epochs"}))


def _plain(value: Any) -> Any:
    """Convert a value to an attribute that files can hold."""
    return str(value) if value is None or isinstance(value, bool | tuple) else value
