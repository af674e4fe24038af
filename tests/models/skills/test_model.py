"""The skill model: sigmoids against integrated flows, sums against direct sums, laws against slopes and simulations."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.stats import binom

from solvable import SGD, GradientDescent, GradientFlow
from solvable.comparison import compare
from solvable.models.skills import SkillModel

ALPHAS = (0.3, 0.6, 0.9)


def zipf(exponent: float, skills: int) -> np.ndarray:
    weights = np.arange(1.0, skills + 1) ** -(exponent + 1)
    return weights / weights.sum()


def integrated(slope: object, start: np.ndarray, times: np.ndarray, *given: object) -> np.ndarray:
    """A flow ``dx/dt = -slope(x, *given)`` by an eighth-order integrator; rows are times.

    Each time is the end of a stretch: between its steps the integrator only interpolates, to fewer digits.
    """
    states, now = [start], 0.0
    for time in times:
        flow = solve_ivp(
            lambda _, x: -np.asarray(slope(x, *given)),  # type: ignore[operator]
            (now, time),
            states[-1],
            "DOP853",
            rtol=1e-11,
            atol=1e-13,
        )
        states.append(flow.y[:, -1])
        now = time
    return np.stack(states[1:])


def slope_of_two_factors(x: np.ndarray, chance: np.ndarray, scale: float, rate: float) -> np.ndarray:
    """Gradient of the loss of eq. 5.1, f = sum a_k b_k B g_k, by the chain rule."""
    first, second = np.split(x, 2)
    error = -chance * (scale - first * second * rate) * rate
    return np.concatenate([error * second, error * first])


def slope_of_one_factor(x: np.ndarray, chance: np.ndarray, scale: float) -> np.ndarray:
    return -chance * (scale - x)


def allowed(variance: np.ndarray, runs: int, span: float, false_alarm: float = 1e-6) -> np.ndarray:
    """How far a mean over runs may be from its expectation, by Bernstein's inequality.

    Holds for any distribution on a range of width ``span``, so also where nearly all runs agree and the rest decide;
    about 5.4 standard errors where runs are many. The variance is that of theory, not of the runs.
    """
    level = math.log(2 / false_alarm) / runs
    return level * span / 3 + np.sqrt((level * span / 3) ** 2 + 2 * variance * level)


# --- one skill in time --------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(
    st.floats(0.1, 1.2),
    st.integers(1, 3),
    st.floats(0.3, 5.0),
    st.floats(1e-4, 0.9),
    st.floats(0.05, 2.0),
    st.floats(0.1, 1.5),
    st.sampled_from(["multilinear", "linear"]),
)
def test_strengths_are_the_gradient_flow_of_the_loss(
    exponent: float, skills: int, scale: float, share: float, learning_rate: float, rate: float, kind: str
) -> None:
    """Eqs. 4.11, 5.2, C.4. Model 5.1, ``R = a b B``, makes the rate B (not B squared as 5.2 prints)."""
    model = SkillModel(
        exponent,
        skills=skills,
        target_scale=scale,
        initial_strength=share * scale,
        rate=rate,
        kind=kind,
    )
    chance = zipf(exponent, skills)
    # Up to where the last skill is learned.
    times = np.array([0.1, 0.5, 1.0]) * 10 / (learning_rate * rate * scale * chance[-1])
    # The learning rate is a unit of time.
    if kind == "multilinear":
        start = np.full(2 * skills, math.sqrt(share * scale / rate))
        flow = integrated(slope_of_two_factors, start, learning_rate * times, chance, scale, rate)
        expected = flow[:, :skills] * flow[:, skills:] * rate
    else:
        expected = integrated(slope_of_one_factor, np.zeros(skills), learning_rate * rate * times, chance, scale)
    found = model.predict(times, GradientFlow(learning_rate))
    np.testing.assert_allclose(found.flow_time, learning_rate * times)
    assert np.abs(found.strength.values - expected).max() < 1e-9 * scale
    total = ((scale - expected) ** 2 / 2) @ chance
    assert np.abs(found.test_loss.values - total).max() < 1e-9 * scale**2


def test_a_skill_with_some_of_its_basis_functions_follows_the_flow_of_all_of_them() -> None:
    """Eq. 5.6 with N = 7, N_c = 4: the second skill has 3 of 4, all coordinates of B integrated."""
    each, owned, scale, ratio = 4, 3, 2.0, 1e-3
    model = SkillModel(
        0.5, skills=3, target_scale=scale, initial_strength=ratio * scale, basis=7, neurons_per_skill=each
    )
    chance = zipf(0.5, 3)[1]
    part = owned / each

    def slope(x: np.ndarray) -> np.ndarray:
        # a = x[0], B = x[1:]; the function's coordinates are a B, the target's S / sqrt(N_c) on all four.
        error = -chance * (scale / math.sqrt(each) - x[0] * x[1:])
        return np.concatenate([[error @ x[1:]], error * x[0]])

    size = math.sqrt(ratio * scale * math.sqrt(part))
    times = np.array([1.0, 10.0, 15.0, 30.0, 100.0])
    start = np.array([size, *[size / math.sqrt(owned)] * owned])
    flow = integrated(slope, start, times)
    strength = flow[:, 0] * flow[:, 1:].sum(1) / math.sqrt(each)
    found = model.predict(times)
    assert np.abs(found.strength.values[:, 1] - strength).max() < 1e-9
    missing = (scale / math.sqrt(each)) ** 2 * (each - owned) / 2
    left = ((scale / math.sqrt(each) - flow[:, :1] * flow[:, 1:]) ** 2).sum(1) / 2 + missing
    assert np.abs(found.skill_loss.values[:, 1] - left).max() < 1e-9
    assert np.all(found.strength.values[:, 2] == 0)
    assert np.allclose(found.test_loss, found.skill_loss.values @ zipf(0.5, 3), rtol=1e-13)


def test_emergence_times_solve_the_prediction() -> None:
    model, training = (
        SkillModel(0.6, skills=5, target_scale=5.0, rate=1 / 22, initial_strength=1e-4),
        GradientFlow(0.05),
    )
    for kind in ("multilinear", "linear"):
        chosen = model.replace(kind=kind)
        times = chosen.emergence_time(0.3, training).emergence_time.values
        strengths = chosen.predict(times, training).strength.values / 5
        assert np.allclose(np.diag(strengths), 0.3, rtol=1e-12)
    half = model.replace(basis=7, neurons_per_skill=4).emergence_time(0.5, training).emergence_time.values
    partial = model.replace(basis=7, neurons_per_skill=4).predict([half[1]], training).strength.values[0, 1]
    assert partial == pytest.approx(2.5, rel=1e-12)
    assert np.isinf(half[2:]).all()
    # Half time times frequency is the same for all skills: what calibrating on one and predicting the rest rests on.
    times = model.emergence_time(0.5).emergence_time.values
    assert np.allclose(times * zipf(0.6, 5), times[0] * zipf(0.6, 5)[0], rtol=1e-13)


# --- sums over skills ---------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(st.floats(0.05, 3.0), st.floats(1e-6, 0.9), st.floats(-1.0, 6.0), st.sampled_from(["multilinear", "linear"]))
def test_sums_agree_with_direct_sums(exponent: float, share: float, log_time: float, kind: str) -> None:
    """Every basis size from 1 to 30 000 against exact summation of its terms."""
    skills, time = 30_000, 10**log_time
    model = SkillModel(exponent, skills=skills, initial_strength=share, kind=kind)
    chance = zipf(exponent, skills)
    progress = np.minimum((2 if kind == "multilinear" else 1) * chance * time, 350.0)
    rest = np.exp(-progress) if kind == "linear" else 1 / (1 + np.exp(progress) * share / (1 - share))
    basis = [1, 7, 64, 65, 300, 2000, 29_999, 30_000]
    found = model.losses([time], basis)
    for size, value in zip(basis, found.test_loss.values[0], strict=True):
        exact = (math.fsum(chance[:size] * rest[:size] ** 2) + math.fsum(chance[size:])) / 2
        # The normalisation by a naive sum of 30 000 terms is good to 1e-14.
        assert value == pytest.approx(exact, rel=2e-12, abs=1e-14)
    assert found.attrs["numerical_error"] < 1e-10


@pytest.mark.parametrize("exponent", ALPHAS)
def test_the_infinite_sum_is_the_limit_of_finite_ones(exponent: float) -> None:
    """A direct sum to a million, and beyond it mpmath's Euler-Maclaurin with numerical derivatives and integral."""
    import mpmath

    model = SkillModel(exponent, initial_strength=1e-3, skills=math.inf)
    scale = 1 / mpmath.zeta(exponent + 1)
    for time in (3.0, 1e4):
        size = np.arange(1.0, 1e6)
        chance = float(scale) * size ** -(exponent + 1)
        head = math.fsum(chance / (1 + np.exp(np.minimum(2 * chance * time, 300)) / 999) ** 2)

        def summand(k: mpmath.mpf, time: float = time) -> mpmath.mpf:
            chance = scale * k ** -(mpmath.mpf(exponent) + 1)
            return chance / (1 + mpmath.exp(2 * chance * time) / 999) ** 2

        # From 1e6 on the summand is so smooth that the third correction is below 1e-20.
        edge = mpmath.mpf(10) ** 6
        knots = [edge * 10**j for j in range(0, 40, 2)]
        tail = sum(mpmath.quad(summand, [a, b]) for a, b in itertools.pairwise(knots))
        tail += (mpmath.mpf(999) / 1000) ** 2 * scale * knots[-1] ** -mpmath.mpf(exponent) / exponent
        tail += summand(edge) / 2 - mpmath.diff(summand, edge) / 12
        exact = (head + float(tail)) / 2
        assert float(model.predict([time]).test_loss[0]) == pytest.approx(exact, rel=1e-10)


