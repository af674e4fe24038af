"""Requests of a page to the workers, of which only the newest matters."""

import threading
from collections.abc import Callable
from typing import Any

from solvable.explorer.workers import Job, Workers

# Work that is done sooner shows no bar: a flicker tells nobody anything.
_BAR_AFTER = 0.4
# How long a slider must rest before slow work is begun.
_REST = 0.35

Later = Callable[[Callable[[], None]], None]


class Latest:
    """Asks workers, and calls back on the page's own thread; answers to older questions are dropped.

    Quick work is finished before the newest question is asked, so that a moving slider is answered all the time. Slow
    work is stopped by a newer question.
    """

    def __init__(
        self,
        workers: Workers,
        later: Later,
        task: str,
        on_share: Callable[[float], None],
        on_waiting: Callable[[int], None] = lambda before: None,
    ) -> None:
        self._workers, self._later, self._task = workers, later, task
        self._on_share, self._on_waiting = on_share, on_waiting
        self._job: Job | None = None
        self._next: tuple[dict[str, Any], bool, dict[str, Callable[..., None]]] | None = None
        self._generation = 0
        self._timer: threading.Timer | None = None

    @property
    def busy(self) -> bool:
        return self._job is not None or self._timer is not None

    def ask(
        self, payload: dict[str, Any], heavy: bool = False, rest: bool = False, **callbacks: Callable[..., None]
    ) -> None:
        """Request work, with optional callbacks ``done(result, notes)``, ``failed(words)``, ``partial(result)``.

        Heavy work begins when no newer request has come for a moment; the first one begins at once unless ``rest``.
        """
        if self._job is not None and not heavy and not self._job.heavy:
            self._next = (payload, heavy, callbacks)
            return
        resting = rest or self._job is not None or self._timer is not None
        self.stop()
        if heavy and resting:
            generation = self._generation
            self._timer = threading.Timer(
                _REST, lambda: self._later(lambda: self._rested(generation, payload, callbacks))
            )
            self._timer.daemon = True
            self._timer.start()
            self._on_share(0.0)
        else:
            self._begin(payload, heavy, callbacks)

    def _rested(self, generation: int, payload: dict[str, Any], callbacks: dict[str, Callable[..., None]]) -> None:
        if generation == self._generation:
            self._timer = None
            self._begin(payload, True, callbacks)

    def _begin(self, payload: dict[str, Any], heavy: bool, callbacks: dict[str, Callable[..., None]]) -> None:
        self._generation += 1
        generation = self._generation
        job = self._job = self._workers.submit(self._task, payload, heavy)

        def here(action: Callable[..., None]) -> Callable[..., None]:
            def call(*arguments: Any) -> None:
                self._later(lambda: action(*arguments) if generation == self._generation else None)

            return call

        def over(then: Callable[..., None] | None, *arguments: Any) -> None:
            self._job = None
            self._on_share(-1.0)
            if then is not None:
                then(*arguments)
            if self._next is not None and self._job is None:
                following, self._next = self._next, None
                self._begin(*following)

        job.on_done = here(lambda result, notes: over(callbacks.get("done"), result, notes))
        job.on_failed = here(lambda words: over(callbacks.get("failed"), words))
        job.on_partial = here(callbacks.get("partial", lambda partial: None))
        job.on_waiting = here(self._on_waiting)
        job.on_progress = here(lambda share: self._on_share(max(share, 0.0)))
        self._workers.begin(job)
        if heavy:
            self._on_share(0.0)
        else:
            timer = threading.Timer(_BAR_AFTER, here(lambda: self._on_share(0.0) if self._job is job else None))
            timer.daemon = True
            timer.start()

    def stop(self) -> None:
        """Cancel the running job and drop the waiting request."""
        running = self._job is not None
        self.close()
        if running:
            self._on_share(-1.0)

    def close(self) -> None:
        """As :meth:`stop`, but report nothing: the page is gone, and its components must not be touched any more."""
        self._generation += 1
        self._next = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._job is not None:
            self._job.cancel()
            self._job = None
