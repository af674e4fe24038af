"""A file that is not what was saved is refused in one line, or loads as what was saved; never as something else."""

import io
import json
import random
import shutil
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import solvable
from solvable import files
from solvable.files import checksums
from solvable.files.binary import npz_bytes
from solvable.files.content import pack

ENDINGS = files.DATA_EXTENSIONS


def example() -> xr.Dataset:
    values = np.linspace(0.5, 1, 6).reshape(2, 3)
    return xr.Dataset(
        {"loss": (("time", "mode"), values, {"long_name": "loss"}), "flag": ("mode", [True, False, True])},
        coords={"time": [1.0, 2.0], "kind": ("mode", ["a", "b", "c"])},
        attrs={"model": "m", "odd": {"nested": None}, "seconds": 0.25},
    )


def loads_right_or_is_refused(path: Path, dataset: xr.Dataset) -> bool:
    """True if it was refused. Warnings are errors: a file of ours must never pass for one without checksum."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", files.UncheckedFileWarning)
        try:
            loaded = solvable.load(path)
        except ValueError as error:
            words = str(error)
            assert_one_line(words, path)
            return True
    xr.testing.assert_identical(loaded, dataset)
    assert loaded.attrs == dataset.attrs
    return False


def assert_one_line(words: str, path: Path) -> None:
    assert "\n" not in words
    assert str(path) in words


def parts(path: Path) -> list[Path]:
    return sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_flipped_bit_anywhere_is_noticed(tmp_path: Path, ending: str) -> None:
    dataset = example()
    path = solvable.save(dataset, tmp_path / f"run{ending}")
    places = [(part, position) for part in parts(path) for position in range(part.stat().st_size)]
    chance = random.Random(0)
    # The marks of the formats are at the ends of the files, so that all positions there are tried.
    chosen = {*chance.sample(places, min(250, len(places))), *places[:40], *places[-120:]}
    refused = 0
    for part, position in sorted(chosen):
        whole = part.read_bytes()
        damaged = bytearray(whole)
        damaged[position] ^= 1 << chance.randrange(8)
        part.write_bytes(damaged)
        refused += loads_right_or_is_refused(path, dataset)
        part.write_bytes(whole)
    assert refused > len(chosen) / 2
    assert not loads_right_or_is_refused(path, dataset)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_was_cut_short_is_refused(tmp_path: Path, ending: str) -> None:
    dataset = example()
    path = solvable.save(dataset, tmp_path / f"run{ending}")
    for part in parts(path):
        whole = part.read_bytes()
        lengths = {0, 1, len(whole) // 2, *range(max(0, len(whole) - 120), len(whole), 7), len(whole) - 1}
        # The end of the HDF5 part: what follows is the header and the checksum.
        lengths |= {whole.find(b"\nsolvable header "), whole.rfind(b"solvable sha256 ")} - {-1}
        for length in lengths:
            part.write_bytes(whole[:length])
            assert loads_right_or_is_refused(path, dataset), (part.name, length)
        part.write_bytes(whole + b"x")
        loads_right_or_is_refused(path, dataset)
        part.write_bytes(whole)


def test_a_deleted_file_of_a_folder_is_missed(tmp_path: Path) -> None:
    """A Zarr array without its chunk reads as NaN."""
    dataset = example()
    path = solvable.save(dataset, tmp_path / "run.zarr")
    assert len(parts(path)) >= 9
    for part in parts(path):
        whole = part.read_bytes()
        part.unlink()
        assert loads_right_or_is_refused(path, dataset), part
        part.write_bytes(whole)
    (path / "loss/c/0/0").unlink()
    with pytest.raises(ValueError, match=r"loss/c/0/0 is missing.*restore it from a copy"):
        solvable.load(path)


def test_files_that_changed_places_are_noticed(tmp_path: Path) -> None:
    """Each is whole, but they are not of one dataset."""
    one = solvable.save(example(), tmp_path / "one.zarr")
    other = solvable.save(example() + 1, tmp_path / "other.zarr")
    shutil.copy(other / "loss/c/0/0", one / "loss/c/0/0")
    with pytest.raises(ValueError, match="loss/c/0/0 does not match its checksum"):
        solvable.load(one)


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_what_another_program_rewrote_is_not_taken_for_ours(tmp_path: Path, ending: str) -> None:
    path = solvable.save(example(), tmp_path / f"run{ending}")
    read: Any = xr.open_dataset if ending == ".nc" else xr.open_zarr
    options = {"engine": "h5netcdf"} if ending == ".nc" else {"consolidated": False}
    with read(path, **options) as opened:
        changed = opened.load()
    changed["loss"] = changed.loss * 2
    rewritten = tmp_path / f"rewritten{ending}"
    if ending == ".nc":
        changed.to_netcdf(rewritten, engine="h5netcdf")
    else:
        changed.to_zarr(rewritten, consolidated=False)
    with pytest.raises(ValueError, match=f"checksum.*read what is left with xarray.{read.__name__}"):
        solvable.load(rewritten)
    xr.testing.assert_identical(solvable.load(solvable.save(changed, tmp_path / f"again{ending}")), changed)


def write_old(dataset: xr.Dataset, path: Path) -> None:
    """As versions before checksums wrote it."""
    header = {
        "attrs": dataset.attrs,
        "coords": list(dataset.coords),
        "variables": {
            name: {"dims": list(variable.dims), "attrs": variable.attrs, "dtype": variable.dtype.str}
            for name, variable in dataset.variables.items()
        },
    }
    if path.suffix == ".nc":
        dataset.to_netcdf(path, engine="h5netcdf")
    elif path.suffix == ".zarr":
        dataset.to_zarr(path, mode="w", consolidated=False)
    elif path.suffix == ".npz":
        arrays = {name: variable.values for name, variable in dataset.variables.items()}
        np.savez_compressed(path, allow_pickle=False, **arrays, **{"/header": np.array(json.dumps(header))})
    else:
        table = dataset.to_dataframe().reset_index()
        path.write_text("# solvable " + json.dumps(header) + "\n" + table.to_csv(index=False))


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_of_older_versions_load_with_a_warning(tmp_path: Path, ending: str) -> None:
    dataset = xr.Dataset({"loss": ("time", [0.5, 0.25])}, {"time": [1.0, 2.0]}, {"model": "m", "seconds": 0.5})
    path = tmp_path / f"old{ending}"
    write_old(dataset, path)
    with pytest.warns(files.UncheckedFileWarning, match="has no checksum.*save it again") as caught:
        loaded = solvable.load(path)
    assert caught[0].filename == __file__
    xr.testing.assert_identical(loaded, dataset)
    assert [type(value) for value in loaded.attrs.values()] == [str, float]


DEEP: Any = 0
for _ in range(100):
    DEEP = [DEEP]
HEADERS = {
    "no object": [],
    "nothing": {},
    "no variables": {"format": 2, "attrs": {}},
    "text for variables": {"format": 2, "attrs": {}, "variables": "abc"},
    "unknown tag": {"format": 2, "attrs": {"~": "call", "items": "print"}, "variables": []},
    "tag is no text": {"format": 2, "attrs": {"~": {}}, "variables": []},
    "huge array": {
        "format": 2,
        "attrs": {"a": {"~": "array", "dtype": "<f8", "shape": [1 << 40], "items": [], "scalar": False}},
        "variables": [],
    },
    "missing column": {
        "format": 2,
        "attrs": {},
        "variables": [
            {"name": "x", "dims": [], "dtype": "<f8", "coordinate": False, "columns": ["absent"], "attrs": {}}
        ],
    },
    "unhashable name": {
        "format": 2,
        "attrs": {},
        "variables": [
            {"name": ["x"], "dims": ["t"], "dtype": "<f8", "coordinate": True, "columns": ["loss"], "attrs": DEEP}
        ],
    },
    "odd type": {
        "format": 2,
        "attrs": {},
        "variables": [
            {"name": "x", "dims": [], "dtype": "print()", "coordinate": False, "columns": ["loss"], "attrs": {}}
        ],
    },
    "old, odd": {"attrs": 3, "coords": 5, "variables": {"loss": None}},
}


def npz_with_header(text: str) -> bytes:
    """An archive with a valid checksum, as only somebody with intent would make it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in {"/header": np.array(text), "loss": np.zeros((2, 3))}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    return checksums.append(buffer.getvalue()[:-2] + struct.pack("<H", 80))


