"""A scene: everything that the player shows of a model, as plain data.

Every step of the story has its exact curves, marks, sentence and picture of the system; the last step has them on a
grid over the story's sliders as well. A scene states its own errors.
"""

import dataclasses
import datetime
import hashlib
import itertools
import json
from typing import Any
from urllib.parse import urlencode

import numpy as np

from solvable import models
from solvable._version import __version__
from solvable.precision import in_float64
from solvable.progress import Advance, progress_bar
from solvable.settings import Setting, theory_of
from solvable.settings.code import command, python
from solvable.stories import grid
from solvable.stories.axes import Axis, axes_of_nodes, axes_of_steps
from solvable.stories.catalogue import model_and_story, step_setting, story_of
from solvable.stories.computed import Computed, attempt, compute, panels_of
from solvable.stories.packing import NODE_LEVELS, STEP_LEVELS, pack, pack_mark, pack_system
from solvable.stories.plane import packed_plane
from solvable.stories.scene_errors import stated_errors
from solvable.story import Step, Story

FORMAT = 3
_STEP_FRAMES, _NODE_FRAMES = 41, 15


@in_float64
def build(
    name: str, nodes: int | None = None, test_points: int | None = None, progress: bool | None = None
) -> dict[str, Any]:
    """Compute the scene of a story, which the player shows.

    Parameters
    ----------
    name
        Name of the story, as :func:`names` gives them: that of a model for its first one.
    nodes
        Number of computed settings along each slider of the last step (default: 21 for two sliders and 7 for three;
        where theory takes seconds, 5 and 3).
    test_points
        Number of settings between the nodes at which the interpolation is compared with the theory (default: 120;
        where theory takes seconds, 24).
    progress
        Whether to show a progress bar; None chooses.
    """
    model, story = model_and_story(name)
    settings = [step_setting(model, step) for step in story.steps]
    places = grid.places(settings[-1], story.sliders, nodes, story.ranges)
    adapt = not grid.is_slow(settings[-1])
    test_points = (120 if adapt else 24) if test_points is None else test_points
    looked = sum(map(len, itertools.chain(*map(places.along, range(len(story.sliders)))))) if adapt else 0
    total = len(settings) + looked + places.count + test_points
    with progress_bar(f"story of {name}", total, progress, unit="settings") as advance:
        computed = [_counted(advance, compute, setting, story) for setting in settings]
        axes = axes_of_steps(story, computed)
        if adapt:
            places = grid.adapted(
                places, [_differences(places, n, story, axes, advance) for n in range(len(story.sliders))]
            )
        found = [_counted(advance, attempt, setting, story) for setting in places.settings()]
        points = places.points_between(test_points)
        tested = [(point, _counted(advance, attempt, places.setting(point), story)) for point in points]
    node_axes = axes_of_nodes(axes, [computed[-1], *(one for one in found if isinstance(one, Computed))], story)
    steps = [_packed_step(step, one, axes, story) for step, one in zip(story.steps, computed, strict=True)]
    states = [_packed(one, node_axes, _NODE_FRAMES, NODE_LEVELS) if isinstance(one, Computed) else one for one in found]
    steps[-1] |= _packed(computed[-1], node_axes, _STEP_FRAMES)
    whole = settings[-1].training().counts_steps
    return {
        "format": FORMAT,
        "story": name,
        "model": model,
        "summary": models.names()[model],
        "question": story.question,
        "challenge": _filled(story.challenge, story, computed[-1]),
        "answer": _filled(story.answer, story, computed[-1]),
        "time": {"label": "training steps" if whole else "training time", "whole": whole},
        "axes": [dataclasses.asdict(axis) for axis in axes],
        "node_axes": [dataclasses.asdict(axis) for axis in node_axes],
        "steps": steps,
        "sliders": places.described(settings),
        "nodes": states,
        "plane": _plane(settings[-1], story),
        **stated_errors(places, states, tested, computed, found, axes, node_axes),
        "version": __version__,
        "made": datetime.date.today().isoformat(),
        "fingerprint": fingerprint(name),
    }


def _plane(setting: Setting, story: Story) -> dict[str, Any] | None:
    """The plane that the model states; a further story has it only where one of its sliders is an axis."""
    found = packed_plane(setting, story.sliders)
    shown = found is not None and (not story.name or any(axis["slider"] is not None for axis in found["axes"]))
    return found if shown else None


def _counted(advance: Advance, function: Any, *arguments: Any) -> Any:
    result = function(*arguments)
    advance()
    return result


