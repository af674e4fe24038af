"""Nothing is lost to a standard output that is closed, full or knows few characters; warnings are one line."""

import contextlib
import inspect
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import solvable
from solvable.cli import main, outputs, show
from solvable.cli.streams import CLOSED_PIPE, UNWRITABLE, StdoutError, printing

PREDICT = ("predict", "linear-estimator", "--aspect-ratio", "0.9", "--times", "1,10")
SIMULATE = (
    "simulate",
    "linear-estimator",
    "--aspect-ratio",
    "0.9",
    "--times",
    "1,2",
    "--dimension",
    "20",
    "--seeds",
    "2",
)

# What may stand on stderr: where files are, and how far a run is if the machine is so busy that it takes long.
QUIET = ("data:", "figure:", "note:", "simulating ")


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    return int(caught.value.code or 0)


# Set while a test runs and not by a fixture: pytest puts its own stdout in place between the two.
@contextlib.contextmanager
def stdout_is(stream: Any) -> Iterator[None]:
    before, sys.stdout = sys.stdout, stream
    try:
        yield
    finally:
        sys.stdout = before
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()


def closed_pipe() -> contextlib.AbstractContextManager[None]:
    """A stdout whose reader has gone, as behind ``| head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    return stdout_is(os.fdopen(writing, "w"))


def assert_files(folder: Path) -> None:
    assert solvable.load(folder / "run.nc").sizes["time"] == 2
    assert (folder / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", [PREDICT, (*PREDICT, "--json"), SIMULATE])
def test_a_closed_pipe_keeps_the_files_and_is_quiet(
    capfd: pytest.CaptureFixture, tmp_path: Path, command: tuple[str, ...]
) -> None:
    with closed_pipe():
        code = exit_code(*command, "--out", str(tmp_path / "run.nc"), "--plot", str(tmp_path / "run.png"))
    assert code == CLOSED_PIPE
    assert_files(tmp_path)
    err = [line for line in capfd.readouterr().err.splitlines() if not line.startswith(QUIET)]
    assert err == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_stdout_keeps_the_files_and_says_so(capfd: pytest.CaptureFixture, tmp_path: Path) -> None:
    with stdout_is(open("/dev/full", "w")):
        code = exit_code(*PREDICT, "--out", str(tmp_path / "run.nc"), "--plot", str(tmp_path / "run.png"))
    assert code == UNWRITABLE
    assert_files(tmp_path)
    assert capfd.readouterr().err.splitlines()[-1].startswith("error: cannot write to standard output: No space left")


@pytest.mark.parametrize("command", [("models",), ("--help",), ("reproduce",), ("predict", "skills", "--help")])
def test_every_command_ends_quietly_behind_a_closed_pipe(
    capfd: pytest.CaptureFixture, command: tuple[str, ...]
) -> None:
    with closed_pipe():
        assert exit_code(*command) == CLOSED_PIPE
    assert capfd.readouterr().err == ""


def test_a_whole_process_leaves_no_trace_of_a_closed_pipe() -> None:
    """Python flushes stdout once more as it ends, and would complain there."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as stream:
        done = subprocess.run([sys.executable, "-m", "solvable", "models"], stdout=stream, stderr=subprocess.PIPE)
    assert done.returncode == CLOSED_PIPE
    assert done.stderr == b""


def test_a_stdout_that_knows_only_ascii(tmp_path: Path) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    with stdout_is(stream):
        assert exit_code(*SIMULATE, "--out", str(tmp_path / "run.nc"), "--plot", str(tmp_path / "run.png")) == 0
        assert_files(tmp_path)
        assert b"+- standard error" in raw.getvalue()
        print("λ = 0.9, Δt, …, é, \udcff, 好", end="", flush=True)
        assert raw.getvalue().endswith(b"lambda = 0.9, Deltat, ..., e, \xff, ?")


def test_no_stdout_at_all(tmp_path: Path) -> None:
    """As in a program that was started with its standard output closed."""
    with stdout_is(None):
        assert exit_code(*PREDICT, "--out", str(tmp_path / "run.nc")) == 0
    assert (tmp_path / "run.nc").exists()


def test_an_error_in_printing_loses_no_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise IndexError("a mistake in the table")

    monkeypatch.setattr(show, "table", broken)
    code = exit_code(*PREDICT, "--out", str(tmp_path / "run.nc"), "--plot", str(tmp_path / "run.png"))
    assert code == 1
    assert_files(tmp_path)
    assert "error: unexpected IndexError: a mistake in the table" in capfd.readouterr().err


def test_a_figure_that_cannot_be_drawn_keeps_data_and_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    def broken(*_: object) -> None:
        raise ValueError("nothing to draw")

    monkeypatch.setattr(outputs, "save_figure", broken)
    assert exit_code(*PREDICT, "--out", str(tmp_path / "run.nc"), "--plot", str(tmp_path / "run.png")) == 2
    captured = capsys.readouterr()
    assert (tmp_path / "run.nc").exists()
    assert "train loss" in captured.out
    assert captured.err.splitlines()[-1] == "error: nothing to draw"


def test_warnings_are_one_line_each_and_said_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    predict = solvable.LinearEstimator.predict

    def warning(self: solvable.LinearEstimator, *arguments: object, **options: object) -> object:
        for _ in range(3):
            warnings.warn("mind\n the gap", UserWarning, stacklevel=1)
        return predict(self, *arguments, **options)

    warning.__signature__ = inspect.signature(predict)  # type: ignore[attr-defined]
    warning.__annotations__ = predict.__annotations__
    monkeypatch.setattr(solvable.LinearEstimator, "predict", warning)
    before = warnings.showwarning
    assert exit_code(*PREDICT) == 0
    assert capsys.readouterr().err == "warning: mind the gap\n"
    assert warnings.showwarning is before


def test_trouble_with_stdout_is_told_from_trouble_with_a_file() -> None:
    with closed_pipe(), pytest.raises(StdoutError), printing():
        print("to nobody")
