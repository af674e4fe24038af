"""Theory against simulation: statistics on data whose answer is known, and what is refused."""

import json

import numpy as np
import pytest
import xarray as xr

from solvable import compare
from solvable.comparison import STATISTICS, combined_p_value, first_crossing, two_sided_p_values


def pair(runs: np.ndarray, expected: list, **attrs: object) -> tuple[xr.Dataset, xr.Dataset]:
    times = np.arange(runs.shape[1], dtype=float)
    theory = xr.Dataset({"test_loss": ("time", expected)}, coords={"time": times})
    simulation = xr.Dataset({"test_loss": (("seed", "time"), runs, attrs)}, coords={"time": times})
    return theory, simulation


def stated(data: xr.Dataset, model: str = "toy", parameters: dict | None = None, **system: object) -> xr.Dataset:
    """The dataset with the provenance of a model."""
    return data.assign_attrs(model=model, parameters=json.dumps(parameters or {}), system=json.dumps(system))


def test_statistics_by_hand() -> None:
    result = compare(*pair(np.array([[1.0, 4.0], [3.0, 8.0]]), [1.0, 6.0])).test_loss
    assert tuple(result.statistic.values) == STATISTICS
    assert result.sel(statistic="simulation").values.tolist() == [2.0, 6.0]
    assert result.sel(statistic="difference").values.tolist() == [1.0, 0.0]
    assert result.sel(statistic="standard_error").values == pytest.approx([1.0, 2.0])
    assert result.sel(statistic="z_score").values == pytest.approx([1.0, 0.0])
    assert result.sel(statistic="relative_difference").values == pytest.approx([1.0, 0.0])


@pytest.mark.parametrize("factor", [1e-240, 1e-170, 1e-85, 1e100, 1e200])
def test_scores_do_not_depend_on_the_unit(factor: float) -> None:
    """Deviations of a loss of 1e-170 have squares that are zero in float64: its scores were infinite."""
    generator = np.random.default_rng(3)
    runs = generator.exponential(1.0, (6, 40))
    expected = np.full(40, 1.1)
    result, scaled = (compare(*pair(unit * runs, (unit * expected).tolist())).test_loss for unit in (1.0, factor))
    for statistic in ("z_score", "relative_difference"):
        values = [one.sel(statistic=statistic).values for one in (result, scaled)]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-10)
    np.testing.assert_allclose(
        scaled.sel(statistic="standard_error").values / factor,
        result.sel(statistic="standard_error").values,
        rtol=1e-10,
    )
    assert scaled.attrs["verdict"] == result.attrs["verdict"]


@pytest.mark.parametrize("value", [1e-150, 1e-180, 1e-300, 0.0])
def test_an_error_may_be_much_larger_than_its_value(value: float) -> None:
    """Late losses decay below the error of the integrator, whose square in units of the loss was infinite."""
    runs = [xr.Dataset({"test_loss": ("seed", [value] * 3), "test_loss_error": ("seed", [1e-16] * 3)}) for _ in "ab"]
    theory = xr.Dataset({"test_loss": ((), 2 * value)})
    result = compare(theory, runs[0]).test_loss
    assert float(result.sel(statistic="standard_error")) == pytest.approx(1e-16, abs=0)
    assert float(result.sel(statistic="z_score")) == pytest.approx(-value / 1e-16, abs=0)
    assert "inf" not in result.attrs["verdict"]
    # Sizes 1 and 2: the limit is 2 y2 - y1, with the error sqrt(5) 1e-16.
    sized = [stated(run, dimension=size) for run, size in zip(runs, (1, 2), strict=True)]
    line = compare(stated(theory, dimension=None), sized, extrapolate="dimension").test_loss
    assert float(line.sel(statistic="standard_error")) == pytest.approx(5**0.5 * 1e-16, abs=0)


