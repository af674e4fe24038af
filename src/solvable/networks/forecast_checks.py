"""Checks around a forecast: its cost before it is computed, and warnings about the measured kernel afterwards."""

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from solvable.diagnostics.batches import to_numpy
from solvable.diagnostics.kernels import ntk
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tangent import network_of
from solvable.networks.initialisations import Initial, negated
from solvable.networks.spectral_laws import FEWEST_MODES, TRUSTED
from solvable.numerics.cost import in_time

if TYPE_CHECKING:
    from solvable.networks.forecast_report import ForecastReport

# Seconds of work beyond which a forecast must be asked for explicitly.
TIME_LIMIT = 600.0
# Decompositions and forward passes run at a fraction of the speed of a matrix product.
_SLOWER = 4.0
_DECOMPOSITION = 10.0
# Number of inputs on which the parity of a kernel is tested.
_PARITY_INPUTS = 96
_NOT_STRAIGHT = 0.15
_BENT = 0.5


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
    """An estimate of the time that the kernels of these networks and their spectra take, within a factor of a few.

    ``outputs`` is the number of gradients per input: that of the outputs, or one if they are summed. Kernels cost n x n
    contractions of gradients (n x m with ``landmarks``), or of the width of a layer ``by_layers``; spectra cost n³.
    """
    size, columns = len(inputs), landmarks or len(inputs)
    first = networks[0]
    pairs = size * columns / (1 if landmarks else 2)
    if by_layers:
        gradient_size = sum(sum(leaf.shape) for leaf in jax.tree.leaves(eqx.filter(first.model, eqx.is_inexact_array)))
        passes = 0.0
    else:
        network = network_of(first.model, first.parameters, dtype, output_field)
        gradient_size = network.gradient_size(inputs)
        passes = 6.0 * network.size * outputs * (size + columns)
    kernels = len(networks) * (2.0 * pairs * outputs * gradient_size + _SLOWER * passes)
    spectra = (len(networks) + 2) * _SLOWER * _DECOMPOSITION * size * columns**2
    return (kernels + spectra) / operations_per_second()


def check_time(seconds: float, limit: float | None, points: int, landmarks: int | None, outputs: int) -> None:
    """Reject work that takes longer than the limit, and say how to shorten it."""
    if limit is None or seconds <= limit:
        return
    fewer = max(20, int(points * math.sqrt(limit / seconds) / 2))
    remedies = [f"give fewer points (about {fewer})"]
    if landmarks is None or landmarks > 256:
        remedies.append("approximate the kernel with landmarks=256")
    if outputs > 1:
        remedies.append("outputs='sum'")
    raise ValueError(
        f"this forecast takes about {in_time(seconds)} for {points} points and {outputs} outputs, longer than the "
        f"time_limit of {in_time(limit)}: {', or '.join(remedies)}, or raise the limit (time_limit=... in Python, "
        "--time-limit on the command line; inf for none)"
    )


def operations_per_second() -> float:
    """The current speed of a matrix product in float64 on this machine."""
    matrix = np.ones((256, 256))
    best = math.inf
    for _ in range(3):
        begin = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - begin)
    return 2 * 256**3 / max(best, 1e-6)


def warnings_of(
    report: "ForecastReport", network: Initial, inputs: Any, networks: int, clear_last: float, field: Field | None
) -> Iterator[str]:
    """Reasons not to trust a forecast, and what to do about them."""
    rank = report.eigenvalues.shape[1]
    if rank < FEWEST_MODES:
        yield f"the kernel has only {rank} modes above rounding: it learns in that many directions, with no power law"
    elif not report.power_law:
        yield _no_power_law(report)
    yield from _fit_warnings(report, clear_last)
    yield from _unreachable(report, network, inputs, field)
    yield from _width_warnings(report, networks)
    if report.noise > 0:
        yield (
            f"the targets' power stops falling: {100 * report.noise:.2g} % of it is spread over all modes like noise "
            "(or is finer than these points resolve); it is not in the fit, and no network learns it as a power law"
        )
    if report.initial_outputs == "zero" and report.output_share > 0.05:
        yield (
            f"the outputs of the untrained network have {report.output_share:.2g} of the targets' mean square, and "
            "this forecast is for a network that starts at zero: centre the network, or use initial_outputs='network'"
        )


def _no_power_law(report: "ForecastReport") -> str:
    if not report.capacity > 1:
        return (
            f"the capacity of {report.capacity:.2f} is not above 1: eigenvalues that fall so slowly have no finite "
            "sum, which the exponents of size, data and compute need; those of time depend on the source alone"
        )
    if math.isnan(report.source):
        return "the targets' power is indistinguishable from noise in too many modes: there is no source"
    return (
        f"the source of {report.source:.2f} is not above 0: for this kernel, the targets are as rough as noise, and "
        "their loss does not fall as a power; choose first_mode and last_mode, or give more points"
    )


