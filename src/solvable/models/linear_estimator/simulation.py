"""How the finite-size systems are run: the choice of the solver, the runs themselves, and whether they are stable."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from solvable.checks import check_choice, check_count
from solvable.models.linear_estimator import steps
from solvable.models.linear_estimator.eigenmodes import run_eigenmodes
from solvable.models.linear_estimator.stability import stable_rate
from solvable.models.linear_estimator.system import ERROR_DRAWS, Activation, Sizes, sizes_of
from solvable.models.linear_estimator.theory import AnyTraining
from solvable.numerics.descent import check_stable
from solvable.numerics.ensemble import check_steps, ensemble, trajectories
from solvable.training import SGD, GradientDescent, GradientFlow

if TYPE_CHECKING:
    from solvable.models.linear_estimator.model import LinearEstimator

_ACTIVATIONS: dict[str, Activation] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "erf": jax.lax.erf}
# A nonlinear student has no closed population loss; the test set has this many inputs unless another size is given.
_NONLINEAR_TEST_SAMPLES = 4096


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of ``LinearEstimator.simulate`` about what one run is, checked."""

    dimension: int
    solver: str | None
    test_samples: int | None
    activation: str | Callable[[Array], Array] | None
    on_divergence: str

    def __post_init__(self) -> None:
        check_count("dimension", self.dimension)
        if self.test_samples is not None:
            check_count("test_samples", self.test_samples)
        check_choice("on_divergence", self.on_divergence, ("raise", "keep"))

    @property
    def activation_name(self) -> str:
        return str(getattr(self.activation, "__name__", self.activation) or "linear")

    def function(self, model: "LinearEstimator") -> Activation | None:
        """The activation, by name or as given."""
        if self.activation is None:
            return None
        if model.width is None:
            raise ValueError("an activation needs a hidden layer: set width")
        if isinstance(self.activation, str):
            return _ACTIVATIONS[check_choice("activation", self.activation, tuple(_ACTIVATIONS))]
        return self.activation

    def chosen_solver(self, model: "LinearEstimator", training: AnyTraining) -> str:
        """``"eigenmodes"`` wherever it is possible, unless another one is asked for."""
        if self.solver is not None:
            check_choice("solver", self.solver, ("eigenmodes", "steps"))
        one_by_one = model.width is not None or isinstance(training, SGD)
        one_by_one = one_by_one or not (training.is_constant or isinstance(training, GradientFlow))
        if isinstance(training, GradientFlow):
            if model.width is not None:
                raise ValueError(
                    "gradient flow is simulated for one layer only: with a hidden layer use GradientDescent with a "
                    "small learning rate"
                )
            if self.solver == "steps":
                raise ValueError('gradient flow has no steps: use solver="eigenmodes", or GradientDescent')
        if self.solver == "eigenmodes" and one_by_one:
            raise ValueError(
                'solver="eigenmodes" is for one layer, full batches and a constant learning rate: use solver="steps"'
            )
        return self.solver or ("steps" if one_by_one else "eigenmodes")


def simulate(
    model: "LinearEstimator",
    training: AnyTraining,
    times: Float[np.ndarray, "time"],
    options: Options,
    run_options: dict[str, Any],
) -> xr.Dataset:
    """Run the simulation and label its results; ``run_options`` are those of the ensemble."""
    solver, activation = options.chosen_solver(model, training), options.function(model)
    test_samples = options.test_samples or (None if activation is None else _NONLINEAR_TEST_SAMPLES)
    sizes = sizes_of(model, options.dimension, test_samples)
    batch_size = training.samples_per_batch(sizes.samples) if isinstance(training, SGD) else None
    # A batch is gathered from the training set anew at each step: twice its inputs, while they are sorted out.
    batch_bytes = 8.0 * (batch_size or 0) * (2 * sizes.dimension + model.outputs + 1)
    run_options = {**run_options, "bytes_per_run": sizes.bytes_per_run + batch_bytes}
    seeds, key = run_options["seeds"], run_options["key"]
    check = options.on_divergence == "raise"
    if check and batch_size is not None and model.width is None:
        # Below this learning rate the batch noise does not feed itself; momentum does not raise it.
        limit = stable_rate(model, training, sizes.dimension / batch_size)
        check_stable(training.replace(momentum=0.0, nesterov=False), limit, times[-1])
    if solver == "eigenmodes":
        run = partial(run_eigenmodes, model, training, sizes, tuple(times.tolist()))
        measured, curvature = ensemble(run, **run_options)
        if check:
            check_stable(training, _drawn_stable_rate(model, training, curvature), times[-1])
    else:
        descent = cast(GradientDescent, training)
        check_steps(times[-1], seeds, sizes.bytes_per_run, run_options["label"])
        if check:
            # Before the steps, so that an unstable run is refused immediately.
            curvature = ensemble(partial(steps.largest_curvature, model, sizes), **{**run_options, "progress": False})
            check_stable(training, _drawn_stable_rate(model, training, curvature), times[-1])
        measured = trajectories(
            partial(steps.initial_state, model, sizes),
            partial(steps.take_step, model, descent, batch_size, activation),
            partial(steps.measure_state, model, activation),
            times.astype(int).tolist(),
            **run_options,
        )
    settings = {
        "solver": solver,
        "dimension": sizes.dimension,
        "samples": sizes.samples,
        "aspect_ratio": sizes.dimension / sizes.samples,
        "seeds": seeds,
        "key": key,
        "test_samples": test_samples,
        "activation": options.activation_name,
    }
    system = {"dimension": sizes.dimension, "activation": options.activation_name}
    dataset = model.dataset(
        "simulation",
        measured._asdict(),
        {"seed": np.arange(seeds), "time": times},
        settings,
        training=training,
        system=system,
        error=_rounding(model, training, times, sizes),
        may_diverge=options.on_divergence == "keep",
        samples=sizes.samples,
    )
    # Fractions are counted over a number of trials, which bounds how well they are known.
    dataset.train_accuracy.attrs["trials"] = sizes.samples
    if test_samples or sizes.outputs > 1:
        dataset.test_accuracy.attrs["trials"] = test_samples or ERROR_DRAWS
    return dataset


def _drawn_stable_rate(model: "LinearEstimator", training: AnyTraining, curvature: np.ndarray) -> float:
    """Gradient descent without momentum is stable while ``kappa (nu_max + g) < 2``, for the largest of all runs."""
    return model.outputs / (float(np.max(curvature)) + training.weight_decay / 2)


def _rounding(model: "LinearEstimator", training: AnyTraining, times: Float[np.ndarray, "time"], sizes: Sizes) -> float:
    """Relative error of the losses by rounding, an upper estimate.

    Eigenvalues are known to the machine precision times the largest of them, which changes what is left of a mode by
    that times the rate and the time; sums are over as many terms as there are inputs and samples.
    """
    largest = (1 + model.aspect_ratio**0.5) ** 2 + training.weight_decay / 2
    decays = 4 / model.outputs * largest * float(training.flow_time(times[-1:])[0])
    return float(np.finfo(float).eps) * (sizes.dimension + sizes.samples + decays)
