"""Table 5.1 and N_c: which setting decides how many skills a narrow network learns. One setting is changed at a time.

The networks are those of Figs. 5.1c and 5.2c (``solvable reproduce layerwise fig5-1-width``): one hidden layer of
ReLUs on sparse parity, Adam, new samples at every step. So that a processor can train hundreds of them, all networks
of a run see the same batches and their first layers are one matrix product. Seeds differ in their initial weights.

Run as ``python docs/results/make/width_emergence.py NAME --batch 1000 --steps 100000``, with ``--practised 1 --widths 1
2 3 4 5 6`` for networks with one skill. The strengths of all skills, of every network at several steps, go to the entry
NAME of the ledger ``width-emergence.json`` in ``$OUT``, or in ``docs/results/ledgers``.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from solvable.networks.tasks.parity import SparseParity

TASK = SparseParity()
POINTS = 512
B1, B2, EPSILON = 0.9, 0.999, 1e-8


class Arm(NamedTuple):
    """One setting. The decay is part of the gradient, as in PyTorch's Adam, unless it is ``decoupled`` (AdamW).

    Twice the loss is half the decay: Adam does not see the scale of its gradient. ``std`` of None is PyTorch's initial
    distribution, uniform within one over the root of the fan-in.
    """

    decay: float = 5e-5
    decoupled: bool = False
    rate: float = 1e-3
    std: float | None = 0.01
    final_rate: float = 1.0


ARMS = {
    "figure": Arm(),
    "no decay": Arm(decay=0.0),
    "whole mean square": Arm(decay=2.5e-5),
    "decay 5e-4": Arm(decay=5e-4),
    "decay 2e-3": Arm(decay=2e-3),
    "decay 5e-3": Arm(decay=5e-3),
    "AdamW, decay 5e-5": Arm(decoupled=True),
    "AdamW, decay 5e-2": Arm(decay=5e-2, decoupled=True),
    "std 0.001": Arm(std=1e-3),
    "std 0.1": Arm(std=0.1),
    "PyTorch's start": Arm(std=None),
    "rate 5e-3": Arm(rate=5e-3),
    "rate 3e-4": Arm(rate=3e-4),
    "std 0.001, no decay": Arm(std=1e-3, decay=0.0),
    "std 0.001, decay 5e-4": Arm(std=1e-3, decay=5e-4),
    "std 0.001, decay 3e-3": Arm(std=1e-3, decay=3e-3),
    "std 0.001, rate 5e-3": Arm(std=1e-3, rate=5e-3),
    "std 0.001, rate 5e-3, decay 3e-3": Arm(std=1e-3, rate=5e-3, decay=3e-3),
    "std 0.001, rate 1e-2": Arm(std=1e-3, rate=1e-2),
    "std 0.001, rate 2e-2": Arm(std=1e-3, rate=2e-2),
    "std 0.001, rate 1e-2, decay 1e-3": Arm(std=1e-3, rate=1e-2, decay=1e-3),
    "std 0.0001": Arm(std=1e-4),
}


class Networks(NamedTuple):
    """Weights of all networks: first layer (input or bias, run x neuron), second (run, neuron), its bias (run)."""

    first: jax.Array
    second: jax.Array
    bias: jax.Array


def start(key: jax.Array, arms: list[Arm], widths: list[int], seeds: int) -> tuple[Networks, jax.Array]:
    """Initial weights, with runs ordered as (arm, width, seed), and which neurons there are. Arms share their draws."""
    widest, rows = max(widths), TASK.inputs + 1
    keys = jax.random.split(key, 6)
    shape = (len(widths), seeds, widest)
    normal = [jax.random.normal(keys[0], (rows, *shape)), jax.random.normal(keys[1], shape)]
    normal.append(jax.random.normal(keys[2], shape[:2]))
    uniform = [jax.random.uniform(keys[3], (rows, *shape), minval=-1.0) / TASK.inputs**0.5]
    root = jnp.sqrt(jnp.asarray(widths, jnp.float32))[:, None]
    uniform.append(jax.random.uniform(keys[4], shape, minval=-1.0) / root[..., None])
    uniform.append(jax.random.uniform(keys[5], shape[:2], minval=-1.0) / root)
    there = jnp.arange(widest) < jnp.asarray(widths)[:, None, None]
    there = jnp.broadcast_to(there, shape)
    parts = []
    for arm in arms:
        drawn = uniform if arm.std is None else [arm.std * values for values in normal]
        parts.append([drawn[0] * there, drawn[1] * there, drawn[2]])
    # The first layers have a dimension before those of the runs, and biases have none of neurons.
    first, second, bias = (
        jnp.stack(part, axis=axis) for part, axis in zip(zip(*parts, strict=True), (1, 0, 0), strict=True)
    )
    runs = len(arms) * len(widths) * seeds
    networks = Networks(first.reshape(rows, -1), second.reshape(runs, widest), bias.reshape(runs))
    return networks, jnp.broadcast_to(there, (len(arms), *shape)).reshape(runs, widest)


def outputs(networks: Networks, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Activations (point, run, neuron) and outputs (point, run)."""
    rows = jnp.concatenate([inputs, jnp.ones_like(inputs[:, :1])], axis=1)
    active = jax.nn.relu(rows @ networks.first).reshape(len(rows), *networks.second.shape)
    return active, jnp.einsum("prn,rn->pr", active, networks.second) + networks.bias


