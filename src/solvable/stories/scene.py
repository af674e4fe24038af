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
import xarray as xr

from solvable import models
from solvable._version import __version__
from solvable.model import Model
from solvable.plotting.series import Curve, lines, log_by_default, y_range
from solvable.precision import in_float64
from solvable.progress import Advance, progress_bar
from solvable.settings import Setting, theory_of
from solvable.settings.code import command, python
from solvable.stories import grid
from solvable.stories.interpolation import Drawn, interpolated
from solvable.stories.packing import NODE_LEVELS, STEP_LEVELS, pack, pack_mark, pack_system, unpack
from solvable.stories.plane import packed_plane
from solvable.story import Explanation, Step, Story, SystemView

FORMAT = 3
_MOST_TIMES = 120
_STEP_FRAMES, _NODE_FRAMES = 41, 15
# A logarithmic panel shows at most this many decades below its largest value.
_DECADES = 8


@dataclasses.dataclass(frozen=True)
class Computed:
    """What theory says about one setting: the curves of each panel, the explanation and the picture of the system."""

    setting: Setting
    model: Model
    times: np.ndarray
    panels: tuple[tuple[tuple[str, Curve], ...], ...]
    explanation: Explanation
    system: SystemView | None
    error: float


@dataclasses.dataclass(frozen=True)
class Axis:
    """The vertical axis of a panel: its label, whether it is logarithmic, and its range, in decades if it is."""

    label: str
    log: bool
    low: float
    high: float

    def coordinate(self, values: np.ndarray) -> np.ndarray:
        """Values as they are drawn: logarithms, cut off well below the range, on a logarithmic axis."""
        if not self.log:
            return np.asarray(values, float)
        floor = 10.0 ** (self.low - 2)
        return np.log10(np.maximum(np.where(np.isnan(values), floor, values), floor))

    def height(self, values: np.ndarray) -> np.ndarray:
        """Values as heights above the lower edge of the panel, from 0 to 1, cut off outside."""
        return np.clip((self.coordinate(values) - self.low) / (self.high - self.low), 0, 1)

    def error(self, shown: np.ndarray, exact: np.ndarray) -> float:
        """The largest difference of two curves in this panel's coordinates, as a fraction of its height."""
        inside = np.abs(np.clip(shown, self.low, self.high) - np.clip(exact, self.low, self.high))
        return float(np.nanmax(inside, initial=0.0)) / (self.high - self.low)


def _told() -> dict[str, tuple[str, Story]]:
    """The models and stories by the names of the stories."""
    found = [(model, story) for model in models.names() for story in models.get(model).controls.stories]
    return {f"{model}-{story.name}" if story.name else model: (model, story) for model, story in found}


def story_of(name: str) -> Story:
    """The story of a name; a ValueError lists the names."""
    return _found(name)[1]


def model_of(name: str) -> str:
    """The model of a story; a ValueError lists the names of stories."""
    return _found(name)[0]


def _found(name: str) -> tuple[str, Story]:
    told = _told()
    if name not in told:
        models.get(name)
        raise ValueError(f"the model {name!r} has no story; stories are {', '.join(told)}")
    return told[name]


def names(model: str = "") -> list[str]:
    """The names of all stories, in the order in which their models are registered.

    The first story of a model is called like the model, further ones ``MODEL-NAME``.

    Parameters
    ----------
    model
        Name of a model, if only its stories are wanted.
    """
    return [name for name, (of, _) in _told().items() if model in ("", of)]


