"""The compiled parts of a training: how runs start, how they go a stretch of steps, what is measured of them.

A run is one network with its data; all runs of a group go side by side (vmap), and the counter of steps is common to
them. What differs between runs lies in arrays with the run as first axis; what does not (functions, shapes) is static.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from solvable.networks.losses import PointLoss, correct, is_classification
from solvable.networks.parts import cast, forward, running, trainable
from solvable.networks.schedule import BLOCK
from solvable.networks.sources import Fixed, Fresh, Source, equal_pieces, first_order, next_batch, weights_of

PyTree = Any
Variant = dict[str, Array]
Measure = Callable[[Any, Any, jax.Array], PyTree]
Loops = Literal["blocks", "blocks and rest", "one by one"]
# Larger sets are measured in pieces of this many points, or activations would fill the memory.
_PIECE = 4096


class State(NamedTuple):
    """What a step changes. ``diverged`` is the step at which a run was stopped, -1 as long as it goes.

    ``parameters`` are the trained arrays of the network, ``running`` those it carries along (batch statistics).
    """

    parameters: PyTree
    running: PyTree
    optimiser: PyTree
    order: Array | None
    diverged: Array
    first_loss: Array

    @property
    def changing(self) -> PyTree:
        """All that training changes of the network."""
        return eqx.combine(self.parameters, self.running)


class Runs(NamedTuple):
    """What a step leaves as it is: the parts that are not trained, data, keys and the settings of the runs."""

    rest: PyTree
    data: Source
    keys: Array
    variants: Variant

    def alone(self, run: int, own_data: bool) -> "Runs":
        """One of the runs."""
        rest, keys, variants = (pick(part, run) for part in (self.rest, self.keys, self.variants))
        return Runs(rest, pick(self.data, run) if own_data else self.data, keys, variants)


def pick(tree: PyTree, run: int) -> PyTree:
    """One run's part of what has the run as first axis."""
    return jax.tree.map(lambda leaf: leaf[run] if eqx.is_array(leaf) else leaf, tree)


class Recipe(NamedTuple):
    """All that says how a run is trained. ``low`` is the precision inside a step, if it is not ``precision``.

    ``loops`` says how steps are repeated on an accelerator: in blocks of known length where every stretch is a multiple
    of ``BLOCK``, one by one, or both; each loop compiles the step once more.
    """

    network: Any
    data: Any
    optimiser: Any
    batch: int | None
    pieces: int
    loss: PointLoss
    precision: Any
    low: Any
    measures: Mapping[str, Measure]
    diverged_above: float
    loops: Loops = "blocks and rest"

    @property
    def own_data(self) -> bool:
        """Whether each run has data of its own."""
        return _is_maker(self.data)


def beginning(recipe: Recipe) -> Callable[[Array, Variant], tuple[State, Runs]]:
    """A function of keys and settings of the runs that gives all of them at step 0.

    Data that are given as they are, not made for each run, are kept once.
    """
    shared = not recipe.own_data
    common = cast(arrays_of(recipe.data), recipe.precision) if shared else None

    def one(key: jax.Array, variant: Variant) -> tuple[State, PyTree, Any, jax.Array]:
        network_key, data_key, step_key = jax.random.split(key, 3)
        network = recipe.network(network_key, **variant) if _is_maker(recipe.network) else recipe.network
        data = None if shared else cast(arrays_of(recipe.data(data_key, **variant)), recipe.precision)
        network = cast(network, recipe.precision)
        parameters, rest = eqx.partition(network, trainable(network))
        carried, rest = eqx.partition(rest, running(rest))
        state = State(
            parameters,
            carried,
            optimiser_of(recipe, variant).init(parameters),
            None,
            jnp.asarray(-1, jnp.int32),
            jnp.asarray(jnp.inf, recipe.precision),
        )
        if data is not None:
            state = state._replace(order=first_order(data, recipe.batch))
        return state, rest, data, step_key

    compiled = eqx.filter_jit(eqx.filter_vmap(one))

    def all_runs(keys: Array, variants: Variant) -> tuple[State, Runs]:
        state, rest, data, step_keys = compiled(keys, variants)
        if common is not None:
            data = common
            order = first_order(data, recipe.batch)
            state = state._replace(order=None if order is None else jnp.tile(order, (len(keys), 1)))
        return state, Runs(rest, data, step_keys, variants)

    return all_runs


