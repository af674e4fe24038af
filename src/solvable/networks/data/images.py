"""Images for training: subsets, label noise, one-hot or real targets, all from one integer key."""

import dataclasses
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from solvable.networks.data.cache import Say, data_folder, obtain
from solvable.networks.data.catalogue import ImageSet, find

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
Targets = Literal["one-hot", "number"]


@dataclasses.dataclass(frozen=True)
class Images:
    """A training and a test set. Inputs and targets are float32, labels are 0, 1, … in the order of ``classes``.

    Parameters
    ----------
    name
        Name of the data.
    train_inputs, test_inputs
        Images, float32.
    train_labels, train_targets
        Labels and targets of the training set, label noise included.
    test_labels, test_targets
        Labels and targets of the test set.
    clean_labels
        Training labels without the noise.
    classes
        Names of the classes.
    source
        Origin of the data.
    black
        Value of a black pixel in each channel, which is not 0 for standardised inputs.
    """

    name: str
    train_inputs: Floats
    train_labels: Integers
    train_targets: Floats
    test_inputs: Floats
    test_labels: Integers
    test_targets: Floats
    clean_labels: Integers
    classes: tuple[str, ...]
    source: str
    black: tuple[float, ...] = (0.0,)

    def __repr__(self) -> str:
        train, test = self.train_inputs.shape, self.test_inputs.shape
        return f"Images({self.name!r}, train {train}, test {test}, {len(self.classes)} classes)"


