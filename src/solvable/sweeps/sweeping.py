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
import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.checks import check_count
from solvable.dataset import Stopwatch
from solvable.numerics.cost import DAY, check_cost
from solvable.precision import in_float64
from solvable.sweeps import execution
from solvable.sweeps.cells import Cells, find_cells
from solvable.sweeps.design import Design, as_design
from solvable.sweeps.memory import MemoryStore
from solvable.sweeps.planning import Engine, Plan, check_engine, choose_engine, choose_tile, first_result, make_plan
from solvable.sweeps.reading import Reader
from solvable.sweeps.results import Naming, Schema, with_texts
from solvable.sweeps.schema import Axis, ChangedSettingsError, tile_shape
from solvable.sweeps.store import Store, open_store
from solvable.sweeps.vectorised import VectorisedCells
from solvable.training import Training

StorePath = str | os.PathLike[str]
_SHOWN_FAILURES = 3
# By how much vectorised cells are faster than one cell by itself, at most.
_VECTORISED = 1000


class SweepWarning(UserWarning):
    """Some cells of a sweep failed; the others are there."""


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
    """Compute a quantity of a model over many parameters; one dimension of the result for each that is swept.

    ``model`` is a model, whose other parameters stay; a class or name of one, if the rest has defaults; or a function
    that makes one, such as ``ScalarNetwork.small``, whose arguments are then what is swept. ``over`` is
    ``{"aspect_ratio": [...], "weight_decay": [...]}`` or any design (:func:`as_design`, :func:`zipped`,
    :func:`sobol`, :func:`latin_hypercube`); it may also name options of the call, such as ``accuracy``, and of the
    ``training``, such as ``learning_rate`` or ``weight_decay``.

    ``quantity`` is the name of a method or property of the model, called with ``options``, or a function of the model
    that returns a number, text, array, mapping, DataArray or Dataset. Simulations draw from a key made of the cell's
    own parameters (:func:`cell_key`), so that a cell is the same in whatever sweep and wherever it is computed.

    ``store`` is a folder that ends in ``.zarr``: what is computed is kept there as it comes, running again computes
    what is missing (and, with ``retry_failed``, what failed), new values extend it, and other settings are refused
    unless ``overwrite``. ``resume=False`` refuses a store that exists. Without it the result is in memory only.

    ``engine``: ``vmap`` is vectorised by JAX, ``processes`` uses this machine's processors, ``dask`` a cluster
    (``client``, or one started here), ``serial`` this process; ``auto`` chooses (see :func:`plan`).

    Numeric axes come back in ascending order. ``status`` is 1 where a cell is done and 2 where it failed: its floats
    are NaN, ``error`` has the reason, and a :class:`SweepWarning` says how many.
    """
    watch = Stopwatch()
    asked = _Asked(model, over, quantity, options, training, store, engine, client, workers, tile, overwrite, resume)
    job = _prepare(asked)
    _check_cost(job.plan, store)
    compute: Any = job.cells
    if job.plan.engine == "vmap":
        compute = VectorisedCells(job.cells, tuple(tuple(axis.values) for axis in job.design.axes), job.plan.tile)
    contents: Any = (job.axes, job.schema.outputs, job.schema.coordinates, job.cells.settings(), job.plan.tile)
    if store is None:
        target: Any = MemoryStore(*contents)
    else:
        target = Store.create_or_open(store, *contents, overwrite=overwrite, verify=verify, steal_lock=steal_lock)
    with target:
        _run(target, compute, job, client, progress, retry_failed)
        dataset = with_texts(target.dataset())
        _report_failures(target)
    dataset.attrs = _attributes(job, watch)
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
    """What :func:`sweep` would do with the same arguments: cells, engine, tiles, bytes and, from one cell, the time."""
    asked = _Asked(model, over, quantity, options, training, store, engine, client, workers, tile, overwrite)
    return _prepare(asked, measure=True).plan


def load(store: StorePath) -> xr.Dataset:
    """The dataset of a store as it is now; it may be growing meanwhile."""
    dataset = with_texts(open_store(store))
    settings = json.loads(dataset.attrs["settings"])
    dataset.attrs = {
        "model": settings["model"],
        "parameters": json.dumps(settings["parameters"]),
        "method": "sweep",
        "quantity": settings["quantity"],
        "options": json.dumps(settings["options"]),
        **_training_attribute(settings),
        "version": settings["version"],
    }
    return dataset


def _training_attribute(settings: Mapping[str, Any]) -> dict[str, str]:
    return {"training": json.dumps(settings["training"])} if "training" in settings else {}


@dataclass(frozen=True)
class _Asked:
    model: Any
    over: Any
    quantity: Any
    options: Mapping[str, Any] | None
    training: Training | None
    store: StorePath | None
    engine: str
    client: Any
    workers: int | None
    tile: int | tuple[int, ...] | None
    overwrite: bool
    resume: bool = True


@dataclass(frozen=True)
class _Job:
    cells: Cells
    design: Design
    schema: Schema
    axes: list[Axis]
    plan: Plan


