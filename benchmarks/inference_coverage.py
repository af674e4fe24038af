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
from typing import NamedTuple

import numpy as np

from solvable.inference import feature_curves
from solvable.inference.feature_scaling_law import FeatureScalingLaw
from solvable.inference.fitting import Fit, fit
from solvable.inference.misfit import FALSE_ALARM, lack_of_fit
from solvable.inference.profiles import BetterOptimumError, covariance, profile, rise_at, thresholds
from solvable.inference.runs import Run
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import Curve

TRUTH = {"capacity": 1.5, "source": 0.5, "richness": 1.0, "time_unit": 1.0, "unit": 1.0, "floor": 0.02}
# Noise of a batch of one sample, where there are batches.
BATCH_NOISE = 0.1
POINTS, NOISE = 40, 0.01


class Design(NamedTuple):
    """Curves of one study: their widths and batch sizes, and what they have in common."""

    widths: tuple[float, ...] = (math.inf,)
    batches: tuple[float, ...] = (math.inf,)
    richness: float = 1.0
    # Correlation of the noise of neighbouring records.
    correlation: float = 0.0
    last: float = 1000.0

    @property
    def sizes(self) -> list[tuple[float, float]]:
        """Width and batch size of each curve."""
        return [(width, batch) for width in self.widths for batch in self.batches]

    @property
    def truth(self) -> dict[str, float]:
        """Parameters and terms with which the curves are made."""
        noise = {"batch_noise": BATCH_NOISE} if math.isfinite(min(self.batches)) else {}
        return {**TRUTH, "richness": self.richness, **noise}

    @property
    def times(self) -> np.ndarray:
        """Times of the records."""
        return np.geomspace(1.0, self.last, POINTS)


WIDTHS = (16.0, 64.0, 256.0)
DESIGNS = {
    "one curve": Design(),
    "three widths": Design(WIDTHS),
    "three widths, nearly lazy": Design(WIDTHS, richness=0.1),
    "three widths, correlated noise": Design(WIDTHS, correlation=0.8),
    "one curve with batch noise": Design(batches=(4.0,), last=300.0),
    "full batches and two small ones": Design(batches=(math.inf, 16.0, 4.0), last=300.0),
}
# Parameters further than this many standard errors from both ends of their box are not profiled for flags.
_CLEAR = 6.0


def curves(design: Design) -> list[np.ndarray]:
    """Curves of the solver at the times of the records, with a floor."""
    grid = Grid(np.log(feature_curves.TIMES))
    start = feature_curves.initial(TRUTH["capacity"], TRUTH["source"])
    found = []
    for width, batch in design.sizes:
        logs = feature_curves.exact(TRUTH["capacity"], TRUTH["source"], design.richness, width, BATCH_NOISE / batch)
        found.append(Curve(grid, logs, start)(design.times) + TRUTH["floor"])
    return found


def noisy(clean: list[np.ndarray], design: Design, seed: int) -> list[Run]:
    """Runs with log-normal noise, correlated along each of them."""
    generator, runs, rho = np.random.default_rng(seed), [], design.correlation
    for (width, batch), curve in zip(design.sizes, clean, strict=True):
        noise = generator.normal(size=POINTS)
        for place in range(1, POINTS):
            noise[place] = rho * noise[place - 1] + math.sqrt(1 - rho**2) * noise[place]
        known = {"width": width, "batch_size": batch}
        sizes = {name: size for name, size in known.items() if math.isfinite(size)}
        name = f"N = {width:g}, B = {batch:g}"
        runs.append(Run(name, design.times, curve * np.exp(NOISE * noise), sizes=sizes, group="all"))
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


def corrected_law(clean: list[np.ndarray], design: Design) -> FeatureScalingLaw:
    """The law, corrected by the solver at the estimate from a replicate that is not counted."""
    runs = noisy(clean, design, 10**6)
    law = FeatureScalingLaw().prepare(runs)
    first = fit(law, runs)
    theta = first.problem.theta(first.best.coordinates, "all")
    return dataclasses.replace(law.exact(theta, runs), parameters=law.parameters)


def _counted(
    law: FeatureScalingLaw, clean: list[np.ndarray], design: Design, number: int
) -> tuple[dict[str, object], float]:
    """One replicate, and its CPU seconds."""
    begin = time.process_time()
    return replicate(law, noisy(clean, design, number), design.truth), time.process_time() - begin


def study(name: str, replicates: int, seed: int = 0, processes: int = 1) -> dict[str, object]:
    """Coverage of one design over replicates."""
    design = DESIGNS[name]
    truth = design.truth
    clean, begin = curves(design), time.process_time()
    law = corrected_law(clean, design)
    work = functools.partial(_counted, law, clean, design)
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
