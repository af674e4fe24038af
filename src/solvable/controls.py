"""What a model states for the page: ranges of sliders, numbers that summarise a setting, and the plane to show first.

A rule says which values of a parameter are allowed; controls say which are worth showing. Everything has a default, so
that a model without controls has a page as well.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from solvable.story import Explanation, Story, SystemView


@dataclasses.dataclass(frozen=True)
class Slider:
    """A slider from ``low`` to ``high``.

    Its stops are texts, rounded to three or four digits, as one would type them.

    Parameters
    ----------
    low, high
        First and last number.
    log
        Whether the stops are evenly spaced in the logarithm.
    whole
        Whether the stops are whole numbers.
    before, after
        Extra stops at either end, such as ``("inf",)``; an empty text stands for None.
    count
        Number of steps between ``low`` and ``high``.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    count: int = 100

    def stops(self) -> tuple[str, ...]:
        """All texts that the slider can take, in order."""
        values = (np.geomspace if self.log else np.linspace)(self.low, self.high, self.count + 1)
        if self.whole:
            values = np.unique(np.round(values))
        digits = 3 if self.log else 4
        texts = dict.fromkeys(_short(float(f"{value:.{digits}g}"), self.whole) for value in values)
        return (*self.before, *texts, *self.after)


def _short(value: float, whole: bool) -> str:
    return str(int(value)) if whole or (value.is_integer() and abs(value) < 1e6) else repr(value)


def log_slider(low: float, high: float, **options: Any) -> Slider:
    """A slider that is even in the logarithm.

    Parameters
    ----------
    low, high
        Its ends.
    **options
        As in :class:`Slider`.
    """
    return Slider(low, high, log=True, **options)


# Sliders of the options that many models share: those of trainings, and of simulations.
SHARED_SLIDERS: Mapping[str, Slider] = {
    "learning_rate": log_slider(1e-4, 2),
    "momentum": Slider(0, 0.99, count=99),
    "warm_up": Slider(0, 0.5, count=50),
    "decay": Slider(0.02, 0.5, count=48),
    "weight_decay": log_slider(1e-6, 1, before=("0",)),
    "batch_size": log_slider(1, 4096, whole=True, count=60),
    "batch_fraction": Slider(0.01, 1, count=99),
    "dimension": log_slider(50, 2000, whole=True, count=40),
    "seeds": Slider(2, 64, whole=True, count=62),
    "samples": log_slider(10, 1e5, whole=True, after=("",), count=60),
    "modes": log_slider(2, 1000, whole=True, before=("",), count=60),
    "per_decade": Slider(4, 32, whole=True, count=28),
}


@dataclasses.dataclass(frozen=True)
class Summary:
    """A number or a word that summarises a setting: a card on the page, and a quantity to draw over two parameters.

    Parameters
    ----------
    name
        Short name, part of addresses.
    label
        What the number is, in a few words.
    of
        Function of the model and the training that gives the number, an array without axes, or a word.
    unit
        Unit of the number; ``"time"`` stands for the unit of time of the training, steps or flow time.
    planar
        Whether it can be drawn over two parameters.
    over
        Function of the model, the training and a mapping from two parameters to grids, which gives the whole plane at
        once as a DataArray over them; None where it cannot.
    undefined
        What it means where there is no number, such as "never groks": the name of that region of a plane.
    """

    name: str
    label: str
    of: Callable[[Any, Any], Any]
    unit: str = ""
    planar: bool = True
    over: Callable[[Any, Any, Mapping[str, np.ndarray]], xr.DataArray | None] | None = None
    undefined: str = ""


@dataclasses.dataclass(frozen=True)
class Controls:
    """What the page shows of a model.

    Parameters
    ----------
    sliders
        Sliders by parameter or option; of lists and matrices, the slider of each entry.
    start
        Texts that the page starts with, where they are not the defaults: sizes that two cores simulate in seconds. A
        ``batch_size`` or ``batch_fraction`` here is the one that SGD starts with when it is chosen.
    units
        Units of parameters, where they have any.
    summaries
        The cards.
    plane
        Quantity and two axes of the plane that is shown first. ``"end_loss"`` is the test loss at the last time.
    slow
        Whether theory takes seconds for a given model and training.
    quick
        Function of the model and the training that gives options of ``predict`` for a quick look, which the page shows
        while a slider moves and until the slow theory is there; no options where there is no quicker way.
    stories
        The guided stories; the first one's question stands above the model's thumbnail.
    explain
        Function of the model, the training and the predicted dataset that says what to see in the curves.
    system
        Function of the model, the training and the times that makes the picture of the system over time.
    """

    sliders: Mapping[str, Slider] = dataclasses.field(default_factory=dict)
    start: Mapping[str, str] = dataclasses.field(default_factory=dict)
    units: Mapping[str, str] = dataclasses.field(default_factory=dict)
    summaries: tuple[Summary, ...] = ()
    plane: tuple[str, str, str] = ("end_loss", "", "")
    slow: Callable[[Any, Any], bool] = lambda model, training: False
    quick: Callable[[Any, Any], Mapping[str, Any]] = lambda model, training: {}
    stories: tuple[Story, ...] = ()
    explain: Callable[[Any, Any, xr.Dataset], Explanation] | None = None
    system: Callable[[Any, Any, np.ndarray], SystemView] | None = None


def of_method(method: str, variable: str, **options: Any) -> Callable[[Any, Any], Any]:
    """A summary that is a variable in what a method of the model returns.

    Parameters
    ----------
    method
        Name of the method.
    variable
        Name of the variable.
    **options
        Further arguments of the method.
    """
    return lambda model, training: getattr(model, method)(**options)[variable].data


def of_trained(method: str, variable: str, **options: Any) -> Callable[[Any, Any], Any]:
    """As :func:`of_method`, for a method that takes the training.

    Parameters
    ----------
    method
        Name of the method.
    variable
        Name of the variable.
    **options
        Further arguments of the method.
    """
    return lambda model, training: getattr(model, method)(training=training, **options)[variable].data
