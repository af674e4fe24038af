"""Variables for the datasets of figures, each with a name for people, a unit and a symbol."""

from typing import Any

import numpy as np


def variable(
    dims: str | tuple[str, ...], values: Any, long_name: str, symbol: str = "", units: str = "1"
) -> tuple[str | tuple[str, ...], np.ndarray, dict[str, str]]:
    """A variable as ``xr.Dataset`` takes it. A single number has no dimensions, ``()``."""
    return dims, np.asarray(values), {"long_name": long_name, "units": units, "symbol": symbol}
