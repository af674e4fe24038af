"""The result of a training: labelled curves and the networks of all runs."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable._version import __version__
from solvable.dataset import Meaning, Stopwatch, make_dataset
from solvable.networks.program import Runs, Schedule, State
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
    "seed": Meaning("random seed of the run", "1"),
    "variant": Meaning("index of the variant of the run", "1"),
}


@dataclasses.dataclass(frozen=True)
class Training:
    """The result of :func:`solvable.networks.train`.

    ``curves`` has dims ``("variant", "seed", "time", ...)``, without ``variant`` where there were none; time counts
    steps. :meth:`network` returns the network of one run at the end, or at a step of ``snapshots_at``.

    Parameters
    ----------
    curves
        Losses and measurements of every run, over variant, seed and time.
    """

    curves: xr.Dataset
    _runs: Runs | None
    _parameters: dict[int, PyTree]
    _seeds: int
    _own_data: bool

    @in_float64
    def network(self, seed: int = 0, variant: int = 0, *, step: int | None = None) -> Any:
        """The network of one run.

        Parameters
        ----------
        seed, variant
            Which run.
        step
            A step of ``snapshots_at``; by default the last.
        """
        runs, run = self._found_run(seed, variant)
        saved = sorted(self._parameters)
        step = saved[-1] if step is None else step
        if step not in self._parameters:
            raise ValueError(f"networks were saved at the steps {saved}, not at {step}: add it to snapshots_at")
        parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf[run]), self._parameters[step])
        return eqx.combine(parameters, runs.alone(run, self._own_data).rest)

    @in_float64
    def data(self, seed: int = 0, variant: int = 0) -> Source:
        """The data of one run.

        Parameters
        ----------
        seed, variant
            Which run.
        """
        runs, run = self._found_run(seed, variant)
        return runs.alone(run, self._own_data).data

    def _found_run(self, seed: int, variant: int) -> tuple[Runs, int]:
        if self._runs is None:
            raise ValueError("this training has curves only, as it was made with keep_networks=False: train with True")
        runs = len(self._runs.keys)
        if not (0 <= seed < self._seeds and 0 <= variant < runs // self._seeds):
            raise IndexError(
                f"there is no seed {seed} of variant {variant}: there are {self._seeds} seeds of "
                f"{runs // self._seeds} variants"
            )
        return self._runs, variant * self._seeds + seed


@dataclasses.dataclass(frozen=True)
class GroupResult:
    """The result of a group of runs: final state, constant parts, measurements by name, and the last step."""

    state: State
    runs: Runs
    found: dict[str, np.ndarray]
    done: int

    def without_networks(self) -> "GroupResult":
        """The same without the networks at the end and with their data, which may fill the device's memory."""
        empty = self.state._replace(parameters=None, running=None, optimiser=None, order=None)
        measured = {name: values for name, values in self.found.items() if not name.startswith("kept/")}
        return GroupResult(empty, Runs(None, None, None, None), measured, self.done)  # type: ignore[arg-type]


