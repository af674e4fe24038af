"""The sweep store with damaged files, second coordinators and disks that are full or closed."""

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from paths import SOURCE, TESTS

pytest.importorskip("zarr")

import sweep_cells as cells
from sweep_cells import fill

from solvable.sweeps import lock, recovery
from solvable.sweeps.execution import run
from solvable.sweeps.schema import DamagedStoreError, LockedStoreError
from solvable.sweeps.store import Axis, Output, Store, open_store, status


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plane.zarr"


@pytest.fixture
def quick_path(tmp_path):
    with cells.quick_folder(tmp_path) as folder:
        yield folder / "folder" / "s.zarr"


# Damage


def chunks(path, name):
    return sorted(file for file in (path / name / "c").rglob("*") if file.is_file())


def flip(file, where=0.5):
    data = bytearray(file.read_bytes())
    data[int(where * (len(data) - 1))] ^= 0x10
    file.write_bytes(data)


DAMAGES = {
    "flipped byte in a result": lambda path: flip(chunks(path, "product")[1]),
    "short result": lambda path: chunks(path, "curve")[0].write_bytes(b"\0\0\0\0"),
    "missing result": lambda path: chunks(path, "count")[2].unlink(),
    "flipped byte in the status": lambda path: flip(chunks(path, "status")[0]),
    "empty status": lambda path: chunks(path, "status")[0].write_bytes(b""),
    "missing array": lambda path: shutil.rmtree(path / "product"),
    "array metadata cut short": lambda path: os.truncate(path / "curve" / "zarr.json", 40),
    "array metadata altered": lambda path: (path / "curve" / "zarr.json").write_text(
        (path / "curve" / "zarr.json").read_text().replace("float64", "float32")
    ),
    "missing error text": lambda path: chunks(path, "error")[0].unlink(),
}


def refill_and_read(path):
    fill(path)
    open_store(path)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_named_and_mended(path, damage):
    fill(path)
    DAMAGES[damage](path)
    with pytest.raises(DamagedStoreError, match=r"plane\.zarr.*verify=True"):
        refill_and_read(path)
    with cells.open_sweep(path, verify=True) as store:
        assert store.repairs
        run(store, cells.compute, progress=False)
    cells.check_dataset(open_store(path), complete=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: os.truncate(path / "zarr.json", 200),
        lambda path: (path / "zarr.json").write_text("{}"),
        lambda path: (path / "zarr.json").unlink(),
        lambda path: (path / "zarr.json").write_text((path / "zarr.json").read_text().replace("1e-06", "1e-07")),
        lambda path: flip(chunks(path, "x")[0]),
        lambda path: chunks(path, "y")[0].unlink(),
        lambda path: shutil.rmtree(path / "letter"),
        lambda path: shutil.copy(chunks(path, "y")[0], chunks(path, "x")[0]),
    ],
)
def test_a_damaged_root_or_coordinate_is_not_trusted(path, damage):
    fill(path)
    damage(path)
    for touch in (fill, open_store, status):
        with pytest.raises(DamagedStoreError, match="overwrite=True"):
            touch(path)
    assert not lock.lock_path(path).exists()
    fill(path, overwrite=True)
    cells.check_dataset(open_store(path), complete=True)


def test_reading_a_store_that_is_not_there(path):
    with pytest.raises(FileNotFoundError, match="there is no store"):
        open_store(path)


# Locks


def test_a_second_coordinator_is_refused_with_owner_and_time(path):
    opened, finish = cells.processes.Event(), cells.processes.Event()
    first = cells.start(cells.hold, path, opened, finish)
    assert opened.wait(30)
    with pytest.raises(LockedStoreError, match=rf"in use by .* \(process {first.pid} on .*\) since 20\d\d-"):
        cells.open_sweep(path)
    holder = status(path)["lock"]
    assert holder["pid"] == first.pid
    assert holder["running"] is True
    finish.set()
    first.join()
    cells.open_sweep(path).close()


