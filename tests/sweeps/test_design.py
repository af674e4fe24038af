"""Designs of sweeps: grids, lists that go together, products, Latin hypercubes and Sobol sequences."""

import itertools

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from solvable.sweeps import Design, latin_hypercube, product, sobol, zipped
from solvable.sweeps.cells import cell_key
from solvable.sweeps.design import as_design, coordinate, label

lists = st.lists(st.floats(-5, 5), min_size=1, max_size=4, unique=True)


def points(design: Design, *names: str) -> list[tuple]:
    return [tuple(cell[name] for name in names) for cell in design.cells()]


@given(lists, lists, lists)
def test_a_grid_is_the_product_in_order(a: list, b: list, c: list) -> None:
    design = as_design({"a": a, "b": b, "c": c})
    assert design.dims == ["a", "b", "c"]
    assert design.shape == (len(a), len(b), len(c))
    assert design.size == len(a) * len(b) * len(c)
    assert points(design, "a", "b", "c") == list(itertools.product(a, b, c))


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 9)), min_size=1, max_size=5, unique=True), lists)
def test_zipped_lists_share_a_dimension(pairs: list, c: list) -> None:
    """A tuple of names, a helper and labelled arrays with a shared dimension say the same."""
    a, b = map(list, zip(*pairs, strict=True))
    expected = [(*pair, value) for pair in pairs for value in c]
    shared = {"a": xr.DataArray(a, dims="run"), "b": xr.DataArray(b, dims="run"), "c": c}
    for design, dim in (
        (as_design({("a", "b"): (a, b), "c": c}), "a_b"),
        (zipped(a=a, b=b) * as_design({"c": c}), "a_b"),
        (product(zipped("run", a=a, b=b), {"c": c}), "run"),
        (as_design([zipped("run", a=a, b=b), {"c": c}]), "run"),
        (as_design(shared), "run"),
    ):
        assert design.dims == [dim, "c"]
        assert points(design, "a", "b", "c") == expected


def test_distinct_dimensions_of_labelled_arrays_multiply() -> None:
    design = as_design({"a": xr.DataArray([1.0, 2.0], dims="x"), "b": xr.DataArray([3.0, 4.0, 5.0], dims="y")})
    assert design.dims == ["x", "y"]
    assert design.shape == (2, 3)


@given(st.integers(1, 40), st.integers(0, 40), st.integers(0, 3))
def test_a_sobol_sequence_grows(count: int, more: int, key: int) -> None:
    ranges = {"a": (-1.0, 2.0), "b": (1e-6, 1e-1, "log")}
    short, long = sobol(ranges, count, key), sobol(ranges, count + more, key)
    assert points(long, "a", "b")[:count] == points(short, "a", "b")
    assert short.dims == ["sample"]
    values = np.array(points(long, "a", "b"))
    assert ((values >= [-1.0, 1e-6]) & (values <= [2.0, 1e-1])).all()


@pytest.mark.parametrize("key", [0, 1])
def test_designs_fill_every_slice(key: int) -> None:
    """Each of 16 equal slices of each range, in the logarithm where asked, has exactly one of 16 cells: the defining
    property of a Latin hypercube, which 2^m points of a Sobol sequence have, too."""
    ranges = {"a": (-1.0, 2.0), "b": (1e-6, 1e-1, "log")}
    for draw in (latin_hypercube, sobol):
        values = np.array(points(draw(ranges, 16, key), "a", "b"))
        shares = np.stack([(values[:, 0] + 1) / 3, np.log(values[:, 1] / 1e-6) / np.log(1e5)], axis=1)
        assert (np.sort(np.floor(shares * 16), axis=0) == np.arange(16)[:, None]).all()
    assert points(latin_hypercube(ranges, 16, 0), "a") != points(latin_hypercube(ranges, 16, 1), "a")


