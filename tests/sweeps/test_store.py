"""What the sweep store keeps: cells in their places, axes that grow, settings that may not change."""

import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("zarr")

import sweep_cells as cells
from sweep_cells import fill

from solvable.sweeps import layout, lock, schema
from solvable.sweeps.execution import run
from solvable.sweeps.grid import MemoryStore, tiles_of
from solvable.sweeps.schema import ChangedSettingsError
from solvable.sweeps.store import Axis, Output, Store, open_store, status


@pytest.fixture
def path(tmp_path):
    return tmp_path / "plane.zarr"


@pytest.fixture
def quick_path(tmp_path):
    with cells.quick_folder(tmp_path) as folder:
        yield folder / "folder" / "s.zarr"


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
    assert layout.truncated_text("ä" * 200) == ("ä" * 128).encode()


def test_an_all_nan_result_counts_as_computed(path):
    with cells.open_sweep(path) as store:
        nothing = {"product": np.nan, "curve": np.full(3, np.nan), "count": 0}
        for tile in store.pending_tiles():
            rows = {name: np.broadcast_to(row, (len(tile), *np.shape(row))) for name, row in nothing.items()}
            store.write(tile, rows, [None] * len(tile))
    with cells.open_sweep(path) as store:
        assert list(store.pending_tiles()) == []
    assert status(path)["done"] == 70


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@pytest.mark.parametrize("room", [1, 4, 5])
def test_a_coordinate_that_outgrows_its_chunk(quick_path, monkeypatch, room):
    monkeypatch.setattr(layout, "COLUMN_CHUNK", room)
    quick_path.parent.mkdir()
    fill(quick_path, first=2, second=2)
    fill(quick_path, first=11, second=7)
    dataset = open_store(quick_path)
    assert dataset.x.values.tolist() == (np.arange(11) / 4).tolist()
    assert "".join(dataset.letter.values) == "abcdefg"
    cells.check_dataset(dataset, complete=True)


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
    assert report.counts == {key: status(path)[key] for key in report.counts}
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
    with pytest.raises(ValueError, match="not a sweep store; it is not overwritten"):
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
        (lambda: Axis("x", {"x": [1.0, 2.0, 1.0]}), "appears twice"),
        (lambda: Axis("x", {"x": [1.0, np.nan]}), "contains NaN"),
        (lambda: Axis("x", {"x": [1.0], "y": [1, 2]}), "must be equally long"),
        (lambda: Axis("x", {"x": []}), "has no values"),
        (lambda: Axis("x", {"x": [[1.0]]}), "flat list"),
        (lambda: Output("status"), "which the store uses itself"),
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


# Stores of other versions


def rewrite_root(path, **changes):
    """Replace attributes of the root, as another version would have written them, with a valid checksum."""
    found = layout.read_layout(path)
    layout.publish(path, layout.Layout({**found.attributes, **changes}, found.arrays))


@pytest.mark.parametrize(("version", "age"), [("solvable-sweep-0", "an older"), ("solvable-sweep-2", "a newer")])
@pytest.mark.parametrize("has_checksum", [True, False])
def test_a_store_of_another_format_is_refused_with_the_remedy(path, version, age, has_checksum):
    fill(path)
    rewrite_root(path, format=version)
    if not has_checksum:
        # A format may have no consolidated metadata, and no checksum.
        root = json.loads((path / "zarr.json").read_text())
        del root["consolidated_metadata"], root["attributes"]["checksum"]
        (path / "zarr.json").write_text(json.dumps(root))
    for use in (open_store, status, fill, lambda path: fill(path, verify=True)):
        with pytest.raises(schema.StoreVersionError, match=f"was written by {age} version.*overwrite=True") as caught:
            use(path)
        assert "\n" not in str(caught.value)
    assert not lock.lock_path(path).exists()
    fill(path, overwrite=True)
    cells.check_dataset(open_store(path), complete=True)
