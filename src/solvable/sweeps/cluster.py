"""Tiles on a Dask cluster: parameters are sent, small arrays come back, and the scheduler replaces lost workers."""

import contextlib
import itertools
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from solvable.sweeps.execution import Compute, Job, Jobs, Outcome, core_count, evaluate
from solvable.sweeps.layout import need
from solvable.sweeps.schema import error_text

TILES_PER_THREAD = 2
COUNT_WORKERS_SECONDS = 5.0


@contextlib.contextmanager
def on_cluster(compute: Compute, workers: int | None, client: Any) -> Iterator[Callable[[Jobs], Iterator[Outcome]]]:
    """Use a client, connect to the address of a scheduler (``tcp://...``), or start a cluster on this machine."""
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
            client = stack.enter_context(cluster)
        if not hasattr(client, "submit"):
            client = stack.enter_context(distributed.Client(client))
        yield DaskTasks(client, compute).outcomes


class DaskTasks:
    """Keeps a bounded number of tiles on a cluster, whose size may change."""

    def __init__(self, client: Any, compute: Compute) -> None:
        self._client = client
        self._compute = compute
        self._limit = 0
        self._counted = -COUNT_WORKERS_SECONDS
        self._name = f"sweep-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count()
        self._jobs: dict[Any, Job] = {}
        self._fetched: queue.SimpleQueue[tuple[Any, Any]] = queue.SimpleQueue()

    def outcomes(self, jobs: Jobs) -> Iterator[Outcome]:
        try:
            suspects: list[Job] = []
            yield from self._together(jobs, suspects)
            # Dask blames every tile that a dead worker held. Run one by one, only the faulty tile kills a worker again.
            for job in suspects:
                self._submit(job)
                yield _outcome(*self._next())
        finally:
            for future in self._jobs:
                future.release()

    def _together(self, jobs: Jobs, suspects: list[Job]) -> Iterator[Outcome]:
        while True:
            for job in itertools.islice(jobs, max(0, self._count_limit() - len(self._jobs))):
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
        # In a thread: if a worker died with its result, fetching waits until another worker has computed it again.
        future.add_done_callback(lambda done: threading.Thread(target=self._fetch, args=(done,), daemon=True).start())

    def _fetch(self, future: Any) -> None:
        try:
            self._fetched.put((future, future.result()))
        except BaseException as error:
            self._fetched.put((future, error))

    def _next(self) -> tuple[Job, Any]:
        future, result = self._fetched.get()
        return self._jobs.pop(future), result

    def _count_limit(self) -> int:
        """Two tiles per thread: one that is computed and one that waits at the worker. Workers may join or leave."""
        if time.monotonic() - self._counted > COUNT_WORKERS_SECONDS:
            self._counted = time.monotonic()
            self._limit = max(4, TILES_PER_THREAD * sum(self._client.nthreads().values()))
        return self._limit


def _outcome(job: Job, result: Any) -> Outcome:
    tile, _ = job
    if isinstance(result, need("distributed").CancelledError):
        raise RuntimeError(
            f"the Dask scheduler is gone or dropped a tile ({error_text(result)}). "
            "The stored cells are safe: run the sweep again to continue"
        ) from result
    if isinstance(result, BaseException):
        # Not raised by a cell: the function cannot be loaded there, or the tile killed its workers.
        return Outcome(tile, None, [f"the cluster gave up on this tile: {error_text(result)}"] * len(tile))
    return Outcome(tile, *result)
