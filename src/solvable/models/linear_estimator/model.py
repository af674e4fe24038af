"""The public face of the linear estimator: parameters, theory, simulation and summaries."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.checks import check_choice, check_count, rules
from solvable.dataset import VARIABLES, Meaning, Stopwatch, make_dataset, provenance
from solvable.model import Model, parameter
from solvable.models.linear_estimator import grokking, late_time, theory, two_layer
from solvable.models.linear_estimator.spectra import MarchenkoPastur
from solvable.models.linear_estimator.training import Training, train
from solvable.numerics.cost import check_cost
from solvable.timegrid import check_times

_TWO_LAYER_FLOOR = 1e-28
_FLOW_REMEDY = 'ask for earlier times, or use descent="flow"'


class LinearEstimator(Model):
    """A linear student learns a linear teacher from Gaussian inputs, and groks.

    The student ``S`` and the teacher ``T`` are ``d_in x outputs`` matrices (with ``hidden``, products of two), their
    entries Gaussian of variance ``1 / (2 fan_in fan_out)``. Full-batch gradient descent minimises the mean square
    error over ``N = d_in / aspect_ratio`` samples plus ``weight_decay |S|^2 / (2 outputs)``. A sample counts as
    correct when its mean square error over the outputs is at most ``threshold``; that makes accuracies out of losses,
    and a delay between training and test accuracy although nothing happens to the losses.

    Times are descent steps. Losses are per output, ``1 / outputs`` at the start (``1 / (2 hidden outputs)`` with a
    hidden layer). With label noise the training loss is on the noisy labels, the test loss on clean ones.

    >>> import solvable
    >>> times = solvable.LinearEstimator(aspect_ratio=0.9).grokking_time(accuracy=0.95)
    >>> int(times.train_time), int(times.test_time)
    (2353, 22634)
    """

    name: ClassVar[str] = "linear-estimator"
    predict_like_simulation: ClassVar[Mapping[str, Any]] = {"descent": "discrete"}
    simulates_whole_steps: ClassVar[bool] = True
    usual_times: ClassVar[str] = "1:1e5:60log"

    aspect_ratio: float = parameter(
        "input dimension over number of training samples", rules.positive, symbol="λ", default=0.9
    )
    outputs: int = parameter("output dimension", rules.count, symbol="d_out", default=1)
    learning_rate: float = parameter("learning rate of descent", rules.positive, symbol="η", default=0.01)
    weight_decay: float = parameter("strength of weight decay", rules.not_negative, symbol="γ", default=0.0)
    threshold: float = parameter(
        "mean square error per output below which a sample is correct", rules.positive, symbol="ε", default=1e-3
    )
    student_scale: float = parameter("scale of the student's start", rules.not_negative, symbol="α", default=1.0)
    label_noise: float = parameter(
        "standard deviation of the noise on each training label", rules.not_negative, symbol="σ", default=0.0
    )
    hidden: int | None = parameter(
        "width of a linear hidden layer", rules.count, symbol="d_h", default=None, optional=True
    )

    def predict(
        self,
        times: Any,
        *,
        descent: Annotated[Literal["flow", "discrete"], "gradient flow, or whole steps of descent"] = "flow",
        inputs: Annotated[int | None, "input dimension, to correct accuracies for its finiteness"] = None,
        batch: Annotated[int | None, "batch size, drawn with replacement (discrete only; needs inputs)"] = None,
    ) -> xr.Dataset:
        """Theory's losses and accuracies at the given times.

        With ``inputs``, accuracies are corrected for the fluctuations of the loss over outputs at finite input
        dimension; the correction is meant for several outputs. Works inside ``jax.vmap``, ``jax.grad`` and
        ``jax.jit``, where the dataset holds traced arrays.
        """
        watch = Stopwatch()
        check_choice("descent", descent, ("flow", "discrete"))
        times = check_times(times, whole=descent == "discrete")
        if inputs is not None:
            check_count("inputs", inputs)
        batch_ratio = self._batch_ratio(batch, inputs, descent)
        traced = _is_traced(self)
        if not traced:
            self._check_theory(descent, batch_ratio)
        if descent == "discrete" and (batch_ratio or self.hidden is not None):
            # Step by step, over every mode of the data and with a hidden layer also of the second layer.
            per_step = 1e4 if self.hidden is None else 1e6
            check_cost(f"{times[-1]:.3g} whole steps", operations=times[-1] * per_step, remedy=_FLOW_REMEDY)
        curve, error = self._curve(times, descent, batch_ratio, estimate_error=not traced)
        train_accuracy, test_accuracy = theory.accuracies(self, curve, inputs)
        variables = {
            "train_loss": jnp.exp(curve.log_train),
            "test_loss": jnp.exp(curve.log_test),
            "log_train_loss": curve.log_train,
            "log_test_loss": curve.log_test,
            "train_accuracy": train_accuracy,
            "test_accuracy": test_accuracy,
        }
        settings = {"descent": descent, "inputs": inputs, "batch": batch}
        system = {
            "descent": descent,
            "inputs": inputs,
            "batch": batch or "full",
            "momentum": 0.0,
            "activation": "linear",
        }
        return make_dataset(
            {name: (("time",), values) for name, values in variables.items()},
            {"time": times},
            provenance(self, "theory", settings, watch, error, system=system),
        )

    def _curve(
        self, times: np.ndarray, descent: str, batch_ratio: float, estimate_error: bool
    ) -> tuple[theory.Losses, float | None]:
        """The losses, and the relative error that a second, independent grid shows them to have."""
        steps = jnp.asarray(times)
        if self.hidden is not None:
            if descent == "discrete":
                curve = _two_layer_steps(self, steps)
                _check_resolved(curve, times)
                return curve, None
            fine = two_layer.flow_losses(self, times, refine=2)
            if not estimate_error:
                return fine, None
            coarse = two_layer.flow_losses(self, times, refine=1)
            # Second order: the finer march is in error by a third of the difference, which is then removed.
            curve = theory.Losses(*(f + (f - c) / 3 for f, c in zip(fine, coarse, strict=True)))
            _check_resolved(curve, times)
            return curve, _relative_error(curve, fine)
        curve = _one_layer(self, steps, descent, batch_ratio, 0.0)
        if not estimate_error:
            return curve, None
        return curve, _relative_error(curve, _one_layer(self, steps, descent, batch_ratio, 0.5))

    def _batch_ratio(self, batch: int | None, inputs: int | None, descent: str) -> float:
        if batch is None:
            return 0.0
        check_count("batch", batch)
        if descent != "discrete" or inputs is None:
            raise ValueError('batch needs descent="discrete" and inputs: batch noise exists only for whole steps')
        if self.hidden is not None:
            raise ValueError("there is no theory for batches with a hidden layer: simulate it")
        return inputs / batch

    def _check_theory(self, descent: str, batch_ratio: float) -> None:
        if self.hidden is not None and self.hidden < self.outputs:
            raise ValueError(
                f"theory needs hidden >= outputs, not hidden = {self.hidden}, outputs = {self.outputs}: simulate it"
            )
        if descent == "discrete":
            limit = self.stable_learning_rate(batch_ratio)
            if self.learning_rate >= limit:
                raise ValueError(theory.unstable(self.learning_rate, limit))

    def stable_learning_rate(self, batch_ratio: float = 0.0) -> float:
        """The learning rate from which descent diverges; ``batch_ratio`` is input dimension over batch size."""
        if self.hidden is None:
            return theory.largest_stable_rate(self, batch_ratio)
        strength = (1 + (self.outputs / self.hidden) ** 0.5) ** 2 / (2 * self.outputs)
        curvature = strength * (1 + self.aspect_ratio**0.5) ** 2 + self.weight_decay / 2
        return self.outputs / curvature

    def grokking_time(
        self,
        accuracy: Annotated[float, "accuracy to be reached, between 0 and 1"] = 0.95,
        descent: Annotated[Literal["flow", "discrete"], "gradient flow, or whole steps of descent"] = "flow",
    ) -> xr.Dataset:
        """When training and test accuracy are first reached, and the delay between them.

        Whether they ever are is decided from the infinite-time limit (with label noise, which makes the test loss
        rise again, from the first dip); times never reached are NaN. Times are real numbers; for ``discrete`` they
        interpolate between whole steps.
        """
        watch = Stopwatch()
        accuracy = _check_accuracy(accuracy)
        check_choice("descent", descent, ("flow", "discrete"))
        if self.hidden is not None:
            if descent == "discrete":
                raise ValueError('with a hidden layer grokking times are those of the flow: use descent="flow"')
            self._check_theory("flow", 0.0)
            times = grokking.two_layer_times(self, accuracy)
        else:
            self._check_smooth(descent)
            times = grokking.crossing_times(self, accuracy, _is_noisy(self.label_noise), descent)
        settings = {"accuracy": accuracy, "descent": descent}
        return _times_dataset(times, {}, provenance(self, "theory", settings, watch))

    def _check_smooth(self, descent: str) -> None:
        """Between whole steps there is no curve to follow once a mode overshoots and changes sign at each step."""
        if descent == "flow" or _is_traced(self):
            return
        limit = self.stable_learning_rate() / 2
        if self.learning_rate >= limit:
            raise ValueError(
                f"learning_rate = {self.learning_rate:g} is not below {limit:.6g}, from where on modes overshoot and "
                'accuracy is not a curve: use predict(..., descent="discrete")'
            )

    def phase_diagram(
        self, accuracy: Annotated[float, "accuracy to be reached, between 0 and 1"] = 0.95, **axes: Any
    ) -> xr.Dataset:
        """:meth:`grokking_time` over a grid of one or more parameters, in one vectorised call.

        For example ``LinearEstimator(0.9).phase_diagram(weight_decay=decays, aspect_ratio=ratios)``: each axis becomes
        a dimension of the result, the other parameters keep the values of this model.
        """
        watch = Stopwatch()
        accuracy = _check_accuracy(accuracy)
        cells = math.prod(float(np.size(values)) for values in axes.values())
        remedy = "take fewer values on each axis"
        check_cost(f"a phase diagram of {cells:.3g} cells", operations=1e6 * cells, memory=40 * cells, remedy=remedy)
        grids = {name: self._check_axis(name, values) for name, values in axes.items()}
        if not grids:
            raise ValueError("a phase diagram needs at least one axis, such as weight_decay=[...]")
        if self.hidden is not None:
            raise ValueError("phase diagrams are for one layer (hidden=None): loop over grokking_time instead")
        noisy = _is_noisy(self.label_noise) or "label_noise" in grids
        times = _grid_of_times(self, tuple(grids), tuple(map(jnp.asarray, grids.values())), accuracy, noisy)
        settings = {"accuracy": accuracy, "axes": list(grids)}
        return _times_dataset(times, grids, provenance(self, "theory", settings, watch))

    def _check_axis(self, name: str, values: Any) -> np.ndarray:
        values = np.atleast_1d(np.asarray(values, dtype=float))
        if values.ndim != 1 or values.size == 0:
            raise ValueError(f"axis {name} must be a flat, non-empty list of values")
        if name == "hidden":
            raise ValueError("hidden cannot be an axis: a hidden layer changes the equations, not only a number")
        for value in values:
            self.replace(**{name: value})
        return values

    def limits(self) -> xr.Dataset:
        """Losses as time goes to infinity."""
        watch = Stopwatch()
        if self.hidden is not None:
            self._check_theory("flow", 0.0)
            train, test = two_layer.limits(self)
        else:
            train, test = theory.limits(self, MarchenkoPastur(self.aspect_ratio))
        return make_dataset(
            {"train_loss": ((), train), "test_loss": ((), test)}, {}, provenance(self, "theory", {}, watch)
        )

    def critical_weight_decay(self, accuracy: float = 0.95) -> float:
        """The weight decay above which the test accuracy is never reached; 0 if never, infinity if always."""
        self._check_no_noise("critical_weight_decay")
        return grokking.critical_weight_decay(self, _check_accuracy(accuracy))

    def critical_aspect_ratio(self, accuracy: float = 0.95) -> float:
        """The aspect ratio above which the test accuracy is never reached; 0 if never, infinity if always."""
        self._check_no_noise("critical_aspect_ratio")
        return grokking.critical_aspect_ratio(self, _check_accuracy(accuracy))

    def _check_no_noise(self, what: str) -> None:
        if self.label_noise > 0:
            raise ValueError(
                f"{what} is decided by the infinite-time limit, which label_noise = {self.label_noise:g} makes "
                "worse than earlier times: use grokking_time or phase_diagram"
            )

    def late_time(self, times: Any) -> xr.Dataset:
        """The asymptotic forms (eqs. 11, 22, 23; with weight decay the corrected 16) and where each is good to 5 %.

        ``*_holds`` says, time by time, whether a form is within its range; see docs/models/linear-estimator.
        """
        watch = Stopwatch()
        times = check_times(times)
        if self.label_noise > 0 or self.hidden is not None:
            raise ValueError("late-time forms exist for label_noise = 0 and hidden = None: use predict")
        form = late_time.saturated_forms if self.weight_decay > 0 else late_time.decaying_forms
        return make_dataset(
            {name: (("time",), values) for name, values in form(self, times).items()},
            {"time": times},
            provenance(self, "asymptotic theory", {}, watch),
            _LATE_TIME_MEANINGS,
        )

    def simulate(
        self,
        times: Any,
        *,
        inputs: Annotated[int, "input dimension"] = 1000,
        seeds: Annotated[int, "number of independent runs"] = 10,
        key: Annotated[int, "key of the random numbers"] = 0,
        method: Annotated[
            Literal["exact", "descent"] | None, "evolve eigenmodes, or take the steps (default: exact if possible)"
        ] = None,
        momentum: Annotated[float, "heavy-ball momentum"] = 0.0,
        batch: Annotated[int | None, "batch size, drawn with replacement (default: full batch)"] = None,
        test_samples: Annotated[int | None, "size of the test set (default: the population)"] = None,
        activation: Annotated[str | Callable[[Array], Array] | None, "activation of the hidden layer"] = None,
        allow_divergence: Annotated[bool, "run even above the stable learning rate"] = False,
        memory_limit: Annotated[float | None, "bytes that the runs of a chunk may take together"] = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw teachers, students and training sets, and train; one run for each seed.

        ``exact`` evolves each eigenmode of the drawn data in closed form, to any step at once. ``descent`` takes the
        steps and is what there is for batches, hidden layers and activations. On the same key both train the same
        systems. Without ``test_samples`` the test loss is the population's, exactly, and so is the test accuracy of a
        single output; that of several outputs is estimated from 4096 draws of the error.
        """
        plan = Training(
            inputs=inputs,
            seeds=seeds,
            key=key,
            method=method,
            momentum=momentum,
            batch=batch,
            test_samples=test_samples,
            activation=activation,
            allow_divergence=allow_divergence,
            memory_limit=memory_limit,
            devices=devices,
            progress=progress,
        )
        return train(self, times, plan)


