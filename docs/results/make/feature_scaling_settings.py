"""Theory of FeatureScaling against simulation: 32 settings of optimiser, richness, task and way of drawing batches.

Theory is the leading order in one over the numbers of features, samples and batch. So every setting is run at two
sizes, the second four times the first in all three, with the same steps per epoch. Judged, by the statistic of
``solvable.compare``:

- at either size, whether theory is within its known bias (3 % on hard tasks, 8 % on easy ones) of the mean over runs;
- whether the relative difference, extrapolated to infinite size as ``(4 d(large) - d(small)) / 3``, is zero: no bias
  is allowed there.

Run as ``python docs/results/make/feature_scaling_settings.py --workers 16``; it writes the ledger
``feature-scaling-settings.json`` to ``$OUT``, or to ``docs/results/ledgers``.
"""

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 80
TIMES = [1, 2, 4, 8, 12, 20, 32, 48, 64, 80]
# Features, batch size, samples; and seeds.
SIZES = {"small": (128, 16, 64), "large": (512, 64, 256)}
SEEDS = {"small": 512, "large": 256}
MODES = 100
BIAS = {"hard": 0.03, "easy": 0.08}
SOURCES = {"hard": 0.4, "easy": 1.2}
FALSE_ALARMS = 0.01
# Optimiser: its options, how batches of a training set are drawn, and the standard deviation of the label noise.
OPTIMISERS: dict[str, tuple[dict[str, Any], str, float]] = {
    "cosine": ({"learning_rate": "cosine"}, "epochs", 0.3),
    "warm-up-stable-decay, growing batches": ({"learning_rate": "stable", "growing": True}, "replacement", 0.0),
    "heavy ball, averaged weights": ({"learning_rate": 0.1, "momentum": 0.5, "ema_decay": 0.8}, "epochs", 0.3),
    "Nesterov, decoupled weight decay": (
        {"learning_rate": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.05, "decoupled": True},
        "cyclic",
        0.0,
    ),
}


def settings() -> list[dict[str, Any]]:
    """All settings, by their names."""
    return [
        {"optimiser": optimiser, "features": features, "task": task, "samples": samples}
        for optimiser in OPTIMISERS
        for features in ("lazy", "rich")
        for task in ("hard", "easy")
        for samples in ("new", "reused")
    ]


