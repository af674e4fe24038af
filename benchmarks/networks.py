"""Training of networks: a step against a hand-written loop and against the memory's speed, and seeds side by side.

    python -m benchmarks.networks --out FILE [--commit COMMIT]

runs the comparison with the memory's speed alone. The task is the emergence of sparse parities, at the size of the
thesis on an accelerator and small on a CPU. Steps are timed by callbacks inside one training, so that compilation is
not included.

A step of a large network waits for the memory, not for the arithmetic. The fewest bytes that it can move are those of
:func:`bytes_of_step`; the rate at which the device copies a large array is measured in the same run. The share says how
near a step is to that limit, which no number of seeds side by side can pass. On a CPU the arrays of the small task stay
in its caches, and the share says nothing.
"""

import argparse
import datetime
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
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


def bytes_of_step(seeds: int, width: int = WIDTH, batch: int = BATCH) -> float:
    """The fewest bytes that a step of all seeds moves: what one operation leaves for a later one is written and read.

    Per sample these are the inputs, the hidden layer before its activation, and its derivative. The weights are read
    once by the step and written once, and so are their gradients; gradient descent has no state. Activations are
    recomputed where they are needed, targets and outputs are as small as a bias.
    """
    inputs = TASK.inputs
    weights = inputs * width + width + width + 1
    per_sample = inputs + 2 * width + 2
    return 2 * 4.0 * seeds * (batch * per_sample + 2 * weights)


def operations_of_step(seeds: int, width: int = WIDTH, batch: int = BATCH) -> float:
    """Operations of the matrix products of a step: the hidden layer, and the gradient of its weights."""
    return 2 * 2.0 * seeds * batch * width * (TASK.inputs + 1)


def copy_rate(megabytes: int = 256 if ON_CPU else 4096, repeats: int = 10) -> float:
    """Bytes per second, read and written, of a large array whose sign is changed in place."""
    flip = jax.jit(jnp.negative, donate_argnums=0)
    array = jax.block_until_ready(flip(jax.random.normal(jax.random.key(0), (megabytes * 2**18,), jnp.float32)))
    begin = time.perf_counter()
    for _ in range(repeats):
        array = flip(array)
    jax.block_until_ready(array)
    return 2 * repeats * array.nbytes / (time.perf_counter() - begin)


def limit() -> dict[str, float]:
    """The steps of many seeds and of one, by ``train`` and by hand, the bytes they move and the memory's rate."""
    return {
        "seeds": SEEDS,
        "width": WIDTH,
        "batch": BATCH,
        "seconds of train's step": step_seconds(SEEDS),
        "seconds of train's step, one seed": step_seconds(1),
        "seconds by hand": hand_written_seconds(SEEDS, network_of(WIDTH)),
        "seconds by hand, for this network alone": hand_written_seconds(SEEDS, Matrices),
        "bytes of a step": bytes_of_step(SEEDS),
        "operations of a step": operations_of_step(SEEDS),
        "bytes per second of a copy": copy_rate(),
    }


def shares(found: dict[str, float]) -> list[Result]:
    """How near the steps are to the memory's limit, and to the hand-written loops."""
    together, rate = found["seconds of train's step"], found["bytes per second of a copy"]
    by_hand, by_matrices = found["seconds by hand"], found["seconds by hand, for this network alone"]
    least = found["bytes of a step"] / rate
    return [
        Result(f"one step of {SEEDS} seeds, width {WIDTH}, batch {BATCH}", 1e3 * together, "ms"),
        Result("bytes that it must move", found["bytes of a step"] / 1e9, "GB"),
        Result("rate of a copy, read and written", rate / 1e9, "GB/s"),
        Result("time of these bytes at this rate", 1e3 * least, "ms"),
        Result("share of the memory's limit, train", least / together, ""),
        Result("the same of a hand-written loop", least / by_hand, ""),
        Result("the same of one written for this network alone", least / by_matrices, ""),
        Result("rate of the products of the step", found["operations of a step"] / together / 1e12, "Tflop/s"),
        Result("train's step over a hand-written jitted loop, same network", together / by_hand, "times", at_most=1.2),
        Result("train's step over one written for this network alone", together / by_matrices, "times"),
        Result(
            f"{SEEDS} steps of one seed over one of {SEEDS} seeds",
            SEEDS * found["seconds of train's step, one seed"] / together,
            "times",
        ),
    ]


def network_of(width: int) -> Callable[[jax.Array], MLP]:
    return lambda key: MLP(TASK.inputs, 1, width=width, depth=2, key=key, std=0.01)


def run() -> list[Result]:
    found = limit()
    together, results = found["seconds of train's step"], shares(found)
    if not ON_CPU:
        results.append(Result("30 000 steps of 10 seeds", 3e4 * together, "s", at_most=20.0))
    # One large network keeps an accelerator busy, so that vectorised seeds gain little; a small one does not.
    small = {"width": WIDTH // 4, "batch": BATCH // 4}
    gain = SEEDS * step_seconds(1, **small) / step_seconds(SEEDS, **small)
    results.append(Result(f"the last at width {WIDTH // 4}, batch {BATCH // 4}", gain, "times"))
    for width in (WIDTH // 4, WIDTH // 2):
        results.append(
            Result(f"step at width {width} over that at {WIDTH}", step_seconds(SEEDS, width) / together, "times")
        )
    for seeds in (3, 30):
        results.append(Result(f"step of {seeds} seeds over that of {SEEDS}", step_seconds(seeds) / together, "times"))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for all numbers, as JSON")
    parser.add_argument("--commit", default="", help="commit that is measured, for the file")
    asked = parser.parse_args()
    with jax.enable_x64(True):
        found = limit()
    about = {
        "what": (__doc__ or "").splitlines()[0],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": asked.commit,
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
    }
    if asked.out:
        asked.out.write_text(json.dumps(about | found, indent=1) + "\n", "utf-8")
    for result in shares(found):
        print(f"  {result}")
    print(about["device"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
