"""Training of many networks: against a loop written by hand, against theory, killed and resumed, diverging."""

import os
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import solvable.networks as networks
from solvable.networks import compilation
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.convolutional.resnet import ResNet18
from solvable.networks.data.augmentation import crops_and_flips
from solvable.networks.losses import sample_loss
from solvable.networks.program import Recipe, advance, initialise

POINTS = np.linspace(-1, 1, 16)[:, None]
DATA = networks.Fixed(POINTS, POINTS**2, POINTS[:5], POINTS[:5] ** 2)


def linear(key, **_):
    return networks.MLP(1, 1, 1, 1, key=key, dtype=jnp.float64)


def small(key, **_):
    return networks.MLP(1, 1, 8, 2, key=key, activation="tanh")


def test_gradient_descent_on_a_line_is_the_closed_form():
    """f = w x + b on a grid symmetric about zero: w and b relax geometrically, each with its own rate."""
    rate, steps = 0.1, 40
    data = networks.Fixed(POINTS, 3 * POINTS + 1)
    training = networks.train(
        linear,
        data,
        optax.sgd(rate),
        steps=steps,
        loss="half-mse",
        precision="float64",
        seeds=2,
        measure_at=range(steps + 1),
    )
    second = np.mean(POINTS**2)
    for seed in range(2):
        layer = training.network(seed, step=steps).layers[0]
        # The start from the end: both errors shrink by known factors.
        slope = (float(layer.weight[0, 0]) - 3) / (1 - rate * second) ** steps
        offset = (float(layer.bias[0]) - 1) / (1 - rate) ** steps
        time = np.arange(steps + 1)
        expected = 0.5 * (second * (slope * (1 - rate * second) ** time) ** 2 + (offset * (1 - rate) ** time) ** 2)
        np.testing.assert_allclose(training.curves.train_loss[seed], expected, rtol=1e-10)
    assert training.curves.attrs["precision"] == "float64"
    # Different seeds are different draws.
    assert abs(float(training.curves.train_loss[0, 0] - training.curves.train_loss[1, 0])) > 1e-3