def test_z_scores_of_noise_are_standard_normal() -> None:
    """1000 columns of 50 Gaussian runs: the mean square of z is that of Student's t, 49/47, to sqrt(2/1000) = 4.5 %."""
    runs = np.random.default_rng(0).normal(3.0, 2.0, (50, 1000))
    scores = compare(*pair(runs, [3.0] * 1000)).test_loss.sel(statistic="z_score")
    assert float((scores**2).mean()) == pytest.approx(49 / 47, rel=0.14)


def test_counts_have_at_least_their_binomial_error() -> None:
    """All runs count 100 of 100; theory says .999: no contradiction."""
    theory, simulation = pair(np.ones((10, 1)), [0.999], trials=100)
    parts = compare(theory, simulation).test_loss
    assert float(parts.sel(statistic="standard_error")[0]) == pytest.approx(np.sqrt(0.999 * 0.001 / 1000))
    assert abs(float(parts.sel(statistic="z_score")[0])) == pytest.approx(1.0, rel=1e-3)


def test_certainties() -> None:
    """Runs that are all alike: agreement up to rounding is agreement, anything else is not."""
    runs = np.array([[1.0, 1.0, 1.0, 0.0, 1.0]] * 5)
    runs[0, 1] += 2e-16
    result = compare(*pair(runs, [1.0, 1.0 - 4e-16, 2.0, 0.0, 0.0]))
    scores = result.test_loss.sel(statistic="z_score").values
    assert scores[0] == scores[3] == 0.0
    assert abs(scores[1]) < 1
    # Without an estimate of the numerical errors a difference is measured in rounding errors, of theory or runs.
    assert scores[2] < -1e10
    assert scores[4] > 1e10
    assert "disagree" in result.attrs["verdict"]
    assert "deterministic" in result.attrs["verdict"]


def test_relative_difference_where_theory_is_zero() -> None:
    """Over the largest value of theory; over 1 where all of theory is zero."""
    runs = np.array([[1.0, 5.0], [3.0, 5.0]])
    some, none = (compare(*pair(runs, expected)).test_loss for expected in ([0.0, 4.0], [0.0, 0.0]))
    assert some.sel(statistic="relative_difference").values.tolist() == [0.5, 0.25]
    assert none.sel(statistic="relative_difference").values.tolist() == [2.0, 5.0]


def test_errors_of_both_sides_are_added() -> None:
    """In quadrature: 1 of the seeds, 1 of theory, and 2 of the simulation, a mean over its seeds."""
    theory, simulation = pair(np.array([[1.0], [3.0]]), [1.0])
    theory["test_loss_error"] = ("time", [1.0])
    assert float(compare(theory, simulation).test_loss.sel(statistic="standard_error")[0]) == pytest.approx(np.sqrt(2))
    simulation["test_loss_error"] = (("seed", "time"), [[1.5], [2.5]])
    # The seeds differ by no more than their own error: their spread is not used.
    error = float(compare(theory, simulation).test_loss.sel(statistic="standard_error")[0])
    assert error == pytest.approx(np.sqrt(5))


def test_numerical_error_is_relative_to_the_value_or_to_the_largest() -> None:
    theory, simulation = pair(np.array([[4.0, 1e-3]] * 3), [4.0, 1e-3])
    theory = theory.assign_attrs(numerical_error=1e-2)
    each = compare(theory, simulation).test_loss.sel(statistic="standard_error").values
    assert each == pytest.approx([4e-2, 1e-5], rel=1e-9)
    theory = theory.assign_attrs(numerical_error_scale="maximum")
    largest = compare(theory, simulation).test_loss.sel(statistic="standard_error").values
    assert largest == pytest.approx([4e-2, 4e-2], rel=1e-9)
    simulation = simulation.assign_attrs(numerical_error=float("nan"))
    assert np.isfinite(compare(theory, simulation).test_loss).all()


