"""Training of networks: vectorised seeds compared with sequential ones, and a step with a hand-written loop.

The task is the emergence of sparse parities, at the size of the thesis on an accelerator and small on a CPU. Steps are
timed by callbacks inside one training, so that compilation is not included.
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from benchmarks.timing import Result, seconds
from solvable.networks import MLP, train
from solvable.networks.tasks.parity import SparseParity

TASK = SparseParity()
RATE = 0.05
ON_CPU = jax.default_backend() == "cpu"
WIDTH, BATCH, FIRST, STEPS = (128, 256, 20, 1220) if ON_CPU else (1000, 4000, 300, 3300)
SEEDS = 10


def step_seconds(seeds: int, width: int = WIDTH, batch: int = BATCH) -> float:
    """Seconds per step of all seeds inside ``train``."""
    marks: list[float] = []

    def mark(network: Any, data: Any, initial: Any) -> dict[str, float]:
        marks.append(time.perf_counter())
        return {}

    train(
        network_of(width),
        TASK.fresh(),
        optax.sgd(RATE),
        steps=STEPS,
        batch_size=batch,
        loss="half-mse",
        seeds=seeds,
        measure_at=(STEPS,),
        inspect=mark,
        inspect_at=(FIRST, STEPS),
        progress=False,
    )
    # The callback is called for every seed: from the last call of the first time to the first call of the second.
    return (marks[seeds] - marks[seeds - 1]) / (STEPS - FIRST)


def hand_written_seconds(seeds: int, network: Callable[[jax.Array], Any]) -> float:
    """Seconds of the same step written by hand: a gradient, a subtraction and a loop in one jitted function."""

    def loss(network: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return 0.5 * jnp.mean((jax.vmap(network)(x).reshape(y.shape) - y) ** 2)

    def step(network: Any, key: jax.Array, index: jax.Array) -> Any:
        gradient = eqx.filter_grad(loss)(network, *TASK.sample(jax.random.fold_in(key, index), BATCH))
        return eqx.apply_updates(network, jax.tree.map(lambda slope: -jnp.float32(RATE) * slope, gradient))

    arrays, rest = eqx.partition(eqx.filter_vmap(network)(jax.random.split(jax.random.key(0), seeds)), eqx.is_array)

    def many(index: jax.Array, arrays: Any, keys: jax.Array) -> Any:
        one = lambda own, key: eqx.filter(step(eqx.combine(own, rest), key, index), eqx.is_array)  # noqa: E731
        return jax.vmap(one)(arrays, keys)

    @jax.jit
    def run(arrays: Any, keys: jax.Array) -> Any:
        return jax.lax.fori_loop(0, STEPS - FIRST, lambda index, now: many(index, now, keys), arrays)

    keys = jax.random.split(jax.random.key(1), seeds)
    return seconds(lambda: run(arrays, keys)) / (STEPS - FIRST)


class Matrices(eqx.Module):
    """The network as two matrices, the first of them transposed, as one would write it for this task alone."""

    first: jax.Array
    offset: jax.Array
    second: jax.Array
    last: jax.Array

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 4)
        shapes = ((TASK.inputs, WIDTH), (WIDTH,), (WIDTH,), ())
        draws = [0.01 * jax.random.normal(k, shape, jnp.float32) for k, shape in zip(keys, shapes, strict=True)]
        self.first, self.offset, self.second, self.last = draws

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.relu(x @ self.first + self.offset) @ self.second + self.last


def network_of(width: int) -> Callable[[jax.Array], MLP]:
    return lambda key: MLP(TASK.inputs, 1, width=width, depth=2, key=key, std=0.01)


def run() -> list[Result]:
    together, alone = step_seconds(SEEDS), step_seconds(1)
    by_hand, by_matrices = hand_written_seconds(SEEDS, network_of(WIDTH)), hand_written_seconds(SEEDS, Matrices)
    size = f"width {WIDTH}, batch {BATCH}"
    results = [
        Result(f"one step of {SEEDS} seeds, {size}", 1e3 * together, "ms"),
        Result(
            f"{SEEDS} seeds by vmap: throughput over a loop over seeds",
            SEEDS * alone / together,
            "times",
            at_least=None if ON_CPU else 5.0,
        ),
        Result("train's step over a hand-written jitted loop, same network", together / by_hand, "times", at_most=1.2),
        Result("train's step over one written for this network alone", together / by_matrices, "times"),
    ]
    if not ON_CPU:
        results.append(Result("30 000 steps of 10 seeds", 3e4 * together, "s", at_most=20.0))
    # One large network keeps an accelerator busy, so that vectorised seeds gain little; a small one does not.
    small = {"width": WIDTH // 4, "batch": BATCH // 4}
    gain = SEEDS * step_seconds(1, **small) / step_seconds(SEEDS, **small)
    results.append(Result(f"the same by vmap at width {WIDTH // 4}, batch {BATCH // 4}", gain, "times"))
    for width in (WIDTH // 4, WIDTH // 2):
        results.append(
            Result(f"step at width {width} over that at {WIDTH}", step_seconds(SEEDS, width) / together, "times")
        )
    for seeds in (3, 30):
        results.append(Result(f"step of {seeds} seeds over that of {SEEDS}", step_seconds(seeds) / together, "times"))
    return results
