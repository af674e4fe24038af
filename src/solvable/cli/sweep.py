"""``solvable sweep``: a quantity over a grid of parameters, from the command line."""

import dataclasses
import difflib
import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import typer
import xarray as xr

from solvable.checks import check_count
from solvable.cli import show
from solvable.cli.cost import check_grid_cost
from solvable.cli.flags import (
    Values,
    build_training,
    check_size,
    dashed,
    field_flags,
    flag,
    given_fields,
    make_command,
    missing_field,
    pick,
    training_flags,
)
from solvable.cli.interrupts import INTERRUPTED, announce
from solvable.cli.outputs import check_outputs, checked, deliver
from solvable.cli.streams import print_stderr, printing
from solvable.files import DATA_EXTENSIONS
from solvable.files.atomic import check_folder
from solvable.model import Model
from solvable.plotting import FIGURE_EXTENSIONS, plot_plane
from solvable.ranges import parse_box, parse_range, parse_scalar, parse_values
from solvable.sweeps import SweepWarning, latin_hypercube, plan, product, sobol, status, zipped
from solvable.sweeps import sweep as run_sweep
from solvable.sweeps.cells import PartialModel
from solvable.sweeps.design import Design
from solvable.sweeps.execution import SweepInterrupted
from solvable.sweeps.planning import ENGINES
from solvable.sweeps.quantities import option_names
from solvable.sweeps.schema import cell_text
from solvable.training import Training
from solvable.training_choice import times_for, usual_times

_SWEEP = [
    flag("over", list[str], None, "A parameter and its values: aspect_ratio=0.05:3:200, kind=a,b. Repeat for a grid."),
    flag("zip", list[str], None, "The same, but all parameters given like this vary together along one dimension."),
    flag("sobol", int | None, None, "Number of cells of a Sobol sequence, with --over a=low:high or b=low:high:log."),
    flag("latin_hypercube", int | None, None, "Number of cells of a Latin hypercube, with ranges as for --sobol."),
    flag("design_key", int, 0, "Random seed of the Sobol sequence or Latin hypercube."),
    flag("quantity", str, "predict", "What to compute: a method or property of the model, such as grokking-time."),
    flag("option", list[str], None, "An option of the quantity: accuracy=0.9, times=1:1e5:60log. May be repeated."),
    flag("store", str | None, None, "Store the cells in this folder (.zarr) as they come; run again to continue."),
    flag("engine", str, "auto", f"How to compute: {', '.join(ENGINES)}."),
    flag("scheduler", str | None, None, "Address of a running Dask scheduler, such as tcp://host:8786."),
    flag("workers", int | None, None, "Number of processes (default: one per core)."),
    flag("tile", int | None, None, "Number of cells computed and stored at once (default: chosen by the sweep)."),
    flag("overwrite", bool, False, "Start the store again, even if it was made with other settings."),
    flag("skip_failed", bool, False, "Do not compute cells again that failed before."),
    flag("verify", bool, False, "Check every stored cell first, and compute damaged ones again."),
    flag("steal_lock", bool, False, "Take over a store from another machine whose last heartbeat is old."),
    flag("dry_run", bool, False, "Print what would be computed and what it would cost, and stop."),
]
_OUTPUT = [
    flag("out", str | None, None, f"Also write the dataset to this file ({', '.join(DATA_EXTENSIONS)})."),
    flag("plot", str | None, None, f"Plot the plane to this file ({', '.join(FIGURE_EXTENSIONS)})."),
    flag("variable", str | None, None, "What to plot (default: every quantity that is a plane)."),
    flag("json", bool, False, "Print JSON instead of a table."),
]


