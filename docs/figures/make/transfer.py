"""Does the best learning rate transfer? Standard and maximal-update parameterisation, by SGD and by Adam.

A three-layer ReLU network learns eight rectified features of 16 Gaussian inputs from 512 samples with label noise; each
seed has samples and noise of its own. Run as ``python docs/figures/make/transfer.py``, about ten minutes of processor
time; it writes the ledger ``transfer.json`` into ``--folder``, and prints the table of the page. ``--draw`` makes the
table and the figure ``docs/figures/networks-transfer.png`` from a ledger alone.

``--scale full`` is for one GPU: widths up to 4096, 16 seeds, half octaves. The four groups, one for each optimiser and
parameterisation, run in processes of their own (``--processes``), so that three compile while one computes. Every
finished width is kept under ``--folder``; the same command resumes. After ``--seconds`` the processes are stopped, and
the ledger ``transfer-full.json`` in that folder has the widths that were finished until then. A folder without a git
repository needs ``--commit``. ``--widest`` leaves out the widths above it: without a GPU, ``--widest 1024`` takes about
an hour of one core, and a later call with a larger number goes on from there.

Floating-point operations and bytes of a group at width n, with R runs and T steps of B samples: 6 R T B n² and, because
a step reads and writes all weights, about 4 R T n² k bytes with k = 12 for SGD and 28 for Adam (gradient, moments,
what a diverged run keeps, and copies between programs). At n = 4096, R = 384, T = 100, B = 32 that is 1.2e14 operations
and 31 to 66 TB, 7 to 16 s at 4 TB/s; all widths are 4/3 of that, all four groups 60 s. Compiling comes on top.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable import networks
from solvable.diagnostics.transfer_picture import draw_losses, draw_rates
from solvable.networks.transfer_widths import read_checkpoint
from solvable.plotting import new_figure, save_figure

DOCS = Path(__file__).parents[2]
SAMPLES, INPUTS, NOISE = 512, 16, 1.0


def full_group(width: int) -> int | None:
    """Runs that are trained at once; 24 and 22 rates times 16 seeds are multiples of it: no other program is compiled.

    With Adam's moments, gradients and the state before a step, 16 runs at width 4096 take about 18 GB.
    """
    return None if width <= 512 else 32 if width <= 2048 else 16


SCALES: dict[str, dict[str, Any]] = {
    "quick": {
        "widths": {"sgd": tuple(2**k for k in range(5, 11)), "adam": tuple(2**k for k in range(5, 10))},
        "seeds": 8,
        "spacing": 1.0,
        "runs_per_group": None,
    },
    "full": {
        "widths": dict.fromkeys(("sgd", "adam"), tuple(2**k for k in range(5, 13))),
        "seeds": 16,
        "spacing": 0.5,
        "runs_per_group": full_group,
    },
    # To try the processes, the folder and the ledger.
    "tiny": {
        "widths": dict.fromkeys(("sgd", "adam"), (4, 8, 16)),
        "seeds": 4,
        "spacing": 2.0,
        "runs_per_group": 8,
    },
}
GROUPS = tuple(
    (optimiser, parameterisation)
    for optimiser in ("sgd", "adam")
    for parameterisation in ("standard", "maximal-update")
)
STEPS = 100
# Seconds kept for the reports of groups that were not finished, which train nothing.
RESERVE = 35.0
RANGES = {"sgd": (-11, 1), "adam": (-14, -3)}


def task(key: jax.Array) -> networks.Fixed:
    """Samples of one seed; the teacher is the same for all."""
    input_key, noise_key = jax.random.split(key)
    inputs = jax.random.normal(input_key, (2 * SAMPLES, INPUTS))
    directions = jax.random.normal(jax.random.key(7), (INPUTS, 8)) / INPUTS**0.5
    weights = jax.random.normal(jax.random.key(8), (8,)) / 1.5
    targets = jnp.maximum(inputs @ directions, 0) @ weights - 0.2
    noisy = targets[:SAMPLES] + NOISE * jax.random.normal(noise_key, (SAMPLES,))
    return networks.Fixed(inputs[:SAMPLES], noisy[:, None], inputs[SAMPLES:], targets[SAMPLES:, None])


def group_path(folder: Path, optimiser: str, parameterisation: str) -> Path:
    """The checkpoint of a group; its report is beside it."""
    return folder / f"{optimiser}-{parameterisation}.npz"


def train_group(
    scale: str, optimiser: str, parameterisation: str, folder: Path, finished_only: bool, widest: int | None = None
) -> None:
    """Train a group and write its report into the folder; or only the report of the widths that are there."""
    options, path, begin = SCALES[scale], group_path(folder, optimiser, parameterisation), time.process_time()
    planned = options["widths"][optimiser]
    wanted = tuple(width for width in planned if widest is None or width <= widest)
    widths = tuple(read_checkpoint(path)) if finished_only else wanted
    report = networks.transfer(
        parameterisation,
        task,
        widths=widths,
        learning_rates=2.0 ** np.arange(*RANGES[optimiser], options["spacing"]),
        seeds=options["seeds"],
        steps=STEPS,
        batch_size=32,
        optimiser=optimiser,
        runs_per_group=options["runs_per_group"],
        checkpoint=path,
        progress=False,
    )
    on_cpu = jax.default_backend() == "cpu"
    content = {
        "device": "two CPU cores" if on_cpu else jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "finished": widths == planned,
        "processor_seconds": round(time.process_time() - begin, 1),
        "seconds": {str(width): round(one.seconds, 1) for width, one in read_checkpoint(path).items()},
        **json.loads(report.to_json()),
        "parameters": report.parameters.tolist(),
        # All that is needed to make the report, its table and its picture again.
        "losses": [[[_rounded(loss) for loss in row] for row in rows] for rows in report.losses.tolist()],
    }
    path.with_suffix(".json").write_text(json.dumps(content), "utf-8")
    print(parameterisation, optimiser, report.summary(), sep="\n", flush=True)


def _rounded(loss: float) -> float | None:
    return None if np.isnan(loss) else float(f"{loss:.6g}")


def start_process(
    scale: str,
    group: tuple[str, str],
    folder: Path,
    environment: dict[str, str],
    widest: int | None,
    finished_only: bool = False,
) -> subprocess.Popen:
    """A process that trains one group, and writes its output to a log."""
    command = [sys.executable, __file__, "--scale", scale, "--folder", str(folder), "--group", ",".join(group)]
    command += [] if widest is None else ["--widest", str(widest)]
    with group_path(folder, *group).with_suffix(".log").open("a") as log:
        return subprocess.Popen(
            command + ["--finished-only"] * finished_only, env=environment, stdout=log, stderr=subprocess.STDOUT
        )


def environment_of_groups(processes: int) -> dict[str, str]:
    """Variables for a process that shares the device with others and compiles fast.

    The compiler searches the fastest matrix products by trying them, which takes longer than all the products here;
    they are bound by memory anyway. A compiler that does not know a flag ends the process, so each is tried first.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    for flag in ("--xla_gpu_autotune_level=0", "--xla_gpu_enable_triton_gemm=false"):
        trial = {**os.environ, "XLA_FLAGS": f"{flags} {flag}", "JAX_PLATFORMS": "cpu"}
        tried = subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=trial, capture_output=True)
        flags = f"{flags} {flag}" if tried.returncode == 0 else flags
    share = f"{0.92 / processes:.3f}"
    return {**os.environ, "XLA_FLAGS": flags.strip(), "XLA_PYTHON_CLIENT_MEM_FRACTION": share}


