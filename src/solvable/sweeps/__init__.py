"""A grid of parameters becomes one stored, resumable dataset: on this machine or on a Dask cluster."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solvable.sweeps.cells import cell_key
    from solvable.sweeps.design import Design, product, zipped
    from solvable.sweeps.planning import Plan
    from solvable.sweeps.samples import latin_hypercube, sobol
    from solvable.sweeps.store import read_status as status
    from solvable.sweeps.sweeping import SweepWarning, load, plan, sweep

_HOME = {
    "Design": ("design", "Design"),
    "Plan": ("planning", "Plan"),
    "SweepWarning": ("sweeping", "SweepWarning"),
    "cell_key": ("cells", "cell_key"),
    "latin_hypercube": ("samples", "latin_hypercube"),
    "load": ("sweeping", "load"),
    "plan": ("sweeping", "plan"),
    "product": ("design", "product"),
    "sobol": ("samples", "sobol"),
    "status": ("store", "read_status"),
    "sweep": ("sweeping", "sweep"),
    "zipped": ("design", "zipped"),
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
    if name not in _HOME:
        raise AttributeError(f"module 'solvable.sweeps' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, attribute = _HOME[name]
    return getattr(importlib.import_module(f"solvable.sweeps.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
