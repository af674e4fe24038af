"""Measures on anybody's network: what its last-layer features are worth, and which regime it is in.

The public names of the room are listed here, one line for each file that has any.
"""

from solvable.diagnostics.collapse import CollapseReport, collapse
from solvable.diagnostics.features import features
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.statistics import FeatureStatistics

__all__ = ["CollapseReport", "FeatureReport", "FeatureStatistics", "collapse", "features"]
