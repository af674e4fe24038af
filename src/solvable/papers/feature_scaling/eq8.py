"""Eqs. 8, 9 and 78: what finite numbers of features and samples add to the loss, early and in the end."""

import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from scipy.optimize import brentq

from solvable.models.feature_scaling import FeatureScaling
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._shared import CAPACITY, draw_power, fall, fitted
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times
from solvable.training import GradientFlow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Source and richness.
TRANSIENTS = ((0.4, 0.0), (0.4, 1.0), (1.8, 0.0), (1.8, 1.0))
# For each of these, so many features that 1/N is small, and not so many that it drowns in rounding.
MANY = {"quick": (2**14, 2**18, 2**22, 2**22), "full": (2**17, 2**21, 2**24, 2**24)}
LAST_TIME = {"quick": 1e4, "full": 1e5}
SAMPLES = 2 ** np.arange(4, 15)


def reproduce(scale: Scale) -> Reproduction:
    figure, (transient_panel, model_panel, data_panel) = new_figure(3)
    datasets, claims = _transients(transient_panel, scale)
    bottleneck, made = _bottlenecks(model_panel, data_panel)
    return Reproduction({**datasets, "bottlenecks": bottleneck}, figure, [*claims, *made])


def _transients(panel: "Axes", scale: Scale) -> tuple[dict[str, xr.Dataset], list[Claim]]:
    """The part of the loss of first order in 1/N, from networks so large that higher orders do not show."""
    last = LAST_TIME[scale]
    times = log_times(30, last, 33)
    datasets, claims = {}, []
    for colour, (source, richness), size in zip(COLOURS, TRANSIENTS, MANY[scale], strict=False):
        endless = FeatureScaling(CAPACITY, source, richness=richness, modes=math.inf)
        curves = [model.predict(times, GradientFlow()) for model in (endless, endless.replace(features=size))]
        extra = size * (curves[1].test_loss - curves[0].test_loss)
        name = "lazy" if richness == 0 else "rich"
        faster = 2 / (1 + source) if source < 1 and richness > 0 else 1.0
        expected = (source - 1 / CAPACITY) * faster if source < 1 else 1 - 1 / CAPACITY
        draw_curve(panel, extra, colour, f"β = {source:g}, {name}: $t^{{{-expected:.3f}}}$")
        draw_power(panel, extra, expected, "", at=0.8, shift=1.0)
        datasets[f"transient-{source:g}-{name}"] = extra.to_dataset(name="test_loss")
        claims.append(
            Claim(
                f"β = {source:g}, {name}: exponent of the 1/N correction over t = {last / 10:.0e} ... {last:.0e}",
                fitted(extra, last / 10, last),
                expected,
                0.006,
                "approach at these times, and the second order in 1/N",
                printed=round((1 - 1 / CAPACITY) * faster, 4) if source < 1 else None,
            )
        )
    panel.set(xscale="log", yscale="log", xlabel="flow time, t", ylabel="$N (L_N - L_\\infty)$")
    panel.set_title("correction of first order in 1/N", fontsize="medium")
    panel.legend(fontsize="small")
    return datasets, claims


def _bottlenecks(model_panel: "Axes", data_panel: "Axes") -> tuple[xr.Dataset, list[Claim]]:
    """After infinite time: few features against few samples."""
    sources = (0.4, 1.2, 1.8, 2.5)
    table = np.zeros((2, len(sources), SAMPLES.size))
    claims = []
    for row, source in enumerate(sources):
        for place, count in enumerate(SAMPLES):
            task = FeatureScaling(CAPACITY, source, modes=math.inf)
            table[0, row, place] = float(task.replace(features=int(count)).limit().test_loss)
            table[1, row, place] = float(task.replace(samples=int(count)).limit().test_loss)
        colour, label = COLOURS[row], f"β = {source:g}"
        model_panel.loglog(SAMPLES, table[0, row], "o-", markersize=3, color=colour, label=label)
        data_panel.loglog(SAMPLES, table[1, row], "o-", markersize=3, color=colour, label=label)
        for panel, exponent in ((model_panel, min(1.0, source)), (data_panel, min(2.0, source))):
            line = table[0 if panel is model_panel else 1, row, -1]
            panel.loglog(SAMPLES, line * (SAMPLES / SAMPLES[-1]) ** (-CAPACITY * exponent), "k:", linewidth=0.9)
        claims += _data_claims(source)
    model_panel.set(xlabel="number of features, N", ylabel="test loss at t → ∞")
    model_panel.set_title("few features; dotted: $N^{-\\alpha\\,\\min(1,\\beta)}$", fontsize="medium")
    data_panel.set(xlabel="number of samples, P", ylabel="test loss at t → ∞")
    data_panel.set_title("few samples; dotted: $P^{-\\alpha\\,\\min(2,\\beta)}$", fontsize="medium")
    for panel in (model_panel, data_panel):
        panel.legend(fontsize="small")
    data = xr.Dataset(
        {"test_loss": (("few", "source", "count"), table)},
        {"few": ["features", "samples"], "source": list(sources), "count": SAMPLES},
    )
    return data, claims


def _data_claims(source: float) -> list[Claim]:
    counts = 2 ** np.arange(20, 23)
    losses = [
        float(FeatureScaling(CAPACITY, source, samples=int(count), modes=math.inf).limit().test_loss)
        for count in counts
    ]
    few, modes = 64, 200_000
    with_few = FeatureScaling(CAPACITY, source, samples=few, modes=modes).limit().test_loss
    bias, overfitting = _direct_sums(source, few, modes)
    return [
        Claim(
            f"β = {source:g}: data bottleneck, exponent of P over 2^20 ... 2^22",
            fall(counts, losses),
            CAPACITY * min(2.0, source),
            0.02,
            "the first correction falls as P^(-α|β - 2|)",
        ),
        Claim(
            f"β = {source:g}: loss at P = {few} over the bias of eq. 78",
            float(with_few) / bias,
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
    share = learned(log_r)
    return float((signal * (1 - share) ** 2).sum()), float(1 / (1 - (share**2).sum() / samples))
