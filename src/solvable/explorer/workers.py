"""Worker processes for all computations.

A page's server must answer everybody at any time, and work must end when its page is closed or its time is up. A
thread that computes can be neither interrupted nor kept from slowing its neighbours; a process can. Compiled programs
stay warm in each worker, and all share a cache on disk.
"""

import atexit
import contextlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from solvable.explorer.programs import compiler_environment
from solvable.explorer.worker import PROGRAM, read_message, write_message
from solvable.settings.limits import SECONDS

# A worker that is asked to stop and does not within this many seconds is ended and replaced.
_GRACE = 1.0
_MOST_WAITING = 64
# A worker that still holds more bytes than this after it has dropped its compiled programs, and this many times more
# than after its first job, is replaced by a fresh one.
MOST_MEMORY = 1_000_000_000
_GROWTH = 1.25


class Job:
    """A task for a worker. Callbacks are called from another thread, and no longer after :meth:`cancel`."""

    def __init__(self, number: int, task: str, payload: dict[str, Any], heavy: bool) -> None:
        self.number, self.task, self.payload, self.heavy = number, task, payload, heavy
        self.on_progress: Callable[[float], None] = lambda share: None
        self.on_partial: Callable[[Any], None] = lambda partial: None
        self.on_done: Callable[[Any, list[str]], None] = lambda result, notes: None
        self.on_failed: Callable[[str], None] = lambda words: None
        # Called with the number of jobs that come first, whenever that changes while the job waits.
        self.on_waiting: Callable[[int], None] = lambda before: None
        self.before = -1
        self.over = False
        self._cancel: Callable[[Job], None] | None = None

    def cancel(self) -> None:
        """Stop the job, whether it waits or runs."""
        if not self.over and self._cancel is not None:
            self._cancel(self)


