"""The contract that every model keeps: validated parameters in, labelled and documented datasets out."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import equinox as eqx
import jax
import numpy as np
import xarray as xr

from solvable.checks import Rule, as_number, check_array, check_value
from solvable.controls import Controls
from solvable.coverage import Covers, check_training
from solvable.dataset import VARIABLES, Meaning, Stopwatch, make_dataset, provenance
from solvable.display import table
from solvable.docstrings import SHARED, describe_arguments, with_parameters
from solvable.precision import in_float64
from solvable.timegrid import check_times
from solvable.training import GradientFlow, Training

# Options that mean the same in every model, for the signatures of its methods.
Seeds = Annotated[int, "number of independent runs"]
Key = Annotated[int, "random seed of the first run"]
MemoryLimit = Annotated[float | None, "memory in bytes for the runs that are trained together"]


def parameter(
    help: str,
    rule: Rule,
    *,
    symbol: str,
    default: Any = dataclasses.MISSING,
    optional: bool = False,
    infinite: bool = False,
) -> Any:
    """Declare a field of a model.

    Lists and matrices are stored as NumPy arrays, numbers as plain Python numbers.

    Parameters
    ----------
    help
        What the parameter means, in a few words; shown by ``--help``, on the page and in error messages.
    rule
        The rule that its values must keep.
    symbol
        The letter that the paper gives it.
    default
        The default value.
    optional
        Whether the value may be None.
    infinite
        Whether None stands for infinitely many; infinity is then accepted as well, and shown as ``inf``.
    """
    metadata = {"help": help, "symbol": symbol, "rule": rule, "optional": optional or infinite, "infinite": infinite}
    convert = _as_array if rule.dimensions else _as_finite_number if infinite else as_number
    return eqx.field(default=default, metadata=metadata, converter=convert)


def choice(help: str, *, symbol: str, default: str, choices: tuple[str, ...]) -> Any:
    """Declare a field that takes one of a few names; it is part of the structure, not a number to differentiate.

    Parameters
    ----------
    help
        What the parameter means, in a few words.
    symbol
        The letter that the paper gives it.
    default
        The default name.
    choices
        The names that are allowed.
    """
    rule = Rule("one of " + ", ".join(choices), choices.__contains__)
    metadata = {"help": help, "symbol": symbol, "rule": rule, "optional": False}
    return eqx.field(default=default, metadata=metadata, static=True)


def function(help: str, parse: Callable[[Any], Any], *, symbol: str, default: Callable[..., Any]) -> Any:
    """Declare a field that is a function.

    Parameters
    ----------
    help
        What the function is, in a few words.
    parse
        Turns the names of known functions into functions.
    symbol
        The letter that the paper gives it.
    default
        The default function.
    """
    rule = Rule("a function, or the name of one", callable, function=True)
    metadata = {"help": help, "symbol": symbol, "rule": rule, "optional": False}
    return eqx.field(default=default, metadata=metadata, converter=parse, static=True)


def _as_finite_number(value: Any) -> Any:
    """As :func:`as_number`, but None in place of infinity."""
    number = as_number(value)
    return None if isinstance(number, float) and number == math.inf else number


def _as_array(value: Any) -> Any:
    """Convert to a float64 array. Values that cannot be converted are returned unchanged; the check rejects them."""
    if value is None or isinstance(value, str | jax.core.Tracer):
        return value
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return value


class Model(eqx.Module):
    """Base class of the models: what learns what, from which start. How it is trained is a :class:`Training`.

    Subclasses declare their fields with :func:`parameter`, and define ``predict(times, training=None, ...)`` and
    ``simulate(times, training=None, *, seeds, key, ...)``, which both return an :class:`xarray.Dataset` with the shared
    names of :data:`solvable.dataset.VARIABLES`.

    A model is a PyTree. Building one inside a function that JAX transforms works: the fields may be traced, rules are
    then not checked, and ``predict`` returns a dataset that holds traced arrays. All public methods compute in float64
    (see :mod:`solvable.precision`).

    >>> import solvable
    >>> model = solvable.ParityMode(target_scale=5.0)
    >>> model.replace(target_scale=2.0).target_scale
    2.0
    >>> model.replace(target_scale="large")
    Traceback (most recent call last):
        ...
    ValueError: target_scale must be a positive finite number, not 'large' (size of the target)
    """

    # The name under which the model is registered.
    name: ClassVar[str]
    # The convention of the losses, such as "mean square over samples, without a factor 1/2".
    loss_convention: ClassVar[str] = ""
    # The training of ``predict`` and ``simulate`` if none is given: that of the paper.
    default_training: ClassVar[Training] = GradientFlow()
    # What ``predict`` and ``simulate`` cover.
    theory_covers: ClassVar[tuple[Covers, ...]] = (Covers(GradientFlow),)
    simulation_covers: ClassVar[tuple[Covers, ...]] = (Covers(GradientFlow),)
    # The learning rate of gradient descent on the command line and the page, where the default training is a flow.
    usual_learning_rate: ClassVar[float] = 0.01
    # The times that the command line and the page ask for if they are given none, for the default training.
    usual_times: ClassVar[str] = "1:1e5:60log"

    # Numeric fields over which ``jax.vmap`` of ``predict`` is promised to work.
    vectorised_fields: ClassVar[tuple[str, ...]] = ()
    # What the page shows of the model: sliders, cards, planes.
    controls: ClassVar[Controls] = Controls()
    # What the variables of its datasets are, where they are not those of every model.
    meanings: ClassVar[Mapping[str, Meaning]] = VARIABLES

    def __init_subclass__(cls, **options: Any) -> None:
        """Public methods run in float64, stamp their datasets with the seconds they took, and are fully documented."""
        super().__init_subclass__(**options)
        fields = getattr(cls, "__dataclass_fields__", {})
        for name, attribute in list(vars(cls).items()):
            if isinstance(attribute, dataclasses.Field):
                fields = {**fields, name: attribute}
            elif name.startswith("_"):
                continue
            elif isinstance(attribute, classmethod):
                describe_arguments(attribute.__func__, SHARED)
            elif isinstance(attribute, property) and attribute.fget is not None:
                setattr(cls, name, property(in_float64(attribute.fget), doc=attribute.__doc__))
            elif callable(attribute) and not isinstance(attribute, type):
                describe_arguments(attribute, {**SHARED, "training": cls._trainings_text(name)})
                setattr(cls, name, in_float64(_timed(attribute)))
        texts = {name: field.metadata["help"] for name, field in fields.items() if "help" in field.metadata}
        if cls.__doc__ and texts:
            cls.__doc__ = with_parameters(cls.__doc__, texts)

    @classmethod
    def predict_many(
        cls, models: Sequence[Any], times: Any, trainings: Sequence[Training], **options: Any
    ) -> list[xr.Dataset] | None:
        """Predictions of several models in one program; None for models and options without one.

        Sweeps on an accelerator use it for models that JAX cannot trace. Models that it can trace need none.

        Parameters
        ----------
        models
            Models of this class.
        times
            Increasing times, the same for all.
        trainings
            The training of each model.
        **options
            Options of ``predict``.
        """
        return None

    @classmethod
    def _trainings_text(cls, method: str) -> str:
        covers = cls.simulation_covers if method.startswith("simulate") else cls.theory_covers
        return f"how the model is trained: {'; '.join(map(str, covers))}; by default {cls.default_training!r}"

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            if "rule" in field.metadata:
                check_field(field, getattr(self, field.name))

    def predict(self, times: Any, training: Training | None = None) -> xr.Dataset:
        """Predict the curves at the given times from theory.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        training
            How the model is trained; None for its default training.
        """
        raise NotImplementedError

    def simulate(self, times: Any, training: Training | None = None, *, seeds: int = 10, key: int = 0) -> xr.Dataset:
        """Train the finite-size system described by the theory, once for each seed.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        training
            How the model is trained; None for its default training.
        seeds
            Number of independent runs.
        key
            Random key from which the seeds are derived.
        """
        raise NotImplementedError

    def check_run(self, times: Any, training: Training | None, verb: str) -> tuple[np.ndarray, Training]:
        """Return checked times and the training (or the default one), if ``verb`` covers it at these times.

        Times count whole steps unless the training is a flow. Schedules are evaluated up to the last time, so that a
        rate that is negative or NaN at some step is refused before the work begins.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        training
            How the model is trained; None for its default training.
        verb
            ``"predict"`` or ``"simulate"``.
        """
        training = self.check_training(training, verb)
        times = check_times(times, whole=training.counts_steps)
        training.check_schedules(int(times[-1]))
        return times, training

    def check_training(self, training: Training | None, verb: str) -> Training:
        """Return the training, or the default one, if ``verb`` (``"predict"`` or ``"simulate"``) covers it.

        Parameters
        ----------
        training
            How the model is trained; None for its default training.
        verb
            ``"predict"`` or ``"simulate"``.
        """
        chosen = self.default_training if training is None else training
        if verb == "predict":
            nearest = self._covers_simulation(chosen)
            otherwise = "simulate covers it" if nearest else f"The default is {self.default_training!r}"
            return check_training(chosen, self.theory_covers, f"the theory of {self.name}", f"{otherwise}.")
        otherwise = f"The default is {self.default_training!r}."
        return check_training(chosen, self.simulation_covers, f"the simulation of {self.name}", otherwise)

    def _covers_simulation(self, training: Any) -> bool:
        try:
            check_training(training, self.simulation_covers, "", "")
        except ValueError:
            return False
        return True

    def dataset(
        self,
        method: str,
        variables: Mapping[str, Any],
        coordinates: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        *,
        training: Training | None = None,
        system: Mapping[str, Any] | None = None,
        error: float | None = None,
        error_scale: str = "value",
        meanings: Mapping[str, Meaning] | None = None,
        may_diverge: bool = False,
        samples: float | None = None,
    ) -> xr.Dataset:
        """Label results of this model: names, units and provenance. For the methods of models.

        Parameters
        ----------
        method
            ``"theory"``, ``"simulation"``, ``"asymptotic theory"`` or another short description.
        variables
            Values of each variable by name, or a pair of its dimensions and its values. Values without dimensions run
            over the first of the coordinates, as many as they have axes.
        coordinates
            Values of each coordinate, by name; each is its own dimension.
        settings
            Options of the solver or of the simulation.
        training
            How the model was trained. It gives ``time`` its unit, and the coordinates ``flow_time`` and, where batches
            are drawn from a training set, ``epochs`` beside it.
        system, error, error_scale
            As in :func:`solvable.dataset.provenance`, where the error is called ``numerical_error``.
        meanings
            What the variables are; by default those of the class variable ``meanings``.
        may_diverge
            Whether curves over time may be infinite or NaN.
        samples
            Size of the training set; by default the parameter ``samples`` of the model, if it has one.
        """
        samples = getattr(self, "samples", None) if samples is None else samples
        attributes = provenance(
            self, method, settings or {}, error, training=training, error_scale=error_scale, system=system
        )
        return make_dataset(
            variables,
            coordinates or {},
            attributes,
            meanings or self.meanings,
            may_diverge,
            training=training,
            samples=samples,
        )

    def parameters(self) -> dict[str, Any]:
        """The parameters by name, as plain numbers."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some parameters changed, checked like any other.

        Parameters
        ----------
        **changes
            New values, by the names of the parameters.
        """
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
        """For notebooks: every parameter with its symbol, its value and what it means."""
        shown = self._shown()
        rows = [
            (about.get("symbol", ""), name, shown[name], about.get("help", ""))
            for name, about in ((field.name, field.metadata) for field in dataclasses.fields(self))
        ]
        return table(f"{type(self).__name__} ({self.name})", ("symbol", "parameter", "value", "meaning"), rows)


def _timed(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method; the datasets that it returns say how many seconds it took."""

    @functools.wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        watch = Stopwatch()
        found = method(*arguments, **options)
        if isinstance(found, xr.Dataset):
            found.attrs["seconds"] = watch.seconds()
        return found

    return call


def _short(value: Any) -> str:
    """A value as it is written in Python; of long arrays the beginning."""
    if isinstance(value, np.ndarray):
        return np.array2string(value, separator=", ", threshold=6, edgeitems=3, precision=6)
    return repr(value)


def check_field(field: dataclasses.Field[Any], value: Any) -> None:
    """Raise a ValueError that names the parameter, its value and its rule, if the value breaks it."""
    about = field.metadata
    if isinstance(value, jax.core.Tracer) or (value is None and about["optional"]):
        return
    rule: Rule = about["rule"]
    if rule.function or isinstance(field.default, str):
        if not rule.test(value):
            raise ValueError(f"{field.name} must be {rule.text}, not {value!r} ({about['help']})")
    elif rule.dimensions:
        check_array(field.name, value, rule)
    else:
        check_value(field.name, value, rule, about["optional"], about["help"], about.get("infinite", False))
