"""Datasets of simulated committees, and the tangent kernel of given weights."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from solvable.divergence import DivergedError
from solvable.models.committee import simulation
from solvable.models.committee.labels import DIMS, labelled
from solvable.models.committee.problem import Problem, problem_of
from solvable.models.committee.start import initial_weights
from solvable.training import SGD, Training

if TYPE_CHECKING:
    from solvable.models.committee.model import Committee


class Size(NamedTuple):
    """Size and precision of a simulation, as in ``Committee.simulate``."""

    dimension: int
    seeds: int
    key: int
    dtype: str
    form: str


def simulated(
    model: "Committee",
    times: np.ndarray,
    training: Training,
    size: Size,
    options: dict[str, Any],
    on_divergence: str,
) -> xr.Dataset:
    """The dataset of ``Committee.simulate`` at checked times; ``options`` are those of the ensemble of runs."""
    problem, steps = problem_of(model, training), times.astype(int).tolist()
    dimension, dtype = size.dimension, size.dtype
    error: DivergedError | None = None
    settings: dict[str, Any] = {"seeds": size.seeds, "key": size.key, "dtype": dtype}
    if math.isinf(model.samples_per_dimension) and isinstance(training, SGD):
        values = simulation.simulate_one_pass(problem, steps, dimension=dimension, dtype=dtype, **options)
        error = simulation.one_pass_divergence(problem, times, values["test_loss"])
        ratio, rounded = None, 1 + steps[-1] * dimension
    else:
        setup = simulation.set_up(problem, steps[-1], dimension=dimension, dtype=dtype, form=size.form)
        measured = simulation.simulate(setup, steps, **options)
        values = {name: value for name, value in measured.measured().items() if name in DIMS}
        settings |= {"samples": setup.samples, "form": size.form}
        if (measured.diverged >= 0).any() and on_divergence == "raise":
            error = simulation.divergence(setup, measured, size.key)
        ratio, rounded = float(model.samples_per_dimension), 1 + steps[-1]
    dataset = labelled(
        model,
        "simulation",
        values,
        times,
        settings,
        training=training,
        system={"dimension": dimension, "samples_per_dimension": ratio},
        # Each step adds a sum over the samples, rounded by the precision of the runs; errors of steps add up.
        error=float(np.finfo(dtype).eps) * rounded,
        error_scale="maximum",
        may_diverge=True,
    )
    if error is not None and on_divergence == "raise":
        error.partial = dataset
        raise error
    return dataset


def tangent_kernel(
    model: "Committee",
    problem: Problem,
    inputs: Float[Array, "sample dimension"],
    other: Float[Array, "other dimension2"],
    weights: Any,
) -> Float[Array, "sample other"]:
    """``sum_i c_i^2 phi'(w_i.x) phi'(w_i.x') x.x'``; weights None are those that a simulation begins with."""
    dimension = inputs.shape[1]
    if weights is None:
        start = initial_weights(model.initial_overlap, model.initial_alignment, dimension)
        weights = np.sqrt(dimension) * start
    rows = jnp.atleast_2d(jnp.asarray(weights, float))
    if not dimension == other.shape[1] == rows.shape[1] or rows.shape[0] != model.initial_overlap.shape[0]:
        raise ValueError(
            f"inputs {inputs.shape}, other_inputs {other.shape} and weights {rows.shape} must share their last "
            f"axis, and weights must have {model.initial_overlap.shape[0]} rows, one per neuron"
        )
    weighted = problem.readout[:, None] ** 2 * problem.slopes(rows @ inputs.T)
    return weighted.T @ problem.slopes(rows @ other.T) * (inputs @ other.T)
