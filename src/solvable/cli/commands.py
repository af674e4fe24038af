"""The commands that take a model: predict, simulate, compare, grokking-time and phase-diagram."""

import inspect
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from solvable import models
from solvable.cli import show
from solvable.cli.cost import check_plane_cost, check_seeds_cost, check_times_cost
from solvable.cli.flags import (
    Values,
    build_training,
    dashed,
    field_flags,
    flag,
    given_fields,
    make_command,
    missing_field,
    option_flags,
    pick,
    training_flags,
)
from solvable.cli.outputs import check_outputs, check_space, deliver
from solvable.cli.streams import print_stderr
from solvable.comparison import compare
from solvable.files import DATA_EXTENSIONS
from solvable.model import Model
from solvable.plotting import FIGURE_EXTENSIONS, draw_plane, new_figure, plot
from solvable.ranges import parse_axis, parse_range
from solvable.training import Training
from solvable.training_choice import times_for, usual_times

_TIMES = flag("times", str | None, None, "Times: 1:1e5:200log, 0:10:5 or 1,10,100 (default: the model's own).")
_ALLOWED = flag("allow_different", str | None, None, "What may differ between theory and simulation: momentum,width.")
_EXTRAPOLATE = flag(
    "extrapolate",
    str | None,
    None,
    "Simulate several sizes and extrapolate to the infinite system: dimension=300,1000.",
)
_OUT = flag("out", str | None, None, f"Write the data to this file ({', '.join(DATA_EXTENSIONS)}).")
_PLOT = flag("plot", str | None, None, f"Plot the result to this file ({', '.join(FIGURE_EXTENSIONS)}).")
# Options of simulations that count what may be taken to infinity.
_SIZES = ("dimension", "samples", "features", "modes", "width")
_JSON = flag("json", bool, False, "Print JSON instead of a table.")


def command_for(verb: str, model: type[Model]) -> Callable[..., None]:
    """The function of ``solvable <verb> <model>``, with the flags of the model."""
    makers = {"compare": _compare, "grokking-time": _grokking_time, "phase-diagram": _phase_diagram}
    return makers[verb](model) if verb in makers else _curves(model, verb)


def show_models(as_json: bool) -> None:
    if as_json:
        print(json.dumps(models.names()))
    else:
        show.table("models", ["name", "description"], [list(row) for row in models.names().items()], text_columns=2)


class _Flags:
    """The flags of a model, of its training and of some of its methods, and the objects that their values make."""

    def __init__(self, model: type[Model], *methods: Callable[..., Any], required: bool = True) -> None:
        self.model = model
        self.fields = field_flags(model, required)
        trained = any("training" in inspect.signature(method).parameters for method in methods)
        self.training = training_flags(model) if trained else []
        self.options = [option_flags(method) for method in methods]
        self.all = [*self.fields, *self.training, *(option for options in self.options for option in options)]

    def build_run(self, values: Values) -> tuple[Model, np.ndarray, Training]:
        """Model, times and training. Outputs are checked before."""
        check_outputs(values)
        built = self.model(**given_fields(self.model, values, self.fields))
        training = build_training(self.model, values, self.training)
        return built, _times(self.model, values, training), training

    def call_options(self, values: Values) -> Values:
        """The options of the only method, with the training if it takes one."""
        training = {"training": build_training(self.model, values, self.training)} if self.training else {}
        return pick(values, self.options[0]) | training


def _curves(model: type[Model], verb: str) -> Callable[..., None]:
    flags = _Flags(model, getattr(model, verb))

    def body(values: Values) -> None:
        built, times, training = flags.build_run(values)
        options = pick(values, flags.options[0])
        if verb == "predict":
            check_space(values, times.size)
            check_times_cost(lambda few: built.predict(few, training, **options), times)
            dataset = built.predict(times, training, **options)
        else:
            check_space(values, times.size * values.get("seeds", 1))
            dataset = _simulate(built, times, training, options)
        deliver(dataset, values, lambda: plot(dataset))

    return make_command(body, [*flags.all, _TIMES, _OUT, _PLOT, _JSON])


def _compare(model: type[Model]) -> Callable[..., None]:
    flags = _Flags(model, model.simulate, model.predict)

    def body(values: Values) -> None:
        built, times, training = flags.build_run(values)
        if values.get("seeds", 2) < 2:
            # Before theory is computed.
            raise ValueError(f"--seeds {values['seeds']}: a comparison has standard errors, which need 2 seeds or more")
        simulation_options, theory_options = (pick(values, options) for options in flags.options)
        size, several = _sizes(values["extrapolate"], simulation_options, model)
        theory_options = {name: value for name, value in theory_options.items() if name != size}
        theory = built.predict(times, training, **theory_options)
        simulations = [_simulate(built, times, training, options) for options in several]
        allowed = [name.strip().replace("-", "_") for name in (values["allow_different"] or "").split(",")]
        simulated = simulations if size else simulations[0]
        comparison = compare(theory, simulated, allow_different=allowed, extrapolate=size)
        deliver(comparison, values, lambda: plot(theory, *simulations))

    return make_command(body, [*flags.all, _ALLOWED, _EXTRAPOLATE, _TIMES, _OUT, _PLOT, _JSON])


