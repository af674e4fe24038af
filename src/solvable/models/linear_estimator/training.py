"""How the finite-size systems are run: which method, how many at once, and whether it is stable."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.checks import check_choice, check_count
from solvable.dataset import Stopwatch, make_dataset, provenance
from solvable.models.linear_estimator import simulation, theory
from solvable.models.linear_estimator.simulation import Activation, Layout, Measured
from solvable.numerics.ensemble import check_steps, ensemble, trajectories
from solvable.timegrid import check_times

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

_ACTIVATIONS: dict[str, Activation] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "erf": jax.lax.erf}
# A nonlinear student has no closed population loss; this many test inputs stand in unless told otherwise.
_NONLINEAR_TEST_SAMPLES = 4096


@dataclasses.dataclass(frozen=True)
class Training:
    """The options of ``LinearEstimator.simulate``, checked."""

    inputs: int
    seeds: int
    key: int
    method: str | None
    momentum: float
    batch: int | None
    test_samples: int | None
    activation: str | Callable[[Array], Array] | None
    allow_divergence: bool
    memory_limit: float | None
    devices: Any
    progress: bool | None

    def __post_init__(self) -> None:
        for name, least in (("inputs", 1), ("seeds", 1), ("key", 0)):
            check_count(name, getattr(self, name), least)
        for name in ("batch", "test_samples"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, not {self.momentum!r}")

    def function(self, model: "LinearEstimator") -> Activation | None:
        """The activation, by name or as given."""
        if self.activation is None:
            return None
        if model.hidden is None:
            raise ValueError("an activation needs a hidden layer: set hidden")
        if isinstance(self.activation, str):
            return _ACTIVATIONS[check_choice("activation", self.activation, tuple(_ACTIVATIONS))]
        return self.activation

    def resolved_method(self, model: "LinearEstimator") -> str:
        """``exact`` wherever it exists, unless asked otherwise."""
        stepwise = model.hidden is not None or self.batch is not None
        if self.method is None:
            return "descent" if stepwise else "exact"
        check_choice("method", self.method, ("exact", "descent"))
        if self.method == "exact" and stepwise:
            raise ValueError('method="exact" is for one layer and full batches: use method="descent"')
        return self.method

    def ensemble_options(self, model: "LinearEstimator", sizes: Layout) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "key": self.key,
            # A batch is gathered from the training set anew at each step: twice its inputs, while they are sorted out.
            "bytes_per_run": sizes.bytes_per_run + 8.0 * (self.batch or 0) * (2 * self.inputs + model.outputs + 1),
            "memory_limit": self.memory_limit,
            "devices": self.devices,
            "progress": self.progress,
            "label": f"simulating {model.name}",
        }

    def settings(self, method: str, samples: int) -> dict[str, Any]:
        """What the results depend on, for their attributes."""
        return {
            "method": method,
            "inputs": self.inputs,
            "samples": samples,
            "aspect_ratio": self.inputs / samples,
            "seeds": self.seeds,
            "key": self.key,
            "momentum": self.momentum,
            "batch": self.batch,
            "test_samples": self.test_samples,
            "activation": getattr(self.activation, "__name__", self.activation),
        }

    def system(self) -> dict[str, Any]:
        """What was trained, and how, beyond the parameters of the model."""
        return {
            "descent": "discrete",
            "inputs": self.inputs,
            "batch": self.batch or "full",
            "momentum": self.momentum,
            "activation": getattr(self.activation, "__name__", self.activation) or "linear",
        }


def train(model: "LinearEstimator", times: Any, plan: Training) -> xr.Dataset:
    """Run the plan and label what comes out."""
    watch = Stopwatch()
    steps = check_times(times, whole=True)
    method, activation = plan.resolved_method(model), plan.function(model)
    if activation is not None and plan.test_samples is None:
        plan = dataclasses.replace(plan, test_samples=_NONLINEAR_TEST_SAMPLES)
    sizes = simulation.layout(model, plan.inputs, plan.test_samples)
    if plan.batch is not None and model.hidden is None and not plan.allow_divergence:
        _check_rate(model, theory.largest_stable_rate(model, plan.inputs / plan.batch))
    if method == "exact":
        run = partial(simulation.exact_run, model, sizes, tuple(steps.tolist()), plan.momentum)
        measured, largest = ensemble(run, **plan.ensemble_options(model, sizes))
        if not plan.allow_divergence:
            _check_rate(model, _limit(model, largest, plan.momentum))
    else:
        measured = _descend(model, steps, plan, sizes, activation)
    dataset = make_dataset(
        {name: (("seed", "time"), values) for name, values in measured._asdict().items()},
        {"time": steps, "seed": np.arange(plan.seeds)},
        provenance(
            model,
            "simulation",
            plan.settings(method, sizes.samples),
            watch,
            _rounding(model, steps, sizes),
            system=plan.system(),
        ),
        may_diverge=plan.allow_divergence,
    )
    # Fractions are counted over a number of trials, which bounds how well they are known.
    dataset.train_accuracy.attrs["trials"] = sizes.samples
    if plan.test_samples or sizes.outputs > 1:
        dataset.test_accuracy.attrs["trials"] = plan.test_samples or simulation.ERROR_DRAWS
    return dataset


def _rounding(model: "LinearEstimator", steps: np.ndarray, sizes: Layout) -> float:
    """Relative error of the losses by rounding, an upper estimate.

    Eigenvalues are known to the machine precision times the largest of them, which changes what is left of a mode after
    some steps by that times rate and steps; sums are over as many terms as there are inputs and samples.
    """
    largest = (1 + model.aspect_ratio**0.5) ** 2 + model.weight_decay / 2
    decays = 4 * model.learning_rate / model.outputs * largest * float(steps[-1])
    return float(np.finfo(float).eps) * (sizes.inputs + sizes.samples + decays)


def _descend(
    model: "LinearEstimator", steps: np.ndarray, plan: Training, sizes: Layout, activation: Activation | None
) -> Measured:
    options = plan.ensemble_options(model, sizes)
    check_steps(steps[-1], plan.seeds, sizes.bytes_per_run, options["label"])
    start = partial(simulation.descent_start, model, sizes)
    if not plan.allow_divergence:
        # Before the steps, so that an unstable run is refused at once.
        curvature = ensemble(partial(_starting_curvature, model, sizes), **{**options, "progress": False})
        _check_rate(model, _limit(model, curvature, plan.momentum))
    step = partial(simulation.descent_step, model, plan.momentum, plan.batch, activation)
    measure = partial(simulation.descent_measure, model, activation)
    return trajectories(start, step, measure, [int(step) for step in steps], **options)


def _starting_curvature(model: "LinearEstimator", sizes: Layout, key: Array) -> Array:
    return simulation.largest_curvature(simulation.descent_start(model, sizes, key))


def _limit(model: "LinearEstimator", largest: np.ndarray, momentum: float) -> float:
    """Descent with momentum is stable while ``kappa (nu_max + g) < 2 (1 + momentum)``."""
    return model.outputs * (1 + momentum) / (float(np.max(largest)) + model.weight_decay / 2)


def _check_rate(model: "LinearEstimator", limit: float) -> None:
    if model.learning_rate >= limit:
        raise ValueError(theory.unstable(model.learning_rate, limit))