def command_for(verb: str, model: type[Model]) -> Callable[..., None]:
    """The function of ``solvable sweep <model>``, with the flags of the model."""
    fields, trainings = field_flags(model, required=False), training_flags(model)

    def body(values: Values) -> None:
        check_outputs(values)
        _check_store(values)
        design = _design(values)
        source = PartialModel(model, _fixed(model, values, fields, design))
        quantity = values["quantity"].replace("-", "_")
        training = _training(model, values, trainings, quantity, design)
        options = _options(model, values, quantity, training)
        call: Values = {name: values[name] for name in ("store", "engine", "workers", "tile", "overwrite")}
        with _client(values["scheduler"]) as client:
            if values["dry_run"]:
                planned = plan(source, design, quantity, options, training, client=client, **call)
                with printing():
                    print(json.dumps(dataclasses.asdict(planned)) if values["json"] else planned)
                return
            call |= {"retry_failed": not values["skip_failed"]}
            call |= {name: values[name] for name in ("verify", "steal_lock")}
            dataset, failed = _report_failures(
                lambda: run_sweep(source, design, quantity, options, training, client=client, **call)
            )
        deliver(dataset, values, lambda: plot_plane(dataset, values["variable"]), _summary)
        if failed:
            raise typer.Exit(1)

    return make_command(body, [*_SWEEP, *fields, *trainings, *_OUTPUT])


def show_status(path: str, as_json: bool) -> None:
    """Print how much of a stored sweep is computed."""
    found = status(path)
    if as_json:
        print(json.dumps(found, default=str))
        return
    settings = found["settings"]
    rows: list[list[Any]] = [[name, found[name]] for name in ("total", "done", "failed", "pending")]
    rows.append(["over", " x ".join(f"{size} {dim}" for dim, size in found["sizes"].items())])
    rows.append(["tiles", f"{found['tiles']} of up to {' x '.join(map(str, found['tile']))} cells"])
    rows.append(["outputs", ", ".join(found["outputs"])])
    holder = found["lock"]
    if holder and holder.get("running"):
        rows.append(["running", ", ".join(f"{key} {value}" for key, value in holder.items() if key != "running")])
    # Settings of stores that were not written by the function sweep need not have these entries.
    quantity, model, version = (settings.get(name, "unknown") for name in ("quantity", "model", "version"))
    show.table(f"{quantity} of {model}, version {version}", ["", ""], rows, text_columns=2)
    for cell, text in found["failures"]:
        print(f"failed: {cell_text(cell)}: {text}")


def _design(values: Values) -> Design:
    grid: Values = {}
    box: Values = {}
    known = {"sobol": sobol, "latin_hypercube": latin_hypercube}
    samplers = {name: draw for name, draw in known.items() if values[name] is not None}
    for text in values["over"] or []:
        name, words = _named(text, "--over")
        bounds = parse_box(words, "--over") if samplers else None
        (grid if bounds is None else box)[name] = parse_values(words, "--over") if bounds is None else bounds
    pairs = [_named(text, "--zip") for text in values["zip"] or []]
    lists = {name: parse_values(words, "--zip") for name, words in pairs}
    sizes = {name: len(found) for name, found in grid.items()}
    sizes["zipped"] = max((len(found) for found in lists.values()), default=1)
    check_grid_cost({**sizes, "drawn": max((values[name] for name in samplers), default=1)})
    designs: list[Any] = [grid] if grid else []
    if lists:
        designs.append(zipped(**lists))
    if len(samplers) > 1:
        raise ValueError("choose --sobol or --latin-hypercube, not both")
    for name, draw in samplers.items():
        if not box:
            raise ValueError(
                "a random design needs ranges: --over aspect_ratio=0.05:3 --over weight_decay=1e-6:1e-1:log"
            )
        designs.append(draw(box, check_count(dashed(name), values[name]), values["design_key"]))
    if not designs:
        raise ValueError("Missing option '--over', such as --over weight_decay=1e-6:1e-1:200log")
    return product(*designs)


def _named(text: str, option: str) -> tuple[str, str]:
    name, equals, words = text.partition("=")
    if not equals or not words or not name.strip():
        raise ValueError(f"{option} {text!r} must look like weight_decay=1e-6:1e-1:100log")
    return name.strip().replace("-", "_"), words


