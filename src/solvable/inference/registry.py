"""Laws by name."""

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.law import Law
from solvable.inference.model_law import law_of_model

_BoxesOf = Mapping[str, tuple[float, float] | None] | None

# Where each law is made, loaded on first use.
_HOMES: dict[str, str] = {
    "broken-power-law": "solvable.inference.empirical_laws:BrokenPowerLaw",
    "power-law": "solvable.inference.empirical_laws:PowerLaw",
    "power-law-steps": "solvable.inference.empirical_laws:steps_power_law",
    "schedule": "solvable.inference.empirical_laws:ScheduleLaw",
}


def register_law(name: str, home: str) -> None:
    """Make a law known under a name, for ``infer(curves, model=name)`` and for reports that are read from files.

    Parameters
    ----------
    name
        Name of the law.
    home
        ``"package.module:maker"``, a class or function without arguments that returns the law.

    >>> from solvable.inference import register_law
    >>> register_law("mine", "my_package.laws:Mine")
    """
    _HOMES[name] = home


def law_names() -> list[str]:
    """The names that ``infer`` knows: registered laws, and models.

    >>> from solvable.inference import law_names
    >>> "feature-scaling" in law_names()
    True
    """
    from solvable import models

    return sorted({*_HOMES, "feature-scaling", "feature-scaling-lazy", *models.names()})


def find_law(model: Any, free: _BoxesOf = None) -> Law:
    """The law of a name, of a model, or the law itself.

    Parameters
    ----------
    model
        A name of :func:`law_names`, a :class:`Law`, or a model of the package.
    free
        For models: the free fields, each with the ends of its box or None.
    """
    from solvable import models
    from solvable.model import Model

    if isinstance(model, Law):
        return model
    if isinstance(model, Model):
        return law_of_model(model, free)
    if not isinstance(model, str):
        raise ValueError(f"model must be the name of a law, a Law or a model, not {model!r}: see law_names()")
    if model in _HOMES:
        module, _, maker = _HOMES[model].partition(":")
        return getattr(importlib.import_module(module), maker)()
    if model in ("feature-scaling", "feature-scaling-lazy"):
        return FeatureScalingLaw("rich" if model == "feature-scaling" else "lazy")
    if model == "skills":
        import math

        from solvable.models.skills import SkillModel

        return law_of_model(SkillModel(skills=math.inf), free)
    if model in models.names():
        return law_of_model(models.get(model)(), free)
    raise unknown_law(model)


def unknown_law(name: str, *others: str) -> ValueError:
    """The error for a name that is no law, with the nearest of the laws and of other names that are known."""
    known = sorted([*law_names(), *others])
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ValueError(f"there is no law {name!r}; {hint}known are {', '.join(known)}")
