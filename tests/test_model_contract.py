"""What every model keeps: validated parameters, shared names, units, provenance."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

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


SMALL: dict[str, Callable[..., Any]] = {
    "linear-estimator": lambda **changes: solvable.LinearEstimator(**{"aspect_ratio": 0.5, **changes}),
    "linear-features": lambda **changes: solvable.LinearFeatures(
        **{"intensities": [1.0, 0.5, 0.2], "target": [1.0, 0.5, 0.2], "samples": 2, **changes}
    ),
    "diagonal-network": lambda **changes: solvable.DiagonalNetwork(
        **{"variances": [1.0], "target_scales": [1.0], "first": [0.1], "second": [0.1], **changes}
    ),
    "linear-network": lambda **changes: solvable.LinearNetwork(
        **{"singular_values": [3.0, 1.0], "width": 4, **changes}
    ),
    "scalar-network": lambda **changes: solvable.ScalarNetwork(
        **{"first": [0.1], "second": [0.1], "target": 1.0, **changes}
    ),
    "skills": lambda **changes: solvable.SkillModel(**{"exponent": 0.6, "skills": 5, **changes}),
    "committee": lambda **changes: solvable.Committee(**{"samples_per_dimension": np.inf, **changes}),
    "feature-scaling": lambda **changes: solvable.FeatureScaling(
        **{"capacity": 1.5, "source": 0.5, "modes": 20, **changes}
    ),
    "parity-mode": lambda **changes: solvable.ParityMode(**changes),
}


@pytest.fixture
def float32() -> Iterator[None]:
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


def test_every_model_is_probed() -> None:
    assert set(SMALL) == set(models.names())


@pytest.mark.parametrize("name", sorted(SMALL))
@pytest.mark.parametrize("verb", ["predict", "simulate"])
def test_no_model_runs_in_float32_unasked(name: str, verb: str) -> None:
    """Both estimates of an error round alike in float32: it read 0.0 for curves that were wrong in the 7th digit."""
    model = SMALL[name]()
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(ValueError, match="JAX computes in float32 here.*jax.config.update"):
            getattr(model, verb)([0.0, 1.0])
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.usefixtures("float32")
@pytest.mark.parametrize(
    "summary",
    [
        lambda: solvable.LinearEstimator(0.5).grokking_time(),
        lambda: solvable.LinearEstimator(0.5).critical_weight_decay(),
        lambda: solvable.LinearEstimator(0.5).limits(),
        lambda: solvable.LinearFeatures([1.0, 0.5, 0.2], [1.0, 0.5, 0.2], samples=2).kappa,
        lambda: solvable.ScalarNetwork([0.1], [0.2], 1.0).kernel_ratio(),
        lambda: solvable.ScalarNetwork([0.1], [0.2], 1.0).distance_from_linear(),
        lambda: solvable.DiagonalNetwork([1.0], [1.0], [0.1], [0.1]).emergence_time(),
        lambda: solvable.LinearNetwork([3.0, 1.0]).emergence_time(),
        lambda: solvable.ParityMode().half_times(),
        lambda: solvable.SkillModel(0.6).exponents(),
        lambda: solvable.FeatureScaling(1.5, 0.5).limit(),
        lambda: solvable.Committee().early_alignment_rate(),
    ],
)
def test_no_summary_is_computed_in_float32(summary: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="JAX computes in float32 here"):
        summary()


NUMBERS = [
    (name, field.name)
    for name in sorted(SMALL)
    for field in dataclasses.fields(models.get(name))
    if "rule" in field.metadata and not field.metadata["rule"].dimensions and not field.metadata["rule"].function
    if not isinstance(field.default, str)
]


@pytest.mark.parametrize(("name", "field"), NUMBERS, ids="-".join)
@pytest.mark.parametrize("value", [1e200, -1e200, 1e308])
def test_numbers_whose_squares_overflow_are_refused(name: str, field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field) as refused:
        SMALL[name](**{field: value})
    assert "\n" not in str(refused.value)


def test_curves_beyond_the_range_of_float64_are_refused() -> None:
    """The loss is the square of a scale of 1e150 times another: no number, and no infinity without a word either."""
    model = solvable.LinearFeatures([1.0, 0.5], [1e160, 1.0])
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="beyond the range of float64") as refused:
        model.predict([0.0, 1.0])
    assert "bring target = 1e+160 nearer to 1" in str(refused.value)


def test_divergence_that_was_asked_for_is_shown() -> None:
    model = LinearEstimator(aspect_ratio=0.5, learning_rate=100.0)
    with pytest.raises(ValueError, match="the limit above which descent diverges"):
        model.simulate([1, 1000], inputs=10, seeds=2)
    found = model.simulate([1, 1000], inputs=10, seeds=2, allow_divergence=True)
    assert not np.isfinite(found.test_loss.values[:, -1]).all()


def test_growth_without_bound_is_infinite_and_no_error() -> None:
    found = solvable.ScalarNetwork([0.1], [-0.1], 1.0).predict([0.0, 1e6])
    assert re.match("inf", str(float(found.growth[-1])))
    assert np.isfinite(found.test_loss.values).all()
