"""FeatureScaling: time stepping compared with damped iteration, many modes with few, and curves to late times.

The iteration over 1000 explicit modes takes minutes: one sweep is timed, and the number of sweeps is counted on a short
spectrum with the same times. The cost as a function of rows, nodes and decades is printed without a promise.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
import xarray as xr

from benchmarks._march_time import on_cores
from benchmarks.timing import Result, seconds
from benchmarks.two_time_fixed_point import fixed_point
from solvable.models.feature_scaling import FeatureScaling
from solvable.models.feature_scaling.blocked_march import operations
from solvable.models.feature_scaling.mode_quadrature import Modes, power_law_modes
from solvable.models.feature_scaling.slot_march import Flow, slot_march
from solvable.models.feature_scaling.two_time import Descent, march
from solvable.training import SGD, GradientFlow

PLAN = Descent(0.2, 0.5, features=64, batch=16)
STEPS = 200


def listed(count: int) -> Modes:
    ranks = np.arange(1.0, count + 1)
    return Modes(ranks, ranks**-1.5, np.ones(count), ranks**-0.1)


def iteration_against_march() -> list[Result]:
    few = listed(64)
    iterated = fixed_point(few, PLAN, STEPS, tolerance=1e-9)
    difference = np.max(np.abs(iterated.test_loss / np.asarray(march(few, PLAN, STEPS).test_loss) - 1))
    begin = time.perf_counter()
    fixed_point(listed(1000), PLAN, STEPS, sweeps=1)
    sweep = time.perf_counter() - begin
    nodes = power_law_modes(1.5, 0.4, 1000, 400.0, head=12, reach=1e2)
    fast = seconds(lambda: march(nodes, PLAN, STEPS))
    exact = np.asarray(march(listed(1000), PLAN, 60).test_loss)
    short = np.asarray(march(nodes, PLAN, 60).test_loss)
    return [
        Result(f"march, {STEPS} steps, {nodes.ranks.size} nodes for 1000 modes", fast, "s"),
        Result("iteration, sweeps it needs to 1e-9", iterated.sweeps, ""),
        Result("iteration, one sweep over 1000 modes", sweep, "s"),
        Result("ratio", sweep * iterated.sweeps / fast, "x", at_least=100),
        Result("march against iteration, relative", float(difference), "", at_most=1e-7),
        Result(
            "nodes against 1000 modes over 60 steps, relative",
            float(np.max(np.abs(short / exact - 1))),
            "",
            at_most=1e-5,
        ),
    ]


def trainings() -> list[Result]:
    """What schedules, momentum and Optax cost, the best schedule, and lazy networks by their second moments."""
    steps = 300
    model = FeatureScaling(1.5, 0.4, features=64, modes=1000, richness=0.5)
    cosine = optax.cosine_decay_schedule(0.2, steps)
    ways = {
        "a cosine schedule": SGD(cosine, batch_size=16),
        "momentum": SGD(0.1, batch_size=16, momentum=0.5),
        "a schedule of batches and Nesterov's momentum": SGD(
            cosine, batch_size=lambda step: 8 + step // 16, momentum=0.5, nesterov=True
        ),
    }

    def taken(training: SGD) -> float:
        return seconds(lambda: model.predict([steps], training).test_loss.values, 5)

    constant = taken(SGD(0.2, batch_size=16))
    found = [Result(f"march, {steps} steps, constant rate", constant, "s")]
    for name, training in ways.items():
        found.append(
            Result(f"march with {name}, against a constant rate", taken(training) / constant, "x", at_most=1.3)
        )
    lazy = FeatureScaling(1.5, 1.5, richness=0.0, modes=math.inf)
    for horizon, promised in ((1000, 5.0), (10_000, 90.0)):
        alone = seconds(lambda n=horizon: lazy.best_schedule(n, 0.5, 16, progress=False).test_loss.values, 1, False)
        found.append(Result(f"best schedule of {horizon} steps, compilation included", alone, "s", at_most=promised))
    training = SGD(0.1, batch_size=16, momentum=0.5)
    late = seconds(lambda: lazy.predict([100_000], training).test_loss.values, 2)
    return [*found, Result("lazy SGD with momentum, 100000 steps by second moments", late, "s")]


def many_modes() -> list[Result]:
    training = SGD(0.2, batch_size=16)
    models = [FeatureScaling(1.5, 0.4, features=64, modes=count) for count in (10**3, 10**6)]
    few, many = (seconds(lambda model=model: model.predict([150], training).test_loss.values) for model in models)
    return [Result("1e6 modes against 1e3, time of a prediction", many / few, "x", at_most=1.5)]


def late_times() -> list[Result]:
    times = np.geomspace(1, 1e8, 30)
    endless = seconds(
        lambda: FeatureScaling(1.5, 0.4, modes=math.inf).predict(times, GradientFlow()).test_loss.values, repeats=2
    )
    finite = seconds(
        lambda: FeatureScaling(1.5, 0.4, features=512, modes=math.inf).predict([1e6], GradientFlow()).test_loss.values,
        repeats=2,
    )
    return [
        Result("flow of infinite size to t = 1e8, two grids", endless, "s", at_most=2),
        Result("flow of 512 features to t = 1e6, two grids", finite, "s", at_most=10),
        *_late_noise(),
    ]


# Features, batch size, richness, source and samples of networks that learn features under noise.
NOISY = (
    (64, 16, 2.0, 0.4, None),
    (64, 16, 4.0, 1.2, None),
    (64, 4, 4.0, 0.4, None),
    (256, 16, 4.0, 0.4, None),
    (16, 4, 4.0, 1.2, None),
    (64, 1, 1.0, 0.4, None),
    (64, 16, 2.0, 0.4, 256),
)


def _timed(model: FeatureScaling, times: np.ndarray, training: SGD, per_decade: int = 16) -> tuple[xr.Dataset, float]:
    """Curves of the slot march, and the processor time, which other programs change less than that on the clock."""
    begin = time.process_time()
    curves = model.predict(times, training, solver="slot-march", per_decade=per_decade)
    return curves, time.process_time() - begin


def _late_noise() -> list[Result]:
    """Rich features under noise to t = 1e6 with default options: cost, the stated error, and the deviation from 24
    steps per decade (checked for the first and the hardest setting, which take a minute each)."""
    times, found = np.array([10**3, 10**4, 10**5, 10**6, 10**7]), []
    for features, batch, richness, source, samples in NOISY:
        model = FeatureScaling(1.5, source, features=features, samples=samples, richness=richness, modes=math.inf)
        training = SGD(0.1, batch_size=batch)
        curves, taken = _timed(model, times, training)
        name = f"N = {features}, B = {batch}, γ = {richness:g}, β = {source:g}" + (
            f", P = {samples}" if samples else ""
        )
        stated = curves.attrs["numerical_error"]
        found.append(Result(f"{name}, to t = 1e6, processor", taken, "s", at_most=20))
        found.append(Result(f"{name}, stated error", stated, "", at_most=2e-2))
        if (features, batch) in ((64, 16), (64, 1)) and samples is None and source == 0.4:
            finer = model.predict(times, training, solver="slot-march", per_decade=24)
            deviation = float(np.max(np.abs(curves.test_loss / finer.test_loss - 1)))
            found.append(Result(f"{name}, deviation from 24 per decade", deviation, "", at_most=2e-2))
    return found


def cost_and_error() -> list[Result]:
    """Cost and error of the slot march by steps per decade, to t = 1e5, against 24: one line for each point."""
    model = FeatureScaling(1.5, 0.4, features=64, richness=2.0, modes=math.inf)
    training, times = SGD(0.1, batch_size=16), np.geomspace(100, 10**6, 9).round()
    finest = model.predict(times, training, solver="slot-march", per_decade=24).test_loss
    found = []
    for count in (4, 6, 8, 12):
        curves, taken = _timed(model, times, training, count)
        error = float(np.max(np.abs(curves.test_loss / finest - 1)))
        found.append(Result(f"slot march with noise, {count} per decade, processor", taken, "s"))
        found.append(Result(f"slot march with noise, {count} per decade, error", error, ""))
        found.append(Result(f"slot march with noise, {count} per decade, stated", curves.attrs["numerical_error"], ""))
    return found


def peak_rate(size: int = 1500) -> float:
    """Operations per second in a product of large float64 matrices, on the default device."""
    if jax.default_backend() == "cpu":
        matrix = np.ones((size, size))
        return 2 * size**3 / _worked(lambda: matrix @ matrix, 3)
    large = jax.numpy.ones((8192, 8192))
    return 2 * 8192**3 / seconds(lambda: large @ large)


def _worked(function: Callable[[], Any], repeats: int) -> float:
    """Shortest processor time of a few calls after a first one."""
    function()
    taken = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        taken.append(time.process_time() - begin)
    return min(taken)


def march_growth() -> list[Result]:
    """Time of the march against the number of steps, and the share of the fp64 rate that its products reach.

    On a CPU both are in processor time, on one thread if ``OPENBLAS_NUM_THREADS=1`` is set.
    """
    on_cpu = jax.default_backend() == "cpu"
    nodes, rate = power_law_modes(1.5, 0.4, 44, 200.0), peak_rate()
    promised = {} if on_cpu else {1000: 5.0, 4000: 20.0}
    found = [Result("product of large matrices, fp64", rate / 1e9, "GFLOP/s")]
    for steps in (250, 500, 1000, 2000) if on_cpu else (1000, 2000, 4000):

        def marched(steps: int = steps) -> Any:
            return march(nodes, PLAN, steps).test_loss

        taken = _worked(marched, 1) if on_cpu else seconds(marched, 1)
        share = operations(steps, len(nodes.ranks)) / taken / rate
        found.append(Result(f"march, {steps} steps, 44 nodes", taken, "s", at_most=promised.get(steps)))
        found.append(Result(f"march, {steps} steps, share of the fp64 rate", share, ""))
    if on_cpu:
        found.append(Result("march, 1000 steps, 44 nodes, two cores", on_cores(1000, 2), "s", at_most=2))
    return found


def costs() -> list[Result]:
    nodes = power_law_modes(1.5, 0.4, 64, 100.0)
    found = []
    for steps in (100, 200, 400):
        found.append(Result(f"march, {steps} rows, 64 nodes", seconds(lambda n=steps: march(nodes, PLAN, n), 2), "s"))
    for count in (16, 32):
        some = power_law_modes(1.5, 0.4, count, 100.0)
        found.append(Result(f"march, 200 rows, {count} nodes", seconds(lambda m=some: march(m, PLAN, 200), 2), "s"))
    for decades in (2, 4, 6):
        modes = power_law_modes(1.5, 0.4, np.inf, 10.0**decades * 10, head=12, per_decade=6, reach=1e2)
        flow = Flow(1.0, features=10**6)
        taken = seconds(lambda m=modes, f=flow, d=decades: slot_march(m, f, 10.0**d, per_decade=8).test_loss, 1, False)
        found.append(Result(f"slot march, 8 per decade, to t = 1e{decades}, {modes.ranks.size} nodes", taken, "s"))
    return found


def run() -> list[Result]:
    parts = (iteration_against_march, trainings, many_modes, march_growth, late_times, cost_and_error, costs)
    return [result for part in parts for result in part()]
