"""The committee: a two-layer network on a target of a few index fields, with the mean-field theory of its training."""

from solvable.models.committee.algorithm import Algorithm
from solvable.models.committee.model import Committee
from solvable.models.committee.protocol import System, Weights

__all__ = ["Algorithm", "Committee", "System", "Weights"]
