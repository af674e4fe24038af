"""Tables: any dataset prints, nothing is left out in silence, and standard errors are what they are called."""

import io
import json
from contextlib import redirect_stdout

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from solvable.cli import show

DIMENSIONS = ("time", "seed", "statistic", "mode", "skill")
KINDS = ("float64", "int64", "bool", "complex128", "U5", "object", "datetime64[ns]", "float32")


def printed(data: xr.Dataset) -> str:
    with redirect_stdout(io.StringIO()) as page:
        show.dataset(data)
    return page.getvalue()


@st.composite
def datasets(draw: st.DrawFn) -> xr.Dataset:
    """Datasets of any dimensions, also empty ones, and any kind of values, with and without coordinates."""
    sizes = {dim: draw(st.integers(0, 4)) for dim in DIMENSIONS}
    if draw(st.booleans()):
        sizes["time"] = 40
    variables = {}
    for index in range(draw(st.integers(0, 5))):
        dims = draw(st.lists(st.sampled_from(DIMENSIONS), unique=True))
        kind = draw(st.sampled_from(KINDS))
        values = np.zeros([sizes[dim] for dim in dims], dtype=kind)
        if kind.startswith("float") and draw(st.booleans()):
            values[...] = draw(st.sampled_from([np.nan, np.inf, -1e30, 0.1]))
        name = draw(st.sampled_from(["loss", "log_loss", "[bold]x", "weight_decay"])) + str(index)
        variables[name] = (dims, values)
    coordinates = {}
    used = {dim for dims, _ in variables.values() for dim in dims}
    if "time" in used and draw(st.booleans()):
        coordinates["time"] = np.arange(sizes["time"], dtype=float)
    names = ["theory", "simulation", "relative_difference", "z_score"]
    if "statistic" in used and draw(st.booleans()):
        coordinates["statistic"] = names[: sizes["statistic"]]
    attrs = draw(st.sampled_from([{}, {"model": "skills", "method": "theory"}, {"verdict": "agrees within 1 %"}]))
    return xr.Dataset(variables, coordinates, attrs)


@settings(max_examples=150, deadline=None)
@given(datasets())
def test_any_dataset_prints_and_names_all_its_variables(data: xr.Dataset) -> None:
    page = printed(data)
    for name in map(str, data.data_vars):
        assert name in page or name.replace("_", " ") in page
    json.dumps(show.as_json(data), allow_nan=False)
    if "verdict" in data.attrs:
        assert page.splitlines()[-1] == "agrees within 1 %"


def test_what_has_other_dimensions_is_summed_up_below_the_table() -> None:
    """As ``predict linear-features`` gives it, which could not be printed."""
    data = xr.Dataset(
        {
            "test_loss": ("time", [2.0, 1.0]),
            "coefficient": (("time", "mode"), [[0.1, 0.2, 0.3], [0.4, 0.5, 0.75]]),
            "limit_test_loss": ((), 0.5),
            "learnability": ("mode", [1.0, np.nan, 0.25]),
            "reached": ("mode", [True, False, True]),
        },
        {"time": [1.0, 10.0]},
        {"model": "linear-features", "method": "theory"},
    )
    lines = [line.split() for line in printed(data).splitlines()]
    assert ["1", "2"] in lines
    assert ["limit_test_loss", "0.5"] in lines
    assert ["coefficient", "2", "time", "x", "3", "mode", "0.1", "0.75"] in lines
    assert ["learnability", "3", "mode", "0.25", "1"] in lines
    assert ["reached", "3", "mode", "2", "of", "3", "true"] in lines
    assert "not in the table" in printed(data)


def test_standard_errors_are_those_of_the_mean() -> None:
    """Four seeds of standard deviation sqrt(20/3): the error of their mean is half of that, 1.291."""
    runs = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, np.nan], [7.0, 6.5]])
    page = printed(xr.Dataset({"loss": (("seed", "time"), runs)}, {"time": [1.0, 2.0]}, {"model": "m"}))
    assert "m, mean of 4 seeds" in page
    assert "± standard error" in page
    lines = [line.split() for line in page.splitlines()]
    assert ["1", "4", "1.291"] in lines
    # A run without a number is left out: 5, 5 and 6.5 have a mean of 5.5 and an error of sqrt(0.75 / 3).
    assert ["2", "5.5", "0.5"] in lines


def test_one_seed_has_no_standard_error() -> None:
    page = printed(xr.Dataset({"loss": (("seed", "time"), [[1.0, 2.0]])}, {"time": [1.0, 2.0]}))
    assert "±" not in page
    assert "one seed: no standard errors" in page


def test_a_thinned_table_says_so() -> None:
    def curve(count: int) -> str:
        return printed(xr.Dataset({"loss": ("time", np.ones(count))}, {"time": np.arange(count)}))

    assert "16 of 60 times shown; --out or --json keeps all" in curve(60)
    assert len(curve(60).splitlines()) == 18
    assert "shown" not in curve(16)


def test_a_comparison_shows_its_relative_difference_and_ends_in_the_verdict() -> None:
    names = ["theory", "simulation", "difference", "standard_error", "z_score", "relative_difference"]
    values = np.array([[1.0], [1.1], [0.1], [0.05], [2.0], [0.1]])
    data = xr.Dataset(
        {"test_loss": (("statistic", "time"), values)},
        {"statistic": names, "time": [1.0]},
        {"verdict": "agrees within 10 %, 2.0 standard errors"},
    )
    lines = printed(data).splitlines()
    assert lines[0].split("  ") == ["time", "test loss", "test loss sim", "test loss rel. diff.", "test loss z"]
    assert lines[1].split() == ["1", "1", "1.1", "0.1", "2"]
    assert lines[-1] == "agrees within 10 %, 2.0 standard errors"
    assert "rel. diff." not in printed(data.sel(statistic=names[:5]))


def test_a_table_is_as_wide_as_its_contents(capsys: pytest.CaptureFixture) -> None:
    long = "x" * 500
    show.table(f"title {long}", ["name", long], [["[red]a", long], ["b", 1.0]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"title {long}"
    assert long in lines[1]
    assert lines[2].split() == ["[red]a", long]


def test_text_of_numbers() -> None:
    assert [show.text(value) for value in (True, np.False_, 1.23456789, np.nan, -np.inf, 7, "a")] == [
        "yes", "no", "1.2346", "-", "-inf", "7", "a",
    ]  # fmt: skip
