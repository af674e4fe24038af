"""Bad trainings from Python, each with words that its one-line ValueError must contain.

Constructors, schedules, trainings that a model does not cover, and sweeps over options of the training. The flags of
the command line are in ``inputs_cli.py``. Every call is refused before any work.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import optax
from inputs_models import (
    Case,
    committee,
    diagonal,
    estimator,
    features,
    linear,
    scalar,
    scaling,
    skills,
)

import solvable
from solvable import SGD, FeatureScaling, GradientDescent, GradientFlow, OptaxDescent, ParityMode

NAN, INF = math.nan, math.inf


def sgd(**changes: Any) -> SGD:
    return SGD(**{"learning_rate": 0.1, "batch_size": 5, **changes})


def descent(**changes: Any) -> GradientDescent:
    return GradientDescent(**{"learning_rate": 0.1, **changes})


CONSTRUCTORS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (GradientFlow, {"learning_rate": 0.0}, "learning_rate must be a positive finite number, not 0.0"),
    (GradientFlow, {"learning_rate": -1.0}, "learning_rate must be a positive finite number, not -1.0"),
    (GradientFlow, {"learning_rate": NAN}, "learning_rate must be a positive finite number, not nan"),
    (GradientFlow, {"learning_rate": INF}, "learning_rate must be a positive finite number, not inf"),
    (GradientFlow, {"learning_rate": None}, "learning_rate must be a positive finite number, not None"),
    (GradientFlow, {"learning_rate": "fast"}, "learning_rate must be a positive finite number, not 'fast'"),
    (GradientFlow, {"weight_decay": optax.constant_schedule(0.1)}, "not a schedule"),
    (GradientFlow, {"weight_decay": -1e-9}, "weight_decay must be a finite number, zero or more, not -1e-09"),
    (GradientFlow, {"weight_decay": optax.constant_schedule(0.1)}, "weight_decay must be a finite number"),
    (descent, {"learning_rate": 0}, "learning_rate must be a positive finite number, not 0"),
    (descent, {"learning_rate": True}, "not True"),
    (descent, {"learning_rate": [0.1, 0.2]}, "learning_rate must be a positive finite number"),
    (descent, {"learning_rate": np.array([0.1, 0.2])}, "one number, not an array of shape (2,)"),
    (descent, {"learning_rate": 1e200}, "learning_rate must be at most 1e+150 in size"),
    (descent, {"learning_rate": 1j}, "learning_rate"),
    (descent, {"momentum": 1.0}, "momentum must be a number from 0 up to, but not including, 1, not 1.0"),
    (descent, {"momentum": -0.1}, "momentum must be a number from 0"),
    (descent, {"momentum": NAN}, "momentum must be a number from 0"),
    (descent, {"nesterov": True}, "nesterov=True needs a momentum above 0"),
    (descent, {"nesterov": "yes", "momentum": 0.9}, "nesterov must be True or False, not 'yes'"),
    (descent, {"nesterov": 1, "momentum": 0.9}, "nesterov must be True or False, not 1"),
    (descent, {"weight_decay": INF}, "weight_decay must be a finite number, zero or more, not inf"),
    (descent, {"weight_decay": "some"}, "weight_decay must be a finite number, zero or more, not 'some'"),
    (SGD, {"learning_rate": 0.1}, "give batch_size, or batch_fraction, but not both"),
    (sgd, {"batch_fraction": 0.5}, "give batch_size, or batch_fraction, but not both"),
    (sgd, {"batch_size": 0}, "batch_size must be a whole number, 1 or more, or None, not 0"),
    (sgd, {"batch_size": -3}, "batch_size must be a whole number"),
    (sgd, {"batch_size": 2.5}, "batch_size must be a whole number, 1 or more, or None, not 2.5"),
    (sgd, {"batch_size": INF}, "batch_size must be a whole number"),
    (sgd, {"batch_size": "all"}, "batch_size must be a whole number, 1 or more, or None, not 'all'"),
    (sgd, {"batch_size": None, "batch_fraction": 0.0}, "batch_fraction must be a number above 0 and at most 1"),
    (sgd, {"batch_size": None, "batch_fraction": 1.5}, "batch_fraction must be a number above 0 and at most 1"),
    (sgd, {"batch_size": None, "batch_fraction": NAN}, "batch_fraction must be a number above 0"),
    (sgd, {"sampling": "sometimes"}, "sampling must be one of 'online', 'subsets'"),
    (sgd, {"sampling": 3}, "sampling must be one of 'online', 'subsets'"),
]

CALLS: list[tuple[str, Callable[[], Any], str]] = [
    (
        "replace what is not there",
        lambda: descent().replace(batch_size=3),
        "GradientDescent has no option 'batch_size'",
    ),
    ("replace by what is wrong", lambda: descent().replace(momentum=2.0), "momentum must be a number from 0"),
    # Trainings that are none.
    ("training a number", lambda: estimator().predict([1], 0.1), "training must be GradientFlow(...)"),
    ("training a name", lambda: estimator().simulate([1], "sgd"), "training must be GradientFlow(...)"),
    ("training a class", lambda: scalar().predict([1], GradientFlow), "write GradientFlow(...)"),
    ("training of optax", lambda: scalar().simulate([1], optax.sgd(0.1)), "training must be GradientFlow(...)"),
    # Schedules that break their rules at some step before the last time.
    (
        "negative rate",
        lambda: scalar().simulate([9], GradientDescent(optax.linear_schedule(0.1, -0.1, 8))),
        "its schedule gives -0.025 at step 5: change the schedule",
    ),
    (
        "rate that is no number",
        lambda: diagonal().simulate([9], GradientDescent(lambda step: NAN * step)),
        "learning_rate must be a finite number, zero or more at every step, but its schedule gives nan at step 0",
    ),
    (
        "batch that vanishes",
        lambda: sgd(batch_size=lambda step: 3 - step).check_schedules(9),
        "batch_size must be a whole number, 1 or more at every step, but its schedule gives 0 at step 3",
    ),
    # Times of another unit.
    ("half steps", lambda: scaling().predict([0.5]), "times count the steps of this training, but times[0] = 0.5"),
    ("half steps of runs", lambda: scalar().simulate([1.5], descent()), "or use GradientFlow"),
    # What theory or simulation does not cover, for each model.
    (
        "estimator decoupled",
        lambda: estimator().predict([1], descent(momentum=0.9, weight_decay=0.1, decoupled=True)),
        "the theory of linear-estimator does not cover decoupled=True; it covers GradientFlow with weight_decay",
    ),
    (
        "estimator online",
        lambda: estimator().predict([1], sgd(sampling="online")),
        "does not cover sampling='online'",
    ),
    (
        "estimator schedule",
        lambda: estimator().grokking_time(training=descent(learning_rate=optax.constant_schedule(0.1))),
        "grokking times: only for a constant learning rate without momentum",
    ),
    (
        "momentum scheduled beyond one",
        lambda: scaling().predict([10], descent(momentum=optax.constant_schedule(1.5))),
        "but its schedule gives 1.5 at step 0",
    ),
    (
        "momentum scheduled where theory has no schedule of it",
        lambda: estimator().predict([10], descent(momentum=optax.constant_schedule(0.5))),
        "the theory of linear-estimator does not cover a schedule of momentum",
    ),
    ("features descent", lambda: features().predict([1], descent()), "linear-features does not cover GradientDescent"),
    ("features run", lambda: features().simulate([1], descent()), "the simulation of linear-features does not cover"),
    ("diagonal decay", lambda: diagonal().predict([1], GradientFlow(weight_decay=0.1)), "simulate covers it."),
    ("diagonal batches", lambda: diagonal().predict([1], sgd()), "SGD; it covers GradientFlow with schedules"),
    (
        "momentum beyond the edge",
        lambda: scaling().predict([1], descent(learning_rate=3.9, momentum=0.9)),
        "learning_rate = 3.9 is not below 3.8",
    ),
    ("linear run", lambda: linear().simulate([1], sgd()), "the simulation of linear-network does not cover SGD"),
    ("scalar batches", lambda: scalar().simulate([1], sgd()), "The default is GradientFlow()."),
    ("skill batches", lambda: skills().predict([1], sgd()), "the theory of skills does not cover SGD"),
    (
        "skill steps of finite data",
        lambda: skills(samples=100).predict([1], descent()),
        "theory follows gradient descent on unlimited data",
    ),
    ("skill step times", lambda: skills().emergence_time(training=descent()), "this is for GradientFlow"),
    (
        "skill subsets",
        lambda: skills().simulate([1], sgd(sampling="subsets")),
        "(sampling 'online' or 'replacement')",
    ),
    ("committee flow", lambda: committee().simulate([1], GradientFlow()), "does not cover GradientFlow"),
    ("committee epochs", lambda: committee().predict([1], sgd(sampling="epochs")), "give batch_fraction"),
    (
        "scaling decay of a flow",
        lambda: scaling().predict([1], GradientFlow(weight_decay=0.1)),
        "does not cover weight_decay=0.1",
    ),
    (
        "scaling with Adam",
        lambda: scaling().predict([1], OptaxDescent(optax.adam(0.1))),
        "Adam, clipping and signs are not linear. simulate covers it",
    ),
    ("parity steps", lambda: ParityMode().predict([1], descent()), "the theory of parity-mode does not cover"),
    # Trainings that do not fit the sizes.
    ("batch without size", lambda: estimator().predict([1], sgd()), "SGD with a batch_size needs dimension"),
    ("no training set", lambda: scaling().predict([1], sgd(sampling="replacement")), "does not fit samples"),
    (
        "no fraction of nothing",
        lambda: scaling(features=4).predict([1], SGD(0.1, batch_fraction=0.5)),
        "batch_fraction needs a training set of finite size: give batch_size",
    ),
    ("noise stays", lambda: scaling(features=4).limit(sgd()), "batch noise does not die out"),
    ("noisy grokking", lambda: estimator().grokking_time(training=sgd()), "are for full batches"),
    # Rates at which the run would explode, refused before it begins.
    ("fast theory", lambda: estimator().predict([1], descent(learning_rate=9.0)), "learning_rate = 9"),
    ("fast steps", lambda: diagonal().simulate([1], descent(learning_rate=10.0)), "gradient descent is unstable"),
    ("fast skills", lambda: skills().simulate([1], descent(learning_rate=9.0)), "gradient descent is unstable"),
    ("fast scaling", lambda: scaling().predict([1], descent(learning_rate=2.0)), "learning_rate"),
    # Sweeps over options of the training.
    (
        "sweep a training option that is not there",
        lambda: solvable.sweep(estimator(), {"batch": [1, 2]}, "limit"),
        "has no parameter 'batch'",
    ),
    (
        "sweep momentum of a flow",
        lambda: solvable.sweep(features(), {"momentum": [0.1, 0.9]}, "predict", {"times": [1.0]}),
        "has no parameter 'momentum'",
    ),
    (
        "sweep a bad rate",
        lambda: solvable.sweep(estimator(), {"learning_rate": [0.1, -1.0]}, "limit"),
        "learning_rate must be a positive finite number",
    ),
    (
        "sweep trainings",
        lambda: solvable.sweep(estimator(), {"training": [GradientFlow(), descent()]}, "limit"),
        "a training cannot be swept: sweep its options",
    ),
    (
        "sweep with a training of no kind",
        lambda: solvable.sweep(estimator(), {"aspect_ratio": [0.1]}, "limit", training=0.1),
        "training must be GradientFlow(...)",
    ),
    (
        "sweep with the training among the options",
        lambda: solvable.sweep(estimator(), {"aspect_ratio": [0.1]}, "limit", {"training": descent()}),
        "pass it to the sweep, as training=...",
    ),
    (
        "sweep what has no training",
        lambda: solvable.sweep(features(), {"noise": [0.1]}, "limit", training=GradientFlow()),
        "takes no training: leave it out",
    ),
    (
        "sweep an uncovered training",
        lambda: solvable.sweep(
            FeatureScaling(1.5, 0.5),
            {"richness": [0.1]},
            "predict",
            {"times": [1]},
            training=GradientFlow(weight_decay=0.1),
        ),
        "does not cover weight_decay=0.1",
    ),
]


def _made(make: Callable[..., Any], changes: dict[str, Any]) -> Callable[[], Any]:
    return lambda: make(**changes)


INPUTS = [
    Case(f"training {number}: {make.__name__} {', '.join(changes)}", _made(make, changes), words)
    for number, (make, changes, words) in enumerate(CONSTRUCTORS)
] + [Case(*entry) for entry in CALLS]