def test_numbers_below_the_numerical_error_agree() -> None:
    """A loss of 1e-29 by rounding against one of 1e-170: z = 1e140 without the error of the run."""
    theory, simulation = pair(np.full((3, 1), 1e-29), [1e-170])
    simulation["test_loss_error"] = (("seed", "time"), np.full((3, 1), 3e-29))
    result = compare(theory, simulation)
    assert abs(float(result.test_loss.sel(statistic="z_score")[0])) < 1
    assert "agree: test_loss" in result.attrs["verdict"]


def test_spread_that_theory_predicts_covers_rare_events() -> None:
    """One run in a hundred is 1, the others 0: ten that are all 0 do not contradict a mean of 0.01."""
    theory, simulation = pair(np.tile([0.0, 0.5], (10, 1)), [0.01, 0.5])
    simulation.test_loss[0, 1] += 0.01
    theory["test_loss_spread"] = ("time", [np.sqrt(0.01 * 0.99), 0.0])
    score = float(compare(theory, simulation).test_loss.sel(statistic="z_score")[0])
    assert score == pytest.approx(-0.01 / np.sqrt(0.01 * 0.99 / 10))


def test_seeds_alike_in_a_random_variable_have_the_binomial_error_of_their_exceptions() -> None:
    """Values lie within 0 and 2. A mean of 0.2 is one run in ten that is 2: q = 0.1, estimated as (10 q + 1) / 12."""
    runs = np.zeros((10, 3))
    runs[:, 1], runs[5:, 1], runs[:, 2] = 1.0, 1.5, 2.0
    parts = compare(*pair(runs, [0.2, 1.25, 2.0])).test_loss
    share = 2 / 12
    expected = 2 * np.sqrt(share * (1 - share) / 10)
    assert float(parts.sel(statistic="standard_error")[0]) == pytest.approx(expected)
    assert float(parts.sel(statistic="z_score")[2]) == 0.0


def test_verdicts() -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, (10, 4))
    good = compare(*pair(1 + noise, [1.0] * 4))
    assert good.attrs["verdict"].startswith("theory and simulation agree: test_loss within ")
    assert good.attrs["verdict"].endswith("standard errors (10 seeds)")
    assert good.test_loss.attrs["verdict"].startswith("test_loss agrees: within ")
    bad = compare(*pair(1.5 + noise, [1.0] * 4))
    assert bad.attrs["verdict"].startswith("theory and simulation disagree in 1 of 1 variables: test_loss is ")
    assert "standard errors off at time = " in bad.attrs["verdict"]
    assert "(10 seeds; p-value " in bad.attrs["verdict"]
    same = compare(*pair(np.ones((3, 2)), [1.0, 1.0]))
    assert "deterministic: all seeds are alike, and numerical errors are up to" in same.attrs["verdict"]
    unknown = compare(*pair(np.full((3, 2), np.nan), [1.0, 1.0]))
    assert "agree" in unknown.attrs["verdict"]


def test_few_seeds_are_judged_by_students_t() -> None:
    """Two seeds at 0.9 and 1.1: 10 standard errors from 2, which one degree of freedom makes 6 % likely."""
    runs = np.array([[0.9], [1.1]])
    result = compare(*pair(runs, [2.0]))
    assert float(result.test_loss.sel(statistic="z_score")[0]) == pytest.approx(-10)
    assert float(two_sided_p_values(np.array([-10.0]), np.array([1.0]))[0]) == pytest.approx(2 * np.arctan(0.1) / np.pi)
    assert "agree:" in result.attrs["verdict"]
    # The same distance in standard errors with ten seeds is a contradiction.
    ten = compare(*pair(1 + np.linspace(-1, 1, 10)[:, None] * 0.49544, [2.0]))
    assert float(ten.test_loss.sel(statistic="z_score")[0]) == pytest.approx(-10, rel=0.1)
    assert "disagree" in ten.attrs["verdict"]


