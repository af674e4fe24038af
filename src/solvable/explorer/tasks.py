"""The tasks of the worker processes, by name. Each takes the texts of a setting and returns what the page shows."""

import contextlib
import json
import warnings
from collections.abc import Callable
from typing import Any

import xarray as xr

from solvable.comparison import compare
from solvable.explorer.precomputed import shipped_curves
from solvable.explorer.summaries import cards
from solvable.model import Model
from solvable.numerics.ensemble import seeds_from
from solvable.progress import progress_part
from solvable.settings import Setting, theory_options
from solvable.story import Explanation
from solvable.training import Training

Send = Callable[[Any], None]


def run(task: str, payload: dict[str, Any], send: Send) -> Any:
    """Run a task. ``send`` passes on partial results; warnings of the library are returned as notes."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        result = TASKS[task](payload, send)
    notes = [str(one.message) for one in raised if issubclass(one.category, UserWarning | RuntimeWarning)]
    return {"result": result, "notes": list(dict.fromkeys(notes))}


def _setting(payload: dict[str, Any]) -> Setting:
    return Setting(payload["model"], payload["texts"])


def _theory(payload: dict[str, Any], send: Send) -> dict[str, Any]:
    """Curves with the explanation that belongs to them; a quick look where the payload asks for one."""
    setting = _setting(payload)
    model, training = setting.build(), setting.training()
    found = shipped_curves(setting)
    if found is not None:
        curves, words = found
        warnings.warn(words, stacklevel=2)
    else:
        options = setting.values("theory")
        if payload.get("quick"):
            options |= dict(model.controls.quick(model, training))
        curves = model.predict(setting.times(), training, **options)
    return {"curves": curves, "explanation": _explained(model, training, curves)}


def _explained(model: Model, training: Training, curves: xr.Dataset) -> Explanation | None:
    """What the model says about its curves. An explanation that fails does not take the curves with it."""
    explain = model.controls.explain
    if explain is None:
        return None
    try:
        return explain(model, training, curves)
    except Exception as error:
        warnings.warn(f"the explanation failed: {error}", stacklevel=2)
        return None


def _cards(payload: dict[str, Any], send: Send) -> Any:
    setting = _setting(payload)
    return cards(setting.build(), setting.training())


def _simulation(payload: dict[str, Any], send: Send) -> Any:
    """Simulate a few seeds at a time, so that results appear early; together they are the seeds of one ``simulate``."""
    setting = _setting(payload)
    model, training, times = setting.build(), setting.training(), setting.times()
    options = setting.values("simulation")
    seeds, together = options["seeds"], piece(options["seeds"])
    expected, parts, result = None, [], {}
    for first in range(0, seeds, together):
        with seeds_from(first), progress_part(first / seeds, min(together / seeds, 1)):
            # All parts have the same size, so that one compiled program serves them; surplus seeds are dropped.
            run = model.simulate(times, training, **{**options, "seeds": together})
        parts.append(run.isel(seed=slice(0, seeds - first)))
        simulation = _joined(parts)
        result = {"seeds": simulation.sizes["seed"], "of": seeds, "simulation": simulation, "comparison": None}
        if expected is None:
            send(result)
            expected = payload.get("theory") or _expected(setting, model, times)
        if expected is not None and result["seeds"] > 1:
            result["comparison"] = _compared(expected, simulation)
        send(result)
    return result


def piece(seeds: int) -> int:
    """Number of seeds to run at once: a quarter of all, but at least two."""
    return max(min(seeds, 2), -(-seeds // 4))


def _joined(parts: list[xr.Dataset]) -> xr.Dataset:
    """Concatenate the parts to one ensemble, with its number of seeds in the attributes."""
    whole = xr.concat(parts, "seed", data_vars="minimal", coords="minimal", compat="override", join="override")
    whole = whole.assign_coords(seed=("seed", range(whole.sizes["seed"]), parts[0].seed.attrs))
    solver = {**json.loads(parts[0].attrs["solver"]), "seeds": whole.sizes["seed"]}
    return whole.assign_attrs(solver=json.dumps(solver), seconds=sum(part.attrs["seconds"] for part in parts))


def _compared(expected: xr.Dataset, simulation: xr.Dataset) -> xr.Dataset | None:
    """Theory against simulation; None, with a warning, if theory describes another system."""
    try:
        return compare(expected, simulation)
    except ValueError as error:
        warnings.warn(f"no comparison: {error}", stacklevel=2)
        return None


def _expected(setting: Setting, model: Model, times: Any) -> Any:
    """Theory for what was simulated; None, with a warning, if theory does not cover it."""
    try:
        return model.predict(times, setting.training(), **theory_options(setting))
    except ValueError as error:
        warnings.warn(f"no theory to compare with: {error}", stacklevel=2)
        return None


def _plane(payload: dict[str, Any], send: Send) -> Any:
    from solvable.settings.planes import compute

    return compute(_setting(payload), payload["view"], send)


def _diagnosis(payload: dict[str, Any], send: Send) -> Any:
    from solvable.explorer.diagnosis import diagnose

    return diagnose(payload["path"])


def _inference(payload: dict[str, Any], send: Send) -> Any:
    from solvable.explorer.inference import infer_log

    warm_up = float(payload["warm_up"])
    return infer_log(payload["path"], payload["name"], payload["law"], payload["horizon"], warm_up)


def _scene(payload: dict[str, Any], send: Send) -> Any:
    from solvable.stories import build

    return build(payload["story"])


def _warm_up(payload: dict[str, Any], send: Send) -> None:
    """Compute what the first page of a model shows, so that its programs are compiled."""
    setting = Setting(payload["model"])
    quick = setting.is_slow and setting.has_quick_look
    for task in ([_theory] if not quick else [_quick_look, _theory]) + [_cards]:
        with contextlib.suppress(ValueError):
            task({"model": setting.model, "texts": {}}, send)


def _quick_look(payload: dict[str, Any], send: Send) -> dict[str, Any]:
    return _theory({**payload, "quick": True}, send)


TASKS: dict[str, Callable[[dict[str, Any], Send], Any]] = {
    "theory": _theory,
    "cards": _cards,
    "simulation": _simulation,
    "plane": _plane,
    "diagnosis": _diagnosis,
    "inference": _inference,
    "scene": _scene,
    "warm-up": _warm_up,
}
