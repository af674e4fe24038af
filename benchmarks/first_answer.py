"""The first answer: ``solvable predict NAME`` in a new process, cold and with its programs on disk, and a warm call.

``python -m benchmarks.first_answer`` prints two tables, of seconds and of processor seconds: for every model a process
with an empty cache of compiled programs, a second one, the default ``model.predict`` once everything is compiled, and
the number of programs that the first process compiles.
"""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing import Result
from solvable import models

# Promised on two cores that do nothing else: seconds from the command to its table, and of a warm call.
FIRST, WARM = 4.0, 0.4
_WARM = """
import sys, time
from solvable import models
from solvable.ranges import parse_range
from solvable.training_choice import times_for, usual_times
kind = models.get(sys.argv[1])
times = times_for(parse_range(usual_times(kind, kind.default_training)), kind.default_training)
kind().predict(times)
calls = []
for _ in range(3):
    wall, cpu = time.perf_counter(), time.process_time()
    kind().predict(times)
    calls.append((time.perf_counter() - wall, time.process_time() - cpu))
print(*map(min, zip(*calls)))
"""


class Cost(NamedTuple):
    """Wall seconds, and processor seconds of the user and of the system."""

    wall: float
    cpu: float


class Answer(NamedTuple):
    """What the first answer of a model costs."""

    cold: Cost
    second: Cost
    warm: Cost
    programs: int


def measure(name: str) -> Answer:
    """Measure one model, with a cache folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"SOLVABLE_COMPILATION_CACHE": folder}
        command = ["-m", "solvable", "predict", name]
        cold, _ = _run(command, settings)
        second, _ = _run(command, settings)
        warm, printed = _run(["-c", _WARM, name], {})
    # Counted in a run of its own: writing the log takes time, too.
    _, log = _run(command, {"SOLVABLE_COMPILATION_CACHE": "off", "JAX_LOG_COMPILES": "1"})
    # A slow call tells its progress before.
    warm = Cost(*map(float, printed.splitlines()[-1].split()))
    return Answer(cold, second, warm, len(re.findall("Finished XLA compilation", log)))


def _run(arguments: list[str], settings: dict[str, str]) -> tuple[Cost, str]:
    """Run Python, and say what it cost and all that it printed."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_"))}
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**kept, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begin
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout


def run() -> list[Result]:
    """For ``python -m benchmarks``: what was promised, model by model."""
    found = []
    for name in models.names():
        answer = measure(name)
        found.append(Result(f"{name}: command with an empty cache", answer.cold.wall, "s", at_most=FIRST))
        found.append(Result(f"{name}: command with its programs on disk", answer.second.wall, "s", at_most=FIRST))
        found.append(Result(f"{name}: warm call", answer.warm.wall, "s", at_most=WARM))
    return found


def main(names: list[str]) -> None:
    """Print both tables."""
    answers = {name: measure(name) for name in names or models.names()}
    for title, part in (("seconds", 0), ("processor seconds", 1)):
        print(f"\n{title:<20}{'empty cache':>14}{'second process':>16}{'warm call':>12}{'programs':>10}")
        for name, answer in answers.items():
            cold, second, warm = answer.cold[part], answer.second[part], answer.warm[part]
            print(f"{name:<20}{cold:>14.2f}{second:>16.2f}{warm:>12.3f}{answer.programs:>10}")


if __name__ == "__main__":
    main(sys.argv[1:])
