"""Every dataset of every model comes back identical from every format, and so does nearly all that xarray can hold."""

import datetime
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import solvable
from solvable import files, models

ENDINGS = files.DATA_EXTENSIONS
STATEMENTS: dict[str, Any] = {
    "None": None,
    "yes": True,
    "list": [1, "two", None, [3.5]],
    "tuple": (1, (2, 3)),
    "dictionary": {"a": {"b": [1, 2]}, "~": 1, 3: "key"},
    "complex": 1 + 2j,
    "array": np.arange(6.0).reshape(2, 3),
    "dates": np.array(["2020-01-01", "NaT"], "datetime64[D]"),
    "numpy scalar": np.float32(0.1),
    "date": datetime.date(2026, 1, 2),
    "moment": datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    "span": datetime.timedelta(days=-1, microseconds=3),
    "bytes": b"\0\xff",
    "big": 10**30,
    "infinite": float("inf"),
    "long": "x" * 100_000,
    "text": 'quotes " and, commas\n# and lines\0 é 漢',
    "empty": "",
    "a/b": 1,
    "_FillValue": 3,
    "coordinates": "nowhere",
    "units": "days since 2000-01-01",
    "scale_factor": 10.0,
    "dtype": "bool",
    "solvable_format": 7,
    "solvable_dataset": "mine",
    5: "a number as name",
}


def rich() -> xr.Dataset:
    """One of everything."""
    values = np.arange(6.0).reshape(2, 3)
    return xr.Dataset(
        {
            "float": (("x", "y"), values, STATEMENTS),
            "half": (("x",), np.array([0.1, np.nan], "float16")),
            "single": (("y",), np.array([0.1, np.inf, -0.0], "float32")),
            "swapped": (("y",), np.array([1.5, 2, 3], ">f8")),
            "long integers": (("x",), np.array([0, 2**64 - 1], "uint64")),
            "byte": (("x",), np.array([-128, 127], "int8")),
            "flag": (("y",), [True, False, True]),
            "complex": (("x", "y"), values + 1j, {"unit": None}),
            "complex_real": (("x",), [1, 2]),
            "date": (("x",), np.array(["2020-01-01", "NaT"], "datetime64[ns]")),
            "delta": (("x",), np.array([1, 2], "timedelta64[s]")),
            "text": (("x",), ['#1, "quoted"\nline', ""]),
            "object": (("y",), np.array(["a", "bcd", "漢"], dtype=object)),
            "bytes": (("x",), np.array([b"a", b"\xff"])),
            "single_text": ((), "nan"),
            "number": ((), 3.5),
            "nothing": (("none",), np.zeros(0)),
            "nothing at all": (("x", "none"), np.zeros((2, 0))),
            "no_text": (("none",), np.zeros(0, "U4")),
            "file": ((), 1),
            "a/b": (("x",), [1, 2]),
            ".hidden": (("y",), [1, 2, 3]),
            "": ((), 1),
            "3x": (("x",), [1, 2]),
            7: (("x",), [5, 6]),
            ("a", 1): ((), 2),
        },
        coords={
            "x": ("x", ["p", "q"], {"long_name": "letters"}),
            "name": ("x", ["first", "second"]),
            "area": (("x", "y"), values**2),
            "version": "1",
        },
        attrs=STATEMENTS,
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_everything_comes_back(tmp_path: Path, ending: str) -> None:
    dataset = rich()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = solvable.load(solvable.save(dataset, tmp_path / f"data{ending}"))
    xr.testing.assert_identical(loaded, dataset)
    for name, variable in dataset.variables.items():
        assert loaded[name].dtype.kind == variable.dtype.kind, name
        assert type(loaded[name].attrs.get("tuple")) is type(variable.attrs.get("tuple"))
    assert all(not variable.encoding for variable in loaded.variables.values())
    assert np.signbit(loaded.single.values[2])


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_dataset_itself_is_not_changed(tmp_path: Path, ending: str) -> None:
    dataset, copy = rich(), rich()
    dataset["float"].encoding = {"chunks": (7,), "dtype": "int8", "zlib": True, "preferred_chunks": {"x": 99}}
    solvable.save(dataset, tmp_path / f"data{ending}")
    xr.testing.assert_identical(dataset, copy)


@pytest.mark.parametrize("ending", ENDINGS)
def test_encodings_of_a_loaded_file_do_not_hinder(tmp_path: Path, ending: str) -> None:
    """Chunks, packing and fill values of another file's variables would fail or round; they are not those of ours."""
    source = xr.Dataset({"v": (("t",), np.linspace(0, 1, 40))}, coords={"t": np.arange(40)})
    packing = {"v": {"dtype": "int16", "scale_factor": 0.001, "_FillValue": -9, "chunksizes": (40,), "zlib": True}}
    source.to_netcdf(tmp_path / "other.nc", engine="h5netcdf", encoding=packing)
    with xr.open_dataset(tmp_path / "other.nc") as opened:
        dataset = opened.isel(t=slice(3)).load()
    dataset["v"] = (dataset.v + 0.00012345).assign_attrs(dataset.v.attrs)
    dataset.v.encoding = opened.v.encoding
    loaded = solvable.load(solvable.save(dataset, tmp_path / f"data{ending}"))
    xr.testing.assert_identical(loaded, dataset)


# For every model its parameters and the options of a small simulation; None where theory alone is quick enough.
EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "linear-estimator": ({"aspect_ratio": 0.9}, None),
    "linear-features": ({"intensities": [1.0, 0.5, 0.2], "target": [1.0, 1.0, 0.5], "samples": 2}, {}),
    "diagonal-network": (
        {
            "variances": [1.0, 0.5],
            "target_scales": [1.0, 2.0],
            "initial_first": [0.1, 0.1],
            "initial_second": [0.1, 0.1],
        },
        {"samples": 10},
    ),
    "linear-network": ({"singular_values": [3.0, 1.0]}, None),
    "scalar-network": ({"initial_first": [0.1, 0.2], "initial_second": [0.3, -0.1], "target": 1.0}, {"samples": 10}),
    "skills": ({"exponent": 0.6, "skills": 5}, {}),
    "committee": ({"samples_per_dimension": float("inf")}, None),
    "feature-scaling": ({"capacity": 1.5, "source": 0.5, "modes": 20}, None),
    "parity-mode": ({"loss": "mean"}, None),
}


