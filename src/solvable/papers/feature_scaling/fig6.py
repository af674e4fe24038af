"""Fig. 6: convolutional networks on streamed images, lazy and rich, against the forecast of their tangent kernel.

The paper trains on MNIST-1M and CIFAR-5M, made by diffusion models, and finds β = 0.30 and 0.075. Here MNIST and
CIFAR-10 are streamed with heavy augmentation, new at every step, and β is that of *these* streams, measured from the
kernels of the networks before training: paper and package can be compared in kind, not in number. The paper gives no
architecture, rate or batch; here: two convolutions (32 and 64 channels, each with a max pool), a hidden layer of 512,
ReLU, mean-field scaling, centred, plain SGD on the squared error of one-hot targets less their mean. Losses are those
of held-out images, augmented alike. Quick scale: digits of 8 by 8 pixels and a small network, where the window is too
short for exponents, so that only what is exact and the order of curves are claimed.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.feature_scaling._circle import exponent
from solvable.papers.feature_scaling._image_kernels import kernel_flow, source_of, tangent_kernel
from solvable.papers.feature_scaling._images import Task, curves, drawn, stream, training
from solvable.papers.feature_scaling._shared import fitted, rich_exponent, shades
from solvable.plotting import log_losses, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Panel(NamedTuple):
    """One panel: what is trained how, in which window exponents are fitted, and on how many images kernels are taken.

    ``checked``: until when the lazy network is held against kernel flow, which needs more images the longer it goes.
    """

    letter: str
    task: Task
    richness: tuple[float, ...]
    rate: float
    steps: int
    seeds: int
    window: tuple[float, float]
    images: int
    kernels: int
    linearised: bool


MNIST = Task("mnist", channels=(32, 64), width=512, batch=256, held_out=4096)
CIFAR = Task("cifar-10", channels=(32, 64), width=512, batch=256, held_out=4096)
DIGITS = Task("digits", channels=(8, 16), width=64, batch=64, targets="number")
PANELS: dict[str, tuple[Panel, ...]] = {
    "quick": (Panel("a", DIGITS, (0.01, 1.0), 0.04, 600, 1, (2.0, 24.0), 800, 1, linearised=False),),
    "full": (
        Panel("a", MNIST, (0.01, 0.03, 0.1, 0.3, 1.0), 0.03, 8000, 3, (10.0, 240.0), 8192, 3, linearised=True),
        Panel("b", CIFAR, (0.01, 0.25, 0.33, 0.5), 0.03, 16000, 1, (10.0, 480.0), 8192, 2, linearised=True),
    ),
}
# Kernel flow on n images is told from flow on all there are by how far apart images learned from and others are.
TIGHT = 0.1
LAZY_TOLERANCE, FLOW_TOLERANCE = 0.03, 0.03
# Rich and lazy forecasts must be told apart.
SHARE_OF_GAP = 1 / 3


class Measured(NamedTuple):
    """Losses of trained networks and of the linearised one, what their kernels say, and fitted exponents."""

    trained: xr.Dataset
    linearised: xr.Dataset | None
    kernel: xr.Dataset
    exponents: xr.Dataset


def reproduce(scale: Scale) -> Reproduction:
    panels = PANELS[scale]
    figure, axes = new_figure(len(panels) + 1, width=5.4, height=4.6)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    for panel, ax in zip(panels, axes, strict=False):
        found = measured(panel)
        name = panel.task.images
        datasets |= {f"{name}-trained": found.trained, f"{name}-kernel": found.kernel}
        datasets[f"{name}-exponents"] = found.exponents
        if found.linearised is not None:
            datasets[f"{name}-linearised"] = found.linearised
        _draw(ax, panel, found)
        claims += _claims(panel, found, scale)
    _draw_exponents(axes[-1], panels, datasets)
    return Reproduction(datasets, figure, claims)


def measured(panel: Panel) -> Measured:
    settings = {"steps": panel.steps, "seeds": panel.seeds}
    runs = training(panel.task, panel.richness, [panel.rate] * len(panel.richness), **settings)
    trained = curves(runs, panel.rate)
    linearised = None
    if panel.linearised:
        tangent = training(panel.task, [1.0], [panel.rate], steps=panel.steps, seeds=1, lazy=True)
        linearised = curves(tangent, panel.rate).isel(richness=0, drop=True)
    starts = [runs.network(seed).initial.value for seed in range(min(panel.seeds, panel.kernels))]
    kernel = xr.concat([_kernel(panel, start, trained.time.values) for start in starts], "network")
    return Measured(trained, linearised, kernel, _exponents(panel, trained, kernel))


def _kernel(panel: Panel, start: object, times: np.ndarray) -> xr.Dataset:
    """Capacity, source, and flow on images of the stream, of the kernel of one network before training."""
    held_out = stream(panel.task)
    inputs, targets = drawn(panel.task, panel.images)
    inputs = np.concatenate([inputs, held_out.test_inputs])
    targets = np.concatenate([targets, held_out.test_targets])
    kernel = tangent_kernel(start, inputs)
    flow = kernel_flow(kernel, targets, panel.images, times)
    few = panel.images // 2
    found = source_of(kernel[:few, :few], targets[:few])
    modes = np.arange(1, found.power.size + 1)
    variables = {
        "capacity": ((), found.capacity, "capacity", "α"),
        "capacity_error": ((), found.capacity_error, "error of the capacity", "δα"),
        "source": ((), found.source, "source", "β"),
        "source_error": ((), found.source_error, "error of the source", "δβ"),
        "eigenvalue": ("mode", found.eigenvalues, "eigenvalue of the kernel", "λ_k"),
        "power": ("mode", found.power, "share of the targets in the mode", "p_k"),
        "learned": ("time", flow.train, "loss of kernel flow on the images it learns from", "L"),
        "held_out": ("time", flow.test, "loss of kernel flow on others", "L"),
    }
    return xr.Dataset(
        {name: (dims, values, {"long_name": text, "units": "1", "symbol": symbol})
         for name, (dims, values, text, symbol) in variables.items()},
        {"mode": modes, "time": times},
    )  # fmt: skip


def _exponents(panel: Panel, trained: xr.Dataset, kernel: xr.Dataset) -> xr.Dataset:
    """Fitted exponents of each richness, and what the source forecasts for lazy and rich networks."""
    fits = [exponent(trained.test_loss.sel(richness=value), panel.window) for value in panel.richness]
    late = (np.sqrt(panel.window[0] * panel.window[1]), panel.window[1])
    later = [fitted(trained.test_loss.sel(richness=value).mean("seed"), *late) for value in panel.richness]
    source, error = float(kernel.source.mean()), float(kernel.source_error.mean())
    if kernel.sizes["network"] > 1:
        error = float(np.hypot(error, kernel.source.std(ddof=1) / np.sqrt(kernel.sizes["network"])))
    columns = dict(zip(("fitted", "seed_error", "window_change"), np.transpose(fits), strict=True))
    found = xr.Dataset(
        {name: ("richness", values) for name, values in columns.items()} | {"later": ("richness", later)},
        {"richness": trained.richness},
    )
    return found.assign(source=source, source_error=error, rich=rich_exponent(source))


def _draw(ax: "Axes", panel: Panel, found: Measured) -> None:
    kernel = found.kernel.isel(network=0)
    close = _close(kernel)
    times = found.trained.time.values
    ax.fill_between(
        times[close], kernel.learned[close], kernel.held_out[close], color="grey", alpha=0.35, linewidth=0,
        label=f"kernel flow on {panel.images} images",
    )  # fmt: skip
    for colour, value in zip(shades(len(panel.richness)), panel.richness, strict=True):
        runs = found.trained.test_loss.sel(richness=value)
        power = float(found.exponents.fitted.sel(richness=value))
        ax.plot(times, runs.mean("seed"), color=colour, label=f"γ₀ = {value:g}: {power:.3f}")
        if panel.seeds > 1:
            ax.fill_between(times, runs.min("seed"), runs.max("seed"), color=colour, alpha=0.25, linewidth=0)
    if found.linearised is not None:
        ax.plot(times, found.linearised.test_loss[0], color="black", linestyle="--", linewidth=0.9, label="linearised")
    line = np.geomspace(*panel.window, 2)
    for name, richness, style in (("source", panel.richness[0], ":"), ("rich", panel.richness[-1], "-.")):
        power = float(found.exponents[name])
        level = float(found.trained.test_loss.sel(richness=richness).mean("seed").sel(time=line[1], method="nearest"))
        label = f"forecast {'lazy' if name == 'source' else 'rich'}: {power:.3f}"
        shift = 1.1 if name == "source" else 0.87
        ax.plot(line, shift * level * (line / line[1]) ** -power, style, color="#D55E00", linewidth=1.4, label=label)
    ax.set(xscale="log", xlabel="time, sum of learning rates, t", ylabel="loss, half the squared error")
    ax.set_title(f"({panel.letter}) {panel.task.images}, streamed", fontsize="medium")
    ax.set_xlim(left=panel.window[0] / 30)
    log_losses(ax)
    ax.legend(fontsize="small", loc="lower left", title="exponents over the window", title_fontsize="small")


def _draw_exponents(ax: "Axes", panels: tuple[Panel, ...], datasets: dict[str, xr.Dataset]) -> None:
    for panel, colour in zip(panels, ("#0072B2", "#D55E00"), strict=False):
        found = datasets[f"{panel.task.images}-exponents"]
        spread = np.hypot(np.nan_to_num(found.seed_error), found.window_change)
        ax.errorbar(found.richness, found.fitted, spread, fmt="o", color=colour, capsize=3, label=panel.task.images)
        for name, style, text in (("source", ":", "lazy forecast, β"), ("rich", "-.", "rich forecast, 2β/(1 + β)")):
            ax.axhline(float(found[name]), color=colour, linestyle=style, linewidth=1.2, label=text)
    ax.set(xscale="log", xlabel="richness, γ₀", ylabel="exponent of the loss in time")
    ax.set_title("fitted exponents; bars: seeds and window", fontsize="medium")
    ax.legend(fontsize="small")


def _close(kernel: xr.Dataset) -> np.ndarray:
    """The times at which there are images enough for kernel flow to say what a stream gives."""
    return (kernel.held_out.values < (1 + TIGHT) * kernel.learned.values).astype(bool)


def _claims(panel: Panel, found: Measured, scale: Scale) -> list[Claim]:
    seeds = f"{panel.seeds} seed{'s' if panel.seeds > 1 else ''}"
    label = f"({panel.letter}) {panel.task.images}"
    claims = [_flow_claim(label, panel, found), _order_claim(label, panel, found, seeds)]
    if found.linearised is not None:
        lazy = found.trained.test_loss.isel(richness=0, seed=0)
        gap = float(abs(lazy / found.linearised.test_loss[0] - 1).max())
        text = "the network moves by about γ₀ = 0.01; same start, same images; one seed"
        name = f"{label}: γ₀ = {panel.richness[0]:g} against the linearised network, largest relative difference"
        claims.append(Claim(name, gap, 0.0, LAZY_TOLERANCE, text))
    if scale == "full":
        claims += _exponent_claims(label, panel, found, seeds)
    return claims


def _flow_claim(label: str, panel: Panel, found: Measured) -> Claim:
    """The lazy network between what kernel flow has on images it learns from and on others."""
    kernel, lazy = found.kernel.isel(network=0), found.trained.test_loss.isel(richness=0, seed=0).values
    # In the first steps the strongest mode jumps where flow would fade.
    kept = _close(kernel) & (found.trained.time.values > 10 * panel.rate)
    low, high = kernel.learned.values[kept], kernel.held_out.values[kept]
    beyond = np.maximum(np.maximum(low - lazy[kept], lazy[kept] - high), 0) / high
    until = found.trained.time.values[kept].max()
    return Claim(
        f"{label}: γ₀ = {panel.richness[0]:g} leaves the bounds of kernel flow, t up to {until:.3g}, by a share of",
        float(beyond.max()),
        0.0,
        FLOW_TOLERANCE,
        f"bounds are closer than {TIGHT:.0%} there ({panel.images} images); outputs are taken to learn independently, "
        f"which width {panel.task.width} does not quite have, and batches of {panel.task.batch} add noise",
    )


def _order_claim(label: str, panel: Panel, found: Measured, seeds: str) -> Claim:
    """Feature learning helps: the richest network is ahead of the laziest in every seed."""
    last = found.trained.test_loss.isel(time=-1)
    ahead = float((last.isel(richness=-1) < last.isel(richness=0)).mean())
    ratio = float((last.isel(richness=-1) / last.isel(richness=0)).mean())
    text = f"β < 1, so that rich networks are faster; {seeds}; its loss is {ratio:.3f} of the lazy one at the end"
    return Claim(f"{label}: share of seeds in which γ₀ = {panel.richness[-1]:g} is ahead at the end", ahead, 1, 0, text)


def _exponent_claims(label: str, panel: Panel, found: Measured, seeds: str) -> list[Claim]:
    fits = found.exponents
    source, error, rich = (float(fits[name]) for name in ("source", "source_error", "rich"))
    tolerance = SHARE_OF_GAP * (rich - source)
    over = f"over t = {panel.window[0]:g} ... {panel.window[1]:g}"
    last = found.trained.isel(time=-1).mean("seed")
    claims = []
    for index, expected, name in ((0, source, "lazy forecast β"), (-1, rich, "rich forecast 2β/(1 + β)")):
        one = fits.isel(richness=index)
        gap = float((last.test_loss / last.stream_loss - 1).isel(richness=index))
        spread = f"error over seeds {float(one.seed_error):.3f}, " if panel.seeds > 1 else ""
        by_slope = rich_exponent(float(fits.fitted[0]))
        measured_lazy = "" if index == 0 else f"; from the measured lazy exponent it would be {by_slope:.3f}"
        claims.append(
            Claim(
                f"{label}, γ₀ = {float(one.richness):g}: exponent {over} against the {name}",
                float(one.fitted),
                expected,
                tolerance,
                f"a third of what sets rich and lazy apart; β of the kernel is uncertain by {error:.3f}; {seeds}, "
                f"{spread}change with the window {float(one.window_change):.3f}; later half {float(one.later):.3f}; "
                f"held-out loss over that of the stream at the end: {gap:+.1%}{measured_lazy}",
            )
        )
    if panel.letter == "b":
        late = float(fits.later[-1])
        claims.append(
            Claim(
                f"{label}, γ₀ = {panel.richness[-1]:g}: late exponent falls short of the rich forecast by",
                max(0.0, rich - late),
                0.0,
                tolerance,
                f"the paper finds rich networks on CIFAR-5M faster than the forecast, late; here {late:.3f} over the "
                f"later half of the window; {seeds}",
            )
        )
    return claims
