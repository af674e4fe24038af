"""Every verb of every model with no options at all: it runs, and what it shows moves."""

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from solvable import FeatureScaling, Model, models
from solvable.cli import main
from solvable.ranges import parse_range
from solvable.settings import Setting
from solvable.training import Training

NAMES = list(models.names())
GROKKING = [name for name in NAMES if hasattr(models.get(name), "grokking_time")]


def _run(arguments: list[str]) -> int:
    """The command line in this process; its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code  # type: ignore[return-value]


def _curves(text: str) -> dict[str, np.ndarray]:
    """The variables of printed JSON over time, each as an array that begins with time."""
    data = json.loads(text)
    assert data["dims"]["time"] > 10
    found = {}
    for name, about in data["data_vars"].items():
        if "time" in about["dims"]:
            values = np.array(about["data"], dtype=float)
            found[name] = np.moveaxis(values, about["dims"].index("time"), 0)
    return found


def _assert_falls(losses: np.ndarray, factor: float = 3.0) -> None:
    """The curve is finite and falls by at least ``factor``, over more than a few of its times."""
    assert np.isfinite(losses).all()
    assert losses.min() < losses[0] / factor
    # Of the way down in the logarithm, no single step between two times is more than half.
    logarithms = np.log(np.maximum(losses, losses[0] * 1e-3))
    assert np.abs(np.diff(logarithms)).max() < 0.5 * (logarithms.max() - logarithms.min())


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_a_default(name: str) -> None:
    model = models.get(name)()
    assert model.replace() is not None
    # A page begins with the same setting, at the same times.
    page = Setting(name)
    for key, value in page.build().parameters().items():
        default = model.parameters()[key]
        assert np.array_equal(value, default) if isinstance(default, np.ndarray) else value == default
    assert page.text("times") == model.usual_times


@pytest.mark.parametrize("name", NAMES)
def test_models_choose_their_own_times(name: str) -> None:
    assert "usual_times" in vars(models.get(name))
    assert parse_range(models.get(name).usual_times).size > 10


def _remembered(method: Callable[..., xr.Dataset]) -> Callable[..., xr.Dataset]:
    """The method, which computes nothing twice: `compare` finds what `predict` and `simulate` have computed before.

    It does so only if it asks for the same model, times, training and options, which the test below counts.
    """
    known: dict[str, xr.Dataset] = {}

    @functools.wraps(method)
    def call(model: Model, times: np.ndarray, training: Training, **options: Any) -> xr.Dataset:
        asked = repr((model, times.tolist(), training, sorted(options.items())))
        if asked not in known:
            known[asked] = method(model, times, training, **options)
        call.computed = len(known)  # type: ignore[attr-defined]
        return known[asked]

    return call


# Simulations that take more than ten seconds have fewer runs than by default, unless slow tests are wanted.
FEWER_SEEDS = {"committee": ["--seeds", "3"], "linear-estimator": ["--seeds", "3"]}


@pytest.mark.parametrize("name", NAMES)
def test_verbs_run_without_options_and_show_something(
    name: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    kind = models.get(name)
    fewer = [] if pytestconfig.getoption("--slow") else FEWER_SEEDS.get(name, [])
    for verb in ("predict", "simulate"):
        monkeypatch.setattr(kind, verb, _remembered(getattr(kind, verb)))
    assert _run(["predict", name, "--json"]) == 0
    _assert_falls(_curves(capsys.readouterr().out)["test_loss"])

    assert _run(["simulate", name, "--json", *fewer]) == 0
    losses = _curves(capsys.readouterr().out)["test_loss"]
    _assert_falls(losses.reshape(losses.shape[0], -1).mean(1))

    picture = tmp_path / "compare.png"
    assert _run(["compare", name, "--json", "--plot", str(picture), *fewer]) == 0
    assert picture.stat().st_size > 10_000
    found = _curves(capsys.readouterr().out)
    # The simulation is that of the other verb, and so is theory, but for a size that the simulation gives it.
    assert kind.simulate.computed == 1  # type: ignore[attr-defined]
    assert kind.predict.computed == (2 if name == "linear-estimator" else 1)  # type: ignore[attr-defined]
    # Statistics are theory, simulation, ...: the two tell the same story, whatever the z-scores.
    theory, simulated = found["test_loss"][:, 0], found["test_loss"][:, 1]
    large = theory > 1e-2 * theory[0]
    assert np.abs(np.log(simulated[large] / theory[large])).max() < 1


@pytest.mark.parametrize("name", GROKKING)
def test_grokking_time_and_phase_diagram_run_without_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(["grokking-time", name, "--json"]) == 0
    times = json.loads(capsys.readouterr().out)["data_vars"]
    assert 0 < times["train_time"]["data"] < times["test_time"]["data"] / 2
    axes = ["--x", "aspect_ratio=0.5:1.2:3", "--y", "weight_decay=1e-5:1e-3:3log"]
    assert _run(["phase-diagram", name, "--json", *axes]) == 0
    reached = json.loads(capsys.readouterr().out)["data_vars"]["test_reached"]["data"]
    assert np.shape(reached) == (3, 3)
    assert np.unique(reached).size == 2


def test_the_defaults_show_what_the_models_are_about() -> None:
    # Grokking: test accuracy comes ten times later than training accuracy.
    grokking = models.get("linear-estimator")().grokking_time()
    assert float(grokking.test_time) > 5 * float(grokking.train_time)
    # Harmful overfitting: the test loss rises again while the training loss falls on.
    features = models.get("linear-features")()
    curve = features.predict(parse_range(features.usual_times))
    assert float(curve.test_loss[-1]) > 3 * float(curve.test_loss.min())
    assert float(curve.train_loss[-1]) < 1e-3 * float(curve.train_loss[0])
    # Stages: each mode is half learned before the next one begins to be.
    for name in ("diagonal-network", "linear-network"):
        network = models.get(name)()
        last = parse_range(network.usual_times)[-1]
        half = network.emergence_time(0.5).emergence_time.values
        assert (np.diff(half) > 0.5).all()
        assert half[-1] < last
    # Feature learning changes the power of a hard task, and the kernel grows visibly.
    scaling = models.get("feature-scaling")()
    assert scaling.phase() == "hard"
    assert float(scaling.predict([500]).kernel_growth[0]) > 2
    # Skills: the first and the last of them emerge within the times that are shown.
    skills = models.get("skills")()
    emergence = skills.emergence_time().emergence_time.values
    assert 1 < emergence[0] < emergence[-1] < parse_range(skills.usual_times)[-1]
    # A rich start: the kernel grows manyfold.
    assert float(models.get("scalar-network")().kernel_ratio().kernel_ratio) > 5


def test_theory_and_simulation_of_feature_scaling_have_the_same_modes() -> None:
    # Target modes beyond the 1000th hold 3 % of the loss at the start and most of it late: once they were not trained.
    model = FeatureScaling(source=0.3, modes=2000, features=4)
    runs = model.simulate([0], seeds=1)
    assert json.loads(runs.attrs["solver"])["modes"] == 2000
    ranks = np.arange(1.0, 2001)
    np.testing.assert_allclose(runs.test_loss.values[0, 0], (ranks ** (-1.5 * 0.3 - 1)).sum(), rtol=1e-12)
    np.testing.assert_allclose(model.predict([0]).test_loss.values[0], runs.test_loss.values[0, 0], rtol=1e-6)


def test_modes_that_cannot_be_those_of_theory_are_refused() -> None:
    with pytest.raises(ValueError, match=r"infinitely many modes cannot be trained: replace\(modes="):
        FeatureScaling(modes=math.inf).simulate([1])
    with pytest.raises(ValueError, match="modes = 100, but the model has 4000"):
        FeatureScaling(modes=4000).simulate([1], modes=100)
    with pytest.raises(ValueError, match="modes = 1, but the model has 2"):
        FeatureScaling(spectrum=[1.0, 0.5], target=[1.0, 1.0]).simulate([1], modes=1)
    # What is cut off an infinite power law on request is stated among the parameters.
    runs = FeatureScaling(modes=math.inf, features=4).simulate([1], modes=30, seeds=1)
    assert json.loads(runs.attrs["parameters"])["modes"] == 30


def test_a_simulation_without_chance_is_run_once_for_all_seeds() -> None:
    runs = FeatureScaling(modes=30).simulate([0, 5], seeds=3)
    assert runs.test_loss.shape == (3, 2)
    assert (runs.test_loss.values == runs.test_loss.values[0]).all()
    assert json.loads(runs.attrs["solver"])["runs"] == 1


def test_rounding_the_number_of_samples_is_stated_or_refused() -> None:
    runs = models.get("linear-estimator")().simulate([1], dimension=10, seeds=1)
    settings = json.loads(runs.attrs["solver"])
    assert settings["samples"] == 11
    assert settings["aspect_ratio"] == pytest.approx(10 / 11)
    # 10 inputs at aspect ratio 30 are a third of a sample; one sample has aspect ratio 10.
    with pytest.raises(ValueError, match="aspect_ratio = 30 with dimension = 10 asks for 0.333 samples"):
        models.get("linear-estimator")(aspect_ratio=30.0).simulate([1], dimension=10, seeds=1)
