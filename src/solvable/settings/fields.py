"""The controls of a page, derived from a model: one for each parameter, and for each option that has a help text.

The same parser reads addresses, typed text and sliders; its errors name the field, the value and the rule.
"""

import dataclasses
import difflib
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, Union

import numpy as np

from solvable import models
from solvable.checks import Rule, rules
from solvable.controls import SHARED_SLIDERS, Slider
from solvable.model import Model
from solvable.ranges import parse_matrix, parse_range
from solvable.settings import limits
from solvable.training import TRAININGS
from solvable.training_choice import parse_schedule, training_options

Role = Literal["parameter", "training", "times", "theory", "simulation"]
Kind = Literal["number", "choice", "text"]

# Options that have no control: large outputs, settings of the machine, and switches that hide a divergence.
_NOT_SHOWN = {
    "activation",
    "correlations",
    "devices",
    "kernel_alignment",
    "max_skills",
    "memory_limit",
    "on_divergence",
    "responses",
    "weights",
}
_SUGGESTIONS = {
    "activation": ("quadratic(0.3)", "relu", "erf", "tanh", "linear"),
    "teacher": ("square", "linear"),
    "schedule": ("constant", "cosine:1000", "linear:1000", "wsd:1000"),
}
# Names of defaults that are functions.
_SPELLED = {"activation": "quadratic(0.3)", "teacher": "square"}
_TIMES = Rule("times from first to last: 1:1e5:60log, 0:10:51 or 1,10,100", math.isfinite, dimensions=1)
_TRAINING_WORDS = {"flow": "gradient flow", "descent": "gradient descent", "sgd": "mini-batch SGD"}
# The batch size of a page on which SGD is chosen, unless the model states another.
_BATCH_SIZE = "32"
# Entries of a list that each get a slider of their own.
_MOST_SLIDERS = 8


@dataclasses.dataclass(frozen=True)
class Field:
    """A control. ``key`` is its name in the address, ``name`` that of the parameter or option that it sets."""

    key: str
    name: str
    role: Role
    kind: Kind
    symbol: str
    help: str
    rule: Rule
    start: str
    default: Any
    optional: bool = False
    whole: bool = False
    units: str = ""
    choices: tuple[str, ...] = ()
    # Words for the choices, where the choices themselves are not words.
    names: tuple[str, ...] = ()
    # For options of the training: the trainings that have it.
    trainings: tuple[str, ...] = ()
    # Another field, and how its text begins where this one means anything.
    needs: tuple[str, str] | tuple[()] = ()
    suggestions: tuple[str, ...] = ()
    slider: Slider | None = None
    # For fields that are functions: refuses a name that stands for none.
    known: Callable[[str], Any] | None = None

    @property
    def allowed(self) -> str:
        text = self.rule.text + (", or empty" if self.optional else "")
        most = limits.MOST.get(self.name)
        return f"{text}, at most {most:g}" if most and self.kind == "number" else text

    def parse(self, text: str) -> Any:
        """Parse a text; a ValueError says what is wrong with it."""
        longest = limits.LONGEST_NUMBER if self.kind == "number" else limits.LONGEST_LIST
        if len(text) > longest:
            raise ValueError(f"{self.name} is {len(text)} characters long, at most {longest} are read")
        text = text.strip()
        if text == "" and self.optional:
            return None
        if self.kind == "choice":
            return self._choice(text)
        if self.rule.dimensions:
            return self._array(text)
        if self.rule.function:
            return self._function(text)
        return self._number(text)

    def _choice(self, text: str) -> Any:
        if text not in self.choices:
            raise ValueError(f"{self.name} must be one of {', '.join(filter(None, self.choices))}, not {text!r}")
        return {"true": True, "false": False}.get(text, text) if isinstance(self.default, bool) else text

    def _number(self, text: str) -> int | float:
        try:
            # Python would also read 1_000 and full-width digits; an address should not.
            value = float(text) if text.isascii() and "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if text == "∞":
            value = math.inf
        if math.isnan(value) or not self.rule.test(value):
            raise ValueError(f"{self.name} must be {self.allowed}, not {text[:40]!r}")
        most = limits.MOST.get(self.name, math.inf)
        if math.isfinite(value) and value > most:
            raise ValueError(f"{self.name} = {text} is too large for a page: at most {most:g}, use Python beyond")
        return int(value) if self.whole and math.isfinite(value) else value

    def _array(self, text: str) -> np.ndarray:
        _check_count(self.name, text, limits.MOST_TIMES if self.role == "times" else limits.MOST_ENTRIES)
        values = (parse_range if self.rule.dimensions == 1 else parse_matrix)(text, self.name)
        if max(values.shape) > (limits.MOST_ENTRIES if values.ndim == 1 else limits.MOST_ROWS):
            raise ValueError(f"{self.name} has too many entries for a page: {values.shape}")
        if not np.isfinite(values).all() or not all(self.rule.test(value) for value in values.flat):
            raise ValueError(f"{self.name} must be {self.rule.text}, not {text[:60]!r}")
        return values

    def _function(self, text: str) -> str:
        """Check the name of a function. It stays a name, which the model looks up; nothing is evaluated."""
        assert self.known is not None
        self.known(text)
        return "".join(text.split())

    def tidy(self, text: str) -> str:
        """The shortest text of the same value; lists are kept as they were written."""
        value = self.parse(text)
        return "".join(text.split()) if isinstance(value, np.ndarray) else write(value)

    def entries(self, text: str) -> int:
        """Number of sliders of a list: one for each entry if the list is written out and short, otherwise none."""
        if self.slider is None or not self.rule.dimensions or ":" in text or not text.strip():
            return 0
        count = len(text.replace(";", ",").split(","))
        return count if count <= _MOST_SLIDERS else 0


