"""``check_model``: whether a model keeps the contract that the command line, the page, sweeps and users rely on."""

import dataclasses
import inspect
import json
import math
import re
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Union

import jax
import numpy as np
import xarray as xr

from solvable.dataset import for_json
from solvable.model import Model
from solvable.models.contract_page import page_lines, story_lines
from solvable.precision import in_float64
from solvable.ranges import parse_range
from solvable.timegrid import whole_steps
from solvable.training import SGD, TRAININGS, GradientDescent, Training
from solvable.training_choice import make_training, training_options

# Names of sizes, starts and levels that mean the same in every model have one spelling.
FORBIDDEN_NAMES = {
    "batch": "batch_size, in the training",
    "descent": "the training",
    "eps": "fraction",
    "hidden": "width",
    "inputs": "dimension",
    "keep_diverged": "on_divergence",
    "learning_rate": "the training",
    "level": "fraction",
    "method": "the training, or solver",
    "momentum": "the training",
    "neurons": "width",
    "share": "fraction",
    "shown": "max_skills",
    "step": "learning_rate, in the training",
    "weight_decay": "the training",
}
COUNTED_FROM_ONE = ("mode", "skill", "neuron", "other_neuron", "index")
_ATTRIBUTES = ("model", "parameters", "method", "solver", "version", "device", "seconds", "training")
_FLAG_TYPES = (int, float, str, bool, type(None))
_MOST_TIMES = 4


class ContractError(AssertionError):
    """A model breaks the contract; the message lists everything that is wrong, one line each."""


@in_float64
def check_model(model: Any, *, seeds: int = 2) -> None:
    """Check that a model keeps the contract of :class:`solvable.Model`; scikit-learn's ``check_estimator`` for models.

    Checked are the fields (documented, validated, with one-line errors), both verbs with the default training and with
    every other training that is covered, names, dimensions, units and index bases of what they return, provenance,
    ``replace``, the PyTree round trip, JSON of the parameters, the flags of the command line, sliders, summaries and
    stories of the page. ``jax.vmap`` is checked over the fields in the class variable ``vectorised_fields``.

    Parameters
    ----------
    model
        A model, a class of models or a registered name. A class is built with its defaults.
    seeds
        Number of seeds of the simulations.

    Raises
    ------
    ContractError
        With one line for everything that is wrong.

    >>> from solvable import models
    >>> models.check_model("scalar-network")
    """
    if isinstance(model, str):
        from solvable import models

        model = models.get(model)
    if inspect.isclass(model) and issubclass(model, Model):
        missing = [field.name for field in dataclasses.fields(model) if field.default is dataclasses.MISSING]
        if missing:
            raise ContractError(f"{model.__name__} has no default for {', '.join(missing)}: pass an instance")
        model = model()
    if not isinstance(model, Model):
        raise ContractError(f"a model is an instance of solvable.Model, not {model!r}")
    wrong = [line for part in _PARTS for line in part(model, seeds)]
    if wrong:
        raise ContractError(f"{type(model).__name__} breaks the contract:\n" + "\n".join(f"- {line}" for line in wrong))


def _fields(model: Model, seeds: int) -> Iterator[str]:
    """Fields are documented, have allowed names, and refuse wrong values in one line that names them."""
    for field in dataclasses.fields(model):
        about = field.metadata
        if "rule" not in about or not about.get("help"):
            yield f"the field {field.name} is not declared with parameter(), choice() or function(), with a help text"
            continue
        if field.name in FORBIDDEN_NAMES:
            yield f"the field {field.name} should be {FORBIDDEN_NAMES[field.name]}"
        if about.get("symbol") is None:
            yield f"the field {field.name} has no symbol"
        for value in ("nonsense-value", object(), math.nan):
            try:
                model.replace(**{field.name: value})
            except ValueError as error:
                if "\n" in str(error) or not str(error).strip():
                    yield f"the error for {field.name} = {value!r} is not one line: {str(error)!r}"
            except Exception as error:
                yield f"{field.name} = {value!r} raises {type(error).__name__}, not a ValueError: {error}"
            else:
                if not (about["rule"].function and isinstance(value, str)):
                    yield f"{field.name} = {value!r} is accepted"
    try:
        model.replace(no_such_parameter=1)
        yield "replace accepts a parameter that does not exist"
    except ValueError as error:
        if "no_such_parameter" not in str(error):
            yield f"the error for an unknown parameter does not name it: {error}"


def _tree(model: Model, seeds: int) -> Iterator[str]:
    """A model is a PyTree, is equal to its copy, and its parameters can be written as JSON."""
    leaves, structure = jax.tree.flatten(model)
    copy = jax.tree.unflatten(structure, leaves)
    if repr(copy) != repr(model):
        yield f"the PyTree round trip changes the model: {copy!r}"
    if repr(model.replace()) != repr(model):
        yield f"replace() without changes changes the model: {model.replace()!r}"
    try:
        json.loads(json.dumps(model.parameters(), default=for_json))
    except (TypeError, ValueError) as error:
        yield f"the parameters cannot be written as JSON: {error}"


