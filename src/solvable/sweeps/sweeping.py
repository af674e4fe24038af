"""``sweep``: a quantity of a model over many parameters, as one dataset, stored or in memory."""

import dataclasses
import json
import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import xarray as xr

from solvable.checks import check_count
from solvable.dataset import Stopwatch
from solvable.numerics.cost import DAY, check_cost
from solvable.precision import in_float64
from solvable.sweeps import execution
from solvable.sweeps.cells import CellFunction, make_cells
from solvable.sweeps.design import Design, as_design
from solvable.sweeps.grid import MemoryStore
from solvable.sweeps.planning import Engine, Plan, check_engine, choose_engine, choose_tile, measure
from solvable.sweeps.quantities import Naming, Schema, decode_strings
from solvable.sweeps.schema import Axis, ChangedSettingsError, StoreVersionError, cell_text, tile_shape
from solvable.sweeps.store import Reader, Store, open_store
from solvable.sweeps.vectorised import CommonProgram, VectorisedFunction, has_common_program
from solvable.training import Training

StorePath = str | os.PathLike[str]
_SHOWN_FAILURES = 3
# The largest factor by which vectorised cells are faster than single ones.
_VECTORISED_SPEEDUP = 1000


class SweepWarning(UserWarning):
    """Some cells of a sweep failed; the others have results."""


@in_float64
def sweep(
    model: Any,
    over: Any,
    quantity: Any = "predict",
    options: Mapping[str, Any] | None = None,
    training: Training | None = None,
    *,
    store: StorePath | None = None,
    engine: Engine = "auto",
    client: Any = None,
    workers: int | None = None,
    resume: bool = True,
    overwrite: bool = False,
    retry_failed: bool = True,
    progress: bool = True,
    tile: int | tuple[int, ...] | None = None,
    verify: bool = False,
    steal_lock: bool = False,
) -> xr.Dataset:
    """Compute a quantity of a model over many parameters. The result has one dimension for each swept parameter.

    Numeric axes come back in ascending order. ``status`` is 1 where a cell is done and 2 where it failed: there floats
    are NaN, ``error`` has the reason, and a :class:`SweepWarning` says how many cells failed.

    Parameters
    ----------
    model
        A model, whose other parameters stay fixed; a class of models or its name, if the other parameters have
        defaults; or a function that makes a model, such as ``ScalarNetwork.small``, whose arguments are then swept.
    over
        Parameters and their values, ``{"aspect_ratio": [...], "weight_decay": [...]}``, or any design (:func:`zipped`,
        :func:`sobol`, :func:`latin_hypercube`, :func:`product`). Options of the call, such as ``accuracy``, and of the
        training, such as ``learning_rate``, can be swept like fields of the model.
    quantity
        Name of a method or property of the model, or a function of the model that returns a number, string, array,
        mapping, DataArray or Dataset. The random seed of a simulation is a hash of the cell's parameters
        (:func:`cell_key`), so that a cell has the same result in any sweep and on any machine.
    options
        Options of the call.
    training
        How the models are trained; by default the model's own training.
    store
        A folder that ends in ``.zarr``. Results are stored as they are computed. Another run computes what is missing,
        new values extend the store, and other settings are refused. By default the result is kept in memory only.
    engine
        ``"vmap"`` (vectorised by JAX), ``"processes"`` (of this machine), ``"dask"`` (a cluster), ``"serial"`` (this
        process), or ``"auto"``, which chooses (see :func:`plan`).
    client
        Dask client, or address of a scheduler; by default a local cluster is started.
    workers
        Number of processes; by default one per core.
    resume
        Whether an existing store is continued; otherwise it is an error.
    overwrite
        Whether an existing store is deleted first.
    retry_failed
        Whether cells that failed before are computed again.
    progress
        Whether to show a progress bar.
    tile
        Number of cells, or shape of the block of cells, that is computed and stored at once; chosen by default.
    verify
        Whether every stored cell is checked first, and damaged ones are computed again.
    steal_lock
        Whether to take over a store from a coordinator on another machine whose last heartbeat is old.
    """
    watch = Stopwatch()
    job = _prepare(model, over, quantity, options, training, store, engine, client, workers, tile, overwrite, resume)
    _check_cost(job.plan, store)
    compute: Any = job.function
    if job.plan.engine == "vmap":
        axes = tuple(tuple(axis.values) for axis in job.design.axes)
        common = has_common_program(job.function)
        compute = CommonProgram(job.function) if common else VectorisedFunction(job.function, axes, job.plan.tile)
    settings = job.function.settings()
    contents: Any = (job.axes, job.schema.outputs, job.schema.coordinates, settings, job.plan.tile)
    if store is None:
        target: Any = MemoryStore(*contents)
    else:
        target = Store.create_or_open(store, *contents, overwrite=overwrite, verify=verify, steal_lock=steal_lock)
    with target:
        _run(target, compute, job.plan, client, progress, retry_failed)
        dataset = decode_strings(target.dataset())
        _warn_of_failures(target)
    dataset.attrs = {
        **_provenance(settings),
        "engine": job.plan.engine,
        "device": jax.devices()[0].device_kind,
        "seconds": watch.seconds(),
    }
    return dataset


