"""Tiles on a Dask cluster: parameters go out, small arrays come back, the scheduler replaces lost workers."""

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from solvable.sweeps.execution import Compute, Jobs, Outcome, core_count, describe, evaluate
from solvable.sweeps.grid import Tile
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
                dashboard_address=None,
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
        self._tiles: dict[Any, Tile] = {}

    def outcomes(self, jobs: Jobs) -> Iterator[Outcome]:
        from distributed import as_completed

        finished = as_completed(raise_errors=False)
        name = f"sweep-{uuid.uuid4().hex[:8]}"
        numbered = enumerate(jobs)
        try:
            while True:
                while len(self._tiles) < self.window():
                    number, (tile, columns) = next(numbered, (0, (None, None)))
                    if tile is None or columns is None:
                        break
                    future = self._client.submit(evaluate, self._compute, columns, key=f"{name}-{number}", pure=False)
                    self._tiles[future] = tile
                    finished.add(future)
                if not self._tiles:
                    return
                future = next(finished)
                yield self._outcome(future, self._tiles.pop(future))
        finally:
            with contextlib.suppress(Exception):
                self._client.cancel(list(self._tiles))

    def window(self) -> int:
        """Two tiles a thread: one computed, one waiting at the worker. Workers may join or leave at any time."""
        if self._fixed_window is not None:
            return self._fixed_window
        if time.monotonic() - self._looked > LOOK_FOR_WORKERS_SECONDS:
            self._looked = time.monotonic()
            self._window = max(4, TILES_PER_THREAD * sum(self._client.nthreads().values()))
        return self._window

    def _outcome(self, future: Any, tile: Tile) -> Outcome:
        from distributed import CancelledError

        try:
            # If the worker died with the result still in it, this waits until another has computed it again.
            values, errors = future.result()
            return Outcome(tile, values, errors)
        except CancelledError as error:
            raise RuntimeError(
                f"the Dask scheduler is gone or dropped a tile ({error}). "
                "What was stored is safe: run the sweep again to go on"
            ) from error
        except Exception as error:
            # Not raised by a cell: the function cannot be loaded there, or the tile killed its workers.
            return Outcome(tile, None, [f"the cluster gave up on this tile: {describe(error)}"] * len(tile))
