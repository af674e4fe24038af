"""Theory against simulation for every model: nothing but noise and stated numerical errors separates them."""

import functools
import math

import numpy as np
import pytest
import xarray as xr
from scipy.integrate import solve_ivp

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
    ParityMode,
    ScalarNetwork,
    SkillModel,
    compare,
)
from solvable.numerics.descent import train_with_error
from solvable.timegrid import log_times, whole_steps
from solvable.training import Training

DIAGONAL = DiagonalNetwork([1.0, 0.3], [1.0, 1.0], [0.1, 0.1], [0.1, 0.05])
SCALAR = ScalarNetwork([0.1, -0.2, 0.3], [0.2, 0.1, 0.1], 1.0)
# Late enough that the losses are nothing but rounding: 1e-170 in theory.
LATE = log_times(0.5, 300, 7)


def largest_score(comparison: xr.Dataset) -> float:
    return float(abs(comparison.sel(statistic="z_score").to_array()).max())


@functools.cache
def deterministic(name: str) -> tuple[xr.Dataset, xr.Dataset]:
    steps = whole_steps(log_times(1, 300, 7))
    if name == "diagonal":
        return DIAGONAL.predict(LATE), DIAGONAL.simulate(LATE, samples=None, seeds=2)
    if name == "scalar":
        return SCALAR.predict(LATE), SCALAR.simulate(LATE, samples=None, seeds=2)
    if name == "parity":
        model, times = ParityMode(initial_first=0.1, initial_second=0.1, initial_third=0.1), log_times(0.5, 100, 6)
        return model.predict(times), model.simulate(times, seeds=2)
    if name.startswith("skills"):
        model, training = SkillModel(0.6, skills=20, kind=name.split()[1]), GradientFlow(0.5)
        return model.predict(steps, training), model.simulate(steps, training, seeds=2)
    if name == "linear network":
        network, times = LinearNetwork([3.0, 1.0], width=3, initial_scale=0.1), np.array([0.5, 2.0, 4.0])
        return network.predict(times), network.simulate(times, initial="balanced", seeds=2)
    scaling = FeatureScaling(capacity=1.5, source=0.5, modes=30)
    return scaling.predict(steps[:5]), scaling.simulate(steps[:5], seeds=2)


@pytest.mark.parametrize(
    "name",
    [
        "diagonal",
        "scalar",
        "parity",
        "skills multilinear",
        "skills linear",
        "linear network",
        "feature scaling",
    ],
)
def test_without_noise_the_numerical_errors_explain_all(name: str) -> None:
    """Scores of 1e5 to 1e154 before both sides stated errors. The errors are estimates: twice of them is much."""
    comparison = compare(*deterministic(name))
    assert largest_score(comparison) < 2.5
    assert comparison.attrs["verdict"].startswith("theory and simulation agree: ")
    assert "deterministic: all seeds are alike" in comparison.attrs["verdict"]


@pytest.mark.parametrize("name", ["diagonal", "parity", "skills linear"])
def test_flows_are_exact_enough_to_find_small_mistakes(name: str) -> None:
    """The errors are not only large enough, but small: a strength that is wrong by 1e-6 is found."""
    theory, simulation = deterministic(name)
    theory = theory.assign(strength=theory.strength * (1 + 1e-6))
    assert "disagree in 1 of" in compare(theory, simulation).attrs["verdict"]


@pytest.mark.parametrize("model", [DIAGONAL, SCALAR], ids=["diagonal", "scalar"])
def test_descent_approaches_the_flow_linearly_in_the_learning_rate(model: DiagonalNetwork | ScalarNetwork) -> None:
    """Steps and flow at the same flow times: the distance halves with the learning rate, and theory is the limit."""
    flow_times = np.array([1.0, 2.0, 4.0])
    theory = model.predict(flow_times).test_loss.values
    runs = [
        model.simulate(np.rint(flow_times / rate), GradientDescent(rate), samples=None, seeds=1).test_loss.values[0]
        for rate in (0.01, 0.005, 0.0025)
    ]
    first, second, third = (losses - theory for losses in runs)
    np.testing.assert_allclose(second / third, 2.0, rtol=0.05)
    # What is left after extrapolating twice, of third order in the rate, is nothing.
    assert (np.abs(first - 6 * second + 8 * third) < 2e-3 * np.abs(first)).all()


