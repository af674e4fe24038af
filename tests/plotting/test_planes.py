"""Maps over two parameters: what is coloured, hatched and crossed out is what the data say."""

import numpy as np
import pytest
import xarray as xr

from solvable.models.feature_scaling import FeatureScaling
from solvable.plotting import draw_plane, new_figure, plot_plane, save_figure


@pytest.fixture
def plane() -> xr.Dataset:
    """Positive over five decades; one cell never reached, one not computed."""
    values = np.geomspace(1, 1e5, 20).reshape(4, 5).copy()
    values[3, 4], values[0, 0] = np.inf, np.nan
    return xr.Dataset(
        {"delay": (("rate", "ratio"), values, {"long_name": "grokking delay", "units": "steps", "symbol": "Δt"})},
        {
            "rate": ("rate", np.geomspace(1e-3, 1, 4), {"long_name": "learning rate", "symbol": "η"}),
            "ratio": ("ratio", np.linspace(0.5, 1.5, 5)),
        },
    )


def drawn(figure) -> tuple:
    """The panel, its mesh, and the labels of the legend."""
    ax = figure.axes[0]
    (mesh,) = [made for made in ax.collections if hasattr(made, "get_coordinates")]
    legend = [text.get_text() for box in figure.legends for text in box.get_texts()]
    return ax, mesh, legend


def hatched(ax, pattern: str) -> np.ndarray:
    """Corners of the hatched areas, or nothing."""
    found = [made for made in ax.collections if pattern in (getattr(made, "hatches", None) or [])]
    return np.concatenate([path.vertices for made in found for path in made.get_paths()]) if found else np.empty((0, 2))


def test_a_plane_says_what_it_shows(plane: xr.Dataset) -> None:
    figure = plot_plane(plane, title="A title")
    ax, mesh, legend = drawn(figure)
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("ratio", "learning rate, η")
    assert figure.axes[1].get_ylabel() == "grokking delay, Δt (steps)"
    assert legend == ["never reached", "not computed or failed"]
    assert figure.get_suptitle() == "A title"
    assert type(mesh.norm).__name__ == "LogNorm"
    shown = mesh.get_array().reshape(4, 5)
    expected = plane.delay.values
    assert shown.mask[3, 4]
    assert shown.mask[0, 0]
    np.testing.assert_array_equal(shown[1:3], expected[1:3])


def test_cells_are_hatched_from_edge_to_edge(plane: xr.Dataset) -> None:
    ax, mesh, _ = drawn(plot_plane(plane))
    edges = mesh.get_coordinates()
    for pattern, row, column in (("////", 3, 4), ("xxx", 0, 0)):
        corners = hatched(ax, pattern)
        assert corners.size
        np.testing.assert_allclose(corners[:, 0].min(), edges[row, column, 0], rtol=1e-12)
        np.testing.assert_allclose(corners[:, 0].max(), edges[row, column + 1, 0], rtol=1e-12)
        np.testing.assert_allclose(corners[:, 1].min(), edges[row, column, 1], rtol=1e-12)
        np.testing.assert_allclose(corners[:, 1].max(), edges[row + 1, column, 1], rtol=1e-12)


def test_models_say_what_is_never_reached() -> None:
    """As the linear estimator has it: NaN where never reached, and a word on it. NaN without the word has failed."""
    over, never = ("ratio", "decay"), np.array([[False, False], [True, True]])
    plane = xr.Dataset(
        {
            "train_time": (over, np.ones((2, 2))),
            "test_time": (over, np.where(never, np.nan, 5.0)),
            "delay": (over, np.where(never, np.nan, 4.0)),
            "train_reached": (over, np.ones((2, 2), bool)),
            "test_reached": (over, ~never),
        }
    )
    assert drawn(plot_plane(plane, "delay"))[2] == ["never reached"]
    assert drawn(plot_plane(plane, "test_time"))[2] == ["never reached"]
    assert drawn(plot_plane(plane, "train_time"))[2] == []
    failed = plane.assign(test_reached=xr.ones_like(plane.test_reached))
    assert drawn(plot_plane(failed, "delay"))[2] == ["not computed or failed"]
    # A failed cell of a sweep has flags that say no; its status tells that they are no answer.
    status = xr.DataArray([[1, 1], [1, 2]], dims=over)
    assert drawn(plot_plane(plane.assign(status=status), "delay"))[2] == ["never reached", "not computed or failed"]


@pytest.mark.parametrize(
    ("values", "log"),
    [
        (np.geomspace(1, 1e3, 7), True),
        (np.unique(np.geomspace(1, 1e3, 30).round()), True),
        (np.linspace(1, 10, 7), False),
        ([0.0, 1.0, 10.0, 100.0], False),
        ([1e-3, 1.0], True),
        ([1.0, 2.0], False),
        ([5.0], False),
    ],
)
def test_log_axes_from_the_spacing(values: list, log: bool) -> None:
    data = xr.DataArray(np.ones((len(values), 3)), {"a": list(values), "b": [1.0, 2.0, 3.0]}, ("a", "b"), name="z")
    ax = plot_plane(data).axes[0]
    assert ax.get_yscale() == ("log" if log else "linear")
    assert plot_plane(data, log=["b"]).axes[0].get_xscale() == "log"


