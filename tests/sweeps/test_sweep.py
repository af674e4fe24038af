"""Sweeps give what direct calls give: for every model, engine and kind of result; failures stay in their cells."""

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from solvable import GradientDescent, LinearEstimator, ScalarNetwork, models
from solvable.model import Model
from solvable.sweeps import (
    SweepWarning,
    cell_key,
    layout,
    load,
    plan,
    product,
    sobol,
    status,
    sweep,
    vectorised,
    zipped,
)
from solvable.sweeps.cells import CellFunction, make_cells
from solvable.sweeps.design import as_design, label
from solvable.sweeps.quantities import as_result
from solvable.sweeps.schema import StoreVersionError
from solvable.sweeps.store import Axis, Output, Store
from solvable.sweeps.vectorised import VectorisedFunction
from solvable.training import Training

MODEL = LinearEstimator(aspect_ratio=0.9)
RATIOS, DECAYS = [0.3, 0.7, 1.3], [0.0, 1e-3, 1e-2]

# For every model a small sweep: what stays, what is swept, the quantity and its options.
CASES: dict[str, tuple[dict, Any, str, dict]] = {
    "linear-estimator": ({}, {"aspect_ratio": RATIOS, "weight_decay": DECAYS}, "predict", {"times": [1.0, 30.0]}),
    "linear-features": (
        {"intensities": [1.0, 0.5, 0.2, 0.1], "target": [1.0, 1.0, 0.5, 0.1]},
        {"noise": [0.0, 0.3], "samples": [2, 3]},
        "limit",
        {},
    ),
    "diagonal-network": (
        {"variances": [1.0, 0.5], "target_scales": [1.0, 2.0]},
        zipped(initial_first=[[0.1, 0.1], [0.2, 0.3]], initial_second=[[0.1, 0.1], [0.1, 0.2]]),
        "emergence-time",
        {"fraction": 0.1},
    ),
    "linear-network": ({"singular_values": [3.0, 1.0]}, {"initial_scale": [1e-3, 1e-2]}, "emergence_time", {}),
    "scalar-network": (
        {"initial_first": [0.1, 0.2], "initial_second": [0.3, -0.1]},
        {"target": [-1.0, 2.0], "output_scale": [1.0, 3.0]},
        "final-growth", {},
    ),
    "skills": ({}, {"exponent": [0.3, 0.8], "kind": ["multilinear", "linear"]}, "exponents", {}),
    "committee": (
        {}, {"activation": ["quadratic(0.5)", "quadratic(0.3)"], "output_scale": [0.1, 0.2]}, "recovery", {}
    ),
    "feature-scaling": ({}, {"capacity": [1.2, 2.0], "source": [0.3, 1.4, 2.5]}, "phase", {}),
    "parity-mode": ({"loss": "mean"}, {"target_scale": [0.5, 1.0]}, "predict", {"times": [0.0, 2.0]}),
}  # fmt: skip


def direct(model: type[Model], parameters: dict, quantity: str, options: dict) -> dict[str, np.ndarray]:
    """The quantity of one model, called as a user would; what is no parameter is an option of the training."""
    known = {field.name for field in dataclasses.fields(model)}
    found = getattr(
        model(**{name: value for name, value in parameters.items() if name in known}), quantity.replace("-", "_")
    )
    trained = {name: value for name, value in parameters.items() if name not in known}
    if trained:
        options = {**options, "training": model.default_training.replace(**trained)}
    value = found(**options) if callable(found) else found
    return {
        name: np.asarray(array) for name, (_, array, _) in as_result(value, quantity.replace("-", "_")).arrays.items()
    }


