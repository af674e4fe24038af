"""Pictures: what they show is what the data say."""

import pickle
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray as xr
from matplotlib._pylab_helpers import Gcf

from solvable import LinearEstimator, plot, plot_plane
from solvable.plotting import draw_plane, new_figure, save_figure


@pytest.fixture(scope="module")
def pair() -> tuple[xr.Dataset, xr.Dataset]:
    model, steps = LinearEstimator(aspect_ratio=0.5), [1, 10, 100]
    return model.predict(steps), model.simulate(steps, dimension=20, seeds=4)


def test_theory_is_a_line_and_simulation_points_with_error_bars(pair: tuple) -> None:
    theory, simulation = pair
    figure = plot(theory, simulation)
    losses, accuracies = figure.axes
    assert losses.get_yscale() == losses.get_xscale() == accuracies.get_xscale() == "log"
    assert accuracies.get_yscale() == "linear"
    assert losses.get_xlabel() == "training time, t (steps)"
    assert losses.get_ylabel() == "loss"
    np.testing.assert_allclose(losses.lines[1].get_ydata(), theory.test_loss)
    bars = losses.containers
    assert len(bars) == 2
    points = bars[1].lines[0]
    np.testing.assert_allclose(points.get_ydata(), simulation.test_loss.mean("seed"))
    assert points.get_linestyle() == "None"
    low, high = np.array(bars[1].lines[2][0].get_segments())[:, :, 1].T
    np.testing.assert_allclose((high - low) / 2, simulation.test_loss.std("seed", ddof=1) / 2, rtol=1e-6)
    labels = [text.get_text() for text in losses.get_legend().get_texts()]
    assert labels == ["train, theory", "test, theory", "train, simulation", "test, simulation"]
    # One model, one colour.
    assert losses.lines[0].get_color() == points.get_color()


def test_chosen_variables_and_labels(pair: tuple) -> None:
    figure = plot(pair[0], variables=["test_loss", "log_test_loss"], labels=["mine"], title="A title")
    assert len(figure.axes) == 2
    assert figure.get_suptitle() == "A title"
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "mine, test"


def test_time_zero_is_shown() -> None:
    figure = plot(LinearEstimator(aspect_ratio=0.5).predict([0, 1, 10]))
    assert figure.axes[0].get_xscale() == "symlog"


def test_planes_hatch_what_is_never_reached() -> None:
    plane = LinearEstimator(aspect_ratio=0.9).phase_diagram(aspect_ratio=[0.5, 0.9, 1.5], weight_decay=[1e-4, 1e-3])
    figure, (ax,) = new_figure()
    draw_plane(figure, ax, plane.delay, x="aspect_ratio", y="weight_decay", log=["weight_decay"])
    assert ax.get_yscale() == "log"
    assert any(collection.get_hatch() or getattr(collection, "hatches", None) for collection in ax.collections)


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_figures_are_written_whole(pair: tuple, tmp_path: Path, ending: str) -> None:
    path = save_figure(plot(pair[0]), tmp_path / f"figure{ending}")
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[ending]
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_notebooks_show_pictures_without_preparation(pair: tuple) -> None:
    """IPython asks a result for its PNG; no backend is chosen and no figure registered for that."""
    backend, open_figures = matplotlib.rcParams["backend"], list(Gcf.figs)
    plane = xr.Dataset({"delay": (("a", "b"), [[1.0, 2.0], [3.0, 4.0]])}, {"a": [1.0, 2.0], "b": [1.0, 2.0]})
    for figure in (plot(*pair), plot_plane(plane, "delay")):
        picture = figure._repr_png_()
        assert picture.startswith(b"\x89PNG")
        width, height = (int.from_bytes(picture[start : start + 4], "big") for start in (16, 20))
        assert (width, height) == tuple((100 * figure.get_size_inches()).astype(int))
        assert type(pickle.loads(pickle.dumps(figure))) is type(figure)
    assert matplotlib.rcParams["backend"] == backend
    assert list(Gcf.figs) == open_figures


def test_ipython_shows_a_picture(pair: tuple) -> None:
    formatters = pytest.importorskip("IPython.core.formatters")
    data, _ = formatters.DisplayFormatter().format(plot(*pair))
    assert data["image/png"].startswith(b"\x89PNG")


def test_bad_requests(pair: tuple, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing to plot"):
        plot()
    with pytest.raises(ValueError, match="no dataset has a variable 'los'"):
        plot(pair[0], variables=["los"])
    with pytest.raises(ValueError, match="2 datasets need 2 labels"):
        plot(*pair, labels=["one"])
    with pytest.raises(ValueError, match="only datasets can be plotted, not list"):
        plot(list(pair))
    with pytest.raises(ValueError, match="not DataArray: .* choose curves by variables="):
        plot(pair[0].test_loss)
    with pytest.raises(ValueError, match="pass what was compared"):
        plot(pair[0].expand_dims(statistic=["theory"]))
    with pytest.raises(ValueError, match="only curves over 'time'"):
        plot(pair[0].isel(time=0))
    with pytest.raises(ValueError, match="must end in one of"):
        save_figure(plot(pair[0]), tmp_path / "figure.gif")


def test_a_dimension_with_one_entry_is_no_part_of_a_name() -> None:
    """The committee's neurons used to be called "neuron 1, index 1" for its only teacher."""
    from solvable.plotting.series import lines

    values = np.arange(6.0).reshape(3, 2, 1)
    coordinates = {"time": [0.0, 1.0, 2.0], "neuron": [1, 2], "index": [1]}
    data = xr.Dataset({"alignment": (("time", "neuron", "index"), values)}, coordinates)
    assert [curve.name for curve in lines(data, "alignment")] == ["neuron 1", "neuron 2"]
    assert [curve.name for curve in lines(data.isel(neuron=[0]), "alignment")] == ["neuron 1, index 1"]
