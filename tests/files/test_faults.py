"""Full disks, kills and several writers: what was there before stays whole, and nothing is left over."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import solvable
from solvable import files
from solvable.files import atomic, replacement, zarr_folder
from solvable.files.content import pack

ENDINGS = files.DATA_EXTENSIONS


def noise(seed: int, size: int = 40_000) -> xr.Dataset:
    values = np.random.default_rng(seed).normal(size=size)
    return xr.Dataset({"noise": ("draw", values)}, attrs={"seed": seed})


@pytest.fixture
def small_files() -> Iterator[None]:
    """A limit on the size of files: the kernel refuses to write more, as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_write_that_the_system_refuses(tmp_path: Path, ending: str) -> None:
    path = solvable.save(noise(0, 100), tmp_path / f"run{ending}")
    with pytest.raises(OSError, match=r"cannot write .*: the disk is full or the file too large.*unchanged") as caught:
        solvable.save(noise(1), path)
    assert caught.value.errno == errno.EFBIG
    assert "\n" not in str(caught.value)
    xr.testing.assert_identical(solvable.load(path), noise(0, 100))
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """A real one, where the machine lets us mount it; the test above needs no mount."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a file system is not allowed here")
    try:
        for ending in ENDINGS:
            path = solvable.save(noise(0, 100), disk / f"run{ending}")
            with pytest.raises(OSError, match=r"cannot write .*: the disk is full .*unchanged: make room"):
                solvable.save(noise(1, 200_000), path)
            xr.testing.assert_identical(solvable.load(path), noise(0, 100))
            assert list(disk.iterdir()) == [path]
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        (disk / "filler").write_bytes(bytes(1024 * 1024 - 20_000))
        for ending in ENDINGS:
            with pytest.raises(ValueError, match=r"cannot write .* bytes free and about .* needed; make room"):
                files.check_data_path(disk / f"run{ending}")
    finally:
        subprocess.run(["umount", disk], check=True)


def killed(step: int, path: Path, dataset: xr.Dataset) -> bool:
    """Replace a folder in a child process that ends, without any cleaning up, before the given step."""
    prepared = zarr_folder.zarr_files(pack(dataset))
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] != 0
    left = step

    def counted(real):
        def call(*args, **options):
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(1)
            return real(*args, **options)

        return call

    try:
        for name in ("rename", "unlink", "rmdir", "fsync"):
            setattr(os, name, counted(getattr(os, name)))
        replacement._exchange = counted(replacement._exchange)
        replacement.write_folder(path, prepared)
    finally:
        os._exit(0)


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("can_exchange", [True, False])
def test_killed_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_exchange: bool) -> None:
    if not can_exchange:
        monkeypatch.setattr(replacement, "_exchange", lambda *_: False)
    path = tmp_path / "run.zarr"
    old, new = noise(0, 10), noise(1, 10)
    step, seen = 0, set()
    solvable.save(old, path)
    while killed(step, path, new):
        found = solvable.load(path)
        assert found.identical(old) or found.identical(new)
        seen.add(found.attrs["seed"])
        solvable.save(old, path)
        assert list(tmp_path.iterdir()) == [path], "what the killed process left is removed by the next save"
        step += 1
    assert step >= 6
    assert seen == {0, 1}


def test_drafts_at_work_are_not_taken_for_abandoned(tmp_path: Path) -> None:
    with atomic.new_draft(tmp_path / "a.nc", folder=False) as one, atomic.new_draft(tmp_path / "b", folder=True) as two:
        solvable.save(noise(0, 5), tmp_path / "c.zarr")
        assert one.exists()
        assert two.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["c.zarr"]
    (tmp_path / f".solvable-{'0' * 32}").touch()
    (tmp_path / ".solvable-notes").touch()
    solvable.save(noise(0, 5), tmp_path / "c.zarr")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".solvable-notes", "c.zarr"]


def test_a_dataset_that_is_replaced_while_we_look_is_not_taken_for_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A writer without an atomic exchange leaves the path empty for a moment: it was there, and then it is not.
    monkeypatch.setattr(Path, "exists", lambda _: True)
    solvable.files.check_data_path(tmp_path / "run.zarr")
    os.mkfifo(tmp_path / "pipe.zarr")
    with pytest.raises(ValueError, match="device or a pipe"):
        solvable.files.check_data_path(tmp_path / "pipe.zarr")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("can_exchange", [True, False])
def test_several_threads_save_to_one_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, can_exchange: bool
) -> None:
    if not can_exchange:
        if ending != ".zarr":
            pytest.skip("only folders are exchanged")
        monkeypatch.setattr(replacement, "_exchange", lambda *_: False)
    path = solvable.save(noise(0, 20), tmp_path / f"run{ending}")
    expected = {seed: noise(seed, 20) for seed in range(5)}
    trouble: list[BaseException] = []

    def work(action) -> None:
        try:
            for _ in range(15):
                action()
        except BaseException as error:
            trouble.append(error)

    def read() -> None:
        found = solvable.load(path)
        xr.testing.assert_identical(found, expected[found.attrs["seed"]])

    writers = [lambda seed=seed: solvable.save(expected[seed], path) for seed in range(1, 5)]
    threads = [threading.Thread(target=work, args=(action,)) for action in (*writers, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trouble == []
    read()
    assert list(tmp_path.iterdir()) == [path]


def test_several_processes_save_to_one_folder(tmp_path: Path) -> None:
    script = """
        import sys, numpy, xarray
        from solvable.files import load, save
        mine = xarray.Dataset({"a": ("x", numpy.full(9, float(sys.argv[2])))})
        for _ in range(20):
            save(mine, sys.argv[1])
            assert len(set(load(sys.argv[1]).a.values)) == 1
    """
    path = tmp_path / "run.zarr"
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    running = [subprocess.Popen([*command, str(number)], stderr=subprocess.PIPE, text=True) for number in range(2)]
    assert [process.communicate()[1] for process in running] == [""] * 2
    assert set(solvable.load(path).a.values) < {0.0, 1.0}
    assert list(tmp_path.iterdir()) == [path]


def test_a_stranger_that_comes_between_is_spared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the check and the exchange somebody puts a folder of their own at the path."""
    path = solvable.save(noise(0, 5), tmp_path / "run.zarr")
    real = replacement._exchange
    for exchange in (real, lambda *_: False):
        calls = 0

        def come_between(first: Path, second: Path, exchange=exchange) -> bool:
            nonlocal calls
            calls += 1
            if calls == 1:
                shutil.rmtree(path)
                path.mkdir()
                (path / "thesis.tex").write_text("years of work")
            return exchange(first, second)

        monkeypatch.setattr(replacement, "_exchange", come_between)
        with pytest.raises(FileExistsError, match="cannot write .*something else was put there"):
            solvable.save(noise(1, 5), path)
        assert (path / "thesis.tex").read_text() == "years of work"
        assert list(tmp_path.iterdir()) == [path]
        shutil.rmtree(path)
        solvable.save(noise(0, 5), path)


def test_a_clean_up_that_is_interrupted_is_finished() -> None:
    done: list[int] = []

    def clean_up() -> None:
        done.append(len(done))
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic.complete(clean_up)
    assert done == [0, 1]
