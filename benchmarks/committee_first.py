"""What the first prediction of a process takes on an accelerator, compilation included: late committees and a plane.

``python -m benchmarks.committee_first late`` or ``plane`` prints seconds and the stated error. Give a process its own
``SOLVABLE_CACHE`` for what a new machine takes, and two of them the same for what the second process takes.
"""

import sys
import time

import numpy as np

from solvable import GradientFlow, solvers
from solvable.precision import in_float64


def late(last: float = 1e4) -> str:
    """Four neurons by gradient flow, two sets of samples."""
    from benchmarks.committee_wide import FOUR

    solver = solvers.Flow(samples=65536, replicates=2)
    found = FOUR.predict(np.geomspace(1, last, 9), GradientFlow(), solver=solver, key=1, progress=False)
    return f"four neurons to {last:g}, error {float((found.test_loss_error / found.test_loss).max()):.3%}"


def plane() -> str:
    """The plane of ``committee_planes``."""
    from benchmarks.committee_planes import plane

    return f"{plane('vmap').test_loss.shape} test losses in one program"


@in_float64
def main(what: str) -> None:
    """Time one of the two."""
    begin = time.perf_counter()
    text = {"late": late, "plane": plane}[what]()
    print(f"{text}: {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
