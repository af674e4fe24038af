"""The step function as a task, the delay of a run, and the identities that the runs of figs. 2.2 and 6.5 rest on."""

import jax
import numpy as np
import pytest
import xarray as xr

from solvable.networks import Fixed, Fresh
from solvable.networks.tasks.heaviside import heaviside, midpoints
from solvable.papers.layerwise import _grokking, _step, fig2_2
from solvable.papers.layerwise._grokking import TABLE, Row, Setting, delays, final_growth


@pytest.mark.parametrize("points", [2, 230, 1000])
def test_the_grid_integrates_the_step_and_lines_exactly(points: int) -> None:
    data = heaviside("grid", points)
    assert isinstance(data, Fixed)
    inputs, targets = np.asarray(data.inputs), np.asarray(data.targets)
    assert inputs.dtype == targets.dtype == np.float32
    assert targets.mean(dtype=float) == 0.5
    # ∫ x f*(x) dx / 2 = 1/4: the midpoint rule is exact for functions that are linear in each cell.
    assert (inputs * targets).mean(dtype=float) == pytest.approx(0.25, rel=1e-6)
    assert np.abs(inputs).min() > 0


def test_random_points_are_uniform_and_those_of_the_key() -> None:
    one, same = (heaviside("random", 4000, key=key) for key in (3, jax.random.key(3)))
    assert isinstance(one, Fixed)
    assert isinstance(same, Fixed)
    np.testing.assert_array_equal(one.inputs, same.inputs)
    np.testing.assert_array_equal(one.targets, one.inputs > 0)
    # Means of 4000: five standard errors, alarms by chance one in a million; the key is fixed.
    assert abs(np.asarray(one.inputs).mean()) < 5 / np.sqrt(3 * 4000)
    assert (np.asarray(one.inputs) ** 2).mean() == pytest.approx(1 / 3, abs=5 * np.sqrt(4 / 45 / 4000))
    assert not np.array_equal(one.inputs, heaviside("random", 4000, key=4).inputs)


def test_fresh_points_differ_by_key_and_the_test_set_is_a_grid() -> None:
    data = heaviside("fresh", test_samples=10)
    assert isinstance(data, Fresh)
    (inputs, targets), (others, _) = (data.sample(jax.random.key(seed), 6) for seed in (0, 1))
    assert inputs.shape == targets.shape == (6, 1)
    assert not np.array_equal(inputs, others)
    np.testing.assert_array_equal(targets[:, 0], inputs[:, 0] > 0)
    np.testing.assert_array_equal(data.test_inputs, midpoints(10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "lattice"}, "kind must be one of"),
        ({"kind": "grid", "samples": 0}, "samples must be a whole number"),
        ({"kind": "grid", "test_samples": 1.5}, "test_samples must be a whole number"),
        ({"kind": "random"}, "give key"),
    ],
)
def test_what_is_wrong_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        heaviside(**arguments)  # type: ignore[arg-type]


def test_a_delay_is_when_a_run_generalises_over_when_it_fits() -> None:
    """Four runs: one groks, one never does, one generalises before it fits, one never fits."""
    train = [[0, 0.5, 0.99, 1, 1], [0, 0.5, 0.99, 1, 1], [0, 0.5, 0.6, 0.9, 0.99], [0, 0.5, 0.8, 0.9, 0.9]]
    test = [[0, 0.2, 0.3, 0.4, 1], [0, 0.2, 0.3, 0.4, 0.5], [0, 0.5, 0.95, 0.9, 0.9], [0, 0.1, 0.2, 0.95, 1]]
    curves = xr.Dataset(
        {name: (("variant", "seed", "time"), np.array(part)[:, None]) for name, part in
         (("train_accuracy", train), ("test_accuracy", test))},
        {"time": [0.0, 10, 20, 40, 80]},
    )  # fmt: skip
    found = delays(curves, batches=10)
    assert found.attrs["level"] == pytest.approx(0.9)
    np.testing.assert_allclose(found.fits[:, 0], [2, 2, 8, 8])
    np.testing.assert_allclose(found.generalises[:, 0], [8, np.inf, 2, 4])
    np.testing.assert_allclose(found.delay[:, 0], [4, np.inf, 0.25, 0.5])
    np.testing.assert_allclose(found.at_fit[:, 0], [0.3, 0.3, 0.9, np.nan])
    # A level that the second run reaches too; the best of all runs still sets it.
    np.testing.assert_allclose(delays(curves, 10, share=0.5).delay[:, 0], [4, 4, 0.125, 0.5])