def _check_count(name: str, text: str, most: int) -> None:
    """Check the number of entries of a list before it is created."""
    if ":" in text:
        digits = text.rpartition(":")[2].removesuffix("log")
        count = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else most + 1
    else:
        count = text.count(",") + 1
    if count > most:
        raise ValueError(f"{name} must have at most {most} entries on a page, written as 1:1e5:60log, 0:10:51 or 1,2,3")


def write(value: Any) -> str:
    """A value as text: the shortest one that is parsed to the same value."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):
        return str(int(value))
    return repr(float(value))


def write_array(value: Any) -> str:
    rows = np.atleast_2d(np.asarray(value, float))
    return ";".join(",".join(write(float(number)) for number in row) for row in rows)


@lru_cache(maxsize=64)
def fields_of(model: str) -> dict[str, Field]:
    """Every control of a model's page by key: parameters, training, times, options of theory and of simulation."""
    cls = models.get(model)
    parameters = [*_parameters(cls), *_training(cls), _times(cls)]
    # An option that is called like a parameter, such as a number of modes, is the parameter's: one number, not two.
    taken = {field.name for field in parameters}
    theory = [field for field in _options(cls, cls.predict, "theory") if field.name not in taken]
    simulation = [field for field in _options(cls, cls.simulate, "simulation") if field.name not in taken]
    simulated = {field.name for field in simulation}
    made = [
        *parameters,
        *(_keyed(field, f"theory_{field.name}" if field.name in simulated else field.name) for field in theory),
        *simulation,
    ]
    start = cls.controls.start
    return {field.key: dataclasses.replace(field, start=start.get(field.key, field.start)) for field in made}


def _keyed(field: Field, key: str) -> Field:
    return dataclasses.replace(field, key=key)


def _slider(cls: type[Model], name: str) -> Slider | None:
    """The slider that the model states for a parameter or option, or else the one that all models share."""
    return cls.controls.sliders.get(name) or SHARED_SLIDERS.get(name)


def _training_words(cls: type[Model], name: str) -> str:
    """A kind of training in words; they say if only theory, or only simulation, covers it."""
    kind = TRAININGS[name]
    covered = [any(cover.kind is kind for cover in covers) for covers in (cls.theory_covers, cls.simulation_covers)]
    only = {(True, False): " (theory only)", (False, True): " (simulation only)"}.get((covered[0], covered[1]), "")
    return _TRAINING_WORDS.get(name, kind.__name__) + only


def _training(cls: type[Model]) -> Iterable[Field]:
    """Fields for the options of all trainings that the model covers, and for the choice among them."""
    for option in training_options(cls):
        kind = option.name == "training"
        choices = ("false", "true") if isinstance(option.default, bool) else option.choices
        if kind and len(choices) < 2:
            continue
        optional = option.default is None
        yield Field(
            key=option.name,
            name=option.name,
            role="training",
            kind="choice" if choices else "text" if option.rule.function else "number",
            symbol=option.symbol,
            help="how the model is trained" if kind else option.help,
            rule=option.rule,
            start=_BATCH_SIZE if option.name == "batch_size" else write(option.default),
            default=option.default,
            optional=optional,
            whole=option.whole,
            units=cls.controls.units.get(option.name, ""),
            choices=(("",) if optional and choices else ()) + choices,
            names=tuple(_training_words(cls, name) for name in choices) if kind else (),
            trainings=option.kinds,
            needs=option.needs,
            suggestions=_SUGGESTIONS.get(option.name, ()),
            slider=None if choices else _slider(cls, option.name),
            known=partial(parse_schedule, peak=1.0) if option.rule.function else None,
        )


