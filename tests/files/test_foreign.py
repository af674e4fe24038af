"""Nothing that solvable did not write is ever overwritten, renamed or removed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sweep_cells as cells
import xarray as xr

import solvable
from solvable import files
from solvable.files.saving import check_data_path
from solvable.sweeps import load as load_sweep
from solvable.sweeps import lock
from solvable.sweeps.store import status

DATASET = xr.Dataset({"loss": ("time", [0.5, 0.25])}, {"time": [1.0, 2.0]}, {"model": "m"})


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")
    }


def finished_sweep(path: Path) -> None:
    cells.open_sweep(path, **cells.SMALL).close()
    status(path)


def user_folder(path: Path) -> None:
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def folder_of_folders(path: Path) -> None:
    (path / "photos").mkdir(parents=True)


def foreign_group(path: Path) -> None:
    DATASET.to_zarr(path, consolidated=False)


def sweep_with_a_damaged_root(path: Path) -> None:
    finished_sweep(path)
    os.truncate(path / "zarr.json", 300)


def dataset_with_a_note(path: Path) -> None:
    solvable.save(DATASET, path)
    (path / "loss" / "note.txt").write_text("mine")


def dataset_with_a_damaged_root(path: Path) -> None:
    solvable.save(DATASET, path)
    os.truncate(path / "zarr.json", 300)


def copied_mark(path: Path) -> None:
    """Another group whose root was copied from a dataset of ours, with other files."""
    solvable.save(DATASET, path)
    (path / "more").mkdir()
    (path / "more" / "zarr.json").write_text("{}")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (finished_sweep, "is a sweep store, which is not overwritten"),
        (sweep_with_a_damaged_root, "is a sweep store, which is not overwritten"),
        (user_folder, "not a dataset that this version of solvable wrote"),
        (folder_of_folders, "not a dataset that this version of solvable wrote"),
        (foreign_group, "not a dataset that this version of solvable wrote"),
        (dataset_with_a_note, "contains loss/note.txt, which solvable did not write"),
        (dataset_with_a_damaged_root, "not a dataset that this version of solvable wrote"),
        (copied_mark, "contains more/zarr.json, which solvable did not write"),
        (lambda path: path.write_text("mine"), "a file is there"),
    ],
)
def test_only_a_dataset_of_ours_makes_way(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    path = tmp_path / "run.zarr"
    make(path)
    before = snapshot(tmp_path)
    for attempt in (check_data_path, lambda path: solvable.save(DATASET, path)):
        with pytest.raises(ValueError, match=words) as caught:
            attempt(path)
        assert "choose another name" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("ending", files.DATA_EXTENSIONS)
def test_a_dataset_of_ours_is_replaced_and_nothing_is_left(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"run{ending}"
    for dataset in (DATASET, DATASET + 1, DATASET.isel(time=[0]), DATASET):
        assert check_data_path(path) == path
        solvable.save(dataset, path)
        xr.testing.assert_identical(solvable.load(path), dataset)
        assert list(tmp_path.iterdir()) == [path]


def test_an_empty_folder_and_an_empty_file_make_way(tmp_path: Path) -> None:
    (tmp_path / "run.zarr").mkdir()
    (tmp_path / "run.nc").touch()
    for name in ("run.zarr", "run.nc"):
        solvable.save(DATASET, check_data_path(tmp_path / name))
        xr.testing.assert_identical(solvable.load(tmp_path / name), DATASET)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("data.nc", lambda path: DATASET.to_netcdf(path, engine="h5netcdf")),
        ("data.npz", lambda path: np.savez(path, inputs=np.zeros(3))),
        ("data.csv", lambda path: path.write_text("a,b\n1,2\n")),
        ("data.nc", lambda path: path.write_text("notes")),
        ("data.npz", lambda path: path.write_text("notes")),
    ],
)
def test_a_file_of_the_user_is_not_replaced(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    path = tmp_path / name
    make(path)
    before = snapshot(tmp_path)
    for attempt in (check_data_path, lambda path: solvable.save(DATASET, path)):
        with pytest.raises(ValueError, match="is not overwritten; move it away or choose another name"):
            attempt(path)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("exists", [True, False])
def test_folders_that_are_only_named_like_ours_stay(tmp_path: Path, exists: bool) -> None:
    """Beside run.zarr lie a user's folders with the names that old and new versions use while they replace it."""
    path = tmp_path / "run.zarr"
    for name in (".run.zarr.old", ".run.zarr.5f.old", ".run.zarr.new"):
        user_folder(tmp_path / name)
    before = snapshot(tmp_path)
    if not exists:
        with pytest.raises(ValueError, match="there is no file"):
            solvable.load(path)
        assert snapshot(tmp_path) == before
    for _ in range(1 + exists):
        solvable.save(DATASET, path)
    xr.testing.assert_identical(solvable.load(path), DATASET)
    assert before.items() <= snapshot(tmp_path).items()


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    for ending in files.DATA_EXTENSIONS:
        check_data_path(tmp_path / f"run{ending}")
    assert list(tmp_path.iterdir()) == []


