"""What a training gives: labelled curves and the networks of all runs."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.dataset import Meaning, Stopwatch, make_dataset
from solvable.networks.program import Runs, State
from solvable.networks.schedule import Schedule
from solvable.networks.sources import Source
from solvable.precision import in_float64

PyTree = Any

_MEANINGS = {
    "train_loss": Meaning("training loss", "1", "L_train"),
    "test_loss": Meaning("test loss", "1", "L_test"),
    "train_accuracy": Meaning("training accuracy", "1", ""),
    "test_accuracy": Meaning("test accuracy", "1", ""),
    "diverged_at": Meaning("step at which the run diverged, -1 if it did not", "steps", ""),
    "time": Meaning("step", "steps", "t"),
    "inspected_at": Meaning("step", "steps", "t"),
    "seed": Meaning("index of the run's draws", "1"),
    "variant": Meaning("index of the run's settings", "1"),
}


@dataclasses.dataclass(frozen=True)
class Training:
    """What a training gives: labelled ``curves``, and the networks.

    ``curves`` has dims ``("variant", "seed", "time", ...)``, without ``variant`` where there were none; time counts
    steps. :meth:`network` gives the network of one run, as it was at a step whose networks were kept, or at the end.
    """

    curves: xr.Dataset
    _runs: Runs
    _parameters: dict[int, PyTree]
    _seeds: int
    _own_data: bool

    @in_float64
    def network(self, seed: int = 0, variant: int = 0, *, step: int | None = None) -> Any:
        """The network of one run, at the end or at a step of ``snapshots_at``."""
        kept = sorted(self._parameters)
        step = kept[-1] if step is None else step
        if step not in self._parameters:
            raise ValueError(f"networks were kept at the steps {kept}, not at {step}: add it to snapshots_at")
        run = self._run(seed, variant)
        parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf[run]), self._parameters[step])
        return eqx.combine(parameters, self._runs.alone(run, self._own_data).rest)

    @in_float64
    def data(self, seed: int = 0, variant: int = 0) -> Source:
        """The data of one run."""
        return self._runs.alone(self._run(seed, variant), self._own_data).data

    def _run(self, seed: int, variant: int) -> int:
        runs = len(self._runs.keys)
        if not (0 <= seed < self._seeds and 0 <= variant < runs // self._seeds):
            raise IndexError(
                f"there is no seed {seed} of variant {variant}: there are {self._seeds} seeds of "
                f"{runs // self._seeds} variants"
            )
        return variant * self._seeds + seed


@dataclasses.dataclass(frozen=True)
class Piece:
    """What a group of runs gave."""

    state: State
    runs: Runs
    found: dict[str, np.ndarray]
    done: int


def dataset(
    pieces: list[Piece],
    lists: dict[str, np.ndarray],
    seeds: int,
    schedule: Schedule,
    settings: dict[str, Any],
    watch: Stopwatch,
) -> xr.Dataset:
    """All that was measured, labelled; after a divergence that stopped everything, up to that step."""
    done = min(piece.done for piece in pieces)
    runs = ("variant", "seed") if lists else ("seed",)
    shape = (-1, seeds) if lists else (seeds,)
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {"seed": np.arange(seeds)}
    if lists:
        coordinates["variant"] = np.arange(len(next(iter(lists.values()))))
    for kind, axis, steps in (("curve", "time", schedule.at), ("inspected", "inspected_at", schedule.inspect_at)):
        reached = [step for step in steps if step <= done]
        names = sorted({name.split("/")[1] for name in pieces[0].found if name.startswith(f"{kind}/")})
        if names:
            coordinates[axis] = np.asarray(reached, float)
        for name in names:
            values = np.stack([_gathered(pieces, f"{kind}/{name}/{step}") for step in reached], axis=1)
            values = values.reshape(*shape, *values.shape[1:])
            more = tuple(f"{name}_{axis}" for axis in range(values.ndim - len(runs) - 1))
            variables[name] = ((*runs, axis, *more), values)
    diverged = np.concatenate([np.asarray(piece.state.diverged) for piece in pieces])
    variables["diverged_at"] = (runs, diverged.reshape(shape))
    attributes = {
        "model": "network",
        "method": "training",
        **{name: value for name, value in settings.items() if name not in ("at", "inspect_at", "snapshots_at")},
        "device": f"{jax.devices()[0].platform} {jax.devices()[0].device_kind}",
        "version": __version__,
        "seconds": watch.seconds(),
    }
    attributes["batch"] = "whole training set" if settings["batch"] is None else settings["batch"]
    meanings = {name: Meaning(name.replace("_", " "), "1", "") for name in (*variables, *coordinates)} | _MEANINGS
    dataset = make_dataset(variables, coordinates, attributes, meanings)
    described = {name: ("variant", values, {"long_name": name.replace("_", " ")}) for name, values in lists.items()}
    return dataset.assign_coords(described)


def _gathered(pieces: list[Piece], name: str) -> np.ndarray:
    return np.concatenate([piece.found[name] for piece in pieces])


def parameters(pieces: list[Piece]) -> dict[int, PyTree]:
    """All that was trained of all runs' networks, by the step they were kept at, on the host."""
    leaves, structure = jax.tree.flatten(pieces[0].state.changing)
    steps = {int(name.split("/")[2]) for name in pieces[0].found if name.startswith("kept/")}
    done = min(piece.done for piece in pieces)
    kept = {
        step: jax.tree.unflatten(structure, [_gathered(pieces, f"kept/{index}/{step}") for index in range(len(leaves))])
        for step in steps
        if step <= done
    }
    last = [piece.state.changing for piece in pieces]
    kept[done] = jax.tree.map(lambda *parts: np.concatenate([np.asarray(part) for part in parts]), *last)
    return kept


def together(pieces: list[Piece], own_data: bool) -> Runs:
    """The runs of all groups as one."""

    def joined(*leaves: Any) -> Any:
        return jnp.concatenate(leaves) if eqx.is_array(leaves[0]) else leaves[0]

    if len(pieces) == 1:
        return pieces[0].runs
    parts = [piece.runs for piece in pieces]
    rest, keys, variants = (
        jax.tree.map(joined, *(getattr(part, name) for part in parts)) for name in ("rest", "keys", "variants")
    )
    data = jax.tree.map(joined, *(part.data for part in parts)) if own_data else parts[0].data
    return Runs(rest, data, keys, variants)


def which(curves: xr.Dataset) -> str:
    """Which runs diverged, and when."""
    table = curves.diverged_at.stack(run=[dim for dim in ("variant", "seed") if dim in curves.dims])
    bad = table[table >= 0]
    rows = []
    for value in bad[:3]:
        where = f"seed {int(value.seed)}"
        if "variant" in curves.dims:
            names = [str(name) for name, coordinate in curves.coords.items() if coordinate.dims == ("variant",)]
            chosen = curves.isel(variant=int(value.variant))
            told = ", ".join(f"{name} = {float(chosen[name]):g}" for name in names if name != "variant")
            where += f" of variant {int(value.variant)} ({told})"
        rows.append(f"{where} at step {int(value)}")
    more = f" and {bad.size - 3} more" if bad.size > 3 else ""
    return (
        f"{bad.size} of {table.size} runs diverged: {'; '.join(rows)}{more}. Lower the learning rate, or let the "
        "others go on with on_divergence='keep'; what was measured until then is in this error's .training.curves"
    )
