"""Train widths times learning rates times seeds, and measure whether the best learning rate depends on the width."""

import functools
import inspect
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr

from solvable.checks import check_choice
from solvable.diagnostics.transfer import TransferReport
from solvable.diagnostics.transfer_arguments import ARGUMENTS, check_arguments, check_first_loss, check_sizes
from solvable.diagnostics.transfer_coordinates import coordinate_check, coordinate_rate
from solvable.docstrings import shares_arguments
from solvable.networks.losses import LossName, SampleLoss, sample_loss
from solvable.networks.mlp import MLP, LayerwiseParameterisation
from solvable.networks.parameterisations import OptimiserName, scale_layers
from solvable.networks.parts import trainable
from solvable.networks.sources import Fixed, Fresh, Source
from solvable.networks.stable_rate import SquaredLoss, stable_learning_rate
from solvable.networks.training import Precision, train
from solvable.networks.transfer_widths import Checkpoint, WidthResult, loss_name, width_result
from solvable.precision import in_float64
from solvable.progress import progress_bar

PyTree = Any
MakeNetwork = Callable[[int, jax.Array], Any]
_OPTIMISERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {"sgd": optax.sgd, "adam": optax.adam}
# Inputs of the coordinate check and of the tangent kernel, and initialisations of the latter.
_PROBES, _KERNEL_INPUTS, _KERNEL_NETWORKS = 32, 128, 3


