"""The committee: a two-layer network on a target of a few index fields, with the mean-field theory of its training."""

from solvable.models.committee.model import Committee

__all__ = ["Committee"]