def test_steps_have_no_error_but_rounding() -> None:
    """dx/dt = -x: n steps of gradient descent are (1 - rate)^n, and a million of them lose no more than stated."""
    steps = np.array([0.0, 100.0, 300.0, 10**6])
    values, errors = train_with_error(lambda x: x, lambda x: x, 1.0, steps, GradientDescent(1e-6), 2.0)
    exact = np.exp(steps * math.log1p(-1e-6))
    assert (np.abs(values - exact) <= errors + 1e-16).all()
    assert (np.asarray(errors) < 1e-9).all()


def test_errors_of_the_flow_bound_its_distance_from_the_exact_one() -> None:
    times = np.array([0.5, 1.0, 3.0, 60.0])
    values, errors = train_with_error(lambda x: x, lambda x: (x, x**2), 1.0, times, GradientFlow(), 2.0)
    for value, error, exact in zip(values, errors, (np.exp(-times), np.exp(-2 * times)), strict=True):
        assert (np.abs(value - exact) <= error).all()
        assert (error[:3] < 1e-4 * exact[:3]).all()


@pytest.mark.parametrize("kind", ["multilinear", "linear"])
def test_skill_flow_is_the_flow(kind: str) -> None:
    """Each skill by an integrator that knows no closed form; steps of one unit of time were off by 7e-4."""
    model = SkillModel(0.6, skills=5, kind=kind, target_scale=1.0, initial_strength=0.01)
    steps = np.array([1.0, 3.0, 10.0, 40.0])
    found = model.simulate(steps, seeds=1).strength.values[0]
    chances = np.arange(1.0, 6.0) ** -1.6
    chances /= chances.sum()

    def velocity(_: float, state: np.ndarray) -> np.ndarray:
        first, second = state.reshape(2, 5)
        pull = chances * (1 - first * second)
        return np.concatenate([pull, np.zeros(5)] if kind == "linear" else [pull * second, pull * first])

    start = np.concatenate([np.zeros(5), np.ones(5)]) if kind == "linear" else np.full(10, 0.1)
    path = solve_ivp(velocity, (0, 40), start, "DOP853", steps, rtol=1e-12, atol=1e-15).y.reshape(2, 5, -1)
    np.testing.assert_allclose(found, (path[0] * path[1]).T, rtol=1e-9)


def test_skill_flow_of_partly_taught_skills_is_the_flow() -> None:
    """Three of five basis functions: the second skill has half of its own, the third none and stays at nothing."""
    model, training = SkillModel(0.6, skills=3, basis=3, neurons_per_skill=2), GradientFlow(0.5)
    steps = [1, 10, 100]
    comparison = compare(model.predict(steps, training), model.simulate(steps, training, seeds=2))
    assert largest_score(comparison) < 2.5
    assert float(abs(comparison.strength.sel(statistic="simulation", skill=3)).max()) == 0.0


def test_rare_skills_do_not_contradict_their_expectation() -> None:
    """In 30 samples most skills occur in no seed at all, which gave scores of 1e14. Theory's spread says so."""
    model, training = SkillModel(0.6, skills=50, samples=30), GradientFlow(0.5)
    steps = whole_steps(log_times(1, 300, 6))
    theory, simulation = model.predict(steps, training), model.simulate(steps, training, seeds=200)
    assert largest_score(compare(theory, simulation.isel(seed=slice(0, 10)))) < 10
    # The spread over training sets itself, to four standard errors of a standard deviation of few events.
    for name in ("strength", "skill_loss"):
        spread = simulation[name].std("seed", ddof=1).values[2:, :3]
        np.testing.assert_allclose(spread, theory[f"{name}_spread"].values[2:, :3], rtol=0.35, atol=0.02)


def test_spread_of_data_emergence_is_that_of_the_draws() -> None:
    model = SkillModel(0.6, skills=6, shots=3)
    counts = [4, 10, 30]
    theory, simulation = model.data_emergence(counts), model.simulate_data_emergence(counts, seeds=400)
    np.testing.assert_allclose(simulation.strength.std("seed", ddof=1), theory.strength_spread, rtol=0.3, atol=0.02)
    assert largest_score(compare(theory, simulation.isel(seed=slice(0, 20)))) < 6