@pytest.mark.filterwarnings("ignore::solvable.files.UncheckedFileWarning")
@pytest.mark.parametrize("header", [*HEADERS.values(), "[" * 100_000, "1" * 10_000, "not JSON"])
def test_malicious_headers_are_refused_in_one_line(tmp_path: Path, header: Any) -> None:
    text = header if isinstance(header, str) else json.dumps(header)
    (tmp_path / "run.npz").write_bytes(npz_with_header(text))
    (tmp_path / "run.csv").write_text("# solvable " + text + "\ntime\n1\n")
    for name in ("run.npz", "run.csv"):
        with pytest.raises(ValueError, match="cannot be read") as caught:
            solvable.load(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 700


def test_a_root_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    path = solvable.save(example(), tmp_path / "run.zarr")
    root = json.loads((path / "zarr.json").read_text())
    about = json.loads(root["attributes"].pop("solvable_dataset"))
    about.pop("sha256")
    about["files"]["../secret"] = "0" * 64
    (path / "zarr.json").write_bytes(files.zarr_folder._root(root, about))
    with pytest.raises(ValueError, match="outside the folder"):
        solvable.load(path)


def test_the_same_dataset_gives_the_same_bytes() -> None:
    assert npz_bytes(pack(example())) == npz_bytes(pack(example()))
