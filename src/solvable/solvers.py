"""Solvers of the committee's mean-field theory: ``Committee.predict(times, solver=solvers.Flow())``.

>>> import solvable
>>> committee = solvable.Committee(samples_per_dimension=2.0)
>>> coarse = solvable.solvers.Latent(samples=256, scrambles=2)
>>> committee.predict([0.0, 1.0], solver=coarse).test_loss.shape
(2,)
"""

from solvable.models.committee.solvers import FixedPoint, Flow, Latent, Online, Response

__all__ = ["FixedPoint", "Flow", "Latent", "Online", "Response"]
