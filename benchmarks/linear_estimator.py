"""Linear estimator: phase diagrams and long simulations, compared with loops that do the same one by one."""

import numpy as np

from benchmarks.timing import Result, seconds
from solvable import GradientFlow, LinearEstimator
from solvable.models.linear_estimator.grokking import loss_threshold
from solvable.papers.linear_grokking._shared import quadrature_losses

MODEL = LinearEstimator(aspect_ratio=0.9)
FLOW = GradientFlow(learning_rate=0.01)


def loop_over_cells(cells: list[tuple[float, float]]) -> list[float]:
    """The obvious alternative: adaptive quadrature and Brent's method, cell by cell."""
    from scipy.optimize import brentq

    delays = []
    for ratio, decay in cells:
        model, training = MODEL.replace(aspect_ratio=ratio), FLOW.replace(weight_decay=decay)
        threshold = float(loss_threshold(model, 0.95))
        times = []
        for kind in (0, 1):

            def excess(log_time: float, kind: int = kind) -> float:
                return float(np.log(quadrature_losses(model, training, np.exp(log_time))[kind] / threshold))  # noqa: B023

            times.append(np.exp(brentq(excess, 0.0, 16.0, xtol=1e-10)) if excess(16.0) < 0 else np.nan)
        delays.append(times[1] - times[0])
    return delays


def plane(size: int) -> "object":
    return MODEL.phase_diagram(
        training=FLOW, weight_decay=np.geomspace(1e-6, 1e-1, size), aspect_ratio=np.linspace(0.05, 3, size)
    ).delay.values


def run() -> list[Result]:
    return [*_phase_diagrams(), *_simulations(), *_growth()]


def _phase_diagrams() -> list[Result]:
    import time

    begin = time.perf_counter()
    whole = plane(200)
    first_call = time.perf_counter() - begin
    ours = seconds(lambda: plane(200))
    rng = np.random.default_rng(0)
    decays, ratios = np.geomspace(1e-6, 1e-1, 200), np.linspace(0.05, 3, 200)
    chosen = [(int(i), int(j)) for i, j in rng.integers(0, 200, (24, 2))]
    cells = [(float(ratios[j]), float(decays[i])) for i, j in chosen]
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        looped = loop_over_cells(cells)
        loop = seconds(lambda: loop_over_cells(cells), repeats=1, warm=False) / len(cells) * 40000
    both = [(a, whole[i, j]) for a, (i, j) in zip(looped, chosen, strict=True) if np.isfinite(a)]
    worst = max(abs(b / a - 1) for a, b in both)
    return [
        Result("200 x 200 phase diagram, compiled", ours, "s", at_most=5.0),
        Result("200 x 200 phase diagram, first call", first_call, "s", at_most=5.0),
        Result("quad + brentq loop, 24 cells timed, extrapolated to 40000", loop, "s"),
        Result("ratio", loop / ours, "x", at_least=50.0),
        Result(f"largest relative difference on {len(both)} cells of the sample that grok", worst, "", at_most=1e-6),
    ]


def _simulations() -> list[Result]:
    """At the default dimension of 1000, and at 400, where a step costs less. Compilation is not included."""
    results = []
    for dimension, few, promised in ((1000, 4000, 100.0), (400, 20000, None)):
        modes = seconds(lambda n=dimension: MODEL.simulate([10**6], dimension=n, seeds=2).test_loss.values, repeats=2)
        stepping, nothing = (
            seconds(lambda n=dimension, t=t: MODEL.simulate([t], dimension=n, seeds=2, solver="steps"), repeats=1)
            for t in (few, 1)
        )
        descent = (stepping - nothing) / few * 10**6
        results += [
            Result(f"eigenmodes to t = 1e6, dimension {dimension}, 2 seeds", modes, "s"),
            Result(f"taking the steps, {few} timed, extrapolated to 1e6", descent, "s"),
            Result("ratio", descent / modes, "x", at_least=promised),
        ]
    return results


def _growth() -> list[Result]:
    results = []
    for size in (50, 100, 200):
        results.append(Result(f"phase diagram of {size} x {size}", seconds(lambda size=size: plane(size)), "s"))
    for count in (100, 1000, 10000):
        times = np.geomspace(1, 1e7, count)
        took = seconds(lambda times=times: MODEL.predict(times, FLOW).test_loss.values)
        results.append(Result(f"predict at {count} times", took, "s"))
    for seeds in (2, 8, 32):
        took = seconds(lambda n=seeds: MODEL.simulate([10**4], dimension=300, seeds=n).test_loss.values, repeats=1)
        results.append(Result(f"eigenmodes of {seeds} seeds, dimension 300", took, "s"))
    return results