def train_all(scale: str, folder: Path, processes: int, seconds: float, widest: int | None) -> None:
    """Train all groups, some at a time, and stop in time for the reports of those that were not finished."""
    begin, waiting, shown = time.monotonic(), list(GROUPS), set()
    running: dict[tuple[str, str], subprocess.Popen] = {}
    environment = environment_of_groups(processes)

    def show() -> None:
        for group in GROUPS:
            for width, one in read_checkpoint(group_path(folder, *group)).items():
                if (group, width) not in shown:
                    shown.add((group, width))
                    after = time.monotonic() - begin
                    print(f"{after:5.0f} s  {', '.join(group)}: width {width} took {one.seconds:.1f} s", flush=True)

    while (waiting or running) and time.monotonic() - begin < seconds - RESERVE:
        while waiting and len(running) < processes:
            group = waiting.pop(0)
            running[group] = start_process(scale, group, folder, environment, widest)
        time.sleep(0.5)
        show()
        for group, process in list(running.items()):
            if process.poll() is not None:
                del running[group]
                ended = "done" if process.returncode == 0 else f"failed with status {process.returncode}: see its log"
                print(f"{time.monotonic() - begin:5.0f} s  {', '.join(group)}: {ended}", flush=True)
    for process in running.values():
        process.kill()
    for process in running.values():
        process.wait()
    show()
    last = {
        group: start_process(scale, group, folder, environment, widest, finished_only=True)
        for group in running
        if len(read_checkpoint(group_path(folder, *group))) > 1
    }
    for group, process in last.items():
        left = max(1.0, seconds - (time.monotonic() - begin))
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            process.kill()
            print(f"no report of {', '.join(group)} in time: run the same command again", flush=True)


