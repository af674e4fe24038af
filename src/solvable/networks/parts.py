"""What is in a network besides the arrays that are trained."""

from solvable.networks.mlp import Constant, trainable

__all__ = ["Constant", "Running", "trainable"]


class Running(Constant):
    """A number that training changes, but not the optimiser: a running mean of batches."""
