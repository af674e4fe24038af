"""The contract every model keeps: validated parameters in, labelled and documented datasets out."""

import dataclasses
import hashlib
import json
import math
import numbers
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import numpy as np
import xarray as xr

from solvable._html import table
from solvable._version import __version__
from solvable.engines.precision import require_float64

# Longer arrays are not written out in the attributes of a dataset.
_LONGEST_LIST = 1000
# Formulas square parameters, and the squares must be numbers of float64, too.
_LARGEST = 1e150


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a parameter must be: words for people, a test for each number, and how many numbers there are."""

    text: str
    test: Callable[[Any], bool]
    dimensions: int = 0
    function: bool = False


class rules:  # noqa: N801 - a namespace, read as ``rules.positive``
    """The rules parameters can be asked to keep."""

    positive = Rule("a positive finite number", lambda value: 0 < value < math.inf)
    positive_or_infinite = Rule("a positive number, or inf", lambda value: value > 0)
    not_negative = Rule("a finite number, zero or more", lambda value: 0 <= value < math.inf)
    finite = Rule("a finite number", math.isfinite)
    count = Rule("a whole number, 1 or more", lambda value: value >= 1 and float(value).is_integer())
    count_or_infinite = Rule(
        "a whole number, 1 or more, or inf", lambda value: value >= 1 and (value == math.inf or value % 1 == 0)
    )
    positive_vector = Rule("a list of positive finite numbers", positive.test, dimensions=1)
    not_negative_vector = Rule("a list of finite numbers, zero or more", not_negative.test, dimensions=1)
    finite_vector = Rule("a list of finite numbers", math.isfinite, dimensions=1)
    finite_matrix = Rule("a matrix of finite numbers", math.isfinite, dimensions=2)


def parameter(
    help: str,
    rule: Rule,
    *,
    symbol: str,
    default: Any = dataclasses.MISSING,
    optional: bool = False,
    infinite: bool = False,
) -> Any:
    """A field of a model: what it means, the letter the paper gives it, and the rule it must keep.

    Lists and matrices are kept as NumPy arrays, numbers as plain Python numbers. ``optional`` fields may be None;
    ``infinite`` ones, too, where None stands for infinitely many: they take infinity as well and are shown as ``inf``.
    """
    metadata = {"help": help, "symbol": symbol, "rule": rule, "optional": optional or infinite, "infinite": infinite}
    convert = _as_array if rule.dimensions else _as_finite_number if infinite else _as_number
    return eqx.field(default=default, metadata=metadata, converter=convert)


def choice(help: str, *, symbol: str, default: str, choices: tuple[str, ...]) -> Any:
    """A field of a model that takes one of a few names; it is part of the structure, not a number to differentiate."""
    rule = Rule("one of " + ", ".join(choices), choices.__contains__)
    metadata = {"help": help, "symbol": symbol, "rule": rule, "optional": False}
    return eqx.field(default=default, metadata=metadata, static=True)


def function(help: str, parse: Callable[[Any], Any], *, symbol: str, default: Callable[..., Any]) -> Any:
    """A field of a model that is a function; ``parse`` turns the names of known ones into functions."""
    rule = Rule("a function, or the name of one", callable, function=True)
    metadata = {"help": help, "symbol": symbol, "rule": rule, "optional": False}
    return eqx.field(default=default, metadata=metadata, converter=parse, static=True)


def _as_number(value: Any) -> Any:
    """Plain Python numbers where possible, so that models print well; traced values and the rest stay as they are."""
    if isinstance(value, bool | np.bool_ | str) or value is None:
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer) and value.ndim == 0:
        return value.item()
    return value


def _as_finite_number(value: Any) -> Any:
    """As :func:`_as_number`, but None in place of infinity."""
    number = _as_number(value)
    return None if isinstance(number, float) and number == math.inf else number


def _as_array(value: Any) -> Any:
    """A float64 array; what is none is left for the check to refuse."""
    if value is None or isinstance(value, str | jax.core.Tracer):
        return value
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return value


class Model(eqx.Module):
    """Parameters of a solvable model, with what theory says of it and how to train it.

    Concrete models give ``predict(times, ...)`` and ``simulate(times, *, seeds, key, ...)``, both returning
    an :class:`xarray.Dataset` with the shared names of :data:`VARIABLES`.

    A model is a PyTree. Building one inside a function that JAX transforms works: the fields may be traced, rules are
    then not checked, and ``predict`` returns a dataset that holds traced arrays.

    >>> import solvable
    >>> model = solvable.ParityMode(target_scale=5.0)
    >>> model.replace(first=0.02)
    ParityMode(target_scale=5.0, first=0.02, second=0.01, third=0.01, offset=0.0, loss='half_mean')
    >>> model.replace(first="large")
    Traceback (most recent call last):
        ...
    ValueError: first must be a positive finite number, not 'large' (weight of the first neuron at the start)
    """

    name: ClassVar[str]
    # Options of ``predict`` that describe what ``simulate`` does, where the defaults do not (whole steps, say).
    predict_like_simulation: ClassVar[Mapping[str, Any]] = {}
    # Whether ``simulate`` counts whole descent steps, so that the command line rounds the times it is given, and which
    # options of ``predict`` do.
    simulates_whole_steps: ClassVar[bool] = False
    whole_step_options: ClassVar[Mapping[str, tuple[str | None, ...]]] = {"descent": ("discrete",)}
    # The times the command line asks for if it is given none.
    usual_times: ClassVar[str] = "1:1e5:60log"

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            if "rule" in field.metadata:
                check_field(field, getattr(self, field.name))

    def predict(self, times: Any) -> xr.Dataset:
        """What theory says, at the given times."""
        raise NotImplementedError

    def simulate(self, times: Any, *, seeds: int = 10, key: int = 0) -> xr.Dataset:
        """Train the finite-size system the theory speaks of, once for each seed."""
        raise NotImplementedError

    @property
    def time_step(self) -> float:
        """Time from one descent step to the next, where there are steps: times count them unless a model says else."""
        return 1.0

    def parameters(self) -> dict[str, Any]:
        """The parameters by name, as plain numbers."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def replace(self, **changes: Any) -> Self:
        """A copy with some parameters changed, checked like any other."""
        known = self.parameters()
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise ValueError(f"{type(self).__name__} has no parameter {unknown[0]!r}; it has {', '.join(known)}")
        return type(self)(**{**known, **changes})

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self._shown().items())
        return f"{type(self).__name__}({values})"

    def _shown(self) -> dict[str, str]:
        """The parameters as they are written in Python; infinitely many is ``inf`` for every model."""
        infinite = {field.name for field in dataclasses.fields(self) if field.metadata.get("infinite")}
        return {
            name: "inf" if value is None and name in infinite else _short(value)
            for name, value in self.parameters().items()
        }

    def _repr_html_(self) -> str:
        """For notebooks: every parameter with its symbol, its value and what it is."""
        shown = self._shown()
        rows = [
            (about.get("symbol", ""), name, shown[name], about.get("help", ""))
            for name, about in ((field.name, field.metadata) for field in dataclasses.fields(self))
        ]
        return table(f"{type(self).__name__} ({self.name})", ("symbol", "parameter", "value", "meaning"), rows)


