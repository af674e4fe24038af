"""Flags of the command line: one per field of a model, option of its training, or documented option of a method."""

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable
from typing import Annotated, Any, Literal, Union

import typer

from solvable.cli.remedies import naming_flags
from solvable.model import Model
from solvable.ranges import parse_matrix, parse_range
from solvable.training import Training
from solvable.training_choice import make_training, training_options

Values = dict[str, Any]
# Longer lists are not shown as the default of a flag.
_MAXIMUM_DEFAULT_LENGTH = 8
_ARRAY_SYNTAX = {1: "1,2,3 or 1:100:20log", 2: "rows 1,0.2;0.2,1"}
_SAMPLES = ("samples", "test_samples")


def dashed(name: str) -> str:
    """The flag of a parameter, such as ``--weight-decay``."""
    return "--" + name.replace("_", "-")


def flag(name: str, annotation: Any, default: Any, text: str) -> inspect.Parameter:
    """A flag as a parameter of a Typer command."""
    if name in _SAMPLES and set(typing.get_args(annotation)) == {int, type(None)}:
        # Infinitely many samples are None in Python, and inf on the command line.
        text = text if re.search(r"\binf\b", text) else f"{text}, or inf"
        option = typer.Option(dashed(name), help=text, parser=_number_or_infinity, metavar="<int>|inf")
        annotation, default = Any, "inf" if default is None else str(default)
    else:
        annotation, default = _plain(name, annotation, default)
        option = typer.Option(dashed(name), help=text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


def _number_or_infinity(text: str) -> Any:
    word = text.strip().lower().removeprefix("+")
    if word in ("inf", "infinity"):
        return None
    try:
        return int(word)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a whole number, 1 or more, or inf.") from error


def _plain(name: str, annotation: Any, default: Any) -> tuple[Any, Any]:
    """An annotation that Typer understands: choices become an enumeration, and functions are left out."""
    if typing.get_origin(annotation) in (Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part in (int, float, str, bool) or _is_choice(part)]
        plain, default = _plain(name, parts[0], default)
        return (plain | None if type(None) in typing.get_args(annotation) else plain), default
    if _is_choice(annotation):
        members = {choice: choice for choice in typing.get_args(annotation)}
        choices: Any = enum.Enum(name, members, type=str)  # type: ignore[misc]
        return choices, default if default in (None, inspect.Parameter.empty) else choices(default)
    return annotation, default


def _is_choice(annotation: Any) -> bool:
    return typing.get_origin(annotation) is Literal


def field_flags(model: type[Model], required: bool = True) -> list[inspect.Parameter]:
    """A flag for each parameter of the model, with its help, symbol and rule."""
    hints = typing.get_type_hints(model)
    flags = []
    for field in dataclasses.fields(model):
        about = field.metadata
        dimensions = about["rule"].dimensions
        text = f"{about['help']}{_in_brackets(about['symbol'])}: {about['rule'].text}"
        needed = field.default is dataclasses.MISSING
        annotation: Any = hints[field.name]
        default: Any = field.default
        if dimensions:
            annotation = str | None if about["optional"] else str
            text = f"{text}, as {_ARRAY_SYNTAX[dimensions]}"
        is_list = dimensions == 1 and isinstance(default, tuple)
        if is_list and len(default) <= _MAXIMUM_DEFAULT_LENGTH:
            default = ",".join(f"{number:g}" for number in default)
        elif about["rule"].function or is_list or (dimensions > 1 and not needed):
            # These defaults cannot be written in short: they apply if the flag is left out.
            annotation, default = str | None, None
        elif needed and not required:
            annotation, default = annotation | None, None
        elif needed:
            default = inspect.Parameter.empty
        flags.append(flag(field.name, annotation, default, text))
    return flags


def _in_brackets(symbol: str | None) -> str:
    return f" ({symbol})" if symbol else ""


def option_flags(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """A flag for each option of a method that is annotated with its help; others are for Python only."""
    hints = typing.get_type_hints(method, include_extras=True)
    flags = []
    for option in inspect.signature(method).parameters.values():
        if typing.get_origin(hints.get(option.name)) is Annotated:
            annotation, text = typing.get_args(hints[option.name])[:2]
            flags.append(flag(option.name, annotation, option.default, text))
    return flags


def training_flags(model: type[Model]) -> list[inspect.Parameter]:
    """A flag for each option of the trainings that the model covers; those left out have their defaults."""
    flags = []
    for option in training_options(model):
        if option.choices:
            annotation: Any = Literal[option.choices]
        elif isinstance(option.default, bool):
            annotation = bool
        elif option.rule.function:
            annotation = str
        else:
            annotation = int if option.whole else float
        rule = "" if option.choices or annotation is bool else f": {option.rule.text}"
        usual = "" if option.default is None else f" [default: {option.default}]"
        text = f"{option.help}{_in_brackets(option.symbol)}{rule}{usual}"
        flags.append(flag(option.name, annotation | None, None, text))
    return flags


def make_command(body: Callable[[Values], None], flags: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """A function with these flags as parameters. It calls ``body`` with their plain values by name."""
    unique = {flag.name: flag for flag in reversed(list(flags))}

    def command(**values: Any) -> None:
        plain = {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}
        for name, value in plain.items():
            check_size(dashed(name), value)
        naming_flags(body, plain)(plain)

    parameters = list(reversed(unique.values()))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {flag.name: flag.annotation for flag in parameters}
    return command


def check_size(name: str, value: Any) -> None:
    """Raise a ValueError for integers that do not fit into 64 bits."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{name} {value} is too large: whole numbers go up to 2^63 - 1")


def given_fields(
    model: type[Model], values: Values, flags: Iterable[inspect.Parameter], swept: Collection[str] = ()
) -> Values:
    """The parameters of a model from the values of its flags, without those that were left out or are swept."""
    fields = {field.name: field.metadata for field in dataclasses.fields(model)}
    given = {}
    for name, value in pick(values, flags).items():
        # None is a flag that was left out, except for samples, where it means infinitely many.
        if name in swept or (value is None and not fields[name].get("infinite", False)):
            continue
        dimensions = fields[name]["rule"].dimensions
        if isinstance(value, str) and dimensions:
            value = (parse_range if dimensions == 1 else parse_matrix)(value, dashed(name))
        given[name] = value
    return given


def missing_field(model: type[Model], given: Collection[str]) -> str | None:
    """The first parameter without a default that is not given."""
    needed = (field.name for field in dataclasses.fields(model) if field.default is dataclasses.MISSING)
    return next((name for name in needed if name not in given), None)


def build_training(model: type[Model], values: Values, flags: Iterable[inspect.Parameter]) -> Training:
    """The training from the values of its flags."""
    return make_training(model, pick(values, flags))


def pick(values: Values, flags: Iterable[inspect.Parameter]) -> Values:
    """The values of these flags only."""
    return {flag.name: values[flag.name] for flag in flags}