def test_phases_have_names() -> None:
    chart = FeatureScaling(1.5, 0.5).phase_map([1.2, 1.5, 2.5], [0.5, 1.25, 1.75])
    figure = plot_plane(chart, "phase", names=("hard", "easy", "super-easy"))
    _, mesh, legend = drawn(figure)
    assert legend == ["hard", "easy", "super-easy"]
    assert len(figure.axes) == 1
    np.testing.assert_array_equal(mesh.get_array().reshape(3, 3), chart.phase)
    texts = xr.DataArray([["b", "a"], ["", "b"]], dims=("y", "x"), name="phase")
    _, mesh, legend = drawn(plot_plane(texts))
    assert legend == ["a", "b", "not computed or failed"]
    np.testing.assert_array_equal(mesh.get_array().reshape(2, 2).filled(-1), [[1, 0], [-1, 1]])


def test_axes_may_have_names() -> None:
    data = xr.DataArray([[1.0, 2.0, 3.0]] * 2, {"kind": ["b", "a"], "size": [3, 1, 2]}, ("kind", "size"), name="z")
    ax, mesh, _ = drawn(plot_plane(data))
    assert [text.get_text() for text in ax.get_yticklabels()] == ["b", "a"]
    # Numbers are sorted, with their cells.
    np.testing.assert_array_equal(mesh.get_array().reshape(2, 3)[0], [2.0, 3.0, 1.0])


def test_contours_lie_where_the_values_are() -> None:
    x = np.linspace(1, 5, 41)
    data = xr.DataArray(x + 10 * x[:, None], {"y": x, "x": x}, ("y", "x"), name="z")
    ax = plot_plane(data, contours=[20.0, 30.0, 1e9]).axes[0]
    (lines,) = [made for made in ax.collections if hasattr(made, "levels") and not made.filled]
    np.testing.assert_array_equal(lines.levels, [20.0, 30.0])
    for level, path in zip(lines.levels, lines.get_paths(), strict=True):
        np.testing.assert_allclose(path.vertices @ [1, 10], level, rtol=1e-12)
    assert {text.get_text() for text in ax.texts} == {"20", "30"}
    thin = plot_plane(data, contours=4).axes[0]
    assert not thin.texts


def test_scales(plane: xr.Dataset) -> None:
    signed = xr.DataArray([[-1.0, 2.0], [0.5, 3.0]], dims=("y", "x"), name="z")
    assert drawn(plot_plane(signed))[1].norm.vmin == -3.0
    assert drawn(plot_plane(abs(signed)))[1].norm.vmin == 0.5
    assert type(drawn(plot_plane(abs(signed)))[1].norm).__name__ == "Normalize"
    _, _, legend = drawn(plot_plane(signed, scale="log"))
    assert legend == ["zero or negative"]
    # Nothing to colour is no error: all of it is hatched.
    nothing = xr.full_like(plane.delay, np.inf)
    figure = plot_plane(nothing)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["never reached"]


def test_panels_share_their_colours(tmp_path) -> None:
    data = xr.DataArray(np.arange(1.0, 25).reshape(2, 3, 4), {"depth": [1, 2]}, ("depth", "y", "x"), name="z")
    figure = plot_plane(data, over="depth", mark={"here": (1, 1)})
    first, second, bar = figure.axes
    assert (first.get_title(), second.get_title()) == ("depth = 1", "depth = 2")
    assert first.collections[0].norm is second.collections[0].norm
    assert bar.get_ylabel() == "z"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["here"]
    np.testing.assert_array_equal(first.lines[0].get_xydata(), [[1, 1]])
    assert save_figure(figure, tmp_path / "plane.png").stat().st_size > 0


def test_every_plane_of_a_dataset_is_drawn(plane: xr.Dataset) -> None:
    delay = plane.delay
    more = plane.assign(other=delay * 2, delay_error=delay, error=delay.astype(str), mean=delay.mean("rate"))
    titles = [ax.get_title() for ax in plot_plane(more).axes if ax.get_title()]
    assert titles == ["delay", "other"]


def test_a_panel_of_ones_own(plane: xr.Dataset) -> None:
    figure, (ax,) = new_figure()
    handles = draw_plane(figure, ax, plane.delay, "ratio", "rate", log=["rate"])
    # By itself an array does not know why a cell is empty.
    assert list(handles) == ["never reached"]
    assert not draw_plane(figure, ax, plane.delay, "ratio", "rate", log=["rate"], hatch=False)


def test_bad_requests(plane: xr.Dataset) -> None:
    with pytest.raises(ValueError, match="no variable 'loss'; there are delay"):
        plot_plane(plane, "loss")
    with pytest.raises(ValueError, match="select values of the others"):
        plot_plane(plane.delay.expand_dims(seed=3))
    with pytest.raises(ValueError, match="no variable has 2 dimensions"):
        plot_plane(plane.isel(rate=0))
    with pytest.raises(ValueError, match="over='depth' is not a dimension"):
        plot_plane(plane.delay.expand_dims(seed=3), "delay", over="depth")
    with pytest.raises(ValueError, match="more than 12 panels"):
        plot_plane(plane.delay.expand_dims(seed=13), over="seed")
    with pytest.raises(ValueError, match="'rates' is not a dimension"):
        plot_plane(plane, x="rates")
    with pytest.raises(ValueError, match="two different dimensions"):
        plot_plane(plane, x="rate", y="rate")
    with pytest.raises(ValueError, match="log='rat' is not an axis"):
        plot_plane(plane, log="rat")
    with pytest.raises(ValueError, match="scale must be one of"):
        plot_plane(plane, scale="root")
