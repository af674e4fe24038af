"""The diagonal linear network: independent modes, each a product of two layers, solved for any start."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.checks import check_fraction, is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider
from solvable.coverage import Covers
from solvable.dataset import Meaning
from solvable.model import Key, MemoryLimit, Model, Seeds, parameter
from solvable.models import diagonal_network_story
from solvable.numerics import layer_product
from solvable.numerics.arrays import numpy_unless_traced
from solvable.numerics.descent import (
    FOLLOWED,
    SIMULATED,
    TrainingProblem,
    check_samples,
    check_stable,
    follow_steps,
    simulate_runs,
)
from solvable.numerics.ensemble import run_options
from solvable.training import GradientDescent, Training


def _learned(which: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda model, training: which(model.emergence_time(fraction=0.5).emergence_time.data)


CONTROLS = Controls(
    sliders={
        "variances": log_slider(0.01, 10),
        "target_scales": Slider(-5, 5),
        "initial_first": log_slider(1e-6, 3),
        "initial_second": log_slider(1e-6, 3),
    },
    summaries=(
        Summary("first", "first mode half learned at", _learned(lambda times: times.min()), "flow time"),
        Summary("last", "last mode half learned at", _learned(lambda times: times.max()), "flow time"),
        Summary(
            "overlap",
            "largest overlap of stages, ε",
            lambda model, training: model.stage_overlap()["overlap"].data.max(),
        ),
    ),
    plane=("overlap", "variances.1", "variances.2"),
    stories=(diagonal_network_story.STORY,),
    explain=diagonal_network_story.explain,
    system=diagonal_network_story.system,
)

_MEANINGS: Mapping[str, Meaning] = {
    "test_loss": Meaning("test loss", "1", "L"),
    "train_loss": Meaning("training loss", "1", "L_tr"),
    "strength": Meaning("strength of the mode", "1", "ab"),
    "first": Meaning("first layer", "1", "a"),
    "second": Meaning("second layer", "1", "b"),
    "imbalance": Meaning("difference of the squared layers", "1", "a² − b²"),
    "linear_strength": Meaning("strength of the mode in the linear model", "1", "θ"),
    "linear_test_loss": Meaning("test loss of the linear model", "1", "L_lin"),
    "emergence_time": Meaning("time at which the mode emerges", "flow time", "τ_e"),
    "saturation_time": Meaning("time from emergence to saturation", "flow time", "τ_s"),
    "overlap": Meaning("overlap of a stage with the next", "1", "ε"),
    "mode": Meaning("mode, counted from 1", "1", "i"),
    "next_mode": Meaning("mode learned next", "1"),
    "stage": Meaning("stage, counted from 1", "1"),
}


class DiagonalNetwork(Model):
    """``f(x) = sum_i x_i a_i b_i`` learns ``f*(x) = sum_i x_i S_i`` by gradient flow on ``E[(f - f*)^2] / 2``.

    The features ``x_i`` are independent, centred and have the given variances, so the modes ``a_i b_i`` learn on their
    own, each as ``da/dt = b E[x^2] (S - a b)``, ``db/dt = a E[x^2] (S - a b)`` (layerwise, eq. 3.6). The solution is
    exact for any layers at the start: equal ones give the sigmoid of eq. 3.9, others the one-pair case of theorem 1
    (corrected: see docs/errata). ``a^2 - b^2`` never changes (eq. 3.8).

    >>> import solvable
    >>> model = solvable.DiagonalNetwork([1.0, 0.1], [1.0, 1.0], [0.01, 0.01], [0.01, 0.01])
    >>> model.emergence_time().emergence_time.values.round(1)
    array([ 3.1, 31.3])
    """

    name: ClassVar[str] = "diagonal-network"
    loss_convention: ClassVar[str] = "E[(f - f*)^2] / 2: half of the mean square over inputs"
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = _MEANINGS
    theory_covers: ClassVar[tuple[Covers, ...]] = FOLLOWED
    simulation_covers: ClassVar[tuple[Covers, ...]] = SIMULATED
    # Modes emerge at 2.7, 3.8 and 7.0 with the default layers.
    usual_times: ClassVar[str] = "0:9:46"

    variances: np.ndarray = parameter(
        "variance of each feature", rules.positive_vector, symbol="E[x²]", default=(1.0, 1.0, 1.0)
    )
    target_scales: np.ndarray = parameter(
        "target's coefficient of each feature", rules.finite_vector, symbol="S", default=(3.0, 2.0, 1.0)
    )
    initial_first: np.ndarray = parameter(
        "first layer at the start; one entry serves all modes",
        rules.finite_vector,
        symbol="a(0)",
        default=(1e-3, 1e-3, 1e-3),
    )
    initial_second: np.ndarray = parameter(
        "second layer at the start; one entry serves all modes",
        rules.finite_vector,
        symbol="b(0)",
        default=(1e-3, 1e-3, 1e-3),
    )

    def __post_init__(self) -> None:
        """Use a single number for the start of a layer in all modes."""
        modes = np.shape(self.target_scales)
        for name in ("initial_first", "initial_second"):
            start = getattr(self, name)
            if len(modes) == 1 and np.shape(start) == (1,):
                setattr(self, name, jnp.broadcast_to(start, modes) if is_traced(start) else np.full(modes, start[0]))

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        lengths = {name: np.shape(values) for name, values in self.parameters().items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {shape[0]}" for name, shape in lengths.items())
            raise ValueError(f"the lists must be equally long, with one entry for each mode, but {listed}")
        for name, values in self.parameters().items():
            layer_product.check_sizes(name, values)

    @classmethod
    def balanced(cls, variances: Any, target_scales: Any, initial_strength: Any) -> Self:
        """Layers of equal size: the start of the sigmoid of eq. 3.9. Where the target is negative, so is one layer.

        Parameters
        ----------
        variances
            Variance of each feature.
        target_scales
            The target's coefficient of each feature.
        initial_strength
            Size of the product of the layers at the start: one number, or one for each mode.
        """
        targets = np.atleast_1d(np.asarray(target_scales, dtype=float))
        strengths = np.broadcast_to(np.asarray(initial_strength, dtype=float), targets.shape)
        _check_sigmoid(strengths, np.abs(targets), "initial_strength")
        return cls(variances, targets, np.sqrt(strengths), np.sign(targets) * np.sqrt(strengths))

    @property
    def imbalance(self) -> np.ndarray:
        """``a^2 - b^2`` of each mode, conserved by the flow (eq. 3.8)."""
        return (self.initial_first + self.initial_second) * (self.initial_first - self.initial_second)

    def predict(self, times: Any, training: Training | None = None) -> xr.Dataset:
        """Predict the exact curves, and those of the linear model ``f = sum_i x_i theta_i`` from zero (eq. 3.10).

        The flow is in closed form. Gradient descent is followed step by step, because modes learn on their own.
        """
        times, training = self.check_run(times, training, "predict")
        coordinates = {"time": times, "mode": self._numbers}
        if isinstance(training, GradientDescent):
            if not is_traced(self, training):
                check_stable(training, self._stable_learning_rate(), times[-1])
            steps = follow_steps(_draw, self, times, training, None, None, operations=20.0 * self._numbers.size)
            steps.pop("train_loss")
            return self.dataset("theory", steps, coordinates, training=training, system={"samples": None})
        variables = _flow_curves(self, training.flow_time(times))
        return self.dataset("theory", variables, coordinates, training=training, system={"samples": None})

    def sigmoid(self, times: Any, training: Training | None = None) -> xr.Dataset:
        """Eq. 3.9: exact for layers of equal size, and an approximation for others. It needs ``0 < a b / S < 1``."""
        times, training = self.check_run(times, training, "predict")
        if training.counts_steps:
            raise ValueError("eq. 3.9 is the solution of gradient flow: use GradientFlow, or predict")
        _check_sigmoid(self.initial_first * self.initial_second, self.target_scales, "initial_first * initial_second")
        variables = _sigmoid_curves(self, training.flow_time(times))
        coordinates = {"time": times, "mode": self._numbers}
        return self.dataset("sigmoid theory", variables, coordinates, training=training, system={"samples": None})

    def emergence_time(
        self, fraction: Annotated[float, "fraction of the target, between 0 and 1"] = 0.05
    ) -> xr.Dataset:
        """``emergence_time``: the flow time at which each mode's ``a b / S`` reaches a fraction (eq. 3.12, any layers).

        It is 0 where the mode starts beyond the fraction, and infinite where it never gets there: layers without an
        aligned part die out.
        """
        fraction = check_fraction(fraction)
        when = {"emergence_time": self._time_to_reach(fraction)}
        return self.dataset("theory", when, {"mode": self._numbers}, {"fraction": fraction})

    def saturation_time(
        self, fraction: Annotated[float, "fraction of the target, below one half"] = 0.05
    ) -> xr.Dataset:
        """``saturation_time``: how long each mode takes from a fraction of its target to one minus it (eq. 3.12).

        It is a flow time, counted from time 0 where the mode starts beyond the fraction.
        """
        fraction = check_fraction(fraction, below=0.5)
        begin, end = self._time_to_reach(fraction), self._time_to_reach(1 - fraction)
        lasting = _lasting(begin, end)
        return self.dataset("theory", {"saturation_time": lasting}, {"mode": self._numbers}, {"fraction": fraction})

    def stage_overlap(self) -> xr.Dataset:
        """``overlap``: the ``eps`` at which a mode saturates (``1 - eps``) just when the next one emerges (``eps``).

        With ``r = E[x^2] |S|`` and ``q = S / (a b) - 1``, for modes i and j, i the first of the two to be half learned,

            eps = 1 / (1 + exp((r_i ln q_j - r_j ln q_i) / (r_i + r_j))),

        which for equal q is ``1 / (1 + q^((r_i - r_j)/(r_i + r_j)))``: eq. 3.13, corrected, see docs/errata. Small
        values mean stages; 1/2 means that both are learned at once. Needs equal layers with ``0 < a b / S < 1``.
        """
        if self._numbers.size < 2:
            raise ValueError("stages need at least 2 modes, not 1")
        _check_sigmoid(self.initial_first * self.initial_second, self.target_scales, "initial_first * initial_second")
        if not np.allclose(np.abs(self.initial_first), np.abs(self.initial_second), rtol=1e-6, atol=0):
            raise ValueError(
                "eq. 3.13 is for layers of equal size, |initial_first| = |initial_second|: compare emergence_time and "
                "saturation_time"
            )
        order = np.argsort(np.asarray(self._time_to_reach(0.5)), kind="stable")
        rate = (self.variances * np.abs(self.target_scales))[order]
        log_start = np.log(self.target_scales / (self.initial_first * self.initial_second) - 1)[order]
        gap = (rate[:-1] * log_start[1:] - rate[1:] * log_start[:-1]) / (rate[:-1] + rate[1:])
        variables = {
            "overlap": np.exp(-np.logaddexp(0, gap)),
            "mode": order[:-1] + 1,
            "next_mode": order[1:] + 1,
        }
        return self.dataset("theory", variables, {"stage": self._numbers[:-1]})

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        samples: Annotated[int | None, "number of training samples (inf: the population)"] = 1000,
        seeds: Seeds = 10,
        key: Key = 0,
        devices: Any = None,
        memory_limit: MemoryLimit = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train on Gaussian features with these variances, with a new training set for each seed.

        Finite samples correlate the features, so that the modes interact. The test loss is that of the population.
        ``<name>_error`` is the estimated numerical error of each value: that of the integrator for gradient flow, and
        rounding.
        """
        times, training = self.check_run(times, training, "simulate")
        samples, modes = check_samples(samples), self._numbers.size
        variables = simulate_runs(
            partial(_draw, self, samples),
            times,
            training,
            stable_rate=self._stable_learning_rate(),
            # The largest eigenvalue of drawn moments is above that of the population by this factor, for many samples.
            excess=1.0 if samples is None else (1 + (modes / samples) ** 0.5) ** 2,
            operations=2.0 * modes**2 + 20 * modes,
            bytes_per_run=8.0 * (2 * (samples or 1) * modes + 3 * modes**2 + 6 * times.size * modes),
            **run_options(self.name, seeds, key, devices, memory_limit, progress),
        )
        coordinates = {"seed": np.arange(seeds), "time": times, "mode": self._numbers}
        settings, system = {"samples": samples, "seeds": seeds, "key": key}, {"samples": samples}
        return self.dataset("simulation", variables, coordinates, settings, training=training, system=system)

    @property
    def _numbers(self) -> np.ndarray:
        """The modes, counted from 1."""
        return np.arange(1, self.variances.shape[0] + 1)

    def _time_to_reach(self, fraction: float) -> Any:
        """The flow time at which each mode reaches a fraction of its target."""
        if not is_traced(self.target_scales) and (self.target_scales == 0).any():
            place = int(np.argmax(self.target_scales == 0))
            raise ValueError(f"a fraction of the target needs a target: target_scales[{place}] is 0; remove that mode")
        aligned, opposed = layer_product.aligned_and_opposed(self.initial_first, self.initial_second)
        return layer_product.time_to_reach(fraction, aligned, opposed, self.target_scales) / self.variances

    def _stable_learning_rate(self) -> float:
        """2 over the largest curvature ``E[x^2] (a^2 + b^2)``, which is largest at the start or at the end."""
        start = self.initial_first**2 + self.initial_second**2
        end = np.hypot(2 * self.target_scales, self.imbalance)
        return float(2 / np.max(self.variances * np.maximum(np.maximum(start, end), 1.0)))


