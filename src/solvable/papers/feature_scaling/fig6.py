"""Fig. 6: convolutional networks on streamed images, lazy and rich, against the forecast of their tangent kernel.

The paper trains on MNIST-1M and CIFAR-5M, made by diffusion models, and finds β = 0.30 and 0.075. Here MNIST and
CIFAR-10 are streamed with heavy augmentation, new at every step, and β is that of *these* streams, measured from the
kernels of the networks before training: paper and package can be compared in kind, not in number. The paper gives no
architecture, learning rate, batch size or targets. Here the network has two convolutions (32 and 64 channels, each with
a max pool), a hidden layer of 512, ReLU and mean-field scaling, and its function is centred. It is trained by plain SGD
on half the squared error of *one* output, the number of the class spread from -1 to 1. The theory has one output; ten
share few channels and do not learn independently, so that the kernel of one says less about them. Losses are those of
held-out images, augmented in the same way.

The lazy forecast needs no training: gradient descent with the kernel on many images of the stream bounds the loss of a
network that sees new ones at every step. Its exponent in the window is β, and 2β/(1 + β) the rich forecast.

Quick scale: digits of 8 by 8 pixels and a small network, whose window is too short to claim the rich exponent.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.feature_scaling._circle import exponent
from solvable.papers.feature_scaling._image_kernels import kernel_descent, source_of, tangent_kernel
from solvable.papers.feature_scaling._images import Task, curves, drawn, measured_steps, stream, training
from solvable.papers.feature_scaling._shared import finish, fitted, rich_exponent, shades
from solvable.plotting import COLOURS, few_ticks, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """One panel: what is trained how, in which window exponents are fitted, and the number of images of the kernel."""

    letter: str
    task: Task
    richness: tuple[float, ...]
    rate: float
    steps: int
    seeds: int
    window: tuple[float, float]
    images: int
    linearised: bool


MNIST = Task("mnist", channels=(32, 64), width=512, batch=128, held_out=2048, targets="number")
CIFAR = Task("cifar-10", channels=(32, 64), width=512, batch=128, held_out=2048, targets="number")
DIGITS = Task("digits", channels=(8, 16), width=64, batch=64, targets="number")
# Learning rates times the largest eigenvalue of the kernel, which is about 8.9, 7.6 and 6.6, are 0.36, 0.23 and 0.2.
PANELS: dict[str, tuple[Panel, ...]] = {
    "quick": (Panel("a", DIGITS, (0.01, 1.0), 0.04, 500, 1, (2.0, 20.0), 800, linearised=False),),
    "full": (
        Panel("a", MNIST, (0.01, 0.1, 1.0), 0.03, 2000, 2, (4.0, 60.0), 16384, linearised=False),
        Panel("b", CIFAR, (0.01, 0.25, 0.5), 0.03, 2000, 1, (4.0, 60.0), 20480, linearised=True),
    ),
}
# Images for the modes of the kernel, which take more time than its gradient descent.
MOST_MODES = 4096
# Bounds closer than this determine the loss on a stream of new images.
TIGHT = 0.1
LAZY_TOLERANCE, BOUND_TOLERANCE = 0.03, 0.03
# The tolerance of an exponent, as a fraction of the gap between rich and lazy: a claim must tell them apart.
FRACTION_OF_GAP = 1 / 3


class Measured(NamedTuple):
    """Losses of trained networks and of the linearised one, what their kernels say, and fitted exponents."""

    trained: xr.Dataset
    linearised: xr.Dataset | None
    kernel: xr.Dataset
    exponents: xr.Dataset


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """For each panel the losses of trained networks, the kernel before training, and the exponents of both."""
    data: dict[str, xr.Dataset] = {}
    for panel in PANELS[scale]:
        name, rates = panel.task.images, [panel.rate] * len(panel.richness)
        runs = training(panel.task, panel.richness, rates, steps=panel.steps, seeds=panel.seeds)
        trained = curves(runs, panel.rate)
        kernel = _kernel(panel, runs.network(0).initial.value)
        data |= {f"{name}-trained": trained, f"{name}-kernel": kernel}
        data[f"{name}-exponents"] = _exponents(panel, trained, kernel)
        if panel.linearised:
            tangent = training(panel.task, [1.0], [panel.rate], steps=panel.steps, seeds=1, lazy=True)
            data[f"{name}-linearised"] = curves(tangent, panel.rate).isel(richness=0, drop=True)
    return data


def _measured(panel: Panel, data: Mapping[str, xr.Dataset]) -> Measured:
    name = panel.task.images
    trained, kernel, exponents = (data[f"{name}-{part}"] for part in ("trained", "kernel", "exponents"))
    return Measured(trained, data.get(f"{name}-linearised"), kernel, exponents)


def _kernel(panel: Panel, start: Any) -> xr.Dataset:
    """Gradient descent with the kernel of a network before training, and its capacity and source on the stream."""
    held_out = stream(panel.task)
    inputs, targets = drawn(panel.task, panel.images)
    inputs = jnp.concatenate([inputs, held_out.test_inputs])
    targets = jnp.concatenate([targets, held_out.test_targets])
    kernel = tangent_kernel(start, inputs)
    steps = np.array(measured_steps(panel.steps)[1:])
    descent = kernel_descent(kernel, targets, panel.images, panel.rate, steps)
    few = min(MOST_MODES, panel.images)
    found = source_of(kernel[:few, :few], targets[:few])
    variables = {
        "capacity": ((), found.capacity, "capacity", "α"),
        "capacity_error": ((), found.capacity_error, "error of the capacity", "δα"),
        "source": ((), found.source, "source", "β"),
        "source_error": ((), found.source_error, "error of the source", "δβ"),
        "eigenvalue": ("mode", found.eigenvalues, "eigenvalue of the kernel", "λ_k"),
        "power": ("mode", found.power, "fraction of the targets' power in the mode", "p_k"),
        "learned": ("time", descent.train, "loss of the kernel on the images it learns from", "L"),
        "held_out": ("time", descent.test, "loss of the kernel on others", "L"),
    }
    return xr.Dataset(
        {name: (dims, values, {"long_name": text, "units": "1", "symbol": symbol})
         for name, (dims, values, text, symbol) in variables.items()},
        {"mode": np.arange(1, found.power.size + 1), "time": panel.rate * steps},
    )  # fmt: skip


def _exponents(panel: Panel, trained: xr.Dataset, kernel: xr.Dataset) -> xr.Dataset:
    """Fitted exponents of each richness, and what the kernel forecasts for lazy and rich networks in the same window.

    The lazy forecast is the exponent between the kernel's two bounds, and half their difference its error.
    """
    losses = [trained.test_loss.sel(richness=value) for value in panel.richness]
    middle = float(np.sqrt(panel.window[0] * panel.window[1]))
    rows = np.transpose([exponent(one, panel.window) for one in losses])
    columns = dict(zip(("fitted", "seed_error", "window_change"), rows, strict=True))
    columns["later"] = np.array([fitted(one.mean("seed"), middle, panel.window[1]) for one in losses])
    learned, others = (fitted(kernel[name], *panel.window) for name in ("learned", "held_out"))
    lazy = (learned + others) / 2
    found = xr.Dataset({name: ("richness", values) for name, values in columns.items()}, {"richness": trained.richness})
    return found.assign(lazy=lazy, lazy_error=abs(learned - others) / 2, rich=rich_exponent(lazy))


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Lazy networks against their kernel and linearisation, and exponents against the forecasts."""
    scale = scale_of(data)
    return [claim for panel in PANELS[scale] for claim in _panel_claims(panel, _measured(panel, data), scale)]