@shares_arguments(ARGUMENTS)
@in_float64
def transfer(
    network: LayerwiseParameterisation | MakeNetwork,
    data: Any,
    *,
    widths: Sequence[int],
    learning_rates: Sequence[float],
    steps: int,
    seeds: int = 8,
    optimiser: OptimiserName | Callable[[Any], optax.GradientTransformation] = "sgd",
    layer_rates: OptimiserName | None = None,
    depth: int = 3,
    batch_size: int | None = None,
    loss: LossName | SampleLoss = "mse",
    key: int = 0,
    window: float = 2.0,
    coordinate_steps: int = 3,
    diverged_above: float = 100.0,
    precision: Precision = "float32",
    runs_per_group: int | Callable[[int], int | None] | None = None,
    checkpoint: str | Path | None = None,
    progress: bool | None = None,
) -> TransferReport:
    """Whether the best learning rate transfers from narrow to wide networks, with error bars.

    Every width is trained at every rate with every seed, in one program per width. Seeds are paired: a seed is the same
    data, and at one width the same initial network and batches, at all rates. The best rate of a width is the vertex of
    a parabola in log2(rate) through the mean *log* of the final loss around its minimum. Runs that diverge get no loss;
    rates at which a run diverged bound the parabola's window.

    Parameters
    ----------
    network
        The name of a parameterisation, for an :class:`MLP` with ReLU and biases whose base width is the smallest of
        the widths; or a function ``network(width, key)`` that returns an Equinox module of one input.
    data
        A :class:`Fixed` or :class:`Fresh` source, or a function ``data(key)`` that makes one for each seed. The loss is
        that on the test set where there is one.
    optimiser
        ``"sgd"``, ``"adam"``, or a function of the learning rate that returns an Optax transformation.
    layer_rates
        Which learning rates per layer a network with ``learning_rate_factors`` uses; by default those of the named
        optimiser. To be given with an optimiser of your own.
    depth
        Number of linear layers of the :class:`MLP`.
    loss, precision
        As in :func:`train`.
    runs_per_group
        Train at most this many runs of a width at once, to save memory: a number, or a function of the width that
        returns one. By default all.
    checkpoint
        A path of a file, to which the losses of every width are written when its runs have ended. The same call
        resumes from it, and one with more widths trains those only.

    >>> import numpy as np
    >>> from solvable import networks
    >>> inputs = np.random.default_rng(0).normal(size=(64, 4))
    >>> data = networks.Fixed(inputs, np.sin(inputs[:, :1]))
    >>> report = networks.transfer(
    ...     "maximal-update", data, widths=[8, 16], learning_rates=2.0 ** np.arange(-7, 2), steps=30, seeds=4
    ... )
    >>> report.to_dataset().loss.dims
    ('width', 'learning_rate', 'seed')
    """
    numbers, rates, seeds = check_arguments(
        widths=widths,
        learning_rates=learning_rates,
        seeds=seeds,
        steps=steps,
        batch_size=batch_size,
        key=key,
        window=window,
        coordinate_steps=coordinate_steps,
        diverged_above=diverged_above,
    )
    kind, make_optimiser = _optimiser(optimiser, layer_rates)
    base = jax.random.key(key)
    first = _source(data, base)
    make = _maker(network, first, depth, int(numbers[0]))
    sizes = check_sizes(numbers, [_size(make, int(width), base) for width in numbers])
    probe = _inputs(first, batch_size, _PROBES)
    layers = list(_layer_shapes(make, int(numbers[0]), base, probe))
    described = _words(network, optimiser, depth, steps, batch_size, loss, key)
    settings = {"rates": rates.tolist(), "seeds": seeds, "precision": precision, "coordinate_steps": coordinate_steps}
    file = Checkpoint(checkpoint, {**described, **settings, "layers": layers, "diverged_above": diverged_above})
    found: list[WidthResult] = []
    with progress_bar("training widths", float(np.sum(sizes)), progress) as advance:
        for width, size in zip(numbers.tolist(), sizes, strict=True):
            if list(_layer_shapes(make, width, base, probe)) != layers:
                raise ValueError(f"width {width} has other layers than width {numbers[0]}: only the width may change")
            factors = _factors(make, width, base, kind, given=layer_rates is not None)
            scaled = functools.partial(_scaled, make_optimiser, factors)
            one = make(width, base)
            mark = file.fingerprint(width, *_first_step(one, first, scaled, loss), one, first)
            done, begin = file.find(width, mark), time.monotonic()
            if done is None:
                training = train(
                    lambda key, learning_rate, width=width: make(width, key),
                    (lambda key, learning_rate: data(key)) if _is_factory(data) else data,
                    lambda learning_rate, scaled=scaled: scaled(learning_rate),
                    steps=steps,
                    batch_size=batch_size,
                    loss=loss,
                    variants={"learning_rate": rates},
                    seeds=seeds,
                    key=key,
                    measure={f"layer {name}": _measure(name, probe) for name in layers},
                    measure_at=[0, coordinate_steps, steps],
                    precision=precision,
                    runs_per_group=runs_per_group(width) if callable(runs_per_group) else runs_per_group,
                    on_divergence="keep",
                    diverged_above=diverged_above,
                    keep_networks=False,
                    progress=False,
                )
                check_first_loss(training.curves[loss_name(training.curves)].isel(time=0).values, width)
                stable = _stable_rate(make, width, first, base, kind, loss)
                seconds = time.monotonic() - begin
                done = width_result(training.curves, layers, coordinate_steps, diverged_above, stable, seconds)
                file.add(width, mark, done)
            found.append(done)
            advance(float(size))
    return TransferReport(
        numbers,
        rates,
        np.stack([one.losses for one in found]),
        sizes,
        "train_loss" if first.test_inputs is None else "test_loss",
        described,
        float(window),
        _coordinates(numbers, rates, layers, found, coordinate_steps),
        None if np.isnan(found[0].stable_rate) else np.array([one.stable_rate for one in found]),
    )


def _first_step(
    network: Any, data: Source, make_optimiser: Callable[[Any], optax.GradientTransformation], loss: Any
) -> tuple[Callable[[PyTree], PyTree], PyTree]:
    """A function of the trained arrays that makes one step on some of the data, and these arrays."""
    inputs, targets = _sample(data)
    start, rest = eqx.partition(network, trainable(network))

    def step(parameters: PyTree) -> PyTree:
        def objective(parameters: PyTree) -> Any:
            outputs = jax.vmap(eqx.combine(parameters, rest))(inputs[:_PROBES])
            return jnp.mean(sample_loss(loss)(outputs, targets[:_PROBES]))

        optimiser = make_optimiser(jnp.asarray(1.0))
        return optimiser.update(jax.grad(objective)(parameters), optimiser.init(parameters), parameters)[0]

    return step, start