def load_images(
    name: str,
    *,
    train: int | None = None,
    test: int | None = None,
    classes: Sequence[int] | None = None,
    balanced: bool = False,
    label_noise: float = 0.0,
    targets: Targets = "one-hot",
    target_scale: float = 1.0,
    flatten: bool = True,
    standardise: bool = False,
    size: int | None = None,
    key: int = 0,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Images:
    """An image set, verified by checksums and cached on this machine.

    Parameters
    ----------
    name
        ``"digits"``, ``"mnist"``, ``"fashion-mnist"`` or ``"cifar-10"``; ``"cifar-100"`` once it was added
        (:func:`add_images`).
    train, test
        Draw this many images; by default all, in their published order. With the same ``key`` a smaller draw is the
        beginning of a larger one.
    classes
        Use only these classes, renumbered in this order.
    balanced
        Draw equally many training images of each class.
    label_noise
        Fraction of the training labels that is replaced by a class drawn uniformly from all, the true one included.
    targets
        ``"one-hot"``, (n, classes); or ``"number"``, (n, 1): classes evenly spaced from -1 to 1, so that two classes
        are -1 and 1.
    target_scale
        Factor that multiplies the targets.
    flatten
        One axis of pixels; otherwise (n, rows, columns, channels).
    standardise
        Subtract the mean of the drawn training images and divide by their standard deviation, per channel; otherwise
        pixels lie in [0, 1].
    size
        Pad images with black to this many rows and columns: MNIST as 32 x 32. The padding does not enter the mean and
        standard deviation of ``standardise``.
    key
        Random seed of draws and label noise.
    folder
        Folder of the cache, see :func:`data_folder`. Nothing is downloaded if the file is there.
    progress
        Whether to print what is fetched from where; by default on a terminal.

    >>> from solvable.networks import load_images
    >>> digits = load_images("digits", train=100, classes=[3, 8], targets="number")
    >>> digits
    Images('digits', train (100, 64), test (68, 64), 2 classes)
    >>> digits.classes, sorted(set(digits.train_targets[:, 0].tolist()))
    (('3', '8'), [-1.0, 1.0])
    """
    image_set = find(name)
    _check_options(label_noise, targets, target_scale, balanced, train)
    margins = _margins(image_set, size)
    chosen = _check_classes(image_set, classes)
    arrays, source = obtain(image_set, folder, _printer(progress))

    train_rows, train_labels = _choose(image_set, "train", arrays["train_labels"], chosen, train, balanced, key)
    test_rows, test_labels = _choose(image_set, "test", arrays["test_labels"], chosen, test, False, key)
    noisy = _with_noise(train_labels, label_noise, len(chosen), key)
    remedy = "ask for more with train=, for less label_noise, or take another key="
    _check_none_missing(f"the {noisy.size} training images with label_noise={label_noise:g}", noisy, chosen, remedy)
    train_images, test_images = arrays["train_images"][train_rows], arrays["test_images"][test_rows]
    mean, spread = _scaling(image_set, train_images, standardise)
    scaled = partial(_scaled, mean=mean, spread=spread, margins=margins, flatten=flatten)
    return Images(
        name=name,
        train_inputs=scaled(train_images),
        train_labels=noisy,
        train_targets=_targets(noisy, len(chosen), targets, target_scale),
        test_inputs=scaled(test_images),
        test_labels=test_labels,
        test_targets=_targets(test_labels, len(chosen), targets, target_scale),
        clean_labels=train_labels,
        classes=tuple(image_set.classes[number] for number in chosen),
        source=source,
        black=tuple(((0 - mean) / spread).tolist()),
    )


def fetch_images(name: str, *, folder: str | os.PathLike[str] | None = None, progress: bool | None = None) -> str:
    """Fetch an image set into the cache, unless it is there and intact. Returns its source.

    Parameters
    ----------
    name, folder, progress
        As in :func:`load_images`.
    """
    return obtain(find(name), folder, _printer(progress))[1]


def stored_images(folder: str | os.PathLike[str] | None = None) -> dict[str, int]:
    """Sizes in bytes of the image sets in the cache, which are verified when they are read.

    Parameters
    ----------
    folder
        As in :func:`load_images`.
    """
    return {path.stem: path.stat().st_size for path in sorted(data_folder(folder).glob("*.npz"))}


def _printer(progress: bool | None) -> Say:
    def say(text: str) -> None:
        if sys.stderr.isatty() if progress is None else progress:
            print(text, file=sys.stderr, flush=True)

    return say


def _check_options(label_noise: float, targets: str, target_scale: float, balanced: bool, train: int | None) -> None:
    if not 0 <= label_noise <= 1:
        raise ValueError(f"label_noise must be a fraction from 0 to 1, not {label_noise!r}")
    if targets not in ("one-hot", "number"):
        raise ValueError(f"targets must be 'one-hot' or 'number', not {targets!r}")
    if not np.isfinite(target_scale) or target_scale == 0:
        raise ValueError(f"target_scale must be a finite number other than 0, not {target_scale!r}")
    if balanced and train is None:
        raise ValueError("balanced draws equally many training images of each class: give the total number with train=")


def _check_classes(image_set: ImageSet, classes: Sequence[int] | None) -> list[int]:
    count = len(image_set.classes)
    if classes is None:
        return list(range(count))
    chosen = list(classes)
    for number in chosen:
        if isinstance(number, bool) or not isinstance(number, int | np.integer) or not 0 <= number < count:
            raise ValueError(f"{image_set.name} has no class {number!r}: classes are numbered 0 to {count - 1}")
        if chosen.count(number) > 1:
            raise ValueError(f"class {number} is named twice in classes={chosen}: name each once")
    if len(chosen) < 2:
        raise ValueError(f"classes={chosen} leaves nothing to classify: name two or more")
    return [int(number) for number in chosen]


def _choose(
    image_set: ImageSet, part: str, labels: np.ndarray, chosen: list[int], wanted: int | None, balanced: bool, key: int
) -> tuple[NDArray[np.intp], Integers]:
    """Rows of the chosen images, and their labels, renumbered."""
    number = np.full(len(image_set.classes), -1, np.int32)
    number[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(number[labels] >= 0)
    if wanted is None:
        _check_none_missing(f"all {rows.size} {part} images of {image_set.name}", number[labels[rows]], chosen)
        return rows, number[labels[rows]]
    if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or wanted < 1:
        raise ValueError(f"{part} must be a whole number of images, 1 or more, or None for all, not {wanted!r}")
    if wanted > rows.size:
        of_these = "" if len(chosen) == len(image_set.classes) else f" of the classes {chosen}"
        raise ValueError(
            f"{part}={wanted} is more than the {rows.size} {part} images that {image_set.name} has{of_these}: "
            f"ask for {rows.size} or less"
        )
    rows = rows[_generator(key, part).permutation(rows.size)]
    rows = _first_of_each(image_set, labels, rows, chosen, int(wanted)) if balanced else rows[:wanted]
    otherwise = "set balanced=True" if part == "train" else "take all with test=None"
    remedy = f"ask for more ({len(chosen)} at the least), name the classes= you want, or {otherwise}"
    _check_none_missing(f"the {wanted} {part} images drawn", number[labels[rows]], chosen, remedy)
    return rows, number[labels[rows]]


def _check_none_missing(
    what: str, labels: Integers, chosen: list[int], remedy: str = "name the others with classes="
) -> None:
    """``labels`` are renumbered, ``chosen`` are the classes by their original numbers."""
    missing = [c for c, count in zip(chosen, np.bincount(labels, minlength=len(chosen)), strict=True) if not count]
    if missing:
        raise ValueError(f"{what} have none of class {', '.join(map(str, missing))}: {remedy}")


def _first_of_each(
    image_set: ImageSet, labels: np.ndarray, rows: NDArray[np.intp], chosen: list[int], wanted: int
) -> NDArray[np.intp]:
    """The first ``wanted`` rows that keep the classes balanced; with a remainder, the first classes have one more."""
    each = {c: wanted // len(chosen) + (i < wanted % len(chosen)) for i, c in enumerate(chosen)}
    kept = []
    for c, count in each.items():
        of_class = np.flatnonzero(labels[rows] == c)
        if of_class.size < count:
            raise ValueError(
                f"{image_set.name} has {of_class.size} training images of class {c} and balanced=True with "
                f"train={wanted} needs {count}: ask for {of_class.size * len(chosen)} or less, or leave out balanced"
            )
        kept.append(of_class[:count])
    return rows[np.sort(np.concatenate(kept))]


def _with_noise(labels: Integers, share: float, classes: int, key: int) -> Integers:
    generator = _generator(key, "noise")
    replaced = generator.permutation(labels.size)[: round(share * labels.size)]
    noisy = labels.copy()
    noisy[replaced] = generator.integers(classes, size=labels.size)[replaced]
    return noisy


def _targets(labels: Integers, classes: int, kind: str, scale: float) -> Floats:
    if kind == "one-hot":
        return (scale * np.eye(classes)).astype(np.float32)[labels]
    return (scale * np.linspace(-1, 1, classes)).astype(np.float32)[labels][:, None]


def _margins(image_set: ImageSet, size: int | None) -> list[tuple[int, int]]:
    """How many rows and columns to add before and after; an odd one is added after."""
    if size is None:
        return [(0, 0), (0, 0)]
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < max(image_set.shape[:2]):
        rows, columns = image_set.shape[:2]
        raise ValueError(
            f"size={size!r} must be a whole number of pixels, not less than the {rows} x {columns} of "
            f"{image_set.name}: images are padded and never shrunk; give {max(rows, columns)} or more, or leave it out"
        )
    return [((size - side) // 2, (size - side + 1) // 2) for side in image_set.shape[:2]]


def _scaling(image_set: ImageSet, train: np.ndarray, standardise: bool) -> tuple[Floats, Floats]:
    """The number that is subtracted from each channel, and the one that divides it."""
    channels = train[..., None] if train.ndim == 3 else train
    if not standardise:
        return np.zeros(channels.shape[-1], np.float32), np.full(channels.shape[-1], image_set.brightest, np.float32)
    mean, spread = channels.mean(axis=(0, 1, 2)), channels.std(axis=(0, 1, 2))
    if not np.all(spread > 0):
        raise ValueError(f"the {len(train)} training images drawn are all equal: they cannot be standardised")
    return mean.astype(np.float32), spread.astype(np.float32)


def _scaled(images: np.ndarray, mean: Floats, spread: Floats, margins: list[tuple[int, int]], flatten: bool) -> Floats:
    images = images.reshape(*images.shape[:3], -1)
    # Black pixels are 0 before scaling, so that the padding is scaled like the rest.
    padded = np.pad(images, [(0, 0), *margins, (0, 0)])
    values = ((padded - mean) / spread).astype(np.float32, copy=False)
    return values.reshape(len(values), -1) if flatten else values


def _generator(key: int, purpose: str) -> np.random.Generator:
    """Independent random numbers for each purpose."""
    if isinstance(key, bool) or not isinstance(key, int | np.integer) or key < 0:
        raise ValueError(f"key must be a whole number, 0 or more, not {key!r}")
    return np.random.default_rng([int(key), ("train", "test", "noise").index(purpose)])
