"""``solvable sweep``: a quantity over a grid of parameters, from the command line."""

import dataclasses
import difflib
import inspect
import json
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
import xarray as xr

from solvable.checks import check_count
from solvable.cli import show
from solvable.cli.cost import check_grid_cost
from solvable.cli.flags import as_function, build_training, check_size, field_flags, pick, training_flags
from solvable.cli.interrupts import INTERRUPTED, announce
from solvable.cli.outputs import check_outputs, checked, deliver
from solvable.cli.streams import printing, tell
from solvable.files import DATA_EXTENSIONS
from solvable.files.atomic import check_folder
from solvable.model import Model
from solvable.plotting import FIGURE_EXTENSIONS, plot_plane
from solvable.ranges import parse_box, parse_matrix, parse_range, parse_scalar, parse_values
from solvable.sweeps import SweepWarning, latin_hypercube, plan, product, sobol, status, zipped
from solvable.sweeps import sweep as run_sweep
from solvable.sweeps.cells import Fixed
from solvable.sweeps.design import Design
from solvable.sweeps.execution import SweepInterrupted
from solvable.sweeps.planning import ENGINES
from solvable.sweeps.quantities import option_names
from solvable.training import Training
from solvable.training_choice import times_for, usual_times

Values = dict[str, Any]


