"""What the model commands do."""

import dataclasses
import inspect
import json
import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
import xarray as xr

from solvable import models
from solvable.cli import show
from solvable.cli.cost import check_plane_cost, check_seeds_cost, check_times_cost
from solvable.cli.flags import (
    as_function,
    build,
    build_training,
    field_flags,
    option_flags,
    pick,
    takes_training,
    training_flags,
)
from solvable.cli.outputs import check_outputs, check_space, deliver
from solvable.cli.streams import tell
from solvable.comparison import compare
from solvable.files import DATA_EXTENSIONS
from solvable.model import Model
from solvable.plotting import FIGURE_EXTENSIONS, draw_plane, new_figure, plot
from solvable.ranges import parse_axis, parse_range
from solvable.training import Training
from solvable.training_choice import times_for, usual_times

Values = dict[str, Any]


def _common(name: str, annotation: Any, default: Any, text: str) -> inspect.Parameter:
    option = typer.Option("--" + name.replace("_", "-"), help=text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


_TIMES = _common("times", str | None, None, "Times: 1:1e5:200log, 0:10:5 or 1,10,100 (default: the model's own).")
_ALLOWED = _common("allow_different", str | None, None, "What may differ between both: momentum,activation.")
_OUTPUT = [
    _common("out", str | None, None, f"Write the data here ({', '.join(DATA_EXTENSIONS)})."),
    _common("plot", str | None, None, f"Draw the result here ({', '.join(FIGURE_EXTENSIONS)})."),
    _common("json", bool, False, "Print JSON instead of a table."),
]


def command_for(verb: str, model: type[Model]) -> Callable[..., None]:
    """The function behind ``solvable <verb> <model>``, with the model's flags."""
    return {
        "predict": _predict,
        "simulate": _simulate,
        "compare": _compare,
        "grokking-time": _grokking_time,
        "phase-diagram": _phase_diagram,
    }[verb](model)


def show_models(as_json: bool) -> None:
    if as_json:
        print(json.dumps(models.names()))
    else:
        show.table("models", ["name", "what it is"], [list(row) for row in models.names().items()], words=2)


def _predict(model: type[Model]) -> Callable[..., None]:
    fields, trainings, options = field_flags(model), training_flags(model), option_flags(model.predict)

    def body(values: Values) -> None:
        check_outputs(values)
        built, training = build(model, values, fields), build_training(model, values, trainings)
        times, chosen = _times(model, values, training), pick(values, options)
        check_space(values, times.size)
        check_times_cost(lambda few: built.predict(few, training, **chosen), times)
        dataset = built.predict(times, training, **chosen)
        deliver(dataset, values, lambda: plot(dataset))

    return as_function(body, [*fields, *trainings, *options, _TIMES, *_OUTPUT])


def _simulate(model: type[Model]) -> Callable[..., None]:
    fields, trainings, options = field_flags(model), training_flags(model), option_flags(model.simulate)

    def body(values: Values) -> None:
        check_outputs(values)
        built, training = build(model, values, fields), build_training(model, values, trainings)
        times = _times(model, values, training)
        check_space(values, times.size * values.get("seeds", 1))
        dataset = _simulated(built, times, training, pick(values, options))
        deliver(dataset, values, lambda: plot(dataset))

    return as_function(body, [*fields, *trainings, *options, _TIMES, *_OUTPUT])


def _compare(model: type[Model]) -> Callable[..., None]:
    fields, trainings = field_flags(model), training_flags(model)
    theory_options, simulation_options = option_flags(model.predict), option_flags(model.simulate)

    def body(values: Values) -> None:
        check_outputs(values)
        built, training = build(model, values, fields), build_training(model, values, trainings)
        times = _times(model, values, training)
        if values.get("seeds", 2) < 2:
            # Before theory is computed, too; and a single seed would make errors of zero.
            raise ValueError(f"--seeds {values['seeds']}: a comparison has standard errors, which need 2 seeds or more")
        theory = built.predict(times, training, **pick(values, theory_options))
        simulation = _simulated(built, times, training, pick(values, simulation_options))
        different = [name.strip().replace("-", "_") for name in (values["allow_different"] or "").split(",")]
        comparison = compare(theory, simulation, allow_different=different)
        deliver(comparison, values, lambda: plot(theory, simulation))

    return as_function(body, [*fields, *trainings, *simulation_options, *theory_options, _ALLOWED, _TIMES, *_OUTPUT])


def _grokking_time(model: type[Model]) -> Callable[..., None]:
    method = _summary(model, "grokking_time")
    fields, trainings, options = field_flags(model), _training_flags_of(model, method), option_flags(method)

    def body(values: Values) -> None:
        check_outputs(values)
        built: Any = build(model, values, fields)
        chosen = pick(values, options)
        if trainings:
            chosen["training"] = build_training(model, values, trainings)
        deliver(built.grokking_time(**chosen), values, None)

    return as_function(body, [*fields, *trainings, *options, *(flag for flag in _OUTPUT if flag.name != "plot")])


def _phase_diagram(model: type[Model]) -> Callable[..., None]:
    method = _summary(model, "phase_diagram")
    fields, options = field_flags(model, required=False), option_flags(method)
    trainings = _training_flags_of(model, method)
    axes = [
        _common("x", str, inspect.Parameter.empty, "Horizontal axis: aspect_ratio=0.05:3:200."),
        _common("y", str, inspect.Parameter.empty, "Vertical axis: weight_decay=1e-6:1e-1:200log."),
    ]

    def body(values: Values) -> None:
        check_outputs(values)
        grids = dict(parse_axis(values[flag], f"--{flag}") for flag in ("x", "y"))
        if len(grids) < 2:
            raise ValueError(f"--x and --y must be two different parameters, not both {next(iter(grids))}")
        for name in grids:
            if name not in _names([*fields, *trainings]):
                known = ", ".join(_names([*fields, *trainings]))
                raise ValueError(f"{model.name} has no parameter {name!r}; it has {known}")
        fixed = {name: value for name, value in pick(values, fields).items() if value is not None}
        given = {**{name: grid[0] for name, grid in grids.items() if name in _names(fields)}, **fixed}
        for field in dataclasses.fields(model):
            if field.default is dataclasses.MISSING and field.name not in given:
                raise ValueError(f"Missing option '--{field.name.replace('_', '-')}', or make it an axis.")
        built: Any = model(**given)
        chosen = pick(values, options)
        if trainings:
            chosen["training"] = build_training(model, values, trainings)
        check_space(values, math.prod(grid.size for grid in grids.values()))
        check_plane_cost(lambda few: built.phase_diagram(**chosen, **few), grids)
        dataset = built.phase_diagram(**chosen, **grids)
        logs = [name for flag, name in zip("xy", grids, strict=True) if values[flag].endswith("log")]
        x, y = grids
        deliver(dataset, values, lambda: _plane(dataset, x, y, logs), show.plane)

    return as_function(body, [*axes, *fields, *trainings, *options, *_OUTPUT])


def _training_flags_of(model: type[Model], method: Callable[..., Any]) -> list[inspect.Parameter]:
    return training_flags(model) if takes_training(method) else []


def _names(flags: list[inspect.Parameter]) -> list[str]:
    return [flag.name for flag in flags]


def _plane(dataset: xr.Dataset, x: str, y: str, logs: list[str]) -> Any:
    figure, (ax,) = new_figure(width=6.2, height=4.6)
    draw_plane(figure, ax, dataset["delay"], x=x, y=y, log=logs)
    return figure


def _summary(model: type[Model], method: str) -> Callable[..., Any]:
    if not hasattr(model, method):
        able = ", ".join(models.names(method))
        raise ValueError(f"the model {model.name} has no {method.replace('_', ' ')}; models that have one: {able}")
    return getattr(model, method)


def _simulated(model: Model, times: np.ndarray, training: Training, options: Values) -> xr.Dataset:
    seeds = options.get("seeds")
    if isinstance(seeds, int) and seeds > 0:
        check_seeds_cost(lambda few: model.simulate(times, training, **{**options, "seeds": few}), seeds, times.size)
    return model.simulate(times, training, **options)


def _times(model: type[Model], values: Values, training: Training) -> np.ndarray:
    """The times that were asked for, or the usual ones; whole steps where the training counts them."""
    if values["times"] is None:
        return times_for(parse_range(usual_times(model, training)), training)
    times = parse_range(values["times"])
    rounded = times_for(times, training)
    if rounded.size != times.size or not np.allclose(rounded, times, rtol=1e-9, atol=0):
        tell(f"note: times rounded to {rounded.size} whole steps")
    return rounded
