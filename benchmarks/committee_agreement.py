"""The committee's theory against literal simulation: losses x batches x optimisers x activations, several dimensions.

``python -m benchmarks.committee_agreement`` judges every order parameter of every setting at ten times by the one
statistic of :func:`solvable.compare`, prints a table, and writes the raw numbers to ``$OUT/committee-agreement.json``
(or ``--out``). Settings run in processes of their own, each on one core. Seeds are those of the setting, so that
settings do not share their inputs.
"""

import argparse
import concurrent.futures
import datetime
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from solvable import SGD, Committee, GradientDescent, activations, solvers, teachers
from solvable.comparison import agreement
from solvable.papers.claims import FALSE_ALARMS
from solvable.training import Training

TIMES = np.array([1, 2, 3, 5, 8, 12, 16, 20, 26, 32])
# One-pass SGD counts D steps.
ONE_PASS_TIMES = np.arange(1, 11)
READOUT = np.array([1.4, -1.4])
# Two erf neurons that learn the sign of a field with the logistic loss.
CLASSIFIER: dict[str, Any] = {
    "samples_per_dimension": 2.0,
    "activation": activations.erf,
    "teacher": teachers.linear(),
    "labels": "sign",
    "loss": "logistic",
    "initial_overlap": np.array([[1.0, 0.2], [0.2, 1.0]]),
    "initial_alignment": np.array([[0.3], [-0.1]]),
    "readout": READOUT,
    "gradient_readout": READOUT,
}
REAL: dict[str, Any] = {"loss": "squared", "labels": "teacher"}
HUBER: dict[str, Any] = {"loss": "huber", "huber_width": 0.6, "labels": "teacher", "label_noise": 0.4}
THREE: dict[str, Any] = {
    "loss": "softmax",
    "labels": "cluster",
    "readout": None,
    "gradient_readout": None,
    "class_readout": [[1.2, 0.1, -0.6], [-0.5, 1.0, 0.2], [-0.2, -0.8, 1.1]],
    "initial_overlap": np.eye(3),
    "initial_alignment": [[0.3, 0.0], [0.0, 0.2], [-0.2, 0.1]],
    "cluster_means": [[1.2, 0.0], [-0.6, 1.0], [-0.6, -1.0]],
}
TWO_FIELDS: dict[str, Any] = {"initial_alignment": [[0.3, 0.1], [-0.1, 0.2]], "samples_per_dimension": 3.0}


def two_tanh(one: Any, other: Any) -> Any:
    return (jnp.tanh(one) - jnp.tanh(other)) / np.sqrt(2)


def two_scores(one: Any, other: Any) -> Any:
    return jnp.stack([one, other, -one * other])


