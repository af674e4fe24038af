"""Logs of the trackers: what they write is what is read back, also after interruptions."""

import sys

import equinox as eqx
import jax
import numpy as np
import pytest
import torch

import solvable
import solvable.equinox
import solvable.torch
from solvable.diagnostics.logs import log_of

LOSSES = [1.5, 1.0, 0.75, 0.1, 1 / 3, 0.2]
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(24, 4)).astype("float32"), RNG.integers(0, 3, 24)


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))


def tracked(log, losses=LOSSES, begin=0, **options):
    tracker = solvable.torch.Tracker(network(), DATA, DATA, log=log, **options)
    for epoch, loss in enumerate(losses, start=begin):
        tracker(epoch, train_loss=loss)
    return tracker


def test_csv_is_read_back_with_all_digits(tmp_path):
    path = tmp_path / "log.csv"
    history = tracked(path).history
    (run,) = solvable.read_curves(path, announce=False)
    np.testing.assert_array_equal(run.steps, range(6))
    np.testing.assert_array_equal(run.loss, LOSSES)
    table = np.genfromtxt(path, delimiter=",", names=True)
    np.testing.assert_array_equal(table["mp_distance"], history.mp_distance)
    assert "regime" not in table.dtype.names


def test_tensorboard_is_read_back(tmp_path):
    pytest.importorskip("tensorboard")
    tracked(tmp_path / "events")
    (run,) = solvable.read_curves(tmp_path / "events", announce=False)
    np.testing.assert_array_equal(run.steps, range(6))
    np.testing.assert_allclose(run.loss, LOSSES, rtol=1e-7)  # event files hold float32


def test_a_run_takes_numbers_and_steps():
    class Run:
        def __init__(self):
            self.rows = []

        def log(self, numbers, step):
            self.rows.append((step, numbers))

    run = Run()
    tracker = solvable.torch.Tracker(network(), DATA, DATA, log=run)
    for epoch in (0, 0.4, 1.0, 5):  # steps are whole and increase
        tracker(epoch, train_loss=0.5)
    assert [step for step, _ in run.rows] == [0, 1, 2, 5]
    assert run.rows[1][1]["epoch"] == 0.4
    assert run.rows[1][1]["train_loss"] == 0.5


def test_rows_of_a_csv_are_appended_and_new_columns_widen_it(tmp_path):
    path = tmp_path / "log.csv"
    log = log_of(path)
    log.write(0, {"loss": 0.5})
    before = path.read_bytes()
    log.write(1, {"loss": 0.25})
    assert path.read_bytes() == before + b"1,0.25\n"
    log.write(2, {"loss": 0.1, "sharpness": 3.5})
    log.write(3, {"loss": float("nan")})
    assert path.read_text() == "epoch,loss,sharpness\n0,0.5,\n1,0.25,\n2,0.1,3.5\n3,nan,\n"


def test_a_log_is_continued_and_a_row_that_was_cut_off_is_dropped(tmp_path):
    path = tmp_path / "log.csv"
    tracked(path, LOSSES[:3])
    whole = path.read_text()
    path.write_text(whole[:-4])
    tracked(path, LOSSES[2:], begin=2)
    (run,) = solvable.read_curves(path, announce=False)
    np.testing.assert_array_equal(run.loss, LOSSES)
    # A header alone that was cut off begins anew.
    path.write_text("epo")
    with pytest.raises(ValueError, match="not the log of a tracker"):
        log_of(path)


def test_the_equinox_tracker_logs_and_measures_stability(tmp_path):
    pair = eqx.nn.MLP(4, 3, 6, depth=1, activation=jax.nn.tanh, key=jax.random.key(0))
    path = tmp_path / "log.csv"
    rates = iter((0.5, 0.25))
    tracker = solvable.equinox.Tracker(
        DATA, DATA, log=path, stability=lambda: {"optimizer": solvable.GradientDescent(next(rates))}
    )
    for epoch in range(2):
        tracker(pair, epoch, train_loss=0.5)
    np.testing.assert_allclose(tracker.history.edge_of_stability, [4, 8])
    table = np.genfromtxt(path, delimiter=",", names=True)
    np.testing.assert_array_equal(table["sharpness"], tracker.history.sharpness)


def test_the_torch_tracker_measures_stability():
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    tracker = solvable.torch.Tracker(module, DATA, DATA, stability={"optimizer": optimizer, "budget": 40})
    tracker(0)
    for group in optimizer.param_groups:
        group["lr"] = 1.0
    tracker(1)
    history = tracker.history
    np.testing.assert_allclose(history.edge_of_stability, [4, 2])
    np.testing.assert_allclose(history.edge_fraction, history.sharpness / [4, 2])
    # The second measurement starts from the first, and finds the same.
    assert abs(float(history.sharpness.diff("epoch")[0])) <= 2 * float(history.sharpness_error.max())
    assert tracker.stability.regime in ("stable", "edge of stability", "unstable")
    assert "edge of stability" in [line.get_label() for line in tracker.plot().axes[-1].get_lines()]


def test_before_the_first_step_of_adam_the_tracker_measures_the_rest():
    module = network()
    optimizer = torch.optim.Adam(module.parameters())
    tracker = solvable.torch.Tracker(module, DATA, DATA, stability={"optimizer": optimizer})
    tracker(0)
    torch.nn.functional.cross_entropy(module(torch.tensor(DATA[0])), torch.tensor(DATA[1])).backward()
    optimizer.step()
    tracker(1)
    np.testing.assert_array_equal(np.isfinite(tracker.history.sharpness), [False, True])


@pytest.mark.parametrize(
    ("log", "words"),
    [("log.txt", "ends in .csv"), (3, "not int"), ("missing/log.csv", "no folder")],
)
def test_logs_that_are_none_are_refused(log, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words):
        tracked(log)


def test_stability_that_is_no_options_is_refused():
    with pytest.raises(ValueError, match="stability must be True"):
        tracked(None, stability=3)
    with pytest.raises(ValueError, match="sharpness is measured"):
        solvable.torch.Tracker(network(), DATA, DATA)(0, sharpness=1.0)


def test_without_tensorboard_the_error_names_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ImportError, match=r"pip install 'solvable\[logs\]'"):
        log_of(tmp_path / "events")
