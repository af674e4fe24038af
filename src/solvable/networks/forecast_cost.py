"""What a forecast costs, before it is made: operations counted, over the speed of this machine."""

import math
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np

from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tangent import network_of
from solvable.networks.initialisations import Initial

# Seconds of work beyond which a forecast is made only if asked to.
TIME_LIMIT = 600.0
# Decompositions and passes through a network run at a fraction of the speed of a matrix product.
_SLOWER = 4.0
_DECOMPOSITION = 10.0


def forecast_seconds(
    networks: list[Initial],
    inputs: Any,
    outputs: int,
    *,
    landmarks: int | None = None,
    by_layers: bool = False,
    dtype: str = "float64",
    output_field: Field | None = None,
) -> float:
    """How long the kernels of these networks and their spectra take, within a factor of a few.

    ``outputs`` counts gradients for each input: the outputs of the network, or one if they are summed. Kernels cost
    n x n contractions of gradients (n x m with ``landmarks``), or of a layer's width ``by_layers``; spectra n³.
    """
    size, columns = len(inputs), landmarks or len(inputs)
    first = networks[0]
    pairs = size * columns / (1 if landmarks else 2)
    if by_layers:
        held = sum(sum(leaf.shape) for leaf in jax.tree.leaves(eqx.filter(first.model, eqx.is_inexact_array)))
        passes = 0.0
    else:
        network = network_of(first.model, first.parameters, dtype, output_field)
        held = network.gradient_size(inputs)
        passes = 6.0 * network.size * outputs * (size + columns)
    kernels = len(networks) * (2.0 * pairs * outputs * held + _SLOWER * passes)
    spectra = (len(networks) + 2) * _SLOWER * _DECOMPOSITION * size * columns**2
    return (kernels + spectra) / operations_per_second()


def check_limit(limit: float | None) -> None:
    """Refuse what is no time, before anything is counted."""
    if limit is not None and not (isinstance(limit, int | float) and limit > 0):
        raise ValueError(f"time_limit must be a positive number of seconds, or None for no limit, not {limit!r}")


def check_time(seconds: float, limit: float | None, points: int, landmarks: int | None, outputs: int) -> None:
    """Refuse work that takes longer than the limit, and say how to make it shorter."""
    if limit is None or seconds <= limit:
        return
    fewer = max(20, int(points * math.sqrt(limit / seconds) / 2))
    ways = [f"give fewer points (about {fewer})"]
    if landmarks is None or landmarks > 256:
        ways.append("approximate the kernel with landmarks=256")
    if outputs > 1:
        ways.append("outputs='sum'")
    raise ValueError(
        f"this forecast takes about {in_words(seconds)} for {points} points and {outputs} outputs, longer than the "
        f"time_limit of {in_words(limit)}: {', or '.join(ways)}, or raise the limit (time_limit=... in Python, "
        "--time-limit on the command line; inf for none)"
    )


def in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def operations_per_second() -> float:
    """The speed of a matrix product in float64 on this machine, now."""
    matrix = np.ones((256, 256))
    best = math.inf
    for _ in range(3):
        begin = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - begin)
    return 2 * 256**3 / max(best, 1e-6)
