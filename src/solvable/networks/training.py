"""Train many networks side by side, and measure them during training."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import check_choice, check_count
from solvable.dataset import Stopwatch
from solvable.divergence import DivergedError
from solvable.files import check_writable
from solvable.networks import checkpoints
from solvable.networks.compilation import Programs, is_memory_error
from solvable.networks.losses import LossName, SampleLoss, sample_loss
from solvable.networks.program import Measure, Recipe, Runs, Schedule, State, initialise, pick
from solvable.networks.results import GroupResult, Training, all_runs, divergence_message, make_curves, saved_parameters
from solvable.networks.sources import Fixed, Source
from solvable.numerics.determinism import deterministic_kernels
from solvable.precision import in_float64
from solvable.progress import progress_bar

PyTree = Any
Inspect = Callable[[Any, Source, Any], Mapping[str, Any]]
Precision = Literal["float32", "float64", "bfloat16"]


@in_float64
def train(
    network: Any,
    data: Any,
    optimiser: Any,
    *,
    steps: int,
    batch_size: int | None = None,
    gradient_accumulation_steps: int = 1,
    loss: LossName | SampleLoss = "mse",
    variants: Mapping[str, Any] | None = None,
    seeds: int = 1,
    key: int = 0,
    measure: Mapping[str, Measure] | None = None,
    measure_at: Any = None,
    inspect: Inspect | Sequence[Inspect] = (),
    inspect_at: Sequence[int] | None = None,
    snapshots_at: Sequence[int] = (),
    precision: Precision = "float32",
    matmul_precision: Literal["default", "high", "highest"] = "default",
    runs_per_group: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    deterministic: bool | None = None,
    on_divergence: Literal["raise", "keep"] = "raise",
    diverged_above: float = 1e6,
    memory_limit: float | None = None,
    keep_networks: bool = True,
    progress: bool | None = None,
) -> Training:
    """Train networks of many random seeds and many variants side by side in one compiled program.

    Every variant is trained with every seed, and a seed draws the same random numbers in every variant.

    Parameters
    ----------
    network
        A function ``network(key, **variant)`` that returns an Equinox module of one input, or such a module.
    data
        A function ``data(key, **variant)`` that returns a :class:`Fixed` or :class:`Fresh` source, or such a source.
    optimiser
        A function ``optimiser(**variant)`` that returns an Optax transformation, or such a transformation.
    steps
        Number of training steps.
    batch_size
        Samples per step; by default the whole training set. Fixed sets are reshuffled every epoch.
    gradient_accumulation_steps
        Number of equal parts in which the gradient of a batch is computed, one after the other, to save memory.
    loss
        ``"mse"`` (mean over outputs), ``"half-mse"`` (half the sum over outputs), ``"cross-entropy"``, or a function of
        the outputs and targets of a batch that returns a loss per sample.
    variants
        Lists of equal length; entry i of each belongs to variant i. They are traced, so scales, learning rates, weight
        decays and masked widths are all trained in one program.
    seeds
        Number of random seeds.
    key
        Random key from which the seeds are derived.
    measure
        Further measurements by name: functions of (network, data, key) that JAX can compile. Losses, and accuracies for
        classes, are always measured.
    measure_at
        Steps of these measurements; by default 0, ``steps`` and about twenty per decade. An empty list means none.
    inspect
        Measurements that JAX cannot compile: functions of (network, data, initial network) that return a dict of
        numbers or arrays, such as :func:`feature_metrics`. They are called for each run.
    inspect_at
        Steps at which ``inspect`` is called; by default the first and the last.
    snapshots_at
        Steps at which the networks are saved, in addition to the last.
    precision
        With ``"bfloat16"`` the forward and backward passes are computed in bfloat16; parameters, optimiser, running
        values and measurements are float32.
    matmul_precision
        Precision of matrix products on an accelerator, as in :func:`jax.default_matmul_precision`.
    runs_per_group
        Train at most this many runs at once, to save memory; by default all. Convolutions of many networks side by side
        are slow: with 1, one program, compiled once, trains one run after the other.
    checkpoint
        A path. The state is written there now and then, and when training is interrupted; the same call resumes from
        it, with the same result, bit for bit, on the same device.
    checkpoint_seconds
        Seconds between two checkpoints.
    deterministic
        Whether the same call gives the same bits on the same device each time. On a GPU this takes slower kernels, also
        for the measures of this package; CPUs always do it. By default it is on where there is a ``checkpoint``, which
        needs it, and else off.
    on_divergence
        What to do when a run diverges: ``"raise"`` a :class:`DivergedError` that says which run and when, with the
        training so far as its ``partial``; or ``"keep"`` training the others, and note the step in ``diverged_at``.
    diverged_above
        A run has diverged, and is stopped, if its loss is not finite, or exceeds its first loss by this factor.
    memory_limit
        Bytes of device memory that may be used; by default all.
    keep_networks
        Whether :meth:`Training.network` is needed. Without, memory holds the networks of one group at a time, and the
        training has curves only.
    progress
        Whether to show a progress bar; by default on a terminal.

    >>> import jax, optax
    >>> from solvable import networks
    >>> points = jax.numpy.linspace(-1, 1, 32)[:, None]
    >>> data = networks.Fixed(points, points**2)
    >>> def network(key):
    ...     return networks.MLP(1, 1, width=32, depth=2, key=key, activation="tanh")
    ...
    >>> training = networks.train(network, data, optax.adam(0.01), steps=300, seeds=3)
    >>> training.curves.train_loss.dims, bool((training.curves.train_loss[:, -1] < 0.01).all())
    (('seed', 'time'), True)
    """
    watch = Stopwatch()
    check_count("steps", steps)
    check_count("seeds", seeds)
    check_choice("precision", precision, get_args(Precision))
    check_choice("matmul_precision", matmul_precision, ("default", "high", "highest"))
    check_choice("on_divergence", on_divergence, ("raise", "keep"))
    _check_batch(batch_size, gradient_accumulation_steps)
    deterministic = _check_deterministic(deterministic, checkpoint is not None)
    if len(snapshots_at) and not keep_networks:
        raise ValueError("snapshots_at saves networks, which keep_networks=False drops: leave one of them out")
    if not diverged_above > 1:
        raise ValueError(f"diverged_above must be above 1, how far a loss may grow, not {diverged_above!r}")
    lists = _check_variants(variants)
    inspectors = tuple(inspect) if isinstance(inspect, Sequence) else (inspect,)
    schedule = Schedule(steps, measure_at, inspect_at if inspectors else (), snapshots_at)
    recipe = Recipe(
        network,
        data,
        optimiser,
        batch_size,
        gradient_accumulation_steps,
        sample_loss(loss),
        jnp.dtype("float32" if precision == "bfloat16" else precision),
        jnp.dtype(precision) if precision == "bfloat16" else None,
        dict(measure or {}),
        diverged_above,
        "blocks" if schedule.whole_blocks else "blocks and rest",
    )
    runs = seeds * max(1, *(len(values) for values in lists.values())) if lists else seeds
    group_size = runs if runs_per_group is None else min(check_count("runs_per_group", runs_per_group), runs)
    settings = {
        "steps": steps,
        "batch_size": batch_size,
        "gradient_accumulation_steps": gradient_accumulation_steps,
        "loss": loss if isinstance(loss, str) else getattr(loss, "__name__", "own"),
        "seeds": seeds,
        "key": key,
        "measure_at": schedule.measure_at,
        "inspect_at": schedule.inspect_at,
        "snapshots_at": schedule.snapshots_at,
        "precision": precision,
        "matmul_precision": matmul_precision,
    }
    firsts = range(0, runs, group_size)
    paths = [None] * len(firsts) if checkpoint is None else _checkpoint_paths(Path(checkpoint), len(firsts))
    if paths[0] is not None:
        # Before the work, not at the first checkpoint minutes later.
        check_writable(paths[0])
    base = jax.random.key(key)
    keys = jax.vmap(lambda seed: jax.random.fold_in(base, seed))(jnp.arange(runs) % seeds)
    # In the precision of the training: a float64 learning rate would turn every update into float64.
    kinds = {"f": recipe.dtype, "b": bool}
    each = {
        name: jnp.asarray(np.repeat(values, seeds), kinds.get(values.dtype.kind, "int32"))
        for name, values in lists.items()
    }
    groups = []
    programs = Programs(recipe, bool(schedule.measure_at), memory_limit, deterministic)
    with (
        deterministic_kernels(deterministic),
        jax.default_matmul_precision(None if matmul_precision == "default" else matmul_precision),
        progress_bar("training", runs * steps, progress) as report,
    ):
        start = initialise(recipe)
        for first, path in zip(firsts, paths, strict=True):
            chosen = slice(first, first + group_size)
            initial = start(keys[chosen], {name: values[chosen] for name, values in each.items()})
            group = _Group(recipe, programs, *initial, settings)
            found = group.train(schedule, inspectors, path, checkpoint_seconds, on_divergence, report)
            groups.append(found if keep_networks else found.without_networks())
            del initial, group, found
    curves = make_curves(groups, lists, seeds, schedule, settings, watch)
    kept = all_runs(groups, recipe.own_data) if keep_networks else None
    training = Training(curves, kept, saved_parameters(groups) if keep_networks else {}, seeds, recipe.own_data)
    if on_divergence == "raise" and (curves.diverged_at >= 0).any():
        step = int(curves.diverged_at.where(curves.diverged_at >= 0).min())
        raise DivergedError(divergence_message(curves), step=step, time=float(step), partial=training)
    return training


def _check_batch(batch_size: int | None, accumulation_steps: int) -> None:
    check_count("gradient_accumulation_steps", accumulation_steps)
    if batch_size is not None:
        check_count("batch_size", batch_size)
    if accumulation_steps > 1 and (batch_size is None or batch_size % accumulation_steps):
        raise ValueError(
            f"gradient_accumulation_steps must divide batch_size, but it is {accumulation_steps} and batch_size is "
            f"{batch_size}"
        )


def _check_deterministic(deterministic: bool | None, checkpointed: bool) -> bool:
    if deterministic is None:
        return checkpointed
    if not isinstance(deterministic, bool):
        raise ValueError(f"deterministic must be True, False or None, not {deterministic!r}")
    if checkpointed and not deterministic:
        raise ValueError(
            "deterministic=False cannot be combined with a checkpoint: a resumed training would differ from an "
            "uninterrupted one; leave out one of the two"
        )
    return deterministic


def _check_variants(variants: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    lists = {name: np.asarray(values) for name, values in (variants or {}).items()}
    for name, values in lists.items():
        if values.ndim != 1 or not values.size:
            raise ValueError(f"variants[{name!r}] must be a list of numbers, not of shape {values.shape}")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"variants[{name!r}] must hold numbers, which can be traced, not {values.dtype}")
    lengths = {name: values.size for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"variants must be lists of equal length, one entry per variant, not of lengths {lengths}")
    reserved = {"variant", "seed", "time"} & set(lists)
    if reserved:
        raise ValueError(f"variants may not be called {sorted(reserved)[0]!r}: curves have a dimension of that name")
    return lists


def _check_labels(data: Fixed, rows: int) -> None:
    """Raise a ValueError for targets that are no classes; ``rows`` is the axis of the samples.

    JAX counts negative class numbers from the end, and the cross-entropy of a single real number is always zero. Too
    large class numbers give NaN.
    """
    for name in ("targets", "test_targets"):
        labels = getattr(data, name)
        if labels is None or not labels.size:
            continue
        if not jnp.issubdtype(labels.dtype, jnp.floating):
            if (labels < 0).any():
                raise ValueError(
                    f"{name} has the label {int(labels.min())}: number classes from 0, and leave others out"
                )
        elif labels.shape[rows + 1 :] in ((), (1,)):
            raise ValueError(
                f"{name} has one real number per sample, and cross-entropy needs classes: give labels that are whole "
                "numbers, or rows with a one for the class, or choose the loss mse"
            )


def _checkpoint_paths(path: Path, groups: int) -> list[Path]:
    """One file per group of runs."""
    path = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
    return [path] if groups == 1 else [path.with_name(f"{path.stem}.{group}.npz") for group in range(groups)]


class _Group:
    """Runs that are trained side by side."""

    def __init__(self, recipe: Recipe, programs: Programs, state: State, runs: Runs, settings: dict[str, Any]) -> None:
        self.recipe, self.programs, self.state, self.runs = recipe, programs, state, runs
        self.arrays = eqx.filter(runs, eqx.is_array)
        self.count = len(runs.keys)
        self.initial = state.changing
        self._check()
        self.program, self.settings = programs.of(state, runs), settings

    def _fingerprint(self) -> str:
        # A changed optimiser or network changes the program.
        platform = f"{jax.default_backend()} {jax.devices()[0].device_kind} {jax.__version__}"
        return checkpoints.fingerprint(self.settings, platform + self.program.text, self.state, self.arrays)

    def _check(self) -> None:
        data, batch_size = self.runs.data, self.recipe.batch_size
        if not isinstance(data, Fixed):
            if batch_size is None:
                raise ValueError("new samples at every step need a batch_size: give the number of samples per step")
        elif data.count is None:
            size = data.inputs.shape[1 if self.recipe.own_data else 0]
            if batch_size is not None and batch_size > size:
                raise ValueError(
                    f"batch_size must be at most the {size} samples of the training set, not {batch_size}; without it, "
                    "every step uses all of them"
                )
        if isinstance(data, Fixed) and self.recipe.loss is sample_loss("cross-entropy"):
            _check_labels(data, rows=1 if self.recipe.own_data else 0)
        if not jax.tree.leaves(self.state.parameters):
            raise ValueError("the network has nothing to train: its arrays of real numbers are all networks.Constant")

    def train(
        self,
        schedule: Schedule,
        inspectors: tuple[Inspect, ...],
        path: Path | None,
        checkpoint_seconds: float,
        on_divergence: str,
        report: Callable[[float], None],
    ) -> GroupResult:
        found: dict[str, np.ndarray] = {}
        state, done = self.state, -1
        fingerprint = "" if path is None else self._fingerprint()
        if path is not None:
            resumed = checkpoints.read(path, fingerprint, state)
            if resumed is not None:
                done, state, found = resumed
                report(self.count * done)
        written = time.monotonic()
        try:
            for stop in schedule.stops:
                if stop <= done:
                    continue
                reached = state
                if stop > max(done, 0):
                    reached = self._advance(state, max(done, 0), stop)
                    report(self.count * (stop - max(done, 0)))
                found |= self._observe(reached, stop, schedule, inspectors)
                # Both at once, and only now: an interrupt above leaves the previous stop intact.
                state, done = reached, stop
                if path is not None and (stop == schedule.steps or time.monotonic() - written > checkpoint_seconds):
                    checkpoints.write(path, fingerprint, done, state, found)
                    written = time.monotonic()
                if on_divergence == "raise" and (np.asarray(state.diverged) >= 0).any():
                    break
        except KeyboardInterrupt:
            if path is not None and done >= 0:
                checkpoints.write(path, fingerprint, done, state, found)
            raise
        return GroupResult(state, self.runs, found, done)

    def _advance(self, state: State, begin: int, end: int) -> State:
        try:
            for first in range(begin, end) if self.program.single else (begin,):
                state = self.program.advance(
                    state, self.arrays, jnp.asarray(first, jnp.int32), jnp.asarray(end, jnp.int32)
                )
            # Dispatch is asynchronous; without waiting, the progress bar would run ahead of the work.
            return jax.block_until_ready(state)
        except Exception as error:
            if is_memory_error(error):
                raise self.programs.too_large(state, self.runs) from error
            raise

    def _observe(
        self, state: State, step: int, schedule: Schedule, inspectors: tuple[Inspect, ...]
    ) -> dict[str, np.ndarray]:
        """Measurements, inspections and snapshots of this step, under names that end in the step."""
        found: dict[str, np.ndarray] = {}
        if step in schedule.measure_at:
            measured = self.program.measure(state, self.arrays, jnp.asarray(step, jnp.int32))
            found |= {f"curve/{name}/{step}": np.asarray(value) for name, value in measured.items()}
        if step in schedule.inspect_at and inspectors:
            rows = [self._inspect(state, run, inspectors) for run in range(self.count)]
            for name in rows[0]:
                found[f"inspected/{name}/{step}"] = np.asarray([row[name] for row in rows], float)
        if step in schedule.snapshots_at:
            for index, leaf in enumerate(jax.tree.leaves(state.changing)):
                found[f"kept/{index}/{step}"] = np.asarray(leaf)
        return found

    def _inspect(self, state: State, run: int, inspectors: tuple[Inspect, ...]) -> dict[str, Any]:
        one = self.runs.alone(run, self.recipe.own_data)
        network, initial = (eqx.combine(pick(part, run), one.rest) for part in (state.changing, self.initial))
        numbers: dict[str, Any] = {}
        for inspector in inspectors:
            numbers |= inspector(network, one.data, initial)
        return numbers