SETTINGS: dict[str, tuple[dict[str, Any], Training]] = {
    "logistic, epochs, heavy ball, erf": ({}, SGD(0.6, batch_fraction=0.25, momentum=0.4)),
    "logistic of sigmoid labels, subsets, decoupled decay, erf": (
        {"labels": "sigmoid"},
        SGD(0.6, batch_fraction=0.25, sampling="subsets", momentum=0.4, weight_decay=0.1, decoupled=True),
    ),
    "logistic with flips, replacement, cosine, tanh": (
        {"label_flips": 0.1, "activation": activations.tanh},
        SGD(optax.cosine_decay_schedule(0.8, 32), batch_fraction=0.25, sampling="replacement"),
    ),
    "logistic, full batch, warm-up, ReLU": (
        {"activation": activations.relu},
        GradientDescent(optax.linear_schedule(0.1, 0.6, 10), momentum=0.3),
    ),
    "hinge with flips, epochs, erf": ({"loss": "hinge", "label_flips": 0.1}, SGD(0.5, batch_fraction=0.25)),
    "hinge, full batch, coupled decay, ReLU": (
        {"loss": "hinge", "activation": activations.relu},
        GradientDescent(0.4, momentum=0.3, weight_decay=0.1),
    ),
    "Huber with noise, subsets, Nesterov, erf": (
        HUBER,
        SGD(0.4, batch_fraction=0.5, sampling="subsets", momentum=0.4, nesterov=True),
    ),
    "Huber with noise, full batch, clipping, tanh": (
        {**HUBER, "activation": activations.tanh},
        GradientDescent(0.8, max_gradient_norm=0.3),
    ),
    "squared, cyclic, two index fields, ReLU": (
        {**REAL, **TWO_FIELDS, "activation": activations.relu, "teacher": two_tanh},
        SGD(0.5, batch_fraction=0.25, sampling="cyclic"),
    ),
    "squared with noise, replacement, moving average, quadratic": (
        {
            **REAL,
            "label_noise": 0.3,
            "activation": activations.quadratic(0.3),
            "readout": READOUT / 2,
            "gradient_readout": READOUT / 2,
        },
        SGD(0.3, batch_fraction=0.25, sampling="replacement", ema_decay=0.8),
    ),
    "squared with fresh noise, epochs, tail average, erf": (
        {**REAL, "label_noise": 0.4, "noise_draw": "fresh"},
        SGD(0.5, batch_fraction=0.25, average_from=5),
    ),
    "squared, unequal batches, Langevin noise, erf": (
        REAL,
        SGD(0.5, batch_fraction=3 / 8, temperature=0.02, weight_decay=0.05),
    ),
    "softmax of three clusters, full batch, heavy ball, tanh": (
        {**THREE, "activation": activations.tanh},
        GradientDescent(0.4, momentum=0.4),
    ),
    "softmax of three clusters, epochs, trained readout, ReLU": (
        {**THREE, "activation": activations.relu, "cluster_weights": [2.0, 1.0, 1.0]},
        SGD(0.4, batch_fraction=0.5, readout_learning_rate=0.1),
    ),
    "softmax of the largest of three scores, subsets, erf": (
        {**THREE, "labels": "argmax", "teacher": two_scores, "cluster_means": None},
        SGD(0.4, batch_fraction=0.5, sampling="subsets"),
    ),
    "mixture, logistic, subsets, unbalanced, erf": (
        {"labels": "cluster", "cluster_means": [[0.8], [-0.8]], "cluster_weights": [0.7, 0.3]},
        SGD(0.6, batch_fraction=0.25, sampling="subsets"),
    ),
    "mixture, squared, full batch, Nesterov, erf": (
        {"loss": "squared", "labels": "cluster", "cluster_means": [[1.0], [-1.0]]},
        GradientDescent(0.4, momentum=0.5, nesterov=True),
    ),
    "logistic, replacement, trained readout, erf": (
        {},
        SGD(0.5, batch_fraction=0.5, sampling="replacement", readout_learning_rate=0.2),
    ),
    "one pass, logistic with flips, erf": (
        {"label_flips": 0.1, "samples_per_dimension": np.inf},
        SGD(0.6, batch_size=1, weight_decay=0.1),
    ),
    "one pass, hinge, ReLU": (
        {"loss": "hinge", "activation": activations.relu, "samples_per_dimension": np.inf},
        SGD(0.4, batch_size=1),
    ),
    "one pass, Huber with noise, tanh": (
        {**HUBER, "activation": activations.tanh, "samples_per_dimension": np.inf},
        SGD(0.6, batch_size=1),
    ),
}


def committee(name: str) -> tuple[Committee, Training, np.ndarray, int]:
    """Model, training, times and random key of a setting."""
    changes, training = SETTINGS[name]
    model, key = Committee(**{**CLASSIFIER, **changes}), zlib.crc32(name.encode()) % 10_000
    return model, training, ONE_PASS_TIMES if np.isinf(model.samples_per_dimension) else TIMES, key