def _optimiser(optimiser: Any, layer_rates: OptimiserName | None) -> tuple[OptimiserName | None, Any]:
    """Which learning rates per layer are used, and a function of the rate that makes the optimiser."""
    if layer_rates is not None:
        check_choice("layer_rates", layer_rates, get_args(OptimiserName))
    if callable(optimiser):
        return layer_rates, optimiser
    check_choice("optimiser", optimiser, tuple(_OPTIMISERS))
    return optimiser if layer_rates is None else layer_rates, _OPTIMISERS[optimiser]


def _maker(network: Any, data: Source, depth: int, base_width: int) -> MakeNetwork:
    if not isinstance(network, str):
        if not callable(network) or isinstance(network, eqx.Module):
            raise ValueError(
                "network must be the name of a parameterisation or a function network(width, key), not "
                f"{type(network).__name__}"
            )
        try:
            inspect.signature(network).bind(base_width, None)
        except TypeError as error:
            name = getattr(network, "__name__", "network")
            raise ValueError(f"network must be a function of (width, key), but {name} is not: {error}") from None
        return network
    check_choice("network", network, get_args(LayerwiseParameterisation))
    inputs, targets = _sample(data)
    if jnp.ndim(inputs) != 2:
        raise ValueError(
            f"an MLP takes inputs in rows, not of shape {jnp.shape(inputs)}: give a function network(width, key)"
        )
    outputs = int(np.prod(targets.shape[1:]))
    if jnp.issubdtype(targets.dtype, jnp.integer):
        outputs = int(jnp.max(targets)) + 1
    options: dict[str, Any] = {"parameterisation": network}
    if network == "maximal-update":
        options["base_width"] = base_width
    return lambda width, key: MLP(inputs.shape[1], outputs, width, depth, key=key, **options)


def _is_factory(data: Any) -> bool:
    return callable(data) and not isinstance(data, eqx.Module)


def _source(data: Any, key: jax.Array) -> Source:
    """The data, or those of one key."""
    found = data(key) if _is_factory(data) else data
    if not isinstance(found, Fixed | Fresh):
        raise TypeError(
            f"data must be networks.Fixed or networks.Fresh, or a function data(key) that makes one, not "
            f"{type(found).__name__}: give networks.Fixed(inputs, targets)"
        )
    return found


def _sample(data: Source) -> tuple[Any, Any]:
    """Some inputs and targets, all of a fixed set."""
    if data.test_inputs is not None:
        return jnp.asarray(data.test_inputs), jnp.asarray(data.test_targets)
    return (data.inputs, data.targets) if isinstance(data, Fixed) else data.sample(jax.random.key(0), _KERNEL_INPUTS)


def _inputs(data: Source, batch_size: int | None, count: int) -> Any:
    """The first inputs of the training set, or new ones."""
    if isinstance(data, Fixed):
        return jnp.asarray(data.inputs)[:count]
    if batch_size is None:
        raise ValueError("new samples at every step need a batch_size: give the number of samples per step")
    return data.sample(jax.random.key(0), count)[0]


def _size(make: MakeNetwork, width: int, key: jax.Array) -> int:
    network = eqx.filter_eval_shape(make, width, key)
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(_trained(network)))


def _trained(network: Any) -> PyTree:
    """The trained arrays, also of a network of shapes."""
    shaped = jax.tree.map(
        lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape) if _is_real(leaf) else None, network
    )
    return eqx.filter(shaped, trainable(shaped))