@pytest.mark.parametrize("name", list(models.names()))
def test_every_model_can_be_swept(name: str) -> None:
    fixed, over, quantity, options = CASES[name]
    design = as_design(over)
    kind = models.get(name)
    known = {field.name for field in dataclasses.fields(kind)}
    first = {name: value for name, value in next(design.cells()).items() if name in known}
    swept = sweep(kind(**fixed, **first), over, quantity, options, engine="serial")
    assert (swept.status == 1).all()
    assert swept.attrs["model"] == name
    for cell in design.cells():
        there = swept
        for axis in design.axes:
            for parameter in axis.values:
                value = cell[parameter]
                wanted = value if isinstance(value, int | float) else label(value)
                there = (
                    there.isel({axis.dim: np.flatnonzero(there[parameter].values == wanted)})
                    if axis.dim in there.dims
                    else there
                )
        there = there.squeeze(design.dims)
        for output, expected in direct(kind, {**fixed, **cell}, quantity, options).items():
            np.testing.assert_array_equal(there[output], expected, err_msg=f"{output} at {cell}")


def test_a_sweep_is_a_documented_dataset() -> None:
    plane = sweep(MODEL, {"weight_decay": DECAYS, "aspect_ratio": RATIOS}, "grokking_time", engine="serial")
    assert plane.delay.dims == ("weight_decay", "aspect_ratio")
    cell = LinearEstimator(0.7).grokking_time(training=GradientDescent(0.01, weight_decay=1e-3))
    for name in cell.data_vars:
        assert plane[name].sel(weight_decay=1e-3, aspect_ratio=0.7) == cell[name]
        assert plane[name].dtype == cell[name].dtype
        assert plane[name].attrs == cell[name].attrs
    about = {"long_name": "strength of weight decay", "units": "1", "symbol": "γ"}
    assert plane.weight_decay.attrs == about
    assert plane.attrs["method"] == "sweep"
    assert plane.attrs["quantity"] == "grokking_time"
    assert json.loads(plane.attrs["training"])["learning_rate"] == 0.01
    assert plane.attrs["seconds"] >= 0


@pytest.mark.slow
def test_a_vectorised_plane_equals_the_phase_diagram() -> None:
    axes = {"weight_decay": np.geomspace(1e-6, 1e-1, 50), "aspect_ratio": np.linspace(0.05, 3, 60)}
    plane, bare = sweep(MODEL, axes, "grokking_time", engine="vmap"), MODEL.phase_diagram(**axes)
    for name in bare.data_vars:
        np.testing.assert_allclose(plane[name], bare[name], rtol=1e-9, err_msg=str(name))


def product_of_fields(model: LinearEstimator, training: Training) -> Any:
    """Cheap to compile, and different if the parameters of two cells are exchanged."""
    decay = training.weight_decay
    return {"a": model.aspect_ratio * jnp.exp(-decay), "b": jnp.stack([decay, model.outputs])}


