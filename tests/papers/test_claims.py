"""Claims: each kind passes and fails where it says, keeps the raw measurement, and survives JSON.

A claim of agreement is a statistical test: right theories are called wrong as rarely as stated, wrong ones are found.
All random numbers here have fixed seeds, and the numbers of null cases are such that a rate twice the stated one shows.
"""

import json
import math
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from solvable.comparison import agreement, combined_p_value, compare, two_sided_p_values
from solvable.papers import Claim
from solvable.papers.claims import FALSE_ALARMS, relation
from solvable.standard_errors import standard_errors

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("claim", "passed"),
    [
        (Claim.equals("n", 1.04, 1.0, 0.05, "b"), True),
        (Claim.equals("n", 1.06, 1.0, 0.05, "b"), False),
        (Claim.equals("n", 104.0, 100.0, 0.05, "b", relative=True), True),
        (Claim.equals("n", 106.0, 100.0, 0.05, "b", relative=True), False),
        (Claim.equals("n", -104.0, -100.0, 0.05, "b", relative=True), True),
        (Claim.equals("n", 2.0, 2.0, 0.0, "b"), True),
        (Claim.equals("never reached", NAN, NAN, 0.0, "b"), True),
        (Claim.equals("n", NAN, 1.0, 1e9, "b"), False),
        (Claim.equals("n", 1.0, NAN, 1e9, "b"), False),
        (Claim.equals("n", INF, INF, 0.0, "b"), True),
        (Claim.equals("n", -INF, INF, 0.0, "b"), False),
        (Claim.equals("n", 1e300, INF, 1e9, "b"), False),
        (Claim.equals("n", INF, 1.0, 1e9, "b"), False),
        (Claim.at_least("n", 3.0, 3.0, "b"), True),
        (Claim.at_least("n", 2.999, 3.0, "b"), False),
        (Claim.at_least("n", INF, 3.0, "b"), True),
        (Claim.at_least("n", NAN, 3.0, "b"), False),
        (Claim.at_least("n", NAN, NAN, "b"), False),
        (Claim.at_most("n", 3.0, 3.0, "b"), True),
        (Claim.at_most("n", 3.001, 3.0, "b"), False),
        (Claim.at_most("n", -INF, 3.0, "b"), True),
        (Claim.at_most("n", NAN, 3.0, "b"), False),
        (Claim.ordered("n", [1.0, 2.0, 4.0], "b"), True),
        (Claim.ordered("n", [1.0, 2.0, 2.0], "b"), False),
        (Claim.ordered("n", [1.0, 3.0, 2.0], "b"), False),
        (Claim.ordered("n", [1.0, NAN, 2.0], "b"), False),
        (Claim.ordered("n", [1.0, 2.0, INF], "b"), True),
    ],
)
def test_kinds_pass_and_fail(claim: Claim, passed: bool) -> None:
    assert claim.passed is passed
    read = json.loads(json.dumps(claim.to_dict(), allow_nan=False))
    assert read["passed"] is passed
    assert read["kind"] == claim.kind
    # The raw measurement comes back from JSON, infinities and NaN as text.
    assert float(read["measured"]) == claim.measured or math.isnan(float(read["measured"])) == math.isnan(
        claim.measured
    )
    assert [float(value) for value in read["values"]] == pytest.approx(list(claim.values), nan_ok=True)


def test_an_order_keeps_its_numbers_and_measures_the_smallest_step() -> None:
    claim = Claim.ordered("emergence times", np.array([1.0, 5.0, 5.5]), "one after the other", printed="1, 5, 6")
    assert claim.values == (1.0, 5.0, 5.5)
    assert claim.measured == 0.5
    assert claim.printed == "1, 5, 6"
    with pytest.raises(ValueError, match="an order needs at least 2 numbers, not 1"):
        Claim.ordered("n", [1.0], "b")


def test_what_is_printed_is_shown_and_not_tested() -> None:
    claim = Claim.equals("exponent", 0.42, 0.4, 0.05, "fitted over one decade", printed=0.9)
    assert claim.passed
    assert claim.to_dict()["printed"] == 0.9
    assert claim.measured == 0.42


def test_plain_numbers_are_stored() -> None:
    claim = Claim("n", np.float32(0.5), xr.DataArray(0.5), np.float64(0.0), "b")  # type: ignore[arg-type]
    assert type(claim.measured) is type(claim.expected) is type(claim.tolerance) is float
    assert claim.passed


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Claim.equals("n", 1.0, 2.0, 0.1, "b"), "2"),
        (Claim.at_least("n", 1.0, 2.0, "b"), "≥ 2"),
        (Claim.at_most("n", 1.0, INF, "b"), "≤ ∞"),
        (Claim.ordered("n", [1, 2], "b"), "increasing"),
    ],
)
def test_relations_in_words(claim: Claim, words: str) -> None:
    assert relation(claim.to_dict()) == words


