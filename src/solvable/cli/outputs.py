"""Output of results: paths are checked before the work, and files are written before anything is printed."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from solvable.cli import show
from solvable.cli.streams import print_stderr, printing
from solvable.files import check_data_path, save
from solvable.plotting import check_figure_path, save_figure

Values = Mapping[str, Any]


def check_outputs(values: Values) -> None:
    """Raise an error, before anything is computed, if an output file cannot be written."""
    for flag, check in (("out", check_data_path), ("plot", check_figure_path)):
        if values.get(flag) is not None:
            checked(flag, values[flag], check)


def check_space(values: Values, numbers: float) -> None:
    """Raise an error if the disk has no room for a data file with at least this many numbers."""
    if values.get("out"):
        checked("out", values["out"], lambda path: check_data_path(path, int(8 * numbers)))


def checked(flag: str, path: str, check: Callable[[Any], Any]) -> None:
    """Check a path; errors name the flag."""
    if not path.strip():
        raise ValueError(f"--{flag} is empty: give the path of a file")
    try:
        check(path)
    except ValueError as error:
        raise ValueError(f"--{flag}: {error}") from error


def check_folder(flag: str, path: str) -> Path:
    """Create a folder if it does not exist, and raise an error if it is not writable."""
    from solvable.files import check_writable

    if not path.strip():
        raise ValueError(f"--{flag} is empty: give the path of a folder")
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--{flag} {path}: cannot make this folder ({error.strerror}); choose another") from error
    checked(flag, path, lambda _: check_writable(folder / "results"))
    return folder


def print_report(text: str, report: Any, plot: str | None) -> None:
    """Write the figure of a report if it is wanted, then print the report."""
    # In this order, so that a closed pipe does not lose the figure.
    saved = save_figure(report.plot(), plot) if plot else None
    print(text)
    if saved:
        print_stderr(f"figure: {saved}")


def deliver(
    dataset: xr.Dataset,
    values: Values,
    draw: Callable[[], Any] | None,
    display: Callable[[xr.Dataset], None] = show.dataset,
) -> None:
    """Write the data, write the figure, then print. If the figure cannot be drawn, the table is still printed."""
    if values.get("out"):
        print_stderr(f"data:   {save(dataset, values['out'])}")
    failure = None
    if draw is not None and values.get("plot"):
        try:
            print_stderr(f"figure: {save_figure(draw(), values['plot'])}")
        except (ValueError, OSError) as error:
            failure = error
    with printing():
        if values.get("json"):
            print(json.dumps(show.as_json(dataset)))
        else:
            display(dataset)
    if failure is not None:
        raise failure