def _differences(places: grid.Places, which: int, story: Story, axes: list[Axis], advance: Advance) -> np.ndarray:
    """How much the curves differ between neighbouring stops of one slider, in heights of the panels."""
    largest = np.zeros(len(places.sliders[which].stops) - 1)
    for line in places.along(which):
        heights = [_counted(advance, _heights, places.setting(point), story, axes) for point in line]
        for place, (before, after) in enumerate(itertools.pairwise(heights)):
            parts = zip(before, after, strict=True) if len(before) == len(after) else ()
            largest[place] = max([largest[place], *(float(np.abs(a - b).max()) for a, b in parts)])
    return largest


def _heights(setting: Setting, story: Story, axes: list[Axis]) -> list[np.ndarray]:
    """All curves of a setting as heights in their panels; none where theory refuses the setting."""
    try:
        panels = panels_of(theory_of(setting), story)
    except ValueError:
        return []
    return [axis.height(curve.y) for axis, panel in zip(axes, panels, strict=True) for _, curve in panel]


def _packed_step(step: Step, computed: Computed, axes: list[Axis], story: Story) -> dict[str, Any]:
    told = {"title": step.title, "text": _filled(step.text, story, computed)}
    told |= {"question": _filled(step.question, story, computed), "look_at": step.look_at}
    return told | {"cursor": step.cursor, "play": step.play} | _packed(computed, axes, _STEP_FRAMES)


def _filled(text: str, story: Story, computed: Computed) -> str:
    """The text with its facts; they are computed only where the text names any."""
    if "{" not in text:
        return text
    facts = story.facts(computed.model, computed.setting.training())
    try:
        return text.format(**facts)
    except (KeyError, ValueError) as error:
        raise ValueError(f"the text {text!r} cannot be filled: {error}; there are {', '.join(facts)}") from error


def _packed(computed: Computed, axes: list[Axis], frames: int, levels: int = STEP_LEVELS) -> dict[str, Any]:
    setting = computed.setting
    spread = computed.times[-1] / max(computed.times[0], 1e-300)
    log_time = setting.text("times").endswith("log") or (computed.times[0] > 0 and spread > 100)
    return {
        "texts": dict(setting.texts),
        "query": urlencode([("model", setting.model), *setting.texts.items()], safe=",:()/"),
        "log_time": bool(log_time),
        "times": [float(f"{time:.9g}") for time in computed.times],
        "curves": [
            [
                {"variable": variable, "name": curve.name, "y": pack(axis.coordinate(curve.y), levels)}
                for variable, curve in panel
            ]
            for panel, axis in zip(computed.panels, axes, strict=True)
        ],
        "marks": [pack_mark(mark) for mark in computed.explanation.marks],
        "sentence": computed.explanation.sentence,
        "system": None if computed.system is None else pack_system(computed.system, frames),
        "python": python(setting),
        "command": command(setting),
    }


@in_float64
def changed_steps(scene: dict[str, Any]) -> list[int]:
    """The steps of a scene, counted from one, that differ from what the model says and computes now."""
    story = story_of(name_of(scene))
    axes, node_axes = ([Axis(**axis) for axis in scene[name]] for name in ("axes", "node_axes"))
    changed = []
    for number, (step, known) in enumerate(zip(story.steps, scene["steps"], strict=True), start=1):
        computed = compute(step_setting(scene["model"], step), story)
        made = _packed_step(step, computed, axes, story)
        if number == len(story.steps):
            made |= _packed(computed, node_axes, _STEP_FRAMES)
        # Numbers as they are in a file.
        if json.loads(json.dumps(made)) != {name: known.get(name) for name in made}:
            changed.append(number)
    return changed


def name_of(scene: dict[str, Any]) -> str:
    """The name of the story of a scene. Scenes of first stories from before there were others do not state it."""
    return str(scene.get("story", scene["model"]))


def fingerprint(name: str) -> str:
    """A hash of everything that a scene depends on besides the numerics: story, sliders, defaults and start."""
    model, story = model_and_story(name)
    cls = models.get(model)
    told = {key: value for key, value in vars(story).items() if key not in ("facts", "explain", "system", "name")}
    told["steps"] = [dataclasses.asdict(step) for step in story.steps]
    sliders = {key: Setting(model).fields[key].slider for key in story.sliders}
    known = {field.name: repr(field.default) for field in dataclasses.fields(cls)}
    content = [FORMAT, name, told, repr(sliders), known, dict(cls.controls.start), repr(cls.default_training)]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:16]
