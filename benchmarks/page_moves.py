"""Moves of sliders on the page: how long a curve takes, what is compiled, and how much a worker grows."""

import json
import os
import subprocess
import sys

from benchmarks.timing import Result
from solvable import models

MOVES = int(os.environ.get("SOLVABLE_MOVES", "1000"))
# Promised: growth of a worker in a thousand moves, and seconds from a move to its curve.
GROWTH, LATER = 100.0, 0.4


def measured(model: str, moves: int = MOVES) -> dict:
    """What ``python -m benchmarks._moves`` prints for one model."""
    command = [sys.executable, "-m", "benchmarks._moves", model, str(moves)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run() -> list[Result]:
    results = []
    for model in models.names():
        if not models.get(model).controls.stories:
            continue
        found = measured(model)
        results += [
            Result(f"{model}: curve after a move, median", found["median"], "s", at_most=LATER),
            Result(f"{model}: growth of a worker in {MOVES} moves", found["growth"], "MB", at_most=GROWTH),
            Result(f"{model}: programs compiled after the first moves", found["later_programs"], ""),
        ]
    return results
