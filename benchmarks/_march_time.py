"""``python -m benchmarks._march_time STEPS`` prints how long the march through whole steps takes.

This is a separate process, because the number of threads of the matrix products is fixed when NumPy is imported.
"""

import os
import subprocess
import sys

from benchmarks.timing import seconds
from solvable.models.feature_scaling.mode_quadrature import power_law_modes
from solvable.models.feature_scaling.two_time import Descent, march


def on_cores(steps: int, cores: int) -> float:
    """Seconds of a march of 44 nodes whose products take so many threads."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(cores)}
    command = [sys.executable, "-m", "benchmarks._march_time", str(steps)]
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    nodes = power_law_modes(1.5, 0.4, 44, 200.0)
    plan = Descent(0.2, 0.5, features=64, batch=16)
    print(seconds(lambda: march(nodes, plan, int(sys.argv[1])).test_loss, 2, warm=False))
