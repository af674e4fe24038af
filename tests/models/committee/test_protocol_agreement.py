"""Theory against literal simulation: losses x batches x optimisers x activations, every order parameter, ten times.

Each setting is 60 datasets at D = 300, all variables judged by the project's one statistic with its false-alarm rate of
1e-5 each. Seeds are those of the setting, so that settings do not share their inputs.
"""

import zlib

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from committees import SIGNS, classifier

from solvable import SGD, GradientDescent, activations, solvers
from solvable.comparison import agreement
from solvable.papers.claims import FALSE_ALARMS

TIMES = np.array([1, 2, 3, 5, 8, 12, 16, 20, 26, 32])
REAL = {"loss": "squared", "labels": "teacher"}
THREE = {
    "loss": "softmax",
    "labels": "cluster",
    "readout": None,
    "gradient_readout": None,
    "class_readout": [[1.2, 0.1, -0.6], [-0.5, 1.0, 0.2], [-0.2, -0.8, 1.1]],
    "initial_overlap": np.eye(3),
    "initial_alignment": [[0.3, 0.0], [0.0, 0.2], [-0.2, 0.1]],
    "cluster_means": [[1.2, 0.0], [-0.6, 1.0], [-0.6, -1.0]],
}
TWO_FIELDS = {"initial_alignment": [[0.3, 0.1], [-0.1, 0.2]], "samples_per_dimension": 3.0}


def two_tanh(one, other):
    return (jnp.tanh(one) - jnp.tanh(other)) / np.sqrt(2)


def two_scores(one, other):
    return jnp.stack([one, other, -one * other])


SETTINGS = {
    "logistic, epochs, heavy ball, erf": ({}, SGD(0.6, batch_fraction=0.25, momentum=0.4)),
    "logistic of sigmoid labels, subsets, decoupled decay, erf": (
        {"labels": "sigmoid"},
        SGD(0.6, batch_fraction=0.25, sampling="subsets", momentum=0.4, weight_decay=0.1, decoupled=True),
    ),
    "logistic with flips, replacement, cosine, tanh": (
        {"label_flips": 0.1, "activation": activations.tanh},
        SGD(optax.cosine_decay_schedule(0.8, 32), batch_fraction=0.25, sampling="replacement"),
    ),
    "logistic, full batch, warm-up, ReLU": (
        {"activation": activations.relu},
        GradientDescent(optax.linear_schedule(0.1, 0.6, 10), momentum=0.3),
    ),
    "hinge with flips, epochs, erf": ({"loss": "hinge", "label_flips": 0.1}, SGD(0.5, batch_fraction=0.25)),
    "hinge, full batch, coupled decay, ReLU": (
        {"loss": "hinge", "activation": activations.relu},
        GradientDescent(0.4, momentum=0.3, weight_decay=0.1),
    ),
    "Huber with noise, subsets, Nesterov, erf": (
        {"loss": "huber", "huber_width": 0.6, "labels": "teacher", "label_noise": 0.4},
        SGD(0.4, batch_fraction=0.5, sampling="subsets", momentum=0.4, nesterov=True),
    ),
    "Huber with noise, full batch, clipping, tanh": (
        {"loss": "huber", "huber_width": 0.6, "labels": "teacher", "label_noise": 0.4, "activation": activations.tanh},
        GradientDescent(0.8, max_gradient_norm=0.3),
    ),
    "squared, cyclic, two index fields, ReLU": (
        {**REAL, **TWO_FIELDS, "activation": activations.relu, "teacher": two_tanh},
        SGD(0.5, batch_fraction=0.25, sampling="cyclic"),
    ),
    "squared with noise, replacement, moving average, quadratic": (
        {
            **REAL,
            "label_noise": 0.3,
            "activation": activations.quadratic(0.3),
            "readout": SIGNS,
            "gradient_readout": SIGNS,
        },
        SGD(0.3, batch_fraction=0.25, sampling="replacement", ema_decay=0.8),
    ),
    "squared with fresh noise, epochs, tail average, erf": (
        {**REAL, "label_noise": 0.4, "noise_draw": "fresh"},
        SGD(0.5, batch_fraction=0.25, average_from=5),
    ),
    "squared, unequal batches, Langevin noise, erf": (
        REAL,
        SGD(0.5, batch_fraction=3 / 8, temperature=0.02, weight_decay=0.05),
    ),
    "softmax of three clusters, full batch, heavy ball, tanh": (
        {**THREE, "activation": activations.tanh},
        GradientDescent(0.4, momentum=0.4),
    ),
    "softmax of three clusters, epochs, trained readout, ReLU": (
        {**THREE, "activation": activations.relu, "cluster_weights": [2.0, 1.0, 1.0]},
        SGD(0.4, batch_fraction=0.5, readout_learning_rate=0.1),
    ),
    "softmax of the largest of three scores, subsets, erf": (
        {**THREE, "labels": "argmax", "teacher": two_scores, "cluster_means": None},
        SGD(0.4, batch_fraction=0.5, sampling="subsets"),
    ),
    "mixture, logistic, subsets, unbalanced, erf": (
        {"labels": "cluster", "cluster_means": [[0.8], [-0.8]], "cluster_weights": [0.7, 0.3]},
        SGD(0.6, batch_fraction=0.25, sampling="subsets"),
    ),
    "mixture, squared, full batch, Nesterov, erf": (
        {"loss": "squared", "labels": "cluster", "cluster_means": [[1.0], [-1.0]]},
        GradientDescent(0.4, momentum=0.5, nesterov=True),
    ),
    "logistic, replacement, trained readout, erf": (
        {},
        SGD(0.5, batch_fraction=0.5, sampling="replacement", readout_learning_rate=0.2),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_theory_meets_simulation(name):
    changes, training = SETTINGS[name]
    model, key = classifier(**changes), zlib.crc32(name.encode()) % 10_000
    theory = model.predict(TIMES, training, solver=solvers.Latent(samples=8192), key=key)
    runs = model.simulate(TIMES, training, dimension=300, seeds=60, key=key)
    shared = [variable for variable in runs.data_vars if variable in theory]
    assert {"train_loss", "test_loss", "alignment", "overlap"} <= set(shared)
    for variable in shared:
        found = agreement(theory, runs, variable)
        assert found.p_value >= FALSE_ALARMS, (variable, found)


@pytest.mark.slow
def test_the_comparison_tells_the_ways_of_sampling_apart():
    model, training = classifier(**REAL), SGD(0.8, batch_fraction=0.25, sampling="epochs")
    runs = model.simulate(TIMES, training, dimension=300, seeds=60)
    for other in (training.replace(sampling="subsets"), training.replace(sampling="replacement"), GradientDescent(0.8)):
        theory = model.predict(TIMES, other, solver=solvers.Latent(samples=8192))
        assert agreement(theory, runs, "train_loss", allow_different=True).p_value < FALSE_ALARMS
