"""Tiles on a Dask cluster: parameters go out, small arrays come back, the scheduler replaces lost workers."""

import contextlib
import itertools
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from solvable.sweeps.execution import Compute, Job, Jobs, Outcome, core_count, describe, evaluate
from solvable.sweeps.layout import need

TILES_PER_THREAD = 2
LOOK_FOR_WORKERS_SECONDS = 5.0


@contextlib.contextmanager
def on_cluster(
    compute: Compute, workers: int | None, window: int | None, client: Any
) -> Iterator[Callable[[Jobs], Iterator[Outcome]]]:
    """Use a client, connect to a scheduler's address (``tcp://...``), or start a cluster on this machine."""
    distributed = need("distributed")
    with contextlib.ExitStack() as stack:
        if client is None:
            cluster = distributed.LocalCluster(
                n_workers=workers or core_count(),
                threads_per_worker=1,
                processes=True,
                dashboard_address=":0",
                silence_logs=logging.ERROR,
            )
            stack.enter_context(cluster)
            client = stack.enter_context(distributed.Client(cluster))
        elif isinstance(client, str):
            client = stack.enter_context(distributed.Client(client))
        yield Crew(client, compute, window).outcomes


class Crew:
    """Keeps a bounded number of tiles on a cluster whose size may change."""

    def __init__(self, client: Any, compute: Compute, window: int | None) -> None:
        self._client = client
        self._compute = compute
        self._fixed_window = window
        self._window = 0
        self._looked = -LOOK_FOR_WORKERS_SECONDS
        self._name = f"sweep-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count()
        self._jobs: dict[Any, Job] = {}
        self._fetched: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def outcomes(self, jobs: Jobs) -> Iterator[Outcome]:
        try:
            suspects: list[Job] = []
            yield from self._together(jobs, suspects)
            # Dask blames every tile that a dead worker held. Alone on the cluster, only the guilty one dies again.
            for job in suspects:
                self._submit(job)
                yield _outcome(*self._next())
        finally:
            for future in self._jobs:
                future.release()

    def _together(self, jobs: Jobs, suspects: list[Job]) -> Iterator[Outcome]:
        while True:
            for job in itertools.islice(jobs, max(0, self.window() - len(self._jobs))):
                self._submit(job)
            if not self._jobs:
                return
            job, result = self._next()
            if isinstance(result, need("distributed").scheduler.KilledWorker):
                suspects.append(job)
            else:
                yield _outcome(job, result)

    def _submit(self, job: Job) -> None:
        key = f"{self._name}-{next(self._numbers)}"
        future = self._client.submit(evaluate, self._compute, job[1], key=key, pure=False)
        self._jobs[future] = job
        future.add_done_callback(self._fetch_aside)

    def _next(self) -> tuple[Job, Any]:
        future, result = self._fetched.get()
        return self._jobs.pop(future), result

    def _fetch_aside(self, future: Any) -> None:
        """Fetch in a thread: if a worker died with its result this waits until another has computed it again."""
        threading.Thread(target=self._fetch, args=(future,), daemon=True).start()

    def _fetch(self, future: Any) -> None:
        try:
            self._fetched.put((future, future.result()))
        except BaseException as error:
            self._fetched.put((future, error))

    def window(self) -> int:
        """Two tiles a thread: one computed, one waiting at the worker. Workers may join or leave at any time."""
        if self._fixed_window is not None:
            return self._fixed_window
        if time.monotonic() - self._looked > LOOK_FOR_WORKERS_SECONDS:
            self._looked = time.monotonic()
            self._window = max(4, TILES_PER_THREAD * sum(self._client.nthreads().values()))
        return self._window


def _outcome(job: Job, result: Any) -> Outcome:
    tile, _ = job
    if isinstance(result, need("distributed").CancelledError):
        raise RuntimeError(
            f"the Dask scheduler is gone or dropped a tile ({describe(result).splitlines()[0]}). "
            "What was stored is safe: run the sweep again to go on"
        ) from result
    if isinstance(result, BaseException):
        # Not raised by a cell: the function cannot be loaded there, or the tile killed its workers.
        return Outcome(tile, None, [f"the cluster gave up on this tile: {describe(result)}"] * len(tile))
    values, errors = result
    return Outcome(tile, values, errors)
