"""Public tables and curves that come with the package, for tests, tutorials and comparison with your own runs."""

from importlib.resources import files

import numpy as np
import pandas as pd
import xarray as xr

from solvable.checks import check_choice
from solvable.inference.runs import Run

_TABLES = ("chinchilla", "overtraining")
_CURVES = ("schedules-25M", "schedules-100M")
_WARM_UP = 2160


def example_table(name: str = "chinchilla") -> xr.Dataset:
    """Load a public table of training runs, one entry per run.

    Parameters
    ----------
    name
        ``"chinchilla"``: 245 runs read off a figure of Hoffmann et al. (2022) by Besiroglu et al. (2024).
        ``"overtraining"``: 69 language models of Gadre et al. (2024), trained far beyond the compute-optimal number of
        tokens.

    >>> from solvable.inference import example_table
    >>> dict(example_table().sizes)
    {'run': 245}
    """
    check_choice("name", name, _TABLES)
    frame = _frame(name)
    numbers = {column: ("run", frame[column].to_numpy()) for column in frame.columns if column != "run"}
    coordinate = {"run": frame["run"].to_numpy()} if "run" in frame else {"run": np.arange(len(frame))}
    return xr.Dataset(numbers, coordinate, {"table": name, "sources": "solvable/inference/tables/SOURCES.md"})


def example_curves(name: str = "schedules-25M") -> list[Run]:
    """Load public training curves of language models under nine learning-rate schedules.

    Parameters
    ----------
    name
        ``"schedules-25M"`` or ``"schedules-100M"``: models of 25 or 100 million parameters (Luo et al. 2025), with a
        warm-up of 2160 steps before the first record.

    >>> from solvable.inference import example_curves
    >>> [run.name for run in example_curves()][:2]
    ['constant_24000', 'constant_72000']
    """
    check_choice("name", name, _CURVES)
    frame = _frame(name.replace("-", "_"))
    size = 1e6 * float(name.removeprefix("schedules-").removesuffix("M"))
    from solvable.inference.readers import read_curves

    return read_curves(frame, warm_up=_WARM_UP, sizes={"parameters": size}, announce=False)


def _frame(name: str) -> pd.DataFrame:
    with (files("solvable.inference") / "tables" / f"{name}.csv").open() as file:
        return pd.read_csv(file)
