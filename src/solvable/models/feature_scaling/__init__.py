"""Scaling laws of networks whose features learn (feature-scaling paper).

``model`` is the public class, ``labels`` the names of its variables and its part of the page. ``mode_quadrature`` turns
its parameters into weighted modes, ``optimiser`` a training into its update kernel. ``theory`` chooses the solver and
reads the curves off it: ``two_time`` and ``kernel_flow`` for steps, ``kernel_flow`` and ``slot_march`` for flows (with
``slot_rows``, ``slot_guess``, ``slot_noise`` and ``anderson``). ``exponents`` has the closed forms, ``compute`` the
optimum, ``calibration`` measures capacity and source of a given kernel, ``simulation`` trains the finite networks.
"""

from solvable.models.feature_scaling.calibration import fit_source_capacity
from solvable.models.feature_scaling.model import FeatureScaling

__all__ = ["FeatureScaling", "fit_source_capacity"]
