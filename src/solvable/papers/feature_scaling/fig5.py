"""Fig. 5: networks on the circle learn with the exponents of the solvable model, by target (a) and activation (b)."""

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.networks.tasks.circle import fourier_decay
from solvable.networks.tasks.circle_kernel import lazy_loss
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._circle import (
    WINDOW,
    exponent,
    lazy_against_tangent,
    linearised,
    spectrum,
    trained,
)
from solvable.papers.feature_scaling._shared import fall, rich_exponent, shades
from solvable.plotting import draw_curve, log_losses, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# (a): ReLU, targets of many sources; the first three are claimed.
SOURCES = {"quick": (0.5, 0.75), "full": (0.5, 0.75, 1.25, 1.0)}
CLAIMED = 3
# (b): one target, coefficients k^-1.4, and activations of many powers: sources 1.25, 1, 0.75 and 0.5.
DECAY = 1.4
POWERS = {"quick": (0.9,), "full": (0.72, 0.9, 1.2, 1.8)}
RICH: dict[str, dict[str, Any]] = {
    "quick": {"width": 64, "points": 256, "until": 320.0, "seeds": 1},
    "full": {"width": 512, "points": 2048, "until": WINDOW[1], "seeds": 3},
}
# Only very wide networks keep the lazy exponent through the window (see circle_bottleneck); quickly, infinite ones.
LAZY: dict[str, dict[str, Any]] = {
    "quick": {"width": np.inf, "points": 2**13, "seeds": 1},
    "full": {"width": 2**15, "points": 1024, "seeds": 4},
}
# In the window of the rich networks the lazy ones miss β = 1.25 by 0.07, 0.02 of it in the infinite width and the rest
# by the width, 32768. Lazy exponents want low eigenvalues on the power, so that the window can begin before the width
# is felt: with inputs of a quarter the first layer learns by its biases, and the infinite width has 0.494, 0.738 and
# 1.225 for β = 0.5, 0.75 and 1.25 in this window.
QUARTER, LAZY_WINDOW = 0.25, (10.0, 320.0)
# A lazy network that is really trained, to be held against its tangent model; 64 bits, for steps are tiny.
CHECKED: dict[str, dict[str, Any]] = {
    "quick": {"width": 64, "points": 64, "until": 50.0, "seeds": 1},
    "full": {"width": 512, "points": 512, "until": 500.0, "seeds": 1},
}
LAZINESS = 1e-5
RICH_TOLERANCE, LAZY_TOLERANCE = 0.1, 0.05


def reproduce(scale: Scale) -> Reproduction:
    figure, (targets, activations) = new_figure(2, width=6.0, height=4.6)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    window = (WINDOW[0] / (1 if scale == "full" else 50 / 30), RICH[scale]["until"])
    for panel, name, sources, powers in (
        (targets, "target", SOURCES[scale], [1.0] * len(SOURCES[scale])),
        (activations, "activation", tuple((2 * DECAY - 1) / (2 * power) for power in POWERS[scale]), POWERS[scale]),
    ):
        decays = [float(fourier_decay(source, 2 * power)) for source, power in zip(sources, powers, strict=True)]
        labels = {"source": ("task", list(sources)), "power": ("task", list(powers))}
        rich = trained(decays, list(powers), **RICH[scale]).assign_coords(labels)
        lazy = _lazy(decays, list(powers), rich.time.values, scale).assign_coords(labels)
        fits = _fits(rich, lazy, window)
        datasets |= {f"{name}-rich": rich.to_dataset(name="loss"), f"{name}-lazy": lazy.to_dataset(name="loss")}
        datasets[f"{name}-exponents"] = fits
        _draw(panel, rich, lazy, fits, window)
        claims += _claims("a" if name == "target" else "b", fits, window, scale)
    targets.set_title("(a) ReLU, targets of many sources β", fontsize="medium")
    activations.set_title(f"(b) one target, $k^{{-{DECAY:g}}}$, activations max(0, h)$^q$", fontsize="medium")
    claims += [*_lazy_claims(scale), _tangent_claim(scale)]
    return Reproduction(datasets, figure, claims)


def _lazy(decays: list[float], powers: list[float], times: np.ndarray, scale: Scale) -> xr.DataArray:
    """Linearised networks: one kernel for all targets of an activation."""
    pairs = [(decays, powers[0])] if len(set(powers)) == 1 else [([d], p) for d, p in zip(decays, powers, strict=True)]
    return xr.concat([linearised(some, times, power=power, **LAZY[scale]) for some, power in pairs], "task")


def _fits(rich: xr.DataArray, lazy: xr.DataArray, window: tuple[float, float]) -> xr.Dataset:
    """Exponents of rich and of lazy networks, with errors over seeds and over windows, and of the infinite width."""
    found: dict[str, list[float]] = {}
    for task in range(rich.sizes["task"]):
        for kind, curves in (("rich", rich), ("lazy", lazy)):
            for name, value in zip(("", "_error", "_window"), exponent(curves[task], window), strict=True):
                found.setdefault(kind + name, []).append(value)
        source, power = float(rich.source[task]), float(rich.power[task])
        times = np.geomspace(*window, 40)
        infinite = lazy_loss(times, spectrum(power, 2**13), fourier_decay(source, 2 * power))
        found.setdefault("infinite", []).append(fall(times, infinite))
        found.setdefault("prediction", []).append(rich_exponent(source))
    return xr.Dataset({name: ("task", values) for name, values in found.items()}).assign_coords(
        source=rich.source, power=rich.power
    )


