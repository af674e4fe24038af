"""Pictures of docs/numerics/causal-dmft.md: what the two marches do, and their errors against their cost."""

import json
import time
from pathlib import Path

import jax
import numpy as np
from matplotlib.patches import Rectangle

from solvable import SGD, Committee, FeatureScaling, GradientDescent, activations, solvers
from solvable.plotting import COLOURS, new_figure

FIGURES = Path(__file__).parents[1]
DESCENT = GradientDescent(0.2)


def algorithm() -> None:
    """Left: which entries row t of a two-time function needs. Right: how the latent basis of a real run grows."""
    figure, (left, right) = new_figure(2, width=4.6)
    size, row = 12, 8
    for t in range(size):
        for s in range(t + 1):
            colour = "#E69F00" if t == row else ("#56B4E9" if t < row else "#EEEEEE")
            left.add_patch(Rectangle((s, t), 0.92, 0.92, color=colour))
    left.annotate("known rows", (1.2, 3.4), fontsize=9)
    left.annotate("row t: products of known rows", (9.6, row + 0.2), fontsize=9, annotation_clip=False)
    left.annotate("not yet", (0.4, 10.2), fontsize=9)
    left.set(xlim=(0, 17.5), ylim=(0, size), xlabel="earlier time s", ylabel="time t", title="two-time march")
    left.grid(False)
    model = Committee(
        samples_per_dimension=2.0,
        activation=activations.quadratic(0.5),
        output_scale=1.0,
        initial_overlap=[[1.0, 0.2], [0.2, 1.0]],
        initial_alignment=[[0.3], [-0.1]],
    )
    ranks = {}
    for tolerance in (1e-1, 1e-2, 1e-3):
        ranks[tolerance] = [_rank(model, steps, tolerance) for steps in (2, 5, 10, 20, 40, 80)]
    for colour, (tolerance, values) in zip(COLOURS, ranks.items(), strict=False):
        right.plot((2, 5, 10, 20, 40, 80), values, "o-", color=colour, label=f"tolerance {tolerance:g}")
    right.plot((2, 80), (6, 162), ":", color="grey", label="every signal (2 an evaluation)")
    right.set(
        xscale="log", yscale="log", xlabel="gradient-descent steps", ylabel="latent directions", title="latent closure"
    )
    _plain_ticks(right.xaxis, (2, 5, 10, 20, 40, 80))
    right.legend(fontsize="small")
    figure.savefig(FIGURES / "numerics-causal-dmft.png", dpi=90)


def _rank(model: Committee, steps: int, tolerance: float) -> int:
    solver = solvers.Latent(samples=1024, replicates=2, tolerance=tolerance)
    data = model.predict([steps], DESCENT, solver=solver)
    return int(json.loads(data.attrs["solver"])["rank"])


def errors() -> None:
    """Left: the march against steps. Right: closure, response solver and fixed point against seconds, in error."""
    figure, (left, right) = new_figure(2, width=4.6)
    march = FeatureScaling(capacity=1.5, source=0.4, features=64, modes=200)
    batches = SGD(learning_rate=0.2, batch_size=16)
    sizes = (64, 128, 256)
    left.loglog(sizes, [_seconds(lambda n=n: march.predict(np.arange(n), batches)) for n in sizes], "o-", label="march")
    left.loglog(sizes, [2e-2 * (n / 64) ** 3 for n in sizes], ":", color="grey", label="steps³")
    left.set(xlabel="steps", ylabel="processor seconds (warm)", title="cost of the two-time march")
    _plain_ticks(left.xaxis, sizes)
    left.legend(fontsize="small")
    model = Committee(
        samples_per_dimension=2.0,
        activation=activations.quadratic(0.5),
        output_scale=1.0,
        initial_overlap=[[1.0, 0.2], [0.2, 1.0]],
        initial_alignment=[[0.3], [-0.1]],
    )
    ways = {"closure": (solvers.Latent, (256, 1024, 4096)), "responses": (solvers.Response, (256, 1024))}
    for steps, line, face in ((20, "-", None), (80, "--", "white")):
        times = [steps]
        best = model.predict(times, DESCENT, solver=solvers.Latent(samples=16384, replicates=4), key=5)
        reference = float(best.test_loss[0])
        print(steps, "steps: reference", reference, float(best.test_loss_error[0]))
        for colour, (name, (solver, counts)) in zip(COLOURS, ways.items(), strict=False):
            rows = [_measured(model, times, solver(samples=count), reference) for count in counts]
            print(name, counts, rows)
            seconds, wrong, said = zip(*rows, strict=True)
            right.loglog(seconds, wrong, f"o{line}", color=colour, markerfacecolor=face, label=f"{name}, {steps} steps")
            right.loglog(seconds, said, "_", color=colour, markersize=12)
    right.set(xlabel="processor seconds (warm)", ylabel="relative error of the test loss", title="committee")
    right.legend(fontsize="small")
    figure.savefig(FIGURES / "numerics-causal-dmft-error.png", dpi=90)


def _measured(model: Committee, times: list[int], solver, reference: float) -> tuple[float, float, float]:
    """Seconds, error against the reference over three keys, and the error that the solver states."""
    found = [model.predict(times, DESCENT, solver=solver, key=key) for key in range(3)]
    wrong = np.sqrt(np.mean([(float(each.test_loss[0]) - reference) ** 2 for each in found]))
    said = np.mean([float(each.test_loss_error[0]) for each in found])
    return _seconds(lambda: model.predict(times, DESCENT, solver=solver)), wrong / reference, said / reference


def _plain_ticks(axis, values) -> None:
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def _seconds(run) -> float:
    """The best of three warm runs, in processor time: the machine may be busy."""
    run()
    taken = []
    for _ in range(3):
        begin = time.process_time()
        jax.block_until_ready(run().test_loss.data)
        taken.append(time.process_time() - begin)
    return min(taken)


if __name__ == "__main__":
    algorithm()
    errors()
