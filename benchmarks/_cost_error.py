"""Cost and error of the two marches of FeatureScaling, in an older checkout and in this one.

    python -m benchmarks._cost_error OLDER_CHECKOUT

Each point is a process of its own, and the checkouts take turns, so that a slow drift of the machine's speed hits both.
Costs are processor seconds of a warm call. Errors of the slot march are those of the loss against a finer grid of this
checkout, for features that learn under strong noise; the march through steps is exact, and its error is the difference
of the two checkouts. With ``OUT`` set the points are written to ``$OUT/cost-error.json``.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
GRIDS, FINEST, STEPS = (4, 6, 8, 12, 16), 24, (200, 400, 800)
# Of the older checkout coarser grids have no solution, and finer ones take too long.
OLDER_GRIDS = (6, 8, 12)


def slots(per_decade: int) -> dict[str, object]:
    """One prediction of the slot march."""
    import numpy as np

    from solvable import SGD, FeatureScaling

    model = FeatureScaling(1.5, 0.4, features=64, richness=4.0, modes=np.inf)
    times, training = np.geomspace(100, 10**6, 9).round(), SGD(0.1, batch_size=4)
    model.predict([100], training, solver="slot-march", per_decade=8)
    begin = time.process_time()
    found = model.predict(times, training, solver="slot-march", per_decade=per_decade)
    taken = time.process_time() - begin
    return {"seconds": taken, "loss": found.test_loss.values.tolist(), "stated": found.attrs["numerical_error"]}


def steps(count: int) -> dict[str, object]:
    """One prediction of the march through whole steps."""
    from solvable import SGD, FeatureScaling

    model = FeatureScaling(1.5, 0.4, features=64, richness=0.5, modes=1000)
    times, training = [count // 4, count // 2, count - 1], SGD(0.1, batch_size=16)
    model.predict(times, training)
    begin = time.process_time()
    found = model.predict(times, training)
    return {"seconds": time.process_time() - begin, "loss": found.test_loss.values.tolist(), "stated": 0.0}


def measured(checkout: Path, what: str, size: int) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--worker", what, str(size)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(older: Path) -> dict[str, list[dict[str, float]]]:
    table: dict[str, list[dict[str, float]]] = {"before": [], "after": [], "steps": []}

    def deviation(found: dict[str, object], exact: dict[str, object]) -> float:
        return max(abs(a / b - 1) for a, b in zip(found["loss"], exact["loss"], strict=True))

    exact = measured(HERE, "slots", FINEST)
    print("slot march, N = 64, B = 4, γ = 4, to t = 1e5: per decade, processor s, error, stated error", flush=True)
    for size in GRIDS:
        for name, checkout in (("before", older), ("after", HERE)):
            if name == "before" and size not in OLDER_GRIDS:
                continue
            found = measured(checkout, "slots", size)
            row = {
                "size": size,
                "seconds": found["seconds"],
                "error": deviation(found, exact),
                "stated": found["stated"],
            }
            table[name].append(row)
            print(
                f"  {name:<6} {size:>3} {row['seconds']:>8.2f} {row['error']:>9.2e} {row['stated']:>9.2e}", flush=True
            )
    print("march, N = 64, B = 16: steps, processor s before, after, ratio, difference", flush=True)
    for size in STEPS:
        old, new = measured(older, "steps", size), measured(HERE, "steps", size)
        row = {"size": size, "before": old["seconds"], "after": new["seconds"], "difference": deviation(new, old)}
        table["steps"].append(row)
        ratio = row["before"] / row["after"]
        print(
            f"  {size:>5} {row['before']:>8.2f} {row['after']:>8.2f} {ratio:>6.1f} {row['difference']:>9.1e}",
            flush=True,
        )
    return table


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        print(json.dumps({"slots": slots, "steps": steps}[sys.argv[2]](int(sys.argv[3]))))
    else:
        result = main(Path(sys.argv[1]).resolve())
        if out := os.environ.get("OUT"):
            (Path(out) / "cost-error.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
