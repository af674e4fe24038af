"""Many finite-size runs at once: vectorised over seeds, in chunks that fit in memory, over all local devices.

Seed ``i`` always draws from ``fold_in(key, i)``, so a run does not depend on how many others there are, on the chunk
it falls into or on the number of devices.

Runs are independent, so each device gets its part of a chunk in a call of its own, and accelerators work at the same
time. Several CPU devices (XLA can be configured to have them) take turns: they share one thread pool, and factorising
matrices on two of them at the same time, sharded or not, ends in a deadlock.

>>> import jax
>>> from solvable.numerics.ensemble import ensemble
>>> draws = ensemble(lambda key: jax.random.normal(key), seeds=3, key=0)
>>> draws.shape, bool((draws[:2] == ensemble(lambda key: jax.random.normal(key), seeds=2, key=0)).all())
((3,), True)
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import check_count
from solvable.numerics.cost import STEP, check_cost
from solvable.numerics.memory import memory_limit as chosen_limit
from solvable.progress import progress_bar

PyTree = Any
_SEGMENTS = 40
_first_seed: ContextVar[int] = ContextVar("first_seed", default=0)


@contextlib.contextmanager
def seeds_from(first: int) -> Iterator[None]:
    """Runs inside are those of the seeds ``first``, ``first + 1``, ...: a long ensemble can be computed in parts."""
    token = _first_seed.set(first)
    try:
        yield
    finally:
        _first_seed.reset(token)


def run_options(
    name: str, seeds: int, key: int, devices: Any, memory_limit: float | None, progress: bool | None
) -> dict[str, Any]:
    """The options of a model's ``simulate``, checked, as options of :func:`ensemble` and :func:`trajectories`."""
    return {
        "seeds": check_count("seeds", seeds),
        "key": check_count("key", key, 0),
        "devices": devices,
        "memory_limit": memory_limit,
        "progress": progress,
        "label": f"simulating {name}",
    }


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

    ``bytes_per_run`` is the peak memory of one run; chunks are as large as ``memory_limit`` (2 GiB on a CPU, 60 %
    of the memory of the accelerators elsewhere) allows.
    """
    devices = _devices(devices)
    chunked = _vectorised(run)
    results = []
    with progress_bar(label, seeds, progress) as advance:
        for shares, count in _chunks(seeds, key, bytes_per_run, memory_limit, devices):
            results.append(_gather(_on_each(chunked, shares), count))
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
    segments, so that the bar moves and the work can be interrupted. Work that would take many hours is refused before
    it begins, on the assumption that a step reads all memory of a run about once.
    """
    devices = _devices(devices)
    save_at = [int(step_number) for step_number in save_at]
    check_steps(save_at[-1], seeds, bytes_per_run, label)
    segment = max(1, save_at[-1] // _SEGMENTS)

    def stretch(state: PyTree, begin: jax.Array, end: jax.Array) -> PyTree:
        return jax.lax.fori_loop(begin, end, lambda count, inner: step(inner, count), state)

    begin_all, measure_all = _vectorised(start), _vectorised(measure)

    # The states are donated: what a step does not change, such as the data, is then not copied.
    @partial(jax.jit, donate_argnums=0)
    def stretch_all(states: PyTree, begin: jax.Array, end: jax.Array) -> PyTree:
        return jax.vmap(lambda state: stretch(state, begin, end))(states)

    results = []
    with progress_bar(label, seeds * max(save_at[-1], 1), progress) as advance:
        for shares, count in _chunks(seeds, key, bytes_per_run, memory_limit, devices):
            states, done, saved = _on_each(begin_all, shares), 0, []
            for target in save_at:
                while done < target:
                    upto = min(done + segment, target)
                    states = _on_each(partial(stretch_all, begin=done, end=upto), states)
                    # Dispatch is asynchronous; without waiting the bar would run ahead of the work.
                    jax.block_until_ready(states)
                    advance(count * (upto - done))
                    done = upto
                saved.append(_gather(_on_each(measure_all, states), count))
            results.append(jax.tree.map(lambda *values: np.stack(values, axis=1), *saved))
    return _stack(results)


def check_steps(steps: float, seeds: int, bytes_per_run: float, label: str = "simulating") -> None:
    """Refuse :func:`trajectories` that would take many hours, with the estimate."""
    check_cost(
        f"{label} for {steps:.3g} steps and {seeds:.3g} seeds",
        operations=float(steps) * (STEP + seeds * bytes_per_run / 8),
        remedy="ask for earlier times, fewer seeds or a smaller system",
    )


def _devices(devices: Sequence[jax.Device] | None) -> list[jax.Device]:
    return list(jax.local_devices() if devices is None else devices)


def _chunks(
    seeds: int, key: int, bytes_per_run: float, memory_limit: float | None, devices: list[jax.Device]
) -> Iterator[tuple[list[jax.Array], int]]:
    """The keys of each chunk, split over the devices, and how many of them are needed: all chunks have one size."""
    limit = chosen_limit(memory_limit, devices)
    if bytes_per_run > limit:
        raise ValueError(
            f"one run needs about {bytes_per_run / 2**30:.3g} GiB but the limit is {limit / 2**30:.3g} GiB: "
            "lower the size of the system or raise memory_limit"
        )
    most = max(1, int(limit / bytes_per_run)) if bytes_per_run else seeds
    chunk_count = -(-seeds // most)
    size = -(-seeds // chunk_count)
    size = -(-size // len(devices)) * len(devices)
    base = random_key(key)
    for begin in range(0, seeds, size):
        index = _first_seed.get() + jnp.minimum(jnp.arange(begin, begin + size), seeds - 1)
        keys = jax.vmap(lambda i: jax.random.fold_in(base, i))(index)
        shares = jnp.split(keys, len(devices))
        yield [jax.device_put(*share) for share in zip(shares, devices, strict=True)], min(size, seeds - begin)


def random_key(key: int) -> jax.Array:
    """JAX's key of a whole number, which must fit into 64 bits."""
    try:
        return jax.random.key(key)
    except OverflowError as error:
        raise ValueError(f"key must be a whole number between -2^63 and 2^63 - 1, not {key}") from error


class Traceable(partial):  # type: ignore[type-arg]
    """A partial whose real numbers may be traced: one compiled program then serves every value of them."""


def _vectorised(function: Callable[[Any], PyTree]) -> Callable[[Any], PyTree]:
    """The function over a leading axis, compiled; cached for partials of the same function with equal arguments."""
    if isinstance(function, Traceable):
        numbers, rest = eqx.partition((function.args, function.keywords), eqx.is_inexact_array_like)
        return partial(_over_keys, function.func, jax.tree.map(np.asarray, numbers), rest)
    if isinstance(function, partial):
        # Arguments that cannot be hashed, such as arrays, cannot be looked up: compile again.
        with contextlib.suppress(TypeError):
            return _remembered(function.func, function.args, tuple(function.keywords.items()))
    return jax.jit(jax.vmap(function))


@eqx.filter_jit
def _over_keys(function: Callable[..., PyTree], numbers: PyTree, rest: PyTree, keys: Any) -> PyTree:
    arguments, keywords = eqx.combine(numbers, rest)
    return jax.vmap(partial(function, *arguments, **keywords))(keys)


@lru_cache(maxsize=32)
def _remembered(
    function: Callable[..., PyTree], arguments: tuple[Any, ...], keywords: tuple[tuple[str, Any], ...]
) -> Callable[[Any], PyTree]:
    return jax.jit(jax.vmap(partial(function, *arguments, **dict(keywords))))


def _on_each(function: Callable[[PyTree], PyTree], shares: list[PyTree]) -> list[PyTree]:
    """The function on each device's share; started on all accelerators before any is waited for."""
    results = []
    for share in shares:
        results.append(function(share))
        if jax.default_backend() == "cpu":
            jax.block_until_ready(results[-1])
    return results


def _gather(parts: list[PyTree], count: int) -> PyTree:
    """The devices' parts as one NumPy array each, without the padding."""
    return jax.tree.map(lambda *values: np.concatenate([np.asarray(value) for value in values])[:count], *parts)


def _stack(results: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *values: np.concatenate(values), *results)
