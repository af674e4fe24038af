"""Tiles in processes of this machine: a pool that outlives its workers and dies with its coordinator."""

import contextlib
import importlib
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from solvable.sweeps.execution import Compute, Job, Jobs, Outcome, Values, core_count, stack_rows
from solvable.sweeps.grid import Tile
from solvable.sweeps.worker import READY

QUEUED_PER_WORKER = 2
TIMES_TO_START = 3
TIMES_TO_KILL = 3


def dumps(function: Compute) -> bytes:
    """A function by reference if it can be imported, else (notebooks, lambdas) by value."""
    try:
        return importlib.import_module("cloudpickle").dumps(function)
    except ImportError:
        return pickle.dumps(function)


class Worker:
    """One worker process and the tiles it has been given, oldest first."""

    def __init__(self, function: bytes) -> None:
        ours, theirs = socket.socketpair()
        # One thread a worker: the workers share the cores. A GPU's memory is not taken whole by the first of them.
        limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ, **limits}
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
        # A dead worker is noticed, with all it was given, when its socket is next read.
        with contextlib.suppress(OSError):
            self.connection.send_bytes(pickle.dumps((number, columns)))

    @property
    def ending(self) -> str:
        code = self.process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


class Pool:
    """Keeps workers busy, replaces the ones that die and gives up on a tile that kills them again and again."""

    def __init__(self, compute: Compute, workers: int, window: int) -> None:
        self._function = dumps(compute)
        self._size = workers
        self._window = window
        self._workers: list[Worker] = []
        self._tiles: dict[int, Job] = {}
        self._waiting: list[int] = []
        self._deaths: dict[int, int] = {}
        self._failed_starts = 0

    def outcomes(self, jobs: Jobs) -> Iterator[Outcome]:
        numbered = enumerate(jobs)
        exhausted = False
        while True:
            while not exhausted and len(self._tiles) < self._window:
                try:
                    number, job = next(numbered)
                except StopIteration:
                    exhausted = True
                    break
                self._tiles[number] = job
                self._waiting.append(number)
            if not self._tiles:
                return
            self._hand_out()
            for worker in self._ready():
                yield from self._collect(worker)

    def _hand_out(self) -> None:
        while len(self._workers) < min(self._size, len(self._tiles)):
            self._workers.append(Worker(self._function))
        for depth in range(QUEUED_PER_WORKER):
            for worker in self._workers:
                # A tile that has killed before runs alone on its worker, so that no other is blamed for it.
                suspect = any(number in self._deaths for number in worker.given)
                if self._waiting and len(worker.given) <= depth and not suspect:
                    number = self._waiting.pop(0)
                    worker.give(number, self._tiles[number][1])

    def _ready(self) -> list[Worker]:
        ready = wait([worker.connection for worker in self._workers])
        return [worker for worker in self._workers if worker.connection in ready]

    def _collect(self, worker: Worker) -> Iterator[Outcome]:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            yield from self._bury(worker)
            return
        if not worker.ready:
            worker.ready, self._failed_starts = True, 0
            return
        number, values, errors = message
        del worker.given[number]
        tile, _ = self._tiles.pop(number)
        yield Outcome(tile, values, errors)

    def _bury(self, worker: Worker) -> Iterator[Outcome]:
        """Replace a dead worker: its tiles go back, the one it was computing with a mark against it."""
        self._workers.remove(worker)
        worker.end()
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= TIMES_TO_START:
                raise RuntimeError(
                    f"worker processes end while they start ({worker.ending}); their own messages are above. "
                    "What was stored is safe: mend it and run again"
                )
        elif worker.given:
            guilty = next(iter(worker.given))
            self._deaths[guilty] = self._deaths.get(guilty, 0) + 1
            if self._deaths[guilty] >= TIMES_TO_KILL:
                del worker.given[guilty]
                tile, columns = self._tiles.pop(guilty)
                yield self._one_cell_at_a_time(tile, columns)
        self._waiting.extend(worker.given)

    def _one_cell_at_a_time(self, tile: Tile, columns: dict[str, np.ndarray]) -> Outcome:
        """Find the cells of a deadly tile that kill, each tried once more, and save the results of the others."""
        results: list[Values | None] = []
        errors: list[str | None] = []
        worker, deaths = Worker(self._function), 0
        try:
            for cell in range(len(tile)):
                if deaths == TIMES_TO_KILL:
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
                    errors.append(f"computing this cell ended its worker ({worker.ending}); out of memory?")
                    worker, deaths = Worker(self._function), deaths + 1
        finally:
            worker.end()
        return Outcome(tile, stack_rows(results), errors)

    def end(self) -> None:
        for worker in self._workers:
            worker.end()


@contextlib.contextmanager
def pool(compute: Compute, workers: int | None, window: int | None) -> Iterator[Callable[[Jobs], Iterator[Outcome]]]:
    """A pool of ``workers`` processes (default: one a core) with at most ``window`` tiles on the way."""
    workers = core_count() if workers is None else workers
    if workers < 1 or (window is not None and window < 1):
        raise ValueError(f"workers {workers} and window {window} must be at least 1")
    team = Pool(compute, workers, window or QUEUED_PER_WORKER * workers)
    try:
        yield team.outcomes
    finally:
        team.end()
