"""From the parameters of a cell to its result: build the model, evaluate the quantity, catch errors.

A :class:`CellFunction` is small and contains no results. It can be sent to another process or machine, which needs only
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
from solvable.sweeps.quantities import Quantity, Result, Schema, check_quantity, json_value, make_quantity, option_names
from solvable.sweeps.schema import error_text
from solvable.training import Schedule, Training

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class PartialModel:
    """A class of models with some parameters fixed; the others are swept or have defaults."""

    kind: type[Model]
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class CellFunction:
    """How any cell of one sweep is computed. Called with a list of cells, it returns their values and errors."""

    make: Callable[..., Model]
    kind: type[Model]
    fixed: Mapping[str, Any]
    quantity: Quantity
    swept_options: tuple[str, ...] = ()
    # The values that labels represent: vectors, None and the like.
    labels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    schema: Schema | None = None
    # Whether to switch off a progress bar of the call, because the sweep has its own.
    quiet: bool = False
    # How the models are trained, if the quantity depends on it, and the options of the training that are swept.
    training: Training | None = None
    swept_training: tuple[str, ...] = ()

    def values(self, cell: Cell) -> dict[str, Any]:
        """The parameters of a cell as plain Python values, with labels replaced by the values that they represent."""
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in cell.items()}
        return {name: self._unlabel(name, value) if isinstance(value, str) else value for name, value in plain.items()}

    def _unlabel(self, name: str, text: str) -> Any:
        known = self.labels.get(name, {})
        if text in known:
            return known[text]
        # A value from an earlier run of the store: short labels are literals.
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            return text

    def as_label(self, name: str, value: Any) -> Any:
        """What represents a value in the coordinates of the sweep."""
        return label(value) if name in self.labels else value

    def model(self, values: Cell) -> Model:
        """The model of a cell, built and checked like any other."""
        others = (*self.swept_options, *self.swept_training)
        swept = {name: value for name, value in values.items() if name not in others}
        return self.make(**{**self.fixed, **swept})

    def call_options(self, values: Cell) -> dict[str, Any]:
        """The options of the call in one cell: swept ones, the training, and the random seed."""
        options = {name: values[name] for name in self.swept_options} | self.trained(values)
        if self.quiet:
            options["progress"] = False
        if self.quantity.is_random and "key" not in options:
            options["key"] = cell_key(values, self.quantity.options.get("key", 0))
        return options

    def trained(self, values: Cell) -> dict[str, Training]:
        """The training of a cell as an option of the call, if the quantity depends on it."""
        if self.training is None:
            return {}
        return {"training": self.training.replace(**{name: values[name] for name in self.swept_training})}

    def evaluate(self, cell: Cell) -> Result:
        """The result of one cell; errors of the model are not caught."""
        values = self.values(cell)
        return self.quantity.evaluate(self.model(values), self.call_options(values))

    def __call__(self, cells: Sequence[Cell]) -> tuple[dict[str, np.ndarray], list[str | None]]:
        """Values of the cells, stacked along the first axis, and for each cell an error message or None."""
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

    def settings(self) -> dict[str, Any]:
        """Everything that determines the values of the cells, as JSON. A store with other settings is another sweep."""
        settings: dict[str, Any] = {"model": self.kind.name, "parameters": json_value(self.fixed)}
        if self.make is not self.kind:
            made = Quantity(self.make).identity()
            settings |= {"made_by": made["quantity"], "made_by_source": made["source"]}
        settings |= self.quantity.identity()
        if self.training is not None:
            stated = {
                name: for_json(value) if isinstance(value, Schedule) else value
                for name, value in self.training.parameters().items()
                if name not in self.swept_training
            }
            settings["training"] = {"training": type(self.training).__name__, **json_value(stated)}
        return {**settings, "options": json_value(self.quantity.options), "version": __version__}


def cell_key(values: Cell, key: int = 0) -> int:
    """The random seed of a cell: a hash of its parameters, independent of the sweep, the order and the machine.

    Parameters
    ----------
    values
        The parameters of the cell that are swept.
    key
        Random seed of the sweep; another one gives independent random numbers.
    """
    text = json.dumps([json_value(values), int(key)])
    # As many bits as a float represents exactly, and far too many for two cells to have the same seed.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11


def make_cells(
    model: Any, design: Design, target: Any, options: Mapping[str, Any] | None, training: Training | None = None
) -> tuple[CellFunction, Design]:
    """The function that computes cells, and the design with values converted to the types of the model's fields.

    Everything is checked that can be checked before anything runs.
    """
    make, kind, fixed = _source(model, design)
    names, needed = _parameters(make)
    check_quantity(kind, target)
    call_options = option_names(kind, target)
    if "training" in design.names and "training" in call_options:
        raise ValueError(
            "a training cannot be swept: sweep its options (learning_rate, momentum, ...), or make one sweep for each "
            "training, with training=..."
        )
    training = _check_training(kind, target, call_options, options, training)
    trainable = [] if training is None else list(training.parameters())
    for name in design.names:
        if name not in (*names, *call_options, *trainable):
            known = f"it has {', '.join(names)}"
            known += f"; {_name_of(target)} takes {', '.join(call_options)}" if call_options else ""
            known += f"; {type(training).__name__} has {', '.join(trainable)}" if trainable else ""
            raise ValueError(f"{_name_of(make)} has no parameter {name!r}; {known}")
    swept_options = tuple(name for name in design.names if name not in names and name in call_options)
    swept_training = tuple(name for name in design.names if name not in (*names, *call_options))
    both = [name for name in swept_options if name in (options or {})]
    if both:
        raise ValueError(f"{both[0]} is swept and also fixed in options: leave one out")
    missing = [name for name in needed if name not in fixed and name not in design.names]
    if missing:
        raise ValueError(f"{_name_of(make)} needs {missing[0]}: sweep it, or fix it in the model")
    quantity = make_quantity(kind, target, options, swept_options)
    if make is kind:
        design = _converted(kind, design)
    for axis in design.axes:
        for name in set(swept_training) & set(axis.values):
            for value in axis.values[name]:
                training.replace(**{name: value})  # type: ignore[union-attr]
    labels = {
        name: {label(value): value for value in values}
        for axis in design.axes
        for name, values in axis.values.items()
        if axis.coordinates[name].dtype.kind == "U"
    }
    quiet = "progress" in call_options and "progress" not in quantity.options
    function = CellFunction(make, kind, fixed, quantity, swept_options, labels, None, quiet, training, swept_training)
    return function, design


def _check_training(
    kind: type[Model], target: Any, known: list[str], options: Mapping[str, Any] | None, training: Training | None
) -> Training | None:
    """The training of the sweep, by default the model's own; None if the quantity does not depend on it."""
    if options and "training" in options:
        raise ValueError("training is not one of the options: pass it to the sweep, as training=...")
    if "training" not in known:
        if training is not None:
            raise ValueError(f"{_name_of(target)} takes no training: leave it out")
        return None
    if training is not None and not isinstance(training, Training):
        raise ValueError(f"training must be GradientFlow(...), GradientDescent(...) or SGD(...), not {training!r}")
    return kind.default_training if training is None else training


