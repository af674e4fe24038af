"""Training objects: what they accept, what they mean, and how they are made from plain values."""

import jax
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import solvable
from solvable import SGD, GradientDescent, GradientFlow
from solvable.coverage import Covers, check_training
from solvable.training import Schedule, Training
from solvable.training_choice import make_training, training_options, usual_times

EXAMPLES = [
    GradientFlow(),
    GradientFlow(0.5, weight_decay=0.1),
    GradientDescent(0.1, momentum=0.9, nesterov=True),
    SGD(0.1, batch_size=8),
    SGD(0.1, batch_fraction=0.25, sampling="epochs", weight_decay=0.1),
]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GradientDescent(-0.1), "learning_rate must be a positive finite number, not -0.1"),
        (lambda: GradientDescent(0), "learning_rate must be a positive finite number, not 0"),
        (lambda: GradientDescent(np.nan), "learning_rate must be a positive finite number, not nan"),
        (lambda: GradientDescent("fast"), "learning_rate must be a positive finite number, not 'fast'"),
        (lambda: GradientDescent(True), "learning_rate must be a positive finite number, not True"),
        (lambda: GradientDescent([0.1, 0.2]), "learning_rate must be a positive finite number"),
        (lambda: GradientDescent(0.1, momentum=1.0), "momentum must be a number from 0 up to"),
        (lambda: GradientDescent(0.1, momentum=-0.1), "momentum must be a number from 0 up to"),
        (lambda: GradientDescent(0.1, ema_decay=optax.constant_schedule(0.9)), "ema_decay.*not a schedule"),
        (
            lambda: solvable.LinearEstimator().predict(
                [1], GradientDescent(0.1, momentum=optax.constant_schedule(0.9))
            ),
            "does not cover a schedule of momentum",
        ),
        (lambda: GradientDescent(0.1, nesterov=True), "nesterov=True needs a momentum above 0"),
        (lambda: GradientDescent(0.1, momentum=0.9, nesterov="yes"), "nesterov must be True or False"),
        (lambda: GradientDescent(0.1, weight_decay=-1), "weight_decay must be a finite number, zero or more"),
        (lambda: GradientDescent(0.1, ema_decay=0.9, average_from=3), "give ema_decay, or average_from, but not both"),
        (lambda: GradientDescent(0.1, ema_decay=1.0), "ema_decay must be a number from 0 up to"),
        (lambda: GradientDescent(0.1, average_from=2.5), "average_from must be a whole number, zero or more"),
        (lambda: GradientDescent(0.1, decoupled=1), "decoupled must be True or False"),
        (lambda: solvable.OptaxDescent(optax.constant_schedule(0.1)), "optimiser must be an Optax gradient transform"),
        (lambda: solvable.OptaxDescent(optax.sgd(0.1), 0), "batch_size must be a whole number"),
        (lambda: SGD(0.1), "give batch_size, or batch_fraction, but not both"),
        (lambda: SGD(0.1, batch_size=3, batch_fraction=0.1), "give batch_size, or batch_fraction, but not both"),
        (lambda: SGD(0.1, batch_size=0), "batch_size must be a whole number, 1 or more, or None, not 0"),
        (lambda: SGD(0.1, batch_size=2.5), "batch_size must be a whole number"),
        (lambda: SGD(0.1, batch_fraction=1.5), "batch_fraction must be a number above 0 and at most 1"),
        (lambda: SGD(0.1, batch_size=3, sampling="shuffle"), "sampling must be one of 'online', 'subsets'"),
        (
            lambda: SGD(0.1, batch_size=30).samples_per_batch(20),
            "batch_size = 30 is larger than the training set",
        ),
        (lambda: SGD(0.1, batch_fraction=0.5).samples_per_batch(), "batch_fraction needs a training set"),
        (lambda: GradientFlow().replace(momentum=0.9), "GradientFlow has no option 'momentum'; it has learning_rate"),
        (lambda: GradientDescent(1e200), "learning_rate must be at most 1e.150 in size"),
    ],
)
def test_impossible_trainings_are_refused_in_one_line(make, message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        make()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("training", EXAMPLES, ids=repr)
def test_trainings_are_frozen_values(training: Training) -> None:
    leaves, structure = jax.tree.flatten(training)
    assert jax.tree.unflatten(structure, leaves) == training == training.replace()
    assert hash(training) == hash(training.replace())
    assert eval(repr(training), vars(solvable) | {"SGD": SGD}) == training
    with pytest.raises(AttributeError):
        training.learning_rate = 2.0  # type: ignore[misc]


def test_a_training_passes_through_jax() -> None:
    rates = np.array([0.1, 0.2])
    stacked = jax.vmap(lambda rate: GradientDescent(rate, momentum=0.5))(rates)
    np.testing.assert_array_equal(stacked.learning_rate, rates)
    slope = jax.grad(lambda training: training.learning_rate**2 + training.momentum)(EXAMPLES[2])
    assert float(slope.learning_rate) == pytest.approx(0.2)


@given(st.floats(1e-6, 10), st.lists(st.integers(0, 10**6), min_size=1, max_size=5, unique=True))
def test_flow_time_is_the_sum_of_learning_rates(rate: float, steps: list[int]) -> None:
    times = np.sort(np.array(steps, float))
    np.testing.assert_allclose(GradientDescent(rate).flow_time(times), rate * times)
    np.testing.assert_allclose(GradientFlow(rate).flow_time(times), rate * times)


def test_flow_time_of_a_schedule_is_the_sum_over_its_steps() -> None:
    """Over a boundary between the chunks in which schedules are evaluated, too."""
    schedule = optax.cosine_decay_schedule(0.3, 70_000)
    training = GradientDescent(schedule)
    times = np.array([0.0, 1.0, 2.0, 65_536.0, 65_537.0, 70_001.0])
    steps = np.arange(70_001)
    rates = 0.3 * (1 + np.cos(np.pi * np.minimum(steps, 70_000) / 70_000)) / 2
    np.testing.assert_allclose(training.flow_time(times), [rates[: int(time)].sum() for time in times], rtol=1e-6)
    np.testing.assert_allclose(training.learning_rates(10, 13), rates[10:13], rtol=1e-6)


def test_the_flow_time_of_a_flow_is_an_integral() -> None:
    """Exact for polynomials between jumps at whole numbers, and between the times asked for."""
    half = GradientFlow(optax.linear_schedule(1.0, 0.0, 8))
    np.testing.assert_allclose(half.flow_time([0.0, 0.5, 4.0, 8.0, 9.0]), [0, 0.484375, 3.0, 4.0, 4.0], rtol=1e-12)
    jumps = GradientFlow(optax.piecewise_constant_schedule(1.0, {3: 0.1}))
    # Optax changes the rate after the boundary.
    np.testing.assert_allclose(jumps.flow_time([2.5, 3.0, 5.0]), [2.5, 3.0, 3.2], rtol=1e-6)
    np.testing.assert_allclose(GradientFlow(optax.constant_schedule(0.3)).flow_time([7.7]), [2.31], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("constant", [0.4] * 5),
        ("cosine:8", [0.4, 0.2 * (1 + np.cos(np.pi / 4)), 0.2, 0.2 * (1 - np.cos(np.pi / 4)), 0.0]),
        ("linear:8", [0.4, 0.3, 0.2, 0.1, 0.0]),
        ("wsd:8:0.5:0.5", [0.0, 0.2, 0.4, 0.2, 0.0]),
        ("points:8:0=0.5,0.5=1,1=0", [0.2, 0.3, 0.4, 0.2, 0.0]),
    ],
)
def test_schedules_from_text(text: str, rates: list[float]) -> None:
    training = make_training(solvable.ScalarNetwork, {"training": "descent", "learning_rate": 0.4, "schedule": text})
    np.testing.assert_allclose(training.learning_rates(0, 9)[::2], rates, atol=1e-7)


