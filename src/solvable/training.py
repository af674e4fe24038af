"""How a model is trained: gradient flow, gradient descent or mini-batch SGD.

The same training object goes to ``predict`` and to ``simulate``, so that theory and simulation are about the same run:

>>> import solvable
>>> model = solvable.LinearEstimator(aspect_ratio=0.9)
>>> training = solvable.GradientDescent(learning_rate=0.02)
>>> curve = model.predict([0, 100, 1000], training)
>>> curve.flow_time.values
array([ 0.,  2., 20.])

Learning rates and batch sizes are numbers or *schedules*: functions of the step, in Optax's convention, so that
``optax.cosine_decay_schedule(0.1, 1000)`` works as it is. Step ``s`` leads from time ``s`` to time ``s + 1``.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import numpy as np

from solvable.checks import Rule, as_number, check_value, rules

# Schedules are evaluated this many steps at a time, so that a long run does not need a long list of rates.
_CHUNK = 65536
_PANEL_NODES = 4
SAMPLING = ("online", "subsets", "replacement", "epochs", "cyclic")


class Schedule(eqx.Module):
    """A function of the step, as Optax makes them; equal functions are equal schedules, and hash alike."""

    function: Callable[[Any], Any] = eqx.field(static=True)

    def __call__(self, step: Any) -> Any:
        return self.function(step)

    def __repr__(self) -> str:
        return getattr(self.function, "__qualname__", None) or repr(self.function)


Rate = float | Schedule


def _number_or_schedule(value: Any) -> Any:
    if isinstance(value, Schedule) or not callable(value):
        return as_number(value)
    return Schedule(value)


def option(
    help: str, rule: Rule, *, default: Any = dataclasses.MISSING, schedule: bool = False, symbol: str = ""
) -> Any:
    """A field of a training: what it means, the rule it must keep, and whether it may be a schedule."""
    metadata = {"help": help, "rule": rule, "schedule": schedule, "symbol": symbol, "optional": default is None}
    return eqx.field(default=default, metadata=metadata, converter=_number_or_schedule)


MOMENTUM = Rule("a number from 0 up to, but not including, 1", lambda value: 0 <= value < 1)
_FRACTION = Rule("a number above 0 and at most 1", lambda value: 0 < value <= 1)
STEP = Rule("a whole number, zero or more", lambda value: value >= 0 and float(value).is_integer())


def _check_scheduled(name: str, found: np.ndarray, first: int, field: dataclasses.Field) -> None:
    """Raise a ValueError that names the first step at which a schedule breaks the rule of its option."""
    if found.ndim != 1:
        raise ValueError(
            f"{name} must be one number at every step, but its schedule gives an array of shape {found.shape[1:]} "
            f"at step {first}: change the schedule"
        )
    rule = field.metadata["rule"]
    # Learning rates may be zero at a step, although not throughout: warm-ups begin there and decays end there.
    if name.endswith("learning_rate"):
        rule = Rule("a finite number, zero or more", lambda value: math.isfinite(value) and value >= 0)
    bad = [place for place, value in enumerate(found) if not rule.test(value)]
    if bad:
        raise ValueError(
            f"{name} must be {rule.text} at every step, but its schedule gives {found[bad[0]]:g} at step "
            f"{first + bad[0]}: change the schedule"
        )


class Training(eqx.Module):
    """Base class of the ways to train. Use :class:`GradientFlow`, :class:`GradientDescent` or :class:`SGD`."""

    # What the command line and the page call this training.
    name: ClassVar[str]
    # Whether time counts steps. Otherwise it is flow time divided by the learning rate.
    counts_steps: ClassVar[bool] = True

    def __check_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if "rule" not in field.metadata:
                continue
            if isinstance(value, Schedule):
                if not field.metadata["schedule"]:
                    raise ValueError(f"{field.name} must be {field.metadata['rule'].text}, not a schedule")
                continue
            check_value(field.name, value, field.metadata["rule"], field.metadata["optional"], field.metadata["help"])

    def parameters(self) -> dict[str, Any]:
        """The options by name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def replace(self, **changes: Any) -> Self:
        """A copy with some options changed, checked like any other.

        Parameters
        ----------
        **changes
            New values, by the names of the options.
        """
        known = self.parameters()
        unknown = sorted(set(changes) - set(known))
        if unknown:
            raise ValueError(f"{type(self).__name__} has no option {unknown[0]!r}; it has {', '.join(known)}")
        return type(self)(**{**known, **changes})

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields
            if isinstance(getattr(self, field.name), jax.core.Tracer | Schedule)
            or field.default is dataclasses.MISSING
            or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def is_constant(self) -> bool:
        """Whether nothing follows a schedule."""
        return not any(isinstance(value, Schedule) for value in self.parameters().values())

    @property
    def speed(self) -> float:
        """Flow time that passes in a unit of time, which momentum multiplies; of a schedule, its largest rate."""
        rate: Any = self.learning_rate  # type: ignore[attr-defined]
        largest = float(np.max(self.learning_rates(0, 1000))) if isinstance(rate, Schedule) else float(rate)
        return largest / (1 - float(np.max(self.momenta(0, 1000))))

    def check_schedules(self, last: int) -> None:
        """Raise a ValueError that names the first step before ``last`` at which a schedule breaks its rule.

        Parameters
        ----------
        last
            Number of steps to check.
        """
        for name, value in self.parameters().items():
            if isinstance(value, Schedule):
                for first in range(0, last, _CHUNK):
                    self._scheduled(name, first, min(first + _CHUNK, last))

    def learning_rates(self, first: int, last: int) -> np.ndarray:
        """The learning rate of each step from ``first`` up to, but not including, ``last``; checked step by step.

        Parameters
        ----------
        first
            The first step.
        last
            The step before which to stop.
        """
        return self._scheduled("learning_rate", first, last)

    def rate_at(self, step: Any) -> Any:
        """The learning rate of one step, whose number may be traced by JAX.

        Parameters
        ----------
        step
            Number of the step.
        """
        return self._value_at("learning_rate", step)

    def momentum_at(self, step: Any) -> Any:
        """The momentum of one step, whose number may be traced by JAX; 0 for trainings without.

        Parameters
        ----------
        step
            Number of the step.
        """
        return self._value_at("momentum", step) if hasattr(self, "momentum") else 0.0

    def momenta(self, first: int, last: int) -> np.ndarray:
        """The momentum of each step from ``first`` up to, but not including, ``last``; checked step by step.

        Parameters
        ----------
        first
            The first step.
        last
            The step before which to stop.
        """
        return self._scheduled("momentum", first, last) if hasattr(self, "momentum") else np.zeros(last - first)

    def flow_time(self, times: Any) -> Any:
        """The flow time ``sum_s learning_rate(s)`` that has passed at each time.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        """
        times = np.asarray(times, float)
        rate: Any = self.learning_rate  # type: ignore[attr-defined]
        if not isinstance(rate, Schedule):
            return times * rate
        passed, found, begin = 0.0, np.zeros(times.size), 0
        for place, time in enumerate(times):
            for first in range(begin, int(time), _CHUNK):
                passed += float(np.sum(self.learning_rates(first, min(first + _CHUNK, int(time)))))
            found[place], begin = passed, int(time)
        return found

    def epochs(self, times: Any, samples: float | None = None) -> np.ndarray | None:
        """How often the training set has been passed at each time; None where batches are not drawn from one.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        samples
            Size of the training set; None where it is not known.
        """
        return None

    def _value_at(self, name: str, step: Any) -> Any:
        value = getattr(self, name)
        return value(step) if isinstance(value, Schedule) else value

    def _scheduled(self, name: str, first: int, last: int) -> np.ndarray:
        value = getattr(self, name)
        if not isinstance(value, Schedule):
            return np.full(last - first, value, float)
        steps = np.arange(first, last)
        with jax.enable_x64(True):
            found = np.asarray(jax.vmap(value)(steps), float) if steps.size else np.zeros(0)
        _check_scheduled(name, found, first, next(field for field in dataclasses.fields(self) if field.name == name))
        return found


