"""``python -m benchmarks._moves MODEL MOVES [every]`` moves the sliders of a model's stories, or all of its form.

Computes theory and cards as a page's worker does, in a process of its own. Prints JSON: seconds of the first and of
later moves, programs that JAX compiled, how often they were dropped, and the memory of the process.
"""

import json
import os
import re
import sys
import time
from collections import Counter

import jax
import numpy as np

from solvable import models
from solvable.explorer import tasks
from solvable.explorer.programs import ProgramMemory
from solvable.explorer.worker import MOST_MEMORY, memory
from solvable.precision import in_float64
from solvable.settings import Setting

# The first moves fill caches: every later one should find its programs compiled.
WARM = 20
_COMPILED = "/jax/core/compile/backend_compile_duration"


def settings(model: str, moves: int, seed: int = 0, every: bool = False):
    """The settings of a visitor who moves one slider after the other to random stops.

    The sliders are those of the model's stories or, with ``every``, all that change its theory: parameters, options of
    the training and of theory. A move to a setting that theory refuses is taken back.
    """
    generator = np.random.default_rng(seed)
    setting = Setting(model)
    keys = list(dict.fromkeys(key for story in models.get(model).controls.stories for key in story.sliders))
    if every:
        roles = ("parameter", "training", "theory")
        keys = [key for key, field in setting.fields.items() if field.slider is not None and field.role in roles]
    for move in range(moves):
        key = keys[move % len(keys)]
        yield key, setting
        try:
            moved = setting.edit(key, _moved(setting, key, generator))
            moved.check()
            moved.build().check_training(moved.training(), "predict")
        except ValueError:
            continue
        setting = moved


def _moved(setting: Setting, key: str, generator: np.random.Generator) -> str:
    """Another text of a control; of a list, with another entry in one place."""
    field, text = setting.fields[key], setting.text(key)
    stops = field.slider.stops()
    stop = stops[generator.integers(len(stops))]
    if not field.rule.dimensions:
        return stop
    parts = re.split("([,;])", text)
    if not field.entries(text):
        return text
    parts[2 * generator.integers(field.entries(text))] = stop
    return "".join(parts)


@in_float64
def drive(model: str, moves: int, every: bool) -> dict[str, object]:
    compiled: list[int] = [0]
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **_: compiled.__setitem__(0, compiled[0] + (event == _COMPILED))
    )
    seconds, programs, held, refused = [], [], [], Counter()
    memory_of_programs, drops = ProgramMemory(MOST_MEMORY), 0
    for _, setting in settings(model, moves, every=every):
        payload = {"model": model, "texts": dict(setting.texts)}
        look = {**payload, "quick": setting.is_slow and setting.has_quick_look}
        before, begin = compiled[0], time.perf_counter()
        for task, asked in (("theory", look), ("cards", payload)):
            try:
                tasks.run(task, asked, lambda partial: None)
            except ValueError as error:
                refused[str(error)[:60]] += 1
            if task == "theory":
                seconds.append(time.perf_counter() - begin)
            if memory_of_programs.is_too_large(model, memory()):
                memory_of_programs.drop()
                drops += 1
        programs.append(compiled[0] - before)
        held.append(memory())
    warm = min(WARM, moves - 1)
    return {
        "model": model,
        "moves": moves,
        "every": every,
        "first": seconds[0],
        "median": float(np.median(seconds[warm:])),
        "p95": float(np.quantile(seconds[warm:], 0.95)),
        "first_programs": sum(programs[:warm]),
        "later_programs": sum(programs[warm:]),
        "drops": drops,
        "megabytes": held[-1] / 1e6,
        "growth": (max(held[warm:]) - held[warm]) / 1e6,
        "refused": sum(refused.values()),
    }


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    print(json.dumps(drive(sys.argv[1], int(sys.argv[2]), every=sys.argv[3:] == ["every"])))