def test_a_hand_written_loop_with_minibatches_and_adam_gives_the_same():
    """The batches of an epoch are those of its permutation, and each point comes once."""
    steps, batch, key = 8, 5, 3
    training = networks.train(
        small, DATA, optax.adam(0.1), steps=steps, batch_size=batch, key=key, measure_at=[0, steps]
    )
    network_key, _, step_key = jax.random.split(jax.random.fold_in(jax.random.key(key), 0), 3)
    network, optimiser = small(network_key), optax.adam(0.1)
    inputs, targets = (jnp.asarray(array, jnp.float32) for array in (DATA.inputs, DATA.targets))
    trained, rest = eqx.partition(network, networks.trainable(network))
    state = optimiser.init(trained)

    def loss(trained, rows):
        outputs = jax.vmap(eqx.combine(trained, rest))(inputs[rows])
        return jnp.mean((outputs - targets[rows]) ** 2)

    @jax.jit
    def advance(trained, state, rows):
        updates, state = optimiser.update(jax.grad(loss)(trained, rows), state, trained)
        return optax.apply_updates(trained, updates), state

    for step in range(steps):
        epoch, place = divmod(step, 16 // batch)
        order = jax.random.permutation(jax.random.fold_in(jax.random.fold_in(step_key, 0), epoch), 16)
        trained, state = advance(trained, state, order[place * batch : (place + 1) * batch])
    np.testing.assert_allclose(
        np.asarray(training.network().layers[0].weight), np.asarray(trained.layers[0].weight), rtol=2e-5
    )
    expected = np.mean((np.asarray(jax.vmap(eqx.combine(trained, rest))(inputs)) - DATA.targets) ** 2)
    assert float(training.curves.train_loss[0, -1]) == pytest.approx(float(expected), rel=1e-5)


def test_variants_and_groups_do_not_touch_each_other(tmp_path):
    """A run is the same alone, beside others and in another group; all seeds draw the same in every variant."""

    def data(key, count, rate):
        inputs = jax.random.uniform(key, (12, 1), jnp.float32)
        return networks.Fixed(inputs, inputs**2, count=count)

    def sgd(count, rate):
        return optax.sgd(rate)

    settings = {"steps": 6, "batch_size": 4, "seeds": 2, "measure_at": [0, 3, 6], "snapshots_at": [3]}
    lists = {"count": [3, 12], "rate": [0.1, 0.3]}
    both = networks.train(small, data, sgd, variants=lists, **settings)
    split = networks.train(small, data, sgd, variants=lists, runs_per_group=3, checkpoint=tmp_path / "run", **settings)
    np.testing.assert_allclose(both.curves.train_loss, split.curves.train_loss, rtol=1e-6)
    # The second group has one run, which is trained alone.
    assert both.curves.train_loss.dims == ("variant", "seed", "time")
    assert list(both.curves.rate.values) == [0.1, 0.3]
    for training in (both, split):
        assert training.data(1, 1).inputs.shape == (12, 1)
        np.testing.assert_allclose(
            np.asarray(training.network(1, 1, step=3).layers[0].weight),
            np.asarray(both.network(1, 1, step=3).layers[0].weight),
            rtol=1e-6,
        )
    with pytest.raises(IndexError, match="no seed 2 of variant 0: there are 2 seeds of 2 variants"):
        both.network(2)
    with pytest.raises(ValueError, match=r"saved at the steps \[3, 6\], not at 4"):
        both.network(step=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.0.npz", "run.1.npz"]
    # Only counted points are trained on and measured: with three, the loss is that of three.
    first = both.data(0, 0)
    outputs = jax.vmap(both.network(0, 0))(first.inputs)
    assert float(both.curves.train_loss[0, 0, -1]) == pytest.approx(
        float(jnp.mean((outputs - first.targets)[:3] ** 2)), rel=1e-5
    )


def test_parts_of_a_batch_add_up():
    recipe = Recipe(small, DATA, optax.sgd(0.1), 16, 1, sample_loss("mse"), jnp.float32, None, {}, 1e6)
    keys = jax.random.key(0)[None]
    found = []
    for parts in (1, 4):
        state, runs = initialise(recipe)(keys, {})
        step = jnp.asarray(0, jnp.int32)
        step_of = jax.jit(advance(recipe._replace(gradient_accumulation_steps=parts), runs))
        found.append(step_of(state, eqx.filter(runs, eqx.is_array), step, step + 2).parameters.layers[0].weight)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


class Counting(eqx.Module):
    """A linear network that divides its outputs by a running mean of the inputs' sizes, and counts its batches."""

    weight: jax.Array
    size: networks.Running
    batches: networks.Running

    def training_forward(self, inputs):
        size = jnp.mean(jnp.abs(inputs.astype(jnp.float32)))
        kept = 0.5 * self.size.held + 0.5 * jax.lax.stop_gradient(size)
        new = eqx.tree_at(lambda tree: (tree.size.value, tree.batches.value), self, (kept, self.batches.value + 1.0))
        return (inputs @ self.weight) / size.astype(inputs.dtype), new

    def __call__(self, x):
        return (x @ self.weight) / self.size.held


def counting(key):
    weight = jnp.ones((1, 1), jnp.float32)
    return Counting(weight, networks.Running(jnp.float32(1.0)), networks.Running(jnp.float32(0.0)))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_running_values_are_carried_along_and_augmentation_is_for_training_only(precision, tmp_path):
    inputs = np.full((8, 1), 2.0, np.float32)
    seen = []

    def doubled(key, batch):
        seen.append((batch.shape, batch.dtype))
        return 2 * batch

    data = networks.Fixed(inputs, np.ones((8, 1), np.float32), augment=doubled)
    options = {"steps": 4, "batch_size": 4, "seeds": 2, "runs_per_group": 1, "measure_at": [0, 4], "snapshots_at": [1]}
    options["precision"] = precision
    training = networks.train(counting, data, optax.sgd(0.1), checkpoint=tmp_path / "run", **options)
    assert set(seen) == {((4, 1), jnp.dtype("float32"))}
    # Batches are of size 4 after doubling: 1 -> 2.5 -> 3.25 -> 3.625 -> 3.8125, whatever the precision of the step.
    for step, size in ((1, 2.5), (4, 3.8125)):
        network = training.network(1, step=step)
        assert (float(network.size.value), float(network.batches.value)) == (size, step)
        assert network.size.value.dtype == network.weight.dtype == jnp.float32
    # Outputs in training are the weight itself, here trained with loss (w - 1)^2 from 1: it stays. What is measured
    # is the network with its running size on the inputs as they are, 2 / 1 at first.
    np.testing.assert_allclose(training.curves.train_loss[:, 0], (2 / 1 - 1) ** 2, rtol=1e-6)
    np.testing.assert_allclose(training.curves.train_loss[:, -1], (2 / 3.8125 - 1) ** 2, rtol=1e-5)
    # Resumed from the end: the same, running values included.
    again = networks.train(counting, data, optax.sgd(0.1), checkpoint=tmp_path / "run", **options)
    assert float(again.network(1).size.value) == 3.8125


def test_running_values_need_learning():
    class Mute(eqx.Module):
        weight: jax.Array
        size: networks.Running

        def __call__(self, x):
            return x @ self.weight

    network = Mute(jnp.ones((1, 1), jnp.float32), networks.Running(jnp.float32(0)))
    with pytest.raises(TypeError, match="Mute has networks.Running parts, and so needs a method training_forward"):
        networks.train(network, DATA, optax.sgd(0.1), steps=1)


def test_steps_of_bfloat16_round_and_the_rest_does_not():
    """In bfloat16 1 + 2^-9 is 1, so the gradient of (w x - 1)^2 at w = 1 + 2^-9 is exactly 0; in float32 it is not."""
    data = networks.Fixed(np.ones((4, 1), np.float32), np.ones((4, 1), np.float32))
    start = 1 + 2.0**-9

    class Line(eqx.Module):
        weight: jax.Array

        def __call__(self, x):
            return self.weight @ x

    line = Line(jnp.full((1, 1), start, jnp.float32))
    ends = {
        precision: networks.train(line, data, optax.sgd(0.1), steps=1, measure_at=[1], precision=precision)
        for precision in ("float32", "bfloat16")
    }
    assert float(ends["bfloat16"].network().weight[0, 0]) == start
    assert float(ends["bfloat16"].curves.train_loss[0, 0]) == pytest.approx(2.0**-18, rel=1e-4)  # measured in float32
    assert float(ends["float32"].network().weight[0, 0]) == pytest.approx(1 + 0.8 * 2.0**-9, abs=1e-7)
    # Inputs are rounded too: with an input of 1 + 2^-9 and a weight of 1 there is nothing to correct.
    one = Line(jnp.ones((1, 1), jnp.float32))
    near = networks.Fixed(np.full((4, 1), start, np.float32), np.ones((4, 1), np.float32))
    end = networks.train(one, near, optax.sgd(0.1), steps=1, measure_at=[], precision="bfloat16")
    assert float(end.network().weight[0, 0]) == 1


def test_one_program_serves_all_groups(monkeypatch):
    compiled = []
    original = compilation.compile_program
    monkeypatch.setattr(compilation, "compile_program", lambda *given: compiled.append(1) or original(*given))
    options = {"steps": 3, "batch_size": 8, "seeds": 3, "measure_at": [3]}
    apart = networks.train(small, DATA, optax.sgd(0.1), runs_per_group=1, **options)
    assert len(compiled) == 2  # a program that trains, and one that measures
    together = networks.train(small, DATA, optax.sgd(0.1), **options)
    np.testing.assert_allclose(apart.curves.train_loss, together.curves.train_loss, rtol=1e-5)


def test_accuracy_and_losses_of_classes():
    inputs = np.eye(3, dtype=np.float32)
    data = networks.Fixed(inputs, np.array([0, 1, 2]), inputs, np.array([0, 2, 1]))

    def network(key):
        return networks.MLP(3, 3, 1, 1, key=key)

    training = networks.train(network, data, optax.sgd(1.0), steps=50, loss="cross-entropy", measure_at=[50])
    logits = np.asarray(jax.vmap(training.network())(inputs), float)
    logarithm = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert float(training.curves.train_loss[0, 0]) == pytest.approx(-np.mean(np.diag(logarithm)), rel=1e-5)
    assert float(training.curves.train_accuracy[0, 0]) == 1
    assert float(training.curves.test_accuracy[0, 0]) == pytest.approx(1 / 3)


def test_fresh_points_measures_and_inspections():
    seen = []

    def sample(key, count):
        inputs = jax.random.normal(key, (count, 1), jnp.float32)
        return inputs, 2 * inputs

    def inspect(network, data, initial):
        seen.append(bool((network.layers[0].weight == initial.layers[0].weight).all()))
        return {"weight": float(network.layers[0].weight[0, 0])}

    training = networks.train(
        lambda key: networks.MLP(1, 1, 1, 1, key=key),
        networks.Fresh(sample),
        optax.sgd(0.2),
        steps=60,
        batch_size=64,
        loss="half-mse",
        measure={"weights": lambda network, data, key: network.layers[0].weight[0]},
        inspect=inspect,
        measure_at=[0, 30, 60],
    )
    assert seen == [True, False]
    assert training.curves.weights.dims == ("seed", "time", "weights_0")
    assert float(training.curves.weight.sel(inspected_at=60)[0]) == pytest.approx(2, abs=1e-3)
    # No noise in the targets: new points are fitted to rounding.
    assert float(training.curves.train_loss[0, -1]) < 1e-6


SCRIPT = """
import sys, jax, optax, numpy as np, solvable.networks as networks
inputs = np.linspace(-1, 1, 64)[:, None]
training = networks.train(
    lambda key: networks.MLP(1, 1, 64, 3, key=key), networks.Fixed(inputs, np.sin(5 * inputs)), optax.adam(1e-3),
    steps=int(sys.argv[2]), batch_size=16, seeds=2, checkpoint=sys.argv[1], checkpoint_seconds=0.0, snapshots_at=[7],
    inspect=networks.kernel_metrics(8), inspect_at=[5])
np.savez(sys.argv[3], loss=training.curves.train_loss, weight=training.network(1).layers[1].weight,
         early=training.network(1, step=7).layers[0].weight, kernel=training.curves.kernel_distance)
"""


@pytest.mark.slow
def test_killed_at_random_and_resumed_is_the_same_bit_for_bit(tmp_path):
    """SIGKILL at random moments; what is there is continued until done."""
    errors, done = _run(tmp_path, "whole")
    assert done, errors
    generator = np.random.default_rng(0)
    kills = 0
    for _ in range(12):
        if _run(tmp_path, "killed", kill_after=generator.uniform(0.2, 1.0))[1]:
            break
        kills += 1
    assert _run(tmp_path, "killed")[1]
    assert kills >= 2
    # What is finished is read, not trained again: its checkpoint is not written once more.
    finished = (tmp_path / "killed-state.npz").stat().st_mtime_ns
    assert _run(tmp_path, "killed")[1]
    assert (tmp_path / "killed-state.npz").stat().st_mtime_ns == finished
    with np.load(tmp_path / "whole.npz") as first, np.load(tmp_path / "killed.npz") as second:
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])


