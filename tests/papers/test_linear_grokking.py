"""Claims and pictures of linear-grokking on made-up data: what they count, divide and pick out is what they say."""

import numpy as np
import pytest
import xarray as xr

from solvable.papers.linear_grokking import fig4, fig6, label_noise, minibatch, output_maximum


def test_cells_on_the_wrong_side_are_counted() -> None:
    """The boundary is at λ = 1 for one output and at 2 for ten; one cell of each row is wrong."""
    critical = xr.DataArray([1.0, 1.5, 2.0], dims="outputs", coords={"outputs": [1.0, 5.0, 10.0]})
    axes = {"outputs": [1.0, 10.0], "aspect_ratio": [0.5, 0.9, 1.1, 2.5]}
    right = np.array([[True, True, False, False], [True, True, True, False]])
    wrong = right ^ np.array([[False, True, False, False], [False, False, False, True]])
    planes = [xr.Dataset({"test_reached": (("outputs", "aspect_ratio"), cells)}, axes) for cells in (right, wrong)]
    assert [fig4._edge_claim(plane, critical).measured for plane in planes] == [0, 2]
    assert fig4._edge_claim(planes[0].transpose(), critical).passed


def test_the_maximum_is_found_and_shown() -> None:
    """A delay with one maximum, at 30 outputs: drawn there, and not where the closed forms have it."""
    ratios = output_maximum.ASPECT_RATIOS
    outputs = np.arange(1, 321)
    delay = np.tile(-(np.log(outputs / 30) ** 2), (len(ratios), 1)) + 40
    axes = {"aspect_ratio": list(ratios), "outputs": outputs}
    data = {"delay": xr.Dataset({"delay": (tuple(axes), delay)}, axes)}
    assert [claim.measured for claim in output_maximum.claims(data)] == [30] * len(ratios)
    assert not all(claim.passed for claim in output_maximum.claims(data))
    (panel,) = output_maximum.draw(data).axes
    assert [text.get_text() for text in panel.get_legend().get_texts()] == [f"λ = {ratio:g}: 30" for ratio in ratios]


def test_late_time_forms_are_divided_by_the_exact_losses() -> None:
    times = fig6.CLAIMED_TIMES
    curves = dict.fromkeys(("train_loss", "test_loss", "test_loss_leading"), ("time", 2.0 / times))
    exact, late = xr.Dataset(curves, {"time": times}), 3 * xr.Dataset(curves, {"time": times})
    measured = {claim.name: claim.measured for claim in fig6.claims({"exact": exact, "late": late})}
    assert measured["eq. 22 at t = 1000: relative error"] == pytest.approx(2)
    assert measured["eq. 11 over the exact test loss at t = 10000"] == pytest.approx(3)


def test_a_dip_counts_at_its_first_crossing() -> None:
    times = np.array([1.0, 10.0, 100.0, 1000.0])
    scan = xr.Dataset({"test_accuracy": ("time", [0.1, 0.96, 0.5, 0.99])}, {"time": times})
    claim = label_noise._first_crossing(xr.Dataset({"test_time": 3.16}), scan)
    assert claim.expected == pytest.approx(np.sqrt(10))
    assert claim.passed
    assert not label_noise._first_crossing(xr.Dataset({"test_time": 316.0}), scan).passed


def test_batches_are_compared_run_by_run() -> None:
    """Four runs with factors of mean 2 and standard deviation 0.2: three standard errors are 0.3."""
    factors = 2 + 0.2 * np.sqrt(0.75) * np.array([1.0, -1.0, 1.0, -1.0])
    for theory, passed in ((2.29, True), (2.31, False)):
        factor = xr.Dataset({"simulation": ("seed", factors), "theory": theory})
        claim = minibatch._factor_claim("any", factor)
        assert claim.tolerance == pytest.approx(0.3)
        assert claim.measured == pytest.approx(2)
        assert claim.passed is passed