def gradient(networks: Networks, inputs: jax.Array, targets: jax.Array) -> Networks:
    """The gradient of half the mean square, for each network."""
    active, given = outputs(networks, inputs)
    error = (given - targets[:, None]) / len(inputs)
    below = ((error[:, :, None] * networks.second) * (active > 0)).reshape(len(inputs), -1)
    rows = jnp.concatenate([inputs, jnp.ones_like(inputs[:, :1])], axis=1)
    return Networks(rows.T @ below, jnp.einsum("prn,pr->rn", active, error), error.sum(axis=0))


@partial(jax.jit, static_argnames=("batch", "practised", "count"))
def advance(state: Any, settings: Any, key: jax.Array, first: Any, *, batch: int, practised: int, count: int) -> Any:
    """``count`` steps of Adam for all networks, from step ``first`` on."""
    sample = TASK.fresh(practised).sample

    def per_run(values: jax.Array, like: jax.Array, part: str) -> jax.Array:
        if part == "first":
            return jnp.repeat(values, like.shape[1] // len(values))
        return values[:, None] if part == "second" else values

    def one(step: Any, state: Any) -> Any:
        networks, mean, square, there = state
        slope = gradient(networks, *sample(jax.random.fold_in(key, step), batch))
        changed = []
        share = step / settings["steps"]
        factor = jnp.exp(jnp.log(settings["final_rate"]) * share)
        for part, weight, g, m, v in zip(Networks._fields, networks, slope, mean, square, strict=True):
            decay, decoupled, rate = (
                per_run(value, weight, part)
                for value in (settings["decay"], settings["decoupled"], settings["rate"] * factor)
            )
            g = g + jnp.where(decoupled, 0, decay) * weight
            m, v = B1 * m + (1 - B1) * g, B2 * v + (1 - B2) * g * g
            step_size = m / (1 - B1 ** (step + 1.0)) / (jnp.sqrt(v / (1 - B2 ** (step + 1.0))) + EPSILON)
            changed.append((weight - rate * (step_size + jnp.where(decoupled, decay, 0) * weight), m, v))
        return *(Networks(*parts) for parts in zip(*changed, strict=True)), there

    return jax.lax.fori_loop(first, first + count, one, state)


@jax.jit
def strengths(networks: Networks, skill: jax.Array, word: jax.Array) -> jax.Array:
    """Relative strengths R_k / S of every network, (run, skill)."""
    _, given = outputs(networks, TASK.encode(skill, word).reshape(-1, TASK.inputs))
    return (TASK.parity(skill, word)[:, :, None] * given.reshape(*skill.shape, -1)).mean(axis=1).T / TASK.target_scale


def experiment(options: argparse.Namespace, keep: Any) -> None:
    """Train, and hand the strengths so far to ``keep`` at every measured step."""
    arms = [ARMS[name] for name in options.arms]
    networks, there = start(jax.random.key(options.key), arms, options.widths, options.seeds)
    each = len(options.widths) * options.seeds
    settings = {
        name: jnp.repeat(jnp.asarray([getattr(arm, name) for arm in arms]), each)
        for name in ("decay", "decoupled", "rate", "final_rate")
    }
    settings["steps"] = jnp.asarray(float(options.steps))
    held_out = TASK.held_out(jax.random.key(2**31), POINTS)
    zeros = jax.tree.map(jnp.zeros_like, networks)
    state, done, found = (networks, zeros, zeros, there), 0, []
    chunk = options.steps // options.measurements
    while done < options.steps:
        state = advance(
            state, settings, jax.random.key(options.key + 1), done,
            batch=options.batch, practised=options.practised, count=chunk,
        )  # fmt: skip
        done += chunk
        measured = np.asarray(strengths(state[0], held_out.skill, held_out.word), float)
        measured = measured.reshape(len(arms), len(options.widths), options.seeds, TASK.skills)
        found.append((done, measured))
        keep(found)


def entry(options: argparse.Namespace, found: list[Any], seconds: float) -> dict[str, Any]:
    """The entry of the ledger: settings, provenance, and strengths (arm, step, width, seed, skill).

    ``sums`` are the strengths of all skills together at the first width, in the mean over seeds.
    """
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    last = found[-1][1]
    medians = {
        name: {f"width {width}": _short(np.median(last[i, j], axis=0)) for j, width in enumerate(options.widths)}
        for i, name in enumerate(options.arms)
    }
    together = {name: last[i].sum(axis=-1)[0] for i, name in enumerate(options.arms)}
    sums = {
        name: {
            "mean": round(float(each.mean()), 2),
            "standard error": round(float(each.std(ddof=1) / each.size**0.5), 2),
        }
        for name, each in together.items()
    }
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit.stdout.strip(),
        "device": f"{platform.machine()}, {os.cpu_count()} cores, JAX on {jax.default_backend()}",
        "command": "python docs/results/make/width_emergence.py " + " ".join(sys.argv[1:]),
        "seconds": round(seconds, 1),
        "batch": options.batch,
        "steps": found[-1][0],
        "practised": options.practised,
        "widths": options.widths,
        "seeds": options.seeds,
        "arms": {name: ARMS[name]._asdict() for name in options.arms},
        "medians": medians,
        "sums": sums,
        "measured_at": [step for step, _ in found],
        "strengths": {
            name: _short(np.stack([values[i] for _, values in found])) for i, name in enumerate(options.arms)
        },
    }


def _short(values: np.ndarray) -> Any:
    """Three digits, and no zero with a sign."""
    return (values.round(3) + 0.0).tolist()


def main() -> None:
    """Read the options, train, and write the ledger at every measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--practised", type=int, default=TASK.skills)
    parser.add_argument("--widths", type=int, nargs="+", default=[10])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--measurements", type=int, default=10)
    parser.add_argument("--key", type=int, default=53)
    options = parser.parse_args()
    folder = Path(os.environ.get("OUT", Path(__file__).parents[1] / "ledgers"))
    path, begun = folder / "width-emergence.json", time.monotonic()

    def keep(found: list[Any]) -> None:
        ledger = json.loads(path.read_text()) if path.exists() else {}
        ledger[options.name] = entry(options, found, time.monotonic() - begun)
        path.write_text(json.dumps(ledger, sort_keys=True, ensure_ascii=False) + "\n")
        print(found[-1][0], round(time.monotonic() - begun), "s", flush=True)
        for name, widths in ledger[options.name]["medians"].items():
            print("   ", name, widths, flush=True)

    experiment(options, keep)


if __name__ == "__main__":
    main()
