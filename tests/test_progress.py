"""Progress bars: shown where asked for, one at a time, silent where nobody watches."""

import pytest

from solvable.engines.ensemble import ensemble
from solvable.engines.progress import progress_bar


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


def test_silent_without_a_terminal(terminal: None, capsys: pytest.CaptureFixture) -> None:
    assert ensemble(lambda key: key.size, seeds=3, key=0).shape == (3,)
    assert capsys.readouterr().err == ""
    ensemble(lambda key: key.size, seeds=3, key=0, progress=True, label="counting")
    assert "counting" in capsys.readouterr().err
