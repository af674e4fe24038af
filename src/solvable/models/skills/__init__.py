"""The multilinear model of skills that are practised with power-law frequencies (layerwise thesis, chapters 4 and 5).

``model`` has the public class, with its fields in ``parameters`` and its scaling laws in ``laws``. ``dynamics``
computes how one skill is learned, ``totals`` the sums over all skills (with ``tail_sums`` and ``binomial``),
``scaling`` exponents, prefactors and the compute optimum, ``emergence`` the strengths after training, ``simulation``
the finite-size runs, and ``calibration`` fits to measured curves. ``checks`` rejects invalid arguments.
"""

from solvable.models.skills.model import SkillModel

__all__ = ["SkillModel"]
