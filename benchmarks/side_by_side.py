"""Run the same benchmarks in this checkout and in an older one, alternately, and print the ratio of each time.

    python -m benchmarks.side_by_side OLDER_CHECKOUT [name ...]

Both checkouts run on the same machine in the order old, new, new, old, so that a slow drift of its speed cancels. The
shorter of the two times counts. Results are matched by their names; names that only one checkout has are listed.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
# The lines that benchmarks print: name, number and unit.
LINE = re.compile(r"^  (?P<name>\S.*?)\s+(?P<value>[-+]?\d[\d.e+-]*) (?P<unit>s|ms|ms per step|us)(?:   .*)?$")


def measure(checkout: Path, name: str) -> dict[str, float]:
    """The times that one benchmark prints, by name."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-m", "benchmarks", name]
    # A missed promise is an exit status of 1, which is no obstacle to comparing the times.
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    found = [match for line in done.stdout.splitlines() if (match := LINE.match(line))]
    if not found:
        print(f"{name} in {checkout.name} printed no time: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
    return {match["name"]: float(match["value"]) for match in found}


def shortest(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    return {name: min(value, second.get(name, value)) for name, value in first.items()}


def main(older: Path, names: list[str]) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for name in names:
        runs = [measure(checkout, name) for checkout in (older, HERE, HERE, older)]
        old, new = shortest(runs[0], runs[3]), shortest(runs[1], runs[2])
        print(f"\n{name}: seconds before, after, ratio", flush=True)
        for line in old.keys() & new.keys():
            table[f"{name}: {line}"] = {"before": old[line], "after": new[line], "ratio": new[line] / old[line]}
            print(f"  {line:<70} {old[line]:>9.4g} {new[line]:>9.4g} {new[line] / old[line]:>6.2f}")
        for label, only in (("only before", old.keys() - new.keys()), ("only after", new.keys() - old.keys())):
            if only:
                print(f"  {label}: {'; '.join(sorted(only))}")
    return table


if __name__ == "__main__":
    chosen = sys.argv[2:] or [path.stem for path in sorted((HERE / "benchmarks").glob("[a-z]*.py"))]
    result = main(
        Path(sys.argv[1]).resolve(),
        [name for name in chosen if (Path(sys.argv[1]) / "benchmarks" / f"{name}.py").exists()],
    )
    if out := os.environ.get("OUT"):
        (Path(out) / "side-by-side.json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
