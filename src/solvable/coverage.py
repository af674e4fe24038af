"""What the theory and the simulation of a model cover of the ways to train, and the error that names it."""

import dataclasses
import inspect
from collections.abc import Iterable
from typing import Any

import jax

from solvable.training import SGD, Schedule, Training


@dataclasses.dataclass(frozen=True)
class Covers:
    """What a theory or a simulation covers of one kind of training; everything not named is not covered.

    Parameters
    ----------
    kind
        :class:`GradientFlow`, :class:`GradientDescent` or :class:`SGD`.
    options
        Options that may differ from their defaults, besides a constant learning rate and batch size.
    sampling
        For SGD, the ways of drawing batches; the first is meant where none is given.
    schedules
        Options that may follow a schedule.
    """

    kind: type[Training]
    options: tuple[str, ...] = ()
    sampling: tuple[str, ...] = ()
    schedules: tuple[str, ...] = ()

    def __str__(self) -> str:
        names = [*self.options, *(f"schedules of {name}" for name in self.schedules)]
        words = f"{self.kind.__name__}" + (f" with {', '.join(names)}" if names else "")
        return words + (f" (sampling {' or '.join(map(repr, self.sampling))})" if self.sampling else "")

    def trouble(self, training: Training) -> str | None:
        """What of a training of this kind is not covered, in words; None if all is."""
        for field in dataclasses.fields(training):
            value = getattr(training, field.name)
            if isinstance(value, Schedule):
                if field.name not in self.schedules:
                    return f"a schedule of {field.name}"
            elif field.name == "sampling":
                if value is not None and value not in self.sampling:
                    return f"sampling={value!r}"
            elif field.name not in ("learning_rate", "batch_size", *self.options) and (
                isinstance(value, jax.core.Tracer) or value != field.default
            ):
                return f"{field.name}={value!r}"
        return None


def check_training(training: Any, covered: Iterable[Covers], what: str, otherwise: str) -> Training:
    """The training with its sampling filled in, or a ValueError that says what is covered and what comes nearest."""
    covered = tuple(covered)
    if not isinstance(training, Training):
        hint = f": write {training.__name__}(...)" if inspect.isclass(training) else ""
        raise ValueError(
            f"training must be GradientFlow(...), GradientDescent(...) or SGD(...), not {training!r}{hint}"
        )
    listed = "; ".join(map(str, covered))
    for cover in covered:
        if type(training) is cover.kind:
            trouble = cover.trouble(training)
            if trouble is None:
                if isinstance(training, SGD) and training.sampling is None and cover.sampling:
                    return training.replace(sampling=cover.sampling[0])
                return training
            raise ValueError(f"{what} does not cover {trouble}; it covers {listed}. {otherwise}")
    raise ValueError(f"{what} does not cover {type(training).__name__}; it covers {listed}. {otherwise}")