@numpy_unless_traced
def _flow_curves(xp: Any, model: DiagonalNetwork, flow_time: Any) -> dict[str, Any]:
    """The exact curves of gradient flow, and those of the linear model."""
    clock = flow_time[:, None] * model.variances
    aligned, opposed = layer_product.aligned_and_opposed(model.initial_first, model.initial_second)
    flow = layer_product.flow(aligned, opposed, model.target_scales, clock)
    first, second = layer_product.layers_at(model.initial_first, model.initial_second, flow.growth)
    error = (model.target_scales - model.initial_first * model.initial_second) * flow.remaining
    return {
        "strength": first * second,
        "first": first,
        "second": second,
        "imbalance": first**2 - second**2,
        "test_loss": (model.variances * error**2).sum(-1) / 2,
        "linear_strength": -model.target_scales * xp.expm1(-clock),
        "linear_test_loss": (model.variances * (model.target_scales * xp.exp(-clock)) ** 2).sum(-1) / 2,
    }


@numpy_unless_traced
def _sigmoid_curves(xp: Any, model: DiagonalNetwork, flow_time: Any) -> dict[str, Any]:
    """Eq. 3.9."""
    start = model.initial_first * model.initial_second / model.target_scales
    decay = xp.exp(-2 * xp.abs(model.target_scales) * model.variances * flow_time[:, None])
    left = (1 / start - 1) * decay
    error = model.target_scales * left / (1 + left)
    return {"strength": model.target_scales / (1 + left), "test_loss": (model.variances * error**2).sum(-1) / 2}