def _is_real(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _outputs_by_layer(network: Any, inputs: Any) -> dict[str, Any]:
    """The outputs of each layer for every input; only those of the network if it does not show others."""
    if hasattr(network, "layer_outputs"):
        return jax.vmap(network.layer_outputs)(inputs)
    return {"output": jax.vmap(network)(inputs)}


def _layer_shapes(make: MakeNetwork, width: int, key: jax.Array, inputs: Any) -> dict[str, Any]:
    return eqx.filter_eval_shape(lambda key: _outputs_by_layer(make(width, key), inputs), key)


def _measure(name: str, inputs: Any) -> Callable[[Any, Any, jax.Array], Any]:
    def outputs(network: Any, _: Any, __: jax.Array) -> Any:
        rows = inputs.astype(jnp.result_type(network_dtype(network))) if _is_real(inputs) else inputs
        return _outputs_by_layer(network, rows)[name]

    return outputs


def network_dtype(network: Any) -> Any:
    """The type of the first trained array."""
    return jax.tree.leaves(eqx.filter(network, trainable(network)))[0].dtype


def _factors(make: MakeNetwork, width: int, key: jax.Array, kind: OptimiserName | None, given: bool) -> PyTree:
    """Factors of the learning rates, or None for a network that has none."""
    if not hasattr(eqx.filter_eval_shape(make, width, key), "learning_rate_factors"):
        if given:
            raise ValueError("layer_rates are for networks with a method learning_rate_factors, which this one lacks")
        return None
    if kind is None:
        raise ValueError(
            "layer_rates must be 'sgd' or 'adam' with an optimiser of your own: this network has learning rates per "
            "layer, and they depend on whether steps shrink with gradients"
        )
    return eqx.filter_jit(lambda key: make(width, key).learning_rate_factors(kind))(key)


def _scaled(
    make_optimiser: Callable[[Any], optax.GradientTransformation], factors: PyTree, learning_rate: Any
) -> optax.GradientTransformation:
    optimiser = make_optimiser(learning_rate)
    return optimiser if factors is None else scale_layers(optimiser, factors)


def _coordinates(
    widths: np.ndarray, rates: np.ndarray, layers: list[str], found: list[WidthResult], steps: int
) -> xr.Dataset:
    """The coordinate check at one rate, the same at all widths."""
    finite = np.stack([one.is_finite for one in found])
    chosen = coordinate_rate(rates, np.stack([one.losses for one in found]), finite)
    # Dims (width, layer, seed).
    initial, change = (
        np.stack([values[:, chosen] for values in parts])
        for parts in zip(*((one.initial, one.change) for one in found), strict=True)
    )
    return coordinate_check(widths, layers, initial, change, float(rates[chosen]), steps)


def _stable_rate(
    make: MakeNetwork, width: int, data: Source, key: jax.Array, kind: OptimiserName | None, loss: Any
) -> float:
    """2 / λ of the tangent kernel at this width, the geometric mean over some initialisations; NaN if not of SGD."""
    if kind != "sgd" or loss not in get_args(SquaredLoss):
        return math.nan
    inputs = _inputs(data, _KERNEL_INPUTS, _KERNEL_INPUTS)
    factors = _factors(make, width, key, kind, given=False)
    keys = jax.random.split(jax.random.fold_in(key, width), _KERNEL_NETWORKS)
    found = [stable_learning_rate(make(width, one), inputs, loss=loss, factors=factors) for one in keys]
    return float(np.exp(np.mean([np.log(one.stable_learning_rate) for one in found])))


def _words(
    network: Any, optimiser: Any, depth: int, steps: int, batch_size: int | None, loss: Any, key: int
) -> dict[str, Any]:
    """What was trained and how, for the report."""

    def name(value: Any) -> str:
        return value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)

    words: dict[str, Any] = {"network": name(network)}
    if isinstance(network, str):
        words["depth"] = depth
    batches = "all samples" if batch_size is None else f"batches of {batch_size}"
    return {**words, "optimiser": name(optimiser), "steps": steps, "batches": batches, "loss": name(loss), "key": key}