def _signatures(model: Model, seeds: int) -> Iterator[str]:
    """Both verbs take times and the training; options have allowed names, and types that flags can have."""
    for verb in ("predict", "simulate"):
        method = getattr(type(model), verb)
        parameters = list(inspect.signature(method).parameters.values())[1:]
        names = [parameter.name for parameter in parameters]
        if names[:2] != ["times", "training"]:
            yield f"{verb} must begin with (self, times, training=None), not with {', '.join(names[:2])}"
        if verb == "simulate" and not {"seeds", "key"} <= set(names):
            yield "simulate must take seeds and key"
        hints = typing.get_type_hints(method, include_extras=True)
        for parameter in parameters[2:]:
            if parameter.name in FORBIDDEN_NAMES:
                yield f"the option {parameter.name} of {verb} should be {FORBIDDEN_NAMES[parameter.name]}"
            if parameter.default is parameter.empty:
                yield f"the option {parameter.name} of {verb} has no default"
            hint = hints.get(parameter.name)
            if typing.get_origin(hint) is Annotated and not _fits_a_flag(typing.get_args(hint)[0]):
                yield f"the option {parameter.name} of {verb} has a help text and a type that no flag can have: {hint}"
        yield from _undescribed(verb, method)


def _undescribed(name: str, method: Any) -> Iterator[str]:
    """Arguments of a method that its docstring does not describe on a line of their own."""
    for argument in list(inspect.signature(method).parameters)[1:]:
        if not re.search(rf"^ *(\**\w+, )*\**{argument}(, \**\w+)*\n", method.__doc__ or "", re.MULTILINE):
            yield f"the docstring of {name} does not describe {argument} on a line of its own"