@pytest.mark.parametrize("seeds", [2, 3, 5, 20])
@pytest.mark.parametrize("correlation", [0.0, 0.9, 1.0])
def test_false_alarms_are_as_rare_as_stated(seeds: int, correlation: float) -> None:
    """4000 correct theories at 30 times, Gaussian runs: about 40 p-values below 1 %, at most 68 (4.5 sigma) of them."""
    generator = np.random.default_rng(seeds)
    shape = (4000, seeds, 30)
    common = generator.normal(size=(*shape[:2], 1))
    runs = np.sqrt(correlation) * common + np.sqrt(1 - correlation) * generator.normal(size=shape)
    scores = runs.mean(1) / (runs.std(1, ddof=1) / np.sqrt(seeds))
    each = two_sided_p_values(scores, np.full(scores.shape, seeds - 1.0))
    found = np.array([combined_p_value(row) for row in each])
    # Liu and Xie's approximation is exact for independent and for equal times, and errs a little between.
    assert (found < 0.01).sum() <= (68 if correlation in (0.0, 1.0) else 100)


def test_a_wrong_theory_is_found() -> None:
    """Off by 3 standard errors at each of 30 correlated times, 20 seeds: found more often than not."""
    generator = np.random.default_rng(5)
    found = 0
    for _ in range(20):
        runs = generator.normal(size=(20, 1)) + 0.3 * generator.normal(size=(20, 30))
        found += "disagree" in compare(*pair(runs, [4 * 1.05 / np.sqrt(20)] * 30)).attrs["verdict"]
    assert found >= 12


def test_rare_large_values_lower_the_degrees_of_freedom() -> None:
    """One seed of ten stands out: the mean is 1 standard error from zero however large it is, and 5 from -0.4."""
    runs = np.zeros((10, 1))
    runs[0] = 1.0
    runs[1:, 0] += np.linspace(-1e-3, 1e-3, 9)
    result = compare(*pair(runs, [-0.4]))
    assert float(result.test_loss.sel(statistic="z_score")[0]) == pytest.approx(5.0, rel=1e-3)
    # Nine degrees of freedom would make that a p-value of 7e-4.
    assert "agree:" in result.attrs["verdict"]


def test_bad_pairs() -> None:
    theory, simulation = pair(np.ones((3, 2)), [1.0, 1.0])
    with pytest.raises(ValueError, match="theory first, simulation second"):
        compare(simulation, theory)
    with pytest.raises(ValueError, match="at least 2 seeds, not 1: simulate more"):
        compare(theory, simulation.isel(seed=[0]))
    with pytest.raises(ValueError, match="different values of 'time'.*predict at simulation.time.values"):
        compare(theory.isel(time=[0]), simulation)
    with pytest.raises(ValueError, match="nothing to compare: theory has other"):
        compare(theory.rename(test_loss="other"), simulation)


def test_only_datasets_are_compared() -> None:
    """Variables were taken for one simulation per time, and 'no size to extrapolate' was the answer."""
    theory, simulation = pair(np.array([[1.0, 1.1], [1.1, 0.9]]), [1.0, 1.0])
    with pytest.raises(
        ValueError, match=r"must be datasets, not DataArray: for one variable pass data\[\['test_loss'\]\]"
    ):
        compare(theory.test_loss, simulation.test_loss)
    with pytest.raises(ValueError, match="must be datasets, not dict"):
        compare({}, simulation)


def test_different_models_parameters_and_systems_are_refused() -> None:
    theory, simulation = pair(np.array([[1.0, 1.1], [1.1, 0.9], [0.9, 1.0]]), [1.0, 1.0])
    one, two = {"aspect_ratio": 0.5, "outputs": 1}, {"aspect_ratio": 0.9, "outputs": 1}
    with pytest.raises(ValueError, match=r"theory has aspect_ratio = 0.5, simulation 0.9: .*\['aspect_ratio'\]"):
        compare(stated(theory, parameters=one), stated(simulation, parameters=two))
    with pytest.raises(ValueError, match="theory has model = 'toy', simulation 'other'"):
        compare(stated(theory), stated(simulation, model="other"))
    with pytest.raises(ValueError, match="theory has batch = 'full', simulation 10"):
        compare(stated(theory, batch="full"), stated(simulation, batch=10))
    long = {"spectrum": list(range(100))}
    with pytest.raises(ValueError, match=r"theory has spectrum = \[0, 1, .*\.\.\., simulation \[\]"):
        compare(stated(theory, parameters=long), stated(simulation, parameters={"spectrum": []}))