def _sizes(text: str | None, options: Values, model: type[Model]) -> tuple[str | None, list[Values]]:
    """The size of ``--extrapolate`` and the options of the simulation of each size, with a random seed of its own."""
    if text is None:
        return None, [options]
    name, _, numbers = text.partition("=")
    name = name.strip().lstrip("-").replace("-", "_")
    known = [option for option in _SIZES if option in inspect.signature(model.simulate).parameters]
    if name not in known:
        able = f"it has {' and '.join(known)}" if known else "its simulation has no size of its own"
        raise ValueError(f"--extrapolate {text}: {model.name} has no size {name!r} to extrapolate; {able}")
    try:
        sizes = [int(part) for part in numbers.split(",")]
    except ValueError:
        raise ValueError(f"--extrapolate {text}: write whole numbers, such as {name}=300,1000") from None
    if len(set(sizes)) < 2 or min(sizes) < 1:
        raise ValueError(f"--extrapolate {text}: give two different sizes or more, each 1 or more")
    key = options.get("key", 0)
    return name, [{**options, name: size, "key": key + place} for place, size in enumerate(sizes)]


def _grokking_time(model: type[Model]) -> Callable[..., None]:
    flags = _Flags(model, _method(model, "grokking_time"))

    def body(values: Values) -> None:
        check_outputs(values)
        built: Any = model(**given_fields(model, values, flags.fields))
        deliver(built.grokking_time(**flags.call_options(values)), values, None)

    return make_command(body, [*flags.all, _OUT, _JSON])


def _phase_diagram(model: type[Model]) -> Callable[..., None]:
    flags = _Flags(model, _method(model, "phase_diagram"), required=False)
    axes = [
        flag("x", str, inspect.Parameter.empty, "Horizontal axis: aspect_ratio=0.05:3:200."),
        flag("y", str, inspect.Parameter.empty, "Vertical axis: weight_decay=1e-6:1e-1:200log."),
    ]

    def body(values: Values) -> None:
        check_outputs(values)
        grids = dict(parse_axis(values[axis], f"--{axis}") for axis in ("x", "y"))
        if len(grids) < 2:
            raise ValueError(f"--x and --y must be two different parameters, not both {next(iter(grids))}")
        known = [parameter.name for parameter in (*flags.fields, *flags.training)]
        for name in grids:
            if name not in known:
                raise ValueError(f"{model.name} has no parameter {name!r}; it has {', '.join(known)}")
        fields = {parameter.name for parameter in flags.fields}
        given = {name: grid[0] for name, grid in grids.items() if name in fields}
        given |= given_fields(model, values, flags.fields, swept=grids)
        if (missing := missing_field(model, given)) is not None:
            raise ValueError(f"Missing option '{dashed(missing)}', or make it an axis.")
        built: Any = model(**given)
        options = flags.call_options(values)
        check_space(values, math.prod(grid.size for grid in grids.values()))
        check_plane_cost(lambda few: built.phase_diagram(**options, **few), grids)
        dataset = built.phase_diagram(**options, **grids)

        def draw() -> Any:
            figure, (ax,) = new_figure(width=6.2, height=4.6)
            logs = [name for axis, name in zip("xy", grids, strict=True) if values[axis].endswith("log")]
            x, y = grids
            draw_plane(figure, ax, dataset["delay"], x, y, logs)
            return figure

        deliver(dataset, values, draw, show.plane)

    return make_command(body, [*axes, *flags.all, _OUT, _PLOT, _JSON])


def _method(model: type[Model], name: str) -> Callable[..., Any]:
    if not hasattr(model, name):
        able = ", ".join(models.names(name))
        raise ValueError(f"the model {model.name} has no {name.replace('_', ' ')}; models that have one: {able}")
    return getattr(model, name)


def _simulate(model: Model, times: np.ndarray, training: Training, options: Values) -> xr.Dataset:
    seeds = options.get("seeds")
    if isinstance(seeds, int) and seeds > 0:
        check_seeds_cost(lambda few: model.simulate(times, training, **{**options, "seeds": few}), seeds, times.size)
    return model.simulate(times, training, **options)


def _times(model: type[Model], values: Values, training: Training) -> np.ndarray:
    """The requested times, or the model's own, rounded to whole steps if the training has steps."""
    if values["times"] is None:
        return times_for(parse_range(usual_times(model, training)), training)
    times = parse_range(values["times"])
    rounded = times_for(times, training)
    if rounded.size != times.size or not np.allclose(rounded, times, rtol=1e-9, atol=0):
        print_stderr(f"note: times rounded to {rounded.size} whole steps")
    return rounded