class GradientFlow(Training):
    """Gradient flow, the limit of small learning rates: ``dw/dt = -learning_rate (grad L + weight_decay w)``.

    Time is flow time divided by the learning rate; with the default learning rate of 1 it is flow time. A schedule only
    changes the clock: the flow time at time t is the integral of the learning rate up to t.

    Parameters
    ----------
    learning_rate
        How fast time passes. With the learning rate of a gradient descent, times are comparable to its steps. A number
        or a schedule: a function of the time, which may jump at whole numbers.
    weight_decay
        Strength of the penalty ``weight_decay / 2 |w|^2``, in the units of the model's loss.
    """

    name: ClassVar[str] = "flow"
    counts_steps: ClassVar[bool] = False

    learning_rate: Any = option(
        "learning rate: how fast time passes", rules.positive, default=1.0, schedule=True, symbol="η"
    )
    weight_decay: float = option("strength of weight decay", rules.not_negative, default=0.0, symbol="γ")

    def flow_time(self, times: Any) -> Any:
        """The integral of the learning rate up to each time.

        Parameters
        ----------
        times
            Increasing times, in the units of the training.
        """
        if not isinstance(self.learning_rate, Schedule):
            return super().flow_time(times)
        times = np.asarray(times, float)
        # Gauss-Legendre panels that end at whole numbers, where schedules may jump, and at the times asked for.
        whole = np.linspace(0.0, np.ceil(times[-1]), int(min(np.ceil(times[-1]), _CHUNK)) + 1)
        edges = np.union1d(whole, times)
        points, weights = np.polynomial.legendre.leggauss(_PANEL_NODES)
        middles, halves = (edges[1:] + edges[:-1]) / 2, np.diff(edges) / 2
        with jax.enable_x64(True):
            rates = np.asarray(jax.vmap(self.learning_rate)((middles[:, None] + halves[:, None] * points).ravel()))
        areas = (rates.reshape(-1, _PANEL_NODES) @ weights) * halves
        return np.append(0.0, np.cumsum(areas))[np.searchsorted(edges, times)]


