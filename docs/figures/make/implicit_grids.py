"""Pictures of docs/numerics/implicit-grids.md: grids and stability, and errors against cost."""

import itertools
import math
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from solvable import FeatureScaling, GradientFlow
from solvable.models.committee.flow import chebyshev_step, geometric_steps, stages_needed
from solvable.plotting import COLOURS, new_figure

# Numerics below the public functions, which switch float64 on for themselves.
jax.config.update("jax_enable_x64", True)

FIGURES = Path(__file__).parents[1]
RATES = 50.0 * np.arange(1, 5001) ** -1.5


def algorithm() -> None:
    figure, (left, right) = new_figure(2, width=4.8)
    for colour, stages in zip(COLOURS, (2, 4, 8), strict=False):
        reach = np.linspace(0, 0.65 * (stages**2 - 1) * 1.15, 300)
        factor = chebyshev_step(lambda y, x=reach: -x * y, jnp.ones((1, reach.size)), -reach[None], 1.0, stages)[0]
        left.plot(reach, factor, color=colour, label=f"{stages} stages")
    left.plot(reach, np.exp(-reach), ":", color="grey", label="exact")
    left.set(xlabel="step × rate", ylabel="what a step leaves of a mode", ylim=(-0.2, 1.2), title="RKC2: one step")
    left.legend(fontsize="small")
    begin, growth = 0.3, np.log(10) / 4
    nodes = begin * np.expm1(growth * np.arange(13))
    c = 1 - 1 / np.sqrt(2)
    for step, (low, high) in enumerate(itertools.pairwise(nodes)):
        first, last = low + c * (high - low), high
        right.plot([low + begin] * 2, [0, 1], color="#D55E00", linewidth=1.2, label="kick" if not step else None)
        right.plot(first + begin, 0.5, "o", color="#56B4E9", label="stage 1" if not step else None)
        right.plot(last + begin, 0.5, "o", color="#0072B2", label="stage 2, the node" if not step else None)
    right.set(
        xscale="log", xlabel="time + 0.3/λ₁", ylim=(-0.2, 2.2), yticks=[], title="slots of the march (4 steps a decade)"
    )
    right.legend(fontsize="small", loc="upper left")
    figure.savefig(FIGURES / "numerics-implicit-grids.png", dpi=90)


def chebyshev(ratio: float, last: float) -> tuple[int, float]:
    """Evaluations, and the error of the loss at ``last`` of a linear flow of many rates."""
    state, evaluations = jnp.ones((1, RATES.size)), 0
    for step in geometric_steps(0.0, last, ratio, 0.3 / RATES[0]):
        stages = stages_needed(step, RATES[0])
        state = chebyshev_step(lambda y: -RATES * y, state, -RATES * state, step, stages)
        evaluations += stages
    return evaluations, relative(state, last)


def implicit(ratio: float, last: float) -> tuple[int, float]:
    state, steps = np.ones((1, RATES.size)), geometric_steps(0.0, last, ratio, 0.3 / RATES[0])
    for step in steps:
        state = state / (1 + step * RATES)
    return steps.size, relative(state, last)


def explicit(step: float, last: float) -> tuple[int, float]:
    count = int(np.ceil(last / step))
    return count, relative(np.ones((1, RATES.size)) * (1 - last / count * RATES) ** count, last)


def relative(state: np.ndarray, last: float) -> float:
    exact = (np.exp(-2 * RATES * last) * RATES).sum()
    return abs(float((RATES * np.asarray(state)[0] ** 2).sum()) / exact - 1)


def errors() -> None:
    figure, (left, right) = new_figure(2, width=4.8)
    ratios, last = (2.0, 1.5, 1.21, 1.1, 1.05), 1000.0
    rows = {
        "RKC2 (evaluations)": [chebyshev(ratio, last) for ratio in ratios],
        "implicit Euler (solves)": [implicit(ratio, last) for ratio in ratios],
        "explicit Euler (evaluations)": [explicit(step, last) for step in (0.038, 0.02, 0.01)],
    }
    for colour, (name, points) in zip(COLOURS, rows.items(), strict=False):
        left.loglog(*zip(*points, strict=True), "o-", color=colour, label=name)
        print(name, points)
    left.set(xlabel="work", ylabel="relative error of the loss", title="flow with rates $50k^{-3/2}$, t = 1000")
    left.legend(fontsize="small")
    times = np.array([1.0, 10.0, 100.0, 1000.0])
    cases = {
        "slot march, N = 64": (FeatureScaling(1.5, 0.4, features=64, modes=1000), (6, 8, 16), 32),
        "exponential midpoint": (FeatureScaling(1.5, 0.4, modes=math.inf), (4, 8, 16, 32), 96),
    }
    for colour, (name, (model, counts, finest)) in zip(COLOURS, cases.items(), strict=False):
        exact = model.predict(times, GradientFlow(), per_decade=finest).test_loss.values
        found = [model.predict(times, GradientFlow(), per_decade=count) for count in counts]
        wrong = [np.abs(each.test_loss.values / exact - 1).max() for each in found]
        said = [each.attrs["numerical_error"] for each in found]
        print(name, counts, wrong, said, [each.attrs["seconds"] for each in found])
        right.loglog(counts, wrong, "o-", color=colour, label=f"{name}: error")
        right.loglog(counts, said, "--", color=colour, label=f"{name}: estimate")
    right.loglog((4, 32), (4e-3, 4e-3 / 64), ":", color="grey", label="second order")
    right.set(
        xlabel="steps per decade", ylabel="largest relative error", title="feature scaling, β = 0.4, t = 1 … 1000"
    )
    right.xaxis.set_ticks((4, 8, 16, 32), ("4", "8", "16", "32"))
    right.xaxis.set_ticks([], minor=True)
    right.set_ylim(1e-7, 1)
    right.legend(fontsize="x-small", loc="upper right")
    figure.savefig(FIGURES / "numerics-implicit-grids-error.png", dpi=90)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    algorithm()
    errors()
