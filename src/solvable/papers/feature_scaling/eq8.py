"""Eqs. 8, 9 and 78: what finite numbers of features and samples add to the loss, early and in the end."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.optimize import brentq

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._shared import CAPACITY, draw_power, fall, fitted
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Source and richness.
TRANSIENTS = ((0.4, 0.0), (0.4, 1.0), (1.8, 0.0), (1.8, 1.0))
# For each of these, so many features that 1/N is small, and not so many that the correction drowns in rounding.
MANY = {"quick": (2**14, 2**18, 2**22, 2**22), "full": (2**17, 2**21, 2**24, 2**24)}
LAST_TIME = {"quick": 1e4, "full": 1e5}
SOURCES = (0.4, 1.2, 1.8, 2.5)
COUNTS = 2 ** np.arange(4, 15)
# Sizes of training sets whose losses have reached their power, and one whose loss is compared with direct sums.
MANY_SAMPLES, FEW_SAMPLES, FEW_MODES = 2 ** np.arange(20, 23), 64, 200_000


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Corrections of first order in 1/N over time, and losses after infinite time with few features or samples."""
    data = {}
    times = log_times(30, LAST_TIME[scale], 33)
    for (source, richness), size in zip(TRANSIENTS, MANY[scale], strict=True):
        endless = FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf)
        # So many features that higher orders do not show.
        infinite, finite = (model.predict(times, GradientFlow()) for model in (endless, endless.replace(features=size)))
        extra = size * (finite.test_loss - infinite.test_loss)
        about = {"long_name": "correction of the test loss of first order in 1/N, times N", "units": "1"}
        data[_name(source, richness)] = extra.assign_attrs(about).to_dataset(name="test_loss")
    return data | _bottlenecks()


def _name(source: float, richness: float) -> str:
    return f"transient-{source:g}-{_regime(richness)}"


def _regime(richness: float) -> str:
    return "lazy" if richness == 0 else "rich"


def _bottlenecks() -> dict[str, xr.Dataset]:
    """Losses after infinite time: over small numbers of features and of samples, and those that claims need besides."""
    tasks = [FeatureScaling(CAPACITY, source, modes=math.inf) for source in SOURCES]

    def losses(few: str, counts: np.ndarray) -> list[list[float]]:
        return [[float(task.replace(**{few: int(count)}).limit().test_loss) for count in counts] for task in tasks]

    about = {"long_name": "test loss after infinite time", "units": "1"}
    both = [losses(few, COUNTS) for few in ("features", "samples")]
    small = [float(task.replace(samples=FEW_SAMPLES, modes=FEW_MODES).limit().test_loss) for task in tasks]
    source = list(SOURCES)
    return {
        "bottlenecks": xr.Dataset(
            {"test_loss": (("few", "source", "count"), both, about)},
            {"few": ["features", "samples"], "source": source, "count": COUNTS},
        ),
        "many-samples": xr.Dataset(
            {"test_loss": (("source", "samples"), losses("samples", MANY_SAMPLES), about)},
            {"source": source, "samples": MANY_SAMPLES},
        ),
        "few-samples": xr.Dataset({"test_loss": ("source", small, about)}, {"source": source, "samples": FEW_SAMPLES}),
    }


def _transient_exponent(source: float, richness: float) -> tuple[float, float | None]:
    """The decay exponent of the 1/N correction and, where it differs, the printed one."""
    if source > 1:
        return 1 - 1 / CAPACITY, None
    faster = 2 / (1 + source) if richness > 0 else 1.0
    return (source - 1 / CAPACITY) * faster, round((1 - 1 / CAPACITY) * faster, 4)


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Exponents of the 1/N correction and of the data bottleneck, and the factor by which eq. 78 is too small."""
    made, last = [], LAST_TIME[scale_of(data)]
    for source, richness in TRANSIENTS:
        expected, printed = _transient_exponent(source, richness)
        made.append(
            Claim(
                f"β = {source:g}, {_regime(richness)}: exponent of the 1/N correction over "
                f"t = {last / 10:.0e} ... {last:.0e}",
                fitted(data[_name(source, richness)].test_loss, last / 10, last),
                expected,
                0.006,
                "approach at these times, and the second order in 1/N",
                printed=printed,
            )
        )
    for source in SOURCES:
        many, few = (data[f"{name}-samples"].test_loss.sel(source=source) for name in ("many", "few"))
        made += _data_claims(source, many, float(few))
    return made


def _data_claims(source: float, many: xr.DataArray, few: float) -> list[Claim]:
    bias, overfitting = _direct_sums(source, FEW_SAMPLES, FEW_MODES)
    return [
        Claim(
            f"β = {source:g}: data bottleneck, exponent of P over 2^20 ... 2^22",
            fall(many.samples.values, many.values),
            CAPACITY * min(2.0, source),
            0.02,
            "the first correction falls as P^(-α|β - 2|)",
        ),
        Claim(
            f"β = {source:g}: loss at P = {FEW_SAMPLES} over the bias of eq. 78",
            few / bias,
            overfitting,
            1e-4,
            "direct sums over 200000 modes; quadrature over modes",
            printed=1.0,
        ),
    ]


def _direct_sums(source: float, samples: int, modes: int) -> tuple[float, float]:
    """The bias, and the factor ``1 / (1 - d2 / P)`` by which fitting random samples multiplies it (near alpha)."""
    ranks = np.arange(1.0, modes + 1)
    eigenvalues, signal = ranks**-CAPACITY, ranks ** (-CAPACITY * source - 1)

    def learned(log_r: float) -> np.ndarray:
        return 1 / (1 + np.exp(-log_r) / eigenvalues)

    log_r = brentq(lambda value: learned(value).sum() - samples, 0.0, 40.0, xtol=1e-13)
    fraction = learned(log_r)
    return float((signal * (1 - fraction) ** 2).sum()), float(1 / (1 - (fraction**2).sum() / samples))


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """The 1/N correction over time, and losses after infinite time over the numbers of features and samples."""
    figure, (transient_panel, model_panel, data_panel) = new_figure(3)
    for colour, (source, richness) in zip(COLOURS, TRANSIENTS, strict=False):
        extra, (expected, _) = data[_name(source, richness)].test_loss, _transient_exponent(source, richness)
        draw_curve(transient_panel, extra, colour, f"β = {source:g}, {_regime(richness)}: $t^{{{-expected:.3f}}}$")
        draw_power(transient_panel, extra, expected, "", anchor=0.8, shift=1.0)
    transient_panel.set(xscale="log", yscale="log", xlabel="flow time, t", ylabel="$N (L_N - L_\\infty)$")
    transient_panel.set_title("correction of first order in 1/N", fontsize="medium")
    transient_panel.legend(fontsize="small")
    for panel, few, symbol, most in ((model_panel, "features", "N", 1.0), (data_panel, "samples", "P", 2.0)):
        for colour, source in zip(COLOURS, SOURCES, strict=False):
            losses = data["bottlenecks"].test_loss.sel(few=few, source=source)
            panel.loglog(COUNTS, losses, "o-", markersize=3, color=colour, label=f"β = {source:g}")
            line = float(losses[-1]) * (COUNTS / COUNTS[-1]) ** (-CAPACITY * min(most, source))
            panel.loglog(COUNTS, line, "k:", linewidth=0.9)
        panel.set(xlabel=f"number of {few}, {symbol}", ylabel="test loss at t → ∞")
        panel.set_title(f"few {few}; dotted: ${symbol}^{{-\\alpha\\,\\min({most:g},\\beta)}}$", fontsize="medium")
        panel.legend(fontsize="small")
    return figure
