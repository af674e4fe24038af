"""Flags made from a model: one for each field, one for each documented option of a method."""

import dataclasses
import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, Union

import typer

from solvable.model import Model
from solvable.ranges import parse_matrix, parse_range
from solvable.training import Training
from solvable.training_choice import make_training, training_options

# Longer lists are not written out as the default of a flag.
_LONGEST_DEFAULT = 8
_WRITTEN = {1: "1,2,3 or 1:100:20log", 2: "rows 1,0.2;0.2,1"}


def field_flags(model: type[Model], required: bool = True) -> list[inspect.Parameter]:
    """A flag for each parameter of the model, with its help, symbol and rule."""
    hints = typing.get_type_hints(model)
    flags = []
    for field in dataclasses.fields(model):
        about = field.metadata
        symbol = f" ({about['symbol']})" if about["symbol"] else ""
        text = f"{about['help']}{symbol}: {about['rule'].text}"
        must = field.default is dataclasses.MISSING
        annotation = hints[field.name]
        if about["rule"].dimensions:
            annotation = str | None if about["optional"] else str
            text = f"{text}, as {_WRITTEN[about['rule'].dimensions]}"
        default: Any = field.default
        listed = about["rule"].dimensions == 1 and isinstance(default, tuple)
        if listed and len(default) <= _LONGEST_DEFAULT:
            default = ",".join(f"{number:g}" for number in default)
        elif about["rule"].function or listed or (about["rule"].dimensions > 1 and not must):
            # Their defaults have no short spelling: the flag left out stands for them.
            annotation, default = str | None, None
        elif must and not required:
            annotation, default = annotation | None, None
        else:
            default = inspect.Parameter.empty if must else field.default
        flags.append(_flag(field.name, annotation, default, text))
    return flags


def option_flags(method: Callable[..., Any], defaults: dict[str, Any] | None = None) -> list[inspect.Parameter]:
    """A flag for each option of a method that is annotated with its help; others are for Python only."""
    hints = typing.get_type_hints(method, include_extras=True)
    flags = []
    for option in inspect.signature(method).parameters.values():
        hint = hints.get(option.name)
        if typing.get_origin(hint) is Annotated:
            annotation, text = typing.get_args(hint)[:2]
            default = (defaults or {}).get(option.name, option.default)
            flags.append(_flag(option.name, annotation, default, text))
    return flags


def training_flags(model: type[Model]) -> list[inspect.Parameter]:
    """A flag for each option of the trainings that the model covers; those left out have their defaults."""
    flags = []
    for option in training_options(model):
        annotation: Any = str
        if option.choices:
            annotation = Literal[option.choices]
        elif isinstance(option.default, bool):
            annotation = bool
        else:
            annotation = int if option.whole else float
        symbol = f" ({option.symbol})" if option.symbol else ""
        rule = "" if option.choices or annotation is bool else f": {option.rule.text}"
        usual = "" if option.default is None else f" [default: {option.default}]"
        flags.append(_flag(option.name, annotation | None, None, f"{option.help}{symbol}{rule}{usual}"))
    return flags


def _flag(name: str, annotation: Any, default: Any, text: str) -> inspect.Parameter:
    written = "--" + name.replace("_", "-")
    if _may_be_infinite(name, annotation):
        # None stands for infinitely many samples in Python, and inf on the command line, as it does for other models.
        text = text if re.search(r"\binf\b", text) else f"{text}, or inf"
        option = typer.Option(written, help=text, parser=_number_or_infinity, metavar="<int>|inf")
        default = "inf" if default is None else str(default)
        return inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[Any, option]
        )
    annotation, default = _plain(name, annotation, default)
    option = typer.Option(written, help=text)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


_SAMPLES = ("samples", "test_samples")


def _may_be_infinite(name: str, annotation: Any) -> bool:
    """Numbers of samples that may be left out stand for infinitely many where they are."""
    return name in _SAMPLES and set(typing.get_args(annotation)) == {int, type(None)}


def _number_or_infinity(text: str) -> Any:
    word = text.strip().lower().removeprefix("+")
    if word in ("inf", "infinity"):
        return None
    try:
        return int(word)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a whole number, 1 or more, or inf.") from error


def _plain(name: str, annotation: Any, default: Any) -> tuple[Any, Any]:
    """The annotation as the command line can take it: choices become an enumeration, functions are left out."""
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


def as_function(body: Callable[[dict[str, Any]], None], flags: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """A function with exactly these flags that hands their values to ``body``, by name and as plain values."""
    unique = {flag.name: flag for flag in reversed(list(flags))}

    def command(**values: Any) -> None:
        plain = {name: value.value if isinstance(value, enum.Enum) else value for name, value in values.items()}
        for name, value in plain.items():
            check_size(f"--{name.replace('_', '-')}", value)
        body(plain)

    parameters = list(reversed(unique.values()))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {flag.name: flag.annotation for flag in parameters}
    return command


def check_size(flag: str, value: Any) -> None:
    """Whole numbers must fit into the 64 bits that JAX and NumPy give them."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{flag} {value} is too large: whole numbers go up to 2^63 - 1")


def build(model: type[Model], values: dict[str, Any], flags: Iterable[inspect.Parameter]) -> Model:
    """The model from the values of its flags; lists are parsed."""
    fields = {field.name: field for field in dataclasses.fields(model)}
    chosen = {}
    for name, value in pick(values, flags).items():
        dimensions = fields[name].metadata["rule"].dimensions
        if value is None and left_out(fields[name]):
            continue
        if isinstance(value, str) and dimensions:
            parse = parse_range if dimensions == 1 else parse_matrix
            value = parse(value, f"--{name.replace('_', '-')}")
        chosen[name] = value
    return model(**chosen)


def build_training(model: type[Model], values: dict[str, Any], flags: Iterable[inspect.Parameter]) -> Training:
    """The training that the values of its flags mean."""
    return make_training(model, pick(values, flags))


def takes_training(method: Callable[..., Any]) -> bool:
    """Whether a method of a model is about its training."""
    return "training" in inspect.signature(method).parameters


def left_out(field: dataclasses.Field[Any]) -> bool:
    """Whether None from the command line means that a flag was not given; for samples it means infinitely many."""
    return field.default is not dataclasses.MISSING and not field.metadata.get("infinite", False)


def pick(values: dict[str, Any], flags: Iterable[inspect.Parameter]) -> dict[str, Any]:
    """The values of these flags only."""
    return {flag.name: values[flag.name] for flag in flags}