@pytest.mark.parametrize(
    ("over", "tile"),
    [
        ({"weight_decay": [1e-4, 0.5, 0.1], "aspect_ratio": np.linspace(0.1, 1.5, 33)}, (2, 33)),
        (
            {"weight_decay": np.linspace(0, 1, 8), "outputs": [1, 2], "aspect_ratio": np.linspace(0.1, 2, 35)},
            (3, 2, 35),
        ),
        ({"aspect_ratio": np.linspace(0.1, 1.5, 33), "weight_decay": [1e-4, 1e-3, 1e-2]}, (8, 3)),
        ([sobol({"aspect_ratio": (0.1, 2.0), "weight_decay": (0.0, 1.0)}, 40), {"outputs": [1, 3]}], 32),
        (sobol({"aspect_ratio": (0.1, 2.0)}, 300), 300),
    ],
)
def test_vectorised_equals_one_by_one(over: Any, tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks (a long last axis), flat tiles (a short one), zipped designs, tiles that do not divide the grid."""
    one = sweep(MODEL, over, product_of_fields, engine="serial")
    alone: list[int] = []
    by_itself = CellFunction.__call__
    monkeypatch.setattr(
        CellFunction, "__call__", lambda self, cells: alone.append(len(cells)) or by_itself(self, cells)
    )
    many = sweep(MODEL, over, product_of_fields, engine="vmap", tile=tile)
    assert many.attrs["engine"] == "vmap"
    # No more than the corners of each tile, for the check.
    assert max(alone) <= 8
    for name in one.data_vars:
        np.testing.assert_allclose(many[name], one[name], rtol=1e-14, err_msg=str(name))


def test_vectorised_rows_fit_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a row of 256 cells would need more than there is, it is cut until it does not; the values stay."""
    over = {"aspect_ratio": np.linspace(0.1, 1.0, 256)}
    widths: list[int] = []
    nested = vectorised._nested
    monkeypatch.setattr(vectorised, "memory_limit", lambda: 200_000)
    monkeypatch.setattr(
        vectorised, "_nested", lambda cells, width, columns: widths.append(width) or nested(cells, width, columns)
    )

    def largest(model: LinearEstimator) -> Any:
        return jnp.sort(jnp.cos(jnp.arange(1000.0) * model.aspect_ratio))[-3]

    found = sweep(MODEL, over, largest, engine="vmap").largest
    assert widths[0] == 256
    # A cell sorts 8000 bytes: at most 25 of them fit.
    assert widths[-1] <= 25
    expected = [np.sort(np.cos(np.arange(1000.0) * ratio))[-3] for ratio in over["aspect_ratio"]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_vectorised_curves_and_their_errors() -> None:
    """Estimates of the error are for plain numbers; a vectorised sweep says NaN, not nothing."""
    over = {"weight_decay": [1e-4, 1e-2], "aspect_ratio": [0.5, 1.5]}
    one, many = (sweep(MODEL, over, "predict", {"times": [1.0, 1e3]}, engine=e) for e in ("serial", "vmap"))
    np.testing.assert_allclose(many.test_loss, one.test_loss, rtol=1e-10)
    assert many.test_loss.dims == ("weight_decay", "aspect_ratio", "time")
    assert (one.numerical_error < 1e-10).all()
    assert many.numerical_error.isnull().all()


def test_what_tracing_does_not_check_is_checked() -> None:
    """Above the stable learning rate theory raises; traced, it would give numbers that mean nothing."""
    over = {"learning_rate": np.geomspace(0.01, 5.0, 6), "aspect_ratio": [0.5, 2.0]}
    options = {"times": [1, 10]}
    with pytest.warns(SweepWarning, match="of 12 cells failed"):
        one, many = (sweep(MODEL, over, "predict", options, engine=e) for e in ("serial", "vmap"))
    limit = [[float(LinearEstimator(ratio).stable_learning_rate().stable_learning_rate) for ratio in (0.5, 2.0)]]
    np.testing.assert_array_equal(one.status, np.where(one.learning_rate.values[:, None] >= limit, 2, 1))
    np.testing.assert_array_equal(many.status, one.status)
    np.testing.assert_allclose(many.test_loss, one.test_loss, rtol=1e-10)
    assert "learning_rate" in str(one.error.values[one.status == 2][0])


def test_parameters_that_forbid_each_other_fail_in_their_cells() -> None:
    """Target scales may not be swept against a start that they overflow with; the others go on, vectorised or not."""
    network = ScalarNetwork(initial_first=[0.5], initial_second=[0.5], target=1.0)
    over = {"target": [1.0, 2.0], "initial_first": [[0.5], [0.5, 0.5]]}
    with pytest.warns(SweepWarning, match="2 of 4 cells failed: target = 1.0, initial_first = .*equally long"):
        plane = sweep(network, over, "final_growth")
    np.testing.assert_array_equal(plane.status, [[1, 2], [1, 2]])
    assert plane.final_growth.isnull().sum() == 2


def test_options_can_be_swept_and_properties_taken() -> None:
    levels = sweep(MODEL, {"accuracy": [0.5, 0.9], "aspect_ratio": [0.2, 0.5]}, "grokking-time")
    for accuracy in (0.5, 0.9):
        expected = MODEL.replace(aspect_ratio=0.5).grokking_time(accuracy).delay
        assert float(levels.delay.sel(accuracy=accuracy, aspect_ratio=0.5)) == float(expected)
    network = ScalarNetwork(initial_first=[0.1, 0.2], initial_second=[0.3, 0.1], target=1.0)
    growth = sweep(network, {"target": [0.5, 2.0]}, "final-growth").final_growth
    assert growth.values.tolist() == [network.replace(target=t).final_growth for t in (0.5, 2.0)]


def test_functions_that_make_models() -> None:
    plane = sweep(ScalarNetwork.small, {"width": [2, 6], "scale": [0.01, 0.1]}, "final_growth")
    for width in (2, 6):
        expected = ScalarNetwork.small(width, scale=0.1).final_growth
        assert float(plane.final_growth.sel(width=width, scale=0.1)) == expected


def test_any_function_of_the_model() -> None:
    over = {"aspect_ratio": [0.2, 0.5]}
    number = sweep(MODEL, over, lambda model: model.aspect_ratio**2)
    np.testing.assert_allclose(number.value, [0.04, 0.25])
    several = sweep(MODEL, over, lambda m: {"count": 3, "pair": [m.aspect_ratio, 1.0], "name": f"λ={m.aspect_ratio}"})
    assert several["count"].values.tolist() == [3.0, 3.0]
    assert several.pair.dims == ("aspect_ratio", "pair_0")
    assert several["name"].values.tolist() == ["λ=0.2", "λ=0.5"]
    labelled = sweep(MODEL, over, lambda m: xr.DataArray([m.aspect_ratio, 1], dims="x", coords={"x": [7, 8]}, name="a"))
    assert labelled.a.sel(aspect_ratio=0.5, x=7) == 0.5


def test_names_that_are_taken_get_the_quantity_in_front() -> None:
    """A quantity may give a parameter back that is swept, as a variable or as a dimension."""

    def layers(model: ScalarNetwork) -> xr.Dataset:
        return xr.Dataset({"initial_first": ("neuron", 2 * model.initial_first)})

    network = ScalarNetwork(initial_first=[0.1], initial_second=[0.3], target=1.0)
    doubled = sweep(network, {"initial_first": [[0.1], [0.2]]}, layers, engine="serial")
    np.testing.assert_allclose(doubled.layers_initial_first, [[0.2], [0.4]], rtol=1e-15)
    assert doubled["initial_first"].values.tolist() == ["[0.1]", "[0.2]"]

    def spectrum(model: LinearEstimator) -> xr.DataArray:
        return xr.DataArray([model.aspect_ratio, 2.0], dims="aspect_ratio", coords={"aspect_ratio": [3.0, 4.0]})

    found = sweep(MODEL, {"aspect_ratio": [0.5, 0.6]}, spectrum, engine="serial")
    assert found.spectrum.dims == ("aspect_ratio", "spectrum_aspect_ratio")
    assert float(found.spectrum.sel(aspect_ratio=0.6, spectrum_aspect_ratio=3.0)) == 0.6


def test_ragged_cells_fail_with_words() -> None:
    def ragged(model: LinearEstimator) -> Any:
        return np.ones(1 if model.aspect_ratio < 1 else 2)

    with pytest.warns(SweepWarning, match=r"1 of 2 cells failed.*has the shape \(2,\), in the first cell \(1,\)"):
        found = sweep(MODEL, {"aspect_ratio": [0.5, 1.5]}, ragged)
    assert found.status.values.tolist() == [1, 2]
    with pytest.warns(SweepWarning, match="other values along 'x' than the first one"):
        sweep(
            MODEL, {"aspect_ratio": [0.5, 1.5]}, lambda m: xr.DataArray([1.0], dims="x", coords={"x": [m.aspect_ratio]})
        )


SIMULATE = {"times": [0.0, 1.0], "seeds": 2}


def test_simulations_draw_by_their_parameters_and_survive_everything(tmp_path: Path) -> None:
    """A cell draws the same whether it is computed alone, in a grid, in a store that grew, or in another process."""
    store = tmp_path / "runs.zarr"
    network = ScalarNetwork(initial_first=[0.1, 0.2], initial_second=[0.3, -0.1], target=1.0)
    alone = network.replace(target=0.5).simulate(**SIMULATE, key=cell_key({"target": 0.5}))
    first = sweep(network, {"target": [1.5, 0.5]}, "simulate", SIMULATE, store=store, engine="serial")
    np.testing.assert_array_equal(first.test_loss.sel(target=0.5), alone.test_loss)
    grown = sweep(network, {"target": [0.7]}, "simulate", SIMULATE, store=store, engine="processes", workers=1)
    xr.testing.assert_equal(grown.sel(target=[0.5, 1.5]), first)
    there = network.replace(target=0.7).simulate(**SIMULATE, key=cell_key({"target": 0.7}))
    np.testing.assert_array_equal(grown.test_loss.sel(target=0.7), there.test_loss)
    xr.testing.assert_equal(grown, load(store))
    cells, _ = make_cells(network, as_design({"target": [0.5]}), "simulate", {**SIMULATE, "key": 1})
    assert cells.call_options({"target": 0.5})["key"] == cell_key({"target": 0.5}, 1)


class Counted:
    """A quantity that remembers where it was computed."""

    def __init__(self, broken: float = np.inf) -> None:
        self.calls: list[float] = []
        self.broken = broken

    def __call__(self, model: LinearEstimator) -> float:
        self.calls.append(model.aspect_ratio)
        if model.aspect_ratio >= self.broken:
            raise RuntimeError(f"broken at {model.aspect_ratio}")
        return 10 * model.aspect_ratio


def test_a_store_computes_what_is_missing(tmp_path: Path) -> None:
    store, quantity = tmp_path / "plane.zarr", Counted(broken=0.8)
    with pytest.warns(SweepWarning, match="1 of 2 cells failed: aspect_ratio = 0.9: RuntimeError: broken at 0.9"):
        first = sweep(MODEL, {"aspect_ratio": [0.1, 0.9]}, quantity, store=store, engine="serial")
    np.testing.assert_array_equal(first.Counted, [1.0, np.nan])
    assert first.error.values.tolist() == ["", "RuntimeError: broken at 0.9"]
    assert status(store)["failed"] == 1
    quantity.broken, quantity.calls = np.inf, []
    # The failed cell is tried again, the new one computed, the done one left alone; values come back in order.
    second = sweep(MODEL, {"aspect_ratio": [0.5, 0.9, 0.1]}, quantity, store=store, engine="serial")
    assert sorted(quantity.calls) == [0.5, 0.9]
    np.testing.assert_array_equal(second.aspect_ratio, [0.1, 0.5, 0.9])
    np.testing.assert_allclose(second.Counted, [1.0, 5.0, 9.0])
    quantity.calls = []
    third = sweep(MODEL, {"aspect_ratio": [0.1, 0.5]}, quantity, store=store)
    assert quantity.calls == []
    xr.testing.assert_equal(second, third)
    assert plan(MODEL, {"aspect_ratio": [0.1, 0.7]}, quantity, store=store).pending == 1


def test_other_settings_are_refused(tmp_path: Path) -> None:
    store, over = tmp_path / "plane.zarr", {"aspect_ratio": [0.2, 0.5]}
    before = sweep(MODEL, over, "grokking_time", {"accuracy": 0.9}, store=store)
    for model, options, difference in (
        (MODEL.replace(threshold=1e-2), {"accuracy": 0.9}, "parameters.threshold: stored 0.001, now 0.01"),
        (MODEL, {"accuracy": 0.8}, "options.accuracy: stored 0.9, now 0.8"),
    ):
        with pytest.raises(ValueError, match=difference):
            sweep(model, over, "grokking_time", options, store=store)
    with pytest.raises(ValueError, match=r"quantity: stored \"grokking_time\", now \"limit\""):
        sweep(MODEL, over, "limit", store=store)
    with pytest.raises(ValueError, match="axes"):
        sweep(MODEL, {"weight_decay": [0.1]}, "grokking_time", {"accuracy": 0.9}, store=store)
    with pytest.raises(ValueError, match="exists: continue it"):
        sweep(MODEL, over, "grokking_time", {"accuracy": 0.9}, store=store, resume=False)
    xr.testing.assert_equal(load(store), before)
    after = sweep(MODEL, over, "grokking_time", {"accuracy": 0.8}, store=store, overwrite=True)
    assert (after.test_time < before.test_time).all()


def make_old(store: Path) -> None:
    """Give a store the settings of versions without trainings, where the learning rate was a field of the model."""
    found = layout.read_layout(store)
    settings = {name: value for name, value in found.attributes["settings"].items() if name != "training"}
    settings["parameters"] = {**settings["parameters"], "learning_rate": 0.01, "student_scale": 1.0}
    layout.publish(store, layout.Layout({**found.attributes, "settings": settings}, found.arrays))


def test_a_store_of_an_older_version_is_read_but_not_continued(tmp_path: Path) -> None:
    store, over = tmp_path / "plane.zarr", {"aspect_ratio": [0.2, 0.5]}
    before = sweep(MODEL, over, "grokking_time", {"accuracy": 0.9}, store=store)
    make_old(store)
    found = load(store)
    xr.testing.assert_equal(found, before)
    assert json.loads(found.attrs["parameters"])["learning_rate"] == 0.01
    assert "training" not in found.attrs
    assert status(store)["done"] == 2
    for attempt in (sweep, plan):
        with pytest.raises(StoreVersionError, match=r"older version.*learning_rate was a field.*overwrite=True"):
            attempt(MODEL, over, "grokking_time", {"accuracy": 0.9}, store=store)
    xr.testing.assert_equal(load(store), before)
    again = sweep(MODEL, over, "grokking_time", {"accuracy": 0.9}, store=store, overwrite=True)
    xr.testing.assert_equal(again, before)


def test_a_store_over_what_is_an_option_of_the_training_now(tmp_path: Path) -> None:
    """All other parameters of the model may still exist: then the missing training tells the older version."""
    store, over = tmp_path / "rates.zarr", {"learning_rate": [0.01, 0.02]}
    sweep(MODEL, over, "grokking_time", store=store)
    found = layout.read_layout(store)
    settings = {name: value for name, value in found.attributes["settings"].items() if name != "training"}
    layout.publish(store, layout.Layout({**found.attributes, "settings": settings}, found.arrays))
    assert load(store).sizes == {"learning_rate": 2}
    with pytest.raises(StoreVersionError, match="older version of solvable, which did not store the training"):
        sweep(MODEL, over, "grokking_time", store=store)


def test_a_store_that_no_sweep_of_a_model_wrote_is_read(tmp_path: Path) -> None:
    """Its settings are whatever its author chose."""
    axes = [Axis("x", {"x": np.array([1.0, 2.0])})]
    with Store.create_or_open(tmp_path / "own.zarr", axes, [Output("f")], settings={"mine": 1}):
        pass
    assert load(tmp_path / "own.zarr").attrs == {"method": "sweep"}


def test_texts_and_none_are_stored(tmp_path: Path) -> None:
    """Names of phases, and a hidden layer that is none, in a store and back."""
    store = tmp_path / "phases.zarr"
    over = {"capacity": [1.2, 2.0], "source": [0.3, 1.4, 2.5]}
    kept = sweep("feature-scaling", over, "phase", store=store)
    xr.testing.assert_equal(kept, sweep("feature-scaling", over, "phase"))
    assert set(np.unique(kept.phase)) == {"hard", "easy", "super-easy"}
    xr.testing.assert_equal(load(store).phase, kept.phase)
    layers = tmp_path / "layers.zarr"
    sweep(MODEL, {"width": [None, 4]}, "stable_learning_rate", store=layers)
    rates = sweep(MODEL, {"width": [None, 8]}, "stable_learning_rate", store=layers).stable_learning_rate
    expected = [float(MODEL.replace(width=width).stable_learning_rate().stable_learning_rate) for width in (None, 4, 8)]
    assert rates.sel(width=["None", "4", "8"]).values.tolist() == expected


def test_values_that_a_store_had_before_are_understood() -> None:
    """Cells that another call left behind are computed by this one, which does not know their values."""
    network = ScalarNetwork(initial_first=[0.1], initial_second=[0.2], target=1.0)
    cells, _ = make_cells(network, as_design({"initial_first": [[0.5]]}), "final_growth", None)
    assert cells.values({"initial_first": "[0.25]"}) == {"initial_first": [0.25]}
    cells, _ = make_cells(MODEL, as_design({"width": [None]}), "limit", None)
    assert cells.values({"width": "4"}) == {"width": 4}
    cells, _ = make_cells("skills", as_design({"exponent": [1.0], "kind": ["linear"]}), "exponents", None)
    assert cells.values({"kind": "multilinear"}) == {"kind": "multilinear"}


@pytest.mark.slow
def test_every_engine_gives_the_same(tmp_path: Path) -> None:
    over = {"aspect_ratio": np.linspace(0.2, 1.6, 6), "weight_decay": [1e-4, 1e-2]}
    found = {
        engine: sweep(MODEL, over, "grokking_time", engine=engine, store=tmp_path / f"{engine}.zarr", tile=3)
        for engine in ("serial", "vmap", "processes", "dask")
    }
    for engine, plane in found.items():
        for name in plane.data_vars:
            np.testing.assert_allclose(plane[name], found["serial"][name], rtol=1e-10, err_msg=f"{engine}: {name}")


def test_a_sobol_sweep_grows(tmp_path: Path) -> None:
    store, quantity = tmp_path / "samples.zarr", Counted()
    ranges = {"aspect_ratio": (0.1, 3.0), "threshold": (1e-5, 1e-2, "log")}
    few = sweep(MODEL, sobol(ranges, 4), quantity, store=store, engine="serial")
    quantity.calls = []
    more = sweep(MODEL, sobol(ranges, 6), quantity, store=store, engine="serial")
    assert len(quantity.calls) == 2
    assert more.Counted.dims == ("sample",)
    xr.testing.assert_equal(more.isel(sample=slice(4)), few)
    nested = product(sobol(ranges, 3), {"outputs": [1, 2]})
    assert sweep(MODEL, nested, Counted(), engine="serial").Counted.shape == (3, 2)


def test_the_plan_says_what_and_how() -> None:
    grid = {"aspect_ratio": np.linspace(0.1, 2, 300), "weight_decay": np.geomspace(1e-6, 0.1, 300)}
    found = plan(MODEL, grid, "grokking_time")
    assert (found.cells, found.pending, found.engine) == (90_000, 90_000, "vmap")
    assert found.bytes == 90_000 * (3 * 8 + 2)
    assert found.tiles * np.prod(found.tile) >= 90_000
    assert "90000 cells, 90000 to compute" in str(found)
    assert found.seconds == pytest.approx(90_000 * found.seconds_per_cell)
    short = plan(MODEL, {"aspect_ratio": [0.5]}, "limit")
    assert short.engine == "serial"
    words = plan(MODEL, {"aspect_ratio": [0.5]}, "limit", engine="processes", workers=3)
    assert (words.engine, words.workers) == ("processes", 3)


def test_a_tile_that_cannot_be_vectorised_is_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    over = {"aspect_ratio": [0.5, 0.9]}

    def broken(*_: object) -> None:
        raise MemoryError("out of memory")

    monkeypatch.setattr(VectorisedFunction, "_together", broken)
    found = sweep(MODEL, over, "grokking_time", engine="vmap")
    assert (found.status == 1).all()
    np.testing.assert_array_equal(found.delay, sweep(MODEL, over, "grokking_time", engine="serial").delay)


def test_sweeps_in_memory_need_no_optional_package() -> None:
    script = """
import sys
for name in ("zarr", "dask", "distributed", "cloudpickle"):
    sys.modules[name] = None
from solvable import LinearEstimator
from solvable.sweeps import sweep
if __name__ == "__main__":
    model = LinearEstimator(aspect_ratio=0.5)
    found = sweep(model, {"weight_decay": [0.1, 0.2]}, lambda model, training: training.weight_decay)
    assert found.value.values.tolist() == [0.1, 0.2]
    try:
        sweep(model, {"weight_decay": [0.1]}, "stable_learning_rate", store="plane.zarr")
    except ImportError as error:
        assert "pip install solvable[sweep]" in str(error)
    else:
        raise AssertionError("stored without zarr")
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_defaults_written_out_are_the_same_settings() -> None:
    for model in ("linear-estimator", LinearEstimator, LinearEstimator(aspect_ratio=7.0)):
        cells, _ = make_cells(model, as_design({"aspect_ratio": [0.5]}), "limit", None)
        assert cells.settings() == make_cells(MODEL, as_design({"aspect_ratio": [0.1]}), "limit", None)[0].settings()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MODEL, {"aspekt": [1.0]}, "predict"), "no parameter 'aspekt'; it has aspect_ratio.*predict takes times"),
        ((MODEL, {"aspect_ratio": [0.5, -1.0]}, "limit"), "aspect_ratio must be a positive finite number, not -1.0"),
        ((MODEL, {"outputs": [1, 1.5]}, "limit"), "outputs must be a whole number"),
        ((MODEL, {"width": ["many"]}, "limit"), "width must be a whole number"),
        (("skills", {"exponent": [1.0], "kind": ["other"]}, "exponents"), "kind must be one of"),
        (("committee", {"activation": ["cosine"]}, "escape_time"), "no activation is named 'cosine'"),
        ((MODEL, {"weight_decay": [0.1]}, "grok"), "no quantity 'grok'; it has .*grokking_time"),
        ((MODEL, {"weight_decay": [0.1]}, "_curve"), "no quantity '_curve'"),
        ((MODEL, {"weight_decay": [0.1]}, 3), "quantity must be the name of a method"),
        ((MODEL, {"weight_decay": [0.1]}, "predict"), "predict of linear-estimator needs times"),
        ((MODEL, {"weight_decay": [0.1]}, "limit", {"times": [1]}), "no option 'times'; it takes training"),
        ((MODEL, {"accuracy": [0.1]}, "grokking_time", {"accuracy": 0.5}), "swept and also fixed"),
        ((MODEL, {"accuracy": [2.0]}, "grokking_time"), "no cell that was tried works.*accuracy must lie between"),
        ((3, {"a": [1]}, "limit"), "model must be a model"),
        (("linear-estimater", {"a": [1]}, "limit"), "did you mean 'linear-estimator'"),
        ((MODEL, {"aspect_ratio": [0.5]}, lambda model: object()), "returned object; a quantity must return"),
    ],
)
def test_mistakes_are_found_before_anything_runs(arguments: tuple, message: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            sweep(*arguments, store=tmp_path / "new.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "threads"}, "engine must be one of auto, serial, vmap"),
        (
            {"engine": "vmap", "quantity": "phase", "model": "feature-scaling"},
            "cannot be traced by JAX.*use 'processes'",
        ),
        ({"engine": "serial", "client": "tcp://nowhere:1"}, "a client is for engine='dask'"),
        ({"store": "plane.nc"}, "must end in .zarr"),
        ({"workers": 0}, "workers must be a whole number"),
    ],
)
def test_impossible_ways_to_run_are_named(settings: dict, message: str) -> None:
    if "model" in settings:
        settings = {**settings, "over": {"capacity": [1.5], "source": [1.0]}}
    with pytest.raises(ValueError, match=message):
        sweep(**{"model": MODEL, "over": {"aspect_ratio": [0.5]}, "quantity": "limit", **settings})
