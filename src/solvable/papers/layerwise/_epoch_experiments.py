"""The trainings of the figures along epochs and over training-set sizes; several figures use the same one."""

from solvable.papers.claims import Scale
from solvable.papers.layerwise import table2_2
from solvable.papers.layerwise._image_training import Experiment

_NETWORKS = {
    "resnet18": "ResNet18",
    "vgg16": "VGG16",
    "cnn-small": "small CNN",
    "resnet-small": "small ResNet",
    "fcn": "fully connected network",
    "fcn-small": "small fully connected network",
}
_IMAGES = {"cifar-10": ("CIFAR-10", 50_000), "mnist": ("MNIST", 60_000), "digits": ("digits", 1400)}


def title(experiment: Experiment) -> str:
    """The network, the images, and what is unusual about the training, as a label."""
    parts = [f"{_NETWORKS[experiment.network]} on {_IMAGES[experiment.images][0]}"]
    if experiment.label_noise:
        parts.append(f"{experiment.label_noise:.0%} random labels")
    if not experiment.decay:
        parts.append("no weight decay")
    return ", ".join(parts)


def images_of(experiment: Experiment) -> int:
    """The number of training images."""
    return experiment.train or _IMAGES[experiment.images][1]


def epochs(count: float, images: int = 50_000, batch: int = 128) -> int:
    """The number of steps in so many epochs."""
    return round(count * images / batch)


def _steps_at(*measured: float, images: int = 50_000) -> tuple[int, ...]:
    return tuple(epochs(epoch, images) for epoch in measured)


# Quick scale: the squared error with AdamW brings small networks on digits to few features. If two labels in five are
# random and there is no weight decay, they approach few features first and leave them as they memorise random labels.
_SMALL = Experiment(
    "fcn-small", "digits", loss="mse", optimiser="adamw", rate=3e-3, decay=0.1, schedule="cosine", steps=1000, batch=64,
    seeds=2, measured=(22, 44, 110, 220, 440, 660),
)  # fmt: skip
_NOISY = _SMALL._replace(
    train=500,
    label_noise=0.4,
    rate=2e-3,
    decay=0.0,
    steps=1500,
    batch=50,
    measured=(10, 20, 50, 100, 160, 320, 640, 1000),
)
# The thesis' loss. Longer than the other trainings, because the question is what happens after epoch 30. The rate first
# falls at epoch 36. All images are measured each time, which costs little here.
_CONNECTED = Experiment(
    "fcn",
    loss="half-mse",
    steps=epochs(120),
    measured=_steps_at(1, 2, 3, 5, 8, 12, 20, 30, 40, 60, 80, 100),
    points=60_000,
)

FEW_FEATURES: dict[Scale, Experiment] = {"quick": _SMALL, "full": table2_2.CIFAR}
MANY_FEATURES: dict[Scale, Experiment] = {"quick": _NOISY, "full": _CONNECTED}
WITHOUT_DECAY = _CONNECTED._replace(decay=0.0)
# Networks that approach few features and leave them again.
LEAVING: dict[Scale, Experiment] = {"quick": _NOISY, "full": WITHOUT_DECAY}
# Fig. C.3: the trainings of Fig. 7.5 at a fifth of their learning rates, and as long. Digits have the small ResNet of
# Table 2.2 in the first row: at this rate the small fully connected network ends at κ_CKA = 0.12 to 0.13.
SLOWER = 1 / 5
SLOW_FEW: dict[Scale, Experiment] = {
    "quick": table2_2.DIGITS._replace(
        rate=SLOWER * table2_2.DIGITS.rate, seeds=2, measured=(11, 22, 44, 88, 132, 220, 330)
    ),
    "full": table2_2.CIFAR._replace(rate=SLOWER * table2_2.CIFAR.rate),
}
SLOW_LEAVING: dict[Scale, Experiment] = {
    "quick": _NOISY._replace(rate=SLOWER * _NOISY.rate),
    "full": WITHOUT_DECAY._replace(rate=SLOWER * WITHOUT_DECAY.rate),
}
EASY: dict[Scale, Experiment] = {
    "quick": _SMALL,
    "full": _CONNECTED._replace(
        images="mnist", steps=epochs(40, 60_000), measured=_steps_at(1, 2, 5, 10, 20, 30, images=60_000)
    ),
}
VGG: dict[Scale, Experiment] = {
    "quick": _SMALL._replace(network="cnn-small", steps=400, measured=(22, 110)),
    "full": table2_2.CIFAR._replace(**table2_2.VGG),  # type: ignore[arg-type]
}
COLLAPSING: dict[Scale, tuple[Experiment, ...]] = {
    "quick": (_SMALL,),
    "full": (table2_2.CIFAR, table2_2.MNIST_ON_ITS_WAY),
}

# Small sets are memorised long before half of the steps: the time is spent on a second seed.
_LONG, _SHORT = epochs(12), epochs(6)
_PLAIN = table2_2.CIFAR._replace(augmented=False, steps=_LONG, decay=table2_2.SHORT_DECAY, seeds=1, measured=())
SIZES: dict[Scale, tuple[Experiment, ...]] = {
    "quick": (*(_SMALL._replace(train=size, measured=()) for size in (20, 100)), _SMALL),
    "full": (
        *(_PLAIN._replace(train=size, steps=_SHORT, seeds=2) for size in (250, 500, 1000, 2500)),
        _PLAIN._replace(train=5000, seeds=2),
        *(_PLAIN._replace(train=size) for size in (10_000, 25_000, None)),
    ),
}
AUGMENTED_SIZES: dict[Scale, tuple[Experiment, ...]] = {
    "quick": SIZES["quick"],
    "full": (
        _PLAIN._replace(train=500, steps=_SHORT, augmented=True),
        _PLAIN._replace(train=5000, augmented=True),
        table2_2.CIFAR,
    ),
}