@numpy_unless_traced
def _lasting(xp: Any, begin: Any, end: Any) -> Any:
    """The time between. A mode that never emerges never saturates: infinite, not infinity less infinity."""
    return xp.where(xp.isinf(end), xp.inf, end - xp.where(xp.isinf(begin), 0.0, begin))


def _draw(model: DiagonalNetwork, samples: int | None, key: Array | None) -> TrainingProblem:
    """Draw a training set. The labels have no noise, so it enters only through its second moments."""
    variances, targets = jnp.asarray(model.variances), jnp.asarray(model.target_scales)
    if samples is None or key is None:
        moments = jnp.diag(variances)
    else:
        features = jax.random.normal(key, (samples, variances.size)) * jnp.sqrt(variances)
        moments = features.T @ features / samples

    def gradient(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        first, second, linear = state
        slope = moments @ (first * second - targets)
        return second * slope, first * slope, moments @ (linear - targets)

    def measure(state: tuple[Array, Array, Array]) -> dict[str, Array]:
        first, second, linear = state
        error, left = targets - first * second, targets - linear
        return {
            "strength": first * second,
            "first": first,
            "second": second,
            "imbalance": first**2 - second**2,
            "train_loss": error @ moments @ error / 2,
            "test_loss": (variances * error**2).sum() / 2,
            "linear_strength": linear,
            "linear_test_loss": (variances * left**2).sum() / 2,
        }

    start = (jnp.asarray(model.initial_first), jnp.asarray(model.initial_second), jnp.zeros_like(targets))
    return TrainingProblem(gradient, measure, start)


def _check_sigmoid(strengths: Any, targets: Any, what: str) -> None:
    if is_traced(strengths, targets):
        return
    for place, (strength, target) in enumerate(zip(strengths, targets, strict=True)):
        if target == 0 or not 0 < strength / target < 1:
            raise ValueError(
                f"the sigmoid of eq. 3.9 needs a start strictly between 0 and the target, but at mode {place + 1} "
                f"{what} = {strength:g} and the target is {target:g}: use predict, which takes any start"
            )
