"""Simulations of several sizes, extrapolated to the infinite system: a known straight line, its errors, refusals."""

import json

import numpy as np
import pytest
import xarray as xr

from solvable import LinearEstimator, compare
from solvable.comparison import STATISTICS, agreement
from solvable.extrapolation import ADDED_STATISTICS, inverse_size_weights

LIMIT, COEFFICIENT = np.array([2.0, 1.0, 0.5]), np.array([30.0, -10.0, 5.0])
TIMES = [1.0, 2.0, 3.0]


def theory(**system: object) -> xr.Dataset:
    attrs = {"model": "toy", "system": json.dumps({"dimension": None, **system})}
    return xr.Dataset({"test_loss": ("time", LIMIT)}, {"time": TIMES}, attrs)


def runs(
    size: int, seeds: int = 12, noise: float = 0.1, key: int = 0, bend: float = 0.0, **system: object
) -> xr.Dataset:
    """Gaussian runs about the straight line, and a term in one over the square of the size."""
    generator = np.random.default_rng([key, size])
    mean = LIMIT + COEFFICIENT / size + bend / size**2
    values = mean + noise * generator.normal(size=(seeds, 3))
    attrs = {"model": "toy", "system": json.dumps({"dimension": size, **system})}
    return xr.Dataset({"test_loss": (("seed", "time"), values)}, {"time": TIMES}, attrs)


def test_two_sizes_by_hand() -> None:
    """``(D2 L2 - D1 L1) / (D2 - D1)``, the coefficient ``(L1 - L2) D1 D2 / (D2 - D1)``, and their errors."""
    small, large = runs(100, seeds=8), runs(300, seeds=20)
    result = compare(theory(), [large, small], extrapolate="dimension").test_loss
    assert tuple(result.statistic.values) == (*STATISTICS, *ADDED_STATISTICS)
    (one, two), (first, second) = (
        [part(data.test_loss.values, axis=0) for data in (small, large)] for part in (np.mean, np.std)
    )
    first, second = first * np.sqrt(8 / 7 / 8), second * np.sqrt(20 / 19 / 20)
    expected = {
        "simulation": (300 * two - 100 * one) / 200,
        "standard_error": np.hypot(300 * second, 100 * first) / 200,
        "coefficient": (one - two) * 150,
        "coefficient_error": np.hypot(first, second) * 150,
    }
    for name, values in expected.items():
        assert result.sel(statistic=name).values == pytest.approx(values, rel=1e-10), name
    expected_scores = (expected["simulation"] - LIMIT) / expected["standard_error"]
    assert result.sel(statistic="z_score").values == pytest.approx(expected_scores, rel=1e-10)


@pytest.mark.parametrize("factor", [1e-170, 1e-85, 1e100])
def test_scores_do_not_depend_on_the_unit(factor: float) -> None:
    def in_units(unit: float, data: xr.Dataset) -> xr.Dataset:
        return data.assign(test_loss=unit * data.test_loss)

    results = [
        compare(
            in_units(unit, theory()), [in_units(unit, runs(size)) for size in (100, 200, 400)], extrapolate="dimension"
        ).test_loss
        for unit in (1.0, factor)
    ]
    for statistic in ("z_score", "relative_difference"):
        values = [one.sel(statistic=statistic).values for one in results]
        np.testing.assert_allclose(values[1], values[0], rtol=1e-8)


@pytest.mark.parametrize("sizes", [(50, 200), (50, 100, 200), (40, 80, 160, 320)])
def test_without_noise_the_line_is_exact(sizes: tuple[int, ...]) -> None:
    """All errors are those of rounding, and so are limit and coefficient."""
    result = compare(theory(), [runs(size, noise=0.0) for size in sizes], extrapolate="dimension")
    assert result.test_loss.sel(statistic="simulation").values == pytest.approx(LIMIT, rel=1e-12)
    assert result.test_loss.sel(statistic="coefficient").values == pytest.approx(COEFFICIENT, rel=1e-10)
    assert "agree" in result.attrs["verdict"]
    assert "disagree" not in result.attrs["verdict"]


def test_weights_of_more_sizes_are_those_of_least_squares() -> None:
    sizes, errors = np.array([50.0, 100.0, 400.0]), np.array([0.3, 0.1, 0.2])
    values = np.array([3.0, 2.2, 2.1])
    design = np.stack([np.ones(3), 1 / sizes], axis=1) / errors[:, None]
    expected = np.linalg.lstsq(design, values / errors, rcond=None)[0]
    first, second = inverse_size_weights(sizes, errors)
    assert [first @ values, second @ values] == pytest.approx(expected, rel=1e-12)
    covariance = np.linalg.inv(design.T @ design)
    found = [(first * errors) @ (first * errors), (second * errors) @ (second * errors)]
    assert found == pytest.approx(np.diag(covariance), rel=1e-12)


def test_a_mean_without_error_is_on_the_line() -> None:
    """The start may be the same in all runs of one size."""
    first, second = inverse_size_weights([10, 20, 40], [0.0, 0.1, 0.1])
    values = np.array([1.0, 5.0, -2.0])
    assert first @ values + second @ values / 10 == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("sizes", [(60, 240), (60, 120, 240)])
def test_a_right_theory_is_called_wrong_in_about_one_percent(sizes: tuple[int, ...]) -> None:
    """60 comparisons of 12 seeds: 5 or more false alarms have a chance of 3e-4 if the rate is 1 %.

    The rate of the test of straightness is 1 % too.
    """
    verdicts = [
        compare(theory(), [runs(size, key=key) for size in sizes], extrapolate="dimension").attrs["verdict"]
        for key in range(60)
    ]
    assert sum("disagree" in verdict for verdict in verdicts) < 5
    assert sum("no straight line" in verdict for verdict in verdicts) < 5


