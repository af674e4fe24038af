"""Trainings that are killed and resumed, against uninterrupted ones, bit for bit; and what deterministic kernels cost.

    python -m benchmarks.resume_on_gpu --out FILE [--commit COMMIT] [--only cost|resume]

Each case is trained once without interruption, and once by processes that are killed by SIGKILL twice, in the middle of
the work after a checkpoint. All arrays of the last checkpoints are compared: parameters, running values, state of the
optimiser, curves and inspections. Then one process trains with and without deterministic kernels in turns.
"""

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Processes share the device, so none of them may take all of its memory at the start.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import numpy as np
import optax

from solvable import networks
from solvable.networks import compilation, training
from solvable.networks.convolutional.cnn import CNN
from solvable.networks.convolutional.resnet import ResNet18
from solvable.networks.data.augmentation import crops_and_flips

ON_CPU = jax.default_backend() == "cpu"
SIZE, COUNT = (8, 256) if ON_CPU else (32, 4096)
# Shares of the steps after which a process is killed.
KILLS = (0.3, 0.65)
# The longest that one process may take, in seconds.
PATIENCE = 120
GROUPS = ("parameters", "running", "optimiser", "order", "diverged", "first_loss")


@dataclasses.dataclass(frozen=True)
class Case:
    """A training: its network, its optimiser, and whether features are measured along the way."""

    network: Callable[[jax.Array], Any]
    optimiser: Any
    steps: int
    batch: int
    images: bool = True
    inspected: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """What ``train`` is called with, besides network, data and optimiser."""
        inspectors = [networks.feature_record(COUNT // 8, loss="cross-entropy")]
        if not self.images:
            inspectors.append(networks.kernel_metrics(16))
        return {
            "steps": self.steps,
            "batch_size": self.batch,
            "loss": "cross-entropy",
            "precision": "bfloat16" if self.images else "float32",
            "seeds": 1 if self.images else 3,
            "measure_at": [0, self.steps // 2, self.steps],
            "inspect": inspectors if self.inspected else (),
            "inspect_at": [0, self.steps // 4, self.steps // 2, self.steps],
            "on_divergence": "keep",
            "progress": False,
        }

    def data(self) -> networks.Fixed:
        """Images or vectors of ten classes, which overlap."""
        random = np.random.default_rng(0)
        shape = (SIZE, SIZE, 3) if self.images else (64,)
        labels = random.integers(0, 10, COUNT)
        inputs = random.normal(size=(10, *shape))[labels] + 2 * random.normal(size=(COUNT, *shape))
        inputs, test = inputs.astype(np.float32), COUNT // 4
        augment = crops_and_flips() if self.images else None
        return networks.Fixed(inputs[test:], labels[test:], inputs[:test], labels[:test], augment=augment)


def resnet(width: int, blocks: tuple[int, ...]) -> Callable[[jax.Array], Any]:
    return lambda key: ResNet18((SIZE, SIZE, 3), 10, key=key, width=width, blocks=blocks)


def cnn(key: jax.Array) -> Any:
    channels, width = ((4, 8), 16) if ON_CPU else ((32, 64), 256)
    return CNN((SIZE, SIZE, 3), 10, key=key, channels=channels, width=width)


def mlp(key: jax.Array) -> Any:
    return networks.MLP(64, 10, width=16 if ON_CPU else 256, depth=4, key=key)


def descent() -> Any:
    return optax.chain(optax.add_decayed_weights(np.float32(5e-4)), optax.sgd(0.02, momentum=0.9))


WIDTH = 2 if ON_CPU else 32
BLOCKS = (1, 1) if ON_CPU else (2, 2, 2, 2)
STEPS, BATCH = (20, 16) if ON_CPU else (400, 128)
CASES = {
    "MLP, Adam": Case(mlp, optax.adam(1e-3), 5 * STEPS, BATCH, images=False, inspected=True),
    "CNN, SGD, bfloat16": Case(cnn, descent(), STEPS, BATCH),
    "CNN, Adam, bfloat16": Case(cnn, optax.adam(1e-3), STEPS, BATCH, inspected=True),
    "ResNet18, SGD, bfloat16": Case(resnet(WIDTH, BLOCKS), descent(), STEPS, BATCH, inspected=True),
    "small ResNet, Adam, bfloat16": Case(resnet(WIDTH, (1, 1)), optax.adam(1e-3), STEPS, BATCH),
}
# Networks whose steps are timed: the ResNet18 of the image figures, and the others as above.
TIMED = {
    "MLP, Adam": CASES["MLP, Adam"],
    "ResNet18 of width 64, SGD, bfloat16": Case(resnet(2 if ON_CPU else 64, BLOCKS), descent(), STEPS, BATCH),
    "CNN, SGD, bfloat16": CASES["CNN, SGD, bfloat16"],
}


def child(name: str, path: Path, kill_after: int) -> None:
    """Train a case with a checkpoint at every stop; die on the way to the second one after that step."""
    write, passed = training.checkpoints.write, []

    def write_or_die(path: Path, fingerprint: str, step: int, state: Any, found: Any) -> None:
        if passed:
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, fingerprint, step, state, found)
        if 0 <= kill_after <= step:
            passed.append(step)
        leaves = {group: len(jax.tree.leaves(getattr(state, group))) for group in GROUPS}
        path.with_suffix(".json").write_text(json.dumps(leaves))

    training.checkpoints.write = write_or_die  # type: ignore[assignment]
    case = CASES[name]
    networks.train(case.network, case.data(), case.optimiser, checkpoint=path, checkpoint_seconds=0.0, **case.settings)


def start(name: str, path: Path, kill_after: int = -1) -> tuple[int, str]:
    """Status and errors of a process that trains a case."""
    command = [sys.executable, "-m", "benchmarks.resume_on_gpu", "--child", name, str(path), str(kill_after)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return 124, f"not done after {PATIENCE} s"
    return done.returncode, done.stderr[-2000:]


def whole(name: str, folder: Path) -> list[tuple[int, str]]:
    return [start(name, folder / "whole.npz")]


def killed(name: str, folder: Path) -> list[tuple[int, str]]:
    steps = CASES[name].steps
    return [start(name, folder / "killed.npz", after) for after in (*(int(share * steps) for share in KILLS), -1)]


def compared(first: Path, second: Path) -> dict[str, dict[str, int]]:
    """Numbers of arrays and of entries, and how many of each differ in their bits, for each part of the checkpoints."""
    leaves = json.loads(first.with_suffix(".json").read_text())
    groups = [group for group, count in leaves.items() for _ in range(count)]
    table: dict[str, dict[str, int]] = {}
    with np.load(first) as one, np.load(second) as other:
        names = set(one.files) | set(other.files)
        for name in sorted(names - {"fingerprint", "step"}):
            kind, rest = name.split("/", 1)
            group = groups[int(rest)] if kind == "state" else rest.split("/")[0]
            row = table.setdefault(group, {"arrays": 0, "numbers": 0, "arrays differ": 0, "numbers differ": 0})
            differ = different_bits(one[name], other[name]) if name in one and name in other else -1
            row["arrays"] += 1
            row["numbers"] += one[name].size if name in one else 0
            row["arrays differ"] += differ != 0
            row["numbers differ"] += max(differ, 0)
    return table


def different_bits(first: np.ndarray, second: np.ndarray) -> int:
    """How many numbers differ in their bits; -1 if the shapes or types do."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return -1
    bytes_of = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (first, second)]
    return int((bytes_of[0] != bytes_of[1]).reshape(first.size, -1).any(axis=1).sum()) if first.size else 0


def resumed(names: list[str], workers: int, note: Callable[[dict[str, Any]], None]) -> None:
    """All cases side by side; ``note`` is called with the rows that are known."""
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(workers) as pool:
        jobs = {}
        for job in (killed, whole):
            for number, name in enumerate(names):
                folder = Path(scratch) / str(number)
                folder.mkdir(exist_ok=True)
                jobs[name, job.__name__] = pool.submit(job, name, folder)
        for number, name in enumerate(names):
            ends = jobs[name, "killed"].result() + jobs[name, "whole"].result()
            expected = [-signal.SIGKILL] * len(KILLS) + [0, 0]
            codes = [code for code, _ in ends]
            folder = Path(scratch) / str(number)
            said = {line for _, error in ends for line in error.splitlines() if "Warning" in line}
            row: dict[str, Any] = {"exit statuses": codes, "killed twice": codes == expected, "warnings": sorted(said)}
            if codes == expected:
                row["parts"] = compared(folder / "whole.npz", folder / "killed.npz")
                row["equal"] = not any(part["arrays differ"] for part in row["parts"].values())
            else:
                row["errors"] = [error for code, error in ends if code not in (0, -signal.SIGKILL)]
                row["equal"] = False
            rows[name] = row
            note(rows)


class Turns:
    """Lets threads work one after the other, a stretch each, and notes how long each stretch took."""

    def __init__(self, names: list[str]) -> None:
        self.names, self.turn, self.waiting, self.error = names, 0, 0, ""
        self.condition = threading.Condition()
        self.seconds: dict[str, list[float]] = {name: [] for name in names}
        self.begun: dict[str, float] = {}

    def next(self, name: str, begins: bool, ends: bool) -> None:
        """End the stretch of this thread, if it had begun one, and wait for the next."""
        now = time.perf_counter()
        with self.condition:
            if name in self.begun:
                self.seconds[name].append(now - self.begun[name])
                self.turn += 1
            self.waiting += begins
            self.condition.notify_all()
            if ends:
                return
            mine = self.names.index(name)
            self.condition.wait_for(
                lambda: self.error or (self.waiting == len(self.names) and self.turn % len(self.names) == mine),
                timeout=PATIENCE,
            )
            if self.error:
                raise RuntimeError(f"another training failed: {self.error}")
            self.begun[name] = time.perf_counter()

    def fail(self, error: str) -> None:
        """Let all threads end."""
        with self.condition:
            self.error = self.error or error
            self.condition.notify_all()


def cost(case: Case, variants: dict[str, dict[str, bool]], stretches: int, length: int) -> dict[str, Any]:
    """Median seconds per step of each variant of a training, which take turns in one process."""
    turns, data = Turns(list(variants)), case.data()
    stops = [length * number for number in range(stretches + 1)]
    compiled: dict[str, float] = {}
    # One compiles after the other: the compiler times kernels on a device that should be quiet.
    compiling = threading.Lock()

    def go(name: str) -> None:
        options, seen = variants[name], list[int]()
        begin = [0.0]

        def mark(network: Any, data: Any, initial: Any) -> dict[str, float]:
            if len(seen) % settings["seeds"] == 0:
                stop = len(seen) // settings["seeds"]
                if stop == 0:
                    # The first stretch is not timed: its step is compiled, but nothing has run.
                    compiled[name] = time.perf_counter() - begin[0]
                    compiling.release()
                turns.next(name, begins=stop == 0, ends=stop == stretches)
            seen.append(1)
            return {}

        settings = case.settings | {"steps": stops[-1], "inspect": mark, "inspect_at": stops, "measure_at": []}
        compiling.acquire()
        begin[0] = time.perf_counter()
        compilation.COMPILER_OPTIONS = options
        try:
            networks.train(case.network, data, case.optimiser, deterministic=bool(options), **settings)
        except Exception as error:
            turns.fail(repr(error))
            if name not in compiled:
                compiling.release()

    threads = [threading.Thread(target=go, args=(name,), daemon=True) for name in variants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    if turns.error:
        return {"error": turns.error}
    return {
        name: {
            "milliseconds per step": 1e3 * statistics.median(turns.seconds[name][1:]) / length,
            "fastest": 1e3 * min(turns.seconds[name][1:]) / length,
            "slowest": 1e3 * max(turns.seconds[name][1:]) / length,
            "seconds to compile": compiled[name],
        }
        for name in variants
    }


# The third keeps the compiler's choice by timing among kernels that are deterministic each by itself: two compilations
# may choose differently, so that it is no remedy by itself, but it shows what the choice is worth.
VARIANTS: dict[str, dict[str, bool]] = {
    "usual": {},
    "deterministic": {"xla_gpu_deterministic_ops": True},
    "each deterministic": {"xla_gpu_exclude_nondeterministic_ops": True},
}


def costs(kinds: list[str], note: Callable[[dict[str, Any]], None], until: float) -> None:
    rows: dict[str, Any] = {}
    stretches, length = (4, 5) if ON_CPU else (6, 100)
    for name, case in TIMED.items():
        if time.perf_counter() > until:
            break
        long = length if case.images else 20 * length
        rows[name] = cost(case, {kind: VARIANTS[kind] for kind in kinds}, stretches, long)
        note(rows)


def table(result: dict[str, Any]) -> str:
    """The numbers as a few short lines."""
    lines = [f"{result['device']}, jax {result['jax']}, {result['date']}"]
    for name, row in result.get("cost", {}).items():
        if "error" in row:
            lines.append(f"{name:<36} {row['error']}")
            continue
        usual = row["usual"]["milliseconds per step"]
        parts = [
            f"{kind} {one['milliseconds per step']:.3f} ms (x {one['milliseconds per step'] / usual:.2f}, "
            f"compiled in {one['seconds to compile']:.0f} s)"
            for kind, one in row.items()
        ]
        lines.append(f"{name:<36} {'; '.join(parts)}")
    for name, row in result.get("resumed", {}).items():
        verdict = "EQUAL" if row["equal"] else "DIFFERENT"
        parts = row.get("parts", {})
        arrays = sum(part["arrays"] for part in parts.values())
        numbers = sum(part["numbers"] for part in parts.values())
        wrong = {group: part["numbers differ"] for group, part in parts.items() if part["arrays differ"]}
        more = f"; differ: {wrong}" if wrong else ""
        more += f"; {len(row['warnings'])} warnings" if row["warnings"] else ""
        more += f"; exit statuses {row['exit statuses']} {row['errors']}" if "errors" in row else ""
        lines.append(f"{name:<36} {verdict}: {arrays} arrays, {numbers} numbers{more}")
    lines.append(f"{result.get('seconds', 0):.0f} s in all")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for all numbers, as JSON")
    parser.add_argument("--commit", default="", help="commit that is measured, for the file")
    parser.add_argument("--only", choices=("cost", "resume"), help="one of the two parts")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES), help="which trainings to kill")
    parser.add_argument(
        "--kernels", nargs="*", default=["usual", "deterministic"], choices=list(VARIANTS), help="which kernels to time"
    )
    parser.add_argument("--workers", type=int, default=2 if ON_CPU else 10, help="processes side by side")
    parser.add_argument(
        "--seconds", type=float, default=150.0, help="time aimed at; after a quarter of it no further timing begins"
    )
    parser.add_argument("--child", nargs=3, metavar=("CASE", "FILE", "STEP"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked.child[0], Path(asked.child[1]), int(asked.child[2]))
        return 0
    begin = time.perf_counter()
    result: dict[str, Any] = {
        "what": (__doc__ or "").splitlines()[0],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": asked.commit,
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "equinox": eqx.__version__,
        "optax": optax.__version__,
    }

    def note(name: str, rows: dict[str, Any]) -> None:
        result[name] = rows
        result["seconds"] = time.perf_counter() - begin
        if asked.out:
            asked.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        print(f"{name}: {list(rows)[-1]} after {result['seconds']:.0f} s", file=sys.stderr, flush=True)

    if asked.only != "resume":
        costs(asked.kernels, lambda rows: note("cost", rows), begin + asked.seconds / 4)
    if asked.only != "cost":
        resumed(asked.cases, asked.workers, lambda rows: note("resumed", rows))
    print(table(result))
    return 0 if all(row["equal"] for row in result.get("resumed", {}).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
