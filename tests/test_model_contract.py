"""What every model keeps: validated parameters, shared names, units, provenance."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import solvable
from solvable import LinearEstimator, Model, models


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aspect_ratio": 0}, "aspect_ratio must be a positive finite number, not 0"),
        ({"aspect_ratio": -1.0}, "aspect_ratio must be a positive finite number, not -1.0"),
        ({"aspect_ratio": np.nan}, "aspect_ratio.*nan"),
        ({"aspect_ratio": np.inf}, "aspect_ratio.*inf"),
        ({"aspect_ratio": "0.9"}, "aspect_ratio.*'0.9'"),
        ({"aspect_ratio": True}, "aspect_ratio.*True"),
        ({"aspect_ratio": None}, "aspect_ratio.*None"),
        ({"aspect_ratio": [0.1, 0.2]}, "aspect_ratio"),
        ({"aspect_ratio": np.array([0.1, 0.2])}, "one number.*jax.vmap or phase_diagram"),
        ({"outputs": 0}, "outputs must be a whole number, 1 or more"),
        ({"outputs": 1.5}, "outputs must be a whole number"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"weight_decay": -1e-9}, "weight_decay must be a finite number, zero or more"),
        ({"threshold": 0.0}, "threshold"),
        ({"student_scale": np.inf}, "student_scale"),
        ({"label_noise": -0.1}, "label_noise"),
        ({"hidden": 0}, "hidden must be a whole number, 1 or more, or None"),
    ],
)
def test_impossible_parameters_are_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinearEstimator(**{"aspect_ratio": 0.9, **settings})


def test_models_are_frozen_values() -> None:
    model = LinearEstimator(aspect_ratio=np.float32(0.5), outputs=np.int64(3))
    assert model.outputs == 3
    assert type(model.aspect_ratio) is float
    assert repr(model).startswith("LinearEstimator(aspect_ratio=0.5, outputs=3, learning_rate=0.01")
    assert model == LinearEstimator(aspect_ratio=0.5, outputs=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.aspect_ratio = 1.0
    assert model.replace(outputs=4).outputs == 4
    with pytest.raises(ValueError, match="no parameter 'output'; it has aspect_ratio"):
        model.replace(output=4)
    with pytest.raises(ValueError, match="outputs must be"):
        model.replace(outputs=0)


def test_every_variable_says_what_it_is() -> None:
    model = LinearEstimator(aspect_ratio=0.5)
    datasets = [
        model.predict([1.0, 2.0]),
        model.simulate([1, 2], inputs=20, seeds=2),
        model.grokking_time(),
        model.phase_diagram(weight_decay=[0.0, 0.1]),
        model.late_time([1.0, 2.0]),
        model.limits(),
    ]
    for dataset in datasets:
        for name, variable in dataset.variables.items():
            assert variable.attrs["long_name"], name
            assert variable.attrs["units"] in ("1", "steps"), name
        assert dataset.attrs["model"] == "linear-estimator"
        assert json.loads(dataset.attrs["parameters"])["aspect_ratio"] == 0.5
        assert dataset.attrs["method"] in ("theory", "simulation", "asymptotic theory")
        assert dataset.attrs["version"] == solvable.__version__
        assert dataset.attrs["device"]
        assert dataset.attrs["seconds"] >= 0
    assert 0 <= datasets[0].attrs["numerical_error"] < 1e-11
    settings = json.loads(datasets[1].attrs["solver"])
    assert settings["samples"] == 40
    assert settings["key"] == 0
    assert datasets[1].test_loss.dims == ("seed", "time")


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
    losses = jax.vmap(lambda m: m.predict([100.0]).test_loss.data[0], in_axes=(0,))(stacked)
    single = [float(LinearEstimator(aspect_ratio=x).predict([100.0]).test_loss[0]) for x in (0.5, 0.9)]
    np.testing.assert_allclose(losses, single, rtol=1e-12)
