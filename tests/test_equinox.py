"""solvable.equinox: a network is its body and its last linear layer, found, told or refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable.equinox
from solvable import diagnostics


def network(classes: int = 3) -> eqx.nn.MLP:
    return eqx.nn.MLP(4, classes, 12, depth=2, key=jax.random.key(0))


def data(count: int = 60, classes: int = 3, key: int = 1) -> tuple:
    inputs, labels = jax.random.split(jax.random.key(key))
    return jax.random.normal(inputs, (count, 4)), jax.random.randint(labels, (count,), 0, classes)


def by_hand(model: eqx.nn.MLP, pair: tuple) -> tuple:
    hidden = pair[0]
    for layer in model.layers[:-1]:
        hidden = jax.nn.relu(jax.vmap(layer)(hidden))
    return np.asarray(hidden), np.asarray(jax.vmap(model.layers[-1])(hidden)), np.asarray(pair[1])


def test_report_is_that_of_the_arrays_however_they_are_cut() -> None:
    model, train, test = network(), data(), data(key=2)
    expected = diagnostics.features(by_hand(model, train), by_hand(model, test))
    cut = [(train[0][i : i + 25], train[1][i : i + 25]) for i in range(0, 60, 25)]
    for given in (train, cut):
        report = solvable.equinox.diagnose(model, given, test)
        np.testing.assert_allclose(report.intensity, expected.intensity, rtol=1e-10)
        np.testing.assert_allclose(report.mp_distance, expected.mp_distance, rtol=1e-10)


def test_the_layer_found_is_the_last_to_run_not_the_last_in_the_tree() -> None:
    class Backwards(eqx.Module):
        head: eqx.nn.Linear
        body: eqx.nn.Linear

        def __call__(self, x: jax.Array) -> jax.Array:
            return self.head(jax.nn.relu(self.body(x)))

    one, two = jax.random.split(jax.random.key(0))
    model = Backwards(eqx.nn.Linear(4, 4, key=one), eqx.nn.Linear(4, 4, key=two))
    pair = data(classes=4)
    statistics = solvable.equinox.statistics(model, pair)
    hidden = jax.nn.relu(jax.vmap(model.body)(pair[0]))
    expected = diagnostics.FeatureStatistics(classes=4).update(hidden, jax.vmap(model.head)(hidden), pair[1])
    np.testing.assert_allclose(
        diagnostics.features(statistics, statistics).intensity,
        diagnostics.features(expected, expected).intensity,
        rtol=1e-10,
    )


def test_dropout_is_off_and_state_goes_through_apply() -> None:
    class WithState(eqx.Module):
        norm: eqx.nn.BatchNorm
        head: eqx.nn.Linear

        def __call__(self, x: jax.Array, state: eqx.nn.State) -> jax.Array:
            return self.head(self.norm(x, state)[0])

    norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="batch")
    model = WithState(norm, eqx.nn.Linear(4, 3, key=jax.random.key(0)))
    state = eqx.nn.State(model)
    report = solvable.equinox.diagnose(
        model, data(), data(), apply=lambda model, x: jax.vmap(model, axis_name="batch", in_axes=(0, None))(x, state)
    )
    assert report.classes == 3
    dropped = eqx.nn.Sequential([eqx.nn.Dropout(0.5), eqx.nn.Linear(4, 3, key=jax.random.key(0))])
    plain = eqx.nn.Sequential([eqx.nn.Identity(), dropped[1]])
    one, two = (solvable.equinox.diagnose(model, data(), data()) for model in (dropped, plain))
    np.testing.assert_array_equal(one.intensity, two.intensity)


def test_collapse_and_tracker() -> None:
    model, pair = network(), data(90)
    report = solvable.equinox.collapse(model, pair)
    features, outputs, labels = by_hand(model, pair)
    statistics = diagnostics.FeatureStatistics(classes=3).update(features, outputs, labels)
    layer = model.layers[-1]
    expected = diagnostics.collapse(statistics, layer.weight, layer.bias, batches=[(features, outputs, labels)])
    for name in ("within_class", "mean_norms", "mean_angles", "self_duality", "nearest_class"):
        assert getattr(report, name) == pytest.approx(getattr(expected, name), rel=1e-9), name
    tracker = solvable.equinox.Tracker(pair, data(key=2), collapse=True)
    tracker(model, 0)
    tracker(eqx.tree_at(lambda m: m.layers[0].weight, model, replace_fn=lambda w: 3 * w), 5, test_loss=0.2)
    history = tracker.history
    assert list(history["epoch"]) == [0, 5]
    assert np.isnan(history["test_loss"].values[0])
    assert history["within_class"].values[0] == pytest.approx(expected.within_class, rel=1e-9)
    assert history["intensity"].values[0, 0] != history["intensity"].values[1, 0]


def test_bad_input() -> None:
    softmax = eqx.nn.Sequential([eqx.nn.Linear(4, 3, key=jax.random.key(0)), eqx.nn.Lambda(jax.nn.softmax)])
    with pytest.raises(ValueError, match=r"Sequential does not end in an equinox.nn.Linear: .* softmax"):
        solvable.equinox.diagnose(softmax, data(), data())
    with pytest.raises(ValueError, match="4 to 12.* is not the last step of MLP"):
        solvable.equinox.diagnose(network(), data(), data(), lambda model: model.layers[0])
    with pytest.raises(ValueError, match="must pick an equinox.nn.Linear, not tuple"):
        solvable.equinox.diagnose(network(), data(), data(), lambda model: model.layers)
    with pytest.raises(ValueError, match="60 inputs but 59 targets"):
        solvable.equinox.diagnose(network(), (data()[0], data()[1][1:]), data())
    with pytest.raises(ValueError, match="an iterator that runs out"):
        solvable.equinox.collapse(network(), iter([data()]))
    with pytest.raises(ValueError, match="test set is empty"):
        solvable.equinox.diagnose(network(), data(), [])
    with pytest.raises(ValueError, match="batch"):
        solvable.equinox.diagnose(network(), (jnp.full((5, 4), jnp.nan), jnp.zeros(5, int)), data())


def test_the_start_tells_lazy_from_rich() -> None:
    """Only the last layer moved: the network is linear in it, so that training was lazy by its distance."""
    start, pair = network(), data()
    linear = eqx.tree_at(lambda own: own.layers[-1].weight, start, start.layers[-1].weight + 0.01)
    report = solvable.equinox.diagnose(linear, pair, pair, initial=start)
    assert report.training.distance < 1e-3
    assert report.training.inputs == 60
    moved = jax.tree.map(lambda leaf: 3 * leaf if eqx.is_array(leaf) else leaf, start)
    report = solvable.equinox.diagnose(moved, list(pair), pair, initial=start)
    assert report.training_regime == "rich"
    assert "training regime                          rich" in report.summary()
    own_way = solvable.equinox.diagnose(
        moved, pair, pair, initial=start, apply=lambda model, inputs: jax.vmap(model)(inputs)
    )
    assert own_way.training.distance == pytest.approx(report.training.distance, rel=1e-4)
    assert solvable.equinox.diagnose(moved, pair, pair).training_regime is None
