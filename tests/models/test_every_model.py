"""What every model keeps beyond the contract test: frozen values, refusals that name the parameter, finite curves.

That every registered model keeps the contract is tested in ``models/test_contract.py``, that none depends on the
precision of JAX in ``project/test_importing.py``.
"""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr

import solvable
from solvable import GradientDescent, LinearEstimator, Model, models


def test_models_are_frozen_values() -> None:
    model = LinearEstimator(aspect_ratio=np.float32(0.5), outputs=np.int64(3))
    assert model.outputs == 3
    assert type(model.aspect_ratio) is float
    assert repr(model).startswith("LinearEstimator(aspect_ratio=0.5, outputs=3, threshold=0.001")
    assert model == LinearEstimator(aspect_ratio=0.5, outputs=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.aspect_ratio = 1.0
    assert model.replace(outputs=4).outputs == 4
    with pytest.raises(ValueError, match="no parameter 'output'; it has aspect_ratio"):
        model.replace(output=4)
    with pytest.raises(ValueError, match="outputs must be"):
        model.replace(outputs=0)


def test_every_summary_says_what_it_is() -> None:
    """The contract test looks at ``predict`` and ``simulate``; these are the other methods of one model."""
    model = LinearEstimator(aspect_ratio=0.5)
    datasets = [
        model.grokking_time(),
        model.phase_diagram(weight_decay=[0.0, 0.1]),
        model.late_time([1.0, 2.0]),
        model.limit(),
        model.critical_weight_decay(),
        model.stable_learning_rate(),
    ]
    for dataset in datasets:
        for name, variable in dataset.variables.items():
            assert variable.attrs["long_name"], name
            assert variable.attrs["units"], name
        assert dataset.attrs["model"] == "linear-estimator"
        assert json.loads(dataset.attrs["parameters"])["aspect_ratio"] == 0.5
        assert dataset.attrs["method"] in ("theory", "asymptotic theory")
        assert dataset.attrs["version"] == solvable.__version__
        assert dataset.attrs["device"]
        assert dataset.attrs["seconds"] >= 0


def test_sizes_and_errors_of_the_verbs_are_stated() -> None:
    model = LinearEstimator(aspect_ratio=0.5)
    assert 0 <= model.predict([1, 2]).attrs["numerical_error"] < 1e-11
    runs = model.simulate([1, 2], dimension=20, seeds=2)
    settings = json.loads(runs.attrs["solver"])
    assert settings["samples"] == 40
    assert settings["key"] == 0
    assert runs.test_loss.dims == ("seed", "time")


def test_registry() -> None:
    assert models.get("linear-estimator") is LinearEstimator
    for name in models.names():
        kind = models.get(name)
        assert issubclass(kind, Model)
        assert kind.name == name
    with pytest.raises(ValueError, match="no model is named 'linear-estimater'; did you mean 'linear-estimator'"):
        models.get("linear-estimater")
    with pytest.raises(ValueError, match="there are: linear-estimator"):
        models.get("zzz")
    with pytest.raises(ValueError, match="registered already"):
        models.register("linear-estimator", "elsewhere:Model", "another")


def test_models_pass_through_jax() -> None:
    """A model is a PyTree: it can be an argument of a compiled function, and mapped over."""
    model = LinearEstimator(aspect_ratio=0.5)
    doubled = jax.jit(lambda m: m.aspect_ratio * 2)(model)
    assert float(doubled) == 1.0
    stacked = jax.vmap(lambda x: LinearEstimator(aspect_ratio=x))(np.array([0.5, 0.9]))
    losses = jax.vmap(lambda m: m.predict([100]).test_loss.data[0], in_axes=(0,))(stacked)
    single = [float(LinearEstimator(aspect_ratio=x).predict([100]).test_loss[0]) for x in (0.5, 0.9)]
    np.testing.assert_allclose(losses, single, rtol=1e-12)


SMALL: dict[str, Callable[..., Any]] = {
    "linear-estimator": lambda **changes: solvable.LinearEstimator(**{"aspect_ratio": 0.5, **changes}),
    "linear-features": lambda **changes: solvable.LinearFeatures(
        **{"intensities": [1.0, 0.5, 0.2], "target": [1.0, 0.5, 0.2], "samples": 2, **changes}
    ),
    "diagonal-network": lambda **changes: solvable.DiagonalNetwork([1.0], [1.0], [0.1], [0.1], **changes),
    "linear-network": lambda **changes: solvable.LinearNetwork(
        **{"singular_values": [3.0, 1.0], "width": 4, **changes}
    ),
    "scalar-network": lambda **changes: solvable.ScalarNetwork([0.1], [0.1], **changes),
    "skills": lambda **changes: solvable.SkillModel(**{"exponent": 0.6, "skills": 5, **changes}),
    "committee": lambda **changes: solvable.Committee(**{"samples_per_dimension": np.inf, **changes}),
    "feature-scaling": lambda **changes: solvable.FeatureScaling(
        **{"capacity": 1.5, "source": 0.5, "modes": 20, **changes}
    ),
    "parity-mode": lambda **changes: solvable.ParityMode(**changes),
}


def test_every_model_is_probed() -> None:
    assert set(SMALL) == set(models.names())


NUMBERS = [
    (name, field.name)
    for name in sorted(SMALL)
    for field in dataclasses.fields(models.get(name))
    if "rule" in field.metadata and not field.metadata["rule"].dimensions and not field.metadata["rule"].function
    if not isinstance(field.default, str)
]


@pytest.mark.parametrize(("name", "field"), NUMBERS)
@pytest.mark.parametrize("value", [1e200, -1e200, 1e308])
def test_numbers_whose_squares_overflow_are_refused(name: str, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field) as refused:
        SMALL[name](**{field: value})
    assert "\n" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "field"), NUMBERS)
@pytest.mark.parametrize("value", [1e-300, 1e-30, 1e30])
def test_extreme_numbers_are_answered_or_refused(name: str, field: str, value: float) -> None:
    """Finite curves or one line of words, never infinity or NaN without either."""
    words = ""
    try:
        found = SMALL[name](**{field: value}).predict([0, 1])
    except ValueError as refused:
        found, words = xr.Dataset(), str(refused)
    assert "\n" not in words
    for curve in found.data_vars.values():
        assert curve.dtype.kind != "f" or np.isfinite(curve.values).all(), curve.name
        if curve.name.endswith("_loss") and not curve.name.startswith("log"):
            assert (curve.values >= 0).all(), curve.name


def test_curves_beyond_the_range_of_float64_are_refused() -> None:
    """The loss is the square of 1e160: not a number, and not infinity without a word either."""
    model = solvable.LinearFeatures([1.0, 0.5], [1e160, 1.0])
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="beyond the range of float64") as refused:
        model.predict([0.0, 1.0])
    assert "bring target = 1e+160 nearer to 1" in str(refused.value)


def test_divergence_that_was_asked_for_is_kept() -> None:
    model, training = LinearEstimator(aspect_ratio=0.5), GradientDescent(100.0)
    with pytest.raises(ValueError, match="from which gradient descent is unstable"):
        model.simulate([1, 1000], training, dimension=10, seeds=2)
    found = model.simulate([1, 1000], training, dimension=10, seeds=2, on_divergence="keep")
    assert not np.isfinite(found.test_loss.values[:, -1]).all()


def test_growth_without_bound_is_infinite_and_no_error() -> None:
    found = solvable.ScalarNetwork([0.1], [-0.1], 1.0).predict([0.0, 1e6])
    assert re.match("inf", str(float(found.growth[-1])))
    assert np.isfinite(found.test_loss.values).all()
