"""Solvers of the committee's mean-field theory: ``Committee.predict(times, solver=solvers.Flow())``."""

from solvable.models.committee.solvers import FixedPoint, Flow, Latent, Online, Response

__all__ = ["FixedPoint", "Flow", "Latent", "Online", "Response"]