def test_scores_of_limit_and_coefficient_have_unit_variance() -> None:
    """3000 values with 40 seeds: the mean square is that of Student's t, about 39/37, to 3 sqrt(2/3000) = 8 %."""
    times, attrs = np.arange(3000.0), theory().attrs
    limits = xr.Dataset({"test_loss": ("time", np.full(3000, 2.0))}, {"time": times}, attrs)
    simulations = []
    for size in (60, 240):
        values = 2.0 + 30.0 / size + 0.1 * np.random.default_rng(size).normal(size=(40, 3000))
        attrs = {"model": "toy", "system": json.dumps({"dimension": size})}
        simulations.append(xr.Dataset({"test_loss": (("seed", "time"), values)}, {"time": times}, attrs))
    result = compare(limits, simulations, extrapolate="dimension").test_loss
    away = (result.sel(statistic="coefficient") - 30.0) / result.sel(statistic="coefficient_error")
    for scores in (result.sel(statistic="z_score"), away):
        assert float((scores**2).mean()) == pytest.approx(39 / 37, rel=0.08)


def test_the_verdict_says_what_was_done() -> None:
    large = compare(theory(), [runs(300, 200), runs(1000, 200, noise=0.02)], extrapolate="dimension")
    verdict = large.attrs["verdict"]
    assert verdict.startswith("theory and simulation agree, extrapolated from dimension 300 and 1000: test_loss within")
    assert "(200 and 200 seeds)" in verdict
    # The term is 30/1000 of 2 at the first time; its error is about 0.1 / sqrt(200) times 300 * 1000 / 700 / 1000 / 2.
    assert "the finite-size term at dimension 1000 is 1." in verdict
    assert "% of test_loss at time = 1" in verdict
    assert large.attrs["extrapolated"] == "dimension"
    assert large.attrs["sizes"] == [300.0, 1000.0]


def test_either_size_alone_would_contradict_theory() -> None:
    """Here lies the use: at finite size the same runs disagree with theory of infinite size."""
    small, large = runs(60, 200), runs(240, 200)
    assert "disagree" in compare(theory(), large).attrs["verdict"]
    assert "disagree" not in compare(theory(), [small, large], extrapolate="dimension").attrs["verdict"]
    found = agreement(theory(), [small, large], "test_loss", extrapolate="dimension")
    assert found.p_value > 0.01
    assert found.description.startswith("extrapolated from dimension 60 and 240: within")


def test_curvature_is_found_by_three_sizes() -> None:
    bent = [runs(size, 100, noise=0.01, bend=2000.0) for size in (20, 40, 80)]
    verdict = compare(theory(), bent, extrapolate="dimension").attrs["verdict"]
    assert "no straight line in 1/dimension" in verdict
    assert "what is left may be of order 1/dimension^2" in verdict


def test_what_cannot_be_extrapolated() -> None:
    one, two = runs(100), runs(200)
    for simulation, size, message in (
        ([one], "dimension", r"extrapolate='dimension' needs simulations of at least 2 sizes, not 1"),
        (one, "dimension", r"at least 2 sizes, not 1: pass them as a list"),
        ([one, two], None, r"2 simulations and no size to extrapolate"),
        ([one, runs(100, key=1)], "dimension", r"all simulations have dimension = 100"),
        ([one, two], "width", r"theory states no width, .* extrapolate 'dimension'"),
        ([one, runs(200, momentum=0.5)], "momentum", r"theory states no momentum"),
        ([one, two.assign_attrs(model="other")], "dimension", r"theory has model = 'toy', simulation 'other'"),
        ([one.isel(seed=[0]), two], "dimension", r"a standard error needs at least 2 seeds"),
        ([one.isel(time=[0, 1]), two], "dimension", r"at different values of 'time'"),
    ):
        with pytest.raises(ValueError, match=message):
            compare(theory(), simulation, extrapolate=size)
    with pytest.raises(ValueError, match=r"theory has modes = 50, which is not a limit of infinite modes"):
        compare(theory(modes=50), [runs(100, modes=50), runs(200, modes=50)], extrapolate="modes")
    with pytest.raises(ValueError, match=r"one simulation has momentum = 0.5, another 0.9"):
        compare(theory(), [runs(100, momentum=0.5), runs(200, momentum=0.9)], extrapolate="dimension")
    with pytest.raises(ValueError, match=r"a simulation has dimension = None"):
        compare(theory(), [one, two.assign_attrs(theory().attrs)], extrapolate="dimension")


def test_the_linear_estimator_has_the_coefficient_that_theory_predicts() -> None:
    """Dimensions 30 and 120, 1200 and 300 datasets: the coefficient of 1/d of both losses at three times.

    ``finite_size`` predicts it from the fluctuations of the sample covariance. Six scores within 4: false alarms 4e-4.
    The last coefficient is seen, at over 3 standard errors.
    """
    model, times = LinearEstimator(aspect_ratio=0.5), [200.0, 400.0, 800.0]
    expected = model.predict(times)
    simulations = [
        model.simulate(times, dimension=size, seeds=seeds, key=key, progress=False)
        for key, (size, seeds) in enumerate(((30, 1200), (120, 300)))
    ]
    result = compare(expected, simulations, extrapolate="dimension")
    huge = model.finite_size(times, dimension=10**6)
    for name in ("train_loss", "test_loss"):
        assert " agrees" in result[name].attrs["verdict"]
        predicted = (huge[name] - expected[name]).values * 10**6
        found, error = (result[name].sel(statistic=part).values for part in ADDED_STATISTICS)
        assert np.abs((found - predicted) / error).max() < 4
    assert (found / error)[-1] > 3
