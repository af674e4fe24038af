"""Sweeps: a quantity of a model over many parameters, as one dataset, in memory or in a store that can be resumed."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvable.sweeps.cells import cell_key
    from solvable.sweeps.design import Design, latin_hypercube, product, sobol, zipped
    from solvable.sweeps.planning import Plan
    from solvable.sweeps.store import status
    from solvable.sweeps.sweeping import SweepWarning, load, plan, sweep

# Modules with public names. They are imported when a name is first used, because some need JAX.
_MODULES = {
    "design": ("Design", "latin_hypercube", "product", "sobol", "zipped"),
    "sweeping": ("SweepWarning", "load", "plan", "sweep"),
    "planning": ("Plan",),
    "cells": ("cell_key",),
    "store": ("status",),
}

__all__ = [
    "Design",
    "Plan",
    "SweepWarning",
    "cell_key",
    "latin_hypercube",
    "load",
    "plan",
    "product",
    "sobol",
    "status",
    "sweep",
    "zipped",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(f"solvable.sweeps.{module}"), name)
    raise AttributeError(f"module 'solvable.sweeps' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
