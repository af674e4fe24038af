"""Sweeps on processes and on a real Dask cluster, with workers and coordinators killed."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from paths import SOURCE, TESTS

pytest.importorskip("zarr")

import sweep_cells as cells

from solvable.sweeps.execution import SweepInterrupted, evaluate, run, stack_rows
from solvable.sweeps.grid import MemoryStore
from solvable.sweeps.schema import Axis, Output
from solvable.sweeps.store import open_store, status


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plane.zarr"


def grid_of(first, second=7, tile=(3, 4)):
    return MemoryStore(cells.axes(first, second), cells.OUTPUTS, {"time": (cells.TIMES, {})}, tile=tile)


def pids_gone(pids, seconds=5.0):
    """Whether every process has ended within some seconds (a zombie has)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(_alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# One tile


def test_a_tile_that_raises_is_computed_cell_by_cell():
    def fragile(rows):
        if any(cells.is_bad(row) for row in rows):
            raise ArithmeticError("one of these")
        return cells.compute(rows)

    store = grid_of(10)
    report = run(store, fragile, progress=False)
    assert (report.computed, report.failed) == (70, 1)
    assert [text for _, text in store.failures()] == ["ArithmeticError: one of these"]
    assert (store.dataset()["product"] == run_serially(10)["product"]).sum() == 69


def run_serially(first, second=7):
    store = grid_of(first, second)
    run(store, cells.compute, progress=False)
    return store.dataset()


def test_a_tile_without_any_result():
    def broken(rows):
        raise ImportError("no such library")

    store = grid_of(2)
    assert run(store, broken, progress=False).failed == 14
    assert {text for _, text in store.failures()} == {"ImportError: no such library"}
    assert stack_rows([None, None]) is None
    assert evaluate(broken, {"x": np.array([1.0])}) == (None, ["ImportError: no such library"])


def test_ctrl_c_leaves_a_store_that_resumes_and_says_so(path):
    written = 0

    def interrupted(rows):
        nonlocal written
        written += 1
        if written == 3:
            raise KeyboardInterrupt
        return cells.compute(rows)

    with (
        cells.open_sweep(path) as store,
        pytest.raises(SweepInterrupted, match=r"21 of 70 cells are stored in .*plane\.zarr; run the same sweep again"),
    ):
        run(store, interrupted, progress=False)
    with cells.open_sweep(path) as store:
        assert run(store, cells.compute, progress=False).computed == 49
    cells.check_dataset(open_store(path), complete=True)


def test_the_progress_line_shows_rate_and_time_left(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "150")
    run(grid_of(4), cells.slow_compute, progress=True)
    line = capsys.readouterr().err
    assert "cells/s" in line
    assert "of 28 cells" in line
    assert "0:00:0" in line


def test_unknown_engines_and_impossible_numbers_of_workers():
    with pytest.raises(ValueError, match="engine 'threads' is not one of"):
        run(grid_of(2), cells.compute, engine="threads", progress=False)
    with pytest.raises(ValueError, match="workers 0 must be at least 1"):
        run(grid_of(2), cells.compute, engine="processes", workers=0, progress=False)


# Processes


def deadly(rows):
    """Like the others, but two cells end their process."""
    if any(row["x"] == 0.5 and row["letter"] in "cf" for row in rows):
        os.kill(os.getpid(), signal.SIGKILL)
    return cells.compute(rows)


def test_cells_that_kill_their_workers_fail_alone():
    store = grid_of(8, tile=(4, 7))
    report = run(store, deadly, engine="processes", workers=2, progress=False)
    assert report.computed == 56
    failures = {(cell["x"], cell["letter"]): text for cell, text in store.failures()}
    assert set(failures) == {(0.5, "c"), (0.5, "f"), (1.0, "b")}
    assert failures[0.5, "c"].startswith("computing this cell ended its worker (signal 9)")
    good = store.dataset().status == 1
    assert (store.dataset()["product"] == run_serially(8)["product"]).where(good, True).all()


def test_a_killed_worker_is_replaced_and_functions_without_a_module_travel():
    parent = os.getpid()
    factor = 3.0
    victims = []

    def closure(rows):
        assert os.getpid() != parent
        time.sleep(0.01)
        product = np.array([factor * row["x"] for row in rows])
        return {"pid": np.full(len(rows), os.getpid()), "f": product}, [None] * len(rows)

    store = MemoryStore([Axis("x", {"x": np.arange(400.0)})], [Output("f"), Output("pid", dtype="int64")], tile=10)
    write = store.write

    def killing_write(tile, values, errors):
        write(tile, values, errors)
        if not victims and tile.index[0] >= 10:
            victims.append(int(values["pid"][0]))
            os.kill(victims[0], signal.SIGKILL)

    store.write = killing_write
    report = run(store, closure, engine="processes", workers=2, progress=False)
    dataset = store.dataset()
    assert report.counts == {"pending": 0, "done": 400, "failed": 0, "total": 400}
    assert (dataset.f == 3.0 * dataset.x).all()
    pids = set(dataset.pid.values.tolist())
    assert len(pids) == 3
    assert pids_gone(pids)


def test_workers_that_cannot_start_are_reported(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match=r"end while they start \(exit status 1\)"):
        run(grid_of(3), cells.compute, engine="processes", workers=2, progress=False)


def report_pids(rows):
    Path(os.environ["PIDS"], str(os.getpid())).touch()
    time.sleep(0.05)
    return cells.compute(rows)


def test_workers_die_with_a_killed_coordinator(path, monkeypatch):
    folder = path.parent / "pids"
    folder.mkdir()
    process = cells.start(coordinate_with_pids, str(folder), path)
    deadline = time.monotonic() + 60
    while len(os.listdir(folder)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.join()
    pids = [int(name) for name in os.listdir(folder)]
    assert len(pids) == 2
    assert pids_gone(pids)
    with cells.open_sweep(path, first=40) as store:
        run(store, cells.compute, progress=False)
    cells.check_dataset(open_store(path), complete=True)


def coordinate_with_pids(folder, path):
    os.environ["PIDS"] = folder
    cells.coordinate(path, {"first": 40}, function=report_pids, engine="processes")


def test_ctrl_c_ends_the_workers():
    pids = []
    store = MemoryStore([Axis("x", {"x": np.arange(1000.0)})], [Output("pid", dtype="int64")], tile=2)
    write = store.write

    def stopping_write(tile, values, errors):
        write(tile, values, errors)
        pids.append(int(values["pid"][0]))
        # As from a terminal: the coordinator's process gets the signal while it waits.
        threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start() if len(pids) == 5 else None

    def where(rows):
        time.sleep(0.02)
        return {"pid": np.full(len(rows), os.getpid())}, [None] * len(rows)

    store.write = stopping_write
    with pytest.raises(SweepInterrupted, match="of 1000 cells are stored in memory"):
        run(store, where, engine="processes", workers=2, progress=False)
    assert 10 <= store.counts()["done"] < 1000
    assert pids_gone(set(pids))


# Dask: a scheduler and two workers, each a process of its own


class Cluster:
    def __init__(self, folder):
        pytest.importorskip("distributed")
        path = os.pathsep.join([str(SOURCE), str(TESTS)])
        self._environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
        # How long the scheduler tries to reach a dead worker that had results.
        self._environment["DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT"] = "3s"
        self._log = open(folder / "log", "w")  # noqa: SIM115
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        self.workers = []
        self.add_worker()
        self.add_worker()

    def _start(self, kind, *arguments):
        command = [sys.executable, "-m", "distributed.cli.dask_" + kind, *arguments]
        return subprocess.Popen(command, env=self._environment, stdout=self._log, stderr=self._log)

    def add_worker(self):
        options = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--host", "127.0.0.1")
        self.workers.append(self._start("worker", self.address, *options))

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()


def with_pid(rows):
    time.sleep(0.01)
    return {**cells.compute(rows)[0], "pid": np.full(len(rows), os.getpid())}, cells.compute(rows)[1]


def test_a_dask_worker_killed_midway(cluster):
    distributed = pytest.importorskip("distributed")
    outputs = [*cells.OUTPUTS, Output("pid", dtype="int64")]
    store = MemoryStore(cells.axes(40, 10), outputs, {"time": (cells.TIMES, {})}, tile=(2, 5))
    write, victim, seen = store.write, cluster.workers[0], set()

    def killing_write(tile, values, errors):
        seen.add(int(values["pid"][0]))
        write(tile, values, errors)
        if len(seen) == 2 and store.counts()["done"] > 150:
            victim.kill()

    store.write = killing_write
    with distributed.Client(cluster.address) as client:
        client.wait_for_workers(2, timeout=60)
        report = run(store, with_pid, engine="dask", client=client, progress=False)
    assert victim.wait(10) == -signal.SIGKILL
    assert report.counts == {"pending": 0, "done": 399, "failed": 1, "total": 400}
    assert {victim.pid, cluster.workers[1].pid} == seen
    serial = run_serially(40, 10)
    for name in ("product", "curve", "count", "status", "error"):
        assert store.dataset()[name].identical(serial[name]), name
    cluster.workers.pop(0)
    cluster.add_worker()


def test_coordinator_killed_during_a_dask_run(cluster, path):
    pytest.importorskip("distributed")
    options = {"first": 40, "second": 10, "tile": (2, 5)}
    before = set()
    for _ in range(2):
        arguments = (path, options, None, cells.slow_compute, "dask", cluster.address)
        process = cells.start(cells.coordinate, *arguments)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and process.exitcode is None:
            if path.exists() and status(path)["done"] >= min(len(before) + 50, 300):
                break
            time.sleep(0.01)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        done = cells.check_dataset(open_store(path), complete=False)
        assert before < done
        before = done
    with cells.open_sweep(path, **options) as store:
        report = run(store, cells.compute, engine="dask", client=cluster.address, progress=False)
    assert report.computed == 400 - len(before) + (1 if (1.0, "b") in before else 0)
    cells.check_dataset(open_store(path), complete=True)
    assert open_store(path)["product"].identical(run_serially(40, 10)["product"])


def kill_worker_at_one_cell(rows):
    if any(row["x"] == 0.25 and row["letter"] == "a" for row in rows):
        os.kill(os.getpid(), signal.SIGKILL)
    return cells.compute(rows)


@pytest.mark.slow
def test_a_local_dask_cluster_and_a_tile_that_kills():
    """Nannies replace the workers; after four deaths the tile is marked as failed and the rest goes on."""
    pytest.importorskip("distributed")
    store = grid_of(10, tile=(1, 7))
    report = run(store, kill_worker_at_one_cell, engine="dask", workers=2, progress=False)
    assert report.counts == {"pending": 0, "done": 62, "failed": 8, "total": 70}
    assert sum("KilledWorker" in text for _, text in store.failures()) == 7


@pytest.mark.slow
def test_a_lost_scheduler_is_reported(tmp_path):
    distributed = pytest.importorskip("distributed")
    cluster = Cluster(tmp_path)
    store = grid_of(40)
    write = store.write

    def killing_write(tile, values, errors):
        write(tile, values, errors)
        cluster.scheduler.kill()

    store.write = killing_write
    try:
        with distributed.Client(cluster.address) as first:
            first.wait_for_workers(2, timeout=60)
        # The time-out is how long the client tries to find its scheduler again.
        with (
            distributed.Client(cluster.address, timeout="3s") as client,
            pytest.raises(RuntimeError, match="scheduler is gone .*run the sweep again"),
        ):
            run(store, cells.slow_compute, engine="dask", client=client, progress=False)
    finally:
        cluster.end()
    assert 0 < store.counts()["done"] < 280
