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
        _check_images(images)
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


def _check_images(images: Array) -> None:
    if images.ndim != 4 or not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(
            f"augmentation takes real images (n, rows, columns, channels), not {images.dtype} of the shape "
            f"{images.shape}: load them with flatten=False, and give a single image as images[None]"
        )


def _check_fill(fill: Any) -> Any:
    if isinstance(fill, str):
        if fill in ("reflect", "edge"):
            return fill
    else:
        values = np.asarray(fill, float)
        if values.ndim <= 1 and values.size and np.all(np.isfinite(values)):
            return float(values) if values.ndim == 0 else tuple(values.tolist())
    raise ValueError(f"fill must be 'reflect', 'edge', a number or one for each channel, not {fill!r}")
