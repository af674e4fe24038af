"""Bad inputs for the models from Python, each with words that its one-line ValueError must contain.

Used by one parametrised test. Every call is refused before any work, so that each takes a fraction of a second.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

import solvable
from solvable import (
    Committee,
    DiagonalNetwork,
    FeatureScaling,
    GradientFlow,
    LinearEstimator,
    LinearFeatures,
    LinearNetwork,
    ParityMode,
    ScalarNetwork,
    SkillModel,
    models,
)

NAN, INF = math.nan, math.inf


class Case(NamedTuple):
    """A call that must raise a ValueError of one line, which contains the words."""

    name: str
    call: Callable[[], Any]
    words: str


def estimator(**changes: Any) -> LinearEstimator:
    return LinearEstimator(**{"aspect_ratio": 0.9, **changes})


def features(**changes: Any) -> LinearFeatures:
    return LinearFeatures(**{"intensities": [1.0, 0.5, 0.2], "target": [1.0, 0.5, 0.2], "samples": 2, **changes})


def diagonal(**changes: Any) -> DiagonalNetwork:
    layers = {"initial_first": [0.1, 0.2], "initial_second": [0.1, 0.2]}
    return DiagonalNetwork(**{"variances": [1.0, 0.5], "target_scales": [1.0, 0.7], **layers, **changes})


def linear(**changes: Any) -> LinearNetwork:
    return LinearNetwork(**{"singular_values": [3.0, 1.0], "width": 4, **changes})


def scalar(**changes: Any) -> ScalarNetwork:
    return ScalarNetwork(**{"initial_first": [0.1, 0.2], "initial_second": [0.1, 0.3], "target": 1.0, **changes})


def skills(**changes: Any) -> SkillModel:
    return SkillModel(**{"exponent": 0.6, "skills": 5, **changes})


def scaling(**changes: Any) -> FeatureScaling:
    return FeatureScaling(**{"capacity": 1.5, "source": 0.5, "modes": 20, **changes})


@cache
def committee() -> Committee:
    """Building one compiles its activation: once is enough."""
    return Committee()


def _built(make: Callable[..., Any], changes: dict[str, Any]) -> Callable[[], Any]:
    return lambda: make(**changes)


# Parameters: the model, one change, and what the message says.
PARAMETERS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (estimator, {"aspect_ratio": 0.0}, "aspect_ratio must be a positive finite number, not 0.0"),
    (estimator, {"aspect_ratio": -0.5}, "aspect_ratio must be a positive finite number, not -0.5"),
    (estimator, {"aspect_ratio": NAN}, "aspect_ratio must be a positive finite number, not nan"),
    (estimator, {"aspect_ratio": INF}, "aspect_ratio must be a positive finite number, not inf"),
    (estimator, {"aspect_ratio": "0.9"}, "aspect_ratio must be a positive finite number, not '0.9'"),
    (estimator, {"aspect_ratio": None}, "aspect_ratio must be a positive finite number, not None"),
    (estimator, {"aspect_ratio": True}, "not True"),
    (estimator, {"aspect_ratio": 1j}, "aspect_ratio"),
    (estimator, {"aspect_ratio": [0.5]}, "aspect_ratio"),
    (estimator, {"aspect_ratio": np.array([0.5, 0.9])}, "one number, not an array of shape (2,)"),
    (estimator, {"outputs": 0}, "outputs must be a whole number, 1 or more, not 0"),
    (estimator, {"outputs": 1.5}, "outputs must be a whole number, 1 or more, not 1.5"),
    (estimator, {"outputs": -3}, "outputs must be a whole number"),
    (estimator, {"threshold": 0.0}, "threshold must be a positive finite number"),
    (estimator, {"initial_scale": 1e200}, "initial_scale must be at most 1e+150 in size, not 1e+200"),
    (estimator, {"initial_scale": -1.0}, "initial_scale"),
    (estimator, {"label_noise": NAN}, "label_noise must be a finite number, zero or more, not nan"),
    (estimator, {"label_noise": 1e308}, "label_noise must be at most 1e+150"),
    (estimator, {"width": 0}, "width must be a whole number, 1 or more, or None, not 0"),
    (estimator, {"width": 2.5}, "width must be a whole number"),
    (features, {"intensities": []}, "intensities must be"),
    (features, {"intensities": [[1.0, 0.5, 0.2]]}, "intensities must be"),
    (features, {"intensities": [1.0, -0.5, 0.2]}, "intensities[1] = -0.5"),
    (features, {"intensities": [1.0, NAN, 0.2]}, "intensities[1] = nan"),
    (features, {"intensities": [0.0, 0.0, 0.0]}, "at least one of the intensities must be positive"),
    (features, {"intensities": "many"}, "intensities must be"),
    (features, {"target": [1.0, 0.5]}, "one coefficient for each intensity, not 2 for 3"),
    (features, {"target": [1.0, INF, 0.2]}, "target[1] = inf"),
    (features, {"samples": 0}, "samples must be a whole number, 1 or more, or inf, not 0"),
    (features, {"samples": 2.5}, "samples must be a whole number"),
    (features, {"samples": "2"}, "samples must be"),
    (features, {"noise": -0.1}, "noise must be a finite number, zero or more"),
    (features, {"noise": 1e200}, "noise must be at most 1e+150"),
    (diagonal, {"variances": [1.0, 0.0]}, "variances[1] = 0"),
    (diagonal, {"variances": [1.0]}, "the lists must be equally long"),
    (diagonal, {"variances": [1.0, 1e80]}, "between 1e-70 and 1e+70"),
    (diagonal, {"target_scales": [1.0, NAN]}, "target_scales[1] = nan"),
    (diagonal, {"initial_first": 0.1}, "initial_first must be a list of finite numbers"),
    (diagonal, {"initial_second": ["a", "b"]}, "initial_second must be a list of finite numbers"),
    (diagonal, {"initial_first": [1e-80, 0.1]}, "change the units"),
    (linear, {"correlation": np.eye(2)}, "give either singular_values or correlation, not both"),
    (linear, {"singular_values": [3.0, -1.0]}, "singular_values[1] = -1"),
    (linear, {"singular_values": [INF]}, "singular_values[0] = inf"),
    (linear, {"width": 0}, "width must be a whole number"),
    (linear, {"initial_scale": 0.0}, "initial_scale must be a positive finite number"),
    (linear, {"singular_values": None, "correlation": [1.0, 2.0]}, "correlation must be a matrix"),
    (scalar, {"initial_second": [0.1]}, "equally long"),
    (scalar, {"initial_first": [[0.1, 0.2]]}, "initial_first must be a list of finite numbers"),
    (scalar, {"target": NAN}, "target must be a finite number, not nan"),
    (scalar, {"target": "one"}, "target must be a finite number"),
    (scalar, {"output_scale": 0.0}, "output_scale must be a positive finite number"),
    (scalar, {"input_power": -1.0}, "input_power must be a positive finite number"),
    (scalar, {"target": 1e90}, "between 1e-70 and 1e+70"),
    (skills, {"exponent": 0.0}, "exponent must be a positive finite number"),
    (skills, {"exponent": INF}, "exponent must be a positive finite number, not inf"),
    (skills, {"skills": 0.5}, "skills must be a whole number, 1 or more, or inf, not 0.5"),
    (skills, {"skills": NAN}, "skills must be a whole number"),
    (skills, {"target_scale": -1.0}, "target_scale must be a positive finite number"),
    (skills, {"initial_strength": 2.0}, "initial_strength must lie between 0 and target_scale = 1"),
    (skills, {"initial_strength": 0.0}, "initial_strength must be a positive finite number"),
    (skills, {"basis": 0}, "basis must be a whole number"),
    (skills, {"samples": -5}, "samples must be a whole number"),
    (skills, {"kind": "cubic"}, "one of multilinear, linear"),
    (skills, {"rate": 0}, "rate must be a positive finite number"),
    (skills, {"shots": 1.5}, "shots must be a whole number"),
    (skills, {"neurons_per_skill": 0}, "neurons_per_skill must be a whole number"),
    (Committee, {"samples_per_dimension": 0.0}, "samples_per_dimension must be a positive number, or inf"),
    (Committee, {"samples_per_dimension": -2.0}, "samples_per_dimension"),
    (Committee, {"activation": "sigmoidal"}, "sigmoidal"),
    (Committee, {"activation": 3}, "activation"),
    (Committee, {"teacher": "cubical"}, "cubical"),
    (Committee, {"output_scale": 0.0}, "output_scale must be a positive finite number"),
    (Committee, {"initial_overlap": [[1.0, 2.0], [2.0, 1.0]]}, "initial_overlap must be positive semidefinite"),
    (Committee, {"initial_overlap": [[1.0, 0.2], [0.3, 1.0]]}, "initial_overlap must be symmetric"),
    (Committee, {"initial_overlap": [[1.0, 0.2, 0.1], [0.2, 1.0, 0.1]]}, "initial_overlap must be square"),
    (Committee, {"initial_alignment": [[0.3]]}, "one row per neuron"),
    (Committee, {"initial_alignment": [[2.0], [0.1]]}, "lower initial_alignment"),
    (Committee, {"readout": [1.0]}, "readout must have one number per neuron, 2 in all, not 1"),
    (Committee, {"gradient_readout": [1.0, NAN]}, "gradient_readout[1] = nan"),
    (scaling, {"capacity": 1.0}, "capacity must be a finite number above 1"),
    (scaling, {"source": 0.0}, "source must be a positive finite number"),
    (scaling, {"source": 1e30}, "capacity * source must lie between 1e-9 and 1000"),
    (scaling, {"source": 1e-30}, "change source"),
    (scaling, {"features": 0}, "features must be a whole number, 1 or more, or inf"),
    (scaling, {"richness": -1.0}, "richness must be a finite number, zero or more"),
    (scaling, {"modes": 0}, "modes must be a whole number"),
    (scaling, {"samples": 0}, "samples must be a whole number"),
    (scaling, {"spectrum": [1.0, 0.5]}, "spectrum and target belong together"),
    (scaling, {"spectrum": [1.0], "target": [1.0]}, "a spectrum says it all"),
    (FeatureScaling, {"spectrum": [1.0, 0.5], "target": [1.0]}, "one entry for each of the 2 eigenvalues"),
    (FeatureScaling, {"spectrum": [1.0, 0.5], "target": [0.0, 0.0]}, "target is zero"),
    (FeatureScaling, {"spectrum": [1.0, -0.5], "target": [1.0, 1.0]}, "spectrum[1] = -0.5"),
    (ParityMode, {"target_scale": 0.0}, "target_scale must be a positive finite number"),
    (ParityMode, {"initial_first": -0.1}, "initial_first must be a positive finite number"),
    (ParityMode, {"initial_offset": INF}, "initial_offset must be a finite number, not inf"),
    (ParityMode, {"loss": "hinge"}, "one of half_mean, mean, half_sum"),
]

TIMES: list[tuple[Any, str]] = [
    ([], "times is empty"),
    ([2.0, 1.0], "times must increase, but times[0] = 2 is followed by 1"),
    ([1.0, 1.0], "remove duplicates"),
    ([-1.0], "times must be not negative"),
    ([1.0, NAN], "times must be finite, but times[1] = nan"),
    ([INF], "times must be finite"),
    ([[1.0, 2.0]], "one-dimensional"),
    ("soon", "made of strings"),
    (["1"], "made of strings"),
    ([1 + 1j], "made of complex numbers"),
    (np.array(["2024-01-01"], dtype="datetime64[D]"), "made of dates"),
    (np.array([1], dtype="timedelta64[s]"), "made of durations"),
    (np.ma.array([1.0, 2.0], mask=[True, False]), "times[0] is masked"),
    ([True], "made of truth values"),
    (None, "times must be finite"),
    ({"a": 1}, "times must be numbers"),
]

# Calls of the verbs and of the summaries.
VERBS: list[tuple[str, Callable[[], Any], str]] = [
    ("half a step", lambda: estimator().predict([0.5]), "times count the steps of this training"),
    ("inputs", lambda: estimator().predict([1], dimension=0), "dimension must be a whole number, 1 or more, not 0"),
    ("narrow", lambda: estimator(outputs=5, width=2).predict([1]), "theory needs width >= outputs"),
    ("accuracy", lambda: estimator().grokking_time(accuracy=1.0), "accuracy must lie between 0 and 1"),
    ("accuracy nan", lambda: estimator().grokking_time(accuracy=NAN), "accuracy must lie between 0 and 1"),
    ("no axis", lambda: estimator().phase_diagram(), "needs at least one axis"),
    ("axis", lambda: estimator().phase_diagram(weight_decays=[0.1]), "no axis 'weight_decays'"),
    ("axis value", lambda: estimator().phase_diagram(weight_decay=[-1.0]), "weight_decay must be a finite number"),
    ("empty axis", lambda: estimator().phase_diagram(weight_decay=[]), "axis weight_decay must be a flat, non-empty"),
    ("width axis", lambda: estimator().phase_diagram(width=[2, 3]), "width cannot be an axis"),
    ("noisy limit", lambda: estimator(label_noise=0.1).critical_weight_decay(), "label_noise = 0.1"),
    ("late noise", lambda: estimator(label_noise=0.1).late_time([1.0]), "late-time forms exist for label_noise = 0"),
    ("seeds", lambda: estimator().simulate([1], seeds=0), "seeds must be a whole number, 1 or more, not 0"),
    ("key", lambda: estimator().simulate([1], key=-1), "key must be a whole number, 0 or more, not -1"),
    (
        "key of JAX",
        lambda: estimator().simulate([1], key=jax.random.key(0)),
        "key must be a whole number, 0 or more, not",
    ),
    ("run solver", lambda: estimator().simulate([1], solver="magic"), "solver must be one of"),
    ("activation", lambda: estimator().simulate([1], activation="relu"), "an activation needs a hidden layer"),
    ("activation name", lambda: estimator(width=3).simulate([1], activation="step"), "activation must be one of"),
    ("days of steps", lambda: estimator().simulate([1e9], solver="steps", dimension=100), "ask for earlier times"),
    ("replace", lambda: estimator().replace(ratio=1.0), "LinearEstimator has no parameter 'ratio'"),
    ("modes", lambda: features().predict([1.0], modes=0), "modes must be a whole number, 1 or more, not 0"),
    ("no limit", lambda: features(samples=3).limit(), "with samples = 3, the number of modes"),
    ("no kappa", lambda: features(samples=None).kappa, "kappa needs a finite number of samples"),
    ("fraction", lambda: features().phases(fraction=1.0), "fraction must lie between 0 and 1"),
    ("no signal", lambda: features(target=[0.0, 0.0, 0.0]).phases(), "there is no signal"),
    ("no samples", lambda: features(samples=None).simulate([1.0]), "simulate needs a finite number of samples"),
    ("feature kind", lambda: features().simulate([1.0], features="cosine"), "features must be one of"),
    ("sigmoid", lambda: diagonal(initial_first=[2.0, 2.0], initial_second=[2.0, 2.0]).sigmoid([1.0]), "use predict"),
    ("emergence", lambda: diagonal().emergence_time(fraction=0.0), "fraction must lie between 0 and 1"),
    ("saturation", lambda: diagonal().saturation_time(fraction=0.5), "fraction must lie between 0 and 0.5"),
    ("no target", lambda: diagonal(target_scales=[1.0, 0.0]).emergence_time(), "target_scales[1] is 0"),
    ("one stage", lambda: DiagonalNetwork([1.0], [1.0], [0.1], [0.1]).stage_overlap(), "at least 2 modes"),
    ("balanced", lambda: DiagonalNetwork.balanced([1.0], [1.0], 2.0), "strictly between 0 and the target"),
    ("samples", lambda: diagonal().simulate([1.0], samples=0), "samples must be a whole number"),
    ("years", lambda: diagonal().simulate([1e12]), "years, longer than 6 hours"),
    ("network fraction", lambda: linear().emergence_time(fraction=0.0), "fraction must lie between 0 and 1"),
    ("start", lambda: linear().simulate([1.0], initial="warm"), "initial must be one of"),
    ("tolerance", lambda: linear().simulate([1.0], tolerance=0.0), "tolerance must lie between 0 and 1"),
    ("not white", lambda: LinearNetwork.from_data(np.ones((4, 2)), np.ones(4)), "inputs must be whitened"),
    ("rows", lambda: LinearNetwork.from_data(np.ones((4, 2)), np.ones(3)), "one row for each sample"),
    ("way", lambda: scalar().richer("magic", 2.0), "way must be one of"),
    ("factor", lambda: scalar().richer("target", 0.5), "factor must be a finite number, 1 or more"),
    ("negative target", lambda: scalar(target=-1.0).richer("target", 2.0), "for a positive target, not for -1"),
    ("scale", lambda: ScalarNetwork.small(10, scale=2.0), "scale must lie between 0 and 1"),
    ("width", lambda: ScalarNetwork.small(0), "width must be a whole number"),
    ("odd width", lambda: ScalarNetwork.target_downscaled(3), "width must be even"),
    (
        "no kernel",
        lambda: scalar(initial_first=[0.0, 0.0], initial_second=[0.0, 0.0]).kernel_ratio(),
        "give layers that are not",
    ),
    ("max_skills", lambda: skills().predict([1.0], max_skills=6), "max_skills = 6, but there are only 5"),
    ("skill fraction", lambda: skills().emergence_time(fraction=1.0), "fraction must lie between 0 and 1"),
    ("random times", lambda: skills(samples=10).emergence_time(), "with finite samples times are random"),
    ("shots in time", lambda: skills(samples=10, shots=2).predict([1.0]), "solved for shots = 1, not 2"),
    ("infinite run", lambda: skills(skills=INF).simulate([1]), "infinitely many skills cannot be simulated"),
    ("counts", lambda: skills().data_emergence([1.5]), "samples must be whole numbers"),
    ("counts fall", lambda: skills().data_emergence([3, 2]), "samples must increase"),
    ("finite skills", lambda: skills().prefactors(), "unlimited skills"),
    ("budget", lambda: skills(skills=INF).compute_optimal([0.1]), "budgets must be at least"),
    ("law start", lambda: skills().corrected_time_law([1.0], start=0.0), "start must be a positive finite time"),
    ("skill", lambda: skills().calibrate([1, 2, 3, 4], [0.1, 0.2, 0.3, 0.4], skill=9), "there are only 5 skills"),
    ("solver", lambda: committee().predict([1], solver="guess"), "solver must be one of"),
    ("solver object", lambda: committee().predict([1], solver=3), "solver must be one of solvable.solvers"),
    ("part of a step", lambda: committee().predict([0.5]), "times count the steps"),
    ("committee accuracy", lambda: committee().predict([2], accuracy=2.0), "accuracy must lie between 0 and 1"),
    ("committee key", lambda: committee().predict([2], key=-1), "key must be a whole number, 0 or more"),
    ("days", lambda: committee().predict([4e6]), "ask for earlier times, or for gradient flow"),
    ("dimension", lambda: committee().simulate([2], dimension=0), "dimension must be a whole number"),
    ("dtype", lambda: committee().simulate([2], dtype="float16"), "dtype must be one of"),
    ("form", lambda: committee().simulate([2], form="round"), "form must be one of"),
    ("kernel", lambda: committee().kernel(np.ones((2, 3)), np.ones((2, 4))), "must share their last axis"),
    ("solver samples", lambda: solvable.solvers.Latent(samples=2), "samples must be a whole number, 16 or more"),
    ("solver ratio", lambda: solvable.solvers.Flow(ratio=3.0), "ratio must lie between 1 and 2"),
    (
        "two times",
        lambda: scaling().predict([1.0], GradientFlow(), correlations=True),
        "correlations and exact_batch are for the march",
    ),
    ("new batches", lambda: scaling().predict([1], exact_batch=True), "exact_batch is for batches of new samples"),
    ("per decade", lambda: scaling().predict([1], per_decade=1), "per_decade must be a whole number, 4 or more"),
    ("too late", lambda: scaling().predict([1e61], GradientFlow()), "times must be at most 1e+60"),
    ("no power law", lambda: FeatureScaling(spectrum=[1.0], target=[1.0]).exponents(), "fit_source_capacity"),
    ("lazy spike", lambda: scaling(richness=0.0).simulate_linear_network([1]), "needs richness > 0"),
    ("sources", lambda: scaling().phase_map([1.5], [-1.0]), "sources must be positive finite numbers"),
    ("integration", lambda: ParityMode().predict([1.0], tolerance=0.5), "tolerance must lie between"),
    ("no such model", lambda: models.get("linear-estimater"), "did you mean 'linear-estimator'"),
    ("registered", lambda: models.register("skills", "mine:Mine", "a second"), "registered already"),
]


@cache
def _theory() -> xr.Dataset:
    return xr.Dataset({"test_loss": ("time", [1.0, 2.0])}, {"time": [0.0, 1.0]})


def _simulation(seeds: int = 3, name: str = "test_loss", last: float = 1.0) -> xr.Dataset:
    return xr.Dataset({name: (("seed", "time"), np.ones((seeds, 2)))}, {"time": [0.0, last], "seed": range(seeds)})


COMPARISONS: list[tuple[str, Callable[[], Any], str]] = [
    ("compare the wrong way", lambda: solvable.compare(_simulation(), _theory()), "pass theory first"),
    ("compare theories", lambda: solvable.compare(_theory(), _theory()), "pass theory first, simulation second"),
    ("compare one seed", lambda: solvable.compare(_theory(), _simulation(seeds=1)), "at least 2 seeds, not 1"),
    ("compare nothing", lambda: solvable.compare(_theory(), _simulation(name="other")), "nothing to compare"),
    ("compare times", lambda: solvable.compare(_theory(), _simulation(last=2.0)), "different values of 'time'"),
]

SWEEPS: list[tuple[str, Callable[[], Any], str]] = [
    ("sweep nothing", lambda: solvable.sweep(estimator(), {}), "at least one parameter"),
    ("sweep a number", lambda: solvable.sweep(estimator(), 3), "over must be a mapping"),
    ("sweep no values", lambda: solvable.sweep(estimator(), {"weight_decay": []}), "at least one value"),
    ("sweep one value", lambda: solvable.sweep(estimator(), {"weight_decay": 0.1}), "must be a list of values"),
    (
        "sweep twice",
        lambda: solvable.sweep(estimator(), {"weight_decay": [0.1, 0.1]}, "grokking_time"),
        "appears twice",
    ),
    (
        "sweep what is not there",
        lambda: solvable.sweep(estimator(), {"weight_decay": [0.1]}, "grok_time"),
        "has no quantity 'grok_time'",
    ),
    (
        "sweep an option that is not there",
        lambda: solvable.sweep(estimator(), {"weight_decay": [0.1]}, "grokking_time", {"speed": 1}),
        "has no option 'speed'",
    ),
    (
        "sweep without times",
        lambda: solvable.sweep(estimator(), {"weight_decay": [0.1]}),
        "predict of linear-estimator needs times",
    ),
    (
        "sweep engine",
        lambda: solvable.sweep(estimator(), {"weight_decay": [0.1]}, "grokking_time", engine="magic"),
        "engine must be one of",
    ),
    (
        "sweep store",
        lambda: solvable.sweep(estimator(), {"weight_decay": [0.1]}, "grokking_time", store="x.csv"),
        "must end in .zarr",
    ),
]


def _told(changes: dict[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in changes.items()).replace("\n", "")[:80]


def _cases() -> list[Case]:
    found = [
        Case(f"{make.__name__} {_told(changes)}", _built(make, changes), words) for make, changes, words in PARAMETERS
    ]
    # Each of the bad times goes to another model, so that all nine are asked.
    asked: list[Callable[[], Any]] = [estimator, features, diagonal, linear, scalar, skills, scaling, ParityMode]
    for number, (times, words) in enumerate(TIMES):
        make = asked[number % len(asked)]
        call = (lambda make=make, times=times: make().predict(times)) if number % 2 else None
        call = call or (lambda make=make, times=times: make().simulate(times))
        found.append(Case(f"times {number} of {make.__name__}", call, words))
    found += [Case(*entry) for entry in VERBS + COMPARISONS + SWEEPS]
    return found


INPUTS: list[Case] = _cases()
