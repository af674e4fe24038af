"""Theory of the committee: the latent closure compared with the schemes that it replaces, and how its cost grows.

Solvers are compared at equal accuracy: for each, the root mean square error of the last test loss over independent sets
of samples is measured, relative to a much larger run. The closure uses the smallest number of samples (a power of two)
for which its error is not larger. One set of samples is timed for each solver, without compilation. Long runs are timed
on an accelerator only.
"""

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.timing import Result, seconds
from solvable import SGD, Committee, GradientDescent, GradientFlow, activations, solvers
from solvable.models.committee.closure import LatentClosure
from solvable.models.committee.latent import Latent
from solvable.models.committee.problem import OutputRequest, problem_of
from solvable.models.committee.protocol import Descent
from solvable.precision import in_float64

QUICK = Committee(
    samples_per_dimension=2.0,
    output_scale=1.0,
    activation=activations.quadratic(0.5),
    initial_overlap=[[1.0, 0.2], [0.2, 1.0]],
    initial_alignment=[[0.3], [-0.1]],
)
DESCENT = GradientDescent(0.2)
GROKS = Committee(
    samples_per_dimension=4.5,
    output_scale=0.5,
    activation=activations.quadratic(0.05),
    initial_overlap=np.eye(4),
    initial_alignment=0.1 * np.array([[1.0], [-1.0], [1.0], [-1.0]]),
)
CLASSIFIER = Committee(
    samples_per_dimension=2.0,
    activation="erf",
    teacher="linear",
    labels="sign",
    loss="logistic",
    readout=[1.4, -1.4],
    gradient_readout=[1.4, -1.4],
    initial_alignment=[[0.3], [-0.1]],
)
SETS = 8


@in_float64
def run() -> list[Result]:
    results = [*_back_ends(), *_batches()]
    results += [*_against("FixedPoint", 60, 100.0), *_against("Response", 240, 50.0), *_growth(), *_absolute()]
    return results + (_long() if jax.default_backend() != "cpu" else [])


def _cpu(function: Callable[[], Any], repeats: int = 3) -> float:
    """Least processor time of a few calls, without compilation: wall times depend on what else the machine does."""
    function()
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        function()
        found.append(time.process_time() - begin)
    return min(found)


def _back_ends() -> list[Result]:
    """One run of the default prediction with arrays of NumPy, against the same operations in JAX on padded arrays."""
    problem = problem_of(Committee(), Committee.default_training)

    def run(namespace: Any) -> int:
        settings = {"samples": 8192, "tolerance": 3e-3, "shrunk": 0.5, "key": (0, 0), "memory_limit": 2.0**32}
        closure = LatentClosure(problem, **settings, namespace=namespace)
        descent = Descent(problem.training)
        state = descent.start(closure)
        for count in range(112):
            state = descent.step(closure, state, count)
        return closure.rank

    plain, padded = _cpu(lambda: run(np)), _cpu(lambda: run(jnp))
    return [
        Result(f"112 steps, N = 2, 8192 samples (rank {run(np)}): one run, CPU time", plain, "s"),
        Result("the same operations in JAX, CPU time over that", padded / plain, "x", at_least=2.0),
        Result("default prediction, CPU time", _cpu(lambda: Committee().predict(np.arange(0, 113, 4))), "s"),
    ]


def _batches() -> list[Result]:
    """Mini-batches against full batches with equal samples; a batch opens a direction for every neuron and step."""
    solver, times, results = Latent(samples=8192, replicates=2), np.arange(0, 33, 4), []
    compiled = [0]
    event = "/jax/core/compile/backend_compile_duration"
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, duration, **_: compiled.__setitem__(0, compiled[0] + (name == event))
    )
    for name, model in (("quadratic", Committee()), ("logistic, erf", CLASSIFIER)):
        full = _cpu(partial(model.predict, times, DESCENT, solver=solver))
        for sampling in ("epochs", "subsets"):
            training = SGD(0.2, batch_fraction=0.25, sampling=sampling)
            model.predict(times, training, solver=solver)
            before = compiled[0]
            cost = _cpu(partial(model.predict, times, training, solver=solver))
            results += [
                Result(f"{name}, {sampling}, T = 32: CPU time over that of full batches", cost / full, "x"),
                Result("programs compiled by repeated runs", compiled[0] - before, "", at_most=0),
            ]
    return results


