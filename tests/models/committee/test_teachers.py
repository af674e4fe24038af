"""Teachers of several index fields, taken one by one or as one vector."""

import jax.numpy as jnp
import numpy as np
from committees import classifier

from solvable import GradientDescent, solvers

FEW = solvers.Latent(samples=256, replicates=2)
THREE_CLASSES = {
    "loss": "softmax",
    "labels": "argmax",
    "readout": None,
    "gradient_readout": None,
    "class_readout": [[1.2, 0.1, -0.6], [-0.5, 1.0, 0.2], [-0.2, -0.8, 1.1]],
    "initial_overlap": np.eye(3),
    "initial_alignment": [[0.3, 0.0], [0.0, 0.2], [-0.2, 0.1]],
}


def test_scores_of_fields_one_by_one_are_those_of_the_vector():
    """A teacher that gives several scores was once taken for one that wants a vector, whatever its signature."""

    def by_fields(one, other):
        return jnp.stack([one, other, -one * other])

    def by_vector(fields):
        return jnp.stack([fields[0], fields[1], -fields[0] * fields[1]])

    one, other = (
        classifier(**THREE_CLASSES, teacher=teacher).predict([0, 2], GradientDescent(0.4), solver=FEW)
        for teacher in (by_fields, by_vector)
    )
    for name in one.data_vars:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    assert one.train_loss[1] < one.train_loss[0]
