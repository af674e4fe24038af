"""The compiled parts of a training: how runs start, how they advance by a number of steps, what is measured of them.

A run is one network with its data. All runs of a group advance together (vmap) and share the step counter. Arrays that
differ between runs have the run as first axis; everything else (functions, shapes) is static.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from solvable.networks.losses import SampleLoss, checked_values, correct, is_classification
from solvable.networks.parts import cast, running, trainable, training_forward
from solvable.networks.sources import Fixed, Fresh, Source, equal_batch_size, initial_order, next_batch, row_mask
from solvable.numerics.determinism import jit

PyTree = Any
Variant = dict[str, Array]
Measure = Callable[[Any, Any, jax.Array], PyTree]
Loops = Literal["blocks", "blocks and rest", "one by one"]
# Larger sets are evaluated in batches of this size: otherwise, activations would fill the memory.
_EVALUATION_BATCH = 4096
# A training is divided into about this many segments, so that its progress bar moves and it can be interrupted.
_SEGMENTS = 100
# Accelerators run this many steps without synchronising with the host; long segments are multiples of it.
BLOCK = 50


class Schedule:
    """The steps at which a training is measured, inspected and saved; ``stops`` are these and others for the bar."""

    def __init__(
        self, steps: int, measure_at: Any, inspect_at: Sequence[int] | None, snapshots_at: Sequence[int]
    ) -> None:
        self.steps = steps
        self.measure_at = log_steps(steps) if measure_at is None else _check_steps("measure_at", measure_at, steps)
        self.inspect_at = [0, steps] if inspect_at is None else _check_steps("inspect_at", inspect_at, steps)
        self.snapshots_at = _check_steps("snapshots_at", snapshots_at, steps)
        segment = max(1, steps // _SEGMENTS)
        if segment > BLOCK // 4:
            segment = -(-segment // BLOCK) * BLOCK
        bar = range(0, steps, segment)
        self.stops = sorted({*self.measure_at, *self.inspect_at, *self.snapshots_at, *bar, 0, steps})
        self.whole_blocks = all(stop % BLOCK == 0 for stop in self.stops)


def _check_steps(name: str, values: Any, most: int) -> list[int]:
    numbers = np.asarray(values, float).ravel()
    wrong = numbers[~((numbers >= 0) & (numbers <= most) & (numbers % 1 == 0))]
    if wrong.size:
        raise ValueError(f"{name} must hold whole numbers of steps from 0 to {most}, not {wrong[0]:g}")
    return sorted({int(number) for number in numbers})


def log_steps(steps: int, per_decade: int = 20, first: int = 1) -> list[int]:
    """Step 0, and logarithmically spaced steps up to the last: where curves are measured by default.

    Parameters
    ----------
    steps
        The last step.
    per_decade
        Number of steps per factor of ten.
    first
        The first step after 0.
    """
    count = max(2, int(per_decade * np.log10(max(steps / first, 10))) + 1)
    between = np.round(np.geomspace(first, steps, count)).astype(int)
    return sorted({0, *(int(step) for step in between if step <= steps), steps})


class State(NamedTuple):
    """What a step changes. ``diverged`` is the step at which a run was stopped, -1 as long as it is running.

    ``parameters`` are the trained arrays of the network, ``running`` those updated without a gradient (batch
    statistics), ``order`` the permutation of the samples in this epoch.
    """

    parameters: PyTree
    running: PyTree
    optimiser: PyTree
    order: Array | None
    diverged: Array
    first_loss: Array

    @property
    def changing(self) -> PyTree:
        """All arrays of the network that training changes."""
        return eqx.combine(self.parameters, self.running)


class Runs(NamedTuple):
    """What a step does not change: the constant parts of the networks, data, keys and variants of the runs."""

    rest: PyTree
    data: Source
    keys: Array
    variants: Variant

    def alone(self, run: int, own_data: bool) -> "Runs":
        """One of the runs."""
        rest, keys, variants = (pick(part, run) for part in (self.rest, self.keys, self.variants))
        return Runs(rest, pick(self.data, run) if own_data else self.data, keys, variants)


def pick(tree: PyTree, run: int) -> PyTree:
    """The part of one run in arrays that have the run as first axis."""
    return jax.tree.map(lambda leaf: leaf[run] if eqx.is_array(leaf) else leaf, tree)


class Recipe(NamedTuple):
    """How a run is trained. ``step_dtype`` is the precision inside a step, if it is not ``dtype``.

    ``loops`` is how steps are repeated on an accelerator: in blocks of known length where every segment is a multiple
    of ``BLOCK``, one by one, or both; each loop compiles the step once more.
    """

    network: Any
    data: Any
    optimiser: Any
    batch_size: int | None
    gradient_accumulation_steps: int
    loss: SampleLoss
    dtype: Any
    step_dtype: Any
    measures: Mapping[str, Measure]
    diverged_above: float
    loops: Loops = "blocks and rest"

    @property
    def own_data(self) -> bool:
        """Whether each run has its own data."""
        return _is_factory(self.data)


def initialise(recipe: Recipe) -> Callable[[Array, Variant], tuple[State, Runs]]:
    """A function of the keys and variants of the runs that returns all runs at step 0.

    Data that are the same for all runs are stored once.
    """
    shared = None if recipe.own_data else cast(_source(recipe.data), recipe.dtype)

    def one(key: jax.Array, variant: Variant) -> tuple[State, PyTree, Any, jax.Array]:
        network_key, data_key, step_key = jax.random.split(key, 3)
        network = recipe.network(network_key, **variant) if _is_factory(recipe.network) else recipe.network
        data = None if shared is not None else cast(_source(recipe.data(data_key, **variant)), recipe.dtype)
        network = cast(network, recipe.dtype)
        parameters, rest = eqx.partition(network, trainable(network))
        updated, rest = eqx.partition(rest, running(rest))
        state = State(
            parameters,
            updated,
            optimiser_of(recipe, variant).init(parameters),
            None if data is None else initial_order(data, recipe.batch_size),
            jnp.asarray(-1, jnp.int32),
            jnp.asarray(jnp.inf, recipe.dtype),
        )
        return state, rest, data, step_key

    compiled = jit(eqx.filter_vmap(one))

    def all_runs(keys: Array, variants: Variant) -> tuple[State, Runs]:
        state, rest, data, step_keys = compiled(keys, variants)
        if shared is not None:
            data = shared
            order = initial_order(data, recipe.batch_size)
            state = state._replace(order=None if order is None else jnp.tile(order, (len(keys), 1)))
        return state, Runs(rest, data, step_keys, variants)

    return all_runs


def _source(data: Any) -> Source:
    """The data with NumPy arrays converted to JAX arrays."""
    if not isinstance(data, Fixed | Fresh):
        raise TypeError(f"data must be networks.Fixed or networks.Fresh, or a function that makes one, not {data!r}")
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array_like(leaf) else leaf, data)


def _is_factory(value: Any) -> bool:
    return callable(value) and not isinstance(value, eqx.Module)


def optimiser_of(recipe: Recipe, variant: Variant) -> optax.GradientTransformation:
    # An Optax transformation is a tuple of functions; anything else is a function that makes one.
    return recipe.optimiser if isinstance(recipe.optimiser, tuple) else recipe.optimiser(**variant)


def _run_axes(recipe: Recipe) -> Runs:
    """Which of the arrays have a run axis, for vmap."""
    return Runs(0, 0 if recipe.own_data else None, 0, 0)  # type: ignore[arg-type]


def advance(recipe: Recipe, runs: Runs, single: bool = False) -> Callable[..., State]:
    """A function of (state, arrays of the runs, begin, end) that trains every run from step begin to step end.

    A ``single`` one makes one step from begin, whatever the end.
    """
    static = eqx.filter(runs, eqx.is_array, inverse=True)

    def one_step(state: State, arrays: Runs, step: Array) -> State:
        run = eqx.combine(arrays, static)
        key = jax.random.fold_in(run.keys, 0)
        (inputs, targets), order = next_batch(run.data, recipe.batch_size, state.order, key, step)
        mask = row_mask(run.data) if recipe.batch_size is None and isinstance(run.data, Fixed) else None

        def objective(parameters: PyTree, inputs: Array, targets: Array, mask: Array | None) -> tuple[Array, PyTree]:
            network = eqx.combine(parameters, state.running, run.rest)
            outputs, after = training_forward(network, inputs, recipe.step_dtype)
            return _mean(checked_values(recipe.loss(outputs, targets), len(inputs)), mask), eqx.filter(
                after, running(after)
            )

        gradient_of = jax.value_and_grad(objective, has_aux=True)
        if recipe.gradient_accumulation_steps > 1:
            (loss, updated), gradient = _accumulated(
                gradient_of, state.parameters, (inputs, targets), recipe.gradient_accumulation_steps
            )
        else:
            (loss, updated), gradient = gradient_of(state.parameters, inputs, targets, mask)
        updates, optimiser = optimiser_of(recipe, run.variants).update(gradient, state.optimiser, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        first = jnp.where(step == 0, loss, state.first_loss)
        bad = ~(loss <= recipe.diverged_above * first)  # also for NaN
        diverged = jnp.where((state.diverged < 0) & bad, step.astype(jnp.int32), state.diverged)
        # A run that has diverged keeps the state in which it did.
        parameters, updated, optimiser = jax.tree.map(
            lambda new, old: jnp.where(diverged < 0, new, old),
            (parameters, updated, optimiser),
            (state.parameters, state.running, state.optimiser),
        )
        return State(parameters, updated, optimiser, order, diverged, first)

    def all_runs(state: State, arrays: Runs, begin: Array, end: Array) -> State:
        alone = arrays.keys.shape[0] == 1
        if alone:
            # Products of single matrices are faster than batched products of one.
            state, arrays = pick(state, 0), arrays.alone(0, recipe.own_data)
        every = one_step if alone else jax.vmap(one_step, in_axes=(0, _run_axes(recipe), None))
        state = every(state, arrays, begin) if single else loop(every, state, arrays, begin, end)
        return jax.tree.map(lambda leaf: leaf[None], state) if alone else state

    def loop(every: Callable[..., State], state: State, arrays: Runs, begin: Array, end: Array) -> State:
        def block(index: Array, inner: State) -> State:
            first = begin + index * BLOCK
            return jax.lax.fori_loop(0, BLOCK, lambda step, state: every(state, arrays, first + step), inner)

        if jax.default_backend() != "cpu" and recipe.loops != "one by one":
            # A loop of unknown length asks the host after each iteration whether to continue; one of known length does
            # not. On an accelerator that is half the time of a small step.
            blocks = (end - begin) // BLOCK
            state = jax.lax.fori_loop(0, blocks, block, state)
            if recipe.loops == "blocks":
                return state
            begin = begin + blocks * BLOCK
        return jax.lax.fori_loop(begin, end, lambda step, inner: every(inner, arrays, step), state)

    return all_runs


def _accumulated(
    gradient_of: Callable[..., tuple[Any, PyTree]], parameters: PyTree, batch: tuple[Array, Array], steps: int
) -> tuple[Any, PyTree]:
    """Gradient accumulation: loss, running values and gradient as means over equal parts of a batch, one at a time."""
    parts = jax.tree.map(lambda leaf: leaf.reshape(steps, -1, *leaf.shape[1:]), batch)

    def add(total: PyTree, part: tuple[Array, Array]) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, gradient_of(parameters, *part, None)), None

    shapes = jax.eval_shape(lambda: gradient_of(parameters, *jax.tree.map(lambda leaf: leaf[0], parts), None))
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    total, _ = jax.lax.scan(add, zeros, parts)
    return jax.tree.map(lambda leaf: leaf / steps, total)


def measurement(recipe: Recipe, runs: Runs) -> Callable[..., dict[str, PyTree]]:
    """A function of (state, arrays of the runs, step) that measures every run."""
    static = eqx.filter(runs, eqx.is_array, inverse=True)

    def one(state: State, arrays: Runs, step: Array) -> dict[str, PyTree]:
        run = eqx.combine(arrays, static)
        network = eqx.combine(state.changing, run.rest)
        key = jax.random.fold_in(jax.random.fold_in(run.keys, 1), step)
        found = losses(network, run.data, recipe.loss, recipe.batch_size, key)
        for index, (name, measure) in enumerate(recipe.measures.items()):
            found[name] = measure(network, run.data, jax.random.fold_in(key, index + 1))
        return found

    def all_runs(state: State, arrays: Runs, step: Array) -> dict[str, PyTree]:
        if arrays.keys.shape[0] == 1:
            found = one(pick(state, 0), arrays.alone(0, recipe.own_data), step)
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], found)
        return jax.vmap(one, in_axes=(0, _run_axes(recipe), None))(state, arrays, step)

    return all_runs


def losses(network: Any, data: Source, loss: SampleLoss, batch_size: int | None, key: jax.Array) -> dict[str, Array]:
    """Loss, and accuracy for classes, on the training set (or a new batch of :class:`Fresh` data) and the test set."""
    mask = None
    if isinstance(data, Fresh):
        assert batch_size is not None
        train = data.sample(jax.random.fold_in(key, 0), batch_size)
    else:
        train, mask = (data.inputs, data.targets), row_mask(data)
    sets = {"train": (*train, mask)}
    if data.test_inputs is not None:
        sets["test"] = (data.test_inputs, data.test_targets, None)
    found = {}
    for name, (inputs, targets, rows) in sets.items():
        outputs = outputs_in_batches(network, inputs)
        found[f"{name}_loss"] = _mean(checked_values(loss(outputs, targets), len(outputs)), rows)
        if outputs.ndim == 2 and is_classification(outputs.shape[1], targets):
            found[f"{name}_accuracy"] = _mean(correct(outputs, targets), rows)
    return found


def outputs_in_batches(network: Any, inputs: Array) -> Array:
    """The outputs of a network for many inputs, in bounded memory."""
    if len(inputs) <= _EVALUATION_BATCH:
        return jax.vmap(network)(inputs)
    return jax.lax.map(network, inputs, batch_size=equal_batch_size(len(inputs), _EVALUATION_BATCH))


def _mean(values: Array, mask: Array | None) -> Array:
    if mask is None:
        return jnp.mean(values)
    return jnp.sum(jnp.where(mask, values, 0)) / jnp.sum(mask)