def _against(name: str, steps: int, promised: float) -> list[Result]:
    """Time of the baseline divided by that of the closure, at equal error of the test loss after ``steps`` steps."""
    last = np.array([float(steps)])
    make: Any = solvers.FixedPoint if name == "FixedPoint" else partial(solvers.Response, samples=4096)
    _test_losses(make(replicates=2), np.array([4.0]))
    begin = time.perf_counter()
    theirs = _test_losses(make(replicates=SETS), last)
    cost = (time.perf_counter() - begin) / SETS
    truth = np.mean(_test_losses(Latent(samples=32768, replicates=8), last, key=9))

    def error(values: np.ndarray) -> float:
        return float(np.sqrt(np.mean((values - truth) ** 2)))

    for samples in (256, 512, 1024, 2048, 4096, 8192, 16384):
        ours = np.array([_one_run(samples, last, replicate) for replicate in range(2 * SETS)])
        if error(ours) <= error(theirs):
            break
    fast = seconds(lambda: _one_run(samples, last, 0), 5)
    return [
        Result(f"{name}, T = {steps}: one set of samples", cost, "s"),
        Result(f"{name}, T = {steps}: error of the test loss ({truth:.4f})", error(theirs), ""),
        Result(f"closure: samples for that error ({error(ours):.2g})", samples, ""),
        Result("closure: one run", fast, "s"),
        Result(f"ratio, {name} over closure, run against run", cost / fast, "x", at_least=promised),
        Result("the same with the second run, which bounds the closure's bias", cost / fast / 2, "x"),
    ]


def _one_run(samples: int, times: np.ndarray, replicate: int) -> float:
    """The last test loss of one set of samples and one convention; the tolerance is much smaller than the error."""
    solver, problem = Latent(samples=samples, tolerance=1e-2), problem_of(QUICK, DESCENT)
    run = solver.run(problem, times, OutputRequest(), replicate, False, 0, lambda amount: None)
    return float(run.arrays(times.size)["test_loss"][-1])


def _test_losses(solver: Any, times: np.ndarray, key: int = 0) -> np.ndarray:
    solution = solver.solve(problem_of(QUICK, DESCENT), times, OutputRequest(), key, lambda amount: None)
    return solution.values["test_loss"][:, -1]


def _growth() -> list[Result]:
    """How the time of one set of samples grows with steps, samples and neurons."""
    results = []
    steps = (100, 1000, 10_000)
    for count in steps:
        cost, rank = _one_set(QUICK, count, 1024)
        results.append(Result(f"T = {count}, S = 1024, N = 2 (rank {rank})", cost / count * 1e3, "ms per step"))
    for samples in (4096, 16384, 65536):
        results.append(Result(f"T = 60, S = {samples}, N = 2", _one_set(QUICK, 60, samples)[0], "s"))
    for neurons in (1, 4, 16):
        rng = np.random.default_rng(0)
        start = {"initial_overlap": np.eye(neurons), "initial_alignment": 0.1 * rng.choice([-1.0, 1.0], (neurons, 1))}
        results.append(Result(f"T = 60, S = 4096, N = {neurons}", _one_set(QUICK.replace(**start), 60, 4096)[0], "s"))
    return results


def _one_set(model: Committee, steps: int, samples: int, training: GradientDescent = DESCENT) -> tuple[float, int]:
    solver = Latent(samples=samples, replicates=2)
    answer: list[Any] = []
    cost = seconds(lambda: answer.append(model.predict([steps], training, solver=solver)), 1, warm=steps < 10_000) / 3
    return cost, json.loads(answer[-1].attrs["solver"])["rank"]


def _absolute() -> list[Result]:
    """Promises in seconds, for one set of samples and one convention."""
    descent = _one_set(QUICK, 120, 4096, GradientDescent(0.1))[0]
    flow = solvers.Flow(samples=65536, replicates=2, ratio=1.2)
    problem = problem_of(GROKS, GradientFlow())

    def one_set() -> Any:
        return flow.run(problem, np.array([800.0]), OutputRequest(), 0, False, 0, lambda amount: None)

    return [
        Result("T = 120, N = 2, 4096 samples", descent, "s", at_most=1.0),
        Result("flow to t = 800, N = 4, 65536 samples", seconds(one_set, 1), "s", at_most=20.0),
    ]


def _long() -> list[Result]:
    times = np.geomspace(1, 1e4, 9)
    flow = solvers.Flow(samples=262144, replicates=2, ratio=1.2)
    GROKS.predict(times, GradientFlow(), solver=flow)
    begin = time.perf_counter()
    late = GROKS.predict(times, GradientFlow(), solver=flow, key=1)
    took = time.perf_counter() - begin
    bracket = float(late.test_loss_error[-1] / late.test_loss[-1])
    latent = Latent(samples=65536, replicates=2)
    last, problem = np.array([1e4]), problem_of(QUICK, DESCENT)

    def one_set() -> Any:
        return latent.run(problem, last, OutputRequest(), 0, False, 0, lambda amount: None)

    return [
        Result("10^4 steps, N = 2, 65536 samples: one set", seconds(one_set, 1), "s", at_most=10.0),
        Result("flow to t = 10^4, N = 4: all sets and error estimates", took, "s", at_most=60.0),
        Result("its relative error of the test loss at the end", bracket, "", at_most=0.05),
    ]