def _run(folder, name, kill_after=None):
    arguments = [
        sys.executable,
        "-c",
        SCRIPT,
        folder / f"{name}-state",
        "3000",
        folder / f"{name}.npz",
    ]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if kill_after is not None:
        # The clock runs from the first checkpoint on: importing takes longer than training.
        state = folder / f"{name}-state.npz"
        before = state.stat().st_mtime_ns if state.exists() else None
        while process.poll() is None and (not state.exists() or state.stat().st_mtime_ns == before):
            time.sleep(0.01)
        time.sleep(kill_after)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    return errors, process.returncode == 0


class Stop(KeyboardInterrupt):
    pass


def test_interrupted_and_resumed_is_the_same_bit_for_bit(tmp_path):
    """The interruption comes from a measurement on the host in the middle; the checkpoint is of the stop before."""
    settings = {"steps": 12, "batch_size": 8, "seeds": 2, "measure_at": [0, 4, 12], "inspect_at": [0, 7]}
    state = {"stop": True, "calls": 0}

    def inspect(network, data, initial):
        state["calls"] += 1
        if state["stop"] and state["calls"] > 2:
            raise Stop
        return {"norm": float(jnp.linalg.norm(network.layers[0].weight))}

    def go(path):
        return networks.train(small, DATA, optax.adam(0.05), inspect=inspect, checkpoint=path, **settings)

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path / "a")
    state["stop"], state["calls"] = False, 0
    resumed = go(tmp_path / "a.npz")
    assert state["calls"] == 2  # the first inspection was not made again
    whole = go(tmp_path / "b")
    for name in ("train_loss", "test_loss", "norm"):
        np.testing.assert_array_equal(resumed.curves[name], whole.curves[name])
    np.testing.assert_array_equal(resumed.network(1).layers[0].weight, whole.network(1).layers[0].weight)
    # Another optimiser shows in the program; a torn file is no checkpoint.
    with pytest.raises(ValueError, match="belongs to a training with other settings"):
        networks.train(small, DATA, optax.adam(0.06), inspect=inspect, checkpoint=tmp_path / "a", **settings)
    (tmp_path / "a.npz").write_bytes((tmp_path / "a.npz").read_bytes()[:100])
    with pytest.raises(ValueError, match="delete it to start again"):
        go(tmp_path / "a")


