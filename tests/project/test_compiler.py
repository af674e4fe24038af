"""Compiled programs are kept between processes, within bounds, and only by processes of our own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from solvable import compiler

# Expectations over the drawn data are compiled; little is computed.
COMMAND = ["predict", "skills", "--samples", "50", "--skills", "20", "--times", "1,2"]
# The command line, which says how many programs were not on disk.
COUNT = """
import os, sys
from solvable import compiler
compiler.MOST_BYTES = int(sys.argv.pop(1))
compiled, asked = [], compiler.environment
def environment(quick=False):
    found = asked(quick)
    os.environ.update(found)
    import jax
    listen = lambda event, **_: compiled.append(event) if event.endswith("/cache_misses") else None
    jax.monitoring.register_event_listener(listen)
    return found
compiler.environment = environment
from solvable.cli import main
try:
    main()
finally:
    print(f"compiled: {len(compiled)}", file=sys.stderr)
"""


def run(folder: str | Path, code: str = COUNT, arguments: tuple[str, ...] = (), **more: str) -> tuple[int, str]:
    """The number of programs that were compiled for the command, and what it printed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_", "PYTEST"))}
    done = subprocess.run(
        [sys.executable, "-c", code, *(arguments or (str(compiler.MOST_BYTES),)), *COMMAND],
        env={**kept, "SOLVABLE_COMPILATION_CACHE": str(folder), **more},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    *before, last = done.stderr.strip().splitlines()
    assert not before, "nothing is said about the cache"
    return int(last.removeprefix("compiled: ")), done.stdout


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*-cache") if path.is_file()]


def test_a_second_process_compiles_nothing_and_prints_the_same(tmp_path: Path) -> None:
    first, printed = run(tmp_path)
    assert first > 0
    assert len(files(tmp_path)) == first
    assert run(tmp_path) == (0, printed)


def test_programs_that_were_not_used_for_longest_are_deleted(tmp_path: Path) -> None:
    most = 40_000
    run(tmp_path, arguments=(str(most),))
    assert files(tmp_path)
    assert sum(path.stat().st_size for path in files(tmp_path)) <= most


@pytest.mark.parametrize("where", ["off", "a file"])
def test_without_a_folder_to_write_to_nothing_is_kept(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("SOLVABLE_COMPILATION_CACHE", "off" if where == "off" else str(tmp_path / "a file" / "folder"))
    assert compiler.environment() == {}
    assert [path.name for path in tmp_path.rglob("*")] == ["a file"]


def test_what_the_user_has_set_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "mine")
    monkeypatch.setenv("XLA_FLAGS", "")
    assert compiler.environment(quick=True) == {}
    for name in ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("SOLVABLE_COMPILATION_CACHE", str(tmp_path))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    found = compiler.environment(quick=True)
    assert Path(found["JAX_COMPILATION_CACHE_DIR"]).parent == tmp_path
    assert "optimization_level=0" in found["XLA_FLAGS"]
    # Commands that compute for long have optimised programs.
    assert "XLA_FLAGS" not in compiler.environment()


def test_a_folder_of_somebody_else_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not hasattr(os, "getuid"):
        pytest.skip("this system has no owners of files")
    monkeypatch.setenv("SOLVABLE_COMPILATION_CACHE", str(tmp_path))
    assert compiler.programs_folder() is not None
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    assert compiler.programs_folder() is None


def test_importing_the_package_keeps_nothing(tmp_path: Path) -> None:
    code = (
        "import os, gc; before = (dict(os.environ), gc.get_threshold()); import jax, solvable\n"
        "jax.jit(lambda x: x + 1)(1.0)\n"
        "assert (dict(os.environ), gc.get_threshold()) == before\n"
        "assert jax.config.jax_compilation_cache_dir is None\n"
        "import sys; print('compiled: 0', file=sys.stderr)"
    )
    run(tmp_path, code)
    assert not files(tmp_path)
