"""Everything that a user may get wrong, in one place: no traceback, no number that is silently not one, no long wait.

The inputs written by hand are in ``inputs_models.py`` and ``inputs_training.py`` (Python), ``inputs_cli.py`` (the
command line) and ``inputs_diagnostics.py`` (networks of the user); Hypothesis adds its own below. Each is refused in
one line that has the words of its entry, within :data:`LIMIT` seconds of processor time, which do not depend on what
else the machine does.
"""

import contextlib
import importlib.util
import math
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import inputs_cli
import inputs_models
import inputs_training
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import solvable
from solvable import models
from solvable.cli import main
from solvable.cli.flags import field_flags, given_fields
from solvable.files import DATA_EXTENSIONS
from solvable.ranges import parse_range
from solvable.settings import FieldError, Setting
from solvable.timegrid import check_times

LIMIT = 20.0
PYTHON = [*inputs_models.INPUTS, *inputs_training.INPUTS]
# Inputs of the diagnostics need torch, which "make oldest" and "make newest" do not install.
if importlib.util.find_spec("torch"):
    import inputs_diagnostics

    PYTHON += inputs_diagnostics.INPUTS


@contextlib.contextmanager
def within_limit() -> Iterator[None]:
    begin = time.process_time()
    yield
    assert time.process_time() - begin < LIMIT


def refusal(call: Callable[[], Any], kinds: tuple[type[Exception], ...] = (ValueError, ImportError, OSError)) -> str:
    """The one line in which a call is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with within_limit(), pytest.raises(kinds) as caught:
            call()
    return one_line(caught.value)


def one_line(error: BaseException) -> str:
    """The message of an error, which must be a single line."""
    message = str(error).strip()
    assert message
    assert "\n" not in message
    return message


def test_there_are_at_least_three_hundred() -> None:
    names = [case.name for case in PYTHON] + [" ".join(arguments) for arguments, _ in inputs_cli.INPUTS]
    assert len(names) == len(set(names))
    assert len(names) >= 300


@pytest.mark.parametrize("case", PYTHON, ids=lambda case: case.name)
def test_refused_from_python(case: Any) -> None:
    assert case.words in refusal(case.call)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inputs")
    inputs_cli.prepare(path)
    return path


@pytest.mark.parametrize(("arguments", "words"), inputs_cli.INPUTS, ids=lambda part: " ".join(part)[:80])
def test_refused_on_the_command_line(
    arguments: tuple[str, ...], words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    with within_limit(), pytest.raises(SystemExit) as stop:
        main(arguments)
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.out == ""
    errors = [line for line in captured.err.splitlines() if not line.startswith(("note: ", "warning: "))]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert words in errors[0]
    assert sorted(folder.rglob("*")) == before, "nothing is written"


# By Hypothesis --------------------------------------------------------------------------------------------------------

# Texts as people type them by mistake, and texts that nobody types.
_SPECIAL = ("", " ", "nan", "inf", "-inf", "1e400", "-0", "0x10", "1_000", "１", "1,", ",", "1;2", "1:2", "1:2:3log")
_SPECIAL += (
    "1:1e9:1e9",
    "0:1:0",
    "log",
    "None",
    "true",
    "∞",
    "1/2",
    "2**3",
    "__import__('os')",
    "\0",
    "é",
    "a" * 10_000,
)
TEXTS = st.sampled_from(_SPECIAL) | st.text(max_size=20) | st.floats().map(repr)
ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.dates(),
    st.lists(st.floats() | st.integers() | st.text(max_size=2) | st.none() | st.booleans(), max_size=4),
    st.lists(st.lists(st.floats(), max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.floats(), max_size=2),
)


@given(times=ANYTHING)
@example(times=[1.0, math.nan])
@example(times=[datetime(2026, 1, 1)])
@example(times=date(2026, 1, 1))
@example(times=[timedelta(1)])
@example(times=np.ma.array([1.0, 2.0], mask=[False, True]))
@example(times=np.array([1 + 0j]))
@example(times=[True])
@example(times=["1"])
@example(times=np.array(["1"], dtype=object))
@settings(max_examples=200)
def test_times_are_increasing_numbers_or_refused(times: Any) -> None:
    try:
        found = check_times(times)
    except ValueError as error:
        said = one_line(error)
        assert "times" in said
    else:
        assert found.dtype == np.float64
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert (np.diff(found) > 0).all()
        flat = np.ravel(np.asarray(times, dtype=object))
        assert all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in flat)


@given(text=TEXTS)
@settings(max_examples=300)
def test_ranges_are_numbers_or_refused(text: str) -> None:
    with within_limit():
        try:
            found = parse_range(text)
        except ValueError as error:
            one_line(error)
        else:
            assert found.ndim == 1
            assert found.size
            # Single numbers may be anything that Python reads as one: the rules of what they stand for come later.
            assert ":" not in text or np.isfinite(found).all()


@pytest.mark.parametrize("name", models.names())
@given(data=st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
def test_a_model_is_built_from_any_texts_or_refused(name: str, data: st.DataObject) -> None:
    """As from the command line, where numbers are numbers already, and as from the page, where all are texts."""
    model = models.get(name)
    flags = field_flags(model)
    chosen = data.draw(st.sampled_from(flags))
    number = isinstance(model().parameters()[chosen.name], int | float)
    value = data.draw(st.floats() | st.integers() if number else TEXTS)
    values = {flag.name: getattr(flag.default, "value", flag.default) for flag in flags} | {chosen.name: value}
    text = repr(value) if number else value
    with within_limit():
        try:
            built = model(**given_fields(model, values, flags))
        except ValueError as error:
            one_line(error)
        else:
            assert type(built.replace(**built.parameters())) is model
        with contextlib.suppress(FieldError):
            Setting(name).change(chosen.name, text).build()


@pytest.mark.parametrize("ending", DATA_EXTENSIONS)
@given(content=st.binary(max_size=200))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_of_anything_is_refused(ending: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"anything{ending}"
    if ending == ".zarr":
        path.mkdir(exist_ok=True)
        (path / "zarr.json").write_bytes(content)
    else:
        path.write_bytes(content)
    assert path.name in refusal(lambda: solvable.load(path))