def arrays_of(data: Any) -> Source:
    """The data, with NumPy arrays made JAX arrays; or what is wrong with them."""
    if not isinstance(data, Fixed | Fresh):
        raise TypeError(f"data must be networks.Fixed or networks.Fresh, or a function that makes one, not {data!r}")
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array_like(leaf) else leaf, data)


def _is_maker(thing: Any) -> bool:
    return callable(thing) and not isinstance(thing, eqx.Module)


def optimiser_of(recipe: Recipe, variant: Variant) -> optax.GradientTransformation:
    given = recipe.optimiser
    # An optax transformation is a tuple of functions; a maker is a function.
    return given if isinstance(given, tuple) else given(**variant)


def _mapped(recipe: Recipe) -> Runs:
    """Which of the arrays have a run axis, for vmap."""
    return Runs(0, 0 if recipe.own_data else None, 0, 0)  # type: ignore[arg-type]


def stretch(recipe: Recipe, runs: Runs, single: bool = False) -> Callable[..., State]:
    """A function of (state, arrays of the runs, begin, end) that trains every run from step begin to step end.

    A ``single`` one goes one step from begin, whatever the end.
    """
    static = eqx.filter(runs, eqx.is_array, inverse=True)

    def one_step(state: State, arrays: Runs, step: Array) -> State:
        run = eqx.combine(arrays, static)
        key = jax.random.fold_in(run.keys, 0)
        (inputs, targets), order = next_batch(run.data, recipe.batch, state.order, key, step)
        counted = weights_of(run.data) if recipe.batch is None and isinstance(run.data, Fixed) else None

        def objective(parameters: PyTree, inputs: Array, targets: Array, counted: Array | None) -> tuple[Array, PyTree]:
            outputs, after = forward(eqx.combine(parameters, state.running, run.rest), inputs, recipe.low)
            return _mean(recipe.loss(outputs, targets), counted), eqx.filter(after, running(after))

        gradient_of = jax.value_and_grad(objective, has_aux=True)
        if recipe.pieces > 1:
            (loss, carried), gradient = _in_parts(gradient_of, state.parameters, (inputs, targets), recipe.pieces)
        else:
            (loss, carried), gradient = gradient_of(state.parameters, inputs, targets, counted)
        updates, optimiser = optimiser_of(recipe, run.variants).update(gradient, state.optimiser, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        first = jnp.where(step == 0, loss, state.first_loss)
        bad = ~(loss <= recipe.diverged_above * first)  # NaN is bad too
        diverged = jnp.where((state.diverged < 0) & bad, step.astype(jnp.int32), state.diverged)
        # A run that diverged stays where it was when it did.
        parameters, carried, optimiser = jax.tree.map(
            lambda new, old: jnp.where(diverged < 0, new, old),
            (parameters, carried, optimiser),
            (state.parameters, state.running, state.optimiser),
        )
        return State(parameters, carried, optimiser, order, diverged, first)

    def many(state: State, arrays: Runs, begin: Array, end: Array) -> State:
        alone = arrays.keys.shape[0] == 1
        if alone:
            # Products of single matrices are faster than stacks of one.
            state, arrays = pick(state, 0), arrays.alone(0, recipe.own_data)
        every = one_step if alone else jax.vmap(one_step, in_axes=(0, _mapped(recipe), None))
        state = every(state, arrays, begin) if single else loop(every, state, arrays, begin, end)
        return jax.tree.map(lambda leaf: leaf[None], state) if alone else state

    def loop(every: Callable[..., State], state: State, arrays: Runs, begin: Array, end: Array) -> State:
        def block(index: Array, inner: State) -> State:
            first = begin + index * BLOCK
            return jax.lax.fori_loop(0, BLOCK, lambda step, state: every(state, arrays, first + step), inner)

        if jax.default_backend() != "cpu" and recipe.loops != "one by one":
            # A loop whose length is not known asks the host after each round whether there is another; one of known
            # length does not. On an accelerator that is half the time of a small step.
            blocks = (end - begin) // BLOCK
            state = jax.lax.fori_loop(0, blocks, block, state)
            if recipe.loops == "blocks":
                return state
            begin = begin + blocks * BLOCK
        return jax.lax.fori_loop(begin, end, lambda step, inner: every(inner, arrays, step), state)

    return many


def _in_parts(
    gradient_of: Callable[..., tuple[Any, PyTree]], parameters: PyTree, batch: tuple[Array, Array], pieces: int
) -> tuple[Any, PyTree]:
    """Loss, running values and gradient of a batch, means over its parts: as little memory as one part needs."""
    parts = jax.tree.map(lambda leaf: leaf.reshape(pieces, -1, *leaf.shape[1:]), batch)

    def add(total: PyTree, part: tuple[Array, Array]) -> tuple[PyTree, None]:
        return jax.tree.map(jnp.add, total, gradient_of(parameters, *part, None)), None

    shapes = jax.eval_shape(lambda: gradient_of(parameters, *jax.tree.map(lambda leaf: leaf[0], parts), None))
    nothing = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    total, _ = jax.lax.scan(add, nothing, parts)
    return jax.tree.map(lambda leaf: leaf / pieces, total)


def measurement(recipe: Recipe, runs: Runs) -> Callable[..., dict[str, PyTree]]:
    """A function of (state, arrays of the runs, step) that measures every run."""
    static = eqx.filter(runs, eqx.is_array, inverse=True)

    def one(state: State, arrays: Runs, step: Array) -> dict[str, PyTree]:
        run = eqx.combine(arrays, static)
        network = eqx.combine(state.changing, run.rest)
        key = jax.random.fold_in(jax.random.fold_in(run.keys, 1), step)
        found = losses(network, run.data, recipe.loss, recipe.batch, key)
        for index, (name, measure) in enumerate(recipe.measures.items()):
            found[name] = measure(network, run.data, jax.random.fold_in(key, index + 1))
        return found

    def many(state: State, arrays: Runs, step: Array) -> dict[str, PyTree]:
        if arrays.keys.shape[0] == 1:
            found = one(pick(state, 0), arrays.alone(0, recipe.own_data), step)
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], found)
        return jax.vmap(one, in_axes=(0, _mapped(recipe), None))(state, arrays, step)

    return many


