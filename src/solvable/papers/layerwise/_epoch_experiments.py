"""The trainings that figures along epochs and sizes share, so that each is paid for once."""

from solvable.papers.claims import Scale
from solvable.papers.layerwise import table2_2
from solvable.papers.layerwise._image_training import Experiment

_NETWORKS = {"resnet18": "ResNet18", "vgg16": "VGG16", "fcn": "fully connected network"}
_IMAGES = {"cifar-10": ("CIFAR-10", 50_000), "mnist": ("MNIST", 60_000), "digits": ("digits", 1397)}


def title(experiment: Experiment) -> str:
    """For people: the network and the images, and what is out of the ordinary."""
    network = _NETWORKS.get(experiment.network, experiment.network)
    unusual = [text for text, is_so in _UNUSUAL.items() if is_so(experiment)]
    return ", ".join([f"{network} on {_IMAGES[experiment.images][0]}", *unusual])


_UNUSUAL = {
    "squared error": lambda experiment: experiment.loss == "mse",
    "no weight decay": lambda experiment: experiment.decay == 0,
}


def images_of(experiment: Experiment) -> int:
    """How many training images there are."""
    return experiment.train or _IMAGES[experiment.images][1]


def epochs(count: int, of: int = 50_000, batch: int = 128) -> int:
    """How many steps go through ``of`` images so many times, in whole batches."""
    return count * (of // batch)


def _spread(*measured: float, of: int = 50_000) -> tuple[int, ...]:
    return tuple(round(epoch * (of // 128)) for epoch in measured)


# Digits with squared error come to few features; with cross-entropy, 1500 steps are far too few for it.
_SMALL = Experiment(
    "fcn-small", "digits", loss="mse", optimiser="adamw", rate=3e-3, decay=0.1, schedule="cosine", steps=1000, batch=64,
    seeds=2, measured=(21, 42, 105, 210, 420, 630),
)  # fmt: skip
FCN = Experiment(
    "fcn",
    steps=epochs(120),
    precision="bfloat16",
    measured=_spread(1, 2, 3, 5, 8, 12, 20, 30, 40, 60, 80, 100),
)

FEW_FEATURES: dict[Scale, Experiment] = {"quick": _SMALL, "full": table2_2.RESNET_CIFAR}
MANY_FEATURES: dict[Scale, Experiment] = {
    "quick": _SMALL._replace(loss="cross-entropy", optimiser="sgd", rate=0.05, decay=1e-3, schedule="thesis"),
    "full": FCN,
}
EASY: dict[Scale, Experiment] = {
    "quick": _SMALL,
    "full": FCN._replace(
        images="mnist", steps=epochs(40, 60_000), measured=_spread(1, 2, 5, 10, 20, 30, of=60_000)
    ),
}