def test_a_second_coordinator_in_the_same_process_is_refused(path):
    with cells.open_sweep(path):
        with pytest.raises(LockedStoreError, match="in this very process"):
            cells.open_sweep(path)
        # Reading the lock's text must not drop the lock, as closing any handle of the file would.
        assert status(path)["lock"]["pid"] == os.getpid()
        blocked = cells.start(cells.coordinate, path, {})
        blocked.join()
        assert blocked.exitcode == 1
    cells.open_sweep(path).close()


def test_the_lock_of_a_killed_coordinator_is_recovered(path):
    opened, finish = cells.processes.Event(), cells.processes.Event()
    first = cells.start(cells.hold, path, opened, finish)
    assert opened.wait(30)
    first.kill()
    first.join()
    assert status(path)["lock"]["running"] is False
    litter = path / "product" / "c.123.partial"
    litter.write_text("half a file")
    fill(path)
    assert not litter.exists()
    assert status(path)["lock"] is None


@pytest.mark.parametrize(("minutes", "steal", "words"), [(1, True, "last heartbeat"), (60, False, "steal_lock=True")])
def test_another_machines_lock_is_not_taken_unasked(path, minutes, steal, words):
    then = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    text = {"owner": "ada", "pid": 1, "host": socket.gethostname() + "-2", "since": then, "heartbeat": then}
    lock.lock_path(path).write_text(json.dumps(text))
    with pytest.raises(LockedStoreError, match=rf"ada \(process 1 on .*{words}"):
        cells.open_sweep(path, steal_lock=steal)
    assert lock.owner(path) == text
    if not steal:
        cells.open_sweep(path, steal_lock=True).close()
        assert lock.owner(path) is None


