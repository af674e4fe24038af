"""Grokking times: by closed forms, at the edges where they cease to exist, over whole planes."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import erf

from solvable import GradientDescent, GradientFlow, LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.linear_grokking._shared import FLOW, closed_form_times, quadrature_losses, resolvent_square

PAPER_ACCURACY = float(erf(np.sqrt(2)))


@given(st.floats(0.02, 0.98), st.floats(0.05, 0.999), st.floats(-5, -1))
def test_times_solve_the_closed_forms(ratio: float, accuracy: float, log_threshold: float) -> None:
    model = LinearEstimator(aspect_ratio=ratio, threshold=10**log_threshold)
    times = model.grokking_time(accuracy, FLOW)
    level = float(loss_threshold(model, accuracy))
    if level >= 1:
        assert float(times.test_time) == 0
        return
    expected = closed_form_times(ratio, level)
    assert float(times.train_time) == pytest.approx(expected[0], rel=1e-8)
    # The Marcum function of SciPy loses digits as the loss falls.
    assert float(times.test_time) == pytest.approx(expected[1], rel=1e-6)
    assert float(times.delay) == float(times.test_time) - float(times.train_time)


def test_paper_thresholds() -> None:
    """Accuracy erf(sqrt 2) is a loss of threshold / 4; 95 % is a loss of 0.260318 threshold."""
    model = LinearEstimator(aspect_ratio=0.9)
    assert float(loss_threshold(model, PAPER_ACCURACY)) == pytest.approx(2.5e-4, rel=1e-12)
    assert float(loss_threshold(model, 0.95)) == pytest.approx(2.60318e-4, rel=1e-5)


def test_finite_at_aspect_ratio_one_and_lost_just_above() -> None:
    """L_gen = 1/sqrt(pi s) at one: t = 4/(pi eta eps^2). Lost at 1/(1 - eps/4), by the null modes alone."""
    at_one = LinearEstimator(aspect_ratio=1.0).grokking_time(PAPER_ACCURACY, FLOW)
    assert float(at_one.test_time) == pytest.approx(4 / (np.pi * 0.01 * 1e-6), rel=1e-6)
    edge = 1 / (1 - 2.5e-4)
    critical = LinearEstimator(aspect_ratio=0.9).critical_aspect_ratio(PAPER_ACCURACY).critical_aspect_ratio
    assert float(critical) == pytest.approx(edge, rel=1e-12)
    for ratio, reached in ((edge * (1 - 1e-6), True), (edge * (1 + 1e-6), False)):
        times = LinearEstimator(aspect_ratio=ratio).grokking_time(PAPER_ACCURACY)
        assert bool(times.test_reached) is reached
        assert np.isfinite(times.test_time) == reached
        assert bool(times.train_reached)


def test_weight_decay_lengthens_the_delay_and_then_forbids() -> None:
    """The critical weight decay, from the limit of infinite time, is the same for gradient flow and descent."""
    model = LinearEstimator(aspect_ratio=0.9)
    critical = float(model.critical_weight_decay().critical_weight_decay)
    threshold = float(loss_threshold(model, 0.95))
    expected = brentq(lambda decay: resolvent_square(0.9, decay / 2) / 2 - threshold, 1e-5, 0.1, xtol=1e-16)
    assert critical == pytest.approx(expected, rel=1e-8)
    for training in (FLOW, GradientDescent(learning_rate=0.01)):

        def times(decay: float, training=training):
            return model.grokking_time(training=training.replace(weight_decay=decay))

        assert (np.diff([float(times(decay).delay) for decay in (0.0, 1e-4, 1e-3, 1.5e-3)]) > 0).all()
        for decay, reached in ((critical * (1 - 1e-6), True), (critical * (1 + 1e-6), False)):
            assert bool(times(decay).test_reached) is reached


def test_critical_values_at_their_extremes() -> None:
    assert LinearEstimator(outputs=1200).critical_aspect_ratio().critical_aspect_ratio == np.inf
    assert LinearEstimator(threshold=10.0).critical_weight_decay().critical_weight_decay == np.inf
    assert LinearEstimator(aspect_ratio=1.5).critical_weight_decay().critical_weight_decay == 0.0
    with pytest.raises(ValueError, match="label_noise"):
        LinearEstimator(aspect_ratio=0.9, label_noise=0.1).critical_weight_decay()


def test_critical_aspect_ratio_with_weight_decay() -> None:
    model, training = LinearEstimator(aspect_ratio=0.5), GradientFlow(weight_decay=1e-3)
    edge = float(model.critical_aspect_ratio(training=training).critical_aspect_ratio)
    assert float(model.replace(aspect_ratio=edge).limit(training).test_loss) == pytest.approx(
        float(loss_threshold(model, 0.95)), rel=1e-9
    )


def test_reached_at_once() -> None:
    """More than 1073 outputs start below the threshold."""
    times = LinearEstimator(aspect_ratio=0.9, outputs=1100).grokking_time()
    assert float(times.train_time) == float(times.test_time) == float(times.delay) == 0
    assert bool(LinearEstimator(aspect_ratio=0.9, outputs=1072).grokking_time().test_time > 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise", [0.05, pytest.param(0.08, marks=pytest.mark.slow), pytest.param(0.1, marks=pytest.mark.slow)]
)
def test_first_crossing_of_a_loss_that_rises_again(noise: float) -> None:
    """The lowest test loss decides whether the accuracy is reached; the first crossing when."""
    model = LinearEstimator(aspect_ratio=0.9, label_noise=noise)
    grid = np.geomspace(1, 1e7, 3000)
    lowest = float(model.predict(grid, FLOW).test_loss.min())
    for factor, reached in ((1.001, True), (0.999, False)):
        trial = model.replace(threshold=factor * lowest / 0.2603178)
        times = trial.grokking_time(training=FLOW)
        assert bool(times.test_reached) is reached
        if reached:
            level, time = float(loss_threshold(trial, 0.95)), float(times.test_time)
            assert quadrature_losses(trial, FLOW, time)[1] == pytest.approx(level, rel=1e-8)
            before = trial.predict(np.geomspace(1, time * (1 - 1e-6), 500), FLOW).test_loss
            assert float(before.min()) > level
            assert float(trial.limit().test_loss) > level


def test_times_of_descent_lie_between_steps() -> None:
    """The steps around the crossing time of gradient descent are on either side of the accuracy."""
    model, training = LinearEstimator(aspect_ratio=0.1), GradientDescent(learning_rate=0.05)
    time = float(model.grokking_time(training=training).test_time)
    around = model.predict([np.floor(time), np.ceil(time)], training).test_accuracy
    assert around[0] < 0.95 < around[1]
    assert time < float(model.grokking_time(training=GradientFlow(learning_rate=0.05)).test_time)
    for refused in (
        lambda: model.grokking_time(training=GradientDescent(learning_rate=0.5)),
        lambda: model.late_time([10], GradientDescent(learning_rate=0.5)),
        lambda: model.phase_diagram(learning_rate=[0.01, 0.5]),
        lambda: model.phase_diagram(training=GradientDescent(learning_rate=0.2), aspect_ratio=[0.1, 3.0]),
    ):
        with pytest.raises(ValueError, match="overshoot"):
            refused()


def test_times_of_the_flow_are_the_limit_of_descent() -> None:
    """In flow time, halving the learning rate halves the distance of the crossing times from those of the flow."""
    model = LinearEstimator(aspect_ratio=0.3)
    flow = float(model.grokking_time(training=GradientFlow()).test_time)
    gaps = [
        rate * float(model.grokking_time(training=GradientDescent(learning_rate=rate)).test_time) - flow
        for rate in (0.02, 0.01)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(2, rel=0.05)
    assert model.grokking_time(training=GradientFlow()).delay.attrs["units"] == "flow time / η"


@pytest.mark.slow
def test_derivative_of_the_grokking_time() -> None:
    def delay(ratio):
        training = GradientDescent(learning_rate=0.01, weight_decay=1e-4)
        return LinearEstimator(aspect_ratio=ratio).grokking_time(training=training).delay.data

    step = 1e-6
    slope = (float(delay(0.8 + step)) - float(delay(0.8 - step))) / (2 * step)
    assert float(jax.grad(delay)(0.8)) == pytest.approx(slope, rel=1e-5)
    assert np.isnan(float(jax.vmap(delay)(np.array([0.5, 1.5]))[1]))


@pytest.mark.parametrize(
    "axes",
    [
        {"weight_decay": [0.0, 1e-4, 1e-2], "aspect_ratio": [0.1, 0.9, 1.0, 2.0]},
        {"outputs": [1, 50, 700], "aspect_ratio": [0.5, 1.1]},
        pytest.param({"weight_decay": [1e-5, 1e-2], "outputs": [1, 20]}, marks=pytest.mark.slow),
        pytest.param(
            {"label_noise": [0.0, 0.05], "initial_scale": [0.0, 2.0], "threshold": [1e-3, 1e-1]},
            marks=pytest.mark.slow,
        ),
        pytest.param({"learning_rate": [0.01, 0.05], "aspect_ratio": [0.3, 0.9]}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("training", [FLOW, GradientDescent(learning_rate=0.01)])
def test_planes_equal_single_calls(axes: dict, training: GradientFlow | GradientDescent) -> None:
    plane = LinearEstimator(aspect_ratio=0.9).phase_diagram(training=training, **axes)
    assert plane.delay.dims == tuple(axes)
    for place in np.ndindex(*plane.delay.shape):
        cell = {name: values[i] for (name, values), i in zip(axes.items(), place, strict=True)}
        trained = {name: cell.pop(name) for name in ("learning_rate", "weight_decay") if name in cell}
        single = LinearEstimator(**{"aspect_ratio": 0.9, **cell}).grokking_time(training=training.replace(**trained))
        for name in ("train_time", "test_time"):
            np.testing.assert_allclose(plane[name].values[place], single[name], rtol=1e-10, equal_nan=True)
        assert plane.test_reached.values[place] == single.test_reached


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({}, "at least one axis"),
        ({"aspect_ratio": [-1.0]}, "aspect_ratio must be a positive"),
        ({"ratio": [0.5]}, "no axis 'ratio'"),
        ({"outputs": [1.5]}, "whole number"),
        ({"outputs": []}, "non-empty"),
        ({"width": [5]}, "width cannot be an axis"),
        ({"momentum": [0.5]}, "no axis 'momentum'; its axes can be aspect_ratio.*learning_rate, weight_decay"),
        ({"weight_decay": [-1.0]}, "weight_decay must be a finite number, zero or more"),
    ],
)
def test_bad_axes(axes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearEstimator(aspect_ratio=0.9).phase_diagram(**axes)


@pytest.mark.parametrize("accuracy", [0.0, 1.0, -0.5, 2.0, float("nan"), True])
def test_bad_accuracy(accuracy: float) -> None:
    with pytest.raises(ValueError, match="accuracy must lie between 0 and 1"):
        LinearEstimator(aspect_ratio=0.9).grokking_time(accuracy)