@pytest.mark.parametrize("name", list(models.names()))
def test_every_dataset_of_every_model_comes_back(tmp_path: Path, name: str) -> None:
    parameters, options = EXAMPLES[name]
    model = models.get(name)(**parameters)
    found = {"theory": model.predict([0.0, 1.0])}
    if options is not None:
        found["simulation"] = model.simulate([0.0, 1.0], seeds=2, **options)
    for part, dataset in found.items():
        for ending in ENDINGS:
            loaded = solvable.load(solvable.save(dataset, tmp_path / f"{part}{ending}"))
            xr.testing.assert_identical(loaded, dataset)
        # Older versions of pandas do not read all digits by default.
        table = pd.read_csv(tmp_path / f"{part}.csv", comment="#", float_precision="round_trip")
        assert {*dataset.variables, *dataset.dims} == set(table.columns)
        for variable in dataset.data_vars:
            expected = dataset[variable].values.ravel()
            np.testing.assert_array_equal(table[variable].dropna().unique(), pd.Series(expected).dropna().unique())


values = st.one_of(
    arrays.arrays(st.sampled_from(["f8", "f4", "i8", "u1", "?", "c16"]), st.just((2, 3))),
    arrays.arrays("O", (2, 3), elements=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)),
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
statements = st.dictionaries(
    st.text(max_size=6),
    st.recursive(
        plain, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_size=3,
)
names = st.lists(st.text(max_size=5) | st.integers(0, 3), unique=True, min_size=3, max_size=3)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(ENDINGS), names, values, values, statements)
def test_any_dataset_comes_back(
    tmp_path_factory: Any, ending: str, names: list[Any], first: Any, second: Any, about: Any
) -> None:
    one, two, dim = names
    dataset = xr.Dataset({one: ((dim, "u v"), first, about), two: (("u v",), second[0])}, attrs=about)
    folder = tmp_path_factory.mktemp("any")
    xr.testing.assert_identical(solvable.load(solvable.save(dataset, folder / f"data{ending}")), dataset)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (xr.Dataset({"v": ("x", np.array([1, None], dtype=object))}), "variable 'v' holds a Python int"),
        (xr.Dataset({"v": ("x", ["a\0b"])}), "variable 'v' holds the string"),
        (xr.Dataset({"v": ("x", ["\ud800"])}), "variable 'v' holds the string"),
        (xr.Dataset({"v": ("x", np.zeros(2, "f4,i4"))}), "variable 'v' holds"),
        (xr.Dataset({"v": ("x", np.zeros(2, "longdouble"))}), "variable 'v' holds"),
        (xr.Dataset(attrs={"set": {1}}), "the attribute 'set' of the dataset is a set"),
        (xr.Dataset({"v": ((), 1, {"f": {"g": print}})}), "the attribute 'g' of 'f' of variable 'v'"),
        (
            xr.Dataset({"v": (("a", "b"), [[1.0]])}, {"a": [1], "b": [2]}).stack(p=("a", "b")),
            "call dataset.reset_index",
        ),
        (xr.DataArray([1.0]), "only an xarray.Dataset"),
    ],
)
def test_what_cannot_be_saved_is_named_before_a_byte_is_written(
    tmp_path: Path, ending: str, dataset: Any, words: str
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        solvable.save(dataset, tmp_path / f"data{ending}")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_other_programs_read_the_files(tmp_path: Path) -> None:
    dataset = xr.Dataset(
        {"loss": (("time", "seed"), np.arange(6.0).reshape(3, 2), {"units": "1"}), "kind": ("seed", ["a", "b"])},
        coords={"time": [0.0, 1.0, 2.0], "label": ("seed", ["l", "m"])},
        attrs={"model": "m", "seconds": 0.5},
    )
    own = {"solvable_format", "solvable_dataset", "coordinates"}
    for opened in (
        xr.open_dataset(solvable.save(dataset, tmp_path / "data.nc")).load(),
        xr.open_zarr(solvable.save(dataset, tmp_path / "data.zarr"), consolidated=False, chunks=None).load(),
    ):
        opened.attrs = {name: value for name, value in opened.attrs.items() if name not in own}
        xr.testing.assert_identical(opened, dataset)
        opened.close()
    with np.load(solvable.save(dataset, tmp_path / "data.npz"), allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["loss"], dataset.loss)


def test_tables_are_tidy(tmp_path: Path) -> None:
    """One row for each point; variables over other dimensions have rows of their own, single numbers stand in all."""
    dataset = xr.Dataset(
        {
            "loss": ("time", [3.0, 2.0]),
            "weight": (("time", "mode"), np.arange(6.0).reshape(2, 3)),
            "remark": ("mode", ["#1", "b", "c"]),
            "rate": 0.1,
        },
        coords={"time": [0.0, 5.0]},
    )
    table = pd.read_csv(solvable.save(dataset, tmp_path / "data.csv"), comment="#")
    assert set(table.columns) == {"time", "mode", "loss", "weight", "remark", "rate"}
    assert len(table) == 2 + 6 + 3
    assert (table.rate == 0.1).all()
    losses = table.dropna(subset=["loss"])
    assert losses[["time", "loss"]].values.tolist() == [[0, 3], [5, 2]]
    weights = table.dropna(subset=["weight"]).set_index(["time", "mode"]).weight
    assert weights.loc[5.0, 2] == 5
    assert table.remark.dropna().tolist() == ["#1", "b", "c"]


def test_a_plane_is_one_plain_table(tmp_path: Path) -> None:
    plane = xr.Dataset(
        {"a": (("x", "y"), [[1.0, 2.0]]), "b": (("x", "y"), [[True, False]])}, {"x": [7], "y": ["u", "v"]}
    )
    table = pd.read_csv(solvable.save(plane, tmp_path / "plane.csv"), comment="#")
    assert table.to_dict("list") == {"x": [7, 7], "y": ["u", "v"], "a": [1.0, 2.0], "b": [True, False]}