def test_the_heartbeat_beats(path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(lock, "_now", lambda: datetime.now(UTC).isoformat())
    with cells.open_sweep(path):
        text = json.loads(lock.lock_path(path).read_bytes())
        time.sleep(0.1)
        assert lock.owner(path)["heartbeat"] > text["heartbeat"]


# Disks


def run_script(script, path, **options):
    """A coordinator in a process of its own, with limits or rights of its own."""
    environment = {**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"}
    command = [sys.executable, "-c", textwrap.dedent(script), str(path)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, **options)


FULL = """
import sys, numpy as np, sweep_cells as cells
from solvable.sweeps.execution import run
from solvable.sweeps.store import Axis, Output, Store
noise = np.random.default_rng(0)
def compute(rows):
    # The sixth tile and those after it are too large for the limit.
    rows = [row["x"] for row in rows]
    big = noise.normal(size=(len(rows), 2000)) if rows[0] >= 50 else np.zeros((len(rows), 2000))
    return {"f": big}, [None] * len(rows)
axis, output = Axis("x", {"x": np.arange(100)}), Output("f", ("t",), (2000,))
with Store.create_or_open(sys.argv[1], [axis], [output], tile=10) as store:
    run(store, compute, progress=False)
"""


def test_a_write_that_the_disk_refuses(path):
    """A limit on the size of files: the kernel refuses the write as it does on a full disk."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))

    done = run_script(FULL, path, preexec_fn=limit)
    assert done.returncode == 1
    assert "the disk is full or the file too large" in done.stderr.splitlines()[-1]
    assert "stored are safe: run again" in done.stderr.splitlines()[-1]
    assert status(path)["done"] == 50
    assert not list(path.rglob("*.partial"))
    assert run_script(FULL, path).returncode == 0
    assert status(path)["done"] == 100


def test_a_disk_that_is_full(tmp_path):
    """A real one: a file system in memory of 300 kB, where the machine lets us mount it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a file system is not allowed here; the two tests beside this one need no mount")
    grid, outputs = [Axis("x", {"x": np.arange(300)})], [Output("f", ("t",), (200,))]

    def noise(rows):
        return {"f": np.array([np.random.default_rng(row["x"]).normal(size=200) for row in rows])}, [None] * len(rows)

    def go_on():
        with Store.create_or_open(disk / "s.zarr", grid, outputs, tile=10) as store:
            return run(store, noise, progress=False)

    try:
        with pytest.raises(OSError, match="the disk is full .* stored are safe"):
            go_on()
        done = status(disk / "s.zarr")["done"]
        assert 0 < done < 300
        subprocess.run(["mount", "-o", "remount,size=2m", disk], check=True)
        assert go_on().computed == 300 - done
        expected = np.array([np.random.default_rng(x).normal(size=200) for x in range(300)])
        np.testing.assert_array_equal(open_store(disk / "s.zarr").f, expected)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("when", ["create", "extend", "overwrite", "write"])
def test_a_disk_that_fills_up_at_any_write(quick_path, monkeypatch, when):
    """Every call that could meet a full disk meets it once; the store is as it was, and goes on when there is room."""
    path = quick_path
    path.parent.mkdir()
    if when != "create":
        fill(path, **cells.SMALL)
    longer = {**cells.SMALL, "first": 3, "overwrite": when == "overwrite"}
    if when == "write":
        cells.open_sweep(path, **longer).close()
    real = os.replace
    full_at = 0
    while True:
        left = full_at

        def replace(*names):
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(*names)

        monkeypatch.setattr(os, "replace", replace)
        trouble = None
        try:
            fill(path, **longer)
        except OSError as error:
            trouble = error
        finally:
            monkeypatch.setattr(os, "replace", real)
        if trouble is None:
            break
        assert trouble.errno == errno.ENOSPC
        assert "disk is full" in str(trouble)
        if when == "create":
            shutil.rmtree(path, ignore_errors=True)
            assert os.listdir(path.parent) == []
        else:
            recovery.finish_replacement(path)
            cells.check_dataset(open_store(path), complete=False)
        full_at += 1 if when == "write" else 3
    assert full_at > (3 if when == "write" else 8)
    cells.check_dataset(open_store(path), complete=True)


def test_nothing_is_still_being_written_when_a_disk_is_full(path, monkeypatch):
    """Writes beside the one that fails must not go on in other threads and bring the cleared folder back."""
    real = Path.mkdir

    def mkdir(self, *args, **options):
        if threading.current_thread() is not threading.main_thread() and self == recovery.draft_path(path):
            time.sleep(0.1)
        real(self, *args, **options)

    def replace(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="disk is full"):
        fill(path, **cells.SMALL)
    time.sleep(0.2)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize("use", [fill, open_store, status, lambda path: fill(path, overwrite=True)])
def test_a_file_is_no_store_and_is_left_alone(path, use):
    path.write_text("mine")
    with pytest.raises(ValueError, match=r"plane\.zarr is a file, not a sweep store; choose another path"):
        use(path)
    assert path.read_text() == "mine"


def test_a_disk_too_full_for_the_lock(path, monkeypatch):
    fill(path)

    def pwrite(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(OSError, match=r"cannot write .*plane\.zarr\.lock: No space left.* make room"):
            cells.open_sweep(path)
    fill(path)


def test_an_unwritable_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locked")
    path = folder / "s.zarr"
    fill(path)
    script = """
        import os, sys, tempfile, sweep_cells as cells
        # Everything is imported before the rights are dropped: the user "nobody" may not read this Python.
        with tempfile.TemporaryDirectory() as folder:
            cells.open_sweep(folder + "/s.zarr").close()
        if os.getuid() == 0:
            os.setegid(65534); os.seteuid(65534)
        with cells.open_sweep(sys.argv[1], first=12): pass
        """
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    folder.chmod(0o555)
    try:
        done = run_script(script, path)
    finally:
        folder.chmod(0o755)
    assert done.returncode == 1
    assert "PermissionError" in done.stderr.splitlines()[-1]
    assert "cannot write beside" in done.stderr.splitlines()[-1]
    cells.check_dataset(open_store(path), complete=True)
    with pytest.raises(FileNotFoundError, match="make the folder"):
        cells.open_sweep(folder / "missing" / "s.zarr")


def test_missing_zarr_names_the_remedy(monkeypatch, path):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match=r"pip install solvable\[sweep\]"):
        cells.open_sweep(path)