def make_curves(
    groups: list[GroupResult],
    variants: dict[str, np.ndarray],
    seeds: int,
    schedule: Schedule,
    settings: dict[str, Any],
    watch: Stopwatch,
) -> xr.Dataset:
    """All measurements, labelled; after a divergence that ended the training, up to that step."""
    done = min(group.done for group in groups)
    runs = ("variant", "seed") if variants else ("seed",)
    shape = (-1, seeds) if variants else (seeds,)
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {"seed": np.arange(seeds)}
    if variants:
        coordinates["variant"] = np.arange(len(next(iter(variants.values()))))
    kinds = (("curve", "time", schedule.measure_at), ("inspected", "inspected_at", schedule.inspect_at))
    for kind, axis, steps in kinds:
        reached = [step for step in steps if step <= done]
        names = sorted({name.split("/")[1] for name in groups[0].found if name.startswith(f"{kind}/")})
        if names:
            coordinates[axis] = np.asarray(reached, float)
        for name in names:
            values = np.stack([_concatenated(groups, f"{kind}/{name}/{step}") for step in reached], axis=1)
            values = values.reshape(*shape, *values.shape[1:])
            more = tuple(f"{name}_{axis}" for axis in range(values.ndim - len(runs) - 1))
            variables[name] = ((*runs, axis, *more), values)
    diverged = np.concatenate([np.asarray(group.state.diverged) for group in groups])
    variables["diverged_at"] = (runs, diverged.reshape(shape))
    steps_lists = ("measure_at", "inspect_at", "snapshots_at")
    attributes = {
        "model": "network",
        "method": "training",
        **{name: value for name, value in settings.items() if name not in steps_lists},
        "device": f"{jax.devices()[0].platform} {jax.devices()[0].device_kind}",
        "version": __version__,
        "seconds": watch.seconds(),
    }
    if settings["batch_size"] is None:
        attributes["batch_size"] = "whole training set"
    meanings = {name: Meaning(name.replace("_", " "), "1", "") for name in (*variables, *coordinates)} | _MEANINGS
    curves = make_dataset(variables, coordinates, attributes, meanings)
    described = {name: ("variant", values, {"long_name": name.replace("_", " ")}) for name, values in variants.items()}
    return curves.assign_coords(described)


def _concatenated(groups: list[GroupResult], name: str) -> np.ndarray:
    return np.concatenate([group.found[name] for group in groups])


def saved_parameters(groups: list[GroupResult]) -> dict[int, PyTree]:
    """The trained arrays of the networks of all runs, by the step at which they were saved, on the host."""
    leaves, structure = jax.tree.flatten(groups[0].state.changing)
    steps = {int(name.split("/")[2]) for name in groups[0].found if name.startswith("kept/")}
    done = min(group.done for group in groups)
    saved = {
        step: jax.tree.unflatten(structure, [_concatenated(groups, f"kept/{i}/{step}") for i in range(len(leaves))])
        for step in steps
        if step <= done
    }
    last = [group.state.changing for group in groups]
    saved[done] = jax.tree.map(lambda *parts: np.concatenate([np.asarray(part) for part in parts]), *last)
    return saved


def all_runs(groups: list[GroupResult], own_data: bool) -> Runs:
    """The runs of all groups as one."""

    def concatenated(*leaves: Any) -> Any:
        return jnp.concatenate(leaves) if eqx.is_array(leaves[0]) else leaves[0]

    if len(groups) == 1:
        return groups[0].runs
    runs = [group.runs for group in groups]
    parts = ((one.rest, one.keys, one.variants) for one in runs)
    rest, keys, variants = jax.tree.map(concatenated, *parts)
    data = jax.tree.map(concatenated, *(one.data for one in runs)) if own_data else runs[0].data
    return Runs(rest, data, keys, variants)


def divergence_message(curves: xr.Dataset) -> str:
    """Which runs diverged, and when."""
    table = curves.diverged_at.stack(run=[dim for dim in ("variant", "seed") if dim in curves.dims])
    diverged = table[table >= 0]
    rows = []
    for value in diverged[:3]:
        where = f"seed {int(value.seed)}"
        if "variant" in curves.dims:
            names = [str(name) for name, coordinate in curves.coords.items() if coordinate.dims == ("variant",)]
            chosen = curves.isel(variant=int(value.variant))
            values = ", ".join(f"{name} = {float(chosen[name]):g}" for name in names if name != "variant")
            where += f" of variant {int(value.variant)} ({values})"
        rows.append(f"{where} at step {int(value)}")
    more = f" and {diverged.size - 3} more" if diverged.size > 3 else ""
    remedy = "Lower the learning rate"
    if int(diverged.min()) == 0:
        remedy = (
            "Step 0 is before training: look for NaN in the data and in the network, and for labels that are no classes"
        )
    return (
        f"{diverged.size} of {table.size} runs diverged: {'; '.join(rows)}{more}. {remedy}, or let the other runs "
        "continue with on_divergence='keep'; the curves until then are in this error's .partial.curves"
    )
