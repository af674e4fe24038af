"""Many finite-size runs at once: vectorised over seeds, in chunks that fit in memory, over all local devices.

Seed ``i`` always draws from ``fold_in(key, i)``, so a run does not depend on how many others there are, on the chunk
it falls into or on the number of devices.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from solvable.engines.progress import progress_bar

PyTree = Any
_CPU_MEMORY = 2 * 2**30
_SEGMENTS = 40


def ensemble(
    run: Callable[[jax.Array], PyTree],
    *,
    seeds: int,
    key: int,
    bytes_per_run: float = 0.0,
    memory_limit: float | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool | None = None,
    label: str = "simulating",
) -> PyTree:
    """``run(key)`` for each seed; the results as NumPy arrays with the seed as first axis.

    ``bytes_per_run`` is what one run needs at its peak; chunks are made so that ``memory_limit`` (2 GiB on a CPU, 60 %
    of the memory of the accelerators elsewhere) is kept.
    """
    devices = _devices(devices)
    chunked = _over_devices(jax.vmap(run), devices, replicated=0)
    results = []
    with progress_bar(label, seeds, progress) as advance:
        for keys, count in _chunks(seeds, key, bytes_per_run, memory_limit, devices):
            results.append(_first(chunked(keys), count))
            advance(count)
    return _stack(results)


def trajectories(
    start: Callable[[jax.Array], PyTree],
    step: Callable[[PyTree, jax.Array], PyTree],
    measure: Callable[[PyTree], PyTree],
    save_at: Sequence[int],
    *,
    seeds: int,
    key: int,
    bytes_per_run: float = 0.0,
    memory_limit: float | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool | None = None,
    label: str = "simulating",
) -> PyTree:
    """Iterate ``state = step(state, count)`` from ``start(key)`` and ``measure`` it at the steps of ``save_at`` only.

    ``count`` is the number of steps taken before. Results have axes (seed, time). Long stretches are cut into
    segments, so that the bar moves and the work can be interrupted.
    """
    devices = _devices(devices)
    save_at = [int(step_number) for step_number in save_at]
    segment = max(1, save_at[-1] // _SEGMENTS)

    def stretch(state: PyTree, begin: jax.Array, end: jax.Array) -> PyTree:
        return jax.lax.fori_loop(begin, end, lambda count, inner: step(inner, count), state)

    begin_all = _over_devices(jax.vmap(start), devices, replicated=0)
    stretch_all = _over_devices(jax.vmap(stretch, in_axes=(0, None, None)), devices, replicated=2)
    measure_all = _over_devices(jax.vmap(measure), devices, replicated=0)

    results = []
    with progress_bar(label, seeds * max(save_at[-1], 1), progress) as advance:
        for keys, count in _chunks(seeds, key, bytes_per_run, memory_limit, devices):
            state, done, saved = begin_all(keys), 0, []
            for target in save_at:
                while done < target:
                    upto = min(done + segment, target)
                    state = stretch_all(state, jnp.asarray(done), jnp.asarray(upto))
                    # Dispatch is asynchronous; without waiting the bar would run ahead of the work.
                    jax.block_until_ready(state)
                    advance(count * (upto - done))
                    done = upto
                saved.append(_first(measure_all(state), count))
            results.append(jax.tree.map(lambda *values: np.stack(values, axis=1), *saved))
    return _stack(results)


def _devices(devices: Sequence[jax.Device] | None) -> list[jax.Device]:
    return list(jax.local_devices() if devices is None else devices)


def _over_devices(function: Callable[..., PyTree], devices: list[jax.Device], replicated: int) -> Callable[..., PyTree]:
    """Compile, splitting the first argument's leading axis over the devices; the ``replicated`` others are shared."""
    if len(devices) == 1:
        return jax.jit(function)
    mesh = Mesh(np.array(devices), ("seed",))
    split = PartitionSpec("seed")
    shared = (PartitionSpec(),) * replicated
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=(split, *shared), out_specs=split, check_vma=False))


def _chunks(
    seeds: int, key: int, bytes_per_run: float, memory_limit: float | None, devices: list[jax.Device]
) -> Iterator[tuple[jax.Array, int]]:
    """Keys of each chunk, all chunks of one size (the last padded), and how many of them are wanted."""
    limit = _memory(devices) if memory_limit is None else memory_limit
    if bytes_per_run > limit:
        raise ValueError(
            f"one run needs about {bytes_per_run / 2**30:.3g} GiB but the limit is {limit / 2**30:.3g} GiB: "
            "lower the size of the system or raise memory_limit"
        )
    most = max(1, int(limit / bytes_per_run)) if bytes_per_run else seeds
    chunk_count = -(-seeds // most)
    size = -(-seeds // chunk_count)
    size = -(-size // len(devices)) * len(devices)
    base = jax.random.key(key)
    for begin in range(0, seeds, size):
        index = jnp.minimum(jnp.arange(begin, begin + size), seeds - 1)
        yield jax.vmap(lambda i: jax.random.fold_in(base, i))(index), min(size, seeds - begin)


def _memory(devices: list[jax.Device]) -> float:
    if devices[0].platform == "cpu":
        return _CPU_MEMORY
    statistics = devices[0].memory_stats() or {}
    return 0.6 * statistics.get("bytes_limit", _CPU_MEMORY) * len(devices)


def _first(tree: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda values: np.asarray(values)[:count], tree)


def _stack(results: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *values: np.concatenate(values), *results)
