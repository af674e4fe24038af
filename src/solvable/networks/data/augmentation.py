"""Data augmentation: crops and flips, warps and colours, and endless streams of augmented images.

An augmentation is a function of (key, images (n, rows, columns, channels)) that returns images of the same shape and
type. The random numbers of an image depend only on the key and on its position in the batch. All augmentations are
gathers along one grid of coordinates per batch, so that they cost little within a compiled step.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.networks.data.images import Images
from solvable.networks.sources import Fresh

Augment = Callable[[jax.Array, Array], Array]
Fill = Literal["reflect", "edge"] | float | Sequence[float]


@dataclasses.dataclass(frozen=True)
class CropsAndFlips:
    """See :func:`crops_and_flips`."""

    padding: int
    flip: bool
    fill: Any

    def __call__(self, key: jax.Array, images: Array) -> Array:
        _check_images(images, self.fill)
        count, rows, columns, _ = images.shape
        shift_key, flip_key = jax.random.split(key)
        shift = jax.random.randint(shift_key, (2, count, 1), -self.padding, self.padding + 1, dtype=jnp.int32)
        across = jnp.broadcast_to(jnp.arange(columns, dtype=jnp.int32), (count, columns))
        if self.flip:
            flipped = jax.random.bernoulli(flip_key, 0.5, (count, 1))
            across = jnp.where(flipped, columns - 1 - across, across)
        down = jnp.arange(rows, dtype=jnp.int32)[:, None] + shift[0, :, None]
        return _pick(images, down, (across + shift[1])[:, None], self.fill)


def crops_and_flips(padding: int = 4, flip: bool = True, *, fill: Fill = "reflect") -> Augment:
    """The usual augmentation: random crops and horizontal flips.

    Parameters
    ----------
    padding
        Each image is shifted by up to this many pixels in each direction, uniformly.
    flip
        Whether half of the images are mirrored.
    fill
        The pixels outside the image: ``"reflect"`` mirrors it at its edges, ``"edge"`` repeats the edges, and a number,
        or one for each channel, is a constant. For black, as is common, give ``fill=images.black``.

    >>> import jax
    >>> from solvable.networks.data.augmentation import crops_and_flips
    >>> images = jax.random.normal(jax.random.key(0), (5, 8, 8, 3))
    >>> crops_and_flips(padding=2)(jax.random.key(1), images).shape
    (5, 8, 8, 3)
    """
    if isinstance(padding, bool) or not isinstance(padding, int | np.integer) or padding < 0:
        raise ValueError(f"padding must be a whole number of pixels, 0 or more, not {padding!r}: 4 is common")
    return CropsAndFlips(int(padding), bool(flip), _check_fill(fill))


# Digits must remain readable, so they are not mirrored and rotated little.
GREY = {
    "rotation": 15.0, "scale": 0.15, "shear": 0.15, "shift": 0.07, "elastic": 0.02, "flip": False,
    "brightness": 0.0, "contrast": 0.0, "colour": 0.0, "cutout": 0.0, "fill": "edge",
}  # fmt: skip
COLOUR = {
    "rotation": 10.0, "scale": 0.2, "shear": 0.1, "shift": 0.1, "elastic": 0.01, "flip": True,
    "brightness": 0.4, "contrast": 0.4, "colour": 0.2, "cutout": 0.0, "fill": "reflect",
}  # fmt: skip
# Gaussian bumps of displacement along a side, wide enough for strokes to bend and not to tear.
_BUMPS = 5


@dataclasses.dataclass(frozen=True)
class HeavyAugmentation:
    """See :func:`heavy_augmentation`. Holds the given options; the others depend on the number of channels."""

    given: tuple[tuple[str, Any], ...]

    def options(self, channels: int) -> dict[str, Any]:
        """All options, for images with this many channels."""
        return {**(COLOUR if channels == 3 else GREY), **dict(self.given)}

    def __call__(self, key: jax.Array, images: Array) -> Array:
        options = self.options(images.shape[-1])
        _check_images(images, options["fill"])
        count, height, width, _ = images.shape
        position_key, colour_key, cutout_key = jax.random.split(key, 3)
        rows, columns = _coordinates(position_key, count, (height, width), options)
        changed = _recoloured(colour_key, warp(images.astype(jnp.float32), rows, columns, options["fill"]), options)
        if options["cutout"]:
            changed = _cut_out(cutout_key, changed, options["cutout"])
        return changed.astype(images.dtype)


def heavy_augmentation(
    *,
    rotation: float | None = None,
    scale: float | None = None,
    shear: float | None = None,
    shift: float | None = None,
    elastic: float | None = None,
    flip: bool | None = None,
    brightness: float | None = None,
    contrast: float | None = None,
    colour: float | None = None,
    cutout: float | None = None,
    fill: Fill | None = None,
) -> Augment:
    """Strong augmentation: affine and elastic deformations; for colour images also changes of colour.

    Images are interpolated bilinearly, in float32 for images of any type. Defaults depend on the number of channels:
    three are colour images like CIFAR-10, others grey ones like MNIST. Ranges are uniform for each image.

    Parameters
    ----------
    rotation
        Degrees, in both directions; 15 for grey images and 10 for colour images.
    scale
        Factor between 1/(1 + scale) and 1 + scale, uniform in its logarithm; 0.15 and 0.2.
    shear
        Columns move by up to this per row, in both directions; 0.15 and 0.1.
    shift
        Fraction of the side of the image, in all directions; 0.07 and 0.1.
    elastic
        Standard deviation of a smooth random displacement, as a fraction of the side; 0.02 and 0.01.
    flip
        Whether half of the images are mirrored; no and yes.
    brightness
        Added to the image, in standard deviations of the image; 0 and 0.4.
    contrast
        Factor for differences from the mean of the image, as in ``scale``; 0 and 0.4.
    colour
        Added to each channel independently, in standard deviations of the image; 0 and 0.2.
    cutout
        Side of a square that is replaced by the mean of the image, as a fraction of the side; 0.
    fill
        The pixels outside the image, as in :func:`crops_and_flips`; ``"edge"`` and ``"reflect"``.

    >>> import jax
    >>> from solvable.networks.data.augmentation import heavy_augmentation
    >>> images = jax.random.normal(jax.random.key(0), (5, 28, 28, 1))
    >>> heavy_augmentation(rotation=10.0)(jax.random.key(1), images).shape
    (5, 28, 28, 1)
    """
    numbers = {
        "rotation": rotation, "scale": scale, "shear": shear, "shift": shift, "elastic": elastic,
        "brightness": brightness, "contrast": contrast, "colour": colour, "cutout": cutout,
    }  # fmt: skip
    given: dict[str, Any] = {name: value for name, value in numbers.items() if value is not None}
    largest = {"rotation": 180.0, "cutout": 1.0, "shift": 1.0}
    for name, value in given.items():
        limit = largest.get(name, np.inf)
        if not (np.isfinite(value) and 0 <= value <= limit):
            rule = f"from 0 to {limit:g}" if np.isfinite(limit) else "0 or more"
            raise ValueError(f"{name} must be a number {rule}, not {value!r}: 0 leaves it out, None takes the default")
        given[name] = float(value)
    if flip is not None:
        given["flip"] = bool(flip)
    if fill is not None:
        given["fill"] = _check_fill(fill)
    return HeavyAugmentation(tuple(given.items()))


def _coordinates(key: jax.Array, count: int, size: tuple[int, int], options: dict[str, Any]) -> tuple[Array, Array]:
    """The real coordinates at which each pixel is read: rows and columns, (n, rows, columns) each."""
    height, width = size
    affine_key, elastic_key = jax.random.split(key)
    draws = jax.random.uniform(affine_key, (6, count, 1, 1), jnp.float32, -1, 1)
    angle = draws[0] * float(np.deg2rad(options["rotation"]))
    factor = jnp.exp(draws[1] * float(np.log1p(options["scale"])))
    down, across = (jnp.arange(side, dtype=jnp.float32) - (side - 1) / 2 for side in size)
    down, across = down[None, :, None], across[None, None, :]
    if options["flip"]:
        across = jnp.where(draws[5] < 0, -across, across)
    across = across + draws[2] * options["shear"] * down
    rows = factor * (jnp.cos(angle) * down - jnp.sin(angle) * across) + (height - 1) / 2
    columns = factor * (jnp.sin(angle) * down + jnp.cos(angle) * across) + (width - 1) / 2
    rows = rows + draws[3] * options["shift"] * height
    columns = columns + draws[4] * options["shift"] * width
    if options["elastic"]:
        bumps = jax.random.normal(elastic_key, (2, count, _BUMPS, _BUMPS), jnp.float32)
        bent = jnp.einsum("rk,dnkl,cl->dnrc", _bumps(height), bumps, _bumps(width), precision="highest")
        rows = rows + options["elastic"] * height * bent[0]
        columns = columns + options["elastic"] * width * bent[1]
    return rows, columns


def _bumps(side: int) -> Array:
    """Gaussian bumps along a side, (pixels, bumps); squares sum to one, so displacements have equal size everywhere."""
    spacing = (side - 1) / (_BUMPS - 1) or 1.0
    values = np.exp(-0.5 * (np.arange(side)[:, None] / spacing - np.arange(_BUMPS)) ** 2)
    return jnp.asarray(values / np.linalg.norm(values, axis=1, keepdims=True), jnp.float32)


def warp(images: Array, rows: Array, columns: Array, fill: Fill = "edge") -> Array:
    """Images read at real coordinates, (n, rows, columns) each, by bilinear interpolation."""
    above, before = jnp.floor(rows), jnp.floor(columns)
    down, across = (rows - above)[..., None], (columns - before)[..., None]
    top, left = above.astype(jnp.int32), before.astype(jnp.int32)
    upper, lower = (
        (1 - across) * _pick(images, row, left, fill) + across * _pick(images, row, left + 1, fill)
        for row in (top, top + 1)
    )
    return (1 - down) * upper + down * lower


def _recoloured(key: jax.Array, images: Array, options: dict[str, Any]) -> Array:
    count, channels = images.shape[0], images.shape[-1]
    if not (options["brightness"] or options["contrast"] or options["colour"]):
        return images
    image_key, channel_key = jax.random.split(key)
    draws = jax.random.uniform(image_key, (2, count, 1, 1, 1), jnp.float32, -1, 1)
    own = jax.random.uniform(channel_key, (count, 1, 1, channels), jnp.float32, -1, 1)
    mean = jnp.mean(images, axis=(1, 2), keepdims=True)
    spread = jnp.std(images, axis=(1, 2, 3), keepdims=True)
    factor = jnp.exp(draws[0] * float(np.log1p(options["contrast"])))
    return mean + factor * (images - mean) + spread * (options["brightness"] * draws[1] + options["colour"] * own)


def _cut_out(key: jax.Array, images: Array, fraction: float) -> Array:
    """Replace a square about a random pixel by the mean of the image; part of it may lie outside."""
    count, height, width, _ = images.shape
    centre = jax.random.uniform(key, (2, count, 1), jnp.float32)
    down, across = (
        jnp.abs(jnp.arange(side, dtype=jnp.float32) - centre[axis] * (side - 1)) < fraction * side / 2
        for axis, side in enumerate((height, width))
    )
    hole = (down[:, :, None] & across[:, None, :])[..., None]
    return jnp.where(hole, jnp.mean(images, axis=(1, 2), keepdims=True), images)


class Stream(eqx.Module):
    """Batches of augmented images for :class:`solvable.networks.Fresh`; see :func:`stream_images`.

    The images are arrays of this module, so that they are arguments of a compiled program and not constants in it.
    """

    inputs: Array
    targets: Array
    augment: Augment = eqx.field(static=True)
    flatten: bool = eqx.field(static=True)

    def __call__(self, key: jax.Array, count: int) -> tuple[Array, Array]:
        row_key, image_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (count,), 0, self.inputs.shape[0])
        inputs = self.augment(image_key, self.inputs[rows])
        return (inputs.reshape(count, -1) if self.flatten else inputs), self.targets[rows]


def stream_images(images: Images, augment: Augment, *, flatten: bool = False) -> Fresh:
    """A source that never repeats an image: each step draws training images with replacement and augments them.

    It replaces a training set that is so large that each image is used once. The test set is fixed and not augmented.

    Parameters
    ----------
    images
        Images that were loaded with ``flatten=False``.
    augment
        An augmentation, such as :func:`heavy_augmentation`.
    flatten
        Return rows of pixels, for networks of vectors.

    >>> import jax
    >>> from solvable.networks import load_images
    >>> from solvable.networks.data.augmentation import crops_and_flips, stream_images
    >>> digits = load_images("digits", flatten=False)
    >>> source = stream_images(digits, crops_and_flips(padding=1, flip=False))
    >>> inputs, targets = source.sample(jax.random.key(0), 32)
    >>> inputs.shape, targets.shape
    ((32, 8, 8, 1), (32, 10))
    """
    if images.train_inputs.ndim != 4:
        raise ValueError(
            f"the images of {images.name} have the shape {images.train_inputs.shape[1:]}, but augmentation needs rows, "
            "columns and channels: load them with flatten=False (stream_images has a flatten of its own)"
        )
    test = images.test_inputs.reshape(len(images.test_inputs), -1) if flatten else images.test_inputs
    stream = Stream(jnp.asarray(images.train_inputs), jnp.asarray(images.train_targets), augment, bool(flatten))
    return Fresh(stream, test, images.test_targets)


def _pick(images: Array, rows: Array, columns: Array, fill: Any) -> Array:
    """Pixels of each image by integer rows and columns that broadcast to (n, r, c); outside the image, the filling."""
    count, height, width, channels = images.shape
    index = _inside(rows, height, fill) * width + _inside(columns, width, fill)
    flat = images.reshape(count, height * width, channels)
    picked = jax.vmap(lambda image, pixels: image.at[pixels].get(mode="promise_in_bounds"))(
        flat, index.reshape(count, -1)
    )
    picked = picked.reshape(*index.shape, channels)
    if isinstance(fill, str):
        return picked
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    return jnp.where(inside[..., None], picked, jnp.asarray(fill, images.dtype))


def _inside(index: Array, size: int, fill: Any) -> Array:
    """Indices inside the image: mirrored at the edges, or clipped."""
    if fill != "reflect":
        return jnp.clip(index, 0, size - 1)
    return jnp.abs((index + size - 1) % max(2 * (size - 1), 1) - (size - 1))


def _check_images(images: Array, fill: Any) -> None:
    if images.ndim != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"augmentation takes real images (n, rows, columns, channels), not {images.dtype} of the shape "
            f"{images.shape}: load them with flatten=False, and give a single image as images[None]"
        )
    if isinstance(fill, tuple) and len(fill) not in (1, images.shape[-1]):
        raise ValueError(f"fill has {len(fill)} numbers, but the images {images.shape[-1]} channels: give one for each")


def _check_fill(fill: Any) -> Any:
    if isinstance(fill, str):
        if fill in ("reflect", "edge"):
            return fill
    else:
        values = np.asarray(fill, float)
        if values.ndim <= 1 and values.size and np.all(np.isfinite(values)):
            return float(values) if values.ndim == 0 else tuple(values.tolist())
    raise ValueError(f"fill must be 'reflect', 'edge', a number or one for each channel, not {fill!r}")
