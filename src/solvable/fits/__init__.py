"""Fits of curves, sweeps and tables of runs: exponents, power laws, envelopes, and scaling laws with their errors.

Exponents are defined by ``y = prefactor x^-exponent``, as in every model: they are positive if values fall.
"""

from solvable.fits.envelopes import envelope
from solvable.fits.power_laws import local_exponent, power_law, straight_window
from solvable.fits.scaling import scaling_law
from solvable.fits.scaling_report import ScalingLawReport

__all__ = ["ScalingLawReport", "envelope", "local_exponent", "power_law", "scaling_law", "straight_window"]