class GradientDescent(Training):
    """Full-batch gradient descent: ``w <- w - learning_rate (grad L + weight_decay w)`` at every step.

    With momentum, ``v <- momentum v + grad L + weight_decay w``, ``w <- w - learning_rate v`` (heavy ball);
    Nesterov's variant moves by ``grad L + weight_decay w + momentum v``. PyTorch and Optax have the same conventions.

    Parameters
    ----------
    learning_rate
        Learning rate, or a schedule: a function of the step.
    momentum
        Momentum, from 0 (plain gradient descent) up to, but not including, 1; or a schedule.
    nesterov
        Whether momentum is Nesterov's rather than the heavy ball's.
    weight_decay
        Strength of the penalty ``weight_decay / 2 |w|^2``, in the units of the model's loss.
    decoupled
        Whether weight decay is decoupled from momentum, as in AdamW: ``w <- w - learning_rate (v + weight_decay w)``
        with a velocity ``v`` of the loss alone. Without momentum it makes no difference.
    feature_learning_rate
        Learning rate of the first layer, or a schedule; None for the ``learning_rate`` of the readout.
    ema_decay
        Decay of an exponential moving average of the weights, ``average <- ema_decay average + (1 - ema_decay) w``
        after every step. Training does not see it; its loss is given beside that of the weights.
    average_from
        The step from which on the weights are averaged, all with equal weight (tail or stochastic weight averaging),
        in place of ``ema_decay``.
    max_gradient_norm
        Largest norm of the gradient of all weights together; longer gradients are shortened to it (gradient clipping).
    temperature
        Temperature of Langevin dynamics: every step adds noise of variance ``2 learning_rate temperature`` to each
        weight.
    readout_learning_rate
        Learning rate of the readout; None where it is not trained.
    """

    name: ClassVar[str] = "descent"

    learning_rate: Any = option("learning rate", rules.positive, schedule=True, symbol="η")
    momentum: Any = option("momentum", MOMENTUM, default=0.0, schedule=True)
    nesterov: bool = eqx.field(default=False, static=True, metadata={"help": "whether momentum is Nesterov's"})
    weight_decay: float = option("strength of weight decay", rules.not_negative, default=0.0, symbol="γ")
    decoupled: bool = eqx.field(
        default=False, static=True, metadata={"help": "whether weight decay is decoupled from momentum, as in AdamW"}
    )
    feature_learning_rate: Any = option(
        "learning rate of the first layer, if it differs", rules.positive, default=None, schedule=True, symbol="η_A"
    )
    ema_decay: float | None = option("decay of an exponential moving average of the weights", MOMENTUM, default=None)
    average_from: int | None = option("step from which on the weights are averaged", STEP, default=None)
    max_gradient_norm: float | None = option("largest norm of the gradient", rules.positive, default=None)
    temperature: float = option("temperature of Langevin noise", rules.not_negative, default=0.0, symbol="T")
    readout_learning_rate: float | None = option(
        "learning rate of the readout, if it is trained", rules.positive, default=None, symbol="η_c"
    )

    def __check_init__(self) -> None:
        Training.__check_init__(self)
        for name in ("nesterov", "decoupled"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, not {getattr(self, name)!r}")
        check_averaging(self)
        if self.nesterov and not isinstance(self.momentum, jax.core.Tracer) and not self.momentum:
            raise ValueError("nesterov=True needs a momentum above 0")

    def feature_rate_at(self, step: Any) -> Any:
        """The learning rate of the first layer at one step, whose number may be traced by JAX."""
        return self._value_at(self._feature_rate, step)

    def feature_learning_rates(self, first: int, last: int) -> np.ndarray:
        """The learning rate of the first layer in each step from ``first`` up to, but not including, ``last``."""
        return self._scheduled(self._feature_rate, first, last)

    @property
    def _feature_rate(self) -> str:
        return "learning_rate" if self.feature_learning_rate is None else "feature_learning_rate"


def _is_traced(*values: Any) -> bool:
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(values))