@pytest.mark.slow
def test_the_loss_is_the_mean_of_the_skill_losses() -> None:
    for model in (
        SkillModel(0.6, skills=200),
        SkillModel(0.6, skills=200, samples=900),
        SkillModel(0.6, skills=200, samples=50_000),
        SkillModel(0.6, skills=200, basis=30),
        SkillModel(0.6, skills=200, basis=30, samples=70, kind="linear"),
    ):
        found = model.predict([0, 3, 100, 3e4])
        assert np.allclose(found.test_loss, found.skill_loss.values @ zipf(0.6, 200), rtol=1e-12)


def test_the_error_of_the_sum_is_measured_and_small() -> None:
    """By a coarser grid; zero would mean that nothing was compared."""
    assert 0 < SkillModel(0.6, skills=math.inf).predict([1e4]).attrs["numerical_error"] < 1e-10


def test_exponentially_small_losses_keep_their_digits() -> None:
    model = SkillModel(0.5, skills=300)
    found = model.predict([2e5, 5e5])
    expected = found.skill_loss.values @ zipf(0.5, 300)
    assert (expected < 1e-20).all()
    assert np.allclose(found.test_loss, expected, rtol=1e-9)


# --- finite data --------------------------------------------------------------------------------------------------


@settings(max_examples=6)
@given(
    st.integers(1, 60) | st.integers(700, 6000),
    st.floats(-1.0, 5.0),
    st.floats(1e-4, 0.5),
    st.sampled_from(["multilinear", "linear"]),
)
def test_expectations_over_the_data_are_sums_over_all_counts(
    samples: int, log_time: float, share: float, kind: str
) -> None:
    time = 10**log_time
    model = SkillModel(0.6, skills=6, samples=samples, initial_strength=share, kind=kind)
    counts = np.arange(samples + 1)
    progress = np.minimum((2 if kind == "multilinear" else 1) * counts / samples * time, 300.0)
    rest = np.exp(-progress) if kind == "linear" else 1 / (1 + np.exp(progress) * share / (1 - share))
    table = np.stack([binom.pmf(counts, samples, chance) for chance in zipf(0.6, 6)])
    found = model.predict([time])
    # SciPy's probabilities are good to about 1e-12 at this size.
    assert np.abs(found.strength.values[0] - (1 - table @ rest)).max() < 3e-11
    assert np.abs(found.skill_loss.values[0] - table @ rest**2 / 2).max() < 3e-11