def _panel_claims(panel: Panel, found: Measured, scale: Scale) -> list[Claim]:
    seeds = f"{panel.seeds} seed{'s' if panel.seeds > 1 else ''}"
    label = f"({panel.letter}) {panel.task.images}"
    stopped = int((found.trained.diverged_at >= 0).sum())
    stable = "rate times largest eigenvalue is 0.2 to 0.4 at the start, and descent is stable up to 2"
    made = [
        Claim(f"{label}: runs that diverged", stopped, 0, 0, stable),
        _bounds_claim(label, panel, found),
        _order_claim(label, panel, found, seeds),
    ]
    if found.linearised is not None:
        lazy = found.trained.test_loss.isel(richness=0, seed=0)
        gap = float(abs(lazy / found.linearised.test_loss[0] - 1).max())
        text = "the network moves by about γ₀ = 0.01; same start, same images; one seed"
        name = f"{label}: γ₀ = {panel.richness[0]:g} against the linearised network, largest relative difference"
        made.append(Claim(name, gap, 0.0, LAZY_TOLERANCE, text))
    made.append(_exponent_claim(label, panel, found, seeds, "lazy"))
    # At quick scale the window is too short for a rich network to be on its power.
    if scale == "full":
        made.append(_exponent_claim(label, panel, found, seeds, "rich"))
        if panel.task.images == "cifar-10":
            made.append(_late_claim(label, panel, found, seeds))
    return made