@pytest.mark.parametrize(
    "text",
    [
        "cosine",
        "cosine:0",
        "linear:2.5",
        "wsd:100:0.1",
        "wsd:100:0.6:0.6",
        "step:10",
        "",
        "points:8",
        "points:8:0=1",
        "points:8:0=1,0.5=2,1=0",
        "points:8:0=1,0=1,1=0",
        "points:8:0=1:1=0",
    ],
)
def test_texts_that_are_no_schedule_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"schedule must be constant, cosine:STEPS, .*not"):
        make_training(solvable.ScalarNetwork, {"training": "descent", "schedule": text})


def test_fractions_of_a_schedule_can_be_given_apart_from_its_text() -> None:
    """So that each of them is a flag, and a slider."""
    rest = {"training": "descent", "learning_rate": 0.4}
    together = make_training(solvable.ScalarNetwork, {**rest, "schedule": "wsd:8:0.5:0.2"})
    assert make_training(solvable.ScalarNetwork, {**rest, "schedule": "wsd:8", "warm_up": 0.5}) == together
    assert hash(together) == hash(make_training(solvable.ScalarNetwork, {**rest, "schedule": "wsd:8:0.5:0.2"}))
    for schedule in ("cosine:8", "wsd:8:0.1:0.2", None):
        with pytest.raises(ValueError, match="warm_up is an option of the schedule wsd:STEPS, not of"):
            make_training(solvable.ScalarNetwork, {**rest, "schedule": schedule, "warm_up": 0.5})


