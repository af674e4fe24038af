"""Mini-batches (beyond the paper): batch noise raises the losses by a factor that theory gives."""

import xarray as xr

from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import DESCENT, agreement, draw_run, held_against_simulation, sizes, smooth
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times, whole_steps
from solvable.training import SGD


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    dimension, _ = sizes(scale)
    steps = whole_steps(log_times(1, 1000, 10))
    for colour, (ratio, part) in zip(COLOURS, ((0.5, 50), (0.9, 20)), strict=False):
        model = LinearEstimator(aspect_ratio=ratio)
        training = SGD(learning_rate=DESCENT.learning_rate, batch_size=dimension // part)
        theory, simulation, _ = held_against_simulation(model, training, steps, scale, key=9)
        full = model.predict(smooth(steps), DESCENT)
        name = f"{ratio:g}-{training.batch_size}"
        datasets |= {f"theory-{name}": theory, f"simulation-{name}": simulation}
        draw_run(panels, theory, simulation, colour, f"λ = {ratio:g}, batches of d/{part}")
        draw_curve(panels[0], full.test_loss, colour, f"λ = {ratio:g}, full batches")
        panels[0].lines[-1].set(linestyle=":", linewidth=1.0)
        panels[0].legend()
        claims += agreement(f"λ = {ratio:g}, batches of d/{part}", theory, simulation)
        claims.append(_amplification(model, training, scale))
    return Reproduction(datasets, figure, claims)


def _amplification(model: LinearEstimator, training: SGD, scale: Scale) -> Claim:
    """Training loss on batches over that on the full batch, run by run on the same data: most noise cancels."""
    dimension, seeds = sizes(scale)
    noisy, plain = (
        model.simulate([100], kind, dimension=dimension, seeds=seeds, key=9).train_loss.isel(time=0)
        for kind in (training, DESCENT)
    )
    ratio = noisy / plain
    error = float(ratio.std("seed", ddof=1)) / seeds**0.5
    theory = model.predict([100], training, dimension=dimension).train_loss[0]
    expected = float(theory / model.predict([100], DESCENT).train_loss[0])
    part = dimension // training.batch_size
    return Claim(
        f"λ = {model.aspect_ratio:g}, batches of d/{part}: training loss over full batch, step 100",
        float(ratio.mean()), expected, 3 * error, "three standard errors over paired runs",
    )  # fmt: skip
