"""The sweep store under kills, power cuts, damage, full disks and second coordinators."""

import errno
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("zarr")

import sweep_cells as cells

from solvable.sweeps import layout, lock, recovery, schema
from solvable.sweeps.execution import run
from solvable.sweeps.grid import tiles_of
from solvable.sweeps.memory import MemoryStore
from solvable.sweeps.schema import ChangedSettingsError, DamagedStoreError, LockedStoreError
from solvable.sweeps.store import Axis, Output, Store, open_store, read_status


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plane.zarr"


@pytest.fixture
def quick_path(tmp_path):
    """In memory where there is a file system for it: hundreds of stores, each flushed to the disk, take minutes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        yield Path(folder) / "folder" / "s.zarr"


def fill(path, **options):
    with cells.open_sweep(path, **options) as store:
        return run(store, cells.compute, progress=False)


# What is stored


def test_every_cell_is_stored_where_its_parameters_are(path):
    report = fill(path)
    assert (report.computed, report.failed) == (70, 1)
    dataset = open_store(path)
    cells.check_dataset(dataset, complete=True)
    assert dataset.sizes == {"x": 10, "pair": 7, "time": 3}
    assert dataset.time.attrs == {"units": "s"}
    assert json.loads(dataset.attrs["settings"])["model"] == "test"
    assert not lock.lock_path(path).exists()


def test_any_reader_of_zarr_sees_the_same_numbers(path):
    xarray = pytest.importorskip("xarray")
    fill(path)
    plain = xarray.open_zarr(path).load()
    np.testing.assert_array_equal(plain["product"], open_store(path)["product"])
    assert set(plain.coords) == {"x", "y", "letter", "time"}


def test_nothing_is_computed_twice_and_failed_cells_are_tried_again(path):
    fill(path)
    asked = []

    def better(rows):
        asked.extend(rows)
        values, _ = cells.compute(rows)
        return values, [None] * len(rows)

    with cells.open_sweep(path) as store:
        assert [text for _, text in store.failures()] == ["no result at 1.0"]
        assert list(store.pending_tiles(retry_failed=False)) == []
        assert run(store, better, progress=False).counts == {"pending": 0, "done": 70, "failed": 0, "total": 70}
    assert asked == [{"x": 1.0, "y": 2.0, "letter": "b"}]
    assert (open_store(path).status == 1).all()


def test_failure_keeps_its_text_through_a_second_failure_in_the_tile(path):
    with cells.open_sweep(path, tile=(10, 7)) as store:
        (tile,) = store.pending_tiles()
        values, errors = cells.compute([{"x": 0.0, "y": 0.0, "letter": "a"}] * len(tile))
        errors[3], errors[8] = "first", "ä" * 200
        store.write(tile, values, errors)
        (tile,) = store.pending_tiles()
        assert tile.cells.tolist() == [3, 8]
        store.write(tile, {name: rows[:2] for name, rows in values.items()}, ["again", None])
        assert [text for _, text in store.failures()] == ["again"]
        assert store.counts() == {"pending": 0, "done": 69, "failed": 1, "total": 70}
    assert layout.cut_text("ä" * 200) == ("ä" * 128).encode()


def test_an_all_nan_result_counts_as_computed(path):
    with cells.open_sweep(path) as store:
        nothing = {"product": np.nan, "curve": np.full(3, np.nan), "count": 0}
        for tile in store.pending_tiles():
            rows = {name: np.broadcast_to(row, (len(tile), *np.shape(row))) for name, row in nothing.items()}
            store.write(tile, rows, [None] * len(tile))
    with cells.open_sweep(path) as store:
        assert list(store.pending_tiles()) == []
    assert read_status(path)["done"] == 70


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.lists(st.integers(-20, 20), min_size=1, max_size=6, unique=True), min_size=1, max_size=4),
    width=st.integers(1, 7),
    tile=st.one_of(st.integers(1, 40), st.tuples(st.integers(1, 5), st.integers(1, 8))),
    seed=st.integers(0, 2**32 - 1),
)
def test_extension_in_any_order_with_tiles_written_in_any_order(quick_path, steps, width, tile, seed):
    path = quick_path
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir()
    random = np.random.default_rng(seed)
    known = set()
    for step in steps:
        known |= {value / 4 for value in step}
        with cells.open_sweep(path, first=[value / 4 for value in step], second=width, tile=tile) as store:
            assert set(store.axes[0].coordinates["x"].tolist()) == known
            tiles = list(store.pending_tiles())
            # Half of the tiles only, in random order: the rest is done after the next extension.
            for chosen in random.permutation(len(tiles))[: 1 + len(tiles) // 2]:
                columns = store.columns(tiles[chosen])
                names = list(columns)
                table = zip(*(columns[name].tolist() for name in names), strict=True)
                rows = [dict(zip(names, row, strict=True)) for row in table]
                store.write(tiles[chosen], *cells.compute(rows))
        dataset = open_store(path)
        assert dataset.x.values.tolist() == sorted(known)
        cells.check_dataset(dataset, complete=False)
    with cells.open_sweep(path, first=sorted(known), second=width) as store:
        run(store, cells.compute, progress=False)
        assert store.counts()["total"] == len(known) * width
    cells.check_dataset(open_store(path), complete=True)


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=3), tile=st.integers(1, 400))
def test_tiles_cover_the_grid_once(sizes, tile):
    covered = np.zeros(sizes, int)
    shape = schema.tile_shape(tile, sizes)
    assert np.prod(shape) <= tile
    for _, region in tiles_of(sizes, shape):
        covered[region] += 1
    assert (covered == 1).all()


def test_memory_store_behaves_like_the_file(path):
    grid = cells.axes(10)
    memory = MemoryStore(grid, cells.OUTPUTS, {"time": (cells.TIMES, {"units": "s"})}, {"model": "test"}, 12)
    report = run(memory, cells.compute, progress=False)
    fill(path)
    assert memory.dataset().drop_attrs().identical(open_store(path).drop_attrs())
    assert report.counts == {key: read_status(path)[key] for key in report.counts}
    assert list(memory.failures()) == [({"x": 1.0, "y": 2.0, "letter": "b"}, "no result at 1.0")]


# Changed settings


def test_a_changed_setting_is_refused_by_name_with_both_values(path):
    fill(path)
    with pytest.raises(ChangedSettingsError, match=r"solver\.rtol: stored 1e-06, now 0\.001.*overwrite=True"):
        cells.open_sweep(path, settings={"model": "test", "solver": {"rtol": 1e-3}})
    with pytest.raises(ChangedSettingsError, match=r"version: stored \(not set\), now \"2\""):
        cells.open_sweep(path, settings={"model": "test", "solver": {"rtol": 1e-6}, "version": "2"})
    outputs = [Output("product"), Output("curve", ("time",), (2,)), Output("count", dtype="int64")]
    grid, same = cells.axes(10), {"model": "test", "solver": {"rtol": 1e-6}}
    with pytest.raises(ChangedSettingsError, match="call coordinates.time.size: stored 3, now 2"):
        Store.create_or_open(path, grid, outputs, {"time": ([1.0, 2.0], {})}, same, 12)
    with pytest.raises(ChangedSettingsError, match=r"x: the store holds float64 values and cannot take <U1"):
        cells.open_sweep(path, first=np.array(["a"]))
    cells.check_dataset(open_store(path), complete=True)


def test_overwrite_starts_again(path):
    fill(path)
    with cells.open_sweep(path, settings={"other": 1}, overwrite=True) as store:
        assert store.counts()["done"] == 0
    assert sorted(os.listdir(path.parent)) == [path.name]


def test_overwrite_spares_a_folder_that_is_no_store(path):
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="no sweep store; it is not overwritten"):
        cells.open_sweep(path, overwrite=True)
    assert (path / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("grid", "outputs", "words"),
    [
        ([Axis("x", {"x": [1.0]})], [Output("x")], "used twice"),
        ([Axis("x", {"x": [1.0]})], [Output("f", ("x",), (3,))], "which is swept"),
        ([], [Output("f")], "at least one axis"),
        ([Axis("x", {"x": [1.0]})], [Output("a/b")], "cannot name an array"),
    ],
)
def test_impossible_schemas(path, grid, outputs, words):
    with pytest.raises(ValueError, match=words):
        Store.create_or_open(path, grid, outputs)
    assert os.listdir(path.parent) == []


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Axis("x", {"x": [1.0, 2.0, 1.0]}), "holds a value twice"),
        (lambda: Axis("x", {"x": [1.0, np.nan]}), "holds NaN"),
        (lambda: Axis("x", {"x": [1.0], "y": [1, 2]}), "unequal lengths"),
        (lambda: Axis("x", {"x": []}), "has no values"),
        (lambda: Axis("x", {"x": [[1.0]]}), "flat list"),
        (lambda: Output("status"), "keeps that name"),
        (lambda: Output("f", dtype="<U3"), "only numbers"),
        (lambda: schema.tile_shape(0, [3]), "at least one cell"),
    ],
)
def test_impossible_axes_and_outputs(build, words):
    with pytest.raises(ValueError, match=words):
        build()


def test_results_of_the_wrong_shape_are_refused(path):
    with cells.open_sweep(path) as store:
        tile = next(store.pending_tiles())
        values, errors = cells.compute([{"x": 0.0, "y": 0.0, "letter": "a"}] * len(tile))
        with pytest.raises(ValueError, match=r"'curve' came back as float64 \(12, 2\)"):
            store.write(tile, {**values, "curve": values["curve"][:, :2]}, errors)
        with pytest.raises(ValueError, match="without 'count'"):
            store.write(tile, {"product": values["product"], "curve": values["curve"]}, errors)
        assert store.counts()["pending"] == 70


# Kills


def kill_after(process, seconds):
    time.sleep(seconds)
    process.kill()
    process.join()


def test_coordinator_killed_at_twenty_random_moments(path):
    options = {"first": 40, "tile": (1, 7)}
    random = np.random.default_rng(7)
    before, kills, grown = set(), 0, 0
    while kills < 20:
        # Every other kill is aimed at the writing of tiles, the others at any moment from the start on.
        began, writing = cells.processes.Event(), cells.processes.Event()
        process = cells.start(cells.coordinate, path, options, began, cells.Announcing(writing))
        assert (writing if kills % 2 else began).wait(60)
        kill_after(process, random.uniform(0, 0.08))
        kills += process.exitcode == -signal.SIGKILL
        if path.exists():
            done = cells.check_dataset(open_store(path), complete=False)
            assert before <= done
            grown += len(done) > len(before)
            before = done
            if len(done) == options["first"] * 7:
                options["first"] += 40
    assert grown >= 9
    fill(path, **options)
    cells.check_dataset(open_store(path), complete=True)
    assert sorted(os.listdir(path.parent)) == [path.name]
    assert not list(path.rglob("*.partial"))


def crash_at_every_step(path, prepare, options, stride, settings_before=None):
    """Kill a coordinator before every step in turn; after each the store must open and resume to the end."""
    step = crashes = 0
    while True:
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        finished = prepare()
        process = cells.start(cells.coordinate_until, path, options, step)
        process.join()
        if process.exitcode == 0:
            return crashes
        assert process.exitcode == -signal.SIGKILL
        crashes += 1
        overwritten = options.get("overwrite", False)
        if path.exists():
            found = cells.check_dataset(open_store(path), complete=False)
            assert overwritten or finished <= found
        elif overwritten:
            # Between the two renames: taking the lock puts the old store back.
            with cells.open_sweep(path, settings=settings_before) as store:
                assert cells.check_dataset(store.dataset(), complete=False) == finished
        fill(path, **options)
        cells.check_dataset(open_store(path), complete=True)
        assert sorted(os.listdir(path.parent)) == [path.name], step
        assert not list(path.rglob("*.partial"))
        step += stride


SMALL = {"first": 2, "second": 3, "tile": (2, 2)}


def nothing():
    return set()


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_creating_and_writing(quick_path, stride):
    path = quick_path
    assert crash_at_every_step(path, nothing, SMALL, stride) * stride > 60


@pytest.mark.parametrize("stride", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_extending(quick_path, stride):
    path = quick_path

    def prepare():
        fill(path, **SMALL)
        return cells.check_dataset(open_store(path), complete=True)

    longer = {**SMALL, "first": [0.75, 0.25, 0.0], "second": 4}
    assert crash_at_every_step(path, prepare, longer, stride) * stride > 40


@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_while_starting_again(quick_path, stride):
    path = quick_path
    old = {"old": True}

    def prepare():
        fill(path, **SMALL, settings=old)
        return cells.check_dataset(open_store(path), complete=True)

    again = {**SMALL, "overwrite": True}
    assert crash_at_every_step(path, prepare, again, stride, settings_before=old) * stride > 80


def test_killed_between_the_two_renames_of_starting_again(path):
    fill(path, settings={"old": True})
    aside, draft = path.with_name(".plane.zarr.old"), path.with_name(".plane.zarr.new")
    os.rename(path, aside)
    shutil.copytree(aside, draft)
    with cells.open_sweep(path, settings={"old": True}) as store:
        assert store.counts()["done"] == 69
    shutil.copytree(path, aside)
    fill(path, overwrite=True)
    cells.check_dataset(open_store(path), complete=True)
    assert os.listdir(path.parent) == [path.name]


# Power cuts


@pytest.mark.parametrize("share", [0.15, 0.6])
@pytest.mark.parametrize("seed", range(5))
def test_lost_writes_are_found_after_a_restart(quick_path, monkeypatch, seed, share):
    path = quick_path
    path.parent.mkdir()
    random = np.random.default_rng(seed)
    with cells.Disk() as disk:
        # First versions, then second versions of the tiles at the edge and of the failed cell's.
        fill(path, first=4, second=3)
        fill(path, first=5, second=5)
    assert disk.cut_power(random, share) > 0
    cells.pretend_restart(monkeypatch, f"boot {seed}")
    with cells.open_sweep(path, first=5, second=5) as store:
        assert store.repairs or share < 0.5
        run(store, cells.compute, progress=False)
    cells.check_dataset(open_store(path), complete=True)
    with cells.open_sweep(path, first=5, second=5) as store:
        assert store.repairs == []


def test_a_lost_second_version_is_not_believed(quick_path, monkeypatch):
    """Its first version is whole: no checksum tells. The store forces second versions to the disk instead."""
    path = quick_path
    path.parent.mkdir()
    with cells.Disk() as disk:
        fill(path, first=4, second=3)
        fill(path, first=5, second=5)
    assert disk.lose_second_versions() >= 6
    cells.pretend_restart(monkeypatch, "another boot")
    fill(path, first=5, second=5)
    cells.check_dataset(open_store(path), complete=True)


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
    for touch in (fill, open_store, read_status):
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
    status = read_status(path)
    assert status["lock"]["pid"] == first.pid
    assert status["lock"]["running"] is True
    finish.set()
    first.join()
    cells.open_sweep(path).close()


def test_a_second_coordinator_in_the_same_process_is_refused(path):
    with cells.open_sweep(path):
        with pytest.raises(LockedStoreError, match="in this very process"):
            cells.open_sweep(path)
        # Reading the lock's text must not drop the lock, as closing any handle of the file would.
        assert read_status(path)["lock"]["pid"] == os.getpid()
        blocked = cells.start(cells.coordinate, path, {})
        blocked.join()
        assert blocked.exitcode == 1
    cells.open_sweep(path).close()


def test_the_lock_of_a_killed_coordinator_is_recovered(path):
    opened, finish = cells.processes.Event(), cells.processes.Event()
    first = cells.start(cells.hold, path, opened, finish)
    assert opened.wait(30)
    kill_after(first, 0)
    assert read_status(path)["lock"]["running"] is False
    litter = path / "product" / "c.123.partial"
    litter.write_text("half a file")
    fill(path)
    assert not litter.exists()
    assert read_status(path)["lock"] is None


@pytest.mark.parametrize(("minutes", "steal", "words"), [(1, True, "sign of life"), (60, False, "steal_lock=True")])
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
    here = Path(__file__).parent
    source = Path(schema.__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{here}"}
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
    assert read_status(path)["done"] == 50
    assert not list(path.rglob("*.partial"))
    assert run_script(FULL, path).returncode == 0
    assert read_status(path)["done"] == 100


@pytest.mark.parametrize("when", ["create", "extend", "overwrite", "write"])
def test_a_disk_that_fills_up_at_any_write(quick_path, monkeypatch, when):
    """Every call that could meet a full disk meets it once; the store is as it was, and goes on when there is room."""
    path = quick_path
    path.parent.mkdir()
    if when != "create":
        fill(path, **SMALL)
    longer = {**SMALL, "first": 3, "overwrite": when == "overwrite"}
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
            recovery.mend_swap(path)
            cells.check_dataset(open_store(path), complete=False)
        full_at += 1
    assert full_at > (3 if when == "write" else 8)
    cells.check_dataset(open_store(path), complete=True)


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