def judge(name: str, dimensions: list[int], seeds: list[int], samples: int, shift: int = 0) -> dict[str, Any]:
    """Theory of a setting and simulations of each dimension, with the agreement of every variable they share."""
    model, training, times, key = committee(name)
    begin = time.process_time()
    solver = None if np.isinf(model.samples_per_dimension) else solvers.Latent(samples=samples, replicates=8)
    theory = model.predict(times, training, solver=solver, key=key + shift, progress=False)
    found: dict[str, Any] = {"times": times.tolist(), "theory": {}, "theory_error": {}, "sizes": {}}
    simulations = []
    for dimension, count in zip(dimensions, seeds, strict=True):
        # Sizes do not share their inputs either.
        own = key + shift + 100_000 * dimension
        runs = model.simulate(times, training, dimension=dimension, seeds=count, key=own, progress=False)
        simulations.append(runs)
        shared = [str(variable) for variable in runs.data_vars if variable in theory]
        size: dict[str, Any] = {"seeds": count, "p_value": {}, "score": {}, "mean": {}, "standard_error": {}}
        for variable in shared:
            agreed = agreement(theory, runs, variable)
            size["p_value"][variable], size["score"][variable] = agreed.p_value, agreed.score
            size["mean"][variable] = _short(runs[variable].mean("seed"))
            size["standard_error"][variable] = _short(runs[variable].std("seed", ddof=1) / np.sqrt(count))
            found["theory"][variable] = _short(theory[variable])
            if f"{variable}_error" in theory:
                found["theory_error"][variable] = _short(theory[f"{variable}_error"])
        found["sizes"][dimension] = size
    if len(simulations) > 1:
        found["extrapolated"] = {
            variable: agreement(theory, simulations, variable, extrapolate="dimension")._asdict() for variable in shared
        }
    return {**found, "cpu_seconds": time.process_time() - begin}


def _short(values: Any) -> Any:
    return json.loads(
        json.dumps(np.asarray(values).tolist(), default=float), parse_float=lambda x: float(f"{float(x):.6g}")
    )


def _on_one_core() -> None:
    jax.config.update("jax_platforms", "cpu")


def table(results: dict[str, Any]) -> list[str]:
    """One line for each setting: smallest p-value of its variables at each dimension."""
    lines = []
    for name, result in results.items():
        parts = []
        for dimension, size in result["sizes"].items():
            variable = min(size["p_value"], key=size["p_value"].get)
            mark = "" if size["p_value"][variable] >= FALSE_ALARMS else " DISAGREES"
            parts.append(f"{dimension}: {size['p_value'][variable]:.2g} ({variable}){mark}")
        if limit := result.get("extrapolated"):
            variable = min(limit, key=lambda name: limit[name]["p_value"])
            parts.append(f"extrapolated: {limit[variable]['p_value']:.2g} ({variable})")
        lines.append(f"{name:<60} {'; '.join(parts)}")
    return lines


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dimensions", type=int, nargs="+", default=[300, 1000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[200, 120], help="datasets of each dimension")
    parser.add_argument("--samples", type=int, default=16384, help="samples of the closure")
    parser.add_argument("--shift", type=int, default=0, help="added to the keys: other inputs, other samples")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--out", default=os.environ.get("OUT", "."), help="folder of the ledger")
    options = parser.parse_args(arguments)
    # Each process has a core of its own.
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    names = [name for name in SETTINGS if options.only in name]
    begin, results = time.perf_counter(), {}
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.workers, context, _on_one_core) as pool:
        waiting = {
            pool.submit(judge, name, options.dimensions, options.seeds, options.samples, options.shift): name
            for name in names
        }
        for done in concurrent.futures.as_completed(waiting):
            name, error = waiting[done], done.exception()
            if error is None:
                results[name] = done.result()
            shown = [f"{name} FAILED: {error!r}"] if error else table({name: results[name]})
            print(f"{time.perf_counter() - begin:6.0f} s", *shown, flush=True)
    results = {name: results[name] for name in names if name in results}
    ledger = {
        "what": (__doc__ or "").splitlines()[0],
        "date": datetime.date.today().isoformat(),
        "device": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "versions": f"Python {platform.python_version()}, jax {jax.__version__}, float64",
        "code": _commit(),
        "command": " ".join(["python -m benchmarks.committee_agreement", *arguments]),
        "false_alarms": FALSE_ALARMS,
        "settings": results,
    }
    path = Path(options.out) / "committee-agreement.json"
    path.write_text(json.dumps(ledger, indent=None, separators=(",", ":")), "utf-8")
    values = [p for each in results.values() for size in each["sizes"].values() for p in size["p_value"].values()]
    print("\n".join(table(results)))
    bad = sum(p < FALSE_ALARMS for p in values)
    print(
        f"{len(values)} comparisons, {bad} below {FALSE_ALARMS:g}, {sum(p < 0.01 for p in values)} below 0.01; {path}"
    )
    return int(bad > 0 or len(results) < len(names))


def _commit() -> str:
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    answer = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