def write_ledger(scale: str, folder: Path, target: Path, commit: str, command: str, seconds: float) -> None:
    """Collect the reports of the groups, as far as they are finished."""
    found = {}
    for optimiser, parameterisation in GROUPS:
        path = group_path(folder, optimiser, parameterisation).with_suffix(".json")
        if path.exists():
            found[f"{parameterisation}, {optimiser}"] = json.loads(path.read_text("utf-8"))
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": next((report["device"] for report in found.values()), "none"),
        "commit": commit,
        "command": command,
        "seconds": round(seconds, 1),
        "unfinished": [", ".join(group) for group in GROUPS if not _is_finished(found, *group)],
        "reports": found,
    }
    target.write_text(json.dumps(content) + "\n", "utf-8")


def _is_finished(found: dict[str, Any], optimiser: str, parameterisation: str) -> bool:
    return found.get(f"{parameterisation}, {optimiser}", {"finished": False})["finished"]


def read_ledger(path: Path) -> dict[str, networks.TransferReport]:
    """The reports of a ledger, made from its losses."""
    return {name: _report(one) for name, one in json.loads(path.read_text("utf-8"))["reports"].items()}


def _report(content: dict[str, Any]) -> networks.TransferReport:
    if "losses" not in content:
        raise ValueError("this ledger has no losses, as those before November 2026: run the script again")
    rates = content["stable_rates"]
    return networks.TransferReport(
        np.array(content["widths"]),
        np.array(content["learning_rates"]),
        np.array(content["losses"], float),
        np.array(content["parameters"]),
        "test_loss",
        content["settings"],
        stable_rates=None if rates is None else np.array(rates),
    )


def table(found: dict[str, networks.TransferReport]) -> str:
    """The rows of the page's table."""
    columns = (
        "parameterisation",
        "optimiser",
        "drift, octaves per doubling (chance of the line)",
        "the narrowest from the limit, octaves (chance of one over the width)",
        "best rate at the narrowest … widest, $\\log_2$",
        "narrowest's rate at the widest",
    )
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, report in found.items():
        parameterisation, optimiser = name.split(", ")
        drift, limit = (_with_chance(one) for one in (report.drift, report.limit))
        ends = " … ".join(_rate(one) for one in (report.optima[0], report.optima[-1]))
        optimiser = {"sgd": "SGD", "adam": "Adam"}[optimiser]
        lines.append(f"| {parameterisation} | {optimiser} | {drift} | {limit} | {ends} | {_cost(report.penalty)} |")
    return "\n".join(lines)