def _fit_warnings(report: "ForecastReport", clear_last: float) -> Iterator[str]:
    spans = [
        math.log10(last / first) if last > first else 0.0
        for first, last in ((report.first_mode, report.last_mode), (report.power_first_mode, report.power_last_mode))
        if math.isfinite(last)
    ]
    if min(spans, default=1.0) < 0.95:
        yield (
            f"the fit spans {min(spans):.1f} decades of modes: a power law needs at least one, so give more points "
            f"(only modes up to {TRUSTED:g} of them are trusted)"
        )
    size = report.landmarks or report.points
    if report.last_mode > 1.5 * max(FEWEST_MODES, TRUSTED * size):
        yield f"modes beyond {TRUSTED * size:.0f} are distorted by the finite number of points, and some are in the fit"
    if report.power_last_mode < 0.9 * report.last_mode and report.noise == 0:
        yield (
            f"beyond mode {clear_last:.0f} the targets' power is hidden by what leaks out of stronger modes, for lack "
            "of width or points: the source is that of the modes before"
        )
    # Two interleaved families of modes scatter by 5 % and bend by 0.3 on the circle, and still are a power law.
    if report.scatter > _NOT_STRAIGHT or report.bend > _BENT * max(1.0, report.capacity / 3):
        yield (
            f"the eigenvalues do not follow a power law: slopes of the halves of the window differ by "
            f"{report.bend:.2f}. The window may begin too early (choose first_mode, or give more points), or they fall "
            "faster than any power, as those of analytic activations on smooth data do"
        )


def _unreachable(report: "ForecastReport", network: Initial, inputs: Any, field: Field | None) -> Iterator[str]:
    """A part of the targets that the kernel cannot learn, and whether parity is the reason."""
    fraction = float(np.mean(report.outside / (report.power.sum(axis=1) + report.outside)))
    rank, size = report.eigenvalues.shape[1], report.landmarks or report.points
    if size - rank < 0.01 * size or fraction == 0:
        return
    parity = missing_parity(network, inputs, field)
    if parity is not None:
        yield (
            f"parity gap: all but a few {parity} functions have eigenvalue zero, as for an integer power of ReLU "
            f"without biases; {100 * fraction:.2g} % of the targets is there and is never learned. Add biases or a "
            "third layer"
        )
    elif fraction >= 1e-3:
        yield (
            f"{100 * fraction:.2g} % of the targets' mean square is where the kernel vanishes: a lazy network never "
            "learns it, and its loss stops there"
        )


def missing_parity(network: Initial, inputs: Any, field: Field | None = None) -> str | None:
    """``"odd"`` or ``"even"`` if functions of that parity are nearly absent from the kernel.

    The kernel is split as ``K(x, x') ± K(x, -x')``; for ``max(0, h)^q`` one part is a polynomial of degree q.
    """
    if getattr(inputs, "ndim", 0) != 2 or np.issubdtype(to_numpy(inputs[:1]).dtype, np.integer):
        return None
    some = inputs[:: max(1, len(inputs) // _PARITY_INPUTS)][:_PARITY_INPUTS]
    options: dict[str, Any] = {"dtype": "float64", "output_field": field, "progress": False}
    same, opposite = (
        ntk(network.model, some, x, parameters=network.parameters, **options).values for x in (some, negated(some))
    )
    ranks = {}
    for name, part in (("even", same + opposite), ("odd", same - opposite)):
        values = np.linalg.eigvalsh((part + part.T) / 2)
        ranks[name] = int(np.sum(values > 1e-10 * np.trace(same)))
    fewer, more = sorted(ranks, key=lambda name: ranks[name])
    return fewer if 2 * ranks[fewer] < ranks[more] else None


def _width_warnings(report: "ForecastReport", networks: int) -> Iterator[str]:
    if networks > 1 and report.networks == 1:
        yield "all initialisations are the same: let the function that makes the network take a key or a seed"
    elif networks == 1:
        yield "one network was measured: give a function that makes it to see the effect of another initialisation"
    if report.kernel_fluctuation > 0.2:
        yield (
            f"kernels of two initialisations differ by {100 * report.kernel_fluctuation:.0f} %: at this width they are "
            "far from their limit, and training moves them; the forecast is better for a wider network"
        )
    if report.parameters < report.points:
        yield f"the network has fewer parameters ({report.parameters}) than points: it cannot learn all modes"
