"""Solvers of the committee's mean-field theory: ``Committee.predict(times, training, solver=solvers.Response())``.

>>> import solvable
>>> committee = solvable.Committee(samples_per_dimension=2.0)
>>> coarse = solvable.solvers.Latent(samples=256, replicates=2)
>>> committee.predict([0, 4], solver=coarse).test_loss.shape
(2,)
"""

from solvable.models.committee.flow import Flow
from solvable.models.committee.latent import Latent
from solvable.models.committee.online import Online
from solvable.models.committee.response import FixedPoint, Response

__all__ = ["FixedPoint", "Flow", "Latent", "Online", "Response"]