def system(setting: dict[str, Any], size: str) -> tuple[Any, Any]:
    """Model and training of a setting."""
    import jax.numpy as jnp
    import optax

    from solvable import SGD, FeatureScaling

    options, draws, noise = OPTIMISERS[setting["optimiser"]]
    options = dict(options)
    features, batch, samples = SIZES[size]
    schedules = {
        "cosine": optax.cosine_decay_schedule(0.3, STEPS),
        "stable": optax.join_schedules(
            [optax.linear_schedule(0.05, 0.25, 10), optax.linear_schedule(0.25, 0.0, 20)], [60]
        ),
    }
    rate = options.pop("learning_rate")
    batch_size: Any = batch
    if options.pop("growing", False):

        def batch_size(step: Any) -> Any:
            """From a quarter of the batch to the whole."""
            return jnp.minimum(batch // 4 + batch * step // 64, batch)

    reused = setting["samples"] == "reused"
    training = SGD(schedules.get(rate, rate), batch_size=batch_size, sampling=draws if reused else "online", **options)
    model = FeatureScaling(
        1.5,
        SOURCES[setting["task"]],
        modes=MODES,
        features=features,
        richness=float(setting["features"] == "rich"),
        samples=samples if reused else None,
        label_noise=noise,
    )
    return model, training


def run(job: tuple[int, float]) -> dict[str, Any]:
    """Theory and runs of one setting at both sizes, as plain numbers."""
    number, share = job
    from solvable.comparison import agreement

    setting = settings()[number]
    found: dict[str, Any] = {**setting}
    begin = time.perf_counter()
    for size in SIZES:
        model, training = system(setting, size)
        seeds = max(8, round(share * SEEDS[size]))
        theory = model.predict(TIMES, training)
        runs = model.simulate(TIMES, training, seeds=seeds, key=7, progress=False)
        found[size] = {"seeds": seeds}
        for name in sorted(set(map(str, theory.data_vars)) & set(map(str, runs.data_vars))):
            if setting["features"] == "lazy" and name == "kernel_growth":
                continue
            judged = agreement(theory, runs, name, bias=BIAS[setting["task"]])
            expected = theory[name].values
            found[size][name] = {
                "theory": expected.tolist(),
                "mean": runs[name].mean("seed").values.tolist(),
                "standard_error": (runs[name].std("seed", ddof=1) / seeds**0.5).values.tolist(),
                "difference": (runs[name].mean("seed").values / expected - 1).tolist(),
                "p_value_with_bias": judged.p_value,
                "largest_score_with_bias": judged.score,
            }
    found["seconds"] = round(time.perf_counter() - begin, 1)
    found["extrapolated"] = {name: extrapolated(found, name) for name in found["small"] if name != "seeds"}
    return found


def extrapolated(found: dict[str, Any], name: str) -> dict[str, Any]:
    """The relative difference at infinite size, its standard error, and the p-value of its being zero."""
    from solvable.extrapolation import inverse_size_weights
    from solvable.standard_errors import combined_p_value, two_sided_p_values

    parts = [{key: np.array(value) for key, value in found[size][name].items()} for size in SIZES]
    errors = np.array([part["standard_error"] / part["theory"] for part in parts])
    weights, _ = inverse_size_weights([features for features, *_ in SIZES.values()], errors)
    difference = (weights * [part["difference"] for part in parts]).sum(0)
    error = np.sqrt(((weights * errors) ** 2).sum(0))
    freedom = np.full(error.shape, float(min(found[size]["seeds"] for size in SIZES) - 1))
    scores = difference / error
    p_value = combined_p_value(two_sided_p_values(scores, freedom))
    return {
        "difference": difference.tolist(),
        "standard_error": error.tolist(),
        "largest_score": float(np.abs(scores).max()),
        "p_value": p_value,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """One line for each setting: median and largest differences in percent, p-values, and seconds."""
    head = f"{'setting':<62} {'small':>13} {'large':>13} {'infinite':>13}  p(3/8%) small large   p(inf)  worst"
    lines = [head]
    for row in rows:
        names = list(row["extrapolated"])
        parts = []
        for size in SIZES:
            off = 100 * np.abs([row[size][name]["difference"] for name in names])
            parts.append(f"{np.median(off):5.2f} {off.max():6.2f}")
        off = 100 * np.abs([row["extrapolated"][name]["difference"] for name in names])
        parts.append(f"{np.median(off):5.2f} {off.max():6.2f}")
        biased = [min(row[size][name]["p_value_with_bias"] for name in names) for size in SIZES]
        worst = min(names, key=lambda name: row["extrapolated"][name]["p_value"])
        final = row["extrapolated"][worst]["p_value"]
        label = f"{row['optimiser']}, {row['features']}, {row['task']}, {row['samples']}"
        lines.append(
            f"{label:<62} "
            + " ".join(f"{part:>13}" for part in parts)
            + f"  {biased[0]:11.1e} {biased[1]:7.1e} {final:8.1e}  {worst}"
        )
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many comparisons fail, at the false-alarm rate of all of them together."""
    comparisons = sum(len(row["extrapolated"]) for row in rows)
    limit = FALSE_ALARMS / comparisons
    kinds = {
        f"{size}, beyond the bias": [
            (row, name) for row in rows for name in row["extrapolated"] if row[size][name]["p_value_with_bias"] < limit
        ]
        for size in SIZES
    }
    kinds["extrapolated"] = [
        (row, name) for row in rows for name in row["extrapolated"] if row["extrapolated"][name]["p_value"] < limit
    ]
    scores = np.array(
        [
            np.array(row["extrapolated"][name]["difference"]) / np.array(row["extrapolated"][name]["standard_error"])
            for row in rows
            for name in row["extrapolated"]
        ]
    )
    return {
        "settings": len(rows),
        "comparisons": comparisons,
        "limit": limit,
        "failures": {
            kind: [
                f"{row['optimiser']}, {row['features']}, {row['task']}, {row['samples']}: {name}" for row, name in bad
            ]
            for kind, bad in kinds.items()
        },
        "mean_square_of_extrapolated_scores": float((scores**2).mean()),
        "share_of_extrapolated_scores_beyond_2": float((np.abs(scores) > 2).mean()),
    }


def commit() -> str:
    try:
        return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _alone() -> None:
    """Each worker computes on the processor, with its share of the threads."""
    os.environ["JAX_PLATFORMS"] = "cpu"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="number of processes")
    parser.add_argument("--share", type=float, default=1.0, help="share of the seeds")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the settings; all by default")
    parser.add_argument("--commit", default=commit(), help="the commit, where git does not say it")
    arguments = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    numbers = range(len(settings())) if arguments.only is None else arguments.only
    # Reused samples take longest and come first.
    jobs = sorted(((number, arguments.share) for number in numbers), key=lambda job: -(job[0] % 2))
    rows = []
    context = multiprocessing.get_context("spawn")
    with context.Pool(arguments.workers, initializer=_alone, maxtasksperchild=4) as pool:
        for row in pool.imap_unordered(run, jobs, chunksize=1):
            rows.append(row)
            print(table([row]).splitlines()[1], f"{row['seconds']} s", flush=True)
    order = {tuple(setting.values()): place for place, setting in enumerate(settings())}
    rows.sort(key=lambda row: order[row["optimiser"], row["features"], row["task"], row["samples"]])
    import jax

    ledger = {
        "what": "Theory of FeatureScaling against simulation: optimisers x lazy, rich x hard, easy x new, reused "
        f"samples, at two sizes {SIZES} (features, batch, samples), {MODES} modes, capacity 1.5, sources {SOURCES}. "
        "Differences are mean over runs divided by theory, less 1; extrapolated as (4 large - small) / 3.",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "device": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": f"Python {platform.python_version()}, jax {jax.__version__}, float64",
        "commit": arguments.commit,
        "command": "python docs/results/make/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "times": TIMES,
        "summary": summary(rows),
        "settings": rows,
    }
    folder = Path(os.environ.get("OUT") or Path(__file__).parents[1] / "ledgers")
    text = json.dumps(ledger, indent=1)
    (folder / "feature-scaling-settings.json").write_text(text + "\n")
    print(table(rows))
    print(json.dumps(ledger["summary"], indent=1))


if __name__ == "__main__":
    main()
