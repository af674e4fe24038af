"""Schedules, momentum and weight decay in the theories of the small models.

A flow with a schedule is the flow on another clock. Gradient descent is followed step by step, and must be what the
simulation on the population does.
"""

from typing import Any

import numpy as np
import optax
import pytest

from solvable import (
    SGD,
    DiagonalNetwork,
    GradientDescent,
    GradientFlow,
    LinearEstimator,
    LinearNetwork,
    Model,
    ScalarNetwork,
    SkillModel,
)

MODELS: list[tuple[Model, dict[str, Any]]] = [
    (DiagonalNetwork(), {"samples": None}),
    (ScalarNetwork(), {"samples": None}),
    (LinearNetwork(width=5), {}),
    (SkillModel(skills=6), {}),
]
IDS = [model.name for model, _ in MODELS]
LINEAR = optax.linear_schedule(1.0, 0.25, 6)


@pytest.mark.parametrize(
    "model", [*(model for model, _ in MODELS), LinearEstimator(aspect_ratio=0.5)], ids=[*IDS, "linear-estimator"]
)
def test_a_schedule_of_a_flow_is_another_clock(model: Model) -> None:
    times = np.array([0.0, 1.5, 4.0, 7.0])
    scheduled = model.predict(times, GradientFlow(LINEAR))
    clock = times - 0.0625 * np.minimum(times, 6.0) ** 2 - 0.75 * np.maximum(times - 6.0, 0.0)
    np.testing.assert_allclose(scheduled.flow_time, clock, rtol=1e-12)
    np.testing.assert_allclose(scheduled.test_loss, model.predict(clock, GradientFlow()).test_loss, rtol=1e-12)


@pytest.mark.parametrize(("model", "options"), MODELS, ids=IDS)
def test_steps_are_those_of_the_network_on_the_population(model: Model, options: dict[str, Any]) -> None:
    training = GradientDescent(optax.cosine_decay_schedule(0.05, 300), momentum=0.5, nesterov=True, weight_decay=0.02)
    times = [0, 1, 40, 200]
    theory, run = model.predict(times, training), model.simulate(times, training, seeds=1, **options).isel(seed=0)
    shared = sorted((set(theory.data_vars) & set(run.data_vars)) - {"rank"})
    assert {"test_loss", "strength" if "strength" in theory else "output"} <= set(shared)
    for name in shared:
        np.testing.assert_allclose(theory[name], run[name], rtol=1e-9, atol=1e-13, err_msg=name)


@pytest.mark.parametrize(("model", "options"), MODELS, ids=IDS)
def test_small_steps_become_the_flow(model: Model, options: dict[str, Any]) -> None:
    """First order in the learning rate: halving it halves the distance."""
    exact = float(model.predict([2.0], GradientFlow()).test_loss[0])
    far, near = (
        float(model.predict([round(2 / rate)], GradientDescent(rate)).test_loss[0]) - exact for rate in (0.02, 0.01)
    )
    assert far / near == pytest.approx(2, abs=0.2)


def test_decay_decoupled_from_momentum_is_not_multiplied_by_it() -> None:
    """A mode without target only decays: w (1 - eta omega)^t decoupled, but as fast as momentum makes it coupled."""
    model = DiagonalNetwork([1.0], [0.0], [1e-6], [0.0])
    decoupled, coupled = (
        float(model.predict([50], GradientDescent(0.01, 0.8, weight_decay=0.1, decoupled=flag))["first"][0, 0]) / 1e-6
        for flag in (True, False)
    )
    assert decoupled == pytest.approx((1 - 0.001) ** 50, rel=1e-9)
    assert coupled < decoupled**3


ESTIMATOR = LinearEstimator(aspect_ratio=0.5, label_noise=0.2)


@pytest.mark.parametrize(
    "training",
    [pytest.param(GradientDescent(0.1), marks=pytest.mark.slow), SGD(0.05, batch_fraction=0.1)],
    ids=["full", "batches"],
)
def test_the_recursion_of_the_estimator_is_its_closed_form(training: GradientDescent) -> None:
    times = [0, 1, 10, 200]
    closed = ESTIMATOR.predict(times, training)
    rate = training.learning_rate
    stepped = ESTIMATOR.predict(times, training.replace(learning_rate=lambda step: rate + 0.0 * step))
    for name in ("train_loss", "test_loss", "test_accuracy"):
        np.testing.assert_allclose(stepped[name], closed[name], rtol=1e-10)


@pytest.mark.parametrize(
    ("nesterov", "batch_fraction"),
    [
        (True, 0.1),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((False, 0.1), (False, None), (True, None))),
    ],
)
def test_momentum_of_the_estimator_agrees_with_runs(nesterov: bool, batch_fraction: float | None) -> None:
    options: dict[str, Any] = {"momentum": 0.7, "nesterov": nesterov, "weight_decay": 0.05}
    training = GradientDescent(0.05, **options)
    if batch_fraction is not None:
        training = SGD(0.05, batch_fraction=batch_fraction, **options)
    times = [0, 3, 20, 100]
    theory = ESTIMATOR.predict(times, training)
    runs = ESTIMATOR.simulate(times, training, dimension=100, seeds=40)
    for name in ("train_loss", "test_loss"):
        mean, error = runs[name].mean("seed"), runs[name].std("seed", ddof=1) / 40**0.5
        # Standard errors are 1 to 2 %, corrections of order 1 / dimension 1 %; one false alarm in some hundred tests.
        assert (np.abs(theory[name] - mean) < 3.5 * error + 0.015 * mean).all(), name