def _bounds_claim(label: str, panel: Panel, found: Measured) -> Claim:
    """The lazy network lies between the losses of its kernel on the images it learns from and on others."""
    kernel, lazy = found.kernel, found.trained.test_loss.isel(richness=0, seed=0).values
    # Early on, chance decides which images are the easier ones.
    low, high = np.sort([kernel.learned.values, kernel.held_out.values], axis=0)
    close = high < (1 + TIGHT) * low
    beyond = np.maximum(np.maximum(low - lazy, lazy - high), 0) / high
    until = float(kernel.time[close].max())
    return Claim(
        f"{label}: γ₀ = {panel.richness[0]:g} leaves the bounds of its kernel, t up to {until:.3g}, by a share of",
        float(beyond[close].max()),
        0.0,
        BOUND_TOLERANCE,
        f"bounds from {panel.images} images are closer than {TIGHT:.0%} there; batches of {panel.task.batch} add noise",
    )


def _order_claim(label: str, panel: Panel, found: Measured, seeds: str) -> Claim:
    """Feature learning helps: the richest network is ahead of the laziest in every seed."""
    last = found.trained.test_loss.isel(time=-1)
    ahead = float((last.isel(richness=-1) < last.isel(richness=0)).mean())
    ratio = float((last.isel(richness=-1) / last.isel(richness=0)).mean())
    text = f"β < 1, so that rich networks are faster; {seeds}; its loss is {ratio:.3f} of the lazy one at the end"
    return Claim(f"{label}: share of seeds in which γ₀ = {panel.richness[-1]:g} is ahead at the end", ahead, 1, 0, text)


def _tolerance(found: Measured) -> float:
    return FRACTION_OF_GAP * float(found.exponents.rich - found.exponents.lazy)


def _exponent_claim(label: str, panel: Panel, found: Measured, seeds: str, regime: str) -> Claim:
    """The exponent of the laziest or the richest network against the forecast."""
    index, formula = (0, "β") if regime == "lazy" else (-1, "2β/(1 + β)")
    fits, one = found.exponents, found.exponents.isel(richness=index)
    last = found.trained.isel(time=-1, richness=index).mean("seed")
    kernel = found.kernel
    notes = [
        "a third of what sets rich and lazy apart",
        f"β by the kernel's descent in this window {float(fits.lazy):.3f} ± {float(fits.lazy_error):.3f}, by its modes "
        f"{float(kernel.source):.3f} ± {float(kernel.source_error):.3f}",
        seeds if panel.seeds == 1 else f"{seeds}, error {float(one.seed_error):.3f}",
        f"change with the window {float(one.window_change):.3f}, later half {float(one.later):.3f}",
        f"at the end the loss of held-out images is {float(last.test_loss / last.stream_loss):.3f} of the stream's",
    ]
    if regime == "rich":
        notes.append(f"from the measured lazy exponent it would be {rich_exponent(float(fits.fitted[0])):.3f}")
    return Claim(
        f"{label}, γ₀ = {float(one.richness):g}: exponent over t = {panel.window[0]:g} ... {panel.window[1]:g} against "
        f"the {regime} forecast {formula}",
        float(one.fitted),
        float(fits[regime]),
        _tolerance(found),
        "; ".join(notes),
    )


