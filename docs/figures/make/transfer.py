"""Does the best learning rate transfer? Standard and maximal-update parameterisation, by SGD and by Adam.

A three-layer ReLU network learns eight rectified features of 16 Gaussian inputs from 512 samples with label noise; each
seed has samples and noise of its own. Run as ``python docs/figures/make/transfer.py``, about ten minutes of processor
time; it writes the ledger ``docs/results/ledgers/transfer.json`` and the figure ``docs/figures/networks-transfer.png``.
``--scale full`` is for one GPU: widths up to 4096, 16 seeds, finer rates; it writes ``transfer-full.json`` and no
figure.
"""

import argparse
import json
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from solvable import networks
from solvable.diagnostics.transfer_picture import draw_losses, draw_rates
from solvable.plotting import new_figure, save_figure

DOCS = Path(__file__).parents[2]
SAMPLES, INPUTS, NOISE = 512, 16, 1.0
SCALES = {
    "quick": {
        "widths": {"sgd": tuple(2**k for k in range(5, 11)), "adam": tuple(2**k for k in range(5, 10))},
        "seeds": 8,
        "spacing": 1.0,
        "runs_per_group": None,
    },
    # All 352 runs at width 4096, of 17 million parameters, take over 100 GB with Adam's moments and gradients.
    "full": {
        "widths": dict.fromkeys(("sgd", "adam"), tuple(2**k for k in range(5, 13))),
        "seeds": 16,
        "spacing": 0.5,
        "runs_per_group": 64,
    },
}
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


def reports(scale: str) -> dict[str, tuple[networks.TransferReport, float]]:
    """A report for each optimiser and parameterisation, and the seconds of processor time that it took."""
    found, options = {}, SCALES[scale]
    for optimiser, (low, high) in RANGES.items():
        for parameterisation in ("standard", "maximal-update"):
            begin = time.process_time()
            report = networks.transfer(
                parameterisation,
                task,
                widths=options["widths"][optimiser],
                learning_rates=2.0 ** np.arange(low, high, options["spacing"]),
                seeds=options["seeds"],
                steps=100,
                batch_size=32,
                optimiser=optimiser,
                runs_per_group=options["runs_per_group"],
            )
            found[f"{parameterisation}, {optimiser}"] = report, time.process_time() - begin
            print(parameterisation, optimiser, report.summary(), sep="\n", flush=True)
    return found


def draw(found: dict[str, tuple[networks.TransferReport, float]]) -> None:
    figure, axes = new_figure(columns=3, rows=2, width=4.6, height=3.7)
    for row, optimiser in zip(axes, RANGES, strict=True):
        for index, name in enumerate(("standard", "maximal-update")):
            report = found[f"{name}, {optimiser}"][0]
            draw_losses(row[index], report)
            if index == 0:
                # The colours are those of the panel beside it.
                row[index].get_legend().remove()
            row[index].set_title(f"{name}, {optimiser.upper() if optimiser == 'sgd' else 'Adam'}", fontsize="medium")
            draw_rates(row[2], report, index, name)
        low, high = RANGES[optimiser]
        row[2].set_ylim(2.0 ** (low - 0.5), 2.0 ** (high - 0.5))
    save_figure(figure, DOCS / "figures/networks-transfer.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=tuple(SCALES), default="quick")
    scale = parser.parse_args().scale
    # Before the work: the code that runs is the one imported now.
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=DOCS, check=True)
    found = reports(scale)
    on_cpu = jax.default_backend() == "cpu"
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": "two CPU cores" if on_cpu else jax.devices()[0].device_kind,
        "commit": commit.stdout.strip(),
        "command": f"python docs/figures/make/transfer.py --scale {scale}",
        "reports": {
            name: {"processor_seconds": round(seconds, 1), **json.loads(report.to_json())}
            for name, (report, seconds) in found.items()
        },
    }
    ledger = "transfer.json" if scale == "quick" else "transfer-full.json"
    (DOCS / "results/ledgers" / ledger).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    if scale == "quick":
        draw(found)


if __name__ == "__main__":
    main()