def _flag(name: str, annotation: Any, default: Any, text: str) -> inspect.Parameter:
    option = typer.Option("--" + name.replace("_", "-"), help=text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


_SWEEP = [
    _flag("over", list[str], None, "A parameter and its values: aspect_ratio=0.05:3:200, kind=a,b. Repeat for a grid."),
    _flag("zip", list[str], None, "The same, but all that are given go together along one dimension."),
    _flag("sobol", int | None, None, "So many cells of a Sobol sequence, over --over a=low:high or b=low:high:log."),
    _flag("latin_hypercube", int | None, None, "So many cells of a Latin hypercube, over ranges as for --sobol."),
    _flag("design_key", int, 0, "Key of the random design."),
    _flag("quantity", str, "predict", "What to compute: a method or property of the model, such as grokking-time."),
    _flag("option", list[str], None, "An option of the quantity: accuracy=0.9, times=1:1e5:60log. May be repeated."),
    _flag("store", str | None, None, "Keep the cells in this folder (.zarr) as they come; run again to go on."),
    _flag("engine", str, "auto", f"How to compute: {', '.join(ENGINES)}."),
    _flag("scheduler", str | None, None, "Address of a running Dask scheduler, such as tcp://host:8786."),
    _flag("workers", int | None, None, "Number of processes (default: one for each processor)."),
    _flag("tile", int | None, None, "Number of cells computed and stored at once (default: as suits)."),
    _flag("overwrite", bool, False, "Start a store again, also if it was made with other settings."),
    _flag("skip_failed", bool, False, "Leave cells alone that failed before."),
    _flag("verify", bool, False, "Check every stored cell first, and compute damaged ones again."),
    _flag("steal_lock", bool, False, "Take a store over from another machine that has long been silent."),
    _flag("dry_run", bool, False, "Say what would be done and what it would cost, and stop."),
]
_OUTPUT = [
    _flag("out", str | None, None, f"Write the dataset here, too ({', '.join(DATA_EXTENSIONS)})."),
    _flag("plot", str | None, None, f"Draw the plane here ({', '.join(FIGURE_EXTENSIONS)})."),
    _flag("variable", str | None, None, "What to draw (default: every quantity that is a plane)."),
    _flag("json", bool, False, "Print JSON instead of a table."),
]


def command_for(verb: str, model: type[Model]) -> Callable[..., None]:
    """The function behind ``solvable sweep <model>``, with the model's flags."""
    fields, trainings = field_flags(model, required=False), training_flags(model)

    def body(values: Values) -> None:
        check_outputs(values)
        _check_store(values)
        design = _design(values)
        fixed = _fixed(model, values, fields, design)
        quantity = values["quantity"].replace("-", "_")
        given = pick(values, trainings)
        training = None
        if "training" in option_names(model, quantity):
            training = _training(model, values, trainings, design)
        elif any(value is not None for value in given.values()):
            name = next(name for name, value in given.items() if value is not None)
            raise ValueError(f"--{name.replace('_', '-')}: {values['quantity']} of {model.name} takes no training")
        options = _options(model, values, quantity, training)
        call: Values = {name: values[name] for name in ("store", "engine", "workers", "tile", "overwrite")}
        with _client(values["scheduler"]) as client:
            source = Fixed(model, fixed)
            if values["dry_run"]:
                _show_plan(plan(source, design, quantity, options, training, client=client, **call), values["json"])
                return
            extra: Values = {"retry_failed": not values["skip_failed"]}
            extra |= {name: values[name] for name in ("verify", "steal_lock")}
            dataset, failed = _reported(
                lambda: run_sweep(source, design, quantity, options, training, client=client, **call, **extra)
            )
        deliver(dataset, values, lambda: plot_plane(dataset, values["variable"]), _summary)
        if failed:
            raise typer.Exit(1)

    return as_function(body, [*_SWEEP, *fields, *trainings, *_OUTPUT])


def show_status(path: str, as_json: bool) -> None:
    """How far a stored sweep is."""
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
    show.table(f"{settings['quantity']} of {settings['model']}, version {settings['version']}", ["", ""], rows, words=2)
    for cell, text in found["failures"]:
        print(f"failed: {_told(cell)}: {text}")


def _design(values: Values) -> Design:
    grid: Values = {}
    box: Values = {}
    wants_box = values["sobol"] is not None or values["latin_hypercube"] is not None
    for text in values["over"] or []:
        name, words = _named(text, "--over")
        bounds = parse_box(words, "--over") if wants_box else None
        (grid if bounds is None else box)[name] = parse_values(words, "--over") if bounds is None else bounds
    together = {name: parse_values(words, "--zip") for name, words in map(_as_zip, values["zip"] or [])}
    drawn = [values[name] for name in ("sobol", "latin_hypercube") if values[name] is not None]
    check_grid_cost(
        {**{name: len(found) for name, found in grid.items()}, **_longest(together), "drawn": max(drawn or [1])}
    )
    designs: list[Any] = [grid] if grid else []
    if together:
        designs.append(zipped(**together))
    if wants_box:
        if values["sobol"] is not None and values["latin_hypercube"] is not None:
            raise ValueError("choose --sobol or --latin-hypercube, not both")
        if not box:
            raise ValueError(
                "a random design needs ranges: --over aspect_ratio=0.05:3 --over weight_decay=1e-6:1e-1:log"
            )
        draw, count = (sobol, "sobol") if values["sobol"] is not None else (latin_hypercube, "latin_hypercube")
        designs.append(draw(box, check_count(f"--{count.replace('_', '-')}", values[count]), values["design_key"]))
    if not designs:
        raise ValueError("Missing option '--over', such as --over weight_decay=1e-6:1e-1:200log")
    return product(*designs)


def _as_zip(text: str) -> tuple[str, str]:
    return _named(text, "--zip")


def _longest(lists: Values) -> dict[str, int]:
    return {"zipped": max(map(len, lists.values()))} if lists else {}


def _named(text: str, flag: str) -> tuple[str, str]:
    name, equals, words = text.partition("=")
    if not equals or not words or not name.strip():
        raise ValueError(f"{flag} {text!r} must look like weight_decay=1e-6:1e-1:100log")
    return name.strip().replace("-", "_"), words


def _fixed(model: type[Model], values: Values, fields: list[inspect.Parameter], design: Design) -> Values:
    """The parameters given by the model's own flags; those left out keep their defaults."""
    about = {field.name: field for field in dataclasses.fields(model)}
    fixed = {}
    for name, value in pick(values, fields).items():
        if name in design.names or (value is None and not about[name].metadata.get("infinite", False)):
            continue
        dimensions = about[name].metadata["rule"].dimensions
        if isinstance(value, str) and dimensions:
            value = (parse_range if dimensions == 1 else parse_matrix)(value, f"--{name.replace('_', '-')}")
        fixed[name] = value
    for field in about.values():
        if field.default is dataclasses.MISSING and field.name not in (*fixed, *design.names):
            # A name that is no parameter is more likely a slip of the pen than an option of the call.
            near = difflib.get_close_matches(field.name, design.names, n=1)
            slip = f" ({near[0]!r} is not one of its parameters)" if near else ""
            raise ValueError(f"Missing option '--{field.name.replace('_', '-')}', or sweep it with --over{slip}.")
    return fixed


def _training(model: type[Model], values: Values, flags: list[inspect.Parameter], design: Design) -> Training:
    """The training of the flags. Options that are swept have their first value meanwhile, and imply its kind, too."""
    first = {flag.name: next(design.cells())[flag.name] for flag in flags if flag.name in design.names}
    return build_training(model, {**values, **first}, flags)


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
def _client(address: str | None) -> Any:
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


def _reported(run: Callable[[], xr.Dataset]) -> tuple[xr.Dataset, bool]:
    """The dataset and whether cells failed, which is said on stderr; Ctrl-C says how to go on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", SweepWarning)
        try:
            dataset = run()
        except SweepInterrupted as stop:
            announce(str(stop))
            raise typer.Exit(INTERRUPTED) from stop
    for text in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        tell(f"warning: {text}")
    return dataset, any(issubclass(warning.category, SweepWarning) for warning in caught)


def _show_plan(found: Any, as_json: bool) -> None:
    with printing():
        print(json.dumps(dataclasses.asdict(found)) if as_json else found)


def _check_store(values: Values) -> None:
    """The store can be written, and is not the place of the copy; what else is wrong with a store is said by it."""
    store, out = values["store"], values["out"]
    if store is not None and not values["dry_run"]:
        # A store is a folder and may be there already: only the folder that it lies in is looked at here.
        checked("store", store, lambda path: check_folder(Path(path)))
    if store is not None and out is not None and Path(store).absolute() == Path(out).absolute():
        raise ValueError(f"--store and --out are both {store}: the store is a dataset already, give --out another name")


def _summary(dataset: xr.Dataset) -> None:
    """A row for each quantity: how many cells have it, and its extremes."""
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
            rows.append([str(name), array.size, *list(map(str, np.unique(array)))[:3]])
    grid = " x ".join(f"{size} {dim}" for dim, size in dataset["status"].sizes.items())
    print(f"{dataset.attrs['quantity']} of {dataset.attrs['model']} over {grid}")
    show.table("", ["", "finite or true", "least", "median", "most"], rows)


def _told(cell: Values) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in cell.items())
