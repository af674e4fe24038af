"""The sweep store under kills at every step and under power cuts."""

import os
import shutil
import signal
import time

import numpy as np
import pytest

pytest.importorskip("zarr")

import sweep_cells as cells
from sweep_cells import fill

from solvable.sweeps.execution import run
from solvable.sweeps.store import open_store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plane.zarr"


@pytest.fixture
def quick_path(tmp_path):
    with cells.quick_folder(tmp_path) as folder:
        yield folder / "folder" / "s.zarr"


# Kills


def kill_after(process, seconds):
    time.sleep(seconds)
    process.kill()
    process.join()


def test_coordinator_killed_at_twenty_random_moments(path):
    options = {"first": 40, "tile": (1, 7)}
    random = np.random.default_rng(7)
    before, kills, grown = set(), 0, 0
    while kills < 20:
        # Every other kill is aimed at the writing of tiles, the others at any moment from the start on.
        began, writing = cells.processes.Event(), cells.processes.Event()
        process = cells.start(cells.coordinate, path, options, began, cells.Announcing(writing))
        assert (writing if kills % 2 else began).wait(60)
        kill_after(process, random.uniform(0, 0.08))
        kills += process.exitcode == -signal.SIGKILL
        if path.exists():
            done = cells.check_dataset(open_store(path), complete=False)
            assert before <= done
            grown += len(done) > len(before)
            before = done
            # A coordinator with less than three tiles to write would never announce the third. It needs some to spare:
            # several are written before a late kill.
            if len(done) > (options["first"] - 20) * 7:
                options["first"] += 40
    assert grown >= 9
    fill(path, **options)
    cells.check_dataset(open_store(path), complete=True)
    assert sorted(os.listdir(path.parent)) == [path.name]
    assert not list(path.rglob("*.partial"))


def crash_at_every_step(path, prepare, options, stride, settings_before=None):
    """Kill a coordinator before every step in turn; after each the store must open and resume to the end."""
    step = crashes = 0
    while True:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        finished = prepare()
        process = cells.start(cells.coordinate_until, path, options, step)
        process.join()
        if process.exitcode == 0:
            return crashes
        assert process.exitcode == -signal.SIGKILL
        crashes += 1
        overwritten = options.get("overwrite", False)
        if path.exists():
            found = cells.check_dataset(open_store(path), complete=False)
            assert overwritten or finished <= found
        elif overwritten:
            # Between the two renames: taking the lock puts the old store back.
            with cells.open_sweep(path, settings=settings_before) as store:
                assert cells.check_dataset(store.dataset(), complete=False) == finished
        fill(path, **options)
        cells.check_dataset(open_store(path), complete=True)
        assert sorted(os.listdir(path.parent)) == [path.name], step
        assert not list(path.rglob("*.partial"))
        step += stride


def nothing():
    return set()


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_creating_and_writing(quick_path, stride):
    path = quick_path
    assert crash_at_every_step(path, nothing, cells.SMALL, stride) * stride > 60


@pytest.mark.parametrize("stride", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_extending(quick_path, stride):
    path = quick_path

    def prepare():
        fill(path, **cells.SMALL)
        return cells.check_dataset(open_store(path), complete=True)

    longer = {**cells.SMALL, "first": [0.75, 0.25, 0.0], "second": 4}
    assert crash_at_every_step(path, prepare, longer, stride) * stride > 40


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_starting_again(quick_path, stride):
    path = quick_path
    old = {"old": True}

    def prepare():
        fill(path, **cells.SMALL, settings=old)
        return cells.check_dataset(open_store(path), complete=True)

    again = {**cells.SMALL, "overwrite": True}
    assert crash_at_every_step(path, prepare, again, stride, settings_before=old) * stride > 80


def test_killed_between_the_two_renames_of_starting_again(path):
    fill(path, settings={"old": True})
    aside, draft = path.with_name(".plane.zarr.old"), path.with_name(".plane.zarr.new")
    os.rename(path, aside)
    shutil.copytree(aside, draft)
    with cells.open_sweep(path, settings={"old": True}) as store:
        assert store.counts()["done"] == 69
    shutil.copytree(path, aside)
    fill(path, overwrite=True)
    cells.check_dataset(open_store(path), complete=True)
    assert os.listdir(path.parent) == [path.name]


# Power cuts


@pytest.mark.parametrize("share", [0.15, 0.6])
@pytest.mark.parametrize("seed", range(3))
def test_lost_writes_are_found_after_a_restart(quick_path, monkeypatch, seed, share):
    path = quick_path
    path.parent.mkdir()
    random = np.random.default_rng(seed)
    with cells.Disk() as disk:
        # First versions, then second versions of the tiles at the edge and of the failed cell's.
        fill(path, first=4, second=3)
        fill(path, first=5, second=5)
    assert disk.cut_power(random, share) > 0
    cells.pretend_restart(monkeypatch, f"boot {seed}")
    with cells.open_sweep(path, first=5, second=5) as store:
        assert store.repairs or share < 0.5
        run(store, cells.compute, progress=False)
    cells.check_dataset(open_store(path), complete=True)
    with cells.open_sweep(path, first=5, second=5) as store:
        assert store.repairs == []


def test_a_lost_second_version_is_not_believed(quick_path, monkeypatch):
    """Its first version is whole: no checksum tells. The store forces second versions to the disk instead."""
    path = quick_path
    path.parent.mkdir()
    with cells.Disk() as disk:
        fill(path, first=4, second=3)
        fill(path, first=5, second=5)
    assert disk.lose_second_versions() >= 6
    cells.pretend_restart(monkeypatch, "another boot")
    fill(path, first=5, second=5)
    cells.check_dataset(open_store(path), complete=True)