@pytest.mark.slow
def test_much_data_is_unlimited_data_and_long_training_ends() -> None:
    unlimited = SkillModel(0.6, skills=math.inf).predict([1, 1e2, 1e4]).test_loss.values
    much = SkillModel(0.6, samples=1e15, skills=math.inf).predict([1, 1e2, 1e4]).test_loss.values
    assert np.allclose(much, unlimited, rtol=1e-9)
    # After training an unseen skill keeps (S - R0)^2 / 2, eq. 4.26; data_emergence is for R0 -> 0.
    ended = SkillModel(0.6, samples=1000, initial_strength=1e-3, skills=math.inf).predict([1e9]).test_loss.values[0]
    assert ended == pytest.approx(
        0.999**2 * SkillModel(0.6, skills=math.inf).data_emergence([1000]).test_loss.values[0], rel=1e-12
    )
    # Nothing learned before training, everything with unlimited resources.
    assert float(SkillModel(0.6, samples=7, skills=math.inf).predict([0]).test_loss[0]) == pytest.approx(
        0.99**2 / 2, rel=1e-13
    )
    assert SkillModel(0.6, skills=math.inf).data_emergence([math.inf]).test_loss.values[0] == 0
    assert SkillModel(0.6, skills=math.inf).parameter_emergence([math.inf]).test_loss.values[0] == 0


