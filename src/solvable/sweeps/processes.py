"""Tiles in processes of this machine: a pool that replaces dead workers and ends with its coordinator."""

import contextlib
import importlib
import itertools
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from solvable import compiler
from solvable.sweeps.execution import READY, Compute, Job, Jobs, Outcome, Values, core_count, stack_rows
from solvable.sweeps.grid import Tile

TILES_PER_WORKER = 2
MAXIMUM_FAILED_STARTS = 3
MAXIMUM_DEATHS = 3


def dumps(function: Compute) -> bytes:
    """Pickle a function by reference if it can be imported, and otherwise (notebooks, lambdas) by value."""
    try:
        return importlib.import_module("cloudpickle").dumps(function)
    except ImportError:
        return pickle.dumps(function)


class Worker:
    """One worker process and the tiles that it has been given, oldest first."""

    def __init__(self, function: bytes) -> None:
        ours, theirs = socket.socketpair()
        # One thread per worker, because workers share the cores. The first worker must not take all of a GPU's memory.
        limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **compiler.environment(), **os.environ, **limits}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-m", "solvable.sweeps.worker", str(descriptor)]
            self.process = subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.DEVNULL, env=environment)
        self.connection = Connection(ours.detach())
        self.given: dict[int, None] = {}
        self.ready = False
        with contextlib.suppress(OSError):
            self.connection.send(sys.path)
            self.connection.send_bytes(function)

    def give(self, number: int, columns: dict[str, Any]) -> None:
        self.given[number] = None
        # If the worker is dead, that is noticed when its socket is next read.
        with contextlib.suppress(OSError):
            self.connection.send_bytes(pickle.dumps((number, columns)))

    @property
    def exit_reason(self) -> str:
        code = self.process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


class Pool:
    """Keeps workers busy, replaces those that die, and gives up on a tile that kills them repeatedly."""

    def __init__(self, compute: Compute, workers: int) -> None:
        self._function = dumps(compute)
        self._size = workers
        self._workers: list[Worker] = []
        self._tiles: dict[int, Job] = {}
        self._waiting: list[int] = []
        self._deaths: dict[int, int] = {}
        self._failed_starts = 0

    def outcomes(self, jobs: Jobs) -> Iterator[Outcome]:
        numbered = enumerate(jobs)
        while True:
            for number, job in itertools.islice(numbered, max(0, TILES_PER_WORKER * self._size - len(self._tiles))):
                self._tiles[number] = job
                self._waiting.append(number)
            if not self._tiles:
                return
            self._hand_out()
            ready = wait([worker.connection for worker in self._workers])
            for worker in [worker for worker in self._workers if worker.connection in ready]:
                yield from self._collect(worker)

    def _hand_out(self) -> None:
        while len(self._workers) < min(self._size, len(self._tiles)):
            self._workers.append(Worker(self._function))
        for depth in range(TILES_PER_WORKER):
            for worker in self._workers:
                # A tile that has killed a worker runs alone on the next one, so that no other tile is blamed for it.
                suspect = any(number in self._deaths for number in worker.given)
                if self._waiting and len(worker.given) <= depth and not suspect:
                    number = self._waiting.pop(0)
                    worker.give(number, self._tiles[number][1])

    def _collect(self, worker: Worker) -> Iterator[Outcome]:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            yield from self._replace(worker)
            return
        if not worker.ready:
            worker.ready, self._failed_starts = True, 0
            return
        number, values, errors = message
        del worker.given[number]
        yield Outcome(self._tiles.pop(number)[0], values, errors)

    def _replace(self, worker: Worker) -> Iterator[Outcome]:
        """Remove a dead worker. Its tiles are computed again, and the one that it was computing becomes a suspect."""
        self._workers.remove(worker)
        worker.end()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= MAXIMUM_FAILED_STARTS:
                raise RuntimeError(
                    f"worker processes end while they start ({worker.exit_reason}); their own messages are above. "
                    "The stored cells are safe: solve the problem and run again"
                )
        elif worker.given:
            suspect = next(iter(worker.given))
            self._deaths[suspect] = self._deaths.get(suspect, 0) + 1
            if self._deaths[suspect] >= MAXIMUM_DEATHS:
                del worker.given[suspect]
                yield self._one_cell_at_a_time(*self._tiles.pop(suspect))
        self._waiting.extend(worker.given)

    def _one_cell_at_a_time(self, tile: Tile, columns: dict[str, np.ndarray]) -> Outcome:
        """Try each cell of a tile once more, to find those that kill their worker; keep the results of the others."""
        results: list[Values | None] = []
        errors: list[str | None] = []
        worker, deaths = Worker(self._function), 0
        try:
            for cell in range(len(tile)):
                if deaths == MAXIMUM_DEATHS:
                    results.append(None)
                    errors.append(f"not tried again: {deaths} cells of its tile ended their workers")
                    continue
                worker.give(cell, {name: values[cell : cell + 1] for name, values in columns.items()})
                try:
                    while (message := worker.connection.recv()) == READY:
                        pass
                    results.append(message[1])
                    errors += message[2]
                except (EOFError, OSError):
                    worker.end()
                    results.append(None)
                    errors.append(f"computing this cell ended its worker ({worker.exit_reason}); out of memory?")
                    worker, deaths = Worker(self._function), deaths + 1
        finally:
            worker.end()
        return Outcome(tile, stack_rows(results), errors)

    def end(self) -> None:
        for worker in self._workers:
            worker.end()


@contextlib.contextmanager
def pool(compute: Compute, workers: int | None) -> Iterator[Callable[[Jobs], Iterator[Outcome]]]:
    """A pool of processes, by default one per core."""
    workers = core_count() if workers is None else workers
    if workers < 1:
        raise ValueError(f"workers {workers} must be at least 1")
    started = Pool(compute, workers)
    try:
        yield started.outcomes
    finally:
        started.end()