def _short(value: Any) -> str:
    """A value as it is written in Python; of long arrays the beginning."""
    if isinstance(value, np.ndarray):
        return np.array2string(value, separator=", ", threshold=6, edgeitems=3, precision=6)
    return repr(value)


def check_field(field: dataclasses.Field[Any], value: Any) -> None:
    """Raise a ValueError that names the parameter, its value and its rule, if the value breaks it."""
    if isinstance(value, jax.core.Tracer) or (value is None and field.metadata["optional"]):
        return
    rule: Rule = field.metadata["rule"]
    if rule.function:
        if not rule.test(value):
            raise ValueError(f"{field.name} must be {rule.text}, not {value!r} ({field.metadata['help']})")
        return
    if rule.dimensions:
        _check_array(field.name, value, rule)
        return
    if isinstance(value, np.ndarray | jax.Array):
        raise ValueError(
            f"{field.name} must be one number, not an array of shape {value.shape}: "
            "use jax.vmap or phase_diagram for many values"
        )
    named = isinstance(value, str) and isinstance(field.default, str)
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (named or number) or not rule.test(value):
        other = ", or inf" if field.metadata.get("infinite") else ", or None" if field.metadata["optional"] else ""
        text = rule.text + other
        raise ValueError(f"{field.name} must be {text}, not {value!r} ({field.metadata['help']})")
    if number and _LARGEST < abs(value) < math.inf:
        raise ValueError(
            f"{field.name} must be at most {_LARGEST:g} in size, not {value:g}: its square must be a number, "
            "too; change the units"
        )