# Agreement ------------------------------------------------------------------------------------------------------------

TIMES = np.arange(6.0)
CURVE = 2.0**-TIMES


def theory(values: Any = CURVE, **more: Any) -> xr.Dataset:
    return xr.Dataset({"loss": ("time", np.asarray(values)), **more}, {"time": TIMES})


def runs(key: int, seeds: int = 10, noise: float = 0.1, correlated: bool = False) -> xr.Dataset:
    """Gaussian seeds about the curve, independent from time to time or, correlated, the same at all times."""
    draws = np.random.default_rng(key).normal(size=(seeds, 1 if correlated else TIMES.size))
    values = CURVE * (1 + noise * np.broadcast_to(draws, (seeds, TIMES.size)))
    return xr.Dataset({"loss": (("seed", "time"), values)}, {"time": TIMES, "seed": np.arange(seeds)})


def test_a_right_theory_agrees_and_keeps_the_chance() -> None:
    claim = Claim.agrees("curves", theory(), runs(0), "loss", "finite size is negligible")
    assert claim.passed
    assert claim.kind == "agrees"
    assert claim.expected == FALSE_ALARMS
    # What is measured is the chance itself, not a verdict.
    assert claim.measured == agreement(theory(), runs(0), "loss").p_value
    assert FALSE_ALARMS < claim.measured <= 1
    assert "called wrong once in 100000" in claim.because
    assert claim.because.endswith("finite size is negligible")
    assert relation(claim.to_dict()) == "chance ≥ 1e-05"


@pytest.mark.parametrize(
    "wrong",
    [1.5 * CURVE, 0.5 * CURVE, CURVE + 0.5 * (TIMES == 3), -CURVE],
    ids=["too large", "too small", "wrong at one time", "sign"],
)
def test_a_wrong_theory_does_not_agree(wrong: np.ndarray) -> None:
    claim = Claim.agrees("curves", theory(wrong), runs(0, seeds=20), "loss")
    assert not claim.passed
    assert 0 <= claim.measured < FALSE_ALARMS


def null_chances(cases: int, seeds: int, correlated: bool) -> np.ndarray:
    """The chances that :func:`agreement` finds for runs of a right theory, of many cases at once."""
    many = xr.concat([runs(key, seeds, correlated=correlated) for key in range(cases)], "case")
    errors = standard_errors(theory(), many, "loss", seeds)
    scores = abs(many.loss.mean("seed") - theory().loss) / errors.total
    each = two_sided_p_values(scores.values, errors.freedom.transpose(*scores.dims).values)
    return np.array([combined_p_value(row) for row in each])


@pytest.mark.parametrize("correlated", [False, True], ids=["independent", "correlated"])
@pytest.mark.parametrize("seeds", [3, 10, 30])
def test_false_alarms_are_as_rare_as_stated(seeds: int, correlated: bool) -> None:
    """1000 null cases: chances below p are found at most p of the time, within five standard errors of counting.

    The rate cannot be counted at 1e-5, but the Cauchy combination is the more exact the smaller the chance, so that
    1 % and 10 % are the harder tests.
    """
    cases = 1000
    found = null_chances(cases, seeds, correlated)
    for key in (0, 500, int(np.argmin(found))):
        assert agreement(theory(), runs(key, seeds, correlated=correlated), "loss").p_value == pytest.approx(found[key])
    for rate in (0.01, 0.1):
        alarms = int((found < rate).sum())
        assert alarms <= cases * rate + 5 * math.sqrt(cases * rate), (rate, alarms)
    # None of a thousand is below the limit of a claim; the chance of one is 1 %.
    assert found.min() > FALSE_ALARMS


def test_the_chance_of_one_value_is_that_of_student() -> None:
    """With one value there is nothing to combine: the t-test of SciPy, up to the freedom that outliers take away."""
    one = {"loss": ("time", [1.0])}
    values = 1 + 0.1 * np.array([[-1.0], [1.0], [-1.0], [1.0], [-1.0], [1.0], [0.2]])
    simulation = xr.Dataset({"loss": (("seed", "time"), values)}, {"time": [0.0]})
    found = agreement(xr.Dataset(one, {"time": [0.0]}), simulation, "loss").p_value
    assert found == pytest.approx(float(stats.ttest_1samp(values[:, 0], 1.0).pvalue), rel=1e-6)


def test_power_grows_with_the_number_of_seeds() -> None:
    """A theory that is 5 % off, with noise of 10 %: invisible to 4 seeds, certain with 400."""
    chances = [agreement(theory(1.05 * CURVE), runs(1, seeds), "loss").p_value for seeds in (4, 40, 400)]
    assert chances[0] > 1e-3
    assert chances == sorted(chances, reverse=True)
    assert chances[2] < FALSE_ALARMS