def _source(model: Any, design: Design) -> tuple[Callable[..., Model], type[Model], dict[str, Any]]:
    """What makes the models, their class, and the parameters that stay fixed."""
    if isinstance(model, str):
        model = models.get(model)
    if inspect.isclass(model) and issubclass(model, Model):
        model = PartialModel(model, {})
    if isinstance(model, Model):
        model = PartialModel(type(model), model.parameters())
    if isinstance(model, PartialModel):
        # Defaults are written out, so that it makes no difference to the store whether the user gave them.
        fields = dataclasses.fields(model.kind)
        defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
        fixed = {name: value for name, value in {**defaults, **model.parameters}.items() if name not in design.names}
        return model.kind, model.kind, {name: _sendable(model.kind, name, value) for name, value in fixed.items()}
    owner = getattr(model, "__self__", None)
    if inspect.isclass(owner) and issubclass(owner, Model):
        return model, owner, {}
    if callable(model):
        first = next(design.cells())
        made = model(**{name: value for name, value in first.items() if name in _parameters(model)[0]})
        if isinstance(made, Model):
            return model, type(made), {}
    raise ValueError(f"model must be a model, its class or name, or a function that makes one, not {model!r}")


def _sendable(kind: type[Model], name: str, value: Any) -> Any:
    """Replace functions by their names where possible: names can be sent to any machine, functions not always."""
    about = next(field.metadata for field in dataclasses.fields(kind) if field.name == name)
    if "rule" in about and about["rule"].function:
        try:
            if about["converter"](repr(value)) == value:
                return repr(value)
        except ValueError:
            pass
    return value


def _parameters(make: Any) -> tuple[list[str], list[str]]:
    """Names of all parameters of a class or function, and of those without a default."""
    if isinstance(make, type):
        missing, fields = dataclasses.MISSING, dataclasses.fields(cast(Any, make))
        needed = [f.name for f in fields if f.default is missing and f.default_factory is missing]
        return [f.name for f in fields], needed
    found = inspect.signature(make).parameters.values()
    needed = [p.name for p in found if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    return [p.name for p in found], needed


def _name_of(thing: Any) -> str:
    return thing if isinstance(thing, str) else getattr(thing, "__name__", repr(thing))


def _converted(kind: type[Model], design: Design) -> Design:
    """Check each value by the rule of its field, and convert it. Impossible combinations fail in their cells."""
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
    """Convert between int and float: a grid 1:5:5 consists of floats, and a list 1,2,3 of integers."""
    kinds = (hint, *typing.get_args(hint))
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    if float in kinds:
        return float(value)
    return int(value) if int in kinds else value
