"""Minibatches (beyond the paper): batch noise raises the losses by a factor that theory gives."""

import xarray as xr

from solvable.comparison import compare
from solvable.models.linear_estimator import LinearEstimator
from solvable.papers.claims import Claim, Reproduction, Scale
from solvable.papers.linear_grokking._shared import agreement, draw_run, smooth
from solvable.plotting import COLOURS, draw_curve, new_figure
from solvable.timegrid import log_times, whole_steps


def reproduce(scale: Scale) -> Reproduction:
    figure, panels = new_figure(2)
    datasets: dict[str, xr.Dataset] = {}
    claims: list[Claim] = []
    inputs, seeds = (400, 40) if scale == "quick" else (1000, 100)
    steps = whole_steps(log_times(1, 1000, 10))
    for colour, (ratio, share) in zip(COLOURS, ((0.5, 50), (0.9, 20)), strict=False):
        model, batch = LinearEstimator(aspect_ratio=ratio), inputs // share
        theory = model.predict(smooth(steps), descent="discrete", inputs=inputs, batch=batch)
        full = model.predict(smooth(steps), descent="discrete")
        simulation = model.simulate(steps, inputs=inputs, seeds=seeds, key=9, batch=batch)
        name = f"{ratio:g}-{batch}"
        datasets |= {f"theory-{name}": theory, f"simulation-{name}": simulation}
        draw_run(panels, theory, simulation, colour, f"λ = {ratio:g}, batches of d/{share}")
        draw_curve(panels[0], full.test_loss, colour, f"λ = {ratio:g}, full batches")
        panels[0].lines[-1].set(linestyle=":", linewidth=1.0)
        panels[0].legend()
        claims += agreement(f"λ = {ratio:g}, batches of d/{share}", compare(theory.sel(time=steps), simulation))
        claims.append(_amplification(model, inputs, batch, seeds))
    return Reproduction(datasets, figure, claims)


def _amplification(model: LinearEstimator, inputs: int, batch: int, seeds: int) -> Claim:
    """Training loss on batches over that on the full batch, run by run on the same data: most noise cancels."""
    noisy = model.simulate([100], inputs=inputs, seeds=seeds, key=9, batch=batch).train_loss.isel(time=0)
    plain = model.simulate([100], inputs=inputs, seeds=seeds, key=9).train_loss.isel(time=0)
    ratio = noisy / plain
    error = float(ratio.std("seed", ddof=1)) / seeds**0.5
    theory = model.predict([100], descent="discrete", inputs=inputs, batch=batch).train_loss[0]
    expected = float(theory / model.predict([100], descent="discrete").train_loss[0])
    return Claim(
        f"λ = {model.aspect_ratio:g}, batches of d/{inputs // batch}: training loss over full batch, step 100",
        float(ratio.mean()), expected, 3 * error, "three standard errors over paired runs",
    )  # fmt: skip
