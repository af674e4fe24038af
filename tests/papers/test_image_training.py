"""Image networks of the thesis: what is measured along their training, and how they are trained."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

import solvable.equinox
from solvable import diagnostics, networks
from solvable.networks import one_set
from solvable.papers.layerwise import _image_store as store
from solvable.papers.layerwise import _image_training as images
from solvable.papers.layerwise._image_training import DROP, DROPS, Experiment

POINTS = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
LABELS = np.arange(60) % 3
# One of its neurons is dead, so that there is a feature beyond the rank.
NETWORK = eqx.tree_at(
    lambda network: network.layers[0].weight,
    networks.MLP(6, 3, width=8, depth=2, key=jax.random.key(0)),
    replace_fn=lambda weight: weight.at[3].set(0),
)
ROWS = jnp.eye(3, dtype=jnp.float32)[LABELS]
DATA = networks.Fixed(POINTS[:40], ROWS[:40], POINTS[40:], ROWS[40:])


@pytest.mark.parametrize("accelerator", [False, True])
@pytest.mark.parametrize("piece", [1000, 7])
def test_a_record_is_what_the_diagnostics_say(piece: int, accelerator: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the points pass at once or in pieces, the last of which is shorter; summed by NumPy or by the device."""
    if accelerator:
        monkeypatch.setattr(one_set, "library_of", lambda array: "jax")
    monkeypatch.setattr(one_set, "BATCH_SIZE", piece)
    found = networks.feature_record(loss="cross-entropy")(NETWORK, DATA, None)
    train, test = (POINTS[:40], LABELS[:40]), (POINTS[40:], LABELS[40:])
    report = solvable.equinox.diagnose(NETWORK, train, test, progress=False)
    assert report.rank == 7
    for name in ("intensity", "quality", "utilisation", "cumulative_quality", "cumulative_utilisation"):
        np.testing.assert_allclose(found[name][: report.rank], getattr(report, name), rtol=1e-6, atol=1e-9)
        assert np.isnan(found[name][report.rank :]).all()
        assert found[name].size == 8
    for name in ("mp_distance", "constant_overlap"):
        assert found[name] == pytest.approx(getattr(report, name), rel=1e-6)
    for name, value in report.effective_dimensions.items():
        assert found[f"effective_dimension_{name}"] == pytest.approx(value, rel=1e-6)
    collapse = solvable.equinox.collapse(NETWORK, train, progress=False)
    for name in ("within_class", "mean_norms", "mean_angles", "weight_norms", "weight_angles", "self_duality"):
        assert found[name] == pytest.approx(getattr(collapse, name), rel=1e-5)
    assert found["nearest_class"] == collapse.nearest_class > 0
    outputs = np.asarray(jax.vmap(NETWORK)(POINTS), float)
    logs = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
    assert found["test_loss"] == pytest.approx(-logs[np.arange(40, 60), LABELS[40:]].mean(), rel=1e-5)
    assert found["train_accuracy"] == pytest.approx((outputs[:40].argmax(1) == LABELS[:40]).mean())


def test_a_record_of_some_points_of_numbers_and_of_streams() -> None:
    found = networks.feature_record(20, last_layer=lambda network: network.layers[-1])(NETWORK, DATA, None)
    outputs = np.asarray(jax.vmap(NETWORK)(POINTS[:20]), float)
    assert found["train_loss"] == pytest.approx(np.mean((outputs - np.eye(3)[LABELS[:20]]) ** 2), rel=1e-5)
    number = networks.MLP(6, 1, width=8, depth=2, key=jax.random.key(1))
    numbers = networks.Fixed(POINTS, POINTS[:, :1])
    found = networks.feature_record()(number, numbers, None)
    assert "within_class" not in found
    assert found["target_rank"] == 1
    assert found["train_loss"] == found["test_loss"]  # without a test set both are the training set
    with pytest.raises(ValueError, match="need a fixed training set"):
        networks.feature_record()(number, networks.Fresh(lambda key, count: (key, key)), None)