def test_false_alarms_on_a_theory_that_is_exact() -> None:
    """Skills of finite samples: expectations without approximation. 20 ensembles of 10 runs, 1 % of alarms is 0.2."""
    model, training = SkillModel(0.6, skills=20, samples=100), GradientFlow(0.5)
    steps = whole_steps(log_times(1, 100, 5))
    theory, simulation = model.predict(steps, training), model.simulate(steps, training, seeds=200, key=7)
    verdicts = [
        compare(theory, simulation.isel(seed=slice(first, first + 10))).attrs["verdict"] for first in range(0, 200, 10)
    ]
    assert sum("disagree" in verdict for verdict in verdicts) <= 2


REFUSED = {
    "parameter": (
        lambda: (_theory(), _run(LinearEstimator(0.9))),
        r"theory has aspect_ratio = 0\.5, simulation 0\.9",
    ),
    "flow against steps": (
        lambda: (_theory(GradientFlow(0.01)), _run(LinearEstimator(0.5))),
        "theory has training = 'GradientFlow', simulation 'GradientDescent'",
    ),
    "learning rate": (
        lambda: (_theory(GradientDescent(0.02)), _run(LinearEstimator(0.5))),
        r"theory has learning_rate = 0\.02, simulation 0\.01",
    ),
    "batch": (
        lambda: (_theory(), _run(LinearEstimator(0.5), SGD(0.01, batch_size=10))),
        "theory has training = 'GradientDescent', simulation 'SGD'",
    ),
    "momentum": (
        lambda: (_theory(), _run(LinearEstimator(0.5), GradientDescent(0.01, momentum=0.5))),
        r"theory has momentum = 0\.0, simulation 0\.5",
    ),
    "weight decay": (
        lambda: (_theory(GradientDescent(0.01, weight_decay=0.1)), _run(LinearEstimator(0.5))),
        r"theory has weight_decay = 0\.1, simulation 0\.0",
    ),
    "dimension": (
        lambda: (_theory(dimension=30), _run(LinearEstimator(0.5))),
        "theory has dimension = 30, simulation 20",
    ),
    "features": (
        lambda: (_features().predict([1, 2]), _features().simulate([1, 2], seeds=2, features="sine")),
        "theory has features = 'gaussian', simulation 'sine'",
    ),
    "modes": (
        lambda: (_scaling().replace(modes=math.inf).predict([1, 2]), _scaling().simulate([1, 2], seeds=2)),
        "theory has modes = inf, simulation 20",
    ),
    "another network": (
        lambda: (
            _scaling().replace(features=5).predict([1, 2]),
            _scaling().replace(features=5).simulate_linear_network([1, 2], seeds=2),
        ),
        "theory has network = 'projected', simulation 'linear'",
    ),
    "one-pass descent": (
        lambda: (
            _committee().replace(samples_per_dimension=math.inf).predict([1, 2], SGD(0.1, batch_size=1)),
            _committee().simulate([1, 2], **_SMALL),
        ),
        "theory has samples_per_dimension = inf, simulation 5",
    ),
}
_SMALL = {"dimension": 20, "seeds": 2}


@functools.cache
def _theory(training: Training | None = None, dimension: int | None = None) -> xr.Dataset:
    return LinearEstimator(0.5).predict([1, 2], training, dimension=dimension)


@functools.cache
def _run(model: LinearEstimator, training: Training | None = None) -> xr.Dataset:
    return model.simulate([1, 2], training, dimension=20, seeds=2)


def _features() -> LinearFeatures:
    return LinearFeatures([1.0, 0.5], [1.0, 1.0], samples=4)


def _scaling() -> FeatureScaling:
    return FeatureScaling(capacity=1.5, source=0.5, modes=20)


def _committee() -> Committee:
    return Committee(samples_per_dimension=5.0)


# Half a minute to compile, and the same check as the others.
SLOW = ("features", "another network", "one-pass descent")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow) if case in SLOW else case for case in REFUSED]
)
def test_theory_of_another_system_is_refused(case: str) -> None:
    make, message = REFUSED[case]
    theory, simulation = make()
    with pytest.raises(ValueError, match=message):
        compare(theory, simulation)
    assert "agree" in compare(theory, simulation, allow_different=True).attrs["verdict"]


def test_limits_of_theory_are_held_against_finite_systems() -> None:
    """Infinite inputs and dimension are what theory is for; the online limit is one of many samples."""
    from solvable.solvers import Online

    compare(_theory(), _run(LinearEstimator(0.5)))
    compare(_committee().predict([1, 2], solver=Online()), _committee().simulate([1, 2], **_SMALL))
    assert _committee().samples_per_dimension < math.inf
