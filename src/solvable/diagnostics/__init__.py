"""Diagnostics of a trained network: the quality of its last-layer features, its kernels, and its training regime."""

from solvable.diagnostics.collapse import CollapseReport, collapse
from solvable.diagnostics.features import features
from solvable.diagnostics.kernel_measures import KernelChange, cka, kernel_alignment, kernel_change, spectrum
from solvable.diagnostics.kernels import feature_kernel, ntk
from solvable.diagnostics.laziness import LazinessReport, laziness, tangent_model
from solvable.diagnostics.report import FeatureReport
from solvable.diagnostics.statistics import FeatureStatistics

__all__ = [
    "CollapseReport",
    "FeatureReport",
    "FeatureStatistics",
    "KernelChange",
    "LazinessReport",
    "cka",
    "collapse",
    "feature_kernel",
    "features",
    "kernel_alignment",
    "kernel_change",
    "laziness",
    "ntk",
    "spectrum",
    "tangent_model",
]
