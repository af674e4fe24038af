"""From the values of a cell to its result: build the model, call the quantity, catch what goes wrong.

A :class:`Cells` object is small, holds no results and can be sent to another process or machine, where it needs only
an installed ``solvable``.
"""

import ast
import dataclasses
import hashlib
import inspect
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from solvable import models
from solvable._version import __version__
from solvable.dataset import for_json
from solvable.model import Model, check_field
from solvable.sweeps.design import Design, label
from solvable.sweeps.quantities import Quantity, check_quantity, json_value, option_names, parse_quantity
from solvable.sweeps.results import Result, Schema
from solvable.training import Schedule, Training

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class Fixed:
    """A class of models with some parameters fixed; the rest is swept or has a default."""

    kind: type[Model]
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Cells:
    """How any cell of one sweep is computed. Calling it with cells gives their values and errors."""

    make: Callable[..., Model]
    kind: type[Model]
    fixed: Mapping[str, Any]
    quantity: Quantity
    swept_options: tuple[str, ...] = ()
    # What the texts that stand for vectors, None and the like mean.
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    schema: Schema | None = None
    # Whether the call shows progress unless it is told not to: the sweep has a bar of its own.
    quiet: bool = False
    # How the models are trained, if the quantity depends on it, and the options of the training that are swept.
    training: Training | None = None
    swept_training: tuple[str, ...] = ()

    def values(self, cell: Cell) -> dict[str, Any]:
        """A cell's parameters as plain Python values; labels become what they stand for."""
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in cell.items()}
        return {name: self._meant(name, value) if isinstance(value, str) else value for name, value in plain.items()}

    def _meant(self, name: str, text: str) -> Any:
        known = self.labels.get(name, {})
        if text in known:
            return known[text]
        # A value that a store had before: what is short says what it is.
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    def as_label(self, name: str, value: Any) -> Any:
        """What stands for a value in the coordinates of the sweep."""
        return label(value) if name in self.labels else value

    def model(self, values: Cell) -> Model:
        """The model of a cell, built and checked like any other."""
        others = (*self.swept_options, *self.swept_training)
        swept = {name: value for name, value in values.items() if name not in others}
        return self.make(**{**self.fixed, **swept})

    def call_options(self, values: Cell) -> dict[str, Any]:
        """The options of the call that differ from cell to cell: those swept, and the key of the random numbers."""
        options = {name: values[name] for name in self.swept_options} | self.trained(values)
        if self.quiet:
            options["progress"] = False
        if self.quantity.draws and "key" not in options:
            options["key"] = cell_key(values, self.quantity.options.get("key", 0))
        return options

    def trained(self, values: Cell) -> dict[str, Training]:
        """The training of a cell as an option of the call; nothing where the quantity takes none."""
        if self.training is None:
            return {}
        return {"training": self.training.replace(**{name: values[name] for name in self.swept_training})}

    def evaluate(self, cell: Cell) -> Result:
        """One cell's result; raises what the model raises."""
        values = self.values(cell)
        return self.quantity.evaluate(self.model(values), self.call_options(values))

    def __call__(self, cells: Sequence[Cell]) -> tuple[dict[str, np.ndarray], list[str | None]]:
        """Values of the cells, stacked along a first axis, and for each cell the text of its error or None."""
        assert self.schema is not None
        values, errors = self.schema.empty(len(cells)), list[str | None]()
        for position, cell in enumerate(cells):
            try:
                for name, array in self.schema.match(self.evaluate(cell)).items():
                    values[name][position] = array
                errors.append(None)
            except Exception as error:
                errors.append(error_text(error))
        return values, errors

    def _stated_training(self) -> dict[str, Any]:
        assert self.training is not None
        fixed = {name: value for name, value in self.training.parameters().items() if name not in self.swept_training}
        described = {name: for_json(value) if isinstance(value, Schedule) else value for name, value in fixed.items()}
        return {"training": type(self.training).__name__, **json_value(described)}

    def settings(self) -> dict[str, Any]:
        """What decides the values of every cell, as JSON: a store with other settings is another sweep."""
        made = {} if self.make is self.kind else Quantity(self.make).identity()
        return {
            "model": self.kind.name,
            **({"made_by": made["quantity"], "made_by_source": made["source"]} if made else {}),
            "parameters": json_value(self.fixed),
            **self.quantity.identity(),
            **({} if self.training is None else {"training": self._stated_training()}),
            "options": json_value(self.quantity.options),
            "version": __version__,
        }


