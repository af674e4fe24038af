"""Train many networks side by side, and measure them on the way."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import check_choice, check_count
from solvable.dataset import Stopwatch
from solvable.divergence import DivergedError
from solvable.files import check_writable
from solvable.networks import checkpoints, memory
from solvable.networks.losses import LossName, PointLoss, point_loss
from solvable.networks.program import Measure, Recipe, Runs, State, beginning, measurement, pick, stretch
from solvable.networks.results import Piece, Training, dataset, parameters, together, which
from solvable.networks.schedule import Schedule
from solvable.networks.sources import Fixed, Source
from solvable.numerics.memory import device_memory
from solvable.precision import in_float64
from solvable.progress import progress_bar

PyTree = Any
Inspect = Callable[[Any, Source, Any], Mapping[str, Any]]
Precision = Literal["float32", "float64", "bfloat16"]

_CHECKPOINT_SECONDS = 60.0


@in_float64
def train(
    network: Any,
    data: Any,
    optimiser: Any,
    *,
    steps: int,
    batch: int | None = None,
    pieces: int = 1,
    loss: LossName | PointLoss = "mse",
    variants: Mapping[str, Any] | None = None,
    seeds: int = 1,
    key: int = 0,
    measure: Mapping[str, Measure] | None = None,
    at: Any = None,
    inspect: Inspect | Sequence[Inspect] = (),
    inspect_at: Sequence[int] | None = None,
    snapshots_at: Sequence[int] = (),
    precision: Precision = "float32",
    matmul_precision: Literal["default", "high", "highest"] = "default",
    at_once: int | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = _CHECKPOINT_SECONDS,
    on_divergence: Literal["raise", "keep"] = "raise",
    diverged_above: float = 1e6,
    memory_limit: float | None = None,
    progress: bool | None = None,
) -> Training:
    """Train networks of many seeds, and of many settings, side by side in one compiled program.

    ``network(key, **variant)`` makes an Equinox module of one input, ``data(key, **variant)`` a :class:`Fixed` or
    :class:`Fresh` source, ``optimiser(**variant)`` an Optax transformation; each may also be given as it is. Every
    variant, entry i of the equally long lists of ``variants``, is trained with every seed, and a seed draws the same
    numbers in every variant. Variants are traced, so scales, rates, decays and masked widths all go in one program.

    Each step takes ``batch`` points; without it, the whole training set. Fixed sets are gone through in a new order
    every epoch. Losses are measured at the steps ``at`` (by default 0, ``steps`` and about twenty a decade between;
    with an empty list nowhere), with accuracies of classes and whatever ``measure`` adds: functions of (network, data,
    key) that JAX can compile.
    ``inspect`` is for what it cannot: functions of (network, data, initial network) that return a dict of numbers or
    arrays, for example :func:`feature_metrics`, called for each run at ``inspect_at`` (by default first and last).
    Networks are kept at the end and at ``snapshots_at``.

    Networks with batch statistics have :class:`Running` parts; they learn from whole batches and are measured with
    what they carry. ``precision="bfloat16"`` makes each step's products of that kind; parameters, the optimiser,
    running values and all that is measured stay float32.

    With ``checkpoint``, a path, the state is written there once in ``checkpoint_seconds`` and when interrupted; the
    same call goes on from it, and what comes out is the same, bit for bit, on the same device. A run whose loss is not
    finite, or above ``diverged_above`` times its first, is stopped: ``on_divergence="raise"`` says which and when, in a
    :class:`DivergedError` that carries what there is; ``"keep"`` lets the others go on and notes the step in
    ``diverged_at``. Where memory is short, ``at_once`` trains that many runs at a time, and ``pieces`` takes the
    gradient of a batch in that many parts. Convolutions of many networks side by side are slow: give ``at_once=1``, and
    one program, compiled once, trains one after the other.

    >>> import jax, optax, solvable.networks as networks
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
    if batch is not None:
        check_count("batch", batch)
    if not diverged_above > 1:
        raise ValueError(f"diverged_above must be above 1, how far a loss may grow, not {diverged_above!r}")
    lists = _variants(variants)
    inspectors = tuple(inspect) if isinstance(inspect, Sequence) else (inspect,)
    schedule = Schedule(steps, at, inspect_at if inspectors else (), snapshots_at)
    recipe = Recipe(
        network,
        data,
        optimiser,
        batch,
        _pieces(pieces, batch),
        point_loss(loss),
        jnp.dtype("float32" if precision == "bfloat16" else precision),
        jnp.dtype(precision) if precision == "bfloat16" else None,
        dict(measure or {}),
        diverged_above,
        "blocks" if schedule.whole_blocks else "blocks and rest",
    )
    runs = seeds * max(1, *(len(values) for values in lists.values())) if lists else seeds
    group = runs if at_once is None else min(check_count("at_once", at_once), runs)
    settings = {
        "steps": steps,
        "batch": batch,
        "pieces": pieces,
        "loss": loss if isinstance(loss, str) else getattr(loss, "__name__", "own"),
        "seeds": seeds,
        "key": key,
        "at": schedule.at,
        "inspect_at": schedule.inspect_at,
        "snapshots_at": schedule.snapshots_at,
        "precision": precision,
        "matmul_precision": matmul_precision,
    }
    if checkpoint is not None:
        # Before the work, not at the first checkpoint minutes later.
        check_writable(_path_of(Path(checkpoint), 0, runs > group))
    base = jax.random.key(key)
    keys = jax.vmap(lambda seed: jax.random.fold_in(base, seed))(jnp.arange(runs) % seeds)
    # In the precision of the training, or a rate of 64 bits would make every update one.
    kinds = {"f": recipe.precision, "b": bool}
    each = {
        name: jnp.asarray(np.repeat(values, seeds), kinds.get(values.dtype.kind, "int32"))
        for name, values in lists.items()
    }
    groups = []
    begin, programs = beginning(recipe), _Programs(recipe, bool(schedule.at), memory_limit, checkpoint is not None)
    with (
        jax.default_matmul_precision(None if matmul_precision == "default" else matmul_precision),
        progress_bar("training", runs * steps, progress) as advance,
    ):
        for first in range(0, runs, group):
            chosen = slice(first, first + group)
            path = None if checkpoint is None else _path_of(Path(checkpoint), first // group, runs > group)
            started = begin(keys[chosen], {name: values[chosen] for name, values in each.items()})
            trainer = _Group(recipe, programs, *started, settings)
            groups.append(trainer.go(schedule, inspectors, path, checkpoint_seconds, on_divergence, advance))
    curves = dataset(groups, lists, seeds, schedule, settings, watch)
    training = Training(curves, together(groups, recipe.own_data), parameters(groups), seeds, recipe.own_data)
    if on_divergence == "raise" and (curves.diverged_at >= 0).any():
        first = int(curves.diverged_at.where(curves.diverged_at >= 0).min())
        raise DivergedError(which(curves), step=first, time=float(first), partial=training)
    return training


def _pieces(pieces: int, batch: int | None) -> int:
    check_count("pieces", pieces)
    if pieces > 1 and (batch is None or batch % pieces):
        raise ValueError(f"pieces must divide the batch into equal parts, but batch is {batch} and pieces is {pieces}")
    return pieces


def _variants(variants: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    lists = {name: np.asarray(values) for name, values in (variants or {}).items()}
    for name, values in lists.items():
        if values.ndim != 1 or not values.size:
            raise ValueError(f"variants[{name!r}] must be a list of numbers, not of shape {values.shape}")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"variants[{name!r}] must hold numbers, which can be traced, not {values.dtype}")
    lengths = {name: values.size for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"variants must be equally long lists, one entry a variant, not of lengths {lengths}")
    reserved = {"variant", "seed", "time"} & set(lists)
    if reserved:
        raise ValueError(f"variants may not be called {sorted(reserved)[0]!r}: curves have a dimension of that name")
    return lists


def _path_of(path: Path, group: int, several: bool) -> Path:
    path = path if path.suffix == ".npz" else path.with_name(path.name + ".npz")
    return path.with_name(f"{path.stem}.{group}.npz") if several else path


def _compiled_program(lowered: Any, resumable: bool) -> Any:
    """Compiled; for a training that may be resumed with the same kernels each time, where the compiler has them.

    A GPU's compiler otherwise takes those that are fastest at the moment.
    """
    if resumable:
        try:
            return lowered.compile({"xla_gpu_deterministic_ops": True})
        except Exception as error:
            if memory.is_full(error):
                raise
            warnings.warn(f"on this device resumed trainings may differ in the last bits: {error}", stacklevel=2)
    return lowered.compile()


class _Compiled(NamedTuple):
    """The programs of a group of runs, and the text of the first, by which checkpoints know it.

    ``single`` says that it goes one step at a time.
    """

    advance: Any
    measure: Any
    text: str
    single: bool


class _Programs:
    """What is compiled for groups of runs, once for every size of group."""

    def __init__(self, recipe: Recipe, measured: bool, limit: float | None, resumable: bool) -> None:
        self.recipe, self.measured, self.resumable = recipe, measured, resumable
        self.limit = device_memory(jax.devices()[0]) if limit is None else limit
        self._compiled: dict[int, _Compiled] = {}

    def of(self, state: State, runs: Runs) -> _Compiled:
        """Both programs; what surely does not fit is said before anything is trained."""
        count = len(runs.keys)
        if count not in self._compiled:
            try:
                self._compiled[count] = self._compile(state, runs)
            except Exception as error:
                if memory.is_full(error) and not isinstance(error, MemoryError):
                    raise self.too_large(state, runs) from error
                raise
        return self._compiled[count]

    def _compile(self, state: State, runs: Runs) -> _Compiled:
        lowered = self._lowered(self.recipe, state, runs)
        single = False
        if "stablehlo.convolution" in lowered.as_text():
            # On a CPU the compiler's convolutions are several times slower inside a loop than outside of one. On an
            # accelerator they take long to compile, and steps long enough not to need blocks.
            single = jax.default_backend() == "cpu"
            plain = self.recipe if self.recipe.loops == "blocks" else self.recipe._replace(loops="one by one")
            lowered = self._lowered(plain, state, runs, single)
        advance = _compiled_program(lowered, self.resumable)
        need = memory.needed(advance)
        if self.limit is not None and need is not None and need > self.limit:
            raise self.too_large(state, runs)
        measure = None
        if self.measured:
            step = jnp.asarray(0, jnp.int32)
            measure = jax.jit(measurement(self.recipe, runs)).lower(state, eqx.filter(runs, eqx.is_array), step)
            measure = _compiled_program(measure, self.resumable)
        return _Compiled(advance, measure, lowered.as_text() if self.resumable else "", single)

    @staticmethod
    def _lowered(recipe: Recipe, state: State, runs: Runs, single: bool = False) -> Any:
        step = jnp.asarray(0, jnp.int32)
        return jax.jit(stretch(recipe, runs, single)).lower(state, eqx.filter(runs, eqx.is_array), step, step)

    def too_large(self, state: State, runs: Runs) -> MemoryError:
        def cost(batch: int) -> float | None:
            smaller = self.recipe if self.recipe.batch is None else self.recipe._replace(batch=batch)
            return memory.needed(self._lowered(smaller, state, runs).compile())

        batch = self.recipe.batch
        if batch is None:
            batch = 1 if not isinstance(runs.data, Fixed) else runs.data.inputs.shape[self.recipe.own_data]
        return memory.too_large(batch, len(runs.keys), self.limit, cost)


class _Group:
    """Runs that are trained side by side: their arrays, and the loop over stretches."""

    def __init__(self, recipe: Recipe, programs: _Programs, state: State, runs: Runs, settings: dict[str, Any]) -> None:
        self.recipe, self.programs, self.state, self.runs = recipe, programs, state, runs
        self.arrays = eqx.filter(runs, eqx.is_array)
        self.count = len(runs.keys)
        self.initial = state.changing
        self._check()
        self.program = programs.of(state, runs)
        self.mark = ""
        if programs.resumable:
            # What must be equal for a checkpoint to be continued: a changed optimiser or network shows in its program.
            platform = f"{jax.default_backend()} {jax.devices()[0].device_kind} {jax.__version__}"
            self.mark = checkpoints.fingerprint(settings, platform + self.program.text, state, self.arrays)

    def _check(self) -> None:
        data, batch = self.runs.data, self.recipe.batch
        if not isinstance(data, Fixed):
            if batch is None:
                raise ValueError("new points every step need a batch, how many of them: give batch")
        elif data.count is None:
            size = data.inputs.shape[1 if self.recipe.own_data else 0]
            if batch is not None and batch > size:
                raise ValueError(
                    f"batch must be at most the training set's {size} points, not {batch}: or leave it out"
                )
        if not jax.tree.leaves(self.state.parameters):
            raise ValueError("the network has nothing to train: its arrays of real numbers are all networks.Constant")

    def go(
        self,
        schedule: Schedule,
        inspectors: tuple[Inspect, ...],
        path: Path | None,
        every: float,
        on_divergence: str,
        advance: Callable[[float], None],
    ) -> Piece:
        found: dict[str, np.ndarray] = {}
        state, done = self.state, -1
        if path is not None:
            before = checkpoints.read(path, self.mark, state)
            if before is not None:
                done, state, found = before
                advance(self.count * done)
        written = time.monotonic()
        try:
            for stop in schedule.stops:
                if stop <= done:
                    continue
                reached = state
                if stop > max(done, 0):
                    reached = self._stretch(state, max(done, 0), stop)
                    advance(self.count * (stop - max(done, 0)))
                found |= self._look(reached, stop, schedule, inspectors)
                # Together, and only now: an interruption above leaves the stop before, whole.
                state, done = reached, stop
                if path is not None and (stop == schedule.steps or time.monotonic() - written > every):
                    checkpoints.write(path, self.mark, done, state, found)
                    written = time.monotonic()
                if on_divergence == "raise" and (np.asarray(state.diverged) >= 0).any():
                    break
        except KeyboardInterrupt:
            if path is not None and done >= 0:
                checkpoints.write(path, self.mark, done, state, found)
            raise
        return Piece(state, self.runs, found, done)

    def _stretch(self, state: State, begin: int, end: int) -> State:
        try:
            for first in range(begin, end) if self.program.single else (begin,):
                state = self.program.advance(
                    state, self.arrays, jnp.asarray(first, jnp.int32), jnp.asarray(end, jnp.int32)
                )
            # Dispatch is asynchronous; without waiting the bar would run ahead of the work.
            return jax.block_until_ready(state)
        except Exception as error:
            if memory.is_full(error):
                raise self.programs.too_large(state, self.runs) from error
            raise

    def _look(
        self, state: State, step: int, schedule: Schedule, inspectors: tuple[Inspect, ...]
    ) -> dict[str, np.ndarray]:
        """What is to be measured, inspected and kept at this step, under names that end in the step."""
        found: dict[str, np.ndarray] = {}
        if step in schedule.at:
            measured = self.program.measure(state, self.arrays, jnp.asarray(step, jnp.int32))
            found |= {f"curve/{name}/{step}": np.asarray(value) for name, value in measured.items()}
        if step in schedule.inspect_at and inspectors:
            rows = [self._inspected(state, run, inspectors) for run in range(self.count)]
            for name in rows[0]:
                found[f"inspected/{name}/{step}"] = np.asarray([row[name] for row in rows], float)
        if step in schedule.snapshots_at:
            for index, leaf in enumerate(jax.tree.leaves(state.changing)):
                found[f"kept/{index}/{step}"] = np.asarray(leaf)
        return found

    def _inspected(self, state: State, run: int, inspectors: tuple[Inspect, ...]) -> dict[str, Any]:
        one = self.runs.alone(run, self.recipe.own_data)
        network, initial = (eqx.combine(pick(part, run), one.rest) for part in (state.changing, self.initial))
        numbers: dict[str, Any] = {}
        for inspector in inspectors:
            numbers |= inspector(network, one.data, initial)
        return numbers