def step_setting(model: str, step: Step) -> Setting:
    """The setting of a step, which states all texts that differ from the start of the page."""
    setting = Setting(model)
    for key, text in step.settings.items():
        setting = setting.change(key, text)
    setting.check()
    return setting


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
    model, story = _found(name)
    settings = [step_setting(model, step) for step in story.steps]
    places = grid.places(settings[-1], story.sliders, nodes, story.ranges)
    adapt = not grid.is_slow(settings[-1])
    test_points = (120 if adapt else 24) if test_points is None else test_points
    looked = sum(map(len, itertools.chain(*map(places.along, range(len(story.sliders)))))) if adapt else 0
    total = len(settings) + looked + places.count + test_points
    with progress_bar(f"story of {name}", total, progress, unit="settings") as advance:
        computed = [_counted(advance, compute, setting, story) for setting in settings]
        axes = _axes(story, computed)
        if adapt:
            places = grid.adapted(
                places, [_differences(places, n, story, axes, advance) for n in range(len(story.sliders))]
            )
        found = [_counted(advance, _attempt, setting, story) for setting in places.settings()]
        points = places.points_between(test_points)
        tested = [(point, _counted(advance, _attempt, places.setting(point), story)) for point in points]
    node_axes = _node_axes(axes, [computed[-1], *(one for one in found if isinstance(one, Computed))], story)
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
        **_errors(places, states, tested, computed, found, axes, node_axes),
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
        panels = _panels(theory_of(setting), story)
    except ValueError:
        return []
    return [axis.height(curve.y) for axis, panel in zip(axes, panels, strict=True) for _, curve in panel]


def _panels(theory: xr.Dataset, story: Story) -> tuple[tuple[tuple[str, Curve], ...], ...]:
    return tuple(tuple((name, curve) for name in panel for curve in lines(theory, name)) for panel in story.variables)


def compute(setting: Setting, story: Story) -> Computed:
    """Theory's curves for one setting, with what the model says about them."""
    model, training = setting.build(), setting.training()
    theory = model.predict(setting.times(), training, **setting.values("theory"))
    thinned = theory.isel(time=np.unique(np.linspace(0, theory.sizes["time"] - 1, _MOST_TIMES).round().astype(int)))
    panels = _panels(thinned, story)
    controls = type(model).controls
    explain, picture = story.explain or controls.explain, story.system or controls.system
    explanation = Explanation("") if explain is None else explain(model, training, theory)
    times = np.asarray(thinned["time"].values, float)
    system = None if picture is None else picture(model, training, times)
    return Computed(setting, model, times, panels, explanation, system, _theory_error(theory))


def _attempt(setting: Setting, story: Story) -> Computed | dict[str, Any]:
    """As :func:`compute`; settings that theory refuses have an error in words instead of curves."""
    try:
        setting.check()
        return compute(setting, story)
    except ValueError as error:
        return {"error": str(error), "texts": dict(setting.texts)}


def _theory_error(theory: xr.Dataset) -> float:
    error = float(theory.attrs.get("numerical_error", 0.0))
    return error if np.isfinite(error) else 0.0


def _axes(story: Story, computed: list[Computed]) -> list[Axis]:
    """One axis per panel for all steps, so that nothing jumps when a step changes."""
    axes = []
    for place, names in enumerate(story.variables):
        log = any(log_by_default(name) for name in names)
        ranges = [_range(one.panels[place], log) for one in computed]
        axes.append(_axis(names, log, min(low for low, _ in ranges), max(high for _, high in ranges)))
    return axes


def _node_axes(axes: list[Axis], computed: list[Computed], story: Story) -> list[Axis]:
    """The axes of the last step: wide enough for nine settings of ten in either direction."""
    made = []
    for place, axis in enumerate(axes):
        lows, highs = np.transpose([_range(one.panels[place], axis.log) for one in computed])
        low, high = min(lows[0], np.quantile(lows, 0.1)), max(highs[0], np.quantile(highs, 0.9))
        made.append(_axis(story.variables[place], axis.log, float(low), float(high)))
    return made


def _axis(names: tuple[str, ...], log: bool, low: float, high: float) -> Axis:
    if log:
        low, high = np.floor(low + 0.01), np.ceil(high - 0.01)
        low = max(low, high - _DECADES)
    return Axis(_common_words(names), log, float(low), float(high))


def _range(panel: tuple[tuple[str, Curve], ...], log: bool) -> tuple[float, float]:
    low, high = y_range([curve for _, curve in panel], log)
    return (max(np.log10(low), np.log10(high) - _DECADES), np.log10(high)) if log else (low, high)


def _common_words(names: tuple[str, ...]) -> str:
    """The last words that all names share, such as "loss"; otherwise the names themselves."""
    words = [name.split("_") for name in names]
    shared: list[str] = []
    for parts in zip(*(reversed(one) for one in words), strict=False):
        if len(set(parts)) > 1:
            break
        shared.insert(0, parts[0])
    return " ".join(shared) or ", ".join(name.replace("_", " ") for name in names)


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


