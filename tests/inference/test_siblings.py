"""Finished siblings: what lies ahead of an unfinished run is in the width of its forecast."""

import dataclasses

import numpy as np
import pytest

import solvable
from solvable.inference import Run, borrowed_kernel, example_curves
from solvable.inference.discrepancy import SIBLING_CUTS
from solvable.inference.empirical_laws import PowerLaw

STEPS = np.geomspace(1, 1000, 80)
NOISE = 0.002


def run_that_falls(seed: int, fall: float, name: str) -> Run:
    """A power law with an offset, and a fall of the loss at step 400 that no law here knows of."""
    noise = np.exp(NOISE * np.random.default_rng(seed).normal(size=STEPS.size))
    return Run(name, STEPS, (0.3 + STEPS**-0.5) * np.where(STEPS > 400, 1 - fall, 1.0) * noise)


def infer(run: Run, **options: object) -> solvable.InferenceReport:
    return solvable.infer(run, PowerLaw(), uncertainty="none", noise="gaussian", **options)  # type: ignore[arg-type]


def holds(report: solvable.InferenceReport, loss: float) -> bool:
    found = report.predict([STEPS[-1]]).isel(time=0)
    return bool(found.low95 <= loss <= found.high95)


def test_an_event_that_lies_ahead_is_seen_by_siblings_alone() -> None:
    """A run that is known up to step 300 follows the law; its end is 10 % lower, as were those of its siblings."""
    run = run_that_falls(0, 0.1, "one")
    early = run.part(run.steps < 300)
    siblings = [run_that_falls(seed, 0.1, f"finished {seed}") for seed in (1, 2, 3)]
    alone, beside = infer(early), infer(early, siblings=siblings)
    assert not holds(alone, run.loss[-1])
    assert holds(beside, run.loss[-1])
    # The error is 10 % within one decade of extrapolation, and most of those of the early parts have none.
    assert 0.05 < beside.discrepancy < 0.3
    assert beside.discrepancy > 5 * alone.discrepancy
    np.testing.assert_array_equal(beside.predict([1000.0]).loss.values, alone.predict([1000.0]).loss.values)
    assert "discrepancy in siblings" in beside.summary()
    assert "discrepancy in siblings" not in alone.summary()


def test_siblings_that_follow_the_law_change_nothing_but_what_was_tested() -> None:
    run = run_that_falls(4, 0.0, "one")
    early = run.part(run.steps < 300)
    siblings = [run_that_falls(seed, 0.0, f"finished {seed}") for seed in (5, 6)]
    alone, beside = infer(early), infer(early, siblings=siblings)
    # Fits of 0.2 % noise that leave out all but the first fifth are off by no more than they say, and that is little.
    assert beside.siblings.slope < 0.01
    assert beside.discrepancy == max(alone.discrepancy, beside.siblings.slope)
    assert holds(beside, run.loss[-1])


def test_each_sibling_is_fitted_alone_up_to_every_cut() -> None:
    run = run_that_falls(7, 0.0, "one")
    siblings = [run_that_falls(8, 0.1, "a"), run_that_falls(9, 0.1, "b")]
    both = infer(run, siblings=siblings).siblings.origins
    assert [one.cut for one in both] == [*SIBLING_CUTS, *SIBLING_CUTS]
    first = infer(run, siblings=siblings[:1]).siblings.origins
    for one, other in zip(first, both[: len(first)], strict=True):
        np.testing.assert_array_equal(one.errors, other.errors)


def test_siblings_need_not_be_backtested_by_the_run_itself(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Where the run is too short to be tested on itself, siblings say how wrong the law is, also after a file."""
    run = run_that_falls(10, 0.1, "one")
    siblings = [run_that_falls(11, 0.1, "finished")]
    report = infer(run, backtest=False, siblings=siblings)
    with pytest.raises(ValueError, match="is not known, so that a forecast at 10000"):
        infer(run, backtest=False).predict("10x")
    found = report.predict("10x")
    assert float(found.discrepancy[0]) == pytest.approx(report.siblings.slope)
    again = solvable.InferenceReport.load(report.save(tmp_path / "report.nc"))
    np.testing.assert_allclose(again.predict("10x").high95.values, found.high95.values, rtol=1e-6)


def test_siblings_that_are_too_short_are_refused() -> None:
    run = run_that_falls(12, 0.0, "one")
    short = dataclasses.replace(run.part(slice(0, 9)), name="short")
    with pytest.raises(ValueError, match="no sibling has enough records .* leave siblings out"):
        infer(run, siblings=short)


def test_public_runs_through_decays_that_have_not_begun() -> None:
    """From the first 30 % of decaying runs, the kernel and the errors of three finished runs of the other size.

    Over all runs, sizes and known parts 95 % intervals hold 69 % without siblings, where there are any, and 89 % with
    them (docs/inference/real-curves.md).
    """
    names = ("cosine_24000", "wsd_20000_24000", "constant_24000")
    finished = [run for run in example_curves("schedules-100M") if run.name in names]
    large = solvable.infer(finished, "schedule", uncertainty="none", backtest=False)
    kernel = borrowed_kernel(large)
    held = {"alone": 0, "beside": 0}
    decaying = [run for run in example_curves("schedules-25M") if not run.name.startswith("constant")]
    for run in decaying:
        early = run.part(run.steps < 0.3 * run.steps[-1])
        for name, siblings in (("alone", None), ("beside", large.runs)):
            report = solvable.infer(early, "schedule", fixed=kernel, siblings=siblings, uncertainty="none")
            if np.isnan(report.discrepancy):
                # Too few records: the forecast has no interval.
                continue
            found = report.predict([run.steps[-1]]).isel(time=0)
            held[name] += bool(found.low95 <= run.loss[-1] <= found.high95)
    assert len(decaying) == 7
    assert held["beside"] >= 6
    assert held["alone"] < held["beside"]
