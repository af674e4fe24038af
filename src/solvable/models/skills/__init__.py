"""The multilinear model of skills that are practised with power-law frequencies (layerwise thesis, chapters 4 and 5).

``model`` is the public class; ``dynamics`` how one skill is learned, ``totals`` the sums over all skills, ``scaling``
exponents, prefactors and the compute optimum, ``emergence`` the strengths after training, ``simulation`` the
finite-size runs, ``calibration`` fits to measured curves, ``checks`` what is refused.
"""

from solvable.models.skills.model import SkillModel

__all__ = ["SkillModel"]