def test_the_level_is_that_of_means_over_seeds() -> None:
    """One lucky seed does not set it."""
    test = np.array([[[0.1, 1.0], [0.1, 0.6]]])
    curves = xr.Dataset(
        {"train_accuracy": (("variant", "seed", "time"), np.ones_like(test)),
         "test_accuracy": (("variant", "seed", "time"), test)},
        {"time": [0.0, 1.0]},
    )  # fmt: skip
    assert delays(curves, 1).attrs["level"] == pytest.approx(0.9 * 0.8)


def test_final_growth_is_that_of_zero_initial_output() -> None:
    """gamma_+ = r + sqrt(1 + r^2), r = S / Sigma_0 (eqs. 6.13, 6.14 at S_0 = 0): an independent route."""
    growth = {name: final_growth(name, 512) for name in TABLE}
    for name, (weight, target, inputs, output) in TABLE.items():
        ratio = target / inputs / (output * weight**2 * (512 + 1) / 2)
        assert growth[name] == pytest.approx(ratio + np.sqrt(1 + ratio**2), rel=1e-12)
    assert growth["target"] == pytest.approx(growth["output"], rel=1e-12)
    assert growth["default"] < growth["target"] < growth["weight"] < growth["input"]


@pytest.mark.slow
def test_to_adam_a_larger_target_is_a_smaller_output() -> None:
    """Without decay the losses differ by 100 and the accuracies not at all; weights decay only where they should."""
    rows = [Row("target", "none"), Row("output", "none"), Row("default"), Row("default", "none")]
    setting = Setting("digits", 40, 300, 60, 8, 1e-2, 30.0, 20, 15, 1)
    training = _grokking.run(setting, rows)
    target, output = (training.curves.isel(variant=index, seed=0) for index in (0, 1))
    # float32 in another order of operations: a few units of rounding in each of 30 steps, and Adam's epsilon.
    np.testing.assert_allclose(target.train_loss, 100 * output.train_loss, rtol=1e-3)
    # Of 60 test images one may lie on an edge.
    np.testing.assert_allclose(target.test_accuracy, output.test_accuracy, atol=1.5 / 60)
    decayed, free = (training.network(0, variant) for variant in (2, 3))
    for one, other in zip(decayed.layers, free.layers, strict=True):
        assert np.abs(one.weight).mean() < 0.95 * np.abs(other.weight).mean()
    # The same draws in every row.
    np.testing.assert_array_equal(training.data(0, 0).inputs, training.data(0, 3).inputs)


def test_one_feature_that_is_the_target_has_dimension_one() -> None:
    hidden = _step.TARGET[:, None] * np.array([1.0, 2.0, 0.0])
    dimensions = _step.measure(hidden, 3 * _step.TARGET[:, None]).effective_dimensions
    for name in _step.NAMES:
        assert dimensions[name] == pytest.approx(1, abs=1e-9)
    features = np.column_stack([np.ones_like(_step.INPUTS), 0.5 * _step.INPUTS, 0.1 * _step.INPUTS**2])
    functions = _step.first_functions(features)
    # Eigenfunctions are orthonormal on the grid, in falling order of strength: first the one that is nearly constant.
    np.testing.assert_allclose(functions.T @ functions / _step.POINTS, np.eye(3), atol=1e-9)
    assert functions[:, 0].std() < 0.1


@pytest.mark.slow
def test_an_output_bias_that_is_off_stays_zero_and_divergence_is_noted() -> None:
    search = ((0.9, 0.05, 1e-3, False), (0.9, 0.05, 1e-3, True), (0.0, 1e4, 0.0, True))
    setting = fig2_2.Setting(width=8, steps=40, seeds=2, chosen=search[0], search=search)
    training = fig2_2.run(setting)
    assert float(training.network(0, 0).layers[-1].bias[0]) == 0
    assert float(training.network(0, 0, step=0).layers[-1].bias[0]) == 0
    start, end = (float(training.network(0, 1, step=step).layers[-1].bias[0]) for step in (0, 40))
    assert start != 0 != end - start
    found = fig2_2.searched(training)
    assert (found.diverged_at[:2] < 0).all()
    assert (found.diverged_at[2] >= 0).all()
    for name in _step.NAMES:
        assert np.isfinite(found[name][:2]).all()
        assert np.isnan(found[name][2]).all()
        by_hand = _step.measure(*fig2_2.evaluate(training.network(1, 0))).effective_dimensions[name]
        assert float(found[name][0, 1]) == pytest.approx(by_hand, rel=1e-9)