def _parameters(cls: type[Model]) -> Iterable[Field]:
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        about, rule = field.metadata, field.metadata["rule"]
        default = None if field.default is dataclasses.MISSING else field.default
        named = isinstance(default, str)
        choices = tuple(rule.text.removeprefix("one of ").split(", ")) if named else ()
        whole = rule in (rules.count, rules.count_or_infinite) or int in typing.get_args(hints[field.name])
        if rule.function:
            start = _SPELLED.get(field.name, getattr(default, "__name__", ""))
        elif field.default is dataclasses.MISSING:
            start = _first_text(rule)
        elif rule.dimensions:
            start = "" if default is None else write_array(default)
        else:
            start = write(default)
        kind: Kind = "choice" if named else "text" if rule.dimensions or rule.function else "number"
        made = Field(
            key=field.name,
            name=field.name,
            role="parameter",
            kind=kind,
            symbol=about["symbol"],
            help=about["help"],
            rule=rule,
            start=start,
            default=field.default,
            optional=about["optional"],
            whole=whole,
            units=cls.controls.units.get(field.name, ""),
            choices=choices,
            suggestions=_SUGGESTIONS.get(field.name, ()),
            slider=cls.controls.sliders.get(field.name) or (None if kind != "number" else _guess(rule, default)),
            known=about.get("converter") if rule.function else None,
        )
        yield made


def _first_text(rule: Rule) -> str:
    """The initial text of a parameter without a default: some value that its rule allows."""
    numbers = [number for number in (10.0, 1.0, 0.5, 0.1) if rule.test(number)]
    first = write(numbers[0]) if numbers else ""
    return {0: first, 1: ",".join([first] * 2), 2: f"{first},0;0,{first}"}[rule.dimensions]


def _guess(rule: Rule, default: Any) -> Slider:
    """A slider for a parameter without a stated one: two decades to either side of its default."""
    centre = abs(default) if isinstance(default, int | float) and default and math.isfinite(default) else 1.0
    if rule in (rules.count, rules.count_or_infinite):
        after = ("inf",) if rule is rules.count_or_infinite else ()
        return Slider(1, max(100, 10 * centre), log=True, whole=True, after=after)
    if rule is rules.finite:
        return Slider(-3 * centre, 3 * centre)
    before = ("0",) if rule is rules.not_negative else ()
    after = ("inf",) if rule is rules.positive_or_infinite else ()
    return Slider(centre / 100, centre * 100, log=True, before=before, after=after)


def _time_units(cls: type[Model]) -> str:
    steps = {cover.kind.counts_steps for cover in (*cls.theory_covers, *cls.simulation_covers)}
    if steps == {True, False}:
        return "steps, or flow time / η for gradient flow"
    return "steps" if steps == {True} else "flow time / η"


def _times(cls: type[Model]) -> Field:
    return Field(
        key="times",
        name="times",
        role="times",
        kind="text",
        symbol="t",
        help=f"times of the curves: {_time_units(cls)}",
        rule=_TIMES,
        start=cls.usual_times,
        default=cls.usual_times,
    )


def _options(cls: type[Model], method: Callable[..., Any], role: Role) -> list[Field]:
    made = []
    hints = typing.get_type_hints(method, include_extras=True)
    for option in inspect.signature(method).parameters.values():
        hint = hints.get(option.name)
        if typing.get_origin(hint) is not Annotated or option.name in _NOT_SHOWN:
            continue
        annotation, text = typing.get_args(hint)[:2]
        parts = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
        optional = type(None) in parts
        names = next((typing.get_args(part) for part in parts if typing.get_origin(part) is Literal), ())
        if bool in parts:
            names = ("false", "true")
        whole = int in parts
        rule = rules.count if whole else rules.positive
        if option.name == "key":
            rule = rules.not_negative
        made.append(
            Field(
                key=option.name,
                name=option.name,
                role=role,
                kind="choice" if names else "number",
                symbol="",
                help=text,
                rule=Rule("one of " + ", ".join(names), lambda _: True) if names else rule,
                start=write(option.default),
                default=option.default,
                optional=optional,
                whole=whole,
                choices=(("",) if optional and names else ()) + names,
                slider=None if names else _slider(cls, option.name),
            )
        )
    return made


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (Union, types.UnionType)


def nearest_key(model: str, key: str) -> str:
    """A suggestion for a misspelled key, as words to append to an error message."""
    close = difflib.get_close_matches(key, fields_of(model), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