def test_equal_batch_size() -> None:
    from solvable.networks.sources import equal_batch_size

    assert equal_batch_size(50_000, 4096) == 3125
    assert equal_batch_size(7, 1000) == 7
    assert equal_batch_size(1009, 1000) == 1000  # a prime: the last piece is shorter
    for count, most in ((397, 100), (1400, 1000), (60_000, 1000)):
        piece = equal_batch_size(count, most)
        assert piece <= most
        assert count % piece == 0 or piece == most


@pytest.mark.parametrize("schedule", ["thesis", "cosine", "constant", "held"])
def test_rates_along_a_training(schedule: str) -> None:
    """The step of plain descent (no momentum, gradient one) is the rate."""
    length, rate, warmup = 100, 0.5, 4
    experiment = Experiment(schedule=schedule, warmup=warmup, momentum=0.0)
    optimiser = images.optimiser_of(experiment, jnp.float32(rate), jnp.float32(0), jnp.float32(length))
    weights = jnp.zeros(2, jnp.float32)
    state, taken = optimiser.init(weights), []
    for _ in range(length):
        step, state = optimiser.update(jnp.ones(2, jnp.float32), state, weights)
        taken.append(-float(step[0]))
    share = np.arange(length, dtype=np.float32) / np.float32(length)
    expected = {
        "held": np.minimum(1, (1 - share) / 0.2),
        "thesis": DROP ** np.sum([share >= np.float32(drop) for drop in DROPS], axis=0),
        "cosine": (1 + np.cos(np.pi * share)) / 2,
        "constant": np.ones(length),
    }[schedule]
    rising = np.minimum(1, (np.arange(length) + 1) / warmup)
    np.testing.assert_allclose(taken, rate * expected * rising, rtol=2e-5, atol=1e-6)


def test_momentum_and_decay_are_those_of_pytorch() -> None:
    """v = m v + g + decay w; w -= rate v, by hand for two steps."""
    experiment = Experiment(schedule="constant")
    optimiser = images.optimiser_of(experiment, jnp.float32(0.1), jnp.float32(0.2), jnp.float32(10))
    weight = jnp.float32(1.0)
    state, hand, velocity = optimiser.init(weight), 1.0, 0.0
    for gradient in (0.3, -0.5):
        step, state = optimiser.update(jnp.float32(gradient), state, weight)
        weight = optax.apply_updates(weight, step)
        velocity = 0.9 * velocity + gradient + 0.2 * hand
        hand -= 0.1 * velocity
    assert float(weight) == pytest.approx(hand, rel=1e-6)


def test_only_the_last_layer_moves_where_that_is_asked() -> None:
    experiment = Experiment(last_layer_only=True, schedule="constant")
    optimiser = images.optimiser_of(experiment, jnp.float32(0.1), jnp.float32(0.2), jnp.float32(10))
    weights = eqx.filter(NETWORK, eqx.is_inexact_array)
    step, _ = optimiser.update(weights, optimiser.init(weights), weights)
    assert not np.any(step.layers[0].weight)
    assert np.any(step.layers[-1].weight)


