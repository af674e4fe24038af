"""The part of a model's contract that the page relies on: sliders, summaries and stories.

Each function yields a line for everything that is wrong (:mod:`solvable.models.contract`).
"""

import dataclasses
import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from solvable.model import Model
from solvable.story import Explanation, Story, SystemView
from solvable.training_choice import training_options

_SYSTEM_VARIABLES = {"filling": ("density", "learned"), "bars": ("height",), "arrows": ("x", "y"), "path": ("x", "y")}


def page_lines(model: Model, seeds: int) -> Iterator[str]:
    """Sliders hold only allowed values, and summaries are numbers or words, or say why there is none."""
    known = {field.name: field for field in dataclasses.fields(model)}
    controls = type(model).controls
    options = {option.name: option for option in training_options(type(model))}
    taken = {
        name for verb in ("predict", "simulate") for name in inspect.signature(getattr(type(model), verb)).parameters
    }
    for name, slider in controls.sliders.items():
        if name not in known and name not in options and name not in taken:
            yield f"there is a slider for {name!r}, which is neither a parameter nor an option"
        rule = known[name].metadata["rule"] if name in known else options[name].rule if name in options else None
        for text in slider.stops():
            if rule is not None and text and not rule.test(float(text)):
                yield f"the slider of {name} has the value {text}, which must be {rule.text}"
                break
    for name in controls.start:
        if name not in known and name not in options and name not in taken and name != "times":
            yield f"the page starts with a text for {name!r}, which is neither a parameter nor an option"
    for summary in controls.summaries:
        try:
            value = summary.of(model, model.default_training)
        except ValueError as error:
            if "\n" in str(error):
                yield f"the error of the summary {summary.name} is not one line"
            continue
        except Exception as error:
            yield f"the summary {summary.name} raises {type(error).__name__}: {error}"
            continue
        if not isinstance(value, str) and np.ndim(value) != 0:
            yield f"the summary {summary.name} is an array of shape {np.shape(value)}, not a number"


def story_lines(model: Model, times: np.ndarray, theory: xr.Dataset) -> Iterator[str]:
    """Stories have a few short steps with controls that exist; explanation and system are what they promise."""
    controls, training = type(model).controls, model.default_training
    keys = {field.name for field in dataclasses.fields(model)} | {"times"}
    keys |= {option.name for option in training_options(type(model))}
    keys |= {name for verb in ("predict", "simulate") for name in inspect.signature(getattr(model, verb)).parameters}
    names = [story.name for story in controls.stories]
    if len(set(names)) < len(names) or any(names[:1]):
        yield f"stories are called {names}: the first one needs no name, and the others need different ones"
    for story in controls.stories:
        yield from _story(story, keys, theory)
    if controls.explain is not None:
        found = controls.explain(model, training, theory)
        if not isinstance(found, Explanation):
            yield f"explain returns {type(found).__name__}, not an Explanation"
        elif not found.sentence.strip() or re.search(r"\bnan\b", found.sentence, re.IGNORECASE):
            yield f"the sentence of explain is empty or holds a NaN: {found.sentence!r}"
    if controls.system is not None:
        yield from _system(controls.system(model, training, times), times)


def _story(story: Story, keys: set[str], theory: xr.Dataset) -> Iterator[str]:
    if not 4 <= len(story.steps) <= 6:
        yield f"the story {story.question!r} has {len(story.steps)} steps, not four to six"
    for step in story.steps:
        if len(re.findall(r"[.!?](?:\s|$)", step.text)) > 2:
            yield f"the step {step.title!r} has more than two sentences"
        for key in set(step.settings) - keys:
            yield f"the step {step.title!r} sets {key!r}, which is neither a parameter nor an option"
    for step in story.steps[:-1]:
        if not step.question:
            yield f"the step {step.title!r} asks no question that the next one answers"
    if not 1 <= len(story.sliders) <= 3 or set(story.sliders) - keys:
        yield f"the story hands over the sliders {story.sliders}: one to three parameters or options"
    for name in itertools.chain(*story.variables):
        if name not in theory or "time" not in theory[name].dims:
            yield f"the story shows {name!r}, which is not a curve of predict"


def _system(view: Any, times: np.ndarray) -> Iterator[str]:
    """The picture of the system has the variables of its kind, at all times."""
    if not isinstance(view, SystemView) or view.kind not in _SYSTEM_VARIABLES:
        yield f"system returns {view!r}, not a SystemView of a known kind"
        return
    for name in _SYSTEM_VARIABLES[view.kind]:
        if name not in view.data:
            yield f"the picture of the system, of kind {view.kind!r}, has no {name!r}"
    if view.data.sizes.get("time") != times.size:
        yield "the picture of the system does not have the times that were asked for"