_LATE_TIME_MEANINGS = {
    **VARIABLES,
    "test_loss_leading": Meaning("test loss per output, leading term", "1", "L_gen"),
    "train_loss_holds": Meaning("whether the form of train_loss is good to 5 %", "1"),
    "test_loss_holds": Meaning("whether the form of test_loss is good to 5 %", "1"),
    "test_loss_leading_holds": Meaning("whether the form of test_loss_leading is good to 5 %", "1"),
}


@partial(jax.jit, static_argnames=("descent", "batch_ratio", "offset"))
def _one_layer(model: LinearEstimator, times: Array, descent: str, batch_ratio: float, offset: float) -> theory.Losses:
    spectrum = MarchenkoPastur(model.aspect_ratio, theory.rule_for(descent, offset))
    if batch_ratio:
        return theory.minibatch_losses(model, spectrum, times, batch_ratio)
    decay = theory.flow_decay if descent == "flow" else theory.discrete_decay
    return jax.vmap(lambda time: theory.losses(model, spectrum, decay(model, spectrum, time)))(times)


_two_layer_steps = jax.jit(two_layer.discrete_losses)


def _check_resolved(curve: theory.Losses, times: np.ndarray) -> None:
    """Refuse two-layer losses below what the difference of student and teacher resolves in float64."""
    if isinstance(curve.log_train, jax.core.Tracer):
        return
    lost = np.minimum(curve.log_train, curve.log_test) < np.log(_TWO_LAYER_FLOOR)
    if lost.any():
        raise ValueError(
            f"with a hidden layer, losses below {_TWO_LAYER_FLOOR:g} are lost to rounding, which happens from "
            f"time {times[int(np.argmax(lost))]:g} on: choose earlier times"
        )