def _late_claim(label: str, panel: Panel, found: Measured, seeds: str) -> Claim:
    rich, late = float(found.exponents.rich), float(found.exponents.later[-1])
    return Claim(
        f"{label}, γ₀ = {panel.richness[-1]:g}: the late exponent falls short of the rich forecast by",
        max(0.0, rich - late),
        0.0,
        _tolerance(found),
        f"the paper finds rich networks on CIFAR-5M faster than the forecast, late; here {late:.3f} over the later "
        f"half of the window, forecast {rich:.3f}; {seeds}",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses of each stream, and the fitted exponents over the richness."""
    panels = PANELS[scale_of(data)]
    figure, axes = new_figure(len(panels) + 1, width=5.4, height=4.6)
    for panel, ax in zip(panels, axes, strict=False):
        _draw_losses(ax, panel, _measured(panel, data))
    _draw_exponents(axes[-1], panels, data)
    return figure


def _draw_losses(ax: "Axes", panel: Panel, found: Measured) -> None:
    times = found.trained.time.values
    bounds, label = (found.kernel.learned, found.kernel.held_out), f"kernel, {panel.images} images"
    ax.fill_between(times, *bounds, color="grey", alpha=0.3, linewidth=0, label=label)
    for colour, value in zip(shades(len(panel.richness)), panel.richness, strict=True):
        runs = found.trained.test_loss.sel(richness=value)
        power = float(found.exponents.fitted.sel(richness=value))
        ax.plot(times, runs.mean("seed"), color=colour, label=f"γ₀ = {value:g}: {power:.3f}")
        if panel.seeds > 1:
            ax.fill_between(times, runs.min("seed"), runs.max("seed"), color=colour, alpha=0.25, linewidth=0)
    if found.linearised is not None:
        ax.plot(times, found.linearised.test_loss[0], color="black", linestyle="--", linewidth=0.9, label="linearised")
    line = np.geomspace(*panel.window, 2)
    for name, richness, style in (("lazy", panel.richness[0], ":"), ("rich", panel.richness[-1], "-.")):
        power = float(found.exponents[name])
        level = float(found.trained.test_loss.sel(richness=richness).mean("seed").sel(time=line[1], method="nearest"))
        label = f"forecast {name}: {power:.3f}"
        shift = 1.12 if name == "lazy" else 0.87
        ax.plot(line, shift * level * (line / line[1]) ** -power, style, color=COLOURS[1], linewidth=1.4, label=label)
    title = f"({panel.letter}) {panel.task.images}, streamed"
    legend = {"loc": "lower left", "title": "exponents over the window", "title_fontsize": "small"}
    finish(ax, title, "time, sum of learning rates, t", "loss, half the squared error", **legend)
    ax.set_xlim(left=times[0])
    for axis in (ax.xaxis, ax.yaxis):
        few_ticks(axis)


def _draw_exponents(ax: "Axes", panels: tuple[Panel, ...], data: Mapping[str, xr.Dataset]) -> None:
    for panel, colour in zip(panels, COLOURS, strict=False):
        found = data[f"{panel.task.images}-exponents"]
        spread = np.hypot(np.nan_to_num(found.seed_error), found.window_change)
        ax.errorbar(found.richness, found.fitted, spread, fmt="o", color=colour, capsize=3, label=panel.task.images)
        for name, style in (("lazy", ":"), ("rich", "-.")):
            ax.axhline(float(found[name]), color=colour, linestyle=style, linewidth=1.2)
    ax.plot([], [], ":", color="grey", label="lazy forecast, β")
    ax.plot([], [], "-.", color="grey", label="rich forecast, 2β/(1 + β)")
    ax.set(xscale="log", xlabel="richness, γ₀", ylabel="exponent of the loss in time")
    ax.set_title("fitted exponents; bars: seeds and window", fontsize="medium")
    ax.legend(fontsize="small")
