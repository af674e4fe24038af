"""Sweeps: a quantity of a model over many parameters, as one dataset, in memory or in a store that can be resumed."""

from solvable.sweeps.cells import cell_key
from solvable.sweeps.design import Design, latin_hypercube, product, sobol, zipped
from solvable.sweeps.planning import Plan
from solvable.sweeps.store import status
from solvable.sweeps.sweeping import SweepWarning, load, plan, sweep

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
