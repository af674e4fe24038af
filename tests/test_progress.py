"""Progress: a bar on a terminal, a line now and then where output is piped, one at a time."""

import contextlib
import io
import re
import threading

import pytest

from solvable import progress
from solvable.numerics.ensemble import ensemble
from solvable.progress import progress_bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rich takes for a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")


def test_a_bar_inside_a_bar_is_silent(terminal: None, capsys: pytest.CaptureFixture) -> None:
    """A terminal shows one live bar; a second one would be an error of the drawing library."""
    with progress_bar("outer", 2, show=True) as outer:
        outer()
        with progress_bar("inner", 2, show=True) as inner:
            inner()
        outer()
    shown = capsys.readouterr().err
    assert "outer" in shown
    assert "inner" not in shown
    with progress_bar("after", 1, show=True) as after:
        after()
    assert "after" in capsys.readouterr().err


class Lines(io.TextIOBase):
    """Stands in for a stderr that is not a terminal; ``wait`` blocks until enough lines have been written."""

    def __init__(self) -> None:
        self.text, self.written = "", threading.Condition()

    def write(self, text: str) -> int:
        with self.written:
            self.text += text
            self.written.notify_all()
        return len(text)

    def wait(self, pattern: str) -> None:
        with self.written:
            assert self.written.wait_for(lambda: re.search(pattern, self.text), timeout=60), self.text


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Lines:
    for name in ("FIRST_LINE", "LINE_INTERVAL"):
        monkeypatch.setattr(progress, name, 0.01)
    return Lines()


def test_piped_work_says_how_far_it_is(pipe: Lines) -> None:
    with contextlib.redirect_stderr(pipe), progress_bar("counting", 4) as advance:
        advance()
        pipe.wait(r"counting: 25 % after \d+ s, about \d+ s left\n")
        # Work inside does not speak for itself, and a long call that reports nothing is still heard of.
        with progress_bar("inner", 1):
            advance(2)
            pipe.wait("counting: 75 %")
    assert "inner" not in pipe.text
    before = pipe.text
    with contextlib.redirect_stderr(pipe), progress_bar("asked to be silent", 1, show=False) as advance:
        advance()
    assert pipe.text == before


def test_an_exception_ends_the_lines(pipe: Lines) -> None:
    def fail() -> None:
        with contextlib.redirect_stderr(pipe), progress_bar("failing", 1):
            pipe.wait("failing: 0 %")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_quick_work_is_silent_without_a_terminal(terminal: None, capsys: pytest.CaptureFixture) -> None:
    assert ensemble(lambda key: key.size, seeds=3, key=0).shape == (3,)
    assert capsys.readouterr().err == ""
    ensemble(lambda key: key.size, seeds=3, key=0, progress=True, label="counting")
    assert "counting" in capsys.readouterr().err
