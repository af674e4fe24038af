"""Learning rates that lie ahead of an unfinished run."""

from pathlib import Path

import numpy as np
import pytest

import solvable
from solvable.inference import KnownRates, Run, read_rates, with_rates_ahead
from solvable.inference.tidying import with_warm_up

STEPS = np.arange(0.0, 101)


def cosine(steps: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.cos(np.pi * np.asarray(steps) / 100))


def early(last: int, peak: float = 1.0) -> Run:
    steps = STEPS[1 : last + 1]
    return Run("early", steps, 1 + steps**-0.5, learning_rate=cosine(steps) / cosine(1), peak=peak * cosine(1))


def test_a_run_with_the_rates_ahead_is_the_run_with_its_schedule():
    known = with_rates_ahead(early(40), KnownRates(STEPS, cosine(STEPS)))
    whole = Run("whole", STEPS[1:], np.ones(100), schedule=cosine)
    later = np.array([50.0, 80, 100])
    np.testing.assert_allclose(known.rates(later) / known.rates([1.0]), cosine(later) / cosine(1), rtol=1e-12)
    # Intrinsic times are in units of the peak, which the log has at its first step and the schedule one step before.
    ratio = known.at(later).flow_time / whole.at(later).flow_time
    np.testing.assert_allclose(ratio, 1 / cosine(1), rtol=2e-4)
    np.testing.assert_allclose(known.flow_time, known.at(known.steps).flow_time, rtol=1e-12)


@pytest.mark.parametrize("peak", [1.0, 3e-4])
def test_rates_of_another_peak_are_scaled_to_meet_the_log(peak):
    known = with_rates_ahead(early(40, peak), KnownRates(STEPS, 7 * cosine(STEPS)))
    np.testing.assert_allclose(known.rates([40.0, 41]) / known.rates([1.0]), cosine([40, 41]) / cosine(1), rtol=1e-12)


def test_rates_that_begin_later_are_in_the_units_of_the_log():
    run = early(40, peak=2e-3)
    known = with_rates_ahead(run, KnownRates(np.array([60.0, 100.0]), np.array([1e-3, 0.0])))
    np.testing.assert_allclose(known.rates([60, 80, 100]), np.array([1e-3, 5e-4, 0]) / run.peak, rtol=1e-12)


def test_a_warm_up_stays():
    run = with_warm_up(early(40), 10)
    known = with_rates_ahead(run, KnownRates(STEPS, cosine(STEPS)))
    np.testing.assert_allclose(known.rates(STEPS[:41]), run.rates(STEPS[:41]), rtol=1e-12)


def test_a_forecast_beyond_the_known_rates_says_so():
    known = with_rates_ahead(early(40), KnownRates(STEPS, cosine(STEPS)))
    report = solvable.infer([known], "power-law", uncertainty="none", backtest=False)
    assert "not known" not in report.predict([100.0]).attrs["warnings"]
    assert "the schedule beyond step 100 is not known" in report.predict([120.0]).attrs["warnings"]
    unknown = solvable.infer([early(40)], "power-law", uncertainty="none", backtest=False)
    assert "the schedule beyond the data is not known" in unknown.predict([100.0]).attrs["warnings"]


def _table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows))
    return path


def test_a_table_of_rates_needs_no_loss(tmp_path):
    found = read_rates(_table(tmp_path / "rates.csv", "step,lr", "20,0.5", "10,1.0", "30,0.0"))
    assert found.steps.tolist() == [10, 20, 30]
    assert found.rates.tolist() == [1.0, 0.5, 0.0]
    assert found.last == 30


def test_the_name_decides_between_several_runs(tmp_path):
    rows = ("run,step,lr", "a,0,1.0", "a,10,0.5", "b,0,1.0", "b,10,0.25")
    path = _table(tmp_path / "several.csv", *rows)
    assert read_rates(path, name="b").rates.tolist() == [1.0, 0.25]
    with pytest.raises(ValueError, match=r"several.csv has 2 runs \(a, b\), and none of them is 'c'"):
        read_rates(path, name="c")
    with pytest.raises(ValueError, match="one of them must be named: give a table of one run"):
        read_rates(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (("step,loss", "0,1.0", "1,0.5"), "has no column of learning rates; it has step, loss"),
        (("step,lr", "0,1.0"), "at two steps or more"),
        (("step,lr", "0,1.0", "1,-0.5"), "must hold learning rates, zero or more"),
        (("step,lr", "0,1.0", "1,soon"), "must hold numbers, but there is 'soon'"),
        (("run,step,lr",), "has column names but no records"),
        (("when,lr", "0,1.0", "1,0.5"), "has no column of steps"),
    ],
)
def test_tables_without_rates_are_refused_in_one_line(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message) as raised:
        read_rates(_table(tmp_path / "table.csv", *rows))
    assert "\n" not in str(raised.value)


def test_what_cannot_be_joined_is_refused():
    later = KnownRates(STEPS, cosine(STEPS))
    with pytest.raises(ValueError, match="known up to step 40, and the learning rates ahead end at step 40"):
        with_rates_ahead(early(40), KnownRates(STEPS[:41], cosine(STEPS[:41])))
    without = Run("plain", STEPS[1:41], np.linspace(2, 1, 40))
    with pytest.raises(ValueError, match="'plain' has no learning rates"):
        with_rates_ahead(without, later)
    zero = KnownRates(STEPS, np.where(STEPS == 40, 0.0, 1.0))
    with pytest.raises(ValueError, match="the learning rate is zero at step 40"):
        with_rates_ahead(early(40), zero)