def test_coordinates_are_numbers_or_labels() -> None:
    assert coordinate((1, 2)).dtype == np.int64
    assert coordinate((1, 2.5)).dtype == np.float64
    assert coordinate(("relu", "tanh")).tolist() == ["relu", "tanh"]
    assert coordinate((None, 3)).tolist() == ["None", "3"]
    assert coordinate(([1.0, 2.0], [3.0])).tolist() == ["[1.0, 2.0]", "[3.0]"]
    long = [list(np.linspace(0, 1, 50)), list(np.linspace(0, 2, 50))]
    assert label(long[0]) != label(long[1])
    assert label(long[0]).startswith("array of shape (50,), sha256 ")
    # Arrays, tuples and lists of the same numbers are the same value.
    for vectors in (np.array([[1, 2.5]]), [(1, 2.5)], [np.array([1, 2.5])]):
        assert as_design({"a": vectors}).axes[0].coordinates["a"].tolist() in (["[1.0, 2.5]"], ["[1, 2.5]"])


@given(st.dictionaries(st.sampled_from("abcd"), st.floats(-9, 9) | st.integers(-9, 9), min_size=1), st.integers(0, 9))
def test_keys_depend_on_values_only(values: dict, key: int) -> None:
    backwards = dict(reversed(values.items()))
    as_floats = {name: float(value) for name, value in values.items()}
    assert cell_key(values, key) == cell_key(backwards, key) == cell_key(as_floats, key)
    assert cell_key(values, key) != cell_key(values, key + 1)
    assert cell_key(values, key) != cell_key({**values, "e": 0.5}, key)
    assert 0 <= cell_key(values, key) < 2**53


def test_keys_of_many_cells_differ() -> None:
    """With 53 bits, ten thousand cells share a key with probability 6e-9."""
    assert len({cell_key({"a": index / 7}) for index in range(10_000)}) == 10_000


def test_keys_stay_the_same_from_version_to_version() -> None:
    """Stored simulations are extended by later runs: the recipe must not change."""
    assert cell_key({"aspect_ratio": 0.5, "outputs": 3}) == 1282769750706488


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({}, "at least one parameter"),
        ([], "over must be a mapping"),
        (3, "over must be a mapping"),
        ({"a": 1.0}, "a must be a list of values, not 1.0"),
        ({"a": "relu"}, "a must be a list of values, not 'relu'"),
        ({"a": []}, "a must have at least one value"),
        ({"a": [1.0, 2.0, 1.0]}, "a = 1.0 appears twice"),
        ({("a", "b"): ([1], [2, 3])}, "equally long: a has 1, b has 2"),
        ({("a", "b"): ([1, 2],)}, "needs 2 lists"),
        ({("a", "b"): ([1, 1], [2, 2])}, "a = 1, b = 2 appears twice"),
        ({3: [1]}, "named by strings"),
        ([{"a": [1]}, {"a": [2]}], "'a' is swept twice"),
        ([zipped("run", a=[1]), zipped("run", b=[1])], "dimension 'run' is swept twice"),
        ({"a": zipped(b=[1])}, "a design has its own names"),
        ({"a": xr.DataArray([[1.0]], dims=("x", "y"))}, "must have one dimension"),
    ],
)
def test_impossible_designs_are_named(over: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_design(over)


@pytest.mark.parametrize(
    ("ranges", "count", "message"),
    [
        ({}, 4, "ranges must map"),
        ({"a": (1, 0)}, 4, "the smaller one first"),
        ({"a": (1,)}, 4, "a must be "),
        ({"a": (0, 1, "log")}, 4, "positive numbers"),
        ({"a": (0, 1, "linear")}, 4, "a must be "),
        ({"a": (0, np.inf)}, 4, "two finite numbers"),
        ({"a": (0, 1)}, 0, "count must be a whole number"),
        ({"a": (0, 1)}, 2.5, "count must be a whole number"),
    ],
)
def test_impossible_ranges_are_named(ranges: dict, count: float, message: str) -> None:
    for draw in (latin_hypercube, sobol):
        with pytest.raises(ValueError, match=message):
            draw(ranges, count)
