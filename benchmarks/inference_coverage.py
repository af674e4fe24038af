"""Whether intervals of ``solvable.infer`` hold the truth as often as they say, on curves of the exact solver.

Usage: ``python -m benchmarks.inference_coverage [DESIGN ...] [--replicates 100] [--processes 1] [--out FILE]``.

One replicate takes one to four seconds of CPU time; with ``--processes 16`` all designs take a few minutes.

A 95 % profile interval holds the true value if and only if the deviance, with everything else fitted again at that
value, rises by less than the threshold; that is what is counted. A parameter is flagged where its profile is open.
"""

import argparse
import dataclasses
import datetime
import functools
import json
import math
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np

from solvable.inference import feature_curves
from solvable.inference.fitting import Fit, fit
from solvable.inference.misfit import FALSE_ALARM, lack_of_fit
from solvable.inference.profiles import BetterOptimumError, covariance, profile, rise_at, thresholds
from solvable.inference.runs import Run
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve, FeatureScalingLaw

TRUTH = {"capacity": 1.5, "source": 0.5, "richness": 1.0, "time_unit": 1.0, "unit": 1.0, "floor": 0.02}
POINTS, NOISE, LAST = 40, 0.01, 1000.0
# Widths, richness, correlation of neighbours, and whether noise is analysed as independent.
DESIGNS = {
    "one curve": ((math.inf,), 1.0, 0.0),
    "three widths": ((16.0, 64.0, 256.0), 1.0, 0.0),
    "three widths, nearly lazy": ((16.0, 64.0, 256.0), 0.1, 0.0),
    "three widths, correlated noise": ((16.0, 64.0, 256.0), 1.0, 0.8),
}
# Parameters further than this many standard errors from both ends of their box are not profiled for flags.
_CLEAR = 6.0


def curves(widths: tuple[float, ...], richness: float) -> list[np.ndarray]:
    """Curves of the solver at the times of the records, with a floor."""
    times, grid = np.geomspace(1.0, LAST, POINTS), Grid(np.log(feature_curves.TIMES))
    start = feature_curves.initial(TRUTH["capacity"], TRUTH["source"])
    found = []
    for width in widths:
        logs = feature_curves.exact(TRUTH["capacity"], TRUTH["source"], richness, width)
        found.append(Curve(grid, logs, start)(times) + TRUTH["floor"])
    return found


def noisy(clean: list[np.ndarray], widths: tuple[float, ...], rho: float, seed: int) -> list[Run]:
    """Runs with log-normal noise, correlated along each of them."""
    generator, runs = np.random.default_rng(seed), []
    times = np.geomspace(1.0, LAST, POINTS)
    for width, curve in zip(widths, clean, strict=True):
        noise = generator.normal(size=POINTS)
        for place in range(1, POINTS):
            noise[place] = rho * noise[place - 1] + math.sqrt(1 - rho**2) * noise[place]
        sizes = {} if math.isinf(width) else {"width": width}
        runs.append(Run(f"N = {width:g}", times, curve * np.exp(NOISE * noise), sizes=sizes, group="all"))
    return runs


def flagged(found: Fit) -> tuple[Fit, list[str]]:
    """Parameters whose 95 % profile interval is open on a side; the fit, which a profile may have improved."""
    spread = covariance(found)
    errors, names = np.sqrt(np.diag(spread)), []
    low, high = found.problem.box
    for number, one in enumerate(found.problem.space):
        at = found.best.coordinates[number]
        if min(at - low[number], high[number] - at) > _CLEAR * errors[number]:
            continue
        try:
            identified = profile(found, number, spread).identified
        except BetterOptimumError as better:
            return flagged(Fit(found.problem, found.problem.minimise(better.point.coordinates), []))
        if identified != "yes":
            names.append(one.label)
    return found, names


def replicate(law: FeatureScalingLaw, runs: list[Run], truth: dict[str, float], starts: int = 16) -> dict[str, object]:
    """Fit one set of runs; whether each interval holds the truth, what is flagged, and the misfit test."""
    found, open_ones = flagged(fit(law, runs, starts=starts))
    limits = thresholds(found.freedom)
    rises = {name: rise_at(found, name, value) for name, value in truth.items()}
    return {
        "covered95": {name: bool(rise < limits[1]) for name, rise in rises.items()},
        "covered68": {name: bool(rise < limits[0]) for name, rise in rises.items()},
        "flagged": open_ones,
        "misfit": lack_of_fit(found, "student-ar1").chance,
        "correlation": found.problem.noise.correlation,
    }


def corrected_law(clean: list[np.ndarray], widths: tuple[float, ...], rho: float) -> FeatureScalingLaw:
    """The law, corrected by the solver at the estimate from a replicate that is not counted."""
    runs = noisy(clean, widths, rho, 10**6)
    law = FeatureScalingLaw().prepare(runs)
    first = fit(law, runs)
    theta = first.problem.theta(first.best.coordinates, "all")
    return dataclasses.replace(law.exact(theta, runs), parameters=law.parameters)


def _counted(
    law: FeatureScalingLaw,
    clean: list[np.ndarray],
    widths: tuple[float, ...],
    rho: float,
    truth: dict[str, float],
    number: int,
) -> tuple[dict[str, object], float]:
    """One replicate, and its CPU seconds."""
    begin = time.process_time()
    return replicate(law, noisy(clean, widths, rho, number), truth), time.process_time() - begin


def study(name: str, replicates: int, seed: int = 0, processes: int = 1) -> dict[str, object]:
    """Coverage of one design over replicates."""
    widths, richness, rho = DESIGNS[name]
    truth = {**TRUTH, "richness": richness}
    clean, begin = curves(widths, richness), time.process_time()
    law = corrected_law(clean, widths, rho)
    work = functools.partial(_counted, law, clean, widths, rho, truth)
    numbers = range(seed, seed + replicates)
    if processes > 1:
        # Children start afresh: a forked child of a process that uses JAX may hang.
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            pairs = pool.map(work, numbers, chunksize=1)
    else:
        pairs = [work(number) for number in numbers]
    rows = [row for row, _ in pairs]
    spent = time.process_time() - begin + (sum(seconds for _, seconds in pairs) if processes > 1 else 0.0)
    shares = {
        level: {key: sum(row[level][key] for row in rows) / replicates for key in truth}  # type: ignore[index]
        for level in ("covered68", "covered95")
    }
    flags = {key: sum(key in row["flagged"] for row in rows) / replicates for key in truth}  # type: ignore[operator]
    return {
        "replicates": replicates,
        **shares,
        "flagged": flags,
        "none_flagged": sum(not row["flagged"] for row in rows) / replicates,
        "misfit_alarms": sum(row["misfit"] < FALSE_ALARM for row in rows) / replicates,  # type: ignore[operator]
        "mean_correlation": float(np.mean([row["correlation"] for row in rows])),  # type: ignore[list-item]
        "cpu_seconds": round(spent, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("designs", nargs="*", default=list(DESIGNS))
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first replicate")
    parser.add_argument("--out", type=Path, default=Path("docs/results/ledgers/inference.json"))
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.designs:
        result = study(name, options.replicates, options.seed, options.processes)
        print(name, json.dumps(result, indent=1), flush=True)
        result["date"] = datetime.datetime.now(datetime.UTC).date().isoformat()
        result["command"] = "python -m benchmarks.inference_coverage " + " ".join(map(repr, sys.argv[1:]))
        found[name] = result
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
