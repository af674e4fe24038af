"""How the processes of this package are set up: the command line, and the workers of pages and sweeps.

Importing and compiling take longer than computing in most of them. Compiled programs are therefore kept in the user's
cache folder, where the next process finds them, commands that answer at once compile without optimisations, and Python
looks for garbage less often. The first two are environment variables of these processes; importing ``solvable`` sets
none, and variables that are set already are kept.

>>> import os
>>> from unittest import mock
>>> from solvable.compiler import environment
>>> with mock.patch.dict(os.environ, {"SOLVABLE_COMPILATION_CACHE": "off", "XLA_FLAGS": ""}):
...     environment(quick=True)
{}
"""

import functools
import gc
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from pathlib import Path

# Programs that have not been used for longest are deleted when all of them together take more than this many bytes.
MOST_BYTES = 256_000_000
_VARIABLE = "SOLVABLE_COMPILATION_CACHE"


def environment(quick: bool = False) -> dict[str, str]:
    """Environment variables for a process that compiles, without those that are set already.

    Parameters
    ----------
    quick
        Whether to compile without optimisations, for a process that computes little.
    """
    found = {}
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ and (folder := programs_folder()) is not None:
        found = {
            "JAX_COMPILATION_CACHE_DIR": str(folder),
            "JAX_COMPILATION_CACHE_MAX_SIZE": str(MOST_BYTES),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    if quick and not _has_accelerator():
        found["XLA_FLAGS"] = " ".join(["--xla_backend_optimization_level=0", *quick_flags()])
    return {name: value for name, value in found.items() if name not in os.environ}


def collect_garbage_rarely() -> None:
    """Look for reference cycles a hundred times less often than usual, in a process of our own.

    Imports make hundreds of thousands of objects that stay: going through them again and again takes a seventh of the
    time to the first prediction.
    """
    gc.set_threshold(100_000, 50, 50)


def quick_flags() -> list[str]:
    """Flags by which XLA compiles each program with one thread and the older of its two generators of fused loops.

    The newer one takes twice the time and the memory for small programs, which run no faster.
    """
    # The compiler ends the process at a flag that it does not know, and these two may disappear in later versions.
    if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) > (0, 11):
        return []
    return ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]


def programs_folder() -> Path | None:
    """The folder of compiled programs, which is made; None if they are not kept.

    ``$SOLVABLE_COMPILATION_CACHE`` is ``off``, or a folder to use instead of the user's cache. Programs of processors
    with other instructions are in other folders. A folder that cannot be written to, or that belongs to somebody else,
    whose programs we would run, is not used.
    """
    chosen = os.environ.get(_VARIABLE, "")
    # JAX needs this package to keep the size of its cache bounded.
    if chosen.lower() in ("off", "0", "no", "false") or importlib.util.find_spec("filelock") is None:
        return None
    folder = (Path(chosen).expanduser() if chosen else user_cache() / "programs") / _processor()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return None
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):
        return None


def user_cache() -> Path:
    """The folder of this package in the user's cache."""
    if sys.platform == "win32":
        home = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        home = "~/Library/Caches"
    else:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "solvable"


@functools.cache
def _processor() -> str:
    """A name for the instructions that compiled programs may use."""
    about = [platform.machine(), platform.processor()]
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about += [next((line for line in lines if line.startswith(key)), "") for key in ("model name", "flags")]
    except OSError:
        pass
    return f"{platform.machine() or 'cpu'}-{hashlib.sha256(' '.join(about).encode()).hexdigest()[:8]}"


def _has_accelerator() -> bool:
    """Whether JAX may compile for anything but a CPU, where optimisations matter more."""
    if os.environ.get("JAX_PLATFORMS", "") == "cpu":
        return False
    return importlib.util.find_spec("jax_plugins") is not None or sys.platform == "darwin"
