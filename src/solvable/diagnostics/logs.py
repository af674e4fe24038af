"""Where trackers write their numbers: a CSV file, TensorBoard event files, or a run of Weights & Biases."""

import csv
import io
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from solvable.files import check_writable, write_atomically
from solvable.files.atomic import explain_os_errors

_RULE = (
    "log must be a path that ends in .csv, a folder for TensorBoard event files, or a run with a method log(numbers, "
    "step=), as Weights & Biases has"
)


class Log(Protocol):
    """Something that takes the numbers of one measurement."""

    def write(self, epoch: float, numbers: Mapping[str, float]) -> None:
        """Write the numbers of one epoch.

        Parameters
        ----------
        epoch
            The epoch.
        numbers
            Numbers by name.
        """


def log_of(log: Any) -> Log | None:
    """The log for the ``log=`` of a tracker; None for None."""
    if log is None:
        return None
    if isinstance(log, str | os.PathLike):
        path = Path(log)
        if path.suffix == ".csv":
            return CsvLog(path)
        if path.suffix:
            raise ValueError(f"{_RULE}, not {str(log)!r}")
        return TensorBoardLog(path)
    if callable(getattr(log, "log", None)):
        return RunLog(log)
    raise ValueError(f"{_RULE}, not {type(log).__name__}")


class CsvLog:
    """A CSV file to which one row is added for each measurement, in one write.

    The header is that of the first row. Where new columns arrive, the file is replaced by one with all of them. A file
    that exists is continued; a row that was cut off by the end of a process is dropped.
    """

    def __init__(self, path: Path) -> None:
        check_writable(path)
        self._path = path
        self._columns = self._repair()

    def write(self, epoch: float, numbers: Mapping[str, float]) -> None:
        row = {"epoch": epoch, **numbers}
        check_folder_is_there(self._path.parent)
        if not self._path.exists():
            self._columns = []  # removed: it starts anew, with a header
        missing = [name for name in row if name not in self._columns]
        if missing:
            rows = self._rows() if self._columns else []
            self._columns = [*self._columns, *missing]
            lines = [self._columns, *([old.get(name, "") for name in self._columns] for old in rows)]
            write_atomically(self._path, "".join(map(_line, lines)))
        data = _line([_text(row[name]) if name in row else "" for name in self._columns]).encode()
        with explain_os_errors(self._path), open(self._path, "ab", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())

    def _rows(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self._path.read_text("utf-8"))))

    def _repair(self) -> list[str]:
        """The columns of the file, which then ends with a whole row; none for a new one."""
        if not self._path.exists() or not self._path.stat().st_size:
            return []
        try:
            text = self._path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self._path} is not the log of a tracker: it is not text; name another file") from error
        columns = next(csv.reader(io.StringIO(text)), [])
        if "epoch" not in columns:
            raise ValueError(f"{self._path} is not the log of a tracker: it has no column epoch; name another file")
        if not text.endswith("\n"):
            write_atomically(self._path, text[: text.rfind("\n") + 1] or _line(columns))
        return columns


def _line(cells: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _text(value: float) -> str:
    """All digits; whole numbers without a point."""
    value = float(value)
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)


class TensorBoardLog:
    """Event files in a folder, one scalar for each number; steps are epochs, rounded, and always increase."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError as error:
            raise ImportError(
                "writing TensorBoard event files needs tensorboard: pip install 'solvable[logs]', or log to a .csv file"
            ) from error
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"cannot log to {folder}: it is a file; name a folder, or a file that ends in .csv")
        self._folder, self._writer = folder, Writer(str(folder))
        self._last = -1

    def write(self, epoch: float, numbers: Mapping[str, float]) -> None:
        # The writer opens its file anew in a thread of its own, whose errors nobody would catch.
        check_folder_is_there(self._folder)
        self._last = next_step(epoch, self._last)
        for name, value in {"epoch": epoch, **numbers}.items():
            self._writer.add_scalar(name, value, self._last)
        self._writer.flush()


class RunLog:
    """A run of Weights & Biases, or anything with ``log(numbers, step=)``."""

    def __init__(self, run: Any) -> None:
        self._run, self._last = run, -1

    def write(self, epoch: float, numbers: Mapping[str, float]) -> None:
        self._last = next_step(epoch, self._last)
        self._run.log({"epoch": epoch, **numbers}, step=self._last)


def check_folder_is_there(folder: Path) -> None:
    """Raise a ValueError if the folder of a log is gone, with a remedy.

    Parameters
    ----------
    folder
        The folder that the log was begun in.
    """
    if not folder.is_dir():
        raise ValueError(
            f"cannot log to {folder}, which was there when the tracker was made: make the folder again; history still "
            "has every measurement"
        )


def next_step(epoch: float, last: int) -> int:
    """The epoch as a whole number above the last one.

    Parameters
    ----------
    epoch
        The epoch, which may be a fraction.
    last
        The step before.
    """
    return max(math.floor(epoch + 0.5), last + 1)
