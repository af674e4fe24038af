"""The models, by name. Looking a name up loads its model; listing the names loads nothing.

Other packages add models through the entry-point group ``solvable.models``, in their ``pyproject.toml``::

    [project.entry-points."solvable.models"]
    single-weight = "my_package.single_weight:SingleWeight"

Once such a package is installed, its models are available on the command line, in sweeps and on the page.
"""

import difflib
import importlib
import warnings
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvable.model import Model
    from solvable.models.contract import ContractError, check_model

__all__ = ["ContractError", "check_model", "get", "names", "register"]

ENTRY_POINTS = "solvable.models"
_HOMES: dict[str, tuple[str, str]] = {}
_ABILITIES: dict[str, tuple[str, ...]] = {}


def register(name: str, home: str, summary: str, abilities: tuple[str, ...] | None = None) -> None:
    """Make a model known under a name.

    Parameters
    ----------
    name
        Name of the model.
    home
        ``"package.module:Class"``, which is imported on first use.
    summary
        What the model is, in one line.
    abilities
        Methods beside ``predict`` and ``simulate`` that have a command of their own, ``grokking_time`` and
        ``phase_diagram``, so that commands can list the models that have them without loading any. Left out, the
        model is loaded when a command asks for them.

    >>> from solvable import models
    >>> models.register("skills", "mine:Mine", "a second one")
    Traceback (most recent call last):
        ...
    ValueError: a model named 'skills' is registered already, at solvable.models.skills:SkillModel: choose another name
    """
    if name in _HOMES and _HOMES[name][0] != home:
        raise ValueError(f"a model named {name!r} is registered already, at {_HOMES[name][0]}: choose another name")
    _HOMES[name] = (home, summary)
    if abilities is not None:
        _ABILITIES[name] = abilities


def names(ability: str | None = None) -> dict[str, str]:
    """Every registered name with its one-line summary; with an ``ability``, of the models that have it.

    Parameters
    ----------
    ability
        Name of a method; models without it are left out.

    >>> from solvable import models
    >>> sorted(models.names())[:3]
    ['committee', 'diagonal-network', 'feature-scaling']
    >>> list(models.names("grokking_time"))
    ['linear-estimator']
    """
    _discover()
    return {name: summary for name, (_, summary) in _HOMES.items() if ability is None or _has(name, ability)}


def _has(name: str, ability: str) -> bool:
    """Whether a model has a method; one that was registered without saying so is loaded and asked."""
    stated = _ABILITIES.get(name)
    if stated is not None:
        return ability in stated
    try:
        return hasattr(get(name), ability)
    except (ImportError, ValueError):
        return False


def get(name: str) -> "type[Model]":
    """The model class registered under ``name``.

    Parameters
    ----------
    name
        A registered name.

    >>> from solvable import models
    >>> models.get("skills").__name__
    'SkillModel'
    >>> models.get("skill")
    Traceback (most recent call last):
        ...
    ValueError: no model is named 'skill'; did you mean 'skills'?
    """
    if name not in names():
        close = difflib.get_close_matches(name, _HOMES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(_HOMES)}"
        raise ValueError(f"no model is named {name!r}; {hint}")
    home = _HOMES[name][0]
    module, _, attribute = home.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ImportError(f"the model {name!r} cannot be loaded from {home!r}: {error}") from error
    from solvable.model import Model

    if not (isinstance(found, type) and issubclass(found, Model)):
        raise ValueError(f"the model {name!r} must be a subclass of solvable.Model, but {home!r} is {found!r}")
    if found.name != name:
        raise ValueError(f"{home} is registered as {name!r} but has the name {found.name!r}: the two must be equal")
    return found


def __getattr__(name: str) -> Any:
    """The contract test, which is loaded on first use."""
    if name in ("ContractError", "check_model"):
        return getattr(importlib.import_module("solvable.models.contract"), name)
    raise AttributeError(f"module 'solvable.models' has no attribute {name!r}")


@cache
def _discover() -> None:
    """Register the models of other installed packages, once per process; none of them is imported."""
    for point in entry_points(group=ENTRY_POINTS):
        try:
            register(point.name, point.value, _summary_of(point))
        except ValueError as error:
            package = point.dist.name if point.dist else "another package"
            warnings.warn(f"a model of the package {package!r} is left out: {error}", stacklevel=2)


def _summary_of(point: EntryPoint) -> str:
    """The summary of the package: that of the model would have to be imported."""
    if point.dist is None:
        return f"from {point.module}"
    summary = point.dist.metadata.json.get("summary")
    return f"{summary} (package {point.dist.name})" if summary else f"from the package {point.dist.name}"


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