def test_strength_after_training_is_linear_in_the_share_of_shots() -> None:
    """Eq. 5.5 corrected against minimum-norm regression on drawn features.

    One skill, so that the count is the number of samples. The strength is that of a projection on the span of the
    samples, whose expectation is ``1 / D_c`` times the identity times its rank: by rotations for Gaussians, and by
    changes of sign and permutations of the features for signs, so it is d / D_c for both. The rank is full but for
    a chance of 1e-6 (two equal rows or columns of 32 x 30 signs). For Gaussians it is Beta distributed with the
    variance used here; for signs the variance is within 5 % of that. The printed form is 19 to 55 standard errors away.
    """
    model, seeds = SkillModel(1.0, skills=1, target_scale=2.0, shots=32), 300
    samples = np.array([8, 16, 24, 30])
    theory = model.data_emergence(samples)
    assert np.allclose(theory.strength[:, 0], 2.0 * samples / 32, rtol=1e-12)
    variance = 2 * samples * (32 - samples) / (32**2 * 34)
    printed = 1 - np.sqrt(1 - samples / 32)
    for features in ("gaussian", "signs"):
        runs = model.simulate_data_emergence(samples, seeds=seeds, features=features, key=3)
        learned = runs.strength.values[:, :, 0] / 2
        limit = allowed(1.05 * variance, seeds, 1.0)
        assert (np.abs(learned.mean(0) - samples / 32) < limit).all()
        assert (np.abs(learned.mean(0) - printed) > 10 * np.sqrt(variance / seeds)).all()
        # What is missing of a projection has the square that is missing of its length.
        assert np.allclose(runs.skill_loss.values[:, :, 0], 2 * (1 - learned), rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_data_emergence_of_many_skills_matches_drawn_training_sets() -> None:
    """The strength of a skill with count d < D_c is Beta distributed, so its variance over data and features is known.

    Twelve cells, each a false alarm with chance below 1e-6; seed fixed.
    """
    model, shots, seeds = SkillModel(0.6, skills=4, shots=6), 6, 400
    samples = [5, 20, 60]
    runs = model.simulate_data_emergence(samples, seeds=seeds, key=1)
    theory = model.data_emergence(samples)
    for row, size in enumerate(samples):
        counts = np.arange(size + 1)
        chances = np.stack([binom.pmf(counts, size, chance) for chance in zipf(0.6, 4)])
        used = np.minimum(counts, shots)
        mean, square = chances @ (used / shots), chances @ (used * (used + 2) / (shots * (shots + 2)))
        assert np.allclose(theory.strength[row], mean, rtol=1e-10)
        found = runs.strength.values[:, row].mean(0)
        assert (np.abs(found - mean) < allowed(np.maximum(square - mean**2, 0), seeds, 1.0)).all()


def test_parameter_emergence_hands_basis_functions_out_in_order() -> None:
    """Eq. 5.9: q = (N-1)//N_c + 1 and the rest r = N - (q-1) N_c, literally."""
    model = SkillModel(0.6, skills=5, target_scale=5.0, neurons_per_skill=4)
    basis = np.arange(1, 24)
    found = model.parameter_emergence(basis)
    for size, strengths in zip(basis, found.strength.values, strict=True):
        quotient = (size - 1) // 4 + 1
        rest = size - (quotient - 1) * 4
        expected = [5.0 if k < quotient else 5.0 * rest / 4 if k == quotient else 0.0 for k in range(1, 6)]
        assert np.allclose(strengths, expected)
    assert np.allclose(found.test_loss, found.skill_loss.values @ zipf(0.6, 5), rtol=1e-13)
    # The same as the end of training in time.
    late = model.replace(basis=7).predict([1e4])
    assert np.allclose(late.strength[0], model.parameter_emergence([7]).strength[0], rtol=1e-12)


# --- scaling laws -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", ALPHAS)
def test_exponents_of_table_4_1(exponent: float) -> None:
    """Local slopes of the exact sums over a decade; tolerances as the corrections to the laws ask."""
    model = SkillModel(exponent, skills=math.inf)
    expected = model.exponents()

    def slope(values: object) -> float:
        first, last = np.log10(np.asarray(values))
        return float(last - first)

    assert slope(model.predict([1e5, 1e6]).test_loss) == pytest.approx(-exponent / (exponent + 1), abs=1e-4)
    assert slope(model.data_emergence([1e5, 1e6]).test_loss) == pytest.approx(-exponent / (exponent + 1), abs=1e-4)
    assert slope(model.parameter_emergence([1e3, 1e4]).test_loss) == pytest.approx(-exponent, abs=1e-3)
    best = model.compute_optimal([1e8, 1e9])
    assert slope(best.test_loss) == pytest.approx(-exponent / (exponent + 2), abs=2e-3)
    # The basis is a whole number near a flat minimum.
    assert slope(best.basis) == pytest.approx(1 / (exponent + 2), abs=5e-3)
    assert slope(best.time) == pytest.approx((exponent + 1) / (exponent + 2), abs=5e-3)
    assert np.allclose(best.basis * best.time, best.budget)
    table = {
        "time": exponent / (exponent + 1),
        "samples": exponent / (exponent + 1),
        "basis": exponent,
        "budget": exponent / (exponent + 2),
        "optimal_time": (exponent + 1) / (exponent + 2),
        "optimal_basis": 1 / (exponent + 2),
    }
    assert {name: float(value) for name, value in expected.data_vars.items()} == pytest.approx(table)


@settings(max_examples=8)
@given(st.floats(0.2, 1.2), st.floats(1e-5, 0.7), st.floats(0.5, 4.0), st.sampled_from(["multilinear", "linear"]))
def test_prefactors_are_the_limits_of_the_losses(exponent: float, share: float, scale: float, kind: str) -> None:
    model = SkillModel(
        exponent, target_scale=scale, initial_strength=share * scale, rate=0.3, kind=kind, shots=3, skills=math.inf
    )
    prefactors, exponents = model.prefactors(), model.exponents()

    def law(name: str, resource: float) -> float:
        return float(prefactors[name]) * resource ** -float(exponents[name])

    # The sum differs from its integral by less than any power: only rounding is left.
    assert float(model.predict([1e8]).test_loss[0]) == pytest.approx(law("time", 1e8), rel=1e-10)
    # (1-p)^D = exp(-Dp)(1 - Dp^2/2) changes the data law by order 1/D.
    assert float(model.data_emergence([1e8]).test_loss[0]) == pytest.approx(law("samples", 1e8), rel=1e-6)
    # N + 1/2 instead of N.
    size = 1e6
    assert float(model.parameter_emergence([size]).test_loss[0]) == pytest.approx(law("basis", size + 0.5), rel=1e-10)


@pytest.mark.parametrize("each", [1, 3])
def test_the_compute_optimum_approaches_its_law(each: int) -> None:
    """The prefactor of the optimum comes from the scaling function alone; the search knows nothing of it."""
    model = SkillModel(0.5, neurons_per_skill=each, skills=math.inf)
    prefactors = model.prefactors()
    best = model.compute_optimal([1e10])
    # The optimum has about 1e4 skills; corrections are of the order of one over that.
    assert float(best.test_loss[0]) == pytest.approx(float(prefactors.budget) * 1e10 ** (-0.5 / 2.5), rel=3e-4)
    assert float(best.basis[0]) == pytest.approx(float(prefactors.optimal_basis) * 1e10 ** (1 / 2.5), rel=2e-2)
    assert float(best.time[0]) == pytest.approx(float(prefactors.optimal_time) * 1e10 ** (1.5 / 2.5), rel=2e-2)


def test_the_compute_optimum_is_the_best_of_all_splits() -> None:
    model = SkillModel(0.7, skills=math.inf)
    budget = 3000.0
    sizes = np.arange(1, 400)
    every = [float(model.losses([budget / size], [size]).test_loss[0, 0]) for size in sizes]
    best = model.compute_optimal([budget])
    assert float(best.test_loss[0]) == pytest.approx(min(every), rel=1e-12)
    assert float(best.basis[0]) == sizes[int(np.argmin(every))]


def test_single_shot_data_prefactor_is_a_gamma_function() -> None:
    from scipy.special import gamma, zeta

    for exponent in ALPHAS:
        part, scale = exponent / (exponent + 1), 1 / zeta(exponent + 1)
        expected = scale / (exponent + 1) * gamma(part) * scale**-part / 2
        assert float(SkillModel(exponent, skills=math.inf).prefactors().samples) == pytest.approx(expected, rel=1e-13)


def test_the_correction_for_finitely_many_skills() -> None:
    """Eq. C.2 at the thesis's size, 5e4 skills: a few percent where the plain law is off by half or more."""
    for exponent, corrected, plain in ((0.1, 0.04, 1.0), (0.3, 0.02, 0.4)):
        model = SkillModel(exponent, skills=50_000)
        law = model.corrected_time_law([1e2, 1e5], start=1e2)
        exact = model.predict([1e2, 1e5], max_skills=1).test_loss
        assert float(law.test_loss[0]) == pytest.approx(float(exact[0]), rel=1e-12)
        assert abs(float(law.test_loss[1] / exact[1]) - 1) < corrected
        assert float(law.power_law[1] / exact[1]) - 1 > plain
    # With infinitely many skills there is nothing to correct.
    law = SkillModel(0.3, skills=math.inf).corrected_time_law([1e4], start=1e2)
    assert float(law.test_loss[0]) == float(law.power_law[0])


@pytest.mark.parametrize("kind", ["multilinear", "linear"])
def test_the_learning_rate_is_a_unit_of_time(kind: str) -> None:
    """At the same flow time everything is the same; a budget counts time in these units, too."""
    model, training, times = SkillModel(0.6, skills=math.inf, kind=kind), GradientFlow(0.25), np.array([40.0, 4e3, 4e5])
    for found, plain in (
        (model.predict(times, training), model.predict(times / 4)),
        (model.losses(times, [5, 50], training), model.losses(times / 4, [5, 50])),
        (model.corrected_time_law(times, 100.0, training), model.corrected_time_law(times / 4, 25.0)),
    ):
        np.testing.assert_array_equal(found.flow_time, plain.flow_time)
        np.testing.assert_allclose(found.test_loss, plain.test_loss, rtol=1e-12)
        assert (found.time.attrs["units"], plain.time.attrs["units"]) == ("flow time / η", "flow time")
    found, plain = (model.emergence_time(0.3, one).emergence_time for one in (training, None))
    np.testing.assert_allclose(found, 4 * plain, rtol=1e-12)
    assert (found.attrs["units"], plain.attrs["units"]) == ("flow time / η", "flow time")
    best, plain = model.compute_optimal([4e4, 4e6], training), model.compute_optimal([1e4, 1e6])
    np.testing.assert_allclose(best.test_loss, plain.test_loss, rtol=1e-12)
    np.testing.assert_array_equal(best.basis, plain.basis)
    np.testing.assert_allclose(best.time, 4 * plain.time, rtol=1e-12)
    laws, powers, ones = model.prefactors(training), model.exponents(), model.prefactors()
    for name, sign in {"time": -1, "budget": -1, "optimal_basis": 1, "samples": 0, "basis": 0}.items():
        expected = ones[name] * 0.25 ** (sign * powers[name])
        assert float(laws[name]) == pytest.approx(float(expected), rel=1e-9)
    # Time is four times as large, and so is the budget that it is a power of.
    expected = 4 * ones.optimal_time * 0.25**powers.optimal_time
    assert float(laws.optimal_time) == pytest.approx(float(expected), rel=1e-9)


def test_datasets_state_their_conventions() -> None:
    model = SkillModel(0.6, skills=3)
    for found in (model.predict([1.0]), model.simulate([1], seeds=1), model.data_emergence([2])):
        assert found.attrs["loss"] == "half the mean square error"
        assert found.skill.dtype.kind == "i"
        assert found.skill.values.tolist() == [1, 2, 3]
        # Nothing is learned at first: half of the target squared.
    assert float(model.replace(initial_strength=1e-9).predict([0.0]).test_loss[0]) == pytest.approx(0.5, rel=1e-8)


# --- simulation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["multilinear", pytest.param("linear", marks=pytest.mark.slow)])
def test_drawn_datasets_agree_with_the_expectation(kind: str) -> None:
    """All 150 strengths with the variance that sums over all counts give, each a false alarm with chance below 1e-6.

    The losses over all skills have z-scores that are close to normal for 400 runs, so that one of five is above 5 has
    chance 3e-6. The seed is fixed.
    """
    samples, seeds, times = 60, 400, [1, 5, 20, 60, 200]
    model = SkillModel(0.6, skills=30, samples=samples, kind=kind, initial_strength=0.05)
    theory, runs = model.predict(times), model.simulate(times, seeds=seeds, key=2)
    counts = np.arange(samples + 1)
    chances = np.stack([binom.pmf(counts, samples, chance) for chance in zipf(0.6, 30)])
    for row, time in enumerate(times):
        progress = (2 if kind == "multilinear" else 1) * time * counts / samples
        strength = 1 / (1 + 19 * np.exp(-progress)) if kind == "multilinear" else 1 - np.exp(-progress)
        mean = chances @ strength
        variance = np.maximum(chances @ strength**2 - mean**2, 0)
        found = runs.strength.values[:, row].mean(0)
        assert (np.abs(found - mean) < allowed(variance, seeds, 1.0)).all()
    z = compare(theory, runs).test_loss.sel(statistic="z_score").values
    assert np.abs(z).max() < 5


def test_flow_without_noise_is_the_sigmoid() -> None:
    model, training = SkillModel(0.6, skills=6, initial_strength=0.02), GradientFlow(0.1)
    times = [50, 300.5, 1000]
    runs = model.simulate(times, training, seeds=2)
    assert np.abs(runs.strength.values[0] - model.predict(times, training).strength.values).max() < 1e-14
    assert np.array_equal(runs.strength[0], runs.strength[1])
    # The second of the skills has three of its four basis functions.
    partly = model.replace(skills=3, basis=7, neurons_per_skill=4)
    runs, expected = partly.simulate(times, training, seeds=1), partly.predict(times, training)
    for name in ("strength", "skill_loss", "test_loss"):
        assert np.abs(runs[name].values[0] - expected[name].values).max() < 1e-14
    # A flow has no longest step.
    assert model.replace(skills=1).simulate([1], GradientFlow(1e3), seeds=1).strength.shape == (1, 1, 1)


@pytest.mark.parametrize(
    "options", [{"skills": 3, "basis": 7, "neurons_per_skill": 4}, {"samples": 40}, {"kind": "linear"}]
)
def test_descent_becomes_the_flow_as_its_steps_shrink(options: dict[str, object]) -> None:
    """Gradient descent is of first order: against the flow time, halving the learning rate halves the distance.

    The distance at a learning rate of 0.05 is about half a step, times the slope of the sigmoid.
    """
    model = SkillModel(**{"exponent": 0.6, "skills": 6, "initial_strength": 0.02, **options})
    exact = model.simulate([3.0, 12.0, 50.0], seeds=1, key=3)
    distances = []
    for rate in (0.05, 0.025, 0.0125):
        runs = model.simulate(np.array([3.0, 12.0, 50.0]) / rate, GradientDescent(rate), seeds=1, key=3)
        np.testing.assert_allclose(runs.flow_time, exact.flow_time)
        distances.append(np.abs(runs.strength.values - exact.strength.values).max())
    assert 1e-3 < distances[0] < 0.05
    np.testing.assert_allclose(np.divide(distances[:-1], distances[1:]), 2, rtol=0.05)


@pytest.mark.parametrize(("kind", "nesterov"), [("multilinear", False), ("multilinear", True), ("linear", True)])
def test_steps_are_those_of_optax(kind: str, nesterov: bool) -> None:
    """Momentum, weight decay, a schedule, and a rate B of 0.7: parameters of ``R = a b B`` and Optax's own SGD."""
    import optax

    model = SkillModel(0.6, skills=4, target_scale=1.5, initial_strength=0.1, rate=0.7, kind=kind)
    schedule = optax.cosine_decay_schedule(0.3, 40)
    training = GradientDescent(schedule, momentum=0.8, nesterov=nesterov, weight_decay=0.01)
    found = model.simulate([0, 1, 7, 30], training, seeds=1)
    chance = jnp.asarray(zipf(0.6, 4))

    def strength(parameters: dict[str, jax.Array]) -> jax.Array:
        return parameters["a"] * parameters["b"] * 0.7 if kind == "multilinear" else parameters["a"] * 0.7**0.5

    def loss(parameters: dict[str, jax.Array]) -> jax.Array:
        decay = 0.01 / 2 * sum((value**2).sum() for value in parameters.values())
        return (chance * (1.5 - strength(parameters)) ** 2).sum() / 2 + decay

    start = jnp.full(4, math.sqrt(0.1 / 0.7))
    parameters = {"a": start, "b": start} if kind == "multilinear" else {"a": jnp.zeros(4)}
    optimiser = optax.sgd(schedule, momentum=0.8, nesterov=nesterov)

    def step(carry: tuple[object, object], _: None) -> tuple[tuple[object, object], jax.Array]:
        parameters, state = carry
        moves, state = optimiser.update(jax.grad(loss)(parameters), state)
        return (optax.apply_updates(parameters, moves), state), strength(parameters)

    _, strengths = jax.lax.scan(step, (parameters, optimiser.init(parameters)), None, length=31)
    np.testing.assert_allclose(found.strength.values[0], np.array(strengths)[[0, 1, 7, 30]], rtol=1e-12, atol=1e-15)


def test_batches_fluctuate_about_full_batches() -> None:
    """A batch of 50 shows a skill 50 P times and a spread: over T steps, progress spreads by 2 η sqrt(T P (1-P) / 50).

    The strength spreads by R (1 - R) times that. Means may be off by five standard errors, and the spread of 20 runs,
    whose relative error is 1/sqrt(38) = 0.16, by five of those. Second order: below 2e-3. The seed is fixed.
    """
    model, seeds, times = SkillModel(0.6, skills=5, basis=3), 20, np.array([100, 400])
    runs = model.simulate(times, SGD(0.05, batch_size=50), seeds=seeds, key=4)
    assert np.all(runs.strength[:, :, 3:] == 0)
    expected = model.simulate(times, GradientDescent(0.05), seeds=1).strength.values[0, :, :3]
    chance = zipf(0.6, 5)[:3]
    spread = 0.1 * np.sqrt(times[:, None] * chance * (1 - chance) / 50) * expected * (1 - expected)
    found = runs.strength.values[:, :, :3]
    assert (np.abs(found.mean(0) - expected) < 5 * spread / math.sqrt(seeds) + 2e-3).all()
    # Where the skill is neither unlearned nor learned, so that first order in the spread is enough.
    moderate = (expected > 0.05) & (expected < 0.95)
    assert moderate.sum() >= 3
    assert np.allclose(found.std(0, ddof=1)[moderate], spread[moderate], rtol=0.8)


def test_batches_come_from_the_training_set_where_there_is_one() -> None:
    """Skills that a training set of 3 samples does not show are never learned, whatever batches are drawn from it."""
    model, training = SkillModel(0.6, skills=20, samples=3), SGD(0.05, batch_fraction=0.5)
    runs = model.simulate([400], training, seeds=3, key=1)
    assert '"sampling": "replacement"' in runs.attrs["training"]
    moved = (runs.strength.values > 0.011).sum(axis=2)
    assert ((moved >= 1) & (moved <= 3)).all()
    assert runs.strength.values[runs.strength.values <= 0.011] == pytest.approx(0.01, rel=1e-12)
    online = model.replace(samples=math.inf).simulate([1], SGD(0.05, batch_size=2), seeds=1)
    assert '"sampling": "online"' in online.attrs["training"]


@pytest.mark.slow
def test_runs_repeat_and_do_not_depend_on_how_many_there_are() -> None:
    """Slow because each call compiles anew; what seeds mean is the engine's business, and tested there."""
    model = SkillModel(0.6, skills=5, samples=30)
    runs, again = (model.simulate([100], SGD(0.05, batch_size=50), seeds=seeds, key=4) for seeds in (5, 2))
    assert np.allclose(runs.strength[:2], again.strength, rtol=1e-12)
    assert (runs.strength.std("seed").values > 0).all()
    runs, again = (model.simulate_data_emergence([3, 9], seeds=seeds, key=4) for seeds in (5, 2))
    assert np.allclose(runs.strength[:2], again.strength, rtol=1e-12)


# --- calibration --------------------------------------------------------------------------------------------------


def test_calibration_recovers_rate_and_initial_strength_and_says_they_go_together() -> None:
    model, training = SkillModel(0.6, skills=1, target_scale=5.0), GradientFlow(0.05)
    truth = model.replace(rate=1 / 22, initial_strength=5e-4)
    times = np.arange(0, 1000, 10.0)
    clean = truth.predict(times, training).strength.values[:, 0]
    fit = model.calibrate(times, clean, training)
    assert float(fit.rate) == pytest.approx(1 / 22, rel=1e-6)
    assert float(fit.initial_strength) == pytest.approx(5e-4, rel=1e-5)
    # One of the starts that are assumed is the true one.
    place = int(np.argmin(np.abs(np.log(fit.assumed_initial_strength.values / 5e-4))))
    assert float(fit.assumed_initial_strength[place]) == pytest.approx(5e-4, rel=1e-12)
    assert float(fit.assumed_rate[place]) == pytest.approx(1 / 22, rel=1e-6)
    assert float(fit.assumed_misfit[place]) < 1e-6
    noisy = clean + 0.02 * np.random.default_rng(0).normal(size=times.size)
    fit = model.calibrate(times, noisy, training)
    # Noise of 0.02 on a target of 5, known from 98 degrees of freedom to 7 %: three of those, as below.
    assert float(fit.misfit) == pytest.approx(0.02 / 5, rel=0.21)
    # Three standard errors: a false alarm in 1 of 400, seed fixed.
    assert abs(float(fit.rate) - 1 / 22) < 3 * float(fit.rate_error)
    half_time = float(truth.emergence_time(0.5, training).emergence_time[0])
    assert abs(float(fit.half_time) - half_time) < 3 * float(fit.half_time_error)
    # The half time is known far better than either. For a curve that is measured finely and whole, the information
    # about it and about the log slope is as the integrals of s'^2 and (u s')^2 over the sigmoid s(u), 1/6 and
    # (pi^2 - 6)/18, without a cross term; so relative errors are as sqrt((pi^2 - 6)/3) to log(S/R0 - 1).
    ratio = float(fit.half_time_error / fit.half_time) / float(fit.rate_error / fit.rate)
    odds = math.log(5 / float(fit.initial_strength) - 1)
    assert ratio == pytest.approx(math.sqrt((math.pi**2 - 6) / 3) / odds, rel=1e-3)
    # Rate and start are one combination: log R0 = -slope * half time.
    assert float(fit.correlation) == pytest.approx(-1 / math.sqrt(1 + ratio**2), rel=1e-3)
    # Assumed starts from 1e-6 to 1e-1 move the rate by several times: it is not identified by itself.
    assert float(fit.assumed_rate.max() / fit.assumed_rate.min()) > 4


def test_the_errors_of_the_calibration_are_the_spread_of_fits() -> None:
    """Sixty noisy copies: the spread of the fits has a relative error of 1/sqrt(120) = 9 %; allow three of them."""
    model = SkillModel(0.6, skills=1, rate=0.2)
    times = np.linspace(0, 60, 60)
    clean = model.predict(times).strength.values[:, 0]
    random = np.random.default_rng(1)
    fits = [model.calibrate(times, clean + 0.03 * random.normal(size=60)) for _ in range(60)]
    rates = np.array([float(fit.rate) for fit in fits])
    logs = np.log([float(fit.initial_strength) for fit in fits])
    assert rates.std() == pytest.approx(np.mean([float(fit.rate_error) for fit in fits]), rel=0.3)
    assert logs.std() == pytest.approx(np.mean([float(fit.log_initial_strength_error) for fit in fits]), rel=0.3)
    assert np.corrcoef(np.log(rates), logs)[0, 1] == pytest.approx(float(fits[0].correlation), abs=0.05)


@pytest.mark.slow
def test_calibration_of_the_linear_model_of_shots_and_of_neurons() -> None:
    model = SkillModel(0.6, skills=2, kind="linear", rate=0.4)
    times = np.linspace(0, 20, 30)
    fit = model.replace(rate=1.0).calibrate(times, model.predict(times).strength.values[:, 1], skill=2)
    assert float(fit.rate) == pytest.approx(0.4, rel=1e-7)
    model = SkillModel(0.6, skills=2, target_scale=5.0, shots=37, neurons_per_skill=4)
    samples = np.arange(5, 150, 12)
    curve = model.data_emergence(samples).strength.values[:, 1]
    assert int(model.replace(shots=1).calibrate_shots(samples, curve, skill=2).shots) == 37
    noisy = curve + 0.5 * np.random.default_rng(2).normal(size=curve.size)
    fit = model.replace(shots=1).calibrate_shots(samples, noisy, skill=2)
    # The standard error is noise over the root of the summed squares of the slope of the curve in the shots. The noise
    # is estimated from 13 points, to a fifth of itself; the ends of the interval are whole numbers, inside it.
    around = [model.replace(shots=shots).data_emergence(samples).strength.values[:, 1] for shots in (36, 38)]
    error = 0.5 / np.linalg.norm((around[1] - around[0]) / 2)
    assert 1.5 < error < 2.5
    assert abs(int(fit.shots) - 37) <= 3 * error + 0.5
    assert (1 - 3 / math.sqrt(24)) * error - 1 < float(fit.shots_high - fit.shots_low) / 2 < (1 + 3 / 24**0.5) * error
    basis = np.arange(1, 12)
    curve = model.parameter_emergence(basis).strength.values[:, 1]
    assert int(model.calibrate_neurons(basis, curve, skill=2).neurons_per_skill) == 4


# --- derivatives, extremes, bad input -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"samples": 30},
        pytest.param({"basis": 50, "kind": "linear"}, marks=pytest.mark.slow),
    ],
)
def test_derivatives_are_those_of_differences(options: dict[str, object]) -> None:
    def loss(exponent: float, scale: float, start: float, rate: float, learning_rate: float) -> jax.Array:
        model = SkillModel(exponent, target_scale=scale, initial_strength=start, rate=rate, **options)
        return model.predict([3.0, 300.0], GradientFlow(learning_rate)).test_loss.data.sum()

    point = (0.6, 1.3, 0.02, 0.8, 1.1)
    slopes = jax.grad(loss, argnums=(0, 1, 2, 3, 4))(*point)
    for index in range(5):
        step = 1e-4 * point[index]
        up, down = (loss(*(v + s * (i == index) for i, v in enumerate(point))) for s in (step, -step))
        # Central differences: an error of the square of the step, 1e-8, times a third derivative of order one.
        assert float(slopes[index]) == pytest.approx(float(up - down) / (2 * step), rel=2e-6, abs=1e-9)