def test_paths_that_cannot_be_written_are_named_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "folder.nc").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for path, words in (
        (tmp_path / "run.txt", "must end in one of .nc, .zarr, .npz, .csv"),
        (tmp_path / "nowhere" / "run.nc", "no folder.*make it first"),
        (tmp_path / "folder.nc", "is a folder; name a file"),
        (tmp_path / "pipe.csv", "a device or a pipe"),
        (tmp_path / f"{'x' * 300}.nc", "cannot write .*too long"),
        (tmp_path / f"{'x' * 240}.zarr", "cannot write .*more than 210 bytes; choose a shorter one"),
        (tmp_path / "a\0b.nc", "cannot write .*null"),
        (tmp_path / "a\0b.zarr", "cannot write .*null"),
        (Path("/proc/run.nc"), "cannot write /proc/run.nc"),
        (Path("/proc/run.zarr"), "cannot write /proc/run.zarr"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            check_data_path(path)
        assert "\n" not in str(caught.value)


def test_a_disk_without_room_is_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="bytes free and about 1000000000000000000 are needed; make room"):
        check_data_path(tmp_path / "run.nc", bytes_needed=10**18)
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage)
    with pytest.raises(ValueError, match="has 1000 bytes free"):
        check_data_path(tmp_path / "run.zarr")


# Sweeps


def test_a_sweep_store_is_not_read_as_a_dataset(tmp_path: Path) -> None:
    """Its cells may be unfinished, which only the store's own reader knows."""
    finished_sweep(tmp_path / "plane.zarr")
    with pytest.raises(ValueError, match="is a sweep store: read it with solvable.sweeps.load"):
        solvable.load(tmp_path / "plane.zarr")


@pytest.mark.parametrize(
    "make", [user_folder, foreign_group, dataset_with_a_note, lambda path: solvable.save(DATASET, path)]
)
def test_a_sweep_starts_on_its_own_folders_only(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "plane.zarr"
    make(path)
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match="plane.zarr is not a sweep store; choose another path"):
        cells.open_sweep(path)
    with pytest.raises(ValueError, match="not a sweep store; it is not overwritten"):
        cells.open_sweep(path, overwrite=True)
    with pytest.raises(ValueError, match="is not a sweep store"):
        load_sweep(path)
    assert snapshot(tmp_path) == before


def test_starting_again_spares_files_that_no_sweep_wrote(tmp_path: Path) -> None:
    path = tmp_path / "plane.zarr"
    finished_sweep(path)
    (path / "status" / "notes.txt").write_text("mine")
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match="contains files that no sweep wrote; it is not overwritten"):
        cells.open_sweep(path, overwrite=True)
    assert snapshot(tmp_path) == before
    (tmp_path / "status.zarr" / "status").mkdir(parents=True)
    (tmp_path / "status.zarr" / "status" / "report.doc").write_text("mine")
    with pytest.raises(ValueError, match="not a sweep store; it is not overwritten"):
        cells.open_sweep(tmp_path / "status.zarr", overwrite=True)


@pytest.mark.parametrize("name", [".plane.zarr.old", ".plane.zarr.new"])
def test_folders_beside_a_store_that_no_sweep_wrote_stay(tmp_path: Path, name: str) -> None:
    path = tmp_path / "plane.zarr"
    finished_sweep(path)
    user_folder(tmp_path / name)
    before = snapshot(tmp_path)
    with pytest.raises(ValueError, match=f"{name} was not written by a sweep.*move it away"):
        cells.open_sweep(path, overwrite=True)
    assert snapshot(tmp_path) == before


def test_a_folder_named_like_a_store_that_stepped_aside_is_not_put_in_its_place(tmp_path: Path) -> None:
    user_folder(tmp_path / ".plane.zarr.old")
    finished_sweep(tmp_path / "plane.zarr")
    assert (tmp_path / ".plane.zarr.old" / "thesis.tex").exists()


def test_a_file_named_like_a_lock_stays(tmp_path: Path) -> None:
    mine = lock.lock_path(tmp_path / "plane.zarr")
    mine.write_text(json.dumps({"dependencies": ["mine"]}))
    with pytest.raises(ValueError, match="plane.zarr.lock is not the lock of a sweep.*move it away"):
        cells.open_sweep(tmp_path / "plane.zarr")
    assert json.loads(mine.read_text()) == {"dependencies": ["mine"]}
