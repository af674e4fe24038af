"""Theory against simulation: statistics on data whose answer is known."""

import numpy as np
import pytest
import xarray as xr

from solvable import compare
from solvable.comparison import first_crossing


def pair(runs: np.ndarray, expected: list, **attrs: object) -> tuple[xr.Dataset, xr.Dataset]:
    times = np.arange(runs.shape[1], dtype=float)
    theory = xr.Dataset({"test_loss": ("time", expected)}, coords={"time": times})
    simulation = xr.Dataset({"test_loss": (("seed", "time"), runs, attrs)}, coords={"time": times})
    return theory, simulation


def test_statistics_by_hand() -> None:
    result = compare(*pair(np.array([[1.0, 4.0], [3.0, 8.0]]), [1.0, 6.0])).test_loss
    assert result.sel(statistic="simulation").values.tolist() == [2.0, 6.0]
    assert result.sel(statistic="difference").values.tolist() == [1.0, 0.0]
    assert result.sel(statistic="standard_error").values == pytest.approx([1.0, 2.0])
    assert result.sel(statistic="z_score").values == pytest.approx([1.0, 0.0])


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
    """Runs that are all alike: agreement up to rounding is agreement, anything else is not; zero has no rounding."""
    runs = np.array([[1.0, 1.0, 1.0, 0.0, 1.0]] * 5)
    runs[0, 1] += 2e-16
    result = compare(*pair(runs, [1.0, 1.0 - 4e-16, 2.0, 0.0, 0.0])).test_loss.sel(statistic="z_score").values
    assert result[0] == result[3] == 0.0
    assert abs(result[1]) < 1
    assert result[2] < -1e10
    assert result[4] == np.inf


def test_errors_of_theory_are_added() -> None:
    theory, simulation = pair(np.array([[1.0], [3.0]]), [1.0])
    theory["test_loss_error"] = ("time", [1.0])
    assert float(compare(theory, simulation).test_loss.sel(statistic="standard_error")[0]) == pytest.approx(np.sqrt(2))


def test_bad_pairs() -> None:
    theory, simulation = pair(np.ones((3, 2)), [1.0, 1.0])
    with pytest.raises(ValueError, match="theory first, simulation second"):
        compare(simulation, theory)
    with pytest.raises(ValueError, match="at least 2 seeds"):
        compare(theory, simulation.isel(seed=[0]))
    with pytest.raises(ValueError, match="different values of 'time'.*predict at simulation.time.values"):
        compare(theory.isel(time=[0]), simulation)
    with pytest.raises(ValueError, match="nothing to compare: theory has other"):
        compare(theory.rename(test_loss="other"), simulation)


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