def _fits_a_flag(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return any(_fits_a_flag(part) for part in typing.get_args(annotation) if part is not type(None))
    return typing.get_origin(annotation) is Literal or annotation in _FLAG_TYPES


def _trainings(model: Model) -> list[tuple[str, Training]]:
    """A training of each kind that a verb covers, with the verb."""
    kind, found = type(model), []
    for verb, covered in (("predict", model.theory_covers), ("simulate", model.simulation_covers)):
        for cover in covered:
            if cover.kind.name not in TRAININGS:
                continue
            values: dict[str, Any] = {"training": cover.kind.name}
            if cover.kind is SGD:
                values["batch_size"] = 4
            training = make_training(kind, values)
            if cover.sampling:
                training = training.replace(sampling=cover.sampling[0])
            found.append((verb, training))
    return found


def _verbs(model: Model, seeds: int) -> Iterator[str]:
    """Both verbs return documented datasets for the default training, and refuse what is not covered in words."""
    default = model.default_training
    if default.name not in {option.default for option in training_options(type(model))}:
        yield f"the default training {default!r} is not among the trainings that are covered"
    times = _few_times(model)
    theory = model.predict(times)
    yield from _dataset("predict", theory, default)
    if "seed" in theory.dims:
        yield "predict returns a dimension 'seed'"
    runs = model.simulate(times, seeds=seeds, key=1)
    yield from _dataset("simulate", runs, default)
    if runs.sizes.get("seed") != seeds:
        yield f"simulate with seeds = {seeds} returns {runs.sizes.get('seed')} seeds"
    again = model.simulate(times, seeds=seeds, key=1)
    for name in runs.data_vars:
        if not np.array_equal(runs[name].values, again[name].values, equal_nan=runs[name].dtype.kind == "f"):
            yield f"simulate with the same key gives another {name}"
    if not set(map(str, theory.data_vars)) & set(map(str, runs.data_vars)):
        yield "predict and simulate have no variable in common, so that they cannot be compared"
    for verb in ("predict", "simulate"):
        yield from _refusals(model, verb, times)
    yield from story_lines(model, times, theory)


def _few_times(model: Model) -> np.ndarray:
    usual = parse_range(type(model).usual_times)
    times = usual[np.unique(np.linspace(0, usual.size // 2, _MOST_TIMES).astype(int))]
    return whole_steps(times) if model.default_training.counts_steps else times


def _refusals(model: Model, verb: str, times: np.ndarray) -> Iterator[str]:
    covered = {type(training) for other, training in _trainings(model) if other == verb}
    call: Callable[..., Any] = getattr(model, verb)
    examples: list[Any] = [GradientDescent(0.01), SGD(0.01, batch_size=4), "flow", type(model.default_training)]
    for training in examples:
        if type(training) in covered:
            continue
        try:
            call(times, training)
            yield f"{verb} accepts the training {training!r}, which it does not cover"
        except ValueError as error:
            if "\n" in str(error):
                yield f"the error of {verb} for {training!r} is not one line"
        except Exception as error:
            yield f"{verb} with {training!r} raises {type(error).__name__}, not a ValueError: {error}"
    for wrong in ([], [-1.0], [2.0, 1.0], [math.nan], "soon", [[1.0]]):
        try:
            call(wrong)
            yield f"{verb} accepts times = {wrong!r}"
        except ValueError:
            pass
        except Exception as error:
            yield f"{verb} with times = {wrong!r} raises {type(error).__name__}, not a ValueError: {error}"


def _other_trainings(model: Model, seeds: int) -> Iterator[str]:
    """Every kind of training that is covered runs, and the dataset says how it was trained."""
    for verb, training in _trainings(model):
        if type(training) is type(model.default_training):
            continue
        times = np.array([0.0, 1.0, 2.0])
        options = {"seeds": seeds} if verb == "simulate" else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = getattr(model, verb)(times, training, **options)
        except ValueError as error:
            # A training may be covered for other parameters only; the error must then say so.
            if "\n" in str(error):
                yield f"the error of {verb} with {training!r} is not one line: {error}"
            continue
        yield from _dataset(f"{verb} with {training!r}", found, training)


def _dataset(what: str, data: Any, training: Training) -> Iterator[str]:
    if not isinstance(data, xr.Dataset):
        yield f"{what} returns {type(data).__name__}, not an xarray.Dataset"
        return
    for name in _ATTRIBUTES:
        if name not in data.attrs:
            yield f"{what}: the attribute {name!r} is missing"
    if json.loads(data.attrs.get("training", "{}")).get("training") != type(training).__name__:
        yield f"{what}: the attribute 'training' does not say {type(training).__name__}"
    if "loss" not in data.attrs and any(str(name).endswith("loss") for name in data.data_vars):
        yield f"{what}: the attribute 'loss' does not state the convention of the loss"
    if "flow_time" not in data.coords:
        yield f"{what}: the coordinate flow_time is missing"
    yield from _epochs(what, data)
    for label, described in data.variables.items():
        for attribute in ("long_name", "units"):
            if attribute not in described.attrs:
                yield f"{what}: {label} has no {attribute}"
    units = data["time"].attrs.get("units", "")
    if ("steps" in units) != training.counts_steps:
        yield f"{what}: times are in {units!r}, for {type(training).__name__}"
    for name in COUNTED_FROM_ONE:
        if name in data.coords:
            counted = data[name].values
            if counted.dtype.kind not in "iu" or counted[0] != 1:
                yield f"{what}: {name} is not counted in integers from 1, but begins {counted[:3].tolist()}"
    for label, values in data.data_vars.items():
        if values.dtype.kind == "f" and values.dtype != np.float64 and "dtype" not in data.attrs["solver"]:
            yield f"{what}: {label} is {values.dtype}, not float64"


def _epochs(what: str, data: xr.Dataset) -> Iterator[str]:
    """Where batches are a known fraction of a training set, epochs are beside the times; elsewhere there are none."""
    stated = json.loads(data.attrs.get("training", "{}"))
    reused = stated.get("sampling") not in (None, "online")
    if "epochs" in data.coords and not reused:
        yield f"{what}: there are epochs, but batches are not drawn from a training set"
    fraction, size = stated.get("batch_fraction"), stated.get("batch_size")
    samples = json.loads(data.attrs.get("parameters", "{}")).get("samples")
    if fraction is None and isinstance(size, int) and isinstance(samples, int):
        fraction = size / samples
    if not reused or fraction is None:
        return
    if "epochs" not in data.coords:
        yield f"{what}: the coordinate epochs is missing"
    # A batch has a whole number of samples.
    elif not np.allclose(data["epochs"].values, fraction * data["time"].values, rtol=0.5, atol=1e-12):
        yield f"{what}: epochs are not the samples of all batches over those of the training set"


def _methods(model: Model, seeds: int) -> Iterator[str]:
    """Public methods describe every argument on a line of its own, and use the shared names."""
    for name in dir(type(model)):
        method = inspect.getattr_static(type(model), name)
        if name.startswith("_") or hasattr(Model, name) or not inspect.isfunction(method):
            continue
        if not method.__doc__:
            yield f"{name} has no docstring"
        yield from _undescribed(name, method)
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            # A method may take inputs themselves; a number of them is a dimension.
            if parameter.name in FORBIDDEN_NAMES and parameter.name != "inputs":
                yield f"the argument {parameter.name} of {name} should be {FORBIDDEN_NAMES[parameter.name]}"


def _vectorised(model: Model, seeds: int) -> Iterator[str]:
    """``jax.vmap`` over the fields for which the model promises it gives what single models give."""
    times = _few_times(model)
    for name in type(model).vectorised_fields:
        value = float(getattr(model, name))
        values = np.array([value, 1.01 * value])
        found = jax.vmap(lambda number, name=name: _losses(model.replace(**{name: number}), times))(values)
        single = np.stack([np.asarray(_losses(model.replace(**{name: float(number)}), times)) for number in values])
        if not np.allclose(found, single, rtol=1e-8, atol=1e-12 * np.abs(single).max()):
            yield f"jax.vmap over {name} gives other losses than single models"


def _losses(model: Model, times: np.ndarray) -> Any:
    return model.predict(times)["test_loss"].data


_PARTS: tuple[Callable[[Model, int], Iterator[str]], ...] = (
    _fields,
    _tree,
    _signatures,
    _methods,
    _verbs,
    _other_trainings,
    page_lines,
    _vectorised,
)
