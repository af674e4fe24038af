"""The committee: a two-layer network on a task of a few index fields, with the mean-field theory of its descent."""

from solvable.models.committee.model import Committee

__all__ = ["Committee"]