def _with_chance(line: Any) -> str:
    if line is None:
        return "outside the grid"
    value = line.coefficient if hasattr(line, "coefficient") else line.slope
    chance = f"{line.probability:.2g}" if line.probability > 1e-3 else "below 0.001"
    return f"{_measured(value, line.error)} ({chance})"


def _rate(one: Any) -> str:
    return _measured(one.log2_rate, one.error) if one.is_located else one.status


def _measured(value: float, error: float) -> str:
    return f"{value:.2f} ± {error:.2f}".replace("-", "−")


def _cost(penalty: Any) -> str:
    if penalty is None:
        return "unknown"
    if np.isinf(penalty.value):
        return "diverges"
    return f"{100 * penalty.value:.0f} ± {100 * penalty.error:.0f} % of the loss".replace("-", "−")


def draw(found: dict[str, networks.TransferReport], target: Path) -> None:
    figure, axes = new_figure(columns=3, rows=2, width=4.6, height=3.7)
    for row, optimiser in zip(axes, RANGES, strict=True):
        for index, name in enumerate(("standard", "maximal-update")):
            report = found[f"{name}, {optimiser}"]
            draw_losses(row[index], report)
            if (optimiser, index) != ("adam", 1):
                # The colours are those of the one panel that has room for a legend.
                row[index].get_legend().remove()
            row[index].set_title(f"{name}, {optimiser.upper() if optimiser == 'sgd' else 'Adam'}", fontsize="medium")
            draw_rates(row[2], report, index, name)
        low, high = RANGES[optimiser]
        row[2].set_ylim(2.0 ** (low - 0.5), 2.0 ** (high - 0.5))
    save_figure(figure, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=tuple(SCALES), default="quick")
    parser.add_argument("--folder", type=Path, help="where finished widths are kept, and where the ledger is written")
    parser.add_argument("--processes", type=int, default=1, help="groups that are trained at the same time")
    parser.add_argument("--seconds", type=float, default=86400.0, help="when to stop")
    parser.add_argument("--widest", type=int, help="leave out wider networks; a later call may take them")
    parser.add_argument("--commit", default=os.environ.get("COMMIT"), help="commit of this code; by default from git")
    parser.add_argument("--draw", type=Path, metavar="LEDGER", help="only the figure and the table of a ledger")
    parser.add_argument("--figure", type=Path, default=DOCS / "figures/networks-transfer.png")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    parser.add_argument("--finished-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.draw:
        found = read_ledger(options.draw)
        print(table(found))
        draw(found, options.figure)
        return
    folder = options.folder or DOCS.parent / "report" / f"transfer-{options.scale}"
    folder.mkdir(parents=True, exist_ok=True)
    if options.group:
        train_group(options.scale, *options.group.split(","), folder, options.finished_only, options.widest)
        return
    # Before the work: the code that runs is the one imported now.
    commit = options.commit or subprocess.check_output(["git", "rev-parse", "HEAD"], text=True, cwd=DOCS).strip()
    begin = time.monotonic()
    train_all(options.scale, folder, options.processes, options.seconds, options.widest)
    ledger = folder / ("transfer.json" if options.scale == "quick" else f"transfer-{options.scale}.json")
    # Without paths, which belong to one machine.
    command = f"python docs/figures/make/transfer.py --scale {options.scale} --processes {options.processes}"
    command += "" if options.widest is None else f" --widest {options.widest}"
    write_ledger(options.scale, folder, ledger, commit, command, time.monotonic() - begin)
    print(table(read_ledger(ledger)), f"ledger: {ledger}", sep="\n", flush=True)


if __name__ == "__main__":
    main()