def test_a_schedule_of_arrays_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gives an array of shape \(2,\) at step 0"):
        GradientDescent(lambda step: jax.numpy.full(2, 0.1)).check_schedules(3)


def test_a_schedule_that_breaks_its_rule_is_named_with_the_step() -> None:
    falling = GradientDescent(lambda step: 0.1 - 0.01 * step)
    with pytest.raises(ValueError, match=r"learning_rate must be .* but its schedule gives -0.01 at step 11"):
        falling.check_schedules(20)
    falling.check_schedules(11)
    with pytest.raises(ValueError, match="gives nan at step 3"):
        GradientDescent(
            lambda step: np.nan * (step == 3) + 0.1 if not hasattr(step, "aval") else _nan_at(step, 3)
        ).check_schedules(5)
    with pytest.raises(ValueError, match=r"batch_size must be a whole number, 1 or more.* gives 0 at step 4"):
        SGD(0.1, batch_size=lambda step: 4 - step).check_schedules(6)


def _nan_at(step, place: int):
    return jax.numpy.where(step == place, jax.numpy.nan, 0.1)


def test_schedules_tell_each_other_apart() -> None:
    one, same = Schedule(np.exp), Schedule(np.exp)
    assert one == same
    assert hash(one) == hash(same)
    assert one != Schedule(np.sin)
    assert not GradientDescent(np.exp).is_constant
    assert GradientDescent(0.1).is_constant


# What is covered -----------------------------------------------------------------------------------------------------


COVERED = (
    Covers(GradientDescent, options=("momentum",), schedules=("learning_rate",)),
    Covers(SGD, sampling=("replacement", "epochs")),
)


def check(training: object) -> Training:
    return check_training(training, COVERED, "the theory of tests", "Simulate alone.")


def test_covered_trainings_pass_and_get_their_sampling() -> None:
    assert check(GradientDescent(0.1, momentum=0.5)) == GradientDescent(0.1, momentum=0.5)
    assert check(SGD(0.1, batch_size=2)).sampling == "replacement"
    assert check(SGD(0.1, batch_size=2, sampling="epochs")).sampling == "epochs"
    check(GradientDescent(optax.constant_schedule(0.1)))