class _Worker:
    def __init__(self, pool: "Workers") -> None:
        self.pool = pool
        self.job: Job | None = None
        # The models whose programs it has compiled.
        self.models: set[str] = set()
        self.timer: threading.Timer | None = None
        self.first_memory = 0
        # The process that takes over from this one, and whether it is ready to.
        self.successor: _Worker | None = None
        self.ready = False
        environment = {**os.environ, **compiler_environment(pool.cache), "OPENBLAS_NUM_THREADS": "1"}
        # An empty entry, as a colon at the end leaves, stands for the current folder.
        path = [entry for entry in environment.pop("PYTHONPATH", "").split(os.pathsep) if entry]
        if path:
            environment["PYTHONPATH"] = os.pathsep.join(path)
        # A fresh interpreter, not a fork: JAX's threads do not survive one, and a notebook's main module is not ours.
        self.process = subprocess.Popen(
            # Without the current folder on its path: a user's random.py there is not the standard library's.
            [sys.executable, "-P", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def give(self, job: Job) -> None:
        self.job = job
        self.models.add(job.payload.get("model", ""))
        self.timer = threading.Timer(SECONDS[job.task], self.pool._too_long, (self, job))
        self.timer.daemon = True
        self.timer.start()
        self.say(("job", job.number, job.task, job.payload))

    def say(self, message: Any) -> None:
        with contextlib.suppress(OSError, ValueError):
            assert self.process.stdin is not None
            write_message(self.process.stdin, message)

    def end(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.process.kill()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.pool._heard(self, *read_message(self.process.stdout))
        self.process.wait()
        self.pool._lost(self)


class Workers:
    """A pool of workers and the queue of their jobs. Heavy jobs always leave one worker for quick ones."""

    def __init__(self, count: int | None = None) -> None:
        self._lock = threading.RLock()
        self._count = count or max(2, min(4, os.cpu_count() or 2))
        self._workers: list[_Worker] = []
        self._waiting: deque[Job] = deque()
        # Jobs for workers that have nothing else to do.
        self._spare: deque[Job] = deque()
        self._numbers = itertools.count(1)
        self._closed = False
        self.cache = tempfile.mkdtemp(prefix="solvable-explorer-")
        atexit.register(self.close)

    def start(self) -> None:
        """Start the worker processes."""
        with self._lock:
            while len(self._workers) < self._count and not self._closed:
                self._workers.append(_Worker(self))

    def submit(self, task: str, payload: dict[str, Any], heavy: bool = False) -> Job:
        """Create a job. Set its callbacks, then :meth:`begin` it."""
        job = Job(next(self._numbers), task, payload, heavy)
        job._cancel = self._cancel
        return job

    def warm_up(self, models: Iterable[str]) -> None:
        """Compile the programs of the first page of some models while nobody asks for anything.

        Parameters
        ----------
        models
            Names of the models, the first one first.
        """
        with self._lock:
            self._spare.extend(self.submit("warm-up", {"model": model}, heavy=True) for model in models)
            self.start()
            self._assign()

    def begin(self, job: Job) -> None:
        with self._lock:
            if len(self._waiting) >= _MOST_WAITING:
                job.over = True
                job.on_failed("too many calculations are waiting on this server: try again in a moment")
                return
            self._waiting.append(job)
            self.start()
            self._assign()

    def close(self) -> None:
        """End all workers and remove their cache."""
        with self._lock:
            self._closed = True
            workers, self._workers = self._workers, []
            self._waiting.clear()
            self._spare.clear()
        for worker in (*workers, *(one.successor for one in workers if one.successor is not None)):
            worker.end()
        atexit.unregister(self.close)
        shutil.rmtree(self.cache, ignore_errors=True)

    @property
    def busy(self) -> int:
        """Number of jobs that are running."""
        with self._lock:
            return sum(worker.job is not None for worker in self._workers)

    def _assign(self) -> None:
        self._give_out()
        heavy = sum(worker.job is not None and worker.job.heavy for worker in self._workers)
        for job in self._waiting:
            # A heavy job waits for those that run, too.
            before, heavy = (heavy, heavy + 1) if job.heavy else (0, heavy)
            if job.before != before:
                job.before = before
                job.on_waiting(before)

    def _give_out(self) -> None:
        """Give waiting jobs to idle workers."""
        for job in list(self._waiting):
            idle = [worker for worker in self._workers if worker.job is None]
            if not idle:
                return
            heavy = sum(worker.job is not None and worker.job.heavy for worker in self._workers)
            if job.heavy and heavy >= max(1, self._count - 1):
                continue
            self._waiting.remove(job)
            # Prefer the worker that has already compiled programs for this model.
            model = job.payload.get("model")
            next((worker for worker in idle if model in worker.models), idle[-1 if job.heavy else 0]).give(job)
        idle = [worker for worker in self._workers if worker.job is None]
        # One worker stays free for visitors; each worker gets its share of the models.
        if self._spare and len(idle) > min(1, self._count - 1):
            min(idle, key=lambda worker: len(worker.models)).give(self._spare.popleft())

    def _cancel(self, job: Job) -> None:
        with self._lock:
            job.over = True
            if job in self._waiting:
                self._waiting.remove(job)
                return
            worker = next((worker for worker in self._workers if worker.job is job), None)
        if worker is not None:
            worker.say(("stop", job.number))
            timer = threading.Timer(_GRACE, self._replace, (worker, job))
            timer.daemon = True
            timer.start()

    def _too_long(self, worker: _Worker, job: Job) -> None:
        seconds = SECONDS[job.task]
        if worker.job is job and not job.over:
            job.on_failed(
                f"stopped after {seconds:g} seconds, the most a page may take: use Python, or a smaller setting"
            )
        job.over = True
        self._replace(worker, job)

    def _replace(self, worker: _Worker, job: Job) -> None:
        if worker.job is job:
            worker.end()

    def _heard(self, worker: _Worker, kind: str, number: int, content: Any) -> None:
        if kind == "ready":
            self._is_ready(worker)
            return
        if kind == "memory":
            self._watch_memory(worker, content)
            return
        job = worker.job
        if job is None or job.number != number:
            return
        if kind in ("done", "failed", "cancelled"):
            self._free(worker)
        if job.over:
            return
        if kind == "progress":
            job.on_progress(content)
        elif kind == "partial":
            job.on_partial(content)
        else:
            job.over = True
            if kind == "done":
                job.on_done(content["result"], content["notes"])
            elif kind == "failed":
                job.on_failed(content)

    def _free(self, worker: _Worker) -> None:
        with self._lock:
            if worker.timer is not None:
                worker.timer.cancel()
            worker.job = None
            self._hand_over(worker)
            self._assign()

    def _watch_memory(self, worker: _Worker, held: int) -> None:
        """Start a successor for a worker that has grown too large. The worker goes on until its successor is ready."""
        with self._lock:
            worker.first_memory = worker.first_memory or held
            large = held > max(MOST_MEMORY, _GROWTH * worker.first_memory)
            if large and worker.successor is None and worker in self._workers and not self._closed:
                worker.successor = _Worker(self)

    def _is_ready(self, worker: _Worker) -> None:
        with self._lock:
            worker.ready = True
            for other in list(self._workers):
                if other.successor is worker:
                    self._hand_over(other)
            self._assign()

    def _hand_over(self, worker: _Worker) -> None:
        """Let a successor that is ready take the place of an idle worker. Workers keep no state between jobs."""
        following = worker.successor
        if following is None or not following.ready or worker.job is not None or worker not in self._workers:
            return
        self._workers[self._workers.index(worker)] = following
        worker.successor = None
        worker.end()

    def _lost(self, worker: _Worker) -> None:
        """Replace a worker whose process has ended, unless the pool is closed."""
        job = worker.job
        if worker.timer is not None:
            worker.timer.cancel()
        with self._lock:
            for other in self._workers:
                if other.successor is worker:
                    other.successor = None
            if worker in self._workers:
                self._workers[self._workers.index(worker)] = worker.successor or _Worker(self)
                self._assign()
        if job is not None and not job.over and not self._closed:
            job.over = True
            job.on_failed("the calculation ended without an answer, perhaps for lack of memory: make it smaller")
