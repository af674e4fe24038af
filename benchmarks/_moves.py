"""``python -m benchmarks._moves MODEL MOVES`` moves the sliders of a model's story as a page's worker would.

Prints JSON: seconds of the first and of later moves, programs that JAX compiled, and the memory of the process. This is
a separate process, as a worker is one.
"""

import json
import os
import sys
import time
from collections import Counter

import jax
import numpy as np

from solvable import models
from solvable.explorer import tasks
from solvable.explorer.worker import memory
from solvable.precision import in_float64
from solvable.settings import Setting

# The first moves fill caches: every later one should find its programs compiled.
WARM = 20
_COMPILED = "/jax/core/compile/backend_compile_duration"


def settings(model: str, moves: int, seed: int = 0):
    """The settings of a visitor who moves one slider of the story after the other to random stops."""
    generator = np.random.default_rng(seed)
    keys = models.get(model).controls.stories[0].sliders
    setting = Setting(model)
    for move in range(moves):
        key = keys[move % len(keys)]
        stops = setting.fields[key].slider.stops()
        yield key, setting
        setting = setting.change(key, stops[generator.integers(len(stops))])


@in_float64
def drive(model: str, moves: int) -> dict[str, object]:
    compiled: list[int] = [0]
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **_: compiled.__setitem__(0, compiled[0] + (event == _COMPILED))
    )
    seconds, programs, held, failed = [], [], [], Counter()
    for _, setting in settings(model, moves):
        payload = {"model": model, "texts": dict(setting.texts)}
        before, begin = compiled[0], time.perf_counter()
        for task in ("theory", "cards"):
            if task == "theory":
                payload = {**payload, "quick": setting.is_slow and setting.has_quick_look}
            try:
                tasks.run(task, payload, lambda partial: None)
            except ValueError as error:
                failed[str(error)[:60]] += 1
            if task == "theory":
                seconds.append(time.perf_counter() - begin)
        programs.append(compiled[0] - before)
        held.append(memory())
    warm = min(WARM, moves - 1)
    return {
        "model": model,
        "first": seconds[0],
        "median": float(np.median(seconds[warm:])),
        "p95": float(np.quantile(seconds[warm:], 0.95)),
        "programs": programs[: WARM + 5],
        "later_programs": sum(programs[warm:]),
        "moves_that_compile": sum(count > 0 for count in programs[warm:]),
        "megabytes": held[-1] / 1e6,
        "growth": (held[-1] - held[warm]) / 1e6,
        "failed": dict(failed),
    }


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    print(json.dumps(drive(sys.argv[1], int(sys.argv[2]))))
