"""The linear estimator: parameters, theory, simulation and summaries."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, cast

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.checks import check_count, check_fraction, is_traced, rules
from solvable.controls import Controls
from solvable.coverage import Covers
from solvable.dataset import VARIABLES, Meaning
from solvable.model import Key, MemoryLimit, Model, Seeds, parameter
from solvable.models.linear_estimator import finite_size, grokking, late_time, simulation, theory, two_layer
from solvable.models.linear_estimator.curves import loss_curve, needs_recursion
from solvable.models.linear_estimator.page import CONTROLS
from solvable.models.linear_estimator.spectra import MarchenkoPastur
from solvable.models.linear_estimator.stability import batch_ratio_of, check_smooth, check_width, stable_rate
from solvable.models.linear_estimator.theory import AnyTraining
from solvable.numerics.cost import check_cost
from solvable.numerics.descent import check_stable
from solvable.numerics.ensemble import run_options
from solvable.training import SGD, GradientDescent, GradientFlow, Training

Accuracy = Annotated[float, "accuracy to be reached, between 0 and 1"]

# Theory and simulation cover the same trainings.
_COVERED = (
    Covers(GradientFlow, options=("weight_decay",), schedules=("learning_rate",)),
    Covers(GradientDescent, options=("momentum", "nesterov", "weight_decay"), schedules=("learning_rate",)),
    Covers(
        SGD,
        options=("momentum", "nesterov", "weight_decay", "batch_fraction"),
        sampling=("replacement",),
        schedules=("learning_rate",),
    ),
)
_MEANINGS: Mapping[str, Meaning] = {
    **VARIABLES,
    "train_loss_spread": Meaning("standard deviation of the training loss over datasets", "1"),
    "test_loss_spread": Meaning("standard deviation of the test loss over datasets", "1"),
    "relative_correction": Meaning("largest correction of finite size, over its loss", "1"),
    "stable_learning_rate": Meaning("learning rate from which training diverges", "1", "η_max"),
    "critical_weight_decay": Meaning("weight decay above which the test accuracy is never reached", "1", "γ_c"),
    "critical_aspect_ratio": Meaning("aspect ratio above which the test accuracy is never reached", "1", "λ_c"),
    "test_loss_leading": Meaning("test loss per output, leading term", "1", "L_gen"),
    "train_loss_holds": Meaning("whether the form of train_loss is good to 5 %", "1"),
    "test_loss_holds": Meaning("whether the form of test_loss is good to 5 %", "1"),
    "test_loss_leading_holds": Meaning("whether the form of test_loss_leading is good to 5 %", "1"),
}


class LinearEstimator(Model):
    """A linear student learns a linear teacher from Gaussian inputs, and groks.

    The student ``S`` and the teacher ``T`` are ``d_in x outputs`` matrices (with ``width``, products of two), their
    entries Gaussian of variance ``1 / (2 fan_in fan_out)``. Training minimises the mean square error over
    ``N = d_in / aspect_ratio`` samples plus ``weight_decay |S|^2 / (2 outputs)``. A sample counts as correct when its
    mean square error over the outputs is at most ``threshold``; that makes accuracies out of losses, and a delay
    between training and test accuracy although nothing happens to the losses.

    The default training is full-batch gradient descent with a learning rate of 0.01. Losses are per output,
    ``1 / outputs`` at the start (``1 / (2 width outputs)`` with a hidden layer). With label noise the training loss is
    on the noisy labels, the test loss on clean ones.

    >>> import solvable
    >>> times = solvable.LinearEstimator(aspect_ratio=0.9).grokking_time(accuracy=0.95)
    >>> int(times.train_time), int(times.test_time)
    (2352, 22633)
    """

    name: ClassVar[str] = "linear-estimator"
    loss_convention: ClassVar[str] = (
        "mean square error per output, E|f(x) - f*(x)|^2 / outputs; the test loss is on labels without noise"
    )
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = _MEANINGS
    default_training: ClassVar[Training] = GradientDescent(learning_rate=0.01)
    theory_covers: ClassVar[tuple[Covers, ...]] = _COVERED
    simulation_covers: ClassVar[tuple[Covers, ...]] = _COVERED
    usual_times: ClassVar[str] = "1:1e5:60log"

    aspect_ratio: float = parameter(
        "input dimension over number of training samples, d_in / N", rules.positive, symbol="λ", default=0.9
    )
    outputs: int = parameter("output dimension", rules.count, symbol="d_out", default=1)
    threshold: float = parameter(
        "mean square error per output below which a sample is correct", rules.positive, symbol="ε", default=1e-3
    )
    initial_scale: float = parameter("scale of the student's start", rules.not_negative, symbol="α", default=1.0)
    label_noise: float = parameter(
        "standard deviation of the noise on each training label", rules.not_negative, symbol="σ", default=0.0
    )
    width: int | None = parameter(
        "width of a linear hidden layer", rules.count, symbol="d_h", default=None, optional=True
    )

    def predict(
        self,
        times: Any,
        training: Training | None = None,
        *,
        dimension: Annotated[int | None, "input dimension, to correct accuracies for its finiteness"] = None,
    ) -> xr.Dataset:
        """Predict the losses and the accuracies at the given times.

        Works inside ``jax.vmap``, ``jax.grad`` and ``jax.jit``, where the dataset holds traced arrays.

        Parameters
        ----------
        training
            ``GradientFlow``, ``GradientDescent`` (the default) or, for one layer, ``SGD`` on mini-batches drawn with
            replacement; each with or without weight decay and, for one layer, momentum and a learning-rate schedule.
        dimension
            Input dimension. Accuracies are then corrected for the fluctuations of the loss over outputs at this
            dimension, which is meant for several outputs. ``SGD`` with a ``batch_size`` needs it, because the batch
            noise depends on input dimension over batch size.
        """
        times, checked = self.check_run(times, training, "predict")
        training = cast(AnyTraining, checked)
        batch_ratio = batch_ratio_of(self, training, dimension)
        if not is_traced(self, training):
            check_width(self)
            # Without batches momentum raises the edge of stability; the noise of batches does not feed itself below it.
            noisy = isinstance(training, SGD)
            plain = training.replace(momentum=0.0, nesterov=False) if noisy else training
            check_stable(plain, stable_rate(self, training, batch_ratio), times[-1])
        curve, error = loss_curve(self, training, times, batch_ratio)
        train_accuracy, test_accuracy = theory.accuracies(self, curve, dimension)
        exp = jnp.exp if is_traced(curve) else np.exp
        variables = {
            "train_loss": exp(curve.log_train),
            "test_loss": exp(curve.log_test),
            "log_train_loss": curve.log_train,
            "log_test_loss": curve.log_test,
            "train_accuracy": train_accuracy,
            "test_accuracy": test_accuracy,
        }
        samples = None if dimension is None or is_traced(self) else self._samples(dimension)
        return self._curves(variables, times, training, error, dimension, samples)

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        dimension: Annotated[int, "input dimension"] = 1000,
        seeds: Seeds = 10,
        key: Key = 0,
        solver: Annotated[
            Literal["eigenmodes", "steps"] | None,
            "evolve eigenmodes in closed form, or take the steps (default: eigenmodes if possible)",
        ] = None,
        test_samples: Annotated[int | None, "size of the test set (default: the population)"] = None,
        activation: Annotated[str | Callable[[Array], Array] | None, "activation of the hidden layer"] = None,
        on_divergence: Annotated[
            Literal["raise", "keep"], "refuse learning rates above the stable one, or run them"
        ] = "raise",
        memory_limit: MemoryLimit = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw teachers, students and training sets, and train; one run for each seed.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``SGD`` on mini-batches drawn with replacement, with or without
            momentum, weight decay and a learning-rate schedule; for one layer also ``GradientFlow``.
        dimension
            Input dimension. The training set has ``dimension / aspect_ratio`` samples, rounded.
        solver
            ``"eigenmodes"`` evolves each eigenmode of the drawn data in closed form, directly to any time; it is for
            one layer, full batches and a constant learning rate. ``"steps"`` takes the gradient-descent steps. On the
            same key both train the same systems.
        test_samples
            Size of the test set. Left out, the test loss is exactly that of the population, and so is the test
            accuracy of a single output; that of several outputs is estimated from 4096 draws of the error.
        activation
            Activation of the hidden layer: ``"tanh"``, ``"relu"``, ``"erf"`` or a function. The test set then has 4096
            samples by default.
        on_divergence
            ``"raise"`` refuses learning rates at which training diverges; ``"keep"`` runs them.
        """
        options = simulation.Options(dimension, solver, test_samples, activation, on_divergence)
        times, checked = self.check_run(times, training, "simulate")
        runs = run_options(self.name, seeds, key, devices, memory_limit, progress)
        return simulation.simulate(self, cast(AnyTraining, checked), times, options, runs)

    def finite_size(
        self,
        times: Any,
        training: Training | None = None,
        *,
        dimension: Annotated[int, "input dimension"] = 1000,
    ) -> xr.Dataset:
        """Losses at a finite input dimension: the mean over datasets, and the spread that single runs have.

        ``train_loss`` and ``test_loss`` include the first correction in ``1 / dimension``, and that the number of
        samples is whole; ``train_loss_spread`` and ``test_loss_spread`` are standard deviations over datasets, so that
        theory draws a band that finite runs should fill. ``relative_correction`` is the larger of the two corrections
        over its loss: where it is not small, as at late times and aspect ratios near 1, few eigenvalues matter and the
        series in ``1 / dimension`` is of no use.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``GradientFlow`` with a constant learning rate, with or without weight
            decay, for one layer.
        dimension
            Input dimension. The training set has ``dimension / aspect_ratio`` samples, rounded.

        >>> import solvable
        >>> band = solvable.LinearEstimator(aspect_ratio=0.5).finite_size([100], dimension=200)
        >>> round(float(band.test_loss[0]), 4), round(float(band.test_loss_spread[0]), 4)
        (0.1302, 0.0222)
        """
        times, checked = self.check_run(times, training, "predict")
        training = self._full_batch(cast(AnyTraining, checked), "corrections of finite size")
        if self.width is not None:
            raise ValueError("corrections of finite size are for one layer (width=None): simulate instead")
        dimension = check_count("dimension", dimension)
        samples = self._samples(dimension)
        drawn = self.replace(aspect_ratio=dimension / samples)
        check_stable(training, stable_rate(drawn, training), times[-1])
        curve, error = loss_curve(drawn, training, times, 0.0)
        train, test = finite_size.corrections(drawn, training, times, dimension)
        limits = np.exp(np.asarray(curve.log_train)), np.exp(np.asarray(curve.log_test))
        relative = [
            np.abs(part.mean) / np.maximum(loss, 1e-300) for part, loss in zip((train, test), limits, strict=True)
        ]
        variables = {
            "train_loss": limits[0] + train.mean,
            "test_loss": limits[1] + test.mean,
            "train_loss_spread": np.sqrt(train.variance),
            "test_loss_spread": np.sqrt(test.variance),
            "relative_correction": np.maximum(*relative),
        }
        return self._curves(variables, times, training, error, dimension, samples)

    def stable_learning_rate(
        self, training: Training | None = None, *, dimension: Annotated[int | None, "input dimension"] = None
    ) -> xr.Dataset:
        """The learning rate from which training diverges (``stable_learning_rate``); infinite for gradient flow.

        Parameters
        ----------
        training
            How the model is trained, by default its default training. The learning rate in it does not matter.
        dimension
            Input dimension, which ``SGD`` with a ``batch_size`` needs.
        """
        training = self._constant(self.check_training(training, "predict"), "the stable learning rate")
        limit = stable_rate(self, training, batch_ratio_of(self, training, dimension))
        numbers = {"stable_learning_rate": limit}
        return self.dataset("theory", numbers, settings={"dimension": dimension}, training=training)

    def grokking_time(self, accuracy: Accuracy = 0.95, training: Training | None = None) -> xr.Dataset:
        """When training and test accuracy are first reached, and the delay between them.

        Whether they ever are is decided from the limit of infinite time (with label noise, which makes the test loss
        rise again, from the first dip); times that are never reached are NaN. Times are real numbers, also for
        gradient descent, whose losses are interpolated between steps.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``GradientFlow``; with a hidden layer ``GradientFlow``.
        """
        accuracy = check_fraction(accuracy, "accuracy")
        training = self._full_batch(training, "grokking times")
        if self.width is not None:
            if not isinstance(training, GradientFlow):
                raise ValueError(
                    "with a hidden layer grokking times are those of gradient flow: use "
                    f"GradientFlow(learning_rate={training.learning_rate:g})"
                )
            check_width(self)
            times = grokking.two_layer_times(self, training, accuracy)
        else:
            check_smooth(self, training)
            times = grokking.crossing_times(self, training, accuracy, noisy=_is_noisy(self.label_noise))
        return self._times_dataset(times, {}, {"accuracy": accuracy}, training)

    def phase_diagram(self, accuracy: Accuracy = 0.95, training: Training | None = None, **axes: Any) -> xr.Dataset:
        """:meth:`grokking_time` over a grid of parameters of the model and options of the training, in one call.

        For example ``LinearEstimator().phase_diagram(weight_decay=decays, aspect_ratio=ratios)``: each axis becomes a
        dimension of the result, and everything else keeps its value.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``GradientFlow``.
        **axes
            Values of one or more of ``aspect_ratio``, ``outputs``, ``threshold``, ``initial_scale``, ``label_noise``,
            ``learning_rate`` and ``weight_decay``.
        """
        accuracy = check_fraction(accuracy, "accuracy")
        training = self._full_batch(training, "phase diagrams")
        cells = math.prod(float(np.size(values)) for values in axes.values())
        remedy = "take fewer values on each axis"
        check_cost(f"a phase diagram of {cells:.3g} cells", operations=1e6 * cells, memory=40 * cells, remedy=remedy)
        if self.width is not None:
            raise ValueError("phase diagrams are for one layer (width=None): loop over grokking_time instead")
        grids = grokking.checked_axes(self, training, axes)
        noisy = _is_noisy(self.label_noise) or "label_noise" in grids
        times = grokking.times_on_grid(self, training, grids, accuracy, noisy=noisy)
        return self._times_dataset(times, grids, {"accuracy": accuracy, "axes": list(grids)}, training)

    def limit(self, training: Training | None = None) -> xr.Dataset:
        """Losses as time goes to infinity, which are the same for gradient flow and for stable gradient descent.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``GradientFlow``.
        """
        training = self._full_batch(training, "limits of infinite time")
        if not is_traced(self, training):
            check_width(self)
            check_stable(training, stable_rate(self, training), 0)
        if self.width is None:
            train, test = theory.limits(self, training, MarchenkoPastur(self.aspect_ratio))
        else:
            train, test = two_layer.limits(self, training)
        return self.dataset("theory", {"train_loss": train, "test_loss": test}, training=training)

    def critical_weight_decay(self, accuracy: Accuracy = 0.95, training: Training | None = None) -> xr.Dataset:
        """The weight decay above which the test accuracy is never reached; 0 if it never is, infinite if always.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``GradientFlow``. The result is the same for both, as long as descent
            is stable; the weight decay in it does not matter.
        """
        return self._critical(grokking.critical_weight_decay, accuracy, training)

    def critical_aspect_ratio(self, accuracy: Accuracy = 0.95, training: Training | None = None) -> xr.Dataset:
        """The aspect ratio above which the test accuracy is never reached; 0 if it never is, infinite if always.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``GradientFlow``. The result is the same for both, as long as descent
            is stable.
        """
        return self._critical(grokking.critical_aspect_ratio, accuracy, training)

    def late_time(self, times: Any, training: Training | None = None) -> xr.Dataset:
        """The asymptotic forms (eqs. 11, 22, 23; with weight decay the corrected 16) and where each is good to 5 %.

        ``*_holds`` says, time by time, whether a form is within its range; see docs/models/linear-estimator.

        Parameters
        ----------
        training
            ``GradientDescent`` (the default) or ``GradientFlow``.
        """
        training = self._full_batch(training, "late-time forms")
        times, _ = self.check_run(times, training, "predict")
        if self.label_noise > 0 or self.width is not None:
            raise ValueError("late-time forms exist for label_noise = 0 and width = None: use predict")
        check_smooth(self, training)
        form = late_time.saturated_forms if training.weight_decay > 0 else late_time.decaying_forms
        return self.dataset("asymptotic theory", form(self, training, times), {"time": times}, training=training)

    def _samples(self, dimension: int) -> int:
        """Size of the training set at an input dimension."""
        return max(1, round(dimension / self.aspect_ratio))

    def _curves(
        self,
        variables: dict[str, Any],
        times: np.ndarray,
        training: Training,
        error: float | None,
        dimension: int | None,
        samples: int | None,
    ) -> xr.Dataset:
        """Curves of the theory at an input dimension, or in the limit of large ones if it is None."""
        settings, system = {"dimension": dimension}, {"dimension": dimension, "activation": "linear"}
        coordinates = {"time": times}
        return self.dataset(
            "theory", variables, coordinates, settings, training=training, system=system, error=error, samples=samples
        )

    def _full_batch(self, training: Training | None, what: str) -> AnyTraining:
        training = self.check_training(training, "predict")
        if isinstance(training, SGD):
            raise ValueError(f"{what} are for full batches: use GradientDescent or GradientFlow, or predict")
        return self._constant(training, what)

    def _constant(self, training: Training, what: str) -> AnyTraining:
        if not training.is_constant or needs_recursion(cast(AnyTraining, training)):
            raise ValueError(f"{what}: only for a constant learning rate without momentum; use predict")
        return cast(AnyTraining, training)

    def _critical(
        self, find: Callable[[Any, Any, float], float], accuracy: float, training: Training | None
    ) -> xr.Dataset:
        accuracy, what = check_fraction(accuracy, "accuracy"), find.__name__
        training = self._full_batch(training, "critical values")
        check_width(self)
        if self.label_noise > 0:
            raise ValueError(
                f"{what} is decided by the limit of infinite time, which label_noise = {self.label_noise:g} makes "
                "worse than earlier times: use grokking_time or phase_diagram"
            )
        numbers = {what: find(self, training, accuracy)}
        return self.dataset("theory", numbers, settings={"accuracy": accuracy}, training=training)

    def _times_dataset(
        self,
        times: grokking.Times,
        grids: dict[str, np.ndarray],
        settings: dict[str, Any],
        training: Training,
    ) -> xr.Dataset:
        fields = {field.name: field for kind in (training, self) for field in dataclasses.fields(kind)}
        meanings = {
            name: Meaning(fields[name].metadata["help"], "1", fields[name].metadata["symbol"]) for name in grids
        }
        units = "steps" if training.counts_steps else "flow time / η"
        for name in ("train_time", "test_time", "delay"):
            meanings[name] = dataclasses.replace(VARIABLES[name], units=units)
        variables = {
            "train_time": times.train,
            "test_time": times.test,
            "delay": times.test - times.train,
            "train_reached": times.train_reached,
            "test_reached": times.test_reached,
        }
        return self.dataset("theory", variables, grids, settings, training=training, meanings=meanings)


def _is_noisy(label_noise: Any) -> bool:
    """Whether label noise may be present; a traced value may."""
    return is_traced(label_noise) or label_noise > 0
