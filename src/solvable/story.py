"""What a model says about itself: a story in a few steps, marks on its curves, and a picture of the system over time.

All of it is data that the model states beside its physics; the page, its export without a server, the documentation and
notebooks show it. Numbers in the texts are never typed: a text names facts, ``"after {train_time:,.0f} steps"``, and
the facts are computed by the model for the setting of the step.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import xarray as xr


def readable(value: float, digits: int = 3) -> str:
    """A number as one would say it: few digits, and no exponent between a ten-thousandth and a thousand million.

    Parameters
    ----------
    value
        The number.
    digits
        Number of significant digits.

    >>> from solvable.story import readable
    >>> readable(22633.4), readable(0.00166), readable(9.6213), readable(1e-7), readable(2350)
    ('22,600', '0.00166', '9.62', '1e-07', '2,350')
    """
    rounded = float(f"{value:.{digits}g}")
    if rounded == 0 or not 1e-4 <= abs(rounded) < 1e9:
        return f"{rounded:g}"
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def crossing(times: Any, values: Any, level: float) -> float:
    """The first time at which a curve passes a level, by linear interpolation; NaN if it never does.

    Parameters
    ----------
    times
        Increasing times.
    values
        The curve at these times.
    level
        The level, above or below the curve's first value.

    >>> from solvable.story import crossing
    >>> crossing([0, 1, 2], [0.0, 0.2, 0.6], 0.4)
    1.5
    """
    times, above = np.asarray(times, float), np.asarray(values, float) - level
    if above[0] == 0:
        return float(times[0])
    passed = np.flatnonzero(above * np.sign(above[0]) <= 0)
    if passed.size == 0:
        return float("nan")
    after = int(passed[0])
    share = above[after - 1] / (above[after - 1] - above[after])
    return float(times[after - 1] + share * (times[after] - times[after - 1]))


def listed(words: list[str]) -> str:
    """Words as a list in a sentence.

    >>> from solvable.story import listed
    >>> listed(["2.5"]), listed(["2.5", "3.6", "6.9"])
    ('2.5', '2.5, 3.6 and 6.9')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


@dataclasses.dataclass(frozen=True)
class Band:
    """A range of times that is shaded in every panel, such as a grokking delay or a plateau.

    Parameters
    ----------
    start, end
        The first and last time.
    label
        A few words that name it.
    """

    start: float
    end: float
    label: str


@dataclasses.dataclass(frozen=True)
class Tick:
    """A moment, drawn as a vertical line, such as the emergence of a skill.

    Parameters
    ----------
    time
        When it happens.
    label
        A few words that name it.
    """

    time: float
    label: str


@dataclasses.dataclass(frozen=True)
class Level:
    """A value that a curve stays at or approaches, drawn as a horizontal line in the panel of that curve.

    Parameters
    ----------
    variable
        Name of the variable whose panel shows it.
    value
        The value.
    label
        A few words that name it.
    """

    variable: str
    value: float
    label: str


@dataclasses.dataclass(frozen=True)
class Slope:
    """A power law, ``value ∝ time**-exponent``, drawn beside the part of a curve that follows it.

    Parameters
    ----------
    variable
        Name of the variable that follows the law.
    exponent
        The exponent of theory, positive where the variable falls.
    start, end
        The first and last time of the line.
    label
        A few words, such as ``"t^-0.67"``.
    """

    variable: str
    exponent: float
    start: float
    end: float
    label: str


@dataclasses.dataclass(frozen=True)
class Point:
    """A label at a point of a curve, such as the time at which a threshold is crossed.

    Parameters
    ----------
    variable
        Name of the variable on whose curve it lies.
    time
        When.
    label
        A few words.
    """

    variable: str
    time: float
    label: str


Mark = Band | Tick | Level | Slope | Point


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What to see in the curves of one setting: marks on the picture and one sentence below it.

    Parameters
    ----------
    sentence
        Says what happens and why, with the numbers of this setting.
    marks
        What is drawn on the curves.
    """

    sentence: str
    marks: tuple[Mark, ...] = ()


@dataclasses.dataclass(frozen=True)
class SystemView:
    """A picture of the system itself at every time of the curves, which the page plays beside them.

    The four kinds, with the variables that ``data`` must have (``time`` is the first dimension of arrays that have it):

    ``"filling"``
        A distribution that is learned part by part: ``density(x)`` and ``learned(time, x)``, the fraction between 0
        and 1 that has been learned; for a spectrum or for modes.
    ``"bars"``
        One bar for each index: ``height(time, index)``, and ``target(index)`` where there is one; the coordinate
        ``index`` holds what stands below the bars.
    ``"arrows"``
        Arrows from the origin: ``x(time, index)`` and ``y(time, index)``, with ``target_x(index)``,
        ``target_y(index)`` for arrows that stand still, such as the teacher's.
    ``"path"``
        A point on a plane: ``x(time)`` and ``y(time)`` and, with a second dimension ``line``, curves that stand still
        as ``line_x(line, position)`` and ``line_y(line, position)``, such as the set of solutions.

    Parameters
    ----------
    kind
        Which picture.
    title
        What is shown, in a few words.
    caption
        One sentence that says how to read it.
    data
        The variables of that kind, with ``long_name`` and ``units`` of what the axes show.
    log_x
        Whether the horizontal axis is logarithmic.
    """

    kind: Literal["filling", "bars", "arrows", "path"]
    title: str
    caption: str
    data: xr.Dataset
    log_x: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a story: it moves the controls, says what to see in at most two sentences, and asks a question.

    Parameters
    ----------
    title
        A few words.
    text
        At most two sentences; ``{name}`` inserts a fact, with a format as in ``str.format``.
    settings
        Texts of the controls that differ from the model's own start, as in the address of the page.
    question
        The question that the next step answers; facts are inserted as in the text.
    look_at
        What is highlighted: the label of a mark, the name of a variable, or ``"system"``.
    cursor
        The fraction of the (logarithmic or linear) time axis at which the time cursor stands, between 0 and 1.
    play
        Whether the step begins with the curves being drawn in time.
    """

    title: str
    text: str
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    question: str = ""
    look_at: str = ""
    cursor: float = 1.0
    play: bool = False


@dataclasses.dataclass(frozen=True)
class Story:
    """What a model is there to teach, in four to six steps and a challenge.

    Parameters
    ----------
    question
        The question that the story answers; it is the headline of the model on the landing view.
    steps
        The steps; the last one hands the controls over.
    challenge
        What the visitor is to find with the controls of the last step.
    answer
        The answer, with facts inserted; shown on request.
    sliders
        The two or three controls that the last step hands over, in order of importance.
    variables
        The curves of the story's panels, one tuple per panel, from top to bottom.
    facts
        Function of the model and the training that computes the numbers which the texts insert.
    ranges
        First and last number of a slider, for sliders of which the story hands over only a part.
    name
        Short name of a further story of a model, part of its address; the first one needs none.
    explain, system
        What to see in the curves, and the picture of the system, in this story; None for the model's own.
    """

    question: str
    steps: tuple[Step, ...]
    challenge: str
    answer: str
    sliders: tuple[str, ...]
    variables: tuple[tuple[str, ...], ...]
    facts: Callable[[Any, Any], Mapping[str, Any]] = lambda model, training: {}
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    name: str = ""
    explain: Callable[[Any, Any, xr.Dataset], Explanation] | None = None
    system: Callable[[Any, Any, np.ndarray], SystemView] | None = None
