"""The scalar linear network: many pairs of weights learn one number. Theorem 1, for any start, and how lazy it is."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.checks import check_choice, check_count, check_fraction, is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider, of_method
from solvable.coverage import Covers
from solvable.dataset import Meaning
from solvable.model import Key, MemoryLimit, Model, Seeds, parameter
from solvable.models import scalar_network_story
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
from solvable.numerics.roots import minimum
from solvable.training import GradientDescent, Training

WAYS = ("target", "input", "weights", "output")
Width = Annotated[int, "number of hidden units"]
Target = Annotated[float, "the target's slope"]
LayersKey = Annotated[int, "random seed of the layers"]


def _regime(model: Any, training: Any) -> str:
    distance = float(model.distance_from_linear().distance_from_linear)
    return "lazy" if distance < 0.1 else "rich" if distance > 0.5 else "in between"


CONTROLS = Controls(
    sliders={
        "initial_first": Slider(-3, 3, count=120),
        "initial_second": Slider(-3, 3, count=120),
        "target": Slider(-5, 5),
        "output_scale": log_slider(0.01, 100),
        "input_power": log_slider(0.01, 100),
    },
    summaries=(
        Summary("regime", "regime", _regime, planar=False),
        Summary("distance", "distance from linear", of_method("distance_from_linear", "distance_from_linear")),
        Summary("kernel_ratio", "kernel, end over start", of_method("kernel_ratio", "kernel_ratio")),
        Summary("weight_size", "size of the weights, Σ₀", lambda model, training: model.weight_size),
    ),
    plane=("distance", "initial_first.1", "target"),
    stories=(scalar_network_story.STORY,),
    explain=scalar_network_story.explain,
    system=scalar_network_story.system,
)

_MEANINGS: Mapping[str, Meaning] = {
    "test_loss": Meaning("test loss", "1", "L"),
    "train_loss": Meaning("training loss", "1", "L_tr"),
    # Without any aligned part it grows without bound.
    "growth": Meaning("growth factor of the aligned parts, squared", "1", "γ", may_be_infinite=True),
    "output": Meaning("slope of the output", "1", "θ"),
    "linear_output": Meaning("slope of the output of the linearised network", "1", "θ_lin"),
    "first": Meaning("first layer", "1", "a"),
    "second": Meaning("second layer", "1", "b"),
    "kernel": Meaning("tangent kernel, averaged over inputs", "1", "Θ"),
    "neuron": Meaning("hidden unit, counted from 1", "1", "i"),
    "distance_from_linear": Meaning("largest distance from the linearised network, over the initial error", "1"),
    "kernel_ratio": Meaning("tangent kernel at the end over that at the start", "1", "Θ(∞)/Θ(0)"),
}


class ScalarNetwork(Model):
    """``f(x) = x theta``, ``theta = sum_i a_i b_i / Z``, learns ``f*(x) = x S`` by flow on ``E[(f - f*)^2] / 2``.

    Every pair evolves by the same growth factor gamma (layerwise, eqs. 6.10, 6.11): ``a + b`` as ``sqrt(gamma)``,
    ``a - b`` as its inverse. Gamma is theorem 1 (eq. 6.12, whose exponent is ``-2 K E[x^2] t / Z``; corrected: see
    docs/errata) in the form of :mod:`solvable.numerics.layer_product`, exact to rounding at any start. A final growth
    far from 1 means rich learning, one near 1 lazy learning.

    >>> import solvable
    >>> rich, lazy = solvable.ScalarNetwork.small(100), solvable.ScalarNetwork.ntk(100)
    >>> bool(rich.kernel_ratio().kernel_ratio > 10 * lazy.kernel_ratio().kernel_ratio)
    True
    >>> rich.predict([0, 1, 10]).test_loss.values.round(4)
    array([0.4995, 0.4663, 0.    ])
    """

    name: ClassVar[str] = "scalar-network"
    loss_convention: ClassVar[str] = "E[(f - f*)^2] / 2: half of the mean square over inputs"
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = _MEANINGS
    usual_times: ClassVar[str] = "0:6:31"
    theory_covers: ClassVar[tuple[Covers, ...]] = FOLLOWED
    simulation_covers: ClassVar[tuple[Covers, ...]] = SIMULATED

    initial_first: np.ndarray = parameter(
        "first layer at the start", rules.finite_vector, symbol="a(0)", default=(0.2,)
    )
    initial_second: np.ndarray = parameter(
        "second layer at the start", rules.finite_vector, symbol="b(0)", default=(0.05,)
    )
    target: float = parameter("the target's slope", rules.finite, symbol="S", default=1.0)
    output_scale: float = parameter("what the output is divided by", rules.positive, symbol="Z", default=1.0)
    input_power: float = parameter("mean square of the input", rules.positive, symbol="E[x²]", default=1.0)

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        if np.shape(self.initial_first) != np.shape(self.initial_second):
            raise ValueError(
                "initial_first and initial_second must be equally long, with one entry for each hidden unit: "
                f"initial_first has {np.shape(self.initial_first)[0]}, "
                f"initial_second has {np.shape(self.initial_second)[0]}"
            )
        for name, value in self.parameters().items():
            layer_product.check_sizes(name, value)

    @classmethod
    def small(cls, width: Width, target: Target = 1.0, scale: float = 1e-2, key: LayersKey = 0) -> Self:
        """Gaussian layers of a small standard deviation, Z = 1: the greedy start of section 6.2.1.

        Parameters
        ----------
        scale
            Standard deviation of the layers, below 1.
        """
        check_fraction(scale, "scale")
        first, second = _gaussian(width, key)
        return cls(scale * first, scale * second, target)

    @classmethod
    def ntk(cls, width: Width, target: Target = 1.0, key: LayersKey = 0) -> Self:
        """Standard Gaussian layers and ``Z = sqrt(width)``: lazy as the width grows (section 6.2.3)."""
        first, second = _gaussian(width, key)
        return cls(first, second, target, output_scale=float(np.sqrt(width)))

    @classmethod
    def target_downscaled(cls, width: int, target: float = 1.0, factor: float = 100.0, key: LayersKey = 0) -> Self:
        """Standard Gaussian layers that cancel in pairs, so that the output starts at 0; the target over ``factor``.

        Learning becomes lazy as the factor grows (section 6.2.2).

        Parameters
        ----------
        width
            Number of hidden units, which must be even.
        target
            The target's slope, before it is divided.
        factor
            What the target is divided by, 1 or more.
        """
        if check_count("width", width) % 2:
            raise ValueError(f"width must be even, so that units cancel in pairs, not {width}")
        first, second = _gaussian(width // 2, key)
        return cls(np.tile(first, 2), np.concatenate([second, -second]), target / _check_factor(factor))

    @classmethod
    def output_downscaled(cls, width: Width, target: Target = 1.0, factor: float = 100.0, key: LayersKey = 0) -> Self:
        """Standard Gaussian layers with the output divided by ``factor``: rich as the factor grows (section 6.3.1).

        Parameters
        ----------
        factor
            What the output is divided by, 1 or more.
        """
        first, second = _gaussian(width, key)
        return cls(first, second, target, output_scale=_check_factor(factor))

    def richer(self, way: str, factor: float) -> Self:
        """A model of larger final growth, in one of the four ways of section 6.3.1.

        Parameters
        ----------
        way
            ``"target"``: a larger target. ``"input"``: smaller inputs, which make the target's slope larger.
            ``"weights"``: smaller layers at the start. ``"output"``: a larger Z.
        factor
            By how much, 1 or more.
        """
        check_choice("way", way, WAYS)
        factor = _check_factor(factor)
        if not is_traced(self.target) and self.target <= 0:
            raise ValueError(
                f"the four ways raise the final growth for a positive target, not for {self.target:g}: "
                "change the sign of the target and of one layer"
            )
        changes: dict[str, dict[str, Any]] = {
            "target": {"target": self.target * factor},
            "input": {"target": self.target * factor, "input_power": self.input_power / factor**2},
            "weights": {"initial_first": self.initial_first / factor, "initial_second": self.initial_second / factor},
            "output": {"output_scale": self.output_scale * factor},
        }
        return self.replace(**changes[way])

    @property
    def final_growth(self) -> Any:
        """``gamma_+ = (S + K) / P`` (eq. 6.14): gamma as time goes to infinity; infinite from a start with a = -b."""
        return _plain(layer_product.final_growth(*self._sums(), self.target))

    @property
    def initial_output(self) -> Any:
        """``S_0 = sum a b / Z`` at the start (eq. 6.13)."""
        return _plain((self.initial_first * self.initial_second).sum() / self.output_scale)

    @property
    def weight_size(self) -> Any:
        """``Sigma_0 = sum (a^2 + b^2) / (2 Z)`` at the start (eq. 6.13)."""
        return _plain((self.initial_first**2 + self.initial_second**2).sum() / (2 * self.output_scale))

    def predict(self, times: Any, training: Training | None = None) -> xr.Dataset:
        """Predict the exact curves, and beside them the output of the network linearised at its start.

        The flow is in closed form. Gradient descent is followed step by step; it has no growth factor.
        """
        times, training = self.check_run(times, training, "predict")
        coordinates = {"time": times, "neuron": np.arange(1, self._width + 1)}
        if isinstance(training, GradientDescent):
            if not is_traced(self, training):
                check_stable(training, self._stable_learning_rate(), times[-1])
            steps = follow_steps(_with_linearised, self, times, training, operations=40.0 * self._width)
            return self.dataset("theory", steps, coordinates, training=training, system={"samples": None})
        variables = _flow_curves(self, training.flow_time(times))
        return self.dataset("theory", variables, coordinates, training=training, system={"samples": None})

    def distance_from_linear(self) -> xr.Dataset:
        """The largest difference over all times between the output and that of the network linearised at its start.

        ``distance_from_linear`` is in units of the error at the start, ``max_t |theta(t) - theta_lin(t)| / |S -
        theta(0)|``: 0 for lazy learning, near 1 for rich learning. The linearised output relaxes as
        ``exp(-2 Sigma_0 E[x^2] t / Z)``.
        """
        aligned, opposed = self._sums()
        distance = _largest_deviation(jnp.asarray(aligned), jnp.asarray(opposed), jnp.asarray(self.target))
        return self.dataset("theory", {"distance_from_linear": distance})

    def kernel_ratio(self) -> xr.Dataset:
        """``kernel_ratio``: the tangent kernel at the end over that at the start, ``K / Sigma_0``; 1 if lazy."""
        aligned, opposed = self._sums()
        if not is_traced(aligned) and aligned + opposed == 0:
            raise ValueError("the kernel of layers that are all zero is zero at the start: give layers that are not")
        end = _final_kernel(aligned, opposed, self.target)
        return self.dataset("theory", {"kernel_ratio": end / (aligned + opposed)})

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
        """Train on Gaussian inputs, with a new training set for each seed; the layers start as given.

        The test loss is that of the population. ``<name>_error`` is the estimated numerical error of each value: that
        of the integrator for gradient flow, and rounding.
        """
        times, training = self.check_run(times, training, "simulate")
        samples, width = check_samples(samples), self._width
        variables = simulate_runs(
            partial(_draw, self, samples),
            times,
            training,
            stable_rate=self._stable_learning_rate(),
            # A few samples may have a larger mean square than the population; three standard deviations are allowed.
            excess=1.0 if samples is None else 1 + 3 * (2 / samples) ** 0.5,
            operations=20.0 * width,
            bytes_per_run=8.0 * (2 * (samples or 1) + 4 * times.size * width),
            **run_options(self.name, seeds, key, devices, memory_limit, progress),
        )
        coordinates = {"seed": np.arange(seeds), "time": times, "neuron": np.arange(1, width + 1)}
        settings, system = {"samples": samples, "seeds": seeds, "key": key}, {"samples": samples}
        return self.dataset("simulation", variables, coordinates, settings, training=training, system=system)

    @property
    def _width(self) -> int:
        return np.shape(self.initial_first)[0]

    def _sums(self) -> tuple[Any, Any]:
        """P and Q, from sums and differences of the layers."""
        return layer_product.aligned_and_opposed(self.initial_first, self.initial_second, self.output_scale, axis=0)

    def _stable_learning_rate(self) -> float:
        """2 over the largest kernel, which is that at the start or at the end."""
        aligned, opposed = self._sums()
        largest = max(float(aligned + opposed), 2 * float(np.sqrt(aligned * opposed + self.target**2)))
        return 2 * self.output_scale / (self.input_power * max(largest, 1e-300))


@numpy_unless_traced
def _flow_curves(xp: Any, model: ScalarNetwork, flow_time: Any) -> dict[str, Any]:
    """The exact curves of gradient flow, and the output of the linearised network."""
    aligned, opposed = model._sums()
    clock = flow_time * (model.input_power / model.output_scale)
    flow = layer_product.flow(aligned, opposed, model.target, clock)
    first, second = layer_product.layers_at(model.initial_first, model.initial_second, flow.growth[:, None])
    gap = model.target - (model.initial_first * model.initial_second).sum() / model.output_scale
    return {
        "growth": flow.growth,
        "output": (first * second).sum(-1) / model.output_scale,
        "first": first,
        "second": second,
        "test_loss": model.input_power * (gap * flow.remaining) ** 2 / 2,
        "kernel": (first**2 + second**2).sum(-1) * (model.input_power / model.output_scale**2),
        "linear_output": model.target - gap * xp.exp(-(aligned + opposed) * clock),
    }


@numpy_unless_traced
def _final_kernel(xp: Any, aligned: Any, opposed: Any, target: Any) -> Any:
    """``2 K``. Nothing to learn and nothing opposed: zero, at the tip of a cone that has no derivative."""
    square = aligned * opposed + target**2
    moves = square > 0
    return xp.where(moves, 2 * xp.sqrt(xp.where(moves, square, 1.0)), 0.0)


def _draw(model: ScalarNetwork, samples: int | None, key: Array | None) -> TrainingProblem:
    """Draw a training set. The labels have no noise, so it enters only through its mean square."""
    power = jnp.asarray(model.input_power)
    drawn = power
    if samples is not None and key is not None:
        drawn = power * jnp.mean(jax.random.normal(key, (samples,)) ** 2)
    scale, target = model.output_scale, model.target

    def gradient(state: tuple[Array, Array]) -> tuple[Array, Array]:
        first, second = state
        slope = drawn / scale * ((first * second).sum() / scale - target)
        return second * slope, first * slope

    def measure(state: tuple[Array, Array]) -> dict[str, Array]:
        first, second = state
        output = (first * second).sum() / scale
        return {
            "output": output,
            "first": first,
            "second": second,
            "train_loss": drawn * (target - output) ** 2 / 2,
            "test_loss": power * (target - output) ** 2 / 2,
            "kernel": power / scale**2 * (first**2 + second**2).sum(),
        }

    return TrainingProblem(gradient, measure, (jnp.asarray(model.initial_first), jnp.asarray(model.initial_second)))


def _with_linearised(model: ScalarNetwork) -> TrainingProblem:
    """Training on the population, of the network and of its linearisation at the start, which has layers of its own."""
    network = _draw(model, None, None)
    begin_first, begin_second = network.initial_state
    power, scale = model.input_power, model.output_scale

    def linear_output(first: Array, second: Array) -> Array:
        moved = begin_second * (first - begin_first) + begin_first * (second - begin_second)
        return ((begin_first * begin_second) + moved).sum() / scale

    def gradient(state: tuple[Any, Any]) -> tuple[Any, Any]:
        slope = power / scale * (linear_output(*state[1]) - model.target)
        return network.gradient(state[0]), (begin_second * slope, begin_first * slope)

    def measure(state: tuple[Any, Any]) -> dict[str, Array]:
        found = network.measure(state[0])
        found.pop("train_loss")
        return found | {"linear_output": linear_output(*state[1])}

    return TrainingProblem(gradient, measure, (network.initial_state, network.initial_state))


@partial(jax.jit, static_argnames="points")
def _largest_deviation(aligned: Array, opposed: Array, target: Array, points: int = 600) -> Array:
    """Maximum over time of ``|remaining - exp(-(P + Q) y)|``: on a log grid, then by golden section about the best."""
    speed = jnp.sqrt(aligned * opposed + target**2)
    size = (aligned + opposed) / 2
    fast = jnp.maximum(speed, size)
    slow = jnp.minimum(jnp.where(speed > 0, speed, fast), jnp.where(size > 0, size, fast))
    moves = fast > 0
    low, high = jnp.log(1e-3 / jnp.where(moves, fast, 1.0)), jnp.log(60 / jnp.where(moves, slow, 1.0))

    def deviation(log_clock: Array) -> Array:
        clock = jnp.exp(log_clock)
        return jnp.abs(layer_product.flow(aligned, opposed, target, clock).remaining - jnp.exp(-2 * size * clock))

    grid = jnp.linspace(low, high, points)
    best = grid[jnp.argmax(deviation(grid))]
    width = (high - low) / (points - 1)
    # At a maximum the place does not matter to first order, so derivatives need not pass through the search.
    bracket = jax.lax.stop_gradient((best - width, best + width))
    place = minimum(lambda log_clock: -jax.lax.stop_gradient(deviation(log_clock)), *bracket, iterations=40)
    return jnp.where(moves, deviation(jax.lax.stop_gradient(place)), 0.0)


def _gaussian(width: int, key: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(check_count("key", key, 0))
    first, second = generator.normal(size=(2, check_count("width", width)))
    return first, second


def _check_factor(factor: float) -> float:
    if isinstance(factor, bool) or not 1 <= factor < np.inf:
        raise ValueError(f"factor must be a finite number, 1 or more, not {factor!r}")
    return float(factor)


def _plain(value: Any) -> Any:
    """A Python number, unless it is traced."""
    return value if is_traced(value) else float(value)
