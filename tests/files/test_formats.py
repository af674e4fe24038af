"""Datasets to files and back: equal, whole or not at all, nothing executed."""

import importlib.util
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import solvable
from solvable import LinearEstimator, files

ENDINGS = [".nc", ".zarr", ".npz", ".csv"]


@pytest.fixture(scope="module")
def theory() -> xr.Dataset:
    return LinearEstimator(aspect_ratio=0.9).predict([0.0, 1.0, 1e7])


@pytest.fixture(scope="module")
def times() -> xr.Dataset:
    return LinearEstimator(aspect_ratio=0.9).phase_diagram(aspect_ratio=[0.5, 1.5], weight_decay=[0.0, 1e-3])


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_curve_comes_back_equal(theory: xr.Dataset, tmp_path: Path, ending: str) -> None:
    path = solvable.save(theory, tmp_path / f"run{ending}")
    loaded = solvable.load(path)
    xr.testing.assert_identical(loaded, theory)
    assert {type(value) for value in loaded.attrs.values()} <= {str, float, int}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", ENDINGS)
def test_planes_with_flags_and_nan_come_back_equal(times: xr.Dataset, tmp_path: Path, ending: str) -> None:
    loaded = solvable.load(solvable.save(times, tmp_path / f"plane{ending}"))
    xr.testing.assert_identical(loaded, times)
    assert loaded.test_reached.dtype == bool


@pytest.mark.parametrize("ending", ENDINGS)
def test_comparisons_with_text_coordinates_come_back(theory: xr.Dataset, tmp_path: Path, ending: str) -> None:
    simulation = LinearEstimator(aspect_ratio=0.9).simulate([0, 1], dimension=20, seeds=3)
    result = solvable.compare(theory.isel(time=[0, 1]), simulation)
    loaded = solvable.load(solvable.save(result, tmp_path / f"comparison{ending}"))
    xr.testing.assert_equal(loaded, result)
    assert loaded.attrs == result.attrs


@pytest.mark.parametrize("ending", ENDINGS)
def test_endings_may_be_in_upper_case(theory: xr.Dataset, tmp_path: Path, ending: str) -> None:
    path = solvable.save(theory, tmp_path / f"run{ending.upper()}")
    assert path.name == f"run{ending.upper()}"
    xr.testing.assert_identical(solvable.load(path), theory)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_link_is_followed(theory: xr.Dataset, tmp_path: Path, ending: str) -> None:
    target, link = tmp_path / f"target{ending}", tmp_path / f"link{ending}"
    link.symlink_to(target.name)
    for dataset in (theory, theory + 1):
        solvable.save(dataset, link)
        assert link.is_symlink()
        xr.testing.assert_identical(solvable.load(target), dataset)
        xr.testing.assert_identical(solvable.load(link), dataset)


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_may_be_read_by_whom_the_umask_allows(theory: xr.Dataset, tmp_path: Path, ending: str) -> None:
    before = os.umask(0o027)
    try:
        path = solvable.save(theory, tmp_path / f"run{ending}")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == (0o750 if ending == ".zarr" else 0o640)


@pytest.mark.parametrize("ending", [".nc", ".npz", ".csv"])
@pytest.mark.parametrize("content", [b"", b"rubbish", b"# solvable {"])
def test_damaged_files_are_named(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"run{ending}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"run{ending} cannot be read.*damaged"):
        solvable.load(path)


def test_truncated_archive_is_refused(theory: xr.Dataset, tmp_path: Path) -> None:
    for ending in (".nc", ".npz"):
        path = solvable.save(theory, tmp_path / f"run{ending}")
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(ValueError, match="cannot be read"):
            solvable.load(path)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    """An array of objects would be unpickled by a careless reader; the marker file shows that it was not."""
    marker = tmp_path / "executed"

    class Bomb:
        def __reduce__(self) -> tuple:
            return (Path.touch, (marker,))

    np.savez(tmp_path / "bomb.npz", **{"/header": np.array([Bomb()], dtype=object)})
    (tmp_path / "bomb.nc").write_bytes(pickle.dumps(Bomb()))
    for name in ("bomb.npz", "bomb.nc"):
        with pytest.raises(ValueError, match="cannot be read"):
            solvable.load(tmp_path / name)
    assert not marker.exists()


def test_bad_paths(theory: xr.Dataset, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must end in one of .nc, .zarr, .npz, .csv"):
        solvable.save(theory, tmp_path / "run.txt")
    with pytest.raises(ValueError, match="no folder.*make it first"):
        solvable.save(theory, tmp_path / "nowhere" / "run.nc")
    with pytest.raises(ValueError, match="there is no file"):
        solvable.load(tmp_path / "missing.nc")
    (tmp_path / "folder.nc").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        solvable.save(theory, tmp_path / "folder.nc")


def test_missing_packages_are_named_with_the_alternative(
    theory: xr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for ending in (".nc", ".zarr"):
        with pytest.raises(ImportError, match="not installed: use .npz instead"):
            solvable.save(theory, tmp_path / f"run{ending}")
        with pytest.raises(ImportError, match="not installed: use .npz instead"):
            files.check_data_path(tmp_path / f"run{ending}")
    assert files.default_extension() == ".npz"
    xr.testing.assert_identical(solvable.load(solvable.save(theory, tmp_path / "run.npz")), theory)
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]