@in_float64
def plan(
    model: Any,
    over: Any,
    quantity: Any = "predict",
    options: Mapping[str, Any] | None = None,
    training: Training | None = None,
    *,
    store: StorePath | None = None,
    engine: Engine = "auto",
    client: Any = None,
    workers: int | None = None,
    tile: int | tuple[int, ...] | None = None,
    overwrite: bool = False,
) -> Plan:
    """What :func:`sweep` would do with the same arguments: cells, engine, tiles, bytes and time.

    Parameters
    ----------
    model, over, quantity, options, training, store, engine, client, workers, tile, overwrite
        As for :func:`sweep`. One cell is computed to measure the time.
    """
    arguments = (model, over, quantity, options, training, store, engine, client, workers, tile, overwrite)
    return _prepare(*arguments, measured=True).plan


def load(store: StorePath) -> xr.Dataset:
    """The dataset of a store as it is now; it may be growing meanwhile.

    Parameters
    ----------
    store
        The folder of the store.
    """
    dataset = decode_strings(open_store(store))
    dataset.attrs = _provenance(json.loads(dataset.attrs["settings"]))
    return dataset


def _provenance(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that say what was computed, from the settings of a store, which may be of an older version."""
    texts = {name: settings[name] for name in ("model", "quantity", "version") if name in settings}
    others = {name: json.dumps(settings[name]) for name in ("parameters", "options", "training") if name in settings}
    return {"method": "sweep", **texts, **others}


@dataclass(frozen=True)
class _Job:
    function: CellFunction
    design: Design
    schema: Schema
    axes: list[Axis]
    plan: Plan


def _prepare(
    model: Any,
    over: Any,
    quantity: Any,
    options: Mapping[str, Any] | None,
    training: Training | None,
    store: StorePath | None,
    engine: str,
    client: Any,
    workers: int | None,
    tile: int | tuple[int, ...] | None,
    overwrite: bool,
    resume: bool = True,
    measured: bool = False,
) -> _Job:
    """Everything that can fail before the first cell fails here."""
    check_engine(engine, client is not None)
    function, design = make_cells(model, as_design(over), quantity, options, training)
    if workers is not None:
        check_count("workers", workers)
    if tile is not None:
        tile = tile_shape(tile, design.shape)
    stored = _open_stored(store, overwrite, resume)
    axes = [Axis(axis.dim, axis.coordinates, _describe(function, axis.values)) for axis in design.axes]
    pending, schema, seconds = design.size, None, None
    if stored is not None:
        _check_stored(stored, function, design)
        naming = Naming.of(function.quantity.name, design)
        schema = Schema(tuple(stored.outputs), stored.read_call_coordinates(), naming)
        pending, tile = _count_pending(stored, axes), stored.tile
    if schema is None or measured or (pending and engine == "auto"):
        found, seconds = measure(function, design)
        schema = schema or found
    function = dataclasses.replace(function, schema=schema)
    engine, why = choose_engine(engine, function, design, pending, seconds, client is not None)
    workers = (workers or execution.core_count()) if engine in ("processes", "dask") else 1
    tile = tile or choose_tile(engine, design, schema, seconds, workers)
    planned = Plan(
        model=function.kind.name,
        quantity=function.quantity.name,
        sizes=dict(zip(design.dims, design.shape, strict=True)),
        cells=design.size,
        pending=pending,
        engine=engine,
        why=why,
        workers=workers,
        tile=tile,
        tiles=math.prod(-(-size // length) for size, length in zip(design.shape, tile, strict=True)),
        bytes=design.size * schema.bytes_per_cell,
        seconds_per_cell=seconds,
        seconds=None if seconds is None else seconds * pending / workers,
    )
    return _Job(function, design, schema, axes, planned)


def _open_stored(store: StorePath | None, overwrite: bool, resume: bool) -> Reader | None:
    """The existing store that is to be continued, if there is one."""
    if store is None:
        return None
    path = Path(store)
    if path.suffix.lower() != ".zarr":
        raise ValueError(f"store {path.name!r} must end in .zarr")
    if overwrite or not path.exists():
        return None
    if not resume:
        raise ValueError(
            f"{path} exists: continue it (resume=True), start again (overwrite=True) or choose another name"
        )
    return Reader(path)


def _check_stored(stored: Reader, function: CellFunction, design: Design) -> None:
    """Raise an error if the store is of an older version, or has other axes. Other settings are checked on opening."""
    settings = stored.settings
    fields = {field.name for field in dataclasses.fields(function.kind)}
    removed = [name for name in settings.get("parameters", {}) if name not in fields]
    untrained = function.training is not None and "training" not in settings
    if settings.get("model") == function.kind.name and (removed or untrained):
        what = f"in which {removed[0]} was a field of the model" if removed else "which did not store the training"
        raise StoreVersionError(
            f"{stored.path} was written by an older version of solvable, {what}: solvable.sweeps.load reads it, but "
            "a sweep cannot continue it; choose another store, or start again with overwrite=True"
        )
    dims = [axis.dim for axis in stored.axes]
    if dims != design.dims:
        raise ChangedSettingsError(
            f"{stored.path} has the axes {' x '.join(dims)}, but this sweep has {' x '.join(design.dims)}: sweep over "
            "the stored axes in their order, choose another store, or start again (overwrite)"
        )


def _count_pending(stored: Reader, axes: list[Axis]) -> int:
    """The number of cells that are not done, after the store has been extended by the new values of the axes."""
    try:
        sizes = [old.extended_by(new).size for old, new in zip(stored.axes, axes, strict=True)]
    except (KeyError, ValueError):
        return math.prod(axis.size for axis in axes)
    return math.prod(sizes) - stored.counts()["done"]


def _check_cost(job: Plan, store: StorePath | None) -> None:
    """Refuse a sweep that does not fit into memory, where the result is in the end, or that takes too long."""
    what = f"a sweep over {' x '.join(f'{size} {dim}' for dim, size in job.sizes.items())} ({job.cells:.4g} cells)"
    # One byte per cell for the status.
    memory = job.bytes + job.cells
    remedy = "ask for fewer cells" if store is not None else "ask for fewer cells, or store them as they come (store=)"
    longest = DAY if store is None else 365 * DAY
    if job.engine == "vmap":
        # The estimate is for single cells.
        longest *= _VECTORISED_SPEEDUP
    check_cost(what, memory=memory, seconds=job.seconds or 0.0, remedy=remedy, longest=longest)


def _describe(function: CellFunction, names: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Attributes of the swept parameters: long name, units and symbol."""
    known = {field.name: field.metadata for field in dataclasses.fields(function.kind)}
    if function.training is not None:
        known = {field.name: field.metadata for field in dataclasses.fields(function.training)} | known
    about = {}
    for name in names:
        is_field = function.make is function.kind or name in function.swept_training
        metadata: Any = known.get(name, {}) if is_field else {}
        about[name] = {"long_name": metadata.get("help", name.replace("_", " ")), "units": "1"}
        if metadata.get("symbol"):
            about[name]["symbol"] = metadata["symbol"]
    return about


def _run(target: Any, compute: Any, job: Plan, client: Any, progress: bool, retry_failed: bool) -> None:
    try:
        execution.run(
            target,
            compute,
            engine="serial" if job.engine == "vmap" else job.engine,  # type: ignore[arg-type]
            workers=job.workers,
            progress=None if progress else False,
            client=client,
            retry_failed=retry_failed,
            label=f"{job.quantity} of {job.model}",
        )
    except execution.SweepInterrupted as stop:
        if isinstance(target, MemoryStore):
            raise KeyboardInterrupt("interrupted: nothing is kept without store=") from stop
        raise


def _warn_of_failures(target: Any) -> None:
    counts = target.counts()
    if not counts["failed"]:
        return
    shown = [
        f"{cell_text(cell)}: {text}" for (cell, text), _ in zip(target.failures(), range(_SHOWN_FAILURES), strict=False)
    ]
    more = counts["failed"] - len(shown)
    rest = f"; and {more} more" if more else ""
    warnings.warn(
        f"{counts['failed']} of {counts['total']} cells failed: {'; '.join(shown)}{rest}", SweepWarning, stacklevel=3
    )