def test_times_that_differ_by_rounding_are_kept() -> None:
    """0.1 + 0.2 is not 0.3 to the last digit: such times were dropped without a word."""
    theory, simulation = pair(np.array([[1.0, 2.0], [1.1, 2.1], [0.9, 1.9]]), [1.0, 2.0])
    theory, simulation = theory.assign_coords(time=[0.3, 1.0]), simulation.assign_coords(time=[0.1 + 0.2, 1.0])
    assert compare(theory, simulation).sizes["time"] == 2


def test_what_may_differ_is_named() -> None:
    theory, simulation = pair(np.array([[1.0], [1.1], [0.9]]), [1.0])
    theory, simulation = stated(theory, parameters={"a": 1, "b": 2}), stated(simulation, parameters={"a": 3, "b": 4})
    for allowed in (True, ["a", "b"], {"a", "b"}):
        assert "agree" in compare(theory, simulation, allow_different=allowed).attrs["verdict"]
    for allowed in ("a", ["a"]):
        with pytest.raises(ValueError, match="theory has b = 2, simulation 4"):
            compare(theory, simulation, allow_different=allowed)


def test_what_only_one_side_states_is_not_compared() -> None:
    theory, simulation = pair(np.array([[1.0], [1.1], [0.9]]), [1.0])
    compare(stated(theory, parameters={"a": 1}, modes=4), simulation)
    compare(stated(theory, parameters={"a": 1}, modes=4), stated(simulation, parameters={"b": 1}, samples=4))
    compare(theory.assign_attrs(parameters="as in the paper", system="7"), stated(simulation, parameters={"b": 1}))


def test_a_limit_may_be_held_against_a_finite_system_and_is_named_on_disagreement() -> None:
    theory, simulation = pair(np.array([[1.0], [1.1], [0.9], [1.05]]), [1.0])
    theory, simulation = stated(theory, inputs=None), stated(simulation, inputs=20)
    assert "inputs" not in compare(theory, simulation).attrs["verdict"]
    off = compare((theory * 5).assign_attrs(theory.attrs), simulation)
    assert "theory is a limit that the simulation with inputs = 20 only approaches" in off.attrs["verdict"]
    # A limit is theory's: a simulation that states none cannot be of the finite size that theory is of.
    with pytest.raises(ValueError, match="theory has inputs = 20, simulation None"):
        compare(stated(theory, inputs=20), stated(simulation, inputs=None))


def test_errors_and_settings_of_both_sides_are_kept() -> None:
    theory, simulation = pair(np.array([[1.0], [1.1], [0.9]]), [1.0])
    theory = stated(theory, batch="full").assign_attrs(numerical_error=1e-9)
    result = compare(theory, stated(simulation, batch="full").assign_attrs(numerical_error=1e-6))
    assert result.attrs["theory_numerical_error"] == 1e-9
    assert result.attrs["simulation_numerical_error"] == 1e-6
    assert json.loads(result.attrs["simulation_system"]) == {"batch": "full"}


def test_first_crossing() -> None:
    times = np.array([1.0, 10.0, 100.0])
    curves = xr.DataArray(
        [[0.0, 0.5, 1.0], [0.0, 1.0, 0.0], [0.0, 0.1, 0.2], [1.0, 0.0, 1.0]],
        dims=("seed", "time"),
        coords={"time": times},
        name="test_accuracy",
    )
    found = first_crossing(curves, 0.75).values
    # Halfway in log time between 10 and 100; three quarters of the way from 1 to 10; never; at once.
    np.testing.assert_allclose(found[[0, 1, 3]], [10**1.5, 10**0.75, 1.0])
    assert np.isnan(found[2])
