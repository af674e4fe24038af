"""Compiled programs in the memory of a worker: how the compiler is set up, and when programs are freed.

A setting with arrays of new sizes needs new programs, about a megabyte each, and JAX keeps them all. When they have
grown too much they are dropped together; those that are still needed come back from the cache on disk.
"""

import ctypes
import gc
import os
import sys

from solvable.compiler import environment, quick_flags

# Jobs on one model after which its programs are there, and bytes that may come on top of them.
_WARM_JOBS = 40
_GROWTH = 60_000_000


def compiler_environment(cache: str) -> dict[str, str]:
    """Variables for a worker, which compiles many small programs: all are kept on disk, each is made by one thread.

    Parameters
    ----------
    cache
        The folder of compiled programs where the user's cache is not used.
    """
    found = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    found["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    flags = " ".join(quick_flags())
    found |= {"XLA_FLAGS": flags} if flags else {}
    return {name: value for name, value in (found | environment()).items() if name not in os.environ}


class ProgramMemory:
    """Decides after every job whether compiled programs are dropped.

    Parameters
    ----------
    most
        Bytes that the process may hold whatever it is doing.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._model, self._jobs, self._limit = "", 0, most

    def is_too_large(self, model: str, held: int) -> bool:
        """Whether programs should be dropped after a job on a model, when the process holds this many bytes.

        Parameters
        ----------
        model
            Name of the model.
        held
            Memory of the process, in bytes.
        """
        if model != self._model:
            self._model, self._jobs, self._limit = model, 0, self._most
        self._jobs += 1
        if self._jobs == _WARM_JOBS:
            self._limit = min(self._most, held + _GROWTH)
        return held > self._limit

    def drop(self) -> None:
        """Drop all compiled programs, and give their memory back to the system."""
        import jax

        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":
            # What was freed in small pieces stays with the process otherwise.
            ctypes.CDLL(None).malloc_trim(0)
        self._jobs, self._limit = 0, self._most