def _check_array(name: str, value: Any, rule: Rule) -> None:
    if not isinstance(value, np.ndarray | jax.Array):
        raise ValueError(f"{name} must be {rule.text}, not {value!r}")
    if value.ndim != rule.dimensions or value.size == 0:
        raise ValueError(f"{name} must be {rule.text}, not an array of shape {value.shape}")
    # The rules are bounds: where the extremes keep them and all are finite, all do, and a million modes are checked
    # as fast as two. Only a broken rule is worth looking for one by one.
    array = np.asarray(value)
    if np.isfinite(array).all() and rule.test(float(array.min())) and rule.test(float(array.max())):
        return
    for place, number in np.ndenumerate(array):
        if not rule.test(number):
            index = ", ".join(map(str, place))
            raise ValueError(f"{name} must be {rule.text}, but {name}[{index}] = {number:g}")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least ``least``, or a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or value < least or float(value) % 1:
        raise ValueError(f"{name} must be a whole number, {least} or more, not {value!r}")
    return int(float(value))


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of the choices, or a ValueError that lists them."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    return value


@dataclasses.dataclass(frozen=True)
class Meaning:
    """What a variable is, for people and for plots, and whether infinity is one of its values."""

    long_name: str
    units: str
    symbol: str = ""
    may_be_infinite: bool = False


VARIABLES: Mapping[str, Meaning] = {
    "train_loss": Meaning("training loss per output", "1", "L_tr"),
    "test_loss": Meaning("test loss per output", "1", "L_gen"),
    "log_train_loss": Meaning("natural logarithm of the training loss", "1", "log L_tr"),
    "log_test_loss": Meaning("natural logarithm of the test loss", "1", "log L_gen"),
    "train_accuracy": Meaning("fraction of training samples within the threshold", "1", "A_tr"),
    "test_accuracy": Meaning("fraction of test samples within the threshold", "1", "A_gen"),
    "train_time": Meaning("time at which training accuracy is reached", "steps", "t*_tr"),
    "test_time": Meaning("time at which test accuracy is reached", "steps", "t*_gen"),
    "delay": Meaning("grokking delay", "steps", "Δt"),
    "train_reached": Meaning("whether the training accuracy is ever reached", "1"),
    "test_reached": Meaning("whether the test accuracy is ever reached", "1"),
    "time": Meaning("training time", "steps", "t"),
    "seed": Meaning("index of the drawn dataset and initialisation", "1"),
}


def make_dataset(
    variables: Mapping[str, tuple[tuple[str, ...], Any]],
    coordinates: Mapping[str, Any],
    attributes: Mapping[str, Any],
    meanings: Mapping[str, Meaning] = VARIABLES,
    may_diverge: bool = False,
) -> xr.Dataset:
    """A dataset whose every variable says what it is; traced arrays are kept, others become NumPy.

    Curves over time are finite: one that is not has left the range of float64, and is refused with the parameter that
    is most likely to blame, unless divergence was asked for (``may_diverge``).
    """

    def meaning_of(name: str) -> Meaning:
        return meanings.get(name) or _derived_meaning(name, meanings) or VARIABLES[name]

    def described(name: str, dims: tuple[str, ...], values: Any) -> tuple[tuple[str, ...], Any, dict[str, str]]:
        meaning = meaning_of(name)
        attrs = {"long_name": meaning.long_name, "units": meaning.units}
        if meaning.symbol:
            attrs["symbol"] = meaning.symbol
        return dims, values if isinstance(values, jax.core.Tracer) else np.asarray(values), attrs

    dataset = xr.Dataset(
        {name: described(name, dims, values) for name, (dims, values) in variables.items()},
        coords={name: described(name, (name,), values) for name, values in coordinates.items()},
        attrs=dict(attributes),
    )
    if not may_diverge and attributes.get("method") in ("theory", "simulation"):
        unbounded = {name for name in variables if meaning_of(name).may_be_infinite}
        _check_curves(dataset, unbounded)
    return dataset


