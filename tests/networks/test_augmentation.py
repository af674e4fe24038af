"""Augmentation: what stays, what moves by how much, how often, and that no test image gets in."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from solvable import networks
from solvable.networks.data import load_images
from solvable.networks.data.augmentation import COLOUR, GREY, crops_and_flips, heavy_augmentation, stream_images, warp

KEY = jax.random.key(0)
NOTHING = dict.fromkeys(("rotation", "scale", "shear", "shift", "elastic", "brightness", "contrast", "colour"), 0.0)


def applied(augment, images, key: jax.Array = KEY) -> np.ndarray:
    return np.asarray(jax.jit(augment)(key, images))


def random_images(count: int = 6, size: int = 9, channels: int = 3) -> jax.Array:
    return jax.random.normal(jax.random.key(5), (count, size, size, channels), jnp.float32)


def moves(before: np.ndarray, after: np.ndarray, padding: int, mode: str, **options) -> list[tuple[int, int, bool]]:
    """The shift and the mirroring that made each image, found by trying all of them."""
    margins = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    padded, size = np.pad(before, margins, mode=mode, **options), before.shape[1]
    found = []
    for image, changed in zip(padded, after, strict=True):
        fitting = [
            (row, column, flip)
            for row in range(2 * padding + 1)
            for column in range(2 * padding + 1)
            for flip in (False, True)
            if np.array_equal(image[row : row + size, column : column + size][:, :: -1 if flip else 1], changed)
        ]
        assert len(fitting) == 1
        found += fitting
    return found


# ---- crops and flips


@pytest.mark.parametrize(
    ("fill", "mode", "options"),
    [
        ("reflect", "reflect", {}),
        pytest.param("edge", "edge", {}, marks=pytest.mark.slow),
        pytest.param(-2.0, "constant", {"constant_values": -2.0}, marks=pytest.mark.slow),
    ],
)
def test_crops_are_those_of_a_padded_image(fill, mode: str, options: dict) -> None:
    images = random_images(400, 7)
    after = applied(crops_and_flips(padding=2, fill=fill), images)
    found = moves(np.asarray(images), after, 2, mode, **options)
    rows, columns, flips = np.asarray(found).T
    # Half are mirrored, 200 ± 10, and each of five shifts comes 80 ± 8 times: five deviations, a false alarm in 1e5.
    assert abs(flips.sum() - 200) < 50
    for shift in (rows, columns):
        assert np.abs(np.bincount(shift, minlength=5) - 80).max() < 40


@pytest.mark.slow
def test_a_filling_for_each_channel() -> None:
    images = jnp.zeros((50, 4, 4, 3), jnp.float32)
    after = applied(crops_and_flips(padding=3, fill=(1.0, 2.0, 3.0)), images)
    outside = after[after[..., 0] == 1]
    assert outside.size
    np.testing.assert_array_equal(outside, np.tile([1.0, 2.0, 3.0], (len(outside), 1)))
    assert set(np.unique(after[..., 1])) == {0.0, 2.0}


@pytest.mark.slow
def test_no_padding_and_no_flips_change_nothing() -> None:
    images = random_images()
    np.testing.assert_array_equal(applied(crops_and_flips(padding=0, flip=False), images), images)


@pytest.mark.slow
def test_mirroring_twice_is_nothing() -> None:
    images = random_images(40)
    mirror = partial(jax.jit(crops_and_flips(padding=0)), KEY)
    once = mirror(images)
    np.testing.assert_array_equal(mirror(once), images)
    changed = np.any(np.asarray(once != images), axis=(1, 2, 3))
    assert 0 < changed.sum() < 40
    np.testing.assert_array_equal(np.asarray(once)[changed], np.asarray(images)[changed][:, :, ::-1])


# ---- warps


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])
def test_heavy_without_ranges_changes_nothing(channels: int) -> None:
    images = random_images(channels=channels)
    np.testing.assert_array_equal(applied(heavy_augmentation(**NOTHING, flip=False), images), images)
    mirror = partial(jax.jit(heavy_augmentation(**NOTHING, flip=True)), KEY)
    np.testing.assert_array_equal(mirror(mirror(images)), images)


@pytest.mark.parametrize("shift", [(1, 0), (0, -2), (3, 2)])
def test_whole_pixels_are_a_roll_inside(shift: tuple[int, int]) -> None:
    images = random_images(3)
    grid = jnp.broadcast_to(jnp.arange(9.0, dtype=jnp.float32), (3, 9, 9))
    after = jax.jit(warp)(images, jnp.swapaxes(grid, 1, 2) - shift[0], grid - shift[1])
    rolled = np.roll(np.asarray(images), shift, axis=(1, 2))
    inside = np.s_[:, max(shift[0], 0) : 9 + min(shift[0], 0), max(shift[1], 0) : 9 + min(shift[1], 0)]
    np.testing.assert_array_equal(np.asarray(after)[inside], rolled[inside])


@pytest.mark.slow
def test_between_pixels_a_plane_is_read_exactly() -> None:
    down, across = jnp.meshgrid(jnp.arange(8.0), jnp.arange(8.0), indexing="ij")
    plane = (2 * down - 3 * across + 1)[None, ..., None].astype(jnp.float32)
    rows, columns = jax.random.uniform(KEY, (2, 1, 8, 8), jnp.float32, 0, 7)
    # float32 rounding of numbers up to 35
    np.testing.assert_allclose(jax.jit(warp)(plane, rows, columns)[..., 0], 2 * rows - 3 * columns + 1, atol=2e-5)


def test_a_quarter_turn_is_a_rotation() -> None:
    """The one draw of the angle is read off, so that turn = 90 degrees / draw is a quarter turn."""
    image = random_images(1, 8, 1)
    key = jax.random.key(2)
    for_affine = jax.random.split(jax.random.split(key, 3)[0])[0]
    draw = float(jax.random.uniform(for_affine, (6, 1, 1, 1), jnp.float32, -1, 1)[0, 0, 0, 0])
    assert abs(draw) > 0.5
    turned = applied(heavy_augmentation(**{**NOTHING, "rotation": 90 / abs(draw)}, flip=False), image, key)
    expected = np.rot90(np.asarray(image), k=1 if draw < 0 else -1, axes=(1, 2))
    np.testing.assert_allclose(turned, expected, atol=1e-5)  # coordinates of 32 bits, slopes of a few


@pytest.mark.slow
def test_displacements_are_as_large_everywhere() -> None:
    """Of an image whose value is its column, a warp shows the columns read: mean and spread at every pixel."""
    columns = jnp.broadcast_to(jnp.arange(12.0, dtype=jnp.float32)[:, None], (4000, 12, 12, 1))
    bent = applied(heavy_augmentation(**{**NOTHING, "elastic": 0.05}, flip=False), columns)[..., 0] - np.arange(12.0)
    inside = bent[:, :, 4:8]  # 0.05 * 12 = 0.6 pixels: nothing inside is read from outside the image
    # Spread of a spread of 4000 draws is 1.1 %; six deviations of the worst of 48 pixels, a false alarm in 1e7.
    np.testing.assert_allclose(inside.std(axis=0), 0.6, rtol=0.07)
    assert np.abs(inside.mean(axis=0)).max() < 6 * 0.6 / np.sqrt(4000)
    # Bumps of width h = 11/4, as far apart, correlate like exp(-d^2 / 4h^2); a few bumps are that to some percent.
    together = np.exp(-1 / (4 * (11 / 4) ** 2))
    assert np.diff(inside, axis=2).std() == pytest.approx(0.6 * np.sqrt(2 * (1 - together)), rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value", "spread"), [("shift", 0.2, 0.2 * 30 / np.sqrt(3)), ("scale", 0.3, None)])
def test_ranges_of_the_affine_part(name: str, value: float, spread: float | None) -> None:
    size = 30
    columns = jnp.broadcast_to(jnp.arange(size, dtype=jnp.float32)[:, None], (3000, size, size, 1))
    read = applied(heavy_augmentation(**{**NOTHING, name: value}, flip=False), columns)[:, size // 2, :, 0]
    if name == "shift":
        moved = read[:, 14] - 14
        assert np.abs(moved).max() <= 0.2 * size + 1e-4
        assert moved.std() == pytest.approx(spread, rel=0.05)  # 1 % of 3000 uniform draws: five deviations
    else:
        factors = read[:, 17] - read[:, 16]
        assert 1 / 1.3 - 1e-4 < factors.min() < 1 / 1.29
        assert 1.29 < factors.max() < 1.3 + 1e-4
        assert np.log(factors).mean() == pytest.approx(0, abs=5 * np.log(1.3) / np.sqrt(3 * 3000))


@pytest.mark.slow
def test_brightness_is_about_kept() -> None:
    digits = load_images("digits", flatten=False, size=12).train_inputs
    after = applied(heavy_augmentation(), jnp.asarray(digits))
    # Scaling is even in its logarithm; areas, its squares, have the mean sinh(2 a)/(2 a), a = log 1.15, which is 1.3 %.
    # Ink that is pushed over the edge is lost. The mean of 1,400 images is known to 0.5 %.
    assert after.mean() == pytest.approx(digits.mean(), rel=0.03)
    assert np.corrcoef(after.mean(axis=(1, 2, 3)), digits.mean(axis=(1, 2, 3)))[0, 1] > 0.5


@pytest.mark.slow
def test_colours() -> None:
    images = random_images(2000, 4)
    plain = {**NOTHING, "flip": False}
    mean, spread = images.mean(axis=(1, 2), keepdims=True), images.std(axis=(1, 2, 3), keepdims=True)
    brighter = np.asarray((applied(heavy_augmentation(**{**plain, "brightness": 0.5}), images) - images) / spread)
    np.testing.assert_allclose(brighter, brighter[:, :1, :1, :1] * np.ones((1, 4, 4, 3)), atol=1e-5)
    assert 0.49 < np.abs(brighter).max() <= 0.5 + 1e-5
    tinted = np.asarray((applied(heavy_augmentation(**{**plain, "colour": 0.5}), images) - images) / spread)
    np.testing.assert_allclose(tinted, tinted[:, :1, :1, :] * np.ones((1, 4, 4, 1)), atol=1e-5)
    assert abs(np.corrcoef(tinted[:, 0, 0].T)[0, 1]) < 5 / np.sqrt(2000)  # channels on their own
    contrast = np.asarray(applied(heavy_augmentation(**{**plain, "contrast": 1.0}), images) - mean) / np.asarray(
        images - mean
    )
    assert 0.5 - 1e-2 < np.median(contrast, axis=(1, 2, 3)).min() < 0.51
    assert 1.98 < np.median(contrast, axis=(1, 2, 3)).max() < 2.01


@pytest.mark.slow
def test_cutout_paints_a_square() -> None:
    images = random_images(200, 10)
    after = applied(heavy_augmentation(**NOTHING, flip=False, cutout=0.4), images)
    hole = np.any(after != np.asarray(images), axis=3)
    assert hole.sum(axis=(1, 2)).max() == 16
    assert hole.sum(axis=(1, 2)).min() >= 4  # a quarter of it, about a corner
    painted = np.broadcast_to(np.asarray(images).mean(axis=(1, 2), keepdims=True), after.shape)[hole]
    np.testing.assert_allclose(after[hole], painted, atol=1e-6)


# ---- what all of them keep


@pytest.mark.parametrize(
    "augment",
    [pytest.param(crops_and_flips(2), marks=pytest.mark.slow), heavy_augmentation(cutout=0.2)],
    ids=["crops", "heavy"],
)
@pytest.mark.parametrize("dtype", [pytest.param(jnp.float32, marks=pytest.mark.slow), jnp.bfloat16])
def test_shape_type_and_keys(augment, dtype) -> None:
    images = jnp.tile(random_images(1), (8, 1, 1, 1)).astype(dtype)
    compiled = jax.jit(augment)
    after = compiled(KEY, images)
    assert (after.shape, after.dtype) == (images.shape, images.dtype)
    np.testing.assert_array_equal(after, compiled(KEY, images))
    assert not np.array_equal(after, compiled(jax.random.key(1), images))
    assert len(np.unique(np.asarray(after, np.float32).reshape(8, -1), axis=0)) > 4  # copies of one image, each its own
    assert np.isfinite(np.asarray(after, np.float32)).all()


def test_defaults_follow_the_channels() -> None:
    assert heavy_augmentation(rotation=3.0).options(1) == {**GREY, "rotation": 3.0}
    assert heavy_augmentation(rotation=3.0).options(3) == {**COLOUR, "rotation": 3.0}
    assert not GREY["flip"]
    assert GREY["rotation"] <= 20
    assert heavy_augmentation(rotation=3.0) == heavy_augmentation(rotation=3.0) != heavy_augmentation(rotation=4.0)


# ---- streams


def test_streams_draw_training_images_alone_and_evenly() -> None:
    images = load_images("digits", train=100, flatten=False)
    source = stream_images(images, crops_and_flips(padding=0, flip=False))
    inputs, targets = eqx.filter_jit(source.sample)(KEY, 20_000)
    rows = {image.tobytes(): row for row, image in enumerate(images.train_inputs)}
    assert len(rows) == 100
    # Every image drawn is a training image (with its own target), so none is a test image.
    drawn = np.array([rows[image.tobytes()] for image in np.asarray(inputs)])
    np.testing.assert_array_equal(np.asarray(targets), images.train_targets[drawn])
    # False alarm: once in 1e6 keys.
    assert stats.chisquare(np.bincount(drawn, minlength=100)).pvalue > 1e-6
    np.testing.assert_array_equal(source.test_inputs, images.test_inputs)
    np.testing.assert_array_equal(source.test_targets, images.test_targets)


@pytest.mark.slow
def test_streams_are_new_every_step_and_the_same_for_a_key() -> None:
    images = load_images("digits", train=50, balanced=True, flatten=False)
    source = stream_images(images, heavy_augmentation(), flatten=True)
    sample = eqx.filter_jit(source.sample)
    first, second = (sample(jax.random.key(step), 64) for step in (0, 1))
    assert first[0].shape == (64, 64)
    assert first[0].dtype == jnp.float32
    together = np.concatenate([first[0], second[0]])
    assert len(np.unique(together, axis=0)) == 128  # 50 images, and nothing comes twice
    np.testing.assert_array_equal(first[0], sample(jax.random.key(0), 64)[0])
    assert source.test_inputs.shape == (397, 64)
    assert len(jax.tree.leaves(source.sample)) == 2  # arguments of a program, not constants in it


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_networks_learn_from_a_stream(precision) -> None:
    images = load_images("digits", flatten=False, size=10, standardise=True)
    source = stream_images(images, heavy_augmentation(), flatten=True)
    training = networks.train(
        lambda key: networks.MLP(100, 10, 64, 3, key=key),
        source,
        optax.adam(3e-3),
        steps=600,
        batch_size=64,
        loss="cross-entropy",
        precision=precision,
        seeds=2,
        runs_per_group=1,
    )
    assert (training.curves.test_accuracy[:, -1] > 0.9).all()
    assert (training.curves.train_accuracy[:, -1] > 0.75).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: crops_and_flips(padding=-1), "padding must be a whole number of pixels, 0 or more, not -1"),
        (lambda: crops_and_flips(padding=1.5), "padding must be a whole number"),
        (lambda: crops_and_flips(fill="wrap"), "fill must be 'reflect', 'edge', a number .* not 'wrap'"),
        (lambda: crops_and_flips(fill=np.nan), "fill must be"),
        (lambda: heavy_augmentation(rotation=200), "rotation must be a number from 0 to 180, not 200: 0 leaves it out"),
        (lambda: heavy_augmentation(elastic=-0.1), "elastic must be a number 0 or more, not -0.1"),
        (lambda: heavy_augmentation(scale=float("inf")), "scale must be a number 0 or more, not inf"),
        (
            lambda: heavy_augmentation()(KEY, jnp.zeros((8, 8, 1))),
            r"shape \(8, 8, 1\): load them with flatten=False.*images\[None\]",
        ),
        (lambda: crops_and_flips()(KEY, jnp.zeros((2, 8, 8, 1), jnp.uint8)), "real images .* not uint8"),
        (
            lambda: crops_and_flips(fill=(1.0, 2.0))(KEY, jnp.zeros((2, 8, 8, 3))),
            "fill has 2 numbers, but the images 3 channels",
        ),
        (
            lambda: stream_images(load_images("digits"), heavy_augmentation()),
            r"digits have the shape \(64,\).*flatten=False",
        ),
    ],
)
def test_bad_input(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