def _relative_error(curve: theory.Losses, other: theory.Losses) -> float:
    """Largest relative difference of the losses; where they are below 1e-300, of their logarithms."""
    return max(
        float(jnp.max(jnp.abs(one - two) / jnp.maximum(1.0, jnp.abs(one) / 700)))
        for one, two in ((curve.log_train, other.log_train), (curve.log_test, other.log_test))
    )


@partial(jax.jit, static_argnames=("names", "noisy"))
def _grid_of_times(
    model: LinearEstimator, names: tuple[str, ...], values: tuple[Array, ...], accuracy: float, noisy: bool
) -> grokking.Times:
    """Nested over the axes, so that whatever depends on one axis only is computed once along it."""

    def nest(model: LinearEstimator, names: tuple[str, ...], values: tuple[Array, ...]) -> grokking.Times:
        if not names:
            return grokking.crossing_times(model, accuracy, noisy)

        def cell(value: Array) -> grokking.Times:
            return nest(model.replace(**{names[0]: value}), names[1:], values[1:])

        # The innermost axis is vectorised, the outer ones are walked: a row fits in the cache, a plane does not.
        return jax.vmap(cell)(values[0]) if len(names) == 1 else jax.lax.map(cell, values[0])

    return nest(model, names, values)


def _times_dataset(times: grokking.Times, grids: dict[str, np.ndarray], attributes: dict[str, Any]) -> xr.Dataset:
    dims = tuple(grids)
    fields = {field.name: field for field in dataclasses.fields(LinearEstimator)}
    meanings = {name: Meaning(fields[name].metadata["help"], "1", fields[name].metadata["symbol"]) for name in grids}
    return make_dataset(
        {
            "train_time": (dims, times.train),
            "test_time": (dims, times.test),
            "delay": (dims, times.test - times.train),
            "train_reached": (dims, times.train_reached),
            "test_reached": (dims, times.test_reached),
        },
        grids,
        attributes,
        {**VARIABLES, **meanings},
    )


def _is_traced(model: LinearEstimator) -> bool:
    return any(isinstance(value, jax.core.Tracer) for value in jax.tree.leaves(model))


def _is_noisy(label_noise: Any) -> bool:
    """Whether label noise may be present; a traced value may."""
    return isinstance(label_noise, jax.core.Tracer) or label_noise > 0


def _check_accuracy(accuracy: float) -> float:
    if isinstance(accuracy, bool) or not 0 < accuracy < 1:
        raise ValueError(f"accuracy must lie between 0 and 1, both excluded, not {accuracy!r}")
    return float(accuracy)