def test_a_small_set_is_repeated_to_the_size_of_the_whole() -> None:
    experiment = Experiment("cnn-small", "digits", train=200, classes=5)
    loaded = images.load_experiment(experiment)
    data, own = images.training_set(loaded, experiment)
    whole = networks.load_images("digits").train_inputs.shape[0] // 2
    assert own == 200
    assert data.size == whole // 200 * 200
    np.testing.assert_array_equal(data.inputs[:200], data.inputs[200:400])
    assert data.targets.shape[1] == 5
    batch = data.inputs[:8]
    np.testing.assert_array_equal(data.augment(jax.random.key(0), batch), batch)  # not augmented: as they are
    crops, _ = images.training_set(loaded, experiment._replace(augmented=True))
    assert np.any(np.asarray(crops.augment(jax.random.key(0), batch)) != np.asarray(batch))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "resnet17"}, "network must be one of resnet18, .*not 'resnet17'"),
        ({"network": "fcn-small", "augmented": True}, "takes rows of pixels, which cannot be cropped"),
    ],
)
def test_experiments_that_cannot_be(change: dict, message: str) -> None:
    experiment = Experiment("cnn-small", "digits")._replace(**change)
    with pytest.raises(ValueError, match=message):
        images.training_set(images.load_experiment(experiment), experiment)
    with pytest.raises(ValueError, match="schedule must be thesis"):
        images.optimiser_of(Experiment(schedule="sine"), 0.1, 0.0, 1.0).update(
            jnp.ones(1),
            images.optimiser_of(Experiment(schedule="constant"), 0.1, 0.0, 1.0).init(jnp.ones(1)),
            jnp.ones(1),
        )


def test_long_trainings_are_kept_and_short_ones_are_not(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOLVABLE_DATA", str(tmp_path))
    made = []

    def make(seconds: float):
        def go() -> xr.Dataset:
            made.append(seconds)
            return xr.Dataset({"value": ("step", [float(len(made))])}, attrs={"seconds": seconds})

        return go

    setting = Experiment()
    for _ in range(2):
        store.stored(setting, make(1.0))
    assert len(made) == 2
    first = store.stored(setting, make(100.0))
    assert store.stored(setting, make(100.0)).identical(first)
    assert len(made) == 3
    store.stored(setting._replace(rate=0.2), make(100.0))
    assert len(made) == 4
    # What cannot be read is said and trained anew; what other code made is not taken.
    for file in (tmp_path / "trainings").iterdir():
        file.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="trained anew"):
        store.stored(setting, make(100.0))
    monkeypatch.setattr(store, "_code", lambda: "other")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.stored(setting, make(100.0))
    assert len(made) == 6


@pytest.mark.slow
def test_a_training_is_measured_on_few_points_on_the_way_and_on_all_at_the_end() -> None:
    experiment = Experiment(
        "fcn-small", "digits", train=100, steps=40, batch=20, seeds=2, measured=(20,), points=80, loss="mse", rate=0.1
    )
    data = images._train(experiment)
    assert dict(data.mp_distance.sizes) == {"seed": 2, "step": 3}
    np.testing.assert_array_equal(data.epoch, [0, 4, 8])
    loaded = images.load_experiment(experiment)
    network = images.new_network(experiment, loaded, jax.random.split(jax.random.fold_in(jax.random.key(0), 1), 3)[0])
    outputs = jax.vmap(network)(loaded.train_inputs[:80])
    # Accuracies of 80 and of 100 images: the second seed before training, and what fractions there can be.
    truth = np.mean(np.argmax(outputs, 1) == loaded.train_labels[:80])
    assert float(data.train_accuracy[1, 0]) == pytest.approx(truth)
    assert float(data.train_accuracy[1, 2] * 100) == pytest.approx(round(float(data.train_accuracy[1, 2] * 100)))
    assert (data.train_loss[:, -1] < data.train_loss[:, 0]).all()


@pytest.mark.slow
def test_a_regression_counts_outputs_nearer_to_their_number_than_to_others() -> None:
    experiment = Experiment(
        "fcn-small", "digits", targets="number", loss="mse", steps=400, batch=50, seeds=1, rate=0.05, train=500
    )
    data = images._train(experiment)
    assert "within_class" not in data
    assert 0 < float(data.train_accuracy[0, 0]) < 0.4 < float(data.train_accuracy[0, -1]) <= 1
    assert float(data.target_rank[0, -1]) == 1


def test_collapse_names_a_class_without_samples() -> None:
    gathered = diagnostics.FeatureStatistics(classes=3).update(POINTS[:10], POINTS[:10, :3], np.zeros(10, int))
    with pytest.raises(ValueError, match="class 1 has no sample"):
        diagnostics.collapse(gathered, np.ones((3, 6)))