def losses(network: Any, data: Source, loss: PointLoss, batch: int | None, key: jax.Array) -> dict[str, Array]:
    """Loss, and accuracy of classes, on the training set (or a new batch, where points are new) and the test set."""
    counted = None
    if isinstance(data, Fresh):
        assert batch is not None
        train = data.sample(jax.random.fold_in(key, 0), batch)
    else:
        train, counted = (data.inputs, data.targets), weights_of(data)
    sets = {"train": (*train, counted)}
    if data.test_inputs is not None:
        sets["test"] = (data.test_inputs, data.test_targets, None)
    found = {}
    for name, (inputs, targets, weights) in sets.items():
        outputs = in_pieces(network, inputs)
        found[f"{name}_loss"] = _mean(loss(outputs, targets), weights)
        if outputs.ndim == 2 and is_classification(outputs.shape[1], targets):
            found[f"{name}_accuracy"] = _mean(correct(outputs, targets), weights)
    return found


def in_pieces(network: Any, inputs: Array) -> Array:
    """The outputs of a network on many points, in bounded memory."""
    if len(inputs) <= _PIECE:
        return jax.vmap(network)(inputs)
    return jax.lax.map(network, inputs, batch_size=equal_pieces(len(inputs), _PIECE))


def _mean(values: Array, weights: Array | None) -> Array:
    if weights is None:
        return jnp.mean(values)
    return jnp.sum(jnp.where(weights, values, 0)) / jnp.sum(weights)