def _errors(
    places: "grid.Places",
    states: list[dict[str, Any]],
    tested: list[tuple[tuple[float, ...], Any]],
    computed: list[Computed],
    found: list[Any],
    axes: list[Axis],
    node_axes: list[Axis],
) -> dict[str, Any]:
    """The errors of a scene, as fractions of the height of a panel; that of theory is as its datasets state it.

    Curves are aligned before they are interpolated (``"aligned"``) unless that makes the largest error larger.
    """
    exact = [(point, one) for point, one in tested if isinstance(one, Computed)]
    ways = {
        aligned: [
            error
            for point, one in exact
            if (error := interpolation_error(places, states, point, one, node_axes, aligned)) is not None
        ]
        for aligned in (True, False)
    }
    aligned = max(ways[True], default=0.0) <= max(ways[False], default=0.0)
    between = ways[aligned]
    known = [one for one in found if isinstance(one, Computed)]
    rounding = [_rounding(one, axes, STEP_LEVELS) for one in computed]
    rounding += [_rounding(one, node_axes, NODE_LEVELS) for one in known]
    errors = {
        "points": len(between),
        "largest": max(between, default=0.0),
        "median": float(np.median(between)) if between else 0.0,
        "rounding": max(rounding),
        "theory": max(one.error for one in [*computed, *known]),
    }
    return {"aligned": aligned, "errors": errors}


def interpolation_error(
    places: "grid.Places",
    states: list[dict[str, Any]],
    point: tuple[float, ...],
    exact: Computed,
    axes: list[Axis],
    aligned: bool,
) -> float | None:
    """The largest error of the interpolated curves at a point; None where a neighbouring node has other curves."""
    corners = [(weight, states[node]) for weight, node in places.corners(point) if weight > 0]
    if any("error" in state for _, state in corners):
        return None
    names = [[curve.name for _, curve in panel] for panel in exact.panels]
    if any([[curve["name"] for curve in panel] for panel in state["curves"]] != names for _, state in corners):
        return None
    weights, drawn = [weight for weight, _ in corners], [drawn_curves(state, axes) for _, state in corners]
    position, rows = interpolated(weights, drawn, aligned)
    wanted = _position(exact.times, corners[0][1]["log_time"])
    pairs = [(axis, curve) for axis, panel in zip(axes, exact.panels, strict=True) for _, curve in panel]
    return max(
        axis.error(np.interp(wanted, position, row), axis.coordinate(curve.y))
        for row, (axis, curve) in zip(rows, pairs, strict=True)
    )


def drawn_curves(state: dict[str, Any], axes: list[Axis]) -> Drawn:
    """The curves of a packed state on these axes."""
    rows = [(axis, unpack(curve["y"])) for axis, panel in zip(axes, state["curves"], strict=True) for curve in panel]
    heights = [np.clip((row - axis.low) / (axis.high - axis.low), 0, 1) for axis, row in rows]
    coordinates = np.array([row for _, row in rows])
    return Drawn(_position(np.asarray(state["times"]), state["log_time"]), coordinates, np.array(heights))


def _position(times: np.ndarray, log: bool) -> np.ndarray:
    """Times as positions on their axis, from 0 to 1."""
    placed = np.log(times) if log else times
    return (placed - placed[0]) / (placed[-1] - placed[0])


def _rounding(computed: Computed, axes: list[Axis], levels: int) -> float:
    return max(
        axis.error(unpack(pack(axis.coordinate(curve.y), levels)), axis.coordinate(curve.y))
        for axis, panel in zip(axes, computed.panels, strict=True)
        for _, curve in panel
    )


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
    model, story = _found(name)
    cls = models.get(model)
    told = {key: value for key, value in vars(story).items() if key not in ("facts", "explain", "system", "name")}
    told["steps"] = [dataclasses.asdict(step) for step in story.steps]
    sliders = {key: Setting(model).fields[key].slider for key in story.sliders}
    known = {field.name: repr(field.default) for field in dataclasses.fields(cls)}
    content = [FORMAT, name, told, repr(sliders), known, dict(cls.controls.start), repr(cls.default_training)]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=repr).encode()).hexdigest()[:16]