def error_text(error: BaseException) -> str:
    """One line that says what went wrong in a cell."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def cell_key(values: Cell, key: int = 0) -> int:
    """The key of a cell's random numbers: a hash of its parameters, so that it does not depend on where in a sweep,
    in which order or on which machine the cell is computed. ``key`` gives another, independent set."""
    text = json.dumps([json_value(values), int(key)])
    # As many bits as a float can hold exactly, and far too many for two cells to share a key.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11


def find_cells(
    model: Any, design: Design, target: Any, options: Mapping[str, Any] | None, training: Training | None = None
) -> tuple[Cells, Design]:
    """Everything checked that can be checked before anything runs; whole numbers are made whole on the way."""
    make, kind, fixed = _source(model, design)
    names = _parameter_names(make)
    check_quantity(kind, target)
    call_options = option_names(kind, target)
    if "training" in design.names and "training" in call_options:
        raise ValueError(
            "a training cannot be swept: sweep its options (learning_rate, momentum, ...), or make one sweep for each "
            "training, with training=..."
        )
    training = _training(kind, target, call_options, options, training)
    trainable = [] if training is None else list(training.parameters())
    for name in design.names:
        if name not in names and name not in call_options and name not in trainable:
            known = f"it has {', '.join(names)}"
            known += f"; {_told(target)} takes {', '.join(call_options)}" if call_options else ""
            known += f"; {type(training).__name__} has {', '.join(trainable)}" if trainable else ""
            raise ValueError(f"{_told(make)} has no parameter {name!r}; {known}")
    swept_options = tuple(name for name in design.names if name not in names and name in call_options)
    swept_training = tuple(name for name in design.names if name not in names and name not in call_options)
    both = [name for name in swept_options if name in (options or {})]
    if both:
        raise ValueError(f"{both[0]} is swept and also fixed in options: leave one out")
    missing = [name for name in _needed(make) if name not in fixed and name not in design.names]
    if missing:
        raise ValueError(f"{_told(make)} needs {missing[0]}: sweep it, or fix it in the model")
    quantity = parse_quantity(kind, target, options, list(swept_options))
    if make is kind:
        design = _checked_values(kind, design)
    for name in swept_training:
        for values in (axis.values[name] for axis in design.axes if name in axis.values):
            for value in values:
                training.replace(**{name: value})  # type: ignore[union-attr]
    labels = {
        name: {label(value): value for value in values}
        for axis in design.axes
        for name, values in axis.values.items()
        if axis.coordinates()[name].dtype.kind == "U"
    }
    quiet = "progress" in call_options and "progress" not in quantity.options
    cells = Cells(make, kind, fixed, quantity, swept_options, labels, quiet=quiet)
    return dataclasses.replace(cells, training=training, swept_training=swept_training), design


def _training(
    kind: type[Model], target: Any, known: list[str], options: Mapping[str, Any] | None, training: Training | None
) -> Training | None:
    """The training of the sweep: the given one, or the model's own; None if the quantity takes none."""
    if options and "training" in options:
        raise ValueError("training is not one of the options: pass it to the sweep, as training=...")
    if "training" not in known:
        if training is not None:
            raise ValueError(f"{_told(target)} takes no training: leave it out")
        return None
    if training is not None and not isinstance(training, Training):
        raise ValueError(f"training must be GradientFlow(...), GradientDescent(...) or SGD(...), not {training!r}")
    return kind.default_training if training is None else training


def _source(model: Any, design: Design) -> tuple[Callable[..., Model], type[Model], dict[str, Any]]:
    """What makes the models, what they are, and the parameters that stay fixed."""
    if isinstance(model, str):
        model = models.get(model)
    if inspect.isclass(model) and issubclass(model, Model):
        model = Fixed(model, {})
    if isinstance(model, Model):
        model = Fixed(type(model), model.parameters())
    if isinstance(model, Fixed):
        # Defaults are written out: a store does not depend on whether they were.
        fields = dataclasses.fields(model.kind)
        defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
        fixed = {name: value for name, value in {**defaults, **model.parameters}.items() if name not in design.names}
        return model.kind, model.kind, {name: _sendable(model.kind, name, value) for name, value in fixed.items()}
    owner = getattr(model, "__self__", None)
    if inspect.isclass(owner) and issubclass(owner, Model):
        return model, owner, {}
    if callable(model):
        first = next(design.cells())
        made = model(**{name: value for name, value in first.items() if name in _parameter_names(model)})
        if isinstance(made, Model):
            return model, type(made), {}
    raise ValueError(f"model must be a model, its class or name, or a function that makes one, not {model!r}")


def _sendable(kind: type[Model], name: str, value: Any) -> Any:
    """Functions that have a name are kept by it: names can be sent to any machine, functions not always."""
    about = next(field.metadata for field in dataclasses.fields(kind) if field.name == name)
    if "rule" in about and about["rule"].function:
        try:
            if about["converter"](repr(value)) == value:
                return repr(value)
        except ValueError:
            pass
    return value


def _parameter_names(make: Any) -> list[str]:
    if isinstance(make, type):
        return [field.name for field in dataclasses.fields(cast(Any, make))]
    return list(inspect.signature(make).parameters)


def _needed(make: Any) -> list[str]:
    if isinstance(make, type):
        missing = dataclasses.MISSING
        return [
            f.name for f in dataclasses.fields(cast(Any, make)) if f.default is missing and f.default_factory is missing
        ]
    found = inspect.signature(make).parameters.values()
    return [p.name for p in found if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def _told(thing: Any) -> str:
    return thing if isinstance(thing, str) else getattr(thing, "__name__", repr(thing))


def _checked_values(kind: type[Model], design: Design) -> Design:
    """Each value is held against the rule of its own field; what two parameters forbid each other fails in its cell."""
    hints = typing.get_type_hints(kind)
    for about in dataclasses.fields(kind):
        rule = about.metadata.get("rule")
        for axis in design.axes:
            if rule is None or about.name not in axis.values:
                continue
            values = axis.values[about.name]
            for value in values:
                check_field(about, about.metadata["converter"](value) if "converter" in about.metadata else value)
            if rule.function and not all(isinstance(value, str) for value in values):
                raise ValueError(f"{about.name} is swept by names such as 'relu', not by functions")
            design = design.replace(about.name, tuple(_of_type(hints[about.name], value) for value in values))
    return design


def _of_type(hint: Any, value: Any) -> Any:
    """A grid written as 1:5:5 gives floats, which cannot be sizes; a list 1,2,3 gives integers, which are no floats."""
    kinds = (hint, *typing.get_args(hint))
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if float in kinds:
        return float(value)
    return int(value) if int in kinds else value
