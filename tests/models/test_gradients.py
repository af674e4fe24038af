"""Derivatives of every model's theory, on and around the values where a formula changes its branch.

Automatic differentiation follows the branch that was taken. Where the other one carries the derivative (a mass that is
zero and about to grow, layers that are equal and may part) the result is silently wrong, so both modes of it are held
against finite differences of fourth order: central ones, or one-sided where a parameter cannot be negative.

Derivatives that do not exist are not asked for: sorted singular values that are equal, or zero in a correlation matrix;
the limits of the linear estimator where they jump or have a kink (see its docstring).
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable import (
    SGD,
    Committee,
    DiagonalNetwork,
    FeatureScaling,
    GradientDescent,
    GradientFlow,
    LinearEstimator,
    LinearFeatures,
    LinearNetwork,
    Model,
    ParityMode,
    ScalarNetwork,
    SkillModel,
)
from solvable.training import Training

Point = dict[str, Any]
_CENTRAL = {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12}
_FORWARD = {0: -25 / 12, 1: 4.0, 2: -3.0, 3: 4 / 3, 4: -1 / 4}


class Case(NamedTuple):
    """A model and its training, what is measured, a point, and special values that replace some of its coordinates.

    Parameters and options of the training are coordinates of the point alike; ``train`` takes its own out.
    """

    name: str
    build: Callable[..., Model]
    outputs: Callable[[Any, Any], jax.Array]
    point: Point
    special: list[Point]
    not_negative: tuple[str, ...] = ()
    step: float = 1e-3
    tolerance: float = 1e-6
    forward: bool = True
    train: Callable[..., Training] | None = None


def curves(names: str, times: list[float], **options: Any) -> Callable[[Any, Any], jax.Array]:
    def measured(model: Any, training: Any) -> jax.Array:
        dataset = model.predict(times, training, **options)
        return jnp.concatenate([jnp.ravel(dataset[name].data) for name in names.split()])

    return measured


def grokking_times(model: Any, training: Any) -> jax.Array:
    found = model.grokking_time(0.9, training)
    return jnp.stack([found.train_time.data, found.test_time.data])


def final_losses(model: Any, training: Any) -> jax.Array:
    found = model.limit(training)
    return jnp.stack([found.train_loss.data, found.test_loss.data])


ESTIMATOR = {
    "aspect_ratio": 0.7,
    "learning_rate": 0.05,
    "weight_decay": 0.02,
    "threshold": 1e-2,
    "initial_scale": 0.5,
    "label_noise": 0.2,
}
NOTHING = {"label_noise": 0.0, "weight_decay": 0.0, "initial_scale": 0.0}
BOUNDED = ("label_noise", "weight_decay", "initial_scale")
ESTIMATED = "train_loss test_loss log_train_loss log_test_loss train_accuracy test_accuracy"
CASES = [
    Case(
        f"estimator {train.name}",
        lambda **point: LinearEstimator(outputs=2, **point),
        curves(ESTIMATED, [10.0, 300.0], dimension=50),
        ESTIMATOR,
        # The mass of null modes is zero at an aspect ratio of 1, and its growth was once left out of the derivative.
        [
            {},
            {"aspect_ratio": 1.0},
            {"aspect_ratio": 1.0, "label_noise": 0.0, "weight_decay": 0.0, "initial_scale": 1.0},
            {"aspect_ratio": 1.0, **NOTHING},
            NOTHING,
            {"aspect_ratio": 1.5, **NOTHING},
        ],
        BOUNDED,
        train=train,
    )
    for train in (GradientFlow, GradientDescent)
] + [
    Case(
        "estimator grokking times",
        lambda **point: LinearEstimator(outputs=2, **point),
        grokking_times,
        ESTIMATOR | {"weight_decay": 0.002, "threshold": 0.3, "label_noise": 0.05},
        [{}, {"aspect_ratio": 1.0, "label_noise": 0.0, "weight_decay": 0.0}],
        BOUNDED,
        tolerance=1e-5,
        train=GradientFlow,
    ),
    Case(
        "estimator limits",
        lambda **point: LinearEstimator(outputs=2, threshold=1e-3, **point),
        final_losses,
        {"aspect_ratio": 0.7, "weight_decay": 0.002, "initial_scale": 0.5, "label_noise": 0.05},
        [{}, {"weight_decay": 0.0}, {"weight_decay": 0.0, "label_noise": 0.0}, {"aspect_ratio": 1.5}],
        BOUNDED,
        step=1e-4,
        tolerance=1e-5,
        train=lambda weight_decay: GradientFlow(0.01, weight_decay),
    ),
    Case(
        "diagonal network",
        DiagonalNetwork,
        curves("strength first second imbalance test_loss linear_strength linear_test_loss", [0.0, 1.0, 5.0]),
        {
            "variances": [1.0, 0.5],
            "target_scales": [1.0, -0.7],
            "initial_first": [0.1, 0.2],
            "initial_second": [0.1, -0.3],
        },
        [
            {},
            {"initial_second": [0.1, 0.2]},
            {"initial_second": [-0.1, -0.2]},
            {"initial_first": [0.0, 0.2], "initial_second": [0.1, 0.0]},
            {"initial_first": [0.0, 0.0], "initial_second": [0.0, 0.0]},
            {"target_scales": [0.0, 0.0]},
            {"target_scales": [0.0, 0.0], "initial_first": [0.0, 0.2], "initial_second": [0.0, -0.2]},
            {"target_scales": [0.04, -0.2], "initial_first": [0.2, 0.5], "initial_second": [0.2, -0.4]},
        ],
    ),
    Case(
        "scalar network",
        ScalarNetwork,
        curves("growth output first second kernel test_loss linear_output", [0.0, 1.0, 5.0]),
        {
            "initial_first": [0.1, 0.2],
            "initial_second": [0.1, -0.3],
            "target": 1.0,
            "output_scale": 1.5,
            "input_power": 0.7,
        },
        [
            {},
            {"initial_second": [0.1, 0.2]},
            {"initial_second": [-0.1, -0.2]},
            {"target": 0.0},
            {"target": -1.0},
            {"initial_first": [0.0, 0.0], "initial_second": [0.0, 0.0]},
            {"initial_first": [1.0, 0.0], "initial_second": [1.0, 0.0], "target": 1 / 1.5},
        ],
    ),
    Case(
        "linear network",
        lambda **point: LinearNetwork(width=3, **point),
        lambda model, training: jnp.concatenate(
            [
                curves("strength test_loss feature_dimension", [0.0, 1.0, 5.0])(model, training),
                model.emergence_time().emergence_time.data,
            ]
        ),
        {"singular_values": [3.0, 1.0, 0.5], "initial_scale": 0.1},
        # A start at its target, which emerges at once, and one beyond it.
        [{}, {"initial_scale": 1.0}, {"initial_scale": 1.2}],
    ),
    Case(
        "parity mode",
        ParityMode,
        # Few steps are allowed, because reverse mode stores them.
        curves("strength weight offset test_loss", [0.0, 1.0, 5.0], tolerance=1e-9, max_steps=400),
        {
            "target_scale": 1.0,
            "initial_first": 0.1,
            "initial_second": 0.1,
            "initial_third": 0.1,
            "initial_offset": 0.0,
        },
        [{}, {"initial_first": 0.2, "initial_offset": 0.3}],
        tolerance=1e-5,
        forward=False,
    ),
    *[
        Case(
            f"linear features, {samples} samples",
            lambda samples=samples, **point: LinearFeatures(samples=samples, **point),
            curves("test_loss train_loss bias variance noise_loss signal_fit noise_fit coefficient", [0.0, 3.0]),
            {"intensities": [1.0, 0.5, 0.25, 0.1], "target": [1.0, 0.5, -0.3, 0.2], "noise": 0.2},
            [{}, {"noise": 0.0}, {"target": [1.0, 0.5, 0.0, 0.0]}, {"intensities": [1.0, 0.5, 0.5, 0.0]}],
            ("noise", "intensities"),
            tolerance=1e-5,
        )
        for samples in (2, 6)
    ],
    *[
        Case(
            f"skills {kind}",
            lambda kind=kind, sizes=sizes, **point: SkillModel(kind=kind, **sizes, **point),
            curves("strength skill_loss test_loss", [0.0, 10.0], max_skills=3),
            {"exponent": 0.6, "target_scale": 1.0, "initial_strength": 0.05, "rate": 1.0},
            [{}, {"exponent": 1.0}, {"initial_strength": 0.5}],
            tolerance=1e-5,
        )
        for kind, sizes in (("multilinear", {}), ("linear", {"samples": 50, "skills": 20}))
    ],
    *[
        Case(
            f"feature scaling {name}",
            lambda sizes=sizes, **point: FeatureScaling(**sizes, **point),
            curves("test_loss kernel_growth", [0.0, 6.0]),
            {"capacity": 1.5, "source": 0.5, "richness": 1.0} | ({} if name == "flow" else {"learning_rate": 0.2}),
            [{}, {"richness": 0.0}, {"source": 1.0}, {"capacity": 2.0, "source": 0.5}],
            ("richness",),
            tolerance=1e-5,
            train=train,
        )
        for name, train, sizes in (
            ("descent", GradientDescent, {}),
            # The grid of times depends on the learning rate of the flow, which therefore cannot be differentiated.
            ("flow", lambda: GradientFlow(0.2), {}),
            (
                "sgd",
                lambda learning_rate: SGD(learning_rate, batch_size=8, sampling="replacement"),
                {"features": 16, "samples": 12, "modes": 20},
            ),
        )
    ],
]


# Compiling is what costs: those that never failed, or whose branches others take too, are left to the slow tests.
QUICK = ("estimator flow", "estimator limits", "diagonal network", "scalar network", "linear network")
QUICK += ("linear features, 6 samples", "feature scaling flow")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name.replace(" ", "-"), marks=[] if case.name in QUICK else [pytest.mark.slow])
        for case in CASES
    ],
)
def test_derivatives_are_those_of_the_curves(case: Case) -> None:
    def measured(point: Point) -> jax.Array:
        own = inspect.signature(case.train).parameters if case.train else {}
        options = {name: value for name, value in point.items() if name in own}
        training = case.train(**options) if case.train else None
        return case.outputs(case.build(**{name: value for name, value in point.items() if name not in own}), training)

    # Only the shape is asked for, and nothing is compiled for it.
    shape = jax.eval_shape(measured, {name: np.asarray(entry, float) for name, entry in case.point.items()}).shape
    weights = np.random.default_rng(0).normal(size=shape)
    value = jax.jit(measured)
    forward = jax.jacfwd(measured) if case.forward else lambda point: None
    # One number out of all, so that reverse mode is one pass: a NaN of any spoils it.
    reverse = jax.grad(lambda point: measured(point) @ weights)
    # One program for both, which share the curves.
    derivatives = jax.jit(lambda point: (forward(point), reverse(point)))
    for special in case.special:
        point = {name: np.asarray(entry, float) for name, entry in {**case.point, **special}.items()}
        here = np.asarray(value(point))
        along, backward = derivatives(point)
        for name, entry in point.items():
            for index in np.ndindex(entry.shape):
                expected = differences(value, point, name, index, case)
                scale = np.abs(expected).max() + np.abs(here).max() + 1e-9
                where = f"{case.name} at {special}: d/d {name}{list(index)}"
                assert np.isfinite(expected).all(), where
                if along is not None:
                    found = np.asarray(along[name])[(..., *index)]
                    np.testing.assert_allclose(found, expected, rtol=0, atol=case.tolerance * scale, err_msg=where)
                atol = case.tolerance * scale * np.abs(weights).sum()
                np.testing.assert_allclose(
                    np.asarray(backward[name])[index], weights @ expected, rtol=0, atol=atol, err_msg=where
                )


def differences(value: Any, point: Point, name: str, index: tuple[int, ...], case: Case) -> np.ndarray:
    """The derivative by finite differences; from the right where the parameter is zero and cannot be less."""
    entry = point[name]
    step = case.step * max(abs(float(entry[index])), 0.1)
    rule = _FORWARD if name in case.not_negative and entry[index] == 0 else _CENTRAL
    total = np.zeros(())
    for places, weight in rule.items():
        moved = entry.copy()
        moved[index] += places * step
        total = total + weight / step * np.asarray(value({**point, name: moved}))
    return total


@pytest.mark.parametrize("model", [ParityMode(), LinearFeatures()], ids=["parity-mode", "linear-features"])
def test_the_learning_rate_of_a_flow_has_a_derivative(model: Model) -> None:
    """The model is of plain numbers, only its clock is traced: both raised errors of JAX. By the fourth-order rule."""

    def loss(rate: Any) -> Any:
        return model.predict([0.0, 4.0], GradientFlow(rate)).test_loss.data[-1]

    expected = sum(weight / 1e-3 * float(loss(0.5 + 1e-3 * place)) for place, weight in _CENTRAL.items())
    assert float(jax.grad(loss)(0.5)) == pytest.approx(expected, rel=1e-6)


def test_equal_eigenvalues_have_derivatives() -> None:
    """Eigenvectors of equal eigenvalues have none, but the flow in their plane has."""

    def loss(richness: Any, spectrum: list[float], target: list[float]) -> Any:
        model = FeatureScaling(spectrum=spectrum, target=target, richness=richness)
        return model.predict([0.0, 5.0], GradientFlow(0.1)).test_loss.data[-1]

    for richness in (0.0, 1.0):
        twice = float(jax.grad(loss)(richness, [1.0, 1.0, 0.5], [0.6, 0.8, 0.3]))
        assert twice == pytest.approx(float(jax.grad(loss)(richness, [1.0, 0.5], [1.0, 0.3])), rel=1e-9)


def test_no_derivative_is_no_nan() -> None:
    """At the tip of a cone there is no derivative, but nothing that spoils a sum of others either."""
    point = (np.array([1.0, 0.0]), np.array([1.0, 0.0]), 0.0)

    def ratio(first: Any, second: Any, target: Any) -> Any:
        return ScalarNetwork(first, second, target).kernel_ratio().kernel_ratio.data

    found = jax.grad(ratio, (0, 1, 2))(*point)
    assert all(np.isfinite(part).all() for part in found)
    limits = jax.grad(lambda ratio: LinearEstimator(ratio).limit().test_loss.data)(1.0)
    assert np.isfinite(limits)


def test_committee_says_that_it_cannot_be_differentiated() -> None:
    """Its solvers run on numbers; tracing a parameter is refused, not silently cut off."""
    with pytest.raises((ValueError, TypeError, jax.errors.JAXTypeError)):
        jax.grad(lambda scale: Committee(output_scale=scale).predict([0, 1]).test_loss.data[-1])(0.1)
