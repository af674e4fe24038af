"""Cells, coordinators and crashes for the sweep tests. NumPy only, so that a coordinator starts in milliseconds."""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path

import numpy as np

from solvable.sweeps import recovery
from solvable.sweeps.execution import run
from solvable.sweeps.store import Axis, Output, Store

TIMES = np.array([0.5, 1.0, 2.0])
OUTPUTS = [Output("product", attrs={"units": ""}), Output("curve", ("time",), (3,)), Output("count", dtype="int64")]


def axes(first, second=7):
    """A numeric axis and a zipped one of a number and a text."""
    first = np.arange(first) / 4 if isinstance(first, int) else np.asarray(first)
    letters = np.array([chr(ord("a") + number) for number in range(second)])
    return [Axis("x", {"x": first}), Axis("pair", {"y": 1.0 + np.arange(second), "letter": letters})]


def open_sweep(path, first=10, second=7, settings=None, tile=(3, 4), **options):
    settings = {"model": "test", "solver": {"rtol": 1e-6}} if settings is None else settings
    grid = axes(first, second)
    return Store.create_or_open(path, grid, OUTPUTS, {"time": (TIMES, {"units": "s"})}, settings, tile, **options)


SMALL = {"first": 2, "second": 3, "tile": (2, 2)}


def fill(path, **options):
    """Compute all that a store lacks."""
    with open_sweep(path, **options) as store:
        return run(store, compute, progress=False)


@contextlib.contextmanager
def quick_folder(otherwise):
    """In memory where there is a file system for it: hundreds of stores, each flushed to the disk, take minutes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else otherwise) as folder:
        yield Path(folder)


def is_bad(cell):
    return cell["x"] == 1.0 and cell["letter"] == "b"


def value(cell):
    return cell["x"] * 100 + cell["y"] + ord(cell["letter"]) / 1000


def compute(cells):
    """The cell (1, 'b') fails; every other gives numbers that only its own parameters give."""
    product = np.array([value(cell) for cell in cells])
    errors = [f"no result at {cell['x']}" if is_bad(cell) else None for cell in cells]
    return {"product": product, "curve": product[:, None] * TIMES, "count": product.astype(int)}, errors


def slow_compute(cells):
    time.sleep(0.008)
    return compute(cells)


class Announcing:
    """The slow computation, which says so when two tiles have been written."""

    def __init__(self, event):
        self._event = event
        self._calls = 0

    def __call__(self, cells):
        self._calls += 1
        if self._calls == 3:
            self._event.set()
        return slow_compute(cells)


def check_dataset(dataset, complete):
    """Every stored cell is right, wherever it lies; if complete, every cell is stored. Returns the done cells."""
    xs, ys, letters = dataset.x.values, dataset.y.values, dataset.letter.values
    product, curve, count, status = (dataset[name].values for name in ("product", "curve", "count", "status"))
    done = set()
    for i, j in np.ndindex(status.shape):
        cell = {"x": xs[i], "y": ys[j], "letter": str(letters[j])}
        if status[i, j] == 1:
            assert product[i, j] == value(cell)
            assert (curve[i, j] == value(cell) * TIMES).all()
            assert count[i, j] == int(value(cell))
        else:
            assert np.isnan(product[i, j])
        if status[i, j] == 2:
            assert is_bad(cell)
            assert dataset.error.values[i, j] == f"no result at {xs[i]}"
        assert status[i, j] or not complete
        if status[i, j]:
            done.add((xs[i], str(letters[j])))
    return done


# A forkserver has zarr imported already: a fresh coordinator takes ten milliseconds, not a second.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["zarr", "zarr.codecs", "numpy", "solvable.sweeps.store", "solvable.sweeps.execution"])


def start(target, *arguments):
    process = processes.Process(target=target, args=arguments)
    process.start()
    return process


def coordinate(path, options, began=None, function=compute, engine="serial", client=None):
    """A coordinator: open the store and compute what is missing."""
    if began is not None:
        began.set()
    with open_sweep(path, **options) as store:
        run(store, function, progress=False, engine=engine, workers=2, client=client)


def coordinate_until(path, options, step):
    """A coordinator that kills itself just before its ``step``-th call that changes names or flushes files."""
    left = step

    def deadly(function):
        def call(*arguments, **keywords):
            nonlocal left
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            return function(*arguments, **keywords)

        return call

    for name in ("replace", "rename", "fsync", "unlink", "rmdir", "mkdir", "pwrite"):
        setattr(os, name, deadly(getattr(os, name)))
    coordinate(path, options)


def hold(path, opened, finish):
    """A coordinator that does nothing for as long as it is asked to."""
    with open_sweep(path):
        opened.set()
        finish.wait(60)


class Disk:
    """Records, while it is entered, which writes of a store a power cut could still take back."""

    def __init__(self):
        self.versions = {}
        self.content_safe = set()
        self.name_safe = {}

    def __enter__(self):
        self._replace, self._fsync = os.replace, os.fsync
        os.replace, os.fsync = self._record_replace, self._record_fsync
        return self

    def __exit__(self, *_):
        os.replace, os.fsync = self._replace, self._fsync

    def _record_replace(self, source, target):
        source, target = os.path.realpath(source), os.path.realpath(target)
        if os.path.isfile(source):
            before = Path(target).read_bytes() if os.path.exists(target) else None
            # Until the folder is flushed, any version since the last flush may be what a reboot finds.
            kept = self.versions.get(target, []) if not self.name_safe.get(target, True) else []
            self.versions[target] = [*kept, before]
            self.name_safe[target] = False
            if source in self.content_safe:
                self.content_safe.add(target)
            else:
                self.content_safe.discard(target)
        self._replace(source, target)

    def _record_fsync(self, handle):
        path = os.path.realpath(f"/proc/self/fd/{handle}")
        if os.path.isdir(path):
            for target in self.name_safe:
                if os.path.dirname(target) == path:
                    self.name_safe[target] = True
        else:
            self.content_safe.add(path)
        self._fsync(handle)

    def cut_power(self, random, share):
        """Take back a random share of what was never forced to the disk. Returns how many files were hit."""
        hit = 0
        for target, versions in self.versions.items():
            path = Path(target)
            fates = [] if self.name_safe[target] else ["older", "older"]
            fates += [] if target in self.content_safe else ["empty", "short", "zeros"]
            if not path.exists() or not fates or random.uniform() > share:
                continue
            hit += 1
            fate, data = random.choice(fates), path.read_bytes()
            older = versions[random.integers(len(versions))]
            if fate == "older" and older is None:
                path.unlink()
            else:
                path.write_bytes({"older": older, "empty": b"", "short": data[:-3], "zeros": bytes(len(data))}[fate])
        return hit

    def lose_second_versions(self):
        """The worst power cut: every output that may be back at an older version is, and every status is the newest."""
        second = [target for target, versions in self.versions.items() if versions[-1] and "/status/" not in target]
        for target in second:
            if not self.name_safe[target]:
                Path(target).write_bytes(self.versions[target][-1])
        return len(second)


def pretend_restart(monkeypatch, name):
    monkeypatch.setattr(recovery, "boot_identity", lambda: name)