def _check_curves(dataset: xr.Dataset, unbounded: set[str]) -> None:
    """Refuse curves over time that are not finite, with the place and the most extreme parameter."""
    for name, curve in dataset.data_vars.items():
        if "time" not in curve.dims or isinstance(curve.data, jax.core.Tracer) or curve.dtype.kind != "f":
            continue
        bad = np.isnan(curve.values) if name in unbounded else ~np.isfinite(curve.values)
        if bad.any():
            place = tuple(int(index) for index in np.argwhere(bad)[0])
            time = float(dataset.time.values[place[curve.dims.index("time")]])
            raise ValueError(
                f"{name} is {float(curve.values[place]):g} at time {time:g}, because numbers on the way to it are "
                f"beyond the range of float64 (1e-308 to 1e308): {_remedy(dataset.attrs['parameters'], time)}"
            )


def _remedy(parameters: str, time: float) -> str:
    """Which number to change: the one that is furthest from one."""
    sizes = {"the last time": abs(time)}
    for name, value in json.loads(parameters).items():
        flat = np.ravel(np.array(value, dtype=object))
        found = [abs(number) for number in flat if type(number) in (int, float) and 0 < abs(number) < math.inf]
        if found:
            sizes[name] = max(found, key=_decades)
    worst = max(sizes, key=lambda name: _decades(sizes[name]))
    return f"bring {worst} = {sizes[worst]:g} nearer to 1, or change the units"


def _decades(size: float) -> float:
    """How many powers of ten a size is away from one."""
    return abs(math.log10(size)) if size > 0 else 0.0


def _derived_meaning(name: str, meanings: Mapping[str, Meaning]) -> Meaning | None:
    """What ``<name>_error`` and ``<name>_spread`` are, from what ``<name>`` is."""
    for suffix, text in (("_error", "numerical error of the "), ("_spread", "standard deviation over runs of the ")):
        about = name.removesuffix(suffix)
        if about != name and about in {**VARIABLES, **meanings}:
            of = {**VARIABLES, **meanings}[about]
            return Meaning(text + of.long_name, of.units)
    return None


class Stopwatch:
    """Seconds since it was made, which is where the work of every verb begins: with numbers that have their digits."""

    def __init__(self) -> None:
        require_float64()
        self._begin = time.perf_counter()

    def seconds(self) -> float:
        return round(time.perf_counter() - self._begin, 3)


def _for_json(value: Any) -> Any:
    """Short arrays in full; of long ones what tells them apart."""
    if not isinstance(value, np.ndarray):
        # A function prints its address, which differs from run to run; its name does not.
        return getattr(value, "__qualname__", None) or str(value)
    if value.size <= _LONGEST_LIST:
        return value.tolist()
    digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
    return {"shape": list(value.shape), "first": value.ravel()[:3].tolist(), "sha256": digest}


def provenance(
    model: Model,
    method: str,
    settings: Mapping[str, Any],
    watch: Stopwatch,
    numerical_error: float | None = None,
    *,
    error_scale: str = "value",
    system: Mapping[str, Any] | None = None,
) -> dict[str, str | float]:
    """Where a dataset came from, in attributes that every file format can hold.

    ``numerical_error`` is the largest numerical error of the variables, relative to each value; with
    ``error_scale="maximum"`` it is relative to the largest value of each variable, for what falls to zero and is known
    to an absolute accuracy only. Variables ``<name>_error`` say more where there are such, and are absolute.

    ``system`` states what ``model`` and ``parameters`` leave open: the sizes and the training that the numbers are of
    (``inputs``, ``batch``, ``descent``, ...). ``compare`` refuses theory and simulation whose values differ under the
    same name. None means that theory is of the limit in which the value does not matter, such as infinitely many
    inputs; full batches are ``"full"``, because batches of a finite size are another training and not near a limit.
    """
    attributes: dict[str, str | float] = {
        "model": model.name,
        "parameters": json.dumps(model.parameters(), default=_for_json),
        "method": method,
        "solver": json.dumps(dict(settings), default=str),
        "version": __version__,
        "device": jax.devices()[0].device_kind,
        "seconds": watch.seconds(),
    }
    if system is not None:
        attributes["system"] = json.dumps(dict(system), default=_for_json)
    if numerical_error is not None:
        attributes["numerical_error"] = float(numerical_error)
        attributes["numerical_error_scale"] = error_scale
    return attributes