def _draw(panel: "Axes", rich: xr.DataArray, lazy: xr.DataArray, fits: xr.Dataset, window: tuple[float, float]) -> None:
    order = np.argsort(rich.source.values)
    for colour, task in zip(shades(len(order)), order, strict=True):
        source, power = float(rich.source[task]), float(rich.power[task])
        label = f"β = {source:.3g}" + ("" if power == 1 else f" (q = {power:g})") + f": {float(fits.rich[task]):.3f}"
        mean = rich[task].mean("seed", keep_attrs=True)
        draw_curve(panel, mean, colour, label)
        panel.plot(lazy.time, lazy[task].mean("seed"), color=colour, linewidth=0.9, linestyle="--")
        line = np.geomspace(*window, 2)
        level = 0.8 * float(mean.sel(time=window[1], method="nearest"))
        panel.plot(line, level * (line / window[1]) ** -float(fits.prediction[task]), ":", color="black", linewidth=1.2)
    panel.plot([], [], ":", color="black", label=r"$t^{-\beta\,\max(1,\,2/(1+\beta))}$")
    panel.plot([], [], "--", color="grey", label="lazy, linearised")
    panel.set(xscale="log", xlabel="time, sum of learning rates, t", ylabel="loss, half the mean square")
    log_losses(panel)
    panel.legend(fontsize="small", loc="lower left", title="rich: fitted exponents", title_fontsize="small")


def _claims(letter: str, fits: xr.Dataset, window: tuple[float, float], scale: Scale) -> list[Claim]:
    claims = []
    over = f"over t = {window[0]:g} ... {window[1]:g}"
    for task in range(min(CLAIMED, fits.sizes["task"]) if letter == "a" else fits.sizes["task"]):
        one = {str(name): float(values[task]) for name, values in fits.items()}
        source, power = float(fits.source[task]), float(fits.power[task])
        label = f"({letter}) β = {source:.3g}, q = {power:g}"
        claims.append(
            Claim(
                f"{label}: rich exponent {over}",
                one["rich"],
                one["prediction"],
                RICH_TOLERANCE,
                f"the tolerance promised; width {RICH[scale]['width']}, {RICH[scale]['points']} points, "
                + _errors(one, "rich", RICH[scale]["seeds"]),
            )
        )
        claims.append(
            Claim(
                f"{label}: lazy exponent of the same network {over}, against the infinite width's",
                one["lazy"],
                one["infinite"],
                LAZY_TOLERANCE,
                f"linearised at width {LAZY[scale]['width']}, "
                + _errors(one, "lazy", LAZY[scale]["seeds"])
                + f". β itself is missed by {abs(one['lazy'] - source):.3f}: low waves are not on the power yet",
            )
        )
        claims.append(_asymptote(label, source, power))
    return claims


def _asymptote(label: str, source: float, power: float) -> Claim:
    """The lazy exponent of the infinite width while waves 100 ... 1000 are learned."""
    eigenvalues = spectrum(power, 2**16)
    times = np.geomspace(1 / eigenvalues[100], 1 / eigenvalues[1000], 30)
    return Claim(
        f"{label}: lazy exponent of the infinite width, waves 100 ... 1000",
        fall(times, lazy_loss(times, eigenvalues, float(fourier_decay(source, 2 * power)))),
        source,
        0.05,
        "corrections of order k^(1 - 2q) or 1/k, and waves that the grid of 65536 does not resolve",
    )


def _lazy_claims(scale: Scale) -> list[Claim]:
    """Lazy exponents where they can be had: inputs of a quarter, and a width that lasts through the window."""
    sources = SOURCES["full"][:CLAIMED]
    decays = [float(fourier_decay(source)) for source in sources]
    times = np.geomspace(*LAZY_WINDOW, 37)
    losses = linearised(decays, times, input_scale=QUARTER, **LAZY[scale])
    infinite = linearised(decays, times, input_scale=QUARTER, width=np.inf, points=2**13, seeds=1)
    claims = []
    for task, source in enumerate(sources):
        found, error, drift = exponent(losses[task], LAZY_WINDOW)
        own = {"lazy_error": error, "lazy_window": drift}
        claims.append(
            Claim(
                f"(a) β = {source:g}, q = 1: lazy exponent over t = 10 ... 320, inputs of a quarter",
                found,
                source,
                LAZY_TOLERANCE,
                f"the tolerance promised; linearised at width {LAZY[scale]['width']}, "
                + _errors(own, "lazy", LAZY[scale]["seeds"])
                + f"; infinite width {fall(times, infinite[task, 0].values):.3f}",
            )
        )
    return claims


def _errors(fit: dict[str, float], kind: str, seeds: int) -> str:
    over_seeds = f"error over {seeds} seeds {fit[kind + '_error']:.3f}, " if seeds > 1 else ""
    return f"{over_seeds}change with the window {fit[kind + '_window']:.3f}"


def _tangent_claim(scale: Scale) -> Claim:
    """A lazy network that is trained against the model tangent to it: the short cut is what training gives."""
    gap = lazy_against_tangent(1.0, richness=LAZINESS, **CHECKED[scale])
    return Claim(
        "lazy training against the linearised network: largest relative difference of losses",
        gap,
        0.0,
        0.03,
        "steps of descent differ from flow by half of rate times eigenvalue",
    )