def _prepare(asked: _Asked, measure: bool = False) -> _Job:
    """Everything that can go wrong before the first cell goes wrong here."""
    check_engine(asked.engine, asked.client is not None)
    cells, design = find_cells(asked.model, as_design(asked.over), asked.quantity, asked.options, asked.training)
    if asked.workers is not None:
        check_count("workers", asked.workers)
    if asked.tile is not None:
        tile_shape(asked.tile, design.shape)
    stored = _stored(asked)
    if stored is not None:
        _check_axes(stored, design)
    axes = [Axis(axis.dim, axis.coordinates(), _about(cells, axis.values)) for axis in design.axes]
    pending, schema, seconds = design.size, None, None
    if stored is not None:
        schema, pending = _schema_of(stored, cells, design), _still_pending(stored, axes)
    if schema is None or measure or (pending and asked.engine == "auto"):
        found, seconds = first_result(cells, design)
        schema = schema or found
    cells = dataclasses.replace(cells, schema=schema)
    engine = choose_engine(asked.engine, cells, design, pending, seconds, asked.client is not None)
    workers = (asked.workers or execution.core_count()) if engine[0] in ("processes", "dask") else 1
    if stored is not None:
        tile = stored.layout.tile
    elif asked.tile is not None:
        tile = tile_shape(asked.tile, design.shape)
    else:
        tile = choose_tile(engine[0], design, schema, seconds, workers)
    return _Job(cells, design, schema, axes, make_plan(cells, design, schema, pending, engine, tile, seconds, workers))


def _check_axes(stored: Reader, design: Design) -> None:
    """A store keeps its axes; only their values may grow."""
    held = [axis.dim for axis in stored.axes]
    if held != design.dims:
        raise ChangedSettingsError(
            f"{stored.path} is over {' x '.join(held)}, but this sweep is over {' x '.join(design.dims)}: sweep over "
            "the stored axes in their order, choose another store, or start again (overwrite)"
        )


def _check_cost(job: Plan, store: StorePath | None) -> None:
    """Refuse what would not fit into memory, into which the result is read in the end, or would never end."""
    what = f"a sweep over {' x '.join(f'{size} {dim}' for dim, size in job.sizes.items())} ({job.cells:.4g} cells)"
    # One byte a cell says whether it is done.
    memory = job.bytes + job.cells
    remedy = "ask for fewer cells" if store is not None else "ask for fewer cells, or keep them as they come (store=)"
    longest = DAY if store is None else 365 * DAY
    if job.engine == "vmap":
        # Vectorised cells take a small part of the time of a cell by itself, which is what was measured.
        longest *= _VECTORISED
    check_cost(what, memory=memory, seconds=job.seconds or 0.0, remedy=remedy, longest=longest)


def _stored(asked: _Asked) -> Reader | None:
    """The store that is there already and is to be gone on with."""
    if asked.store is None:
        return None
    path = Path(asked.store)
    if path.suffix.lower() != ".zarr":
        raise ValueError(f"store {path.name!r} must end in .zarr")
    if asked.overwrite or not path.exists():
        return None
    if not asked.resume:
        raise ValueError(f"{path} exists: go on with it (resume=True), start again (overwrite=True) or name another")
    return Reader(path)


def _schema_of(stored: Reader, cells: Cells, design: Design) -> Schema:
    names = stored.layout.attributes["call_coordinates"]
    coordinates = {
        name: (np.asarray(stored.arrays[name][:]), stored.layout.arrays[name].get("attributes", {})) for name in names
    }
    return Schema(tuple(stored.outputs), coordinates, Naming.of(cells.quantity.name, design))


def _still_pending(stored: Reader, axes: list[Axis]) -> int:
    """Cells not done, of the store with the new values of the axes."""
    try:
        sizes = [old.extended_by(new).size for old, new in zip(stored.axes, axes, strict=True)]
    except (KeyError, ValueError):
        return math.prod(axis.size for axis in axes)
    return math.prod(sizes) - stored.counts()["done"]


def _about(cells: Cells, names: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What each swept parameter is, for people and plots."""
    known = {field.name: field.metadata for field in dataclasses.fields(cells.kind)}
    if cells.training is not None:
        known = {field.name: field.metadata for field in dataclasses.fields(cells.training)} | known
    about = {}
    for name in names:
        ours = cells.make is cells.kind or name in cells.swept_training
        meaning: Any = known.get(name, {}) if ours else {}
        about[name] = {"long_name": meaning.get("help", name.replace("_", " ")), "units": "1"}
        if meaning.get("symbol"):
            about[name]["symbol"] = meaning["symbol"]
    return about


def _run(target: Any, compute: Any, job: _Job, client: Any, progress: bool, retry_failed: bool) -> None:
    engine: Any = "serial" if job.plan.engine == "vmap" else job.plan.engine
    shown = None if progress else False
    label = f"{job.plan.quantity} of {job.plan.model}"
    try:
        execution.run(
            target,
            compute,
            engine=engine,
            workers=job.plan.workers,
            progress=shown,
            client=client,
            retry_failed=retry_failed,
            label=label,
        )
    except execution.SweepInterrupted as stop:
        if isinstance(target, MemoryStore):
            raise KeyboardInterrupt("interrupted: nothing is kept without store=") from stop
        raise


def _report_failures(target: Any) -> None:
    counts = target.counts()
    if not counts["failed"]:
        return
    told = []
    for (cell, text), _ in zip(target.failures(), range(_SHOWN_FAILURES), strict=False):
        told.append(", ".join(f"{name} = {value!r}" for name, value in cell.items()) + f": {text}")
    more = counts["failed"] - len(told)
    rest = f"; and {more} more" if more else ""
    warnings.warn(
        f"{counts['failed']} of {counts['total']} cells failed: {'; '.join(told)}{rest}", SweepWarning, stacklevel=3
    )


def _attributes(job: _Job, watch: Stopwatch) -> dict[str, Any]:
    settings = job.cells.settings()
    return {
        "model": job.plan.model,
        "parameters": json.dumps(settings["parameters"]),
        "method": "sweep",
        "quantity": job.plan.quantity,
        "options": json.dumps(settings["options"]),
        **_training_attribute(settings),
        "engine": job.plan.engine,
        "version": __version__,
        "device": jax.devices()[0].device_kind,
        "seconds": watch.seconds(),
    }
