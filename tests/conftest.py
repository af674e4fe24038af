"""Set-up for all tests: one thread for each worker, slow tests on request, shapes checked at run time."""

import atexit
import contextlib
import ctypes
import gc
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Torch's threads wait for each other by spinning, which takes time from the other workers.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts background jobs with SIGINT ignored, and children inherit that: tests of Ctrl-C need the usual handler.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Quick tests compile more than they compute. Without the compiler's optimisations, and with the older of its two code
# generators for fused loops, they take half of the time (18.5, 12.4 and 6.9 s of CPU for a prediction and a
# simulation).
# Slow ones are run with both, and so are quick ones after XLA_FLAGS="". Workers inherit what the first process sets.
if "--slow" not in sys.argv and "PYTEST_XDIST_WORKER" not in os.environ:
    flags = ["--xla_backend_optimization_level=0"]
    # The compiler ends the process at a flag that it does not know, and these two may disappear in later versions.
    if tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) <= (0, 11):
        flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
    os.environ.setdefault("XLA_FLAGS", " ".join(flags))

# Where each operation was called is written into every program otherwise.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

# Compiled programs are kept on disk for the length of a run: the two workers and the processes that tests start need
# many of the same ones, and so do workers that have dropped theirs to free memory.
if "PYTEST_XDIST_WORKER" not in os.environ and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    programs = tempfile.mkdtemp(prefix="solvable-programs-")
    atexit.register(shutil.rmtree, programs, ignore_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = programs
    # Compressing and writing a small program takes longer than compiling it once more.
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.3"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import hypothesis
import jax
import pytest
from jaxtyping import install_import_hook

# Imports and compilation make millions of objects that stay. Going through them in search of garbage takes a tenth of
# the time, and more the longer a worker lives.
gc.set_threshold(100_000, 50, 50)


def modules_with_shapes() -> list[str]:
    """Every module of the package that annotates shapes. Decorating the others would only make their import slow."""
    spec = importlib.util.find_spec("solvable")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    files = [path for path in sorted(home.rglob("*.py")) if "from jaxtyping import" in path.read_text("utf-8")]
    return [".".join(("solvable", *path.relative_to(home).with_suffix("").parts)) for path in files]


# Every jaxtyping annotation in the package is checked by beartype when a test calls the function.
install_import_hook(modules_with_shapes(), "shapes.check")
# Tests differentiate and vectorise theory, and call the numerics below it: that takes float64 throughout. That users
# need not switch anything is tested in processes of their own (project/test_importing.py).
jax.config.update("jax_enable_x64", True)

# The same examples in every run; more of them where there is time.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10, derandomize=True)
hypothesis.settings.register_profile("slow", deadline=None, max_examples=60, derandomize=True)
hypothesis.settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes too")
    parser.addoption("--begin-within", type=float, metavar="SECONDS", help="skip tests that have not begun by then")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--slow"):
        hypothesis.settings.load_profile("slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Workers refuse to begin where their tests have other names, as those with addresses in them have.
    if wrong := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"names of tests may not contain addresses, give ids=: {wrong[0]}")
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


_BEGAN = time.monotonic()


def pytest_runtest_setup(item: pytest.Item) -> None:
    limit = item.config.getoption("--begin-within")
    if limit is not None and time.monotonic() - _BEGAN > limit:
        pytest.skip(f"not begun within {limit:g} s")


# Compiled programs stay in memory until they are dropped: a worker that keeps them all grows to more than 5 GB. What is
# dropped may have to be traced and compiled again, so that a worker may grow by an eighth of the machine's memory.
GROWTH = max(1.5e9, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 8) if hasattr(os, "sysconf") else 1.5e9
_after_clearing = 0.0


def _memory() -> float:
    """Bytes of memory that this process occupies; zero, so that nothing is dropped, where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if status.exists() else 0.0


@pytest.fixture(autouse=True, scope="module")
def drop_compiled_programs() -> Iterator[None]:
    global _after_clearing
    yield
    if _memory() > _after_clearing + GROWTH:
        jax.clear_caches()
        gc.collect()
        # What is freed goes back to the system only on request; other C libraries than glibc have no such request.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        _after_clearing = _memory()
