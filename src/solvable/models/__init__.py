"""The models, by name. Looking a name up loads its model; listing the names loads nothing."""

import difflib
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from solvable.models.base import Model

_HOMES: dict[str, tuple[str, str]] = {}
_ABILITIES: dict[str, tuple[str, ...]] = {}


def register(name: str, home: str, summary: str, abilities: tuple[str, ...] = ()) -> None:
    """Make a model known under ``name``. ``home`` is ``"package.module:Class"`` and is imported on first use.

    ``abilities`` names the methods beside ``predict`` and ``simulate`` that have a command of their own,
    ``grokking_time`` and ``phase_diagram``, so that commands can list the models that have them without loading any.

    >>> from solvable import models
    >>> models.register("skills", "mine:Mine", "a second one")
    Traceback (most recent call last):
        ...
    ValueError: a model named 'skills' is registered already, at solvable.models.skills:SkillModel: choose another name
    """
    if name in _HOMES and _HOMES[name][0] != home:
        raise ValueError(f"a model named {name!r} is registered already, at {_HOMES[name][0]}: choose another name")
    _HOMES[name] = (home, summary)
    _ABILITIES[name] = abilities


def names(ability: str | None = None) -> dict[str, str]:
    """Every registered name with its one-line summary; with an ``ability``, of the models that have it.

    >>> from solvable import models
    >>> sorted(models.names())[:3]
    ['committee', 'diagonal-network', 'feature-scaling']
    >>> list(models.names("grokking_time"))
    ['linear-estimator']
    """
    return {
        name: summary for name, (_, summary) in _HOMES.items() if ability is None or ability in _ABILITIES.get(name, ())
    }


def get(name: str) -> "type[Model]":
    """The model class registered under ``name``.

    >>> from solvable import models
    >>> models.get("skills").__name__
    'SkillModel'
    >>> models.get("skill")
    Traceback (most recent call last):
        ...
    ValueError: no model is named 'skill'; did you mean 'skills'?
    """
    if name not in _HOMES:
        close = difflib.get_close_matches(name, _HOMES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(_HOMES)}"
        raise ValueError(f"no model is named {name!r}; {hint}")
    module, _, attribute = _HOMES[name][0].partition(":")
    return getattr(importlib.import_module(module), attribute)


for _name, _home, _summary in (
    ("linear-estimator", "linear_estimator:LinearEstimator", "linear teacher-student regression that groks"),
    ("linear-features", "linear_features:LinearFeatures", "linear model in its eigenbasis: learnability, overfitting"),
    ("diagonal-network", "diagonal_network:DiagonalNetwork", "diagonal linear network: modes emerge one by one"),
    ("linear-network", "linear_network:LinearNetwork", "two linear layers: sequential modes, neural collapse"),
    ("scalar-network", "scalar_network:ScalarNetwork", "scalar linear network: rich and lazy, solved exactly"),
    ("skills", "skills:SkillModel", "skills of power-law frequency: scaling laws and emergence"),
    ("committee", "committee:Committee", "two-layer network on index fields: mean-field theory of grokking"),
    ("feature-scaling", "feature_scaling:FeatureScaling", "power-law features that learn: scaling laws"),
    ("parity-mode", "parity_mode:ParityMode", "small ReLU network that learns parity mode by mode"),
):
    _able = ("grokking_time", "phase_diagram") if _name == "linear-estimator" else ()
    register(_name, f"solvable.models.{_home}", _summary, _able)
