"""What a visitor did: earlier settings to go back to, and the curves before the last change."""

import time
from typing import Any

from solvable.settings import Setting

# Changes of one control that follow each other sooner than this belong together: a slider that is being dragged.
_TOGETHER = 1.0
_MOST = 200


class History:
    """Settings before each change, the last one first to be undone. A drag of a slider is one change."""

    def __init__(self) -> None:
        self._before: list[tuple[str, Setting]] = []
        self._key: Any = None
        self._changed_at = -_TOGETHER

    def __bool__(self) -> bool:
        return bool(self._before)

    def note(self, which: str, setting: Setting, key: str) -> bool:
        """Remember a setting before a control changes; return whether this begins a new change.

        Parameters
        ----------
        which
            The setting that changes: "a" or "b".
        setting
            The setting before the change.
        key
            The control that changes.
        """
        now = time.monotonic()
        begins = (which, key) != self._key or now - self._changed_at > _TOGETHER
        self._key, self._changed_at = (which, key), now
        if begins:
            self._before = [*self._before[1 - _MOST :], (which, setting)]
        return begins

    def undo(self) -> tuple[str, Setting] | None:
        """The setting before the last change, which is forgotten; None if there is none."""
        self._key = None
        return self._before.pop() if self._before else None