def test_a_bias_is_forgiven_up_to_its_size_and_not_beyond() -> None:
    off = theory(1.05 * CURVE)
    many = runs(1, 400)
    assert not Claim.agrees("n", off, many, "loss").passed
    forgiven = Claim.agrees("n", off, many, "loss", "corrections of first order in 1 / width", bias=0.06)
    assert forgiven.passed
    assert "beyond a bias of 6 %" in forgiven.because
    assert not Claim.agrees("n", off, many, "loss", bias=0.02).passed
    # A bias can only make agreement more likely.
    chances = [agreement(off, many, "loss", bias=bias).p_value for bias in (0.0, 0.01, 0.02, 0.04, 0.06)]
    assert chances == sorted(chances)
    # It is a fraction of theory's own value, at each time: the last is 32 times smaller than the first.
    late = theory(CURVE + 0.05 * (TIMES == 5))
    assert not Claim.agrees("n", late, many, "loss", bias=0.06).passed


def test_a_bias_makes_alarms_rarer() -> None:
    found = [agreement(theory(), runs(key), "loss", bias=0.01).p_value for key in range(10)]
    without = [agreement(theory(), runs(key), "loss").p_value for key in range(10)]
    assert all(one >= two for one, two in zip(found, without, strict=True))


def test_agreement_and_comparison_judge_alike() -> None:
    """Without a bias the score is that of `compare`, and so is the verdict at its limit of 1 %."""
    for key, factor in ((0, 1.0), (1, 1.3), (2, 1.0)):
        predicted, simulated = theory(factor * CURVE), runs(key)
        comparison = compare(predicted, simulated)
        found = agreement(predicted, simulated, "loss")
        assert found.score == pytest.approx(float(abs(comparison.loss.sel(statistic="z_score")).max()))
        assert (found.p_value >= 0.01) == comparison.attrs["verdict"].startswith("theory and simulation agree")


def test_theory_may_be_at_more_times_than_the_simulation() -> None:
    some = runs(0).isel(time=[1, 3])
    assert agreement(theory(), some, "loss").p_value == agreement(theory().isel(time=[1, 3]), some, "loss").p_value


def test_stated_errors_of_theory_count() -> None:
    """Deterministic runs agree within the stated numerical error, and not a hundred times beyond it."""
    alike = runs(0, noise=0.0)
    exact = theory(CURVE * (1 + 1e-6))
    assert not Claim.agrees("n", exact, alike, "loss").passed
    stated = theory(CURVE * (1 + 1e-6), loss_error=("time", 1e-6 * CURVE))
    assert Claim.agrees("n", stated, alike, "loss").passed
    assert not Claim.agrees("n", theory(CURVE * (1 + 1e-4), loss_error=("time", 1e-6 * CURVE)), alike, "loss").passed


@pytest.mark.parametrize("value", [NAN, INF])
def test_runs_that_diverged_do_not_agree(value: float) -> None:
    """What is not a number at any time gives no chance: the claim fails, and says NaN or a chance of zero."""
    broken = runs(0)
    broken["loss"] = xr.full_like(broken.loss, value)
    claim = Claim.agrees("n", theory(), broken, "loss")
    assert not claim.passed
    assert json.loads(json.dumps(claim.to_dict(), allow_nan=False))["passed"] is False


def test_a_time_at_which_theory_is_not_defined_is_left_out() -> None:
    part = theory(np.where(TIMES == 0, NAN, CURVE))
    assert Claim.agrees("n", part, runs(0), "loss").passed
    assert not Claim.agrees("n", part * 1.5, runs(0, seeds=20), "loss").passed


def test_wrong_arguments_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="'speed' is not a variable of theory, which has loss"):
        Claim.agrees("n", theory(), runs(0), "speed")
    with pytest.raises(ValueError, match="different values of 'time'"):
        Claim.agrees("n", theory().isel(time=[0, 1]), runs(0), "loss")
    with pytest.raises(ValueError, match="at least 2 seeds, not 1"):
        Claim.agrees("n", theory(), runs(0, seeds=1), "loss")
    with pytest.raises(ValueError, match="pass theory first"):
        Claim.agrees("n", runs(0), theory(), "loss")
    other = theory().assign_attrs(model="one")
    with pytest.raises(ValueError, match="theory has model = 'one', simulation 'two'"):
        Claim.agrees("n", other, runs(0).assign_attrs(model="two"), "loss")
    assert Claim.agrees("n", other, runs(0).assign_attrs(model="two"), "loss", allow_different="model").passed


@pytest.mark.parametrize("count", [1, 5, 50])
def test_combined_chances_of_independent_tests_are_uniform_where_it_matters(count: int) -> None:
    """5000 sets of uniform chances: the combined one is below p about p of the time, to four errors of counting."""
    chances = np.random.default_rng(3).uniform(size=(5000, count))
    combined = np.array([combined_p_value(row) for row in chances])
    for rate in (0.001, 0.01, 0.05):
        assert abs((combined < rate).mean() - rate) < 4 * math.sqrt(rate / 5000) + 0.2 * rate
