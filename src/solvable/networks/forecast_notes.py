"""When not to trust a forecast: what is out of the ordinary in a measured kernel, and what to do about it."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.diagnostics.batches import to_numpy
from solvable.diagnostics.kernels import ntk
from solvable.diagnostics.outputs import Field
from solvable.networks.initialisations import Initial, negated
from solvable.networks.spectral_laws import FEWEST_MODES, TRUSTED

if TYPE_CHECKING:
    from solvable.networks.forecast_report import ForecastReport

_PROBED = 96
_NOT_STRAIGHT = 0.15
_BENT = 0.5


def notes(
    report: "ForecastReport", network: Initial, inputs: Any, drawn: int, clear_last: float, field: Field | None = None
) -> Iterator[str]:
    """What to mind, in the order of the report."""
    rank = report.eigenvalues.shape[1]
    if rank < FEWEST_MODES:
        yield f"the kernel has only {rank} modes above rounding: it learns in that many directions, with no power law"
    elif not report.power_law:
        yield from _no_law(report)
    yield from _range(report, clear_last)
    yield from _gap(report, network, inputs, field)
    yield from _width(report, drawn)
    if report.noise > 0:
        yield (
            f"the targets' power stops falling: {100 * report.noise:.2g} % of it is spread over all modes like noise "
            "(or is finer than these points resolve); it is not in the fit, and no network learns it as a power law"
        )
    if report.start == "zero" and report.output_share > 0.05:
        yield (
            f"the untrained network says {report.output_share:.2g} of the targets' mean square by itself, and this "
            "forecast is for one that begins at zero: centre the network, or use start='network'"
        )


def _no_law(report: "ForecastReport") -> Iterator[str]:
    if not report.capacity > 1:
        yield (
            f"the capacity of {report.capacity:.2f} is not above 1: eigenvalues that fall so slowly have no finite "
            "sum, and exponents of size, data and compute need one; those of time rest on the source alone"
        )
    elif math.isnan(report.source):
        yield "the targets' power cannot be told from noise in enough modes: there is no source to forecast with"
    else:
        yield (
            f"the source of {report.source:.2f} is not above 0: the targets are as rough as noise to this kernel, and "
            "their loss does not fall as a power; choose first and last, or more points"
        )


def _range(report: "ForecastReport", clear_last: float) -> Iterator[str]:
    spans = [
        math.log10(last / first) if last > first else 0.0
        for first, last in (
            (report.first_mode, report.last_mode),
            (report.power_first_mode, report.power_last_mode),
        )
        if math.isfinite(last)
    ]
    if min(spans, default=1.0) < 0.95:
        yield (
            f"the fit spans {min(spans):.1f} decades of modes: a power law wants one at least, so give more points "
            f"(only modes up to {TRUSTED:g} of them are trusted)"
        )
    size = report.landmarks or report.points
    if report.last_mode > 1.5 * max(FEWEST_MODES, TRUSTED * size):
        yield f"modes beyond {TRUSTED * size:.0f} are bent by the finite number of points, and some are in the fit"
    if report.power_last_mode < 0.9 * report.last_mode and report.noise == 0:
        yield (
            f"beyond mode {clear_last:.0f} the targets' power is covered by what leaks out of stronger modes, for lack "
            "of width or points: the source is that of the modes before"
        )
    # Two interleaved families of modes scatter by 5 % and bend by 0.3 on the circle, and still are a power law.
    if report.scatter > _NOT_STRAIGHT or report.bend > _BENT * max(1.0, report.capacity / 3):
        yield (
            f"the eigenvalues are not straight: slopes of the halves of the window differ by {report.bend:.2f}. They "
            "may begin too early (choose first, or give more points), or fall faster than any power, as those of "
            "analytic activations on smooth data do"
        )


def _gap(report: "ForecastReport", network: Initial, inputs: Any, field: Field | None) -> Iterator[str]:
    """A part of the targets that the kernel cannot reach, and whether parity is why."""
    share = float(np.mean(report.outside / (report.power.sum(axis=1) + report.outside)))
    rank, size = report.eigenvalues.shape[1], report.landmarks or report.points
    if size - rank < 0.01 * size or share == 0:
        return
    parity = missing_parity(network, inputs, field)
    if parity is not None:
        yield (
            f"parity gap: all but a few {parity} functions have eigenvalue zero, as for a whole power of ReLU without "
            f"biases; {100 * share:.2g} % of the targets lies there and is never learned. Add biases or a third layer"
        )
    elif share >= 1e-3:
        yield (
            f"{100 * share:.2g} % of the targets' mean square lies where the kernel vanishes: a lazy network never "
            "learns it, and its loss stops there"
        )


def missing_parity(network: Initial, inputs: Any, field: Field | None = None) -> str | None:
    """``"odd"`` or ``"even"`` if functions of that parity are all but missing from the kernel.

    The kernel is split as ``K(x, x') ± K(x, -x')``; of ``max(0, h)^q`` one part is a polynomial of degree q.
    """
    if getattr(inputs, "ndim", 0) != 2 or np.issubdtype(to_numpy(inputs[:1]).dtype, np.integer):
        return None
    some = inputs[:: max(1, len(inputs) // _PROBED)][:_PROBED]
    options: dict[str, Any] = {"dtype": "float64", "output_field": field, "progress": False}
    own = network.parameters
    same, opposite = (ntk(network.model, some, x, parameters=own, **options).values for x in (some, negated(some)))
    ranks = {}
    for name, part in (("even", same + opposite), ("odd", same - opposite)):
        values = np.linalg.eigvalsh((part + part.T) / 2)
        ranks[name] = int(np.sum(values > 1e-10 * np.trace(same)))
    fewer, more = sorted(ranks, key=lambda name: ranks[name])
    return fewer if 2 * ranks[fewer] < ranks[more] else None


def _width(report: "ForecastReport", drawn: int) -> Iterator[str]:
    if drawn > 1 and report.networks == 1:
        yield "all initialisations are the same: let the function that makes the network take a key or a seed"
    elif drawn == 1:
        yield "one network was measured: give a function that makes it to learn what another initialisation changes"
    if report.kernel_fluctuation > 0.2:
        yield (
            f"kernels of two initialisations differ by {100 * report.kernel_fluctuation:.0f} %: at this width they are "
            "far from their limit, and training moves them; a wider network is forecast better"
        )
    if report.parameters < report.points:
        yield f"the network has fewer parameters ({report.parameters}) than points: it cannot learn all modes"
