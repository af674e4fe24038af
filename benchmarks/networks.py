"""Training of networks: seeds side by side against one after the other, and a step against a hand-written loop.

The task is the emergence of sparse parities, at the thesis' size on an accelerator and small on a CPU. Times are those
of steps alone, from marks that are set inside one training: compiling is left out.
"""

import time
from typing import Any

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


def step_seconds(seeds: int, width: int = WIDTH) -> float:
    """Seconds that ``train`` takes for a step of all seeds together."""
    marks: list[float] = []

    def mark(network: Any, data: Any, initial: Any) -> dict[str, float]:
        marks.append(time.perf_counter())
        return {}

    train(
        lambda key: MLP(TASK.inputs, 1, width=width, depth=2, key=key, std=0.01),
        TASK.fresh(),
        optax.sgd(RATE),
        steps=STEPS,
        batch=BATCH,
        loss="half-mse",
        seeds=seeds,
        at=(STEPS,),
        inspect=mark,
        inspect_at=(FIRST, STEPS),
        progress=False,
    )
    # Each run is looked at: from the last of the first look to the first of the second.
    return (marks[seeds] - marks[seeds - 1]) / (STEPS - FIRST)


def hand_written_seconds(seeds: int) -> float:
    """The same step as one would write it for this network alone."""

    def start(key: jax.Array) -> dict[str, jax.Array]:
        keys = jax.random.split(key, 4)
        shapes = {"w": (TASK.inputs, WIDTH), "b": (WIDTH,), "a": (WIDTH,), "c": ()}
        normal = jax.random.normal
        return {
            name: 0.01 * normal(k, shape, jnp.float32) for k, (name, shape) in zip(keys, shapes.items(), strict=True)
        }

    def loss(p: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
        return 0.5 * jnp.mean((jax.nn.relu(x @ p["w"] + p["b"]) @ p["a"] + p["c"] - y) ** 2)

    def step(p: dict[str, jax.Array], key: jax.Array, index: jax.Array) -> dict[str, jax.Array]:
        gradient = jax.grad(loss)(p, *TASK.sample(jax.random.fold_in(key, index), BATCH))
        return jax.tree.map(lambda value, slope: value - jnp.float32(RATE) * slope, p, gradient)

    @jax.jit
    def run(p: Any, keys: jax.Array) -> Any:
        return jax.lax.fori_loop(0, STEPS - FIRST, lambda i, p: jax.vmap(step, in_axes=(0, 0, None))(p, keys, i), p)

    keys = jax.random.split(jax.random.key(0), seeds)
    begin = jax.vmap(start)(keys)
    return seconds(lambda: run(begin, keys)) / (STEPS - FIRST)


def run() -> list[Result]:
    together, alone = step_seconds(SEEDS), step_seconds(1)
    by_hand = hand_written_seconds(SEEDS)
    size = f"width {WIDTH}, batch {BATCH}"
    results = [
        Result(f"one step of {SEEDS} seeds, {size}", 1e3 * together, "ms"),
        Result(
            f"{SEEDS} seeds by vmap: throughput over a loop over seeds",
            SEEDS * alone / together,
            "times",
            at_least=None if ON_CPU else 5.0,
        ),
        Result("train's step over a hand-written jitted loop", together / by_hand, "times", at_most=1.2),
    ]
    if not ON_CPU:
        results.append(Result("30 000 steps of 10 seeds", 3e4 * together, "s", at_most=20.0))
    for width in (WIDTH // 4, WIDTH // 2):
        results.append(
            Result(f"step at width {width} over that at {WIDTH}", step_seconds(SEEDS, width) / together, "times")
        )
    for seeds in (3, 30):
        results.append(Result(f"step of {seeds} seeds over that of {SEEDS}", step_seconds(seeds) / together, "times"))
    return results