def check_averaging(training: Any) -> None:
    """Raise a ValueError if two averages of the weights are asked for."""
    if training.ema_decay is not None and training.average_from is not None:
        raise ValueError("give ema_decay, or average_from, but not both: there is one average of the weights")


class SGD(GradientDescent):
    """Mini-batch stochastic gradient descent: as :class:`GradientDescent`, with the gradient of a batch at every step.

    Parameters
    ----------
    learning_rate, momentum, nesterov, weight_decay, decoupled, feature_learning_rate, ema_decay, average_from
        As in :class:`GradientDescent`.
    max_gradient_norm, temperature, readout_learning_rate
        As in :class:`GradientDescent`.
    batch_size
        Number of samples in each batch, or a schedule: a function of the step.
    batch_fraction
        The batch as a fraction of the training set, in place of ``batch_size``.
    sampling
        Where a batch comes from. ``"online"``: new samples at every step, none is reused. From a training set that is
        kept: ``"subsets"``, an independent random subset at each step; ``"replacement"``, samples drawn with
        replacement; ``"epochs"``, all samples in a new order every epoch; ``"cyclic"``, in the same order every epoch.
        Left out, it is ``"online"`` where the model keeps no training set, and what its paper does otherwise.
    """

    name: ClassVar[str] = "sgd"

    batch_size: Any = option("samples in each batch", rules.count, default=None, schedule=True, symbol="B")
    batch_fraction: float | None = option("batch as a fraction of the training set", _FRACTION, default=None)
    sampling: str | None = eqx.field(default=None, static=True, metadata={"help": "where a batch comes from"})

    def __check_init__(self) -> None:
        GradientDescent.__check_init__(self)
        if (self.batch_size is None) == (self.batch_fraction is None):
            raise ValueError(
                "give batch_size, or batch_fraction, but not both: SGD needs to know how large a batch is "
                "(full batches are GradientDescent)"
            )
        check_sampling(self.sampling)

    def batch_sizes(self, first: int, last: int) -> np.ndarray:
        """The batch size of each step from ``first`` up to, but not including, ``last``; checked step by step.

        Parameters
        ----------
        first
            The first step.
        last
            The step before which to stop.
        """
        return self._scheduled("batch_size", first, last).astype(int)

    def epochs(self, times: Any, samples: float | None = None) -> np.ndarray | None:
        """How often the training set has been passed at each time: the samples of all batches over its size.

        Parameters
        ----------
        times
            Increasing numbers of steps.
        samples
            Size of the training set, which a ``batch_fraction`` does not need; None where it is not known.
        """
        times = np.asarray(times, float)
        if self.sampling is None or self.sampling == "online" or _is_traced(self, samples):
            return None
        if samples is None or math.isinf(samples):
            return None if self.batch_fraction is None else times * self.batch_fraction
        if isinstance(self.batch_size, Schedule):
            drawn = np.append(0, np.cumsum(self.batch_sizes(0, int(times[-1]))))
            return drawn[times.astype(int)] / samples
        return times * self.samples_per_batch(samples) / samples

    def samples_per_batch(self, samples: float = math.inf) -> Any:
        """Batch size for a training set of ``samples``, which it must not exceed.

        Parameters
        ----------
        samples
            Size of the training set; infinite for new samples.
        """
        if self.batch_fraction is None:
            size = self.batch_size
        elif samples == math.inf:
            raise ValueError("batch_fraction needs a training set of finite size: give batch_size")
        else:
            size = max(1, round(self.batch_fraction * samples))
        if self.sampling != "replacement" and isinstance(size, int) and size > samples:
            raise ValueError(f"batch_size = {size} is larger than the training set of {samples:g} samples: lower it")
        return size


def check_sampling(sampling: str | None) -> None:
    """Raise a ValueError unless there is such a way of drawing batches."""
    if sampling is not None and sampling not in SAMPLING:
        raise ValueError(f"sampling must be one of {', '.join(map(repr, SAMPLING))}, not {sampling!r}")


TRAININGS: Mapping[str, type[Training]] = {kind.name: kind for kind in (GradientFlow, GradientDescent, SGD)}
