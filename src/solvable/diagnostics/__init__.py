"""Diagnostics of a trained network: its last-layer features, its kernels, its training regime and its stability."""

from solvable.diagnostics.collapse import CollapseReport, collapse
from solvable.diagnostics.features import features
from solvable.diagnostics.kernel_measures import KernelChange, cka, kernel_alignment, kernel_change, spectrum
from solvable.diagnostics.kernels import feature_kernel, ntk
from solvable.diagnostics.laziness import LazinessReport, laziness, tangent_model
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.stability import stability
from solvable.diagnostics.stability_report import StabilityReport
from solvable.diagnostics.statistics import FeatureStatistics
from solvable.diagnostics.update_rule import UpdateRule

__all__ = [
    "CollapseReport",
    "FeatureReport",
    "FeatureStatistics",
    "KernelChange",
    "LazinessReport",
    "StabilityReport",
    "UpdateRule",
    "cka",
    "collapse",
    "feature_kernel",
    "features",
    "kernel_alignment",
    "kernel_change",
    "laziness",
    "ntk",
    "spectrum",
    "stability",
    "tangent_model",
]
