"""Moves of sliders on the page: how long a curve takes, what is compiled, and how much a worker grows."""

import json
import os
import subprocess
import sys
import tempfile

from benchmarks.timing import Result
from solvable import models
from solvable.explorer.programs import compiler_environment

MOVES = int(os.environ.get("SOLVABLE_MOVES", "1000"))
# Promised: growth of a worker in a thousand moves, and seconds from a move to its curve.
GROWTH, LATER = 100.0, 0.4


def measured(model: str, moves: int = MOVES, every: bool = False) -> dict:
    """What ``python -m benchmarks._moves`` prints for one model."""
    command = [sys.executable, "-m", "benchmarks._moves", model, str(moves), *(["every"] if every else [])]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **compiler_environment(cache), "OPENBLAS_NUM_THREADS": "1"}
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return json.loads(run.stdout)


def run() -> list[Result]:
    results = []
    for model in models.names():
        if not models.get(model).controls.stories:
            continue
        found = measured(model)
        print(json.dumps(found), flush=True)
        results += [
            Result(f"{model}: curve after a move, median", found["median"], "s", at_most=LATER),
            Result(f"{model}: growth of a worker in {MOVES} moves", found["growth"], "MB", at_most=GROWTH),
            Result(f"{model}: programs compiled after the first moves", found["later_programs"], ""),
        ]
    return results