@pytest.mark.parametrize(
    ("training", "named"),
    [
        (
            GradientFlow(),
            "it covers GradientDescent with momentum, schedules of learning_rate; SGD",
        ),
        (GradientDescent(0.1, weight_decay=0.1), "does not cover weight_decay=0.1"),
        (GradientDescent(0.1, momentum=0.9, nesterov=True), "does not cover nesterov=True"),
        (SGD(0.1, batch_size=2, momentum=0.5), "does not cover momentum=0.5"),
        (SGD(optax.constant_schedule(0.1), batch_size=2), "does not cover a schedule of learning_rate"),
        (SGD(0.1, batch_size=2, sampling="online"), "does not cover sampling='online'"),
        ("flow", r"training must be GradientFlow\(...\), GradientDescent\(...\) or SGD\(...\), not 'flow'"),
        (GradientFlow, r"write GradientFlow\(...\)"),
        (0.1, "training must be"),
    ],
)
def test_what_is_not_covered_is_named_with_what_is(training: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        check(training)


def test_a_model_says_that_simulation_covers_more_than_theory() -> None:
    model = solvable.ScalarNetwork()
    with pytest.raises(
        ValueError, match=r"does not cover weight_decay=0.1; it covers GradientFlow .*simulate covers it"
    ):
        model.predict([1], GradientFlow(weight_decay=0.1))
    with pytest.raises(ValueError, match="The default is GradientFlow"):
        model.simulate([1], SGD(0.1, batch_size=2))
    with pytest.raises(ValueError, match=r"times count the steps of this training, but times\[0\] = 0.5"):
        model.simulate([0.5], GradientDescent(0.1))


# From plain values ---------------------------------------------------------------------------------------------------


def test_an_option_of_one_training_only_says_which_is_meant() -> None:
    kind = solvable.ScalarNetwork
    assert make_training(kind, {}) == GradientFlow()
    assert make_training(kind, {"momentum": None, "learning_rate": 2.0}) == GradientFlow(2.0)
    assert make_training(kind, {"momentum": 0.9}) == GradientDescent(kind.usual_learning_rate, momentum=0.9)
    assert make_training(kind, {"batch_size": 4, "learning_rate": 0.1}) == SGD(0.1, batch_size=4)
    assert make_training(kind, {"training": "descent"}) == GradientDescent(kind.usual_learning_rate)
    with pytest.raises(ValueError, match="momentum is not an option of GradientFlow"):
        make_training(kind, {"training": "flow", "momentum": 0.9})
    with pytest.raises(ValueError, match="training must be one of flow, descent, sgd, not 'adam'"):
        make_training(kind, {"training": "adam"})


def test_options_are_those_of_the_trainings_that_are_covered() -> None:
    names = [option.name for option in training_options(solvable.ScalarNetwork)]
    of_steps = ["momentum", "nesterov", "decoupled", "schedule", "warm_up", "decay"]
    assert names == ["training", "learning_rate", "weight_decay", *of_steps]
    assert training_options(solvable.ScalarNetwork)[0].choices == ("flow", "descent")


def test_usual_times_are_the_same_flow_time_in_every_training() -> None:
    kind = solvable.ScalarNetwork
    assert usual_times(kind, GradientFlow()) == kind.usual_times
    assert usual_times(kind, GradientFlow(0.5)) == "0:12:31"
    assert usual_times(kind, GradientDescent(0.01)) == "0:600:31"
    assert usual_times(kind, GradientDescent(optax.constant_schedule(0.01))) == "0:600:31"
    # Two steps at least, so that what is refused is the learning rate and not times that nobody gave.
    assert usual_times(solvable.LinearEstimator, GradientDescent(1e3)).startswith("1:2:")


def test_epochs_are_the_samples_of_all_batches_over_those_of_the_training_set() -> None:
    times = np.array([0.0, 3.0, 10.0])
    few = solvable.FeatureScaling(modes=24, features=8, samples=20)
    for verb in ("predict", "simulate"):
        found = getattr(few, verb)(times, SGD(0.1, batch_size=4, sampling="epochs"))
        np.testing.assert_allclose(found.epochs, times / 5, rtol=1e-12)
        assert found.epochs.attrs["units"] == "epochs"
    growing = SGD(0.1, batch_size=lambda step: 1 + step, sampling="replacement")
    np.testing.assert_allclose(few.predict(times, growing).epochs, [0, 6 / 20, 55 / 20], rtol=1e-12)
    chain = solvable.OptaxDescent(optax.sgd(0.1), batch_size=4)
    np.testing.assert_allclose(few.predict(times, chain).epochs, times / 5, rtol=1e-12)
    estimator = solvable.LinearEstimator()
    fraction = SGD(0.01, batch_fraction=0.25)
    np.testing.assert_allclose(estimator.predict(times, fraction).epochs, times / 4, rtol=1e-12)
    # Of 50 samples a quarter is 12.
    runs = estimator.replace(aspect_ratio=0.8).simulate(times, fraction, dimension=40, seeds=2)
    np.testing.assert_allclose(runs.epochs, times * 12 / 50, rtol=1e-12)


def test_what_reuses_no_samples_has_no_epochs() -> None:
    model = solvable.FeatureScaling(modes=24)
    for training in (GradientFlow(), GradientDescent(0.1), SGD(0.1, batch_size=4)):
        assert "epochs" not in model.predict([1, 2], training).coords
