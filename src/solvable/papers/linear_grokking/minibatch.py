"""Mini-batches (beyond the paper): batch noise raises the losses by a factor that theory gives."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Scale, scale_of
from solvable.papers.linear_grokking._shared import (
    DESCENT,
    agreement,
    draw_run,
    pair,
    sizes,
    smooth,
    theory_and_simulation,
)
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Aspect ratios, each with the input dimension over the batch size.
SETTINGS = ((0.5, 50), (0.9, 20))


def compute(scale: Scale) -> dict[str, xr.Dataset]:
    """Theory and simulation with batches, theory without, and what batches do to the training loss of a run."""
    data: dict[str, xr.Dataset] = {}
    steps = whole_steps(log_times(1, 1000, 10))
    for ratio, part in SETTINGS:
        model, name = LinearEstimator(aspect_ratio=ratio), _name(ratio, part, scale)
        training = SGD(learning_rate=DESCENT.learning_rate, batch_size=sizes(scale)[0] // part)
        data |= theory_and_simulation(name, model, training, steps, scale, key=9)
        data[f"full-batch-{ratio:g}"] = model.predict(smooth(steps), DESCENT)
        data[f"amplification-{name}"] = _amplification(model, training, scale)
    return data


def _name(ratio: float, part: int, scale: Scale) -> str:
    return f"{ratio:g}-{sizes(scale)[0] // part}"


def _amplification(model: LinearEstimator, training: SGD, scale: Scale) -> xr.Dataset:
    """Training loss on batches over that on the full batch, run by run on the same data: most noise cancels."""
    dimension, seeds = sizes(scale)
    noisy, plain = (
        model.simulate([100], kind, dimension=dimension, seeds=seeds, key=9).train_loss.isel(time=0, drop=True)
        for kind in (training, DESCENT)
    )
    theory = model.predict([100], training, dimension=dimension).train_loss[0]
    found = xr.Dataset({"simulation": noisy / plain, "theory": theory / model.predict([100], DESCENT).train_loss[0]})
    for kind, values in found.items():
        values.attrs = {"long_name": f"training loss over full batch at step 100, {kind}", "units": "1"}
    return found


def claims(data: Mapping[str, xr.Dataset]) -> list[Claim]:
    """Theory against simulation: losses, and the factor by which batches raise the training loss."""
    made: list[Claim] = []
    for ratio, part in SETTINGS:
        name, label = _name(ratio, part, scale_of(data)), f"λ = {ratio:g}, batches of d/{part}"
        made += agreement(label, *pair(data, name))
        made.append(_factor_claim(label, data[f"amplification-{name}"]))
    return made


def _factor_claim(label: str, factor: xr.Dataset) -> Claim:
    runs = factor.simulation
    return Claim(
        f"{label}: training loss over full batch, step 100",
        float(runs.mean()),
        float(factor.theory),
        3 * float(runs.std("seed", ddof=1)) / runs.sizes["seed"] ** 0.5,
        "three standard errors over paired runs",
    )


def draw(data: Mapping[str, xr.Dataset]) -> "Figure":
    """Losses and accuracies with batches, and the test loss without."""
    figure, panels = new_figure(2)
    for colour, (ratio, part) in zip(COLOURS, SETTINGS, strict=False):
        run = pair(data, _name(ratio, part, scale_of(data)))
        draw_run(panels, *run, colour, f"λ = {ratio:g}, batches of d/{part}")
        full = data[f"full-batch-{ratio:g}"].test_loss
        draw_curve(panels[0], full, colour, f"λ = {ratio:g}, full batches")
        panels[0].lines[-1].set(linestyle=":", linewidth=1.0)
        panels[0].legend()
    return figure
