"""Changed copies of images that keep their class: crops and flips, warps and colours, and endless streams of them.

An augmentation is a function of (key, images (n, rows, columns, channels)) that gives as many images of the same shape
and type. The draws of an image depend on the key and on its place in the batch alone. All of them are gathers along
one grid of coordinates a batch, so that they cost little within a compiled step.
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
        for_shift, for_flip = jax.random.split(key)
        shift = jax.random.randint(for_shift, (2, count, 1), -self.padding, self.padding + 1, dtype=jnp.int32)
        across = jnp.broadcast_to(jnp.arange(columns, dtype=jnp.int32), (count, columns))
        if self.flip:
            turned = jax.random.bernoulli(for_flip, 0.5, (count, 1))
            across = jnp.where(turned, columns - 1 - across, across)
        return _pick(
            images,
            jnp.arange(rows, dtype=jnp.int32)[:, None] + shift[0, :, None],
            (across + shift[1])[:, None],
            self.fill,
        )


def crops_and_flips(padding: int = 4, flip: bool = True, *, fill: Fill = "reflect") -> Augment:
    """The usual augmentation: each image moved by up to ``padding`` pixels either way, and mirrored half of the time.

    All shifts are equally likely. What comes in from outside is the image mirrored at its edge
    (``fill="reflect"``), its edge repeated (``"edge"``), or a number, or one for each channel: for black around, as
    is common, give ``fill=images.black``.

    >>> import jax
    >>> from solvable.networks.data.augmentation import crops_and_flips
    >>> images = jax.random.normal(jax.random.key(0), (5, 8, 8, 3))
    >>> crops_and_flips(padding=2)(jax.random.key(1), images).shape
    (5, 8, 8, 3)
    """
    if isinstance(padding, bool) or not isinstance(padding, int | np.integer) or padding < 0:
        raise ValueError(f"padding must be a whole number of pixels, 0 or more, not {padding!r}: 4 is common")
    return CropsAndFlips(int(padding), bool(flip), _check_fill(fill))


# What each image set can bear: digits stay readable, so they are not mirrored and little turned.
GREY = {
    "turn": 15.0, "scale": 0.15, "shear": 0.15, "shift": 0.07, "elastic": 0.02, "flip": False,
    "brightness": 0.0, "contrast": 0.0, "colour": 0.0, "cutout": 0.0, "fill": "edge",
}  # fmt: skip
COLOUR = {
    "turn": 10.0, "scale": 0.2, "shear": 0.1, "shift": 0.1, "elastic": 0.01, "flip": True,
    "brightness": 0.4, "contrast": 0.4, "colour": 0.2, "cutout": 0.0, "fill": "reflect",
}  # fmt: skip
# Bumps of displacement along a side: four between the edges, so that strokes bend and do not tear.
_BUMPS = 5


@dataclasses.dataclass(frozen=True)
class Heavy:
    """See :func:`heavy`. Holds what was asked for; the rest comes with the number of channels."""

    asked: tuple[tuple[str, Any], ...]

    def ranges(self, channels: int) -> dict[str, Any]:
        """Every range, for images of so many channels."""
        return {**(COLOUR if channels == 3 else GREY), **dict(self.asked)}

    def __call__(self, key: jax.Array, images: Array) -> Array:
        of = self.ranges(images.shape[-1])
        _check_images(images, of["fill"])
        count, height, width, _ = images.shape
        for_place, for_colour, for_hole = jax.random.split(key, 3)
        rows, columns = _coordinates(for_place, count, (height, width), of)
        changed = _recoloured(for_colour, warp(images.astype(jnp.float32), rows, columns, of["fill"]), of)
        if of["cutout"]:
            changed = _with_hole(for_hole, changed, of["cutout"])
        return changed.astype(images.dtype)


def heavy(
    *,
    turn: float | None = None,
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
    """Strong augmentation: every image turned, scaled, sheared, moved and bent; colour images also change colours.

    What is left out depends on the channels: three are colour images like CIFAR-10, others grey ones like MNIST.

    ==============  ======  =======  ====================================================================
    range           grey    colour   drawn uniformly for each image
    ==============  ======  =======  ====================================================================
    ``turn``        15      10       degrees, either way
    ``scale``       0.15    0.2      factor between 1/(1 + scale) and 1 + scale, uniform in its logarithm
    ``shear``       0.15    0.1      columns move by up to this for each row, either way
    ``shift``       0.07    0.1      share of the image's side, each way, rows and columns
    ``elastic``     0.02    0.01     smooth random displacement, its standard deviation as share of the side
    ``flip``        no      yes      mirrored left to right half of the time
    ``brightness``  0       0.4      added, in standard deviations of the image
    ``contrast``    0       0.4      factor on what differs from the image's mean, like ``scale``
    ``colour``      0       0.2      added to each channel on its own, in standard deviations of the image
    ``cutout``      0       0        side of a square painted over with the image's mean, share of the side
    ``fill``        edge    reflect  what comes in from outside, as in :func:`crops_and_flips`
    ==============  ======  =======  ====================================================================

    Pixels between pixels are read by bilinear interpolation, in float32 whatever the type of the images.

    >>> import jax
    >>> from solvable.networks.data.augmentation import heavy
    >>> images = jax.random.normal(jax.random.key(0), (5, 28, 28, 1))
    >>> heavy(turn=10.0)(jax.random.key(1), images).shape
    (5, 28, 28, 1)
    """
    given = {
        "turn": turn, "scale": scale, "shear": shear, "shift": shift, "elastic": elastic,
        "brightness": brightness, "contrast": contrast, "colour": colour, "cutout": cutout,
    }  # fmt: skip
    asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    largest = {"turn": 180.0, "cutout": 1.0, "shift": 1.0}
    for name, value in asked.items():
        limit = largest.get(name, np.inf)
        if not (np.isfinite(value) and 0 <= value <= limit):
            rule = f"from 0 to {limit:g}" if np.isfinite(limit) else "0 or more"
            raise ValueError(f"{name} must be a number {rule}, not {value!r}: 0 leaves it out, None takes the default")
    asked = {name: float(value) for name, value in asked.items()}
    if flip is not None:
        asked["flip"] = bool(flip)
    if fill is not None:
        asked["fill"] = _check_fill(fill)
    return Heavy(tuple(asked.items()))


def _coordinates(key: jax.Array, count: int, size: tuple[int, int], of: dict[str, Any]) -> tuple[Array, Array]:
    """Where each pixel is read: rows and columns, real numbers, (n, rows, columns) each."""
    height, width = size
    for_affine, for_bumps = jax.random.split(key)
    draws = jax.random.uniform(for_affine, (6, count, 1, 1), jnp.float32, -1, 1)
    angle = draws[0] * float(np.deg2rad(of["turn"]))
    factor = jnp.exp(draws[1] * float(np.log1p(of["scale"])))
    down, across = (jnp.arange(side, dtype=jnp.float32) - (side - 1) / 2 for side in size)
    down, across = down[None, :, None], across[None, None, :]
    if of["flip"]:
        across = jnp.where(draws[5] < 0, -across, across)
    across = across + draws[2] * of["shear"] * down
    rows = factor * (jnp.cos(angle) * down - jnp.sin(angle) * across) + (height - 1) / 2
    columns = factor * (jnp.sin(angle) * down + jnp.cos(angle) * across) + (width - 1) / 2
    rows = rows + draws[3] * of["shift"] * height
    columns = columns + draws[4] * of["shift"] * width
    if of["elastic"]:
        bumps = jax.random.normal(for_bumps, (2, count, _BUMPS, _BUMPS), jnp.float32)
        bent = jnp.einsum("rk,dnkl,cl->dnrc", _bumps(height), bumps, _bumps(width), precision="highest")
        rows = rows + of["elastic"] * height * bent[0]
        columns = columns + of["elastic"] * width * bent[1]
    return rows, columns


def _bumps(side: int) -> Array:
    """Gaussian bumps along a side, (pixels, bumps); squares sum to one, so displacements are as large everywhere."""
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


def _recoloured(key: jax.Array, images: Array, of: dict[str, Any]) -> Array:
    count, channels = images.shape[0], images.shape[-1]
    if not (of["brightness"] or of["contrast"] or of["colour"]):
        return images
    for_all, for_channels = jax.random.split(key)
    draws = jax.random.uniform(for_all, (2, count, 1, 1, 1), jnp.float32, -1, 1)
    own = jax.random.uniform(for_channels, (count, 1, 1, channels), jnp.float32, -1, 1)
    mean = jnp.mean(images, axis=(1, 2), keepdims=True)
    spread = jnp.std(images, axis=(1, 2, 3), keepdims=True)
    factor = jnp.exp(draws[0] * float(np.log1p(of["contrast"])))
    return mean + factor * (images - mean) + spread * (of["brightness"] * draws[1] + of["colour"] * own)


def _with_hole(key: jax.Array, images: Array, share: float) -> Array:
    """A square about a random pixel painted over with the mean of the image; part of it may lie outside."""
    count, height, width, _ = images.shape
    centre = jax.random.uniform(key, (2, count, 1), jnp.float32)
    down, across = (
        jnp.abs(jnp.arange(side, dtype=jnp.float32) - centre[axis] * (side - 1)) < share * side / 2
        for axis, side in enumerate((height, width))
    )
    hole = (down[:, :, None] & across[:, None, :])[..., None]
    return jnp.where(hole, jnp.mean(images, axis=(1, 2), keepdims=True), images)


class Stream(eqx.Module):
    """Batches of augmented images for :class:`solvable.networks.Fresh`; see :func:`streamed`.

    The images are arrays of this module, so that they are arguments of a compiled program and not constants in it.
    """

    inputs: Array
    targets: Array
    augment: Augment = eqx.field(static=True)
    flatten: bool = eqx.field(static=True)

    def __call__(self, key: jax.Array, count: int) -> tuple[Array, Array]:
        for_rows, for_images = jax.random.split(key)
        rows = jax.random.randint(for_rows, (count,), 0, self.inputs.shape[0])
        inputs = self.augment(for_images, self.inputs[rows])
        return (inputs.reshape(count, -1) if self.flatten else inputs), self.targets[rows]


def streamed(images: Images, augment: Augment, *, flatten: bool = False) -> Fresh:
    """A source that never repeats an image: each step draws training images with replacement and augments them anew.

    This stands in for a set so large that it is gone through once. The test set is fixed and left as it is. Load the
    images with ``flatten=False``; for networks that want a row of pixels, ``flatten=True`` here lays them out after
    they were changed.

    >>> import jax
    >>> from solvable.networks import load_images
    >>> from solvable.networks.data.augmentation import crops_and_flips, streamed
    >>> digits = load_images("digits", flatten=False)
    >>> source = streamed(digits, crops_and_flips(padding=1, flip=False))
    >>> inputs, targets = source.sample(jax.random.key(0), 32)
    >>> inputs.shape, targets.shape
    ((32, 8, 8, 1), (32, 10))
    """
    if images.train_inputs.ndim != 4:
        raise ValueError(
            f"the images of {images.name} have the shape {images.train_inputs.shape[1:]}, but augmentation needs rows, "
            "columns and channels: load them with flatten=False (and give streamed flatten=True for rows of pixels)"
        )
    test = images.test_inputs.reshape(len(images.test_inputs), -1) if flatten else images.test_inputs
    stream = Stream(jnp.asarray(images.train_inputs), jnp.asarray(images.train_targets), augment, bool(flatten))
    return Fresh(stream, test, images.test_targets)


def _pick(images: Array, rows: Array, columns: Array, fill: Any) -> Array:
    """Pixels of each image by integer rows and columns, (n, r, c) or what broadcasts to it; outside, the filling."""
    count, height, width, channels = images.shape
    place = _inside(rows, height, fill) * width + _inside(columns, width, fill)
    shape = place.shape[1:]
    flat = images.reshape(count, height * width, channels)
    picked = jax.vmap(lambda image, index: image.at[index].get(mode="promise_in_bounds"))(
        flat, place.reshape(count, -1)
    )
    picked = picked.reshape(count, *shape, channels)
    if isinstance(fill, str):
        return picked
    known = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    return jnp.where(known[..., None], picked, jnp.asarray(fill, images.dtype))


def _inside(index: Array, size: int, fill: Any) -> Array:
    """The pixel that stands for one outside: mirrored at the edges, or the nearest."""
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