def _convolutional(key):
    return CNN((6, 6, 1), 3, key=key, channels=(2,), width=4)


def _residual(key):
    return ResNet18((4, 4, 1), 3, key=key, width=2, blocks=(1,))


@pytest.mark.parametrize(
    ("network", "size", "optimiser"),
    [
        (_residual, 4, optax.chain(optax.add_decayed_weights(np.float32(0.01)), optax.sgd(0.05, momentum=0.9))),
        (_convolutional, 6, optax.adam(0.01)),
    ],
    ids=["resnet-sgd", "cnn-adam"],
)
def test_images_in_bfloat16_with_inspections_are_resumed_bit_for_bit(network, size, optimiser, tmp_path):
    """Interrupted twice, in the middle of an epoch: all arrays of the last checkpoints are equal."""
    random = np.random.default_rng(0)
    labels = np.arange(24) % 3
    images = (labels[:, None, None, None] + random.normal(size=(24, size, size, 1))).astype(np.float32)
    data = networks.Fixed(images[:15], labels[:15], images[15:], labels[15:], augment=crops_and_flips())
    interruptions = [3, 7]
    record = networks.feature_record(loss="cross-entropy", last_layer=lambda network: network.last)
    calls = []

    def inspect(network, data, initial):
        calls.append(1)
        if len(calls) in interruptions:
            raise Stop
        return record(network, data, initial)

    def go(name):
        return networks.train(
            network,
            data,
            optimiser,
            steps=8,
            batch_size=4,
            loss="cross-entropy",
            precision="bfloat16",
            inspect=inspect,
            inspect_at=[0, 2, 5, 6, 7, 8],
            measure_at=[0, 4, 8],
            checkpoint=tmp_path / name,
        )

    for _ in interruptions:
        with pytest.raises(KeyboardInterrupt):
            go("interrupted")
    resumed = go("interrupted")
    interruptions.clear()
    whole = go("whole")
    assert resumed.curves.drop_attrs().identical(whole.curves.drop_attrs())
    with np.load(tmp_path / "interrupted.npz") as first, np.load(tmp_path / "whole.npz") as second:
        assert set(first.files) == set(second.files)
        # The state of the optimiser is among them.
        trained = jax.tree.leaves(eqx.filter(whole.network(), networks.trainable(whole.network())))
        assert sum(name.startswith("state/") for name in first.files) > 2 * len(trained)
        for name in first.files:
            assert first[name].tobytes() == second[name].tobytes(), name


