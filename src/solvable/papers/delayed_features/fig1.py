"""Fig. 1: a wide network fits its data long before it generalises, and the later the lazier it is.

The paper gives epsilon and alpha but no sizes; a network of a hundred neurons with 4.5 samples a dimension shows its
curves. Losses are held against a tenth of the target's mean square, which is that of a network that knows nothing:
the loss at the start is nearly the same in wide networks, but in narrow ones it grows with alpha by itself.
"""

import json
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable import activations, teachers
from solvable._version import __version__
from solvable.engines.timegrid import log_times, whole_steps
from solvable.models.base import Meaning, make_dataset
from solvable.models.committee.simulation import simulate
from solvable.models.committee.task import Task
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.plotting import COLOURS, draw_curve, log_losses, new_figure, set_axis

EPSILON = 0.05
DIMENSION, SAMPLES = 100, 450
# The step for each output scale: steeper with a larger one.
STEP = {0.5: 0.5, 2.0: 0.2}
TARGET_SQUARE = 0.75
# (neurons, datasets, last time)
SIZES = {"quick": (50, 3, 2000.0), "full": (100, 20, 5000.0)}
MEANINGS = {
    "train_loss": Meaning("training loss", "1", "L_train"),
    "test_loss": Meaning("test loss", "1", "L_test"),
    "kernel_alignment": Meaning("tangent kernel alignment", "1", "y·Ky/|K||y|²"),
    "time": Meaning("time (steps × their length)", "1", "t"),
}


def reproduce(scale: Scale) -> Reproduction:
    figure, (loss_panel, kernel_panel) = new_figure(2)
    runs = {alpha: _run(alpha, scale) for alpha in STEP}
    claims: list[Claim] = []
    delays = {}
    for colour, (alpha, run) in zip(COLOURS, runs.items(), strict=False):
        fitted, learned = (fall_times(run[name]) for name in ("train_loss", "test_loss"))
        delays[alpha] = learned - fitted
        for name, kind in (("train_loss", "train"), ("test_loss", "test")):
            draw_curve(loss_panel, run[name], colour, label=f"α = {alpha:g}, {kind}", dashed=kind == "train")
        draw_curve(kernel_panel, run.kernel_alignment, colour, label=f"α = {alpha:g}")
        claims.append(
            Claim(
                f"α = {alpha:g}: share of datasets that are learned 4 times later than fitted",
                float(np.mean(learned > 4 * fitted)),
                1.0,
                0.0,
                "what the logarithmic axis of the figure shows at sight; the paper gives no number",
            )
        )
    loss_panel.axhline(TARGET_SQUARE / 10, color="grey", linewidth=0.8, linestyle=":", label="a tenth of ⟨y²⟩")
    for panel in (loss_panel, kernel_panel):
        set_axis(panel, "x", runs[0.5].time, log=True)
        panel.legend(fontsize="small")
    loss_panel.set_ylabel("loss")
    log_losses(loss_panel)
    set_axis(kernel_panel, "y", runs[0.5].kernel_alignment)
    datasets = {f"simulation-{alpha:g}": run for alpha, run in runs.items()}
    return Reproduction(datasets, figure, claims + _delay_claims(delays, runs))


def _delay_claims(delays: dict[float, np.ndarray], runs: dict[float, xr.Dataset]) -> list[Claim]:
    turned = {alpha: run.kernel_alignment.isel(time=-1).values for alpha, run in runs.items()}
    pairs = "the same datasets and initial weights at both: paired, each of them must show it"
    return [
        Claim(
            "α = 0.5: the delay in steps, log10 of the median",
            float(np.log10(np.median(delays[0.5]) / STEP[0.5])),
            3.5,
            0.5,
            "thousands: between 10³ and 10⁴",
        ),
        Claim(
            "share of datasets where α = 2 delays more than 0.5",
            float(np.mean(delays[2.0] > delays[0.5])),
            1.0,
            0.0,
            pairs,
        ),
        Claim(
            "share of datasets where the kernel ends better aligned at α = 0.5 than at 2",
            float(np.mean(turned[0.5] > turned[2.0])),
            1.0,
            0.0,
            pairs,
        ),
    ]


def fall_times(losses: xr.DataArray) -> np.ndarray:
    """When each dataset's loss first is a tenth of the target's mean square: interpolated on log axes, inf if never."""
    times, level = np.log(losses.time.values), np.log(TARGET_SQUARE / 10)
    found = []
    for curve in np.log(losses.values):
        after = int(np.argmax(curve < level))
        if not curve[after] < level:
            found.append(np.inf)
            continue
        pair = slice(max(after - 1, 0), after + 1)
        # np.interp wants its abscissae in ascending order, and losses fall.
        found.append(float(np.exp(np.interp(level, curve[pair][::-1], times[pair][::-1]))))
    return np.array(found)


def _run(alpha: float, scale: Scale) -> xr.Dataset:
    neurons, seeds, last_time = SIZES[scale]
    # Independent weights of variance 1, over sqrt(D) as overlaps are measured; the same for all datasets.
    weights = np.random.default_rng(0).normal(size=(neurons, DIMENSION)) / np.sqrt(DIMENSION)
    steps = whole_steps(log_times(1, last_time / STEP[alpha], 50)).astype(int)
    task = Task(
        activations.quadratic(EPSILON), teachers.square(), jnp.full(neurons, alpha / neurons), jnp.ones(neurons)
    )
    run = simulate(
        task,
        samples_per_dimension=SAMPLES / DIMENSION,
        initial_overlap=weights @ weights.T,
        initial_alignment=weights[:, :1],
        step=STEP[alpha],
        steps=steps.tolist(),
        dimension=DIMENSION,
        seeds=seeds,
        key=1,
        test_loss=_test_loss(alpha, neurons),
    )
    curves = {name: (("seed", "time"), getattr(run, name)) for name in ("train_loss", "test_loss", "kernel_alignment")}
    parameters = {"samples_per_dimension": SAMPLES / DIMENSION, "output_scale": alpha, "epsilon": EPSILON}
    attributes = {
        "model": "committee",
        "method": "simulation",
        "parameters": json.dumps({**parameters, "neurons": neurons, "dimension": DIMENSION, "step": STEP[alpha]}),
        "version": __version__,
    }
    return make_dataset(curves, {"seed": np.arange(seeds), "time": steps * STEP[alpha]}, attributes, MEANINGS)


def _test_loss(alpha: float, neurons: int) -> Callable[[Array, Array], Array]:
    """In closed form: phi and sigma are quadratic and new fields Gaussian."""
    scale = alpha * EPSILON / neurons

    def loss(alignment: Array, overlap: Array) -> Array:
        own = jnp.diag(overlap)
        linear = (alpha / neurons) ** 2 * overlap.sum()
        cross = 2 * scale * (own + 2 * alignment[:, 0] ** 2).sum()
        return linear + (3 - cross + scale**2 * (own.sum() ** 2 + 2 * (overlap**2).sum())) / 4

    return loss