@pytest.mark.slow
def test_models_can_be_vectorised_and_traced_values_are_the_plain_ones() -> None:
    exponents = jnp.array([0.2, 0.6, 1.4])

    def loss(exponent: jax.Array) -> jax.Array:
        return SkillModel(exponent, skills=math.inf).predict([10.0, 1e4, 1e9]).test_loss.data

    many = jax.vmap(loss)(exponents)
    one = np.stack([SkillModel(float(a), skills=math.inf).predict([10.0, 1e4, 1e9]).test_loss for a in exponents])
    assert np.allclose(many, one, rtol=1e-11)
    power = jax.vmap(lambda a: SkillModel(a, skills=math.inf).prefactors().optimal_basis.data)(exponents)
    assert float(power[1]) == pytest.approx(
        float(SkillModel(0.6, skills=math.inf).prefactors().optimal_basis), rel=1e-9
    )
    with pytest.raises(ValueError, match="samples cannot be traced"):
        jax.vmap(lambda d: SkillModel(0.6, samples=d, skills=math.inf).predict([1.0]).test_loss.data)(jnp.array([10.0]))


@pytest.mark.parametrize(
    "model",
    [
        SkillModel(1e-3, skills=math.inf),
        pytest.param(SkillModel(30.0, skills=math.inf), marks=pytest.mark.slow),
        SkillModel(500.0, samples=10, skills=math.inf),
        SkillModel(0.6, initial_strength=1e-300, skills=math.inf),
        SkillModel(0.6, initial_strength=1 - 1e-12, skills=math.inf),
        SkillModel(0.6, target_scale=1e100, initial_strength=1.0, rate=1e-100, skills=math.inf),
        SkillModel(0.6, skills=1, samples=5),
        pytest.param(SkillModel(0.6, basis=1e15, skills=1e16), marks=pytest.mark.slow),
        pytest.param(SkillModel(0.1, samples=1e14, skills=math.inf), marks=pytest.mark.slow),
        SkillModel(0.6, samples=1, kind="linear", skills=math.inf),
    ],
    ids=repr,
)
def test_extreme_parameters_work(model: SkillModel) -> None:
    found = model.predict([0, 1e-9, 1.0, 1e6, 1e15])
    loss = found.test_loss.values / model.target_scale**2
    assert np.isfinite(loss).all()
    assert (np.diff(loss) <= 1e-12 * loss[:-1]).all()
    assert (loss >= 0).all()
    assert loss[0] <= 0.5 * (1 + 1e-12)
    assert np.isfinite(found.strength).all()
    assert found.attrs["numerical_error"] < 1e-9 or loss.min() < 1e-200


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"exponent": 0.0}, "exponent must be a positive"),
        ({"exponent": -1.0}, "exponent must be a positive"),
        ({"initial_strength": 1.0}, r"between 0 and target_scale = 1.*not 1: .*start lower"),
        ({"initial_strength": 7.0, "target_scale": 5.0}, "between 0 and target_scale = 5"),
        ({"initial_strength": 0.0}, "initial_strength must be a positive"),
        ({"skills": 2.5}, "skills must be a whole number"),
        ({"samples": 0}, "samples must be a whole number"),
        ({"basis": 1.5}, "basis must be a whole number"),
        ({"shots": math.inf}, "shots must be a whole number"),
        ({"neurons_per_skill": 0.5}, "neurons_per_skill must be a whole number"),
        ({"kind": "cubic"}, "kind must be one of multilinear, linear"),
    ],
)
def test_bad_parameters_are_refused_with_the_rule(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SkillModel(**{"exponent": 0.6, **fields})


def test_the_linear_model_does_not_care_for_the_initial_strength() -> None:
    model = SkillModel(0.6, kind="linear", initial_strength=3.0, skills=math.inf)
    assert float(model.predict([0.0]).strength[0, 0]) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.simulate([1]), "infinitely many skills cannot be simulated"),
        (lambda m: m.replace(samples=10, shots=3).predict([1]), "use data_emergence"),
        (lambda m: m.replace(samples=10, neurons_per_skill=3).predict([1]), "use data_emergence"),
        (lambda m: m.replace(samples=10).parameter_emergence([1]), "samples=math.inf"),
        (lambda m: m.replace(samples=10).compute_optimal([100]), "samples=math.inf"),
        (lambda m: m.replace(skills=10).prefactors(), "skills=math.inf"),
        (lambda m: m.replace(basis=5, neurons_per_skill=2).data_emergence([10]), "set basis to infinity"),
        (lambda m: m.losses([1], [1.5]), r"basis\[0\] = 1.5: round it"),
        (lambda m: m.losses([1], [5, 2]), "must increase"),
        (lambda m: m.data_emergence([]), "non-empty"),
        (lambda m: m.replace(skills=3).predict([1], max_skills=4), "only 3"),
        (lambda m: m.emergence_time(1.0), "fraction must lie between"),
        (lambda m: m.compute_optimal([0.5]), "at least neurons_per_skill"),
        (lambda m: m.replace(skills=5).simulate([1], GradientDescent(9.0)), "is not below 1.687.*unstable: lower it"),
        # P_1 = 0.59 lets a step of 2 * 1.5 pass, but a set of two samples may show nothing else than the first skill.
        (lambda m: m.replace(skills=5, samples=2).simulate([1], GradientDescent(1.5)), "1.5 is not below 1, from"),
        (lambda m: m.replace(skills=5).simulate([1], SGD(1.5, batch_size=2)), "1.5 is not below 1, from"),
        (lambda m: m.replace(skills=5).simulate([1.5], GradientDescent(0.1)), "times count the steps"),
        (lambda m: m.predict([1], GradientDescent(0.1)), "unlimited data, for finitely many skills.*simulate"),
        (lambda m: m.predict([1], SGD(0.1, batch_size=2)), "does not cover SGD.*simulate covers it"),
        (lambda m: m.predict([1], GradientFlow(weight_decay=0.1)), "does not cover weight_decay=0.1"),
        (lambda m: m.simulate([1], SGD(0.1, batch_size=5, sampling="epochs")), "does not cover sampling='epochs'"),
        (lambda m: m.simulate([1], SGD(0.1, batch_size=5, sampling="replacement")), "use sampling='online'"),
        (
            lambda m: m.replace(samples=9).simulate([1], SGD(0.1, batch_size=5, sampling="online")),
            "use sampling='replacement'",
        ),
        (lambda m: m.calibrate([1, 2, 3, 4], [0, 0, 0, 0]), "fewer than 2 points between 5 % and 95 %"),
        (lambda m: m.calibrate([1, 2, 3, 4], [0.8, 0.6, 0.4, 0.2]), "does not rise"),
        (lambda m: m.calibrate([1, 2, 3], [0.1, 0.2]), "one value for each"),
        (lambda m: m.replace(skills=2).calibrate_shots([1, 2], [0.1, 0.2], skill=3), "only 2 skills"),
        (lambda m: m.corrected_time_law([1.0], start=0.0), "start must be a positive"),
    ],
)
def test_bad_calls_are_refused_with_the_remedy(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(SkillModel(0.6, skills=math.inf))  # type: ignore[operator]