def _fixed(model: type[Model], values: Values, fields: list[inspect.Parameter], design: Design) -> Values:
    """The parameters given by the flags of the model; those left out have their defaults."""
    fixed = given_fields(model, values, fields, swept=design.names)
    if (missing := missing_field(model, (*fixed, *design.names))) is not None:
        # A similar name among the axes is more likely a typing error than an option of the call.
        near = difflib.get_close_matches(missing, design.names, n=1)
        hint = f" ({near[0]!r} is not one of its parameters)" if near else ""
        raise ValueError(f"Missing option '{dashed(missing)}', or sweep it with --over{hint}.")
    return fixed


def _training(
    model: type[Model], values: Values, flags: list[inspect.Parameter], quantity: str, design: Design
) -> Training | None:
    """The training from its flags, if the quantity takes one. Options that are swept have their first value here."""
    if "training" in option_names(model, quantity):
        first = {flag.name: next(design.cells())[flag.name] for flag in flags if flag.name in design.names}
        return build_training(model, {**values, **first}, flags)
    for name, value in pick(values, flags).items():
        if value is not None:
            raise ValueError(f"{dashed(name)}: {values['quantity']} of {model.name} takes no training")
    return None


def _options(model: type[Model], values: Values, quantity: str, training: Training | None) -> Values:
    options = {}
    for text in values["option"] or []:
        name, words = _named(text, "--option")
        is_list = ":" in words or "," in words or name == "times"
        options[name] = parse_range(words, "--option") if is_list else parse_scalar(words)
        check_size(f"--option {name}", options[name])
    if training is not None and "times" in option_names(model, quantity):
        options.setdefault("times", parse_range(usual_times(model, training)))
        options["times"] = times_for(np.asarray(options["times"], float), training)
    return options


@contextmanager
def _client(address: str | None) -> Iterator[Any]:
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("--scheduler needs Dask: pip install solvable[sweep]") from error
    try:
        client = Client(address, timeout="10s")
    except OSError as error:
        raise ValueError(f"no Dask scheduler answers at {address}: start one with 'dask scheduler'") from error
    with client:
        yield client


def _report_failures(run: Callable[[], xr.Dataset]) -> tuple[xr.Dataset, bool]:
    """The dataset and whether cells failed, which is reported on stderr. After Ctrl-C, print how to continue."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SweepWarning)
        try:
            dataset = run()
        except SweepInterrupted as stop:
            announce(str(stop))
            raise typer.Exit(INTERRUPTED) from stop
    for text in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        print_stderr(f"warning: {text}")
    return dataset, any(issubclass(warning.category, SweepWarning) for warning in caught)


def _check_store(values: Values) -> None:
    """Raise an error if the store cannot be written, or is also given as --out. The store checks the rest."""
    store, out = values["store"], values["out"]
    if store is not None and not values["dry_run"]:
        # A store is a folder and may exist already: only the folder that contains it is checked here.
        checked("store", store, lambda path: check_folder(Path(path)))
    if store is not None and out is not None and Path(store).absolute() == Path(out).absolute():
        raise ValueError(f"--store and --out are both {store}: the store is a dataset already, give --out another name")


def _summary(dataset: xr.Dataset) -> None:
    """Print a row for each quantity: the number of cells that have it, and its extremes."""
    rows = []
    for name, values in dataset.data_vars.items():
        if name in ("status", "error"):
            continue
        array = values.values
        if array.dtype.kind == "f":
            finite = array[np.isfinite(array)]
            extremes = [finite.min(), np.median(finite), finite.max()] if finite.size else [np.nan] * 3
            rows.append([str(name), finite.size, *map(float, extremes)])
        elif array.dtype.kind == "b":
            rows.append([str(name), int(array.sum()), "", "", ""])
        else:
            rows.append([str(name), array.size, *[*map(str, np.unique(array)), "", ""][:3]])
    grid = " x ".join(f"{size} {dim}" for dim, size in dataset["status"].sizes.items())
    print(f"{dataset.attrs['quantity']} of {dataset.attrs['model']} over {grid}")
    show.table("", ["", "finite or true", "minimum", "median", "maximum"], rows)