def test_runs_that_diverge_are_stopped_and_named():
    def network(key, rate):
        return networks.MLP(1, 1, 1, 1, key=key)

    def sgd(rate):
        return optax.sgd(rate)

    settings = {"steps": 200, "variants": {"rate": [0.1, 30.0]}, "seeds": 2, "loss": "half-mse"}
    settings["measure_at"] = [0, 3, 200]
    kept = networks.train(network, DATA, sgd, on_divergence="keep", **settings)
    at = kept.curves.diverged_at
    assert (at[0] == -1).all()
    assert (at[1] > 0).all()
    # Each step multiplies the error of the offset by 1 - rate = -29: a loss 1e6 times the first within six steps.
    assert (at[1] <= 6).all()
    assert np.isfinite(kept.curves.train_loss).all()
    with pytest.raises(
        networks.DivergedError, match=r"2 of 4 runs diverged: seed 0 of variant 1 \(rate = 30\) at step"
    ) as caught:
        networks.train(network, DATA, sgd, **settings)
    assert caught.value.partial.curves.train_loss.sizes["time"] == 2
    assert "Lower the learning rate" in str(caught.value)
    assert "in this error's .partial.curves" in str(caught.value)


def test_what_does_not_fit_names_the_batch_that_would():
    def network(key):
        return networks.MLP(1, 1, 64, 2, key=key)

    def go(batch, limit):
        data = networks.Fixed(np.zeros((4096, 1)), np.zeros(4096))
        return networks.train(
            network, data, optax.sgd(0.1), steps=1, batch_size=batch, measure_at=[1], memory_limit=limit
        )

    limit = 6e5
    with pytest.raises(
        MemoryError, match=r"1 runs side by side with 4096 samples .* batch_size=\d+ would fit"
    ) as caught:
        go(4096, limit)
    fits = int(str(caught.value).split("batch_size=")[1].split()[0])
    assert 16 < fits < 4096
    go(fits, limit)
    assert compilation.is_memory_error(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"))
    assert not compilation.is_memory_error(RuntimeError("INVALID_ARGUMENT"))


def test_a_full_device_is_told_as_such(monkeypatch):
    def full(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12 bytes")

    monkeypatch.setattr(compilation.Compiled, "advance", property(lambda self: full))
    monkeypatch.setattr(compilation, "needed_bytes", lambda compiled: None)
    with pytest.raises(MemoryError, match="2 runs side by side with 8 samples per step do not fit into the device"):
        networks.train(small, DATA, optax.sgd(0.1), steps=2, batch_size=8, seeds=2)


def test_a_compiler_without_fixed_kernels_is_no_obstacle():
    class Lowered:
        def compile(self, options=None):
            if options:
                raise RuntimeError("UNIMPLEMENTED: no deterministic kernel")
            return "program"

    with pytest.warns(UserWarning, match="may differ in the last bits: UNIMPLEMENTED"):
        assert compilation.compile_program(Lowered(), deterministic=True) == "program"
    assert compilation.compile_program(Lowered(), deterministic=False) == "program"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps must be"),
        ({"batch_size": 17}, "batch_size must be at most the 16 samples of the training set, not 17"),
        ({"loss": "hinge"}, "loss must be one of mse, half-mse, cross-entropy"),
        ({"measure_at": [3, 99]}, "measure_at must hold whole numbers of steps from 0 to 4, not 99"),
        ({"variants": {"a": [1, 2], "b": [1]}}, "lists of equal length"),
        ({"variants": {"seed": [1]}}, "may not be called 'seed'"),
        ({"variants": {"a": ["x"]}}, "must hold numbers"),
        ({"batch_size": 5, "gradient_accumulation_steps": 2}, "gradient_accumulation_steps must divide batch_size"),
        ({"precision": "float16"}, "precision must be one of"),
        ({"diverged_above": 0.5}, "diverged_above must be above 1"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        networks.train(small, DATA, optax.sgd(0.1), **{"steps": 4, **change})


def test_bad_data():
    with pytest.raises(ValueError, match="equally many rows"):
        networks.Fixed(np.zeros((3, 1)), np.zeros(2))
    with pytest.raises(ValueError, match="empty"):
        networks.Fixed(np.zeros((0, 1)), np.zeros(0))
    with pytest.raises(ValueError, match="both test_inputs and test_targets"):
        networks.Fixed(np.zeros((3, 1)), np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="need a batch_size"):
        networks.train(small, networks.Fresh(lambda key, count: None), optax.sgd(0.1), steps=1)
    with pytest.raises(TypeError, match=r"data must be networks\.Fixed or networks\.Fresh"):
        networks.train(small, (POINTS, POINTS), optax.sgd(0.1), steps=1)
    with pytest.raises(ValueError, match="nothing to train"):
        networks.train(lambda key: networks.Constant(small(key)), DATA, optax.sgd(0.1), steps=1)


def test_log_steps_begin_end_and_grow():
    steps = networks.log_steps(1000)
    assert steps[0] == 0
    assert steps[-1] == 1000
    assert 40 < len(steps) < 63
    assert networks.log_steps(1) == [0, 1]


def test_without_networks_the_curves_are_the_same():
    points = np.linspace(-1, 1, 8)[:, None]

    def train(**options):
        return networks.train(
            lambda key: networks.MLP(1, 1, width=8, depth=2, key=key), networks.Fixed(points, points**2),
            optax.sgd(0.1), steps=20, seeds=4, runs_per_group=2, **options,
        )  # fmt: skip

    whole, curves = train(), train(keep_networks=False)
    np.testing.assert_array_equal(curves.curves.train_loss, whole.curves.train_loss)
    np.testing.assert_array_equal(curves.curves.diverged_at, whole.curves.diverged_at)
    for take in (curves.network, curves.data):
        with pytest.raises(ValueError, match="keep_networks=False"):
            take(1)
    with pytest.raises(ValueError, match="snapshots_at saves networks, which keep_networks=False drops"):
        train(keep_networks=False, snapshots_at=[10])


def test_labels_that_are_no_classes_are_refused():
    """JAX takes -1 for the last class and gives NaN for a class beyond it, so that neither may go unnoticed."""

    def classifier(key, **_):
        return networks.MLP(1, 3, 4, 2, key=key)

    options = {"optimiser": optax.sgd(0.1), "steps": 2, "loss": "cross-entropy"}
    below, beyond = np.arange(16) % 3 - 1, np.arange(16) % 4
    with pytest.raises(ValueError, match="targets has the label -1: number classes from 0"):
        networks.train(classifier, networks.Fixed(POINTS, below), **options)
    with pytest.raises(ValueError, match="test_targets has the label -1"):
        networks.train(classifier, networks.Fixed(POINTS, below + 1, POINTS, below), **options)
    with pytest.raises(networks.DivergedError, match=r"Step 0 is before training: .* labels that are no classes"):
        networks.train(classifier, networks.Fixed(POINTS, beyond), **options)
