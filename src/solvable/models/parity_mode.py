"""The small ReLU network that learns the parity of three bits, mode by mode."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from solvable.checks import check_count, check_fraction, is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider
from solvable.coverage import Covers
from solvable.dataset import Meaning
from solvable.model import Key, MemoryLimit, Model, Seeds, choice, parameter
from solvable.models import parity_mode_story
from solvable.models.parity_mode_flow import follow, follow_traced
from solvable.numerics.arrays import numpy_unless_traced
from solvable.numerics.descent import SIMULATED, TrainingProblem, check_samples, simulate_runs
from solvable.numerics.ensemble import run_options
from solvable.training import Training

# Every input of three bits, and its parity: even is +1 (eq. C.7).
BITS = np.array([[(number >> place) & 1 for place in (2, 1, 0)] for number in range(8)], dtype=float)
PARITY = (-1.0) ** BITS.sum(1)
# Gradients of each loss over those of the mean of halves, the loss of everything else here.
CLOCKS = {"half_mean": 1.0, "mean": 2.0, "half_sum": 8.0}
# Where each mode's strength ends.
FINAL_STRENGTHS = np.array([0.5, 0.25, 0.25])


def _half_learned(mode: int, word: str) -> Summary:
    def of(model: Any, training: Any) -> Any:
        return model.emergence_time(fraction=0.5).emergence_time.data[mode - 1]

    return Summary(f"half_{mode}", f"{word} mode half learned at", of)


CONTROLS = Controls(
    sliders={
        "target_scale": log_slider(0.1, 10),
        "initial_first": log_slider(1e-4, 1),
        "initial_second": log_slider(1e-4, 1),
        "initial_third": log_slider(1e-4, 1),
        "initial_offset": Slider(-2, 2),
    },
    start={"seeds": "4"},
    summaries=tuple(_half_learned(mode, word) for mode, word in enumerate(("first", "second", "third"), 1)),
    plane=("end_loss", "initial_first", "target_scale"),
    stories=(parity_mode_story.STORY,),
    explain=parity_mode_story.explain,
    system=parity_mode_story.system,
)

_MEANINGS: Mapping[str, Meaning] = {
    "test_loss": Meaning("test loss", "1", "L"),
    "train_loss": Meaning("training loss", "1", "L_tr"),
    "strength": Meaning("strength of the mode", "1", "R_q"),
    "total_strength": Meaning("strength of the skill", "1", "R"),
    "weight": Meaning("weight of the neuron", "1", "α, β, γ"),
    "offset": Meaning("output offset", "1", "c"),
    "emergence_time": Meaning("time at which the mode reaches a fraction of its end", "flow time", "τ_q"),
    "mode": Meaning("mode, counted from 1", "1", "q"),
}


class ParityMode(Model):
    """``f(x) = w . relu(W x + b) + c`` with three neurons and shared weights learns ``S`` times the parity of 3 bits.

    The weights are those of layerwise, eq. C.9: four parameters, one for each of the three neurons ("modes"), and the
    offset ``c``. From small positive values the modes emerge one after the other, each nearly a sigmoid. The flow on
    the sum of halves over the 8 inputs (eqs. C.15 to C.18, corrected: see docs/errata) is

        (alpha^2)' = 8 alpha^2 (S - 2 alpha^2 + 2 beta^2 + c)
        (beta^2)'  = 4 beta^2  (S + 4 alpha^2 - 7 beta^2 - 5 c)
        (gamma^2)' = 4 gamma^2 (S - gamma^2 - c)
        c'         = 2 alpha^2 - 5 beta^2 - gamma^2 - 8 c

    and ends at ``alpha^2 = beta^2 = gamma^2 = 2 S``, ``c = -S``. ``loss`` says which loss is descended, and so the unit
    of time: ``half_mean`` E[(f - f*)^2] / 2, ``mean`` without the half (twice as fast), ``half_sum`` the sum of halves
    over the 8 inputs (8 times). ``test_loss`` is always E[(f - f*)^2] / 2.

    >>> import solvable
    >>> model = solvable.ParityMode(target_scale=5.0)
    >>> model.emergence_time(fraction=0.5).emergence_time.values.round(2)
    array([3.04, 3.6 , 4.75])
    >>> model.replace(initial_first=-1)
    Traceback (most recent call last):
        ...
    ValueError: initial_first must be a positive finite number, not -1 (weight of the first neuron at the start)
    """

    name: ClassVar[str] = "parity-mode"
    loss_convention: ClassVar[str] = (
        "E[(f - f*)^2] / 2: half of the mean square over the 8 inputs, whichever loss is minimised"
    )
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = _MEANINGS
    usual_times: ClassVar[str] = "0:30:61"
    simulation_covers: ClassVar[tuple[Covers, ...]] = SIMULATED

    target_scale: float = parameter("size of the target", rules.positive, symbol="S", default=1.0)
    initial_first: float = parameter(
        "weight of the first neuron at the start", rules.positive, symbol="α(0)", default=0.01
    )
    initial_second: float = parameter(
        "weight of the second neuron at the start", rules.positive, symbol="β(0)", default=0.01
    )
    initial_third: float = parameter(
        "weight of the third neuron at the start", rules.positive, symbol="γ(0)", default=0.01
    )
    initial_offset: float = parameter("output offset at the start", rules.finite, symbol="c(0)", default=0.0)
    loss: str = choice(
        "the loss that is descended", symbol="L", default="half_mean", choices=("half_mean", "mean", "half_sum")
    )

    def predict(
        self,
        times: Any,
        training: Training | None = None,
        *,
        tolerance: Annotated[float, "relative error allowed in each integration step"] = 1e-11,
        max_steps: Annotated[int, "most steps the integration may take"] = 200_000,
    ) -> xr.Dataset:
        """Integrate the flow until it is linear to within ``tolerance``, and continue it in closed form from there.

        ``strength`` is how much of the parity each mode gives, ``Y . f_q / (8 S^2)`` (eq. C.13), and ``total_strength``
        their sum; the strengths end at 1/2, 1/4, 1/4. ``numerical_error`` is what a hundred times looser tolerance
        changes in the strengths.
        """
        times, training = self.check_run(times, training, "predict")
        if isinstance(tolerance, bool) or not 1e-14 <= tolerance <= 1e-3:
            raise ValueError(f"tolerance must lie between 1e-14 and 1e-3, not {tolerance!r}")
        check_count("max_steps", max_steps)
        flow_times = training.flow_time(times)
        states = _states(self, flow_times, tolerance, max_steps)
        variables, error = _curves(self, states), None
        if not is_traced(self, flow_times):
            _check_finished(states, times, max_steps)
            looser = _states(self, flow_times, min(100 * tolerance, 1e-2), max_steps)
            error = np.abs(variables["strength"] - _strengths(np, looser, self)).max() / variables["strength"].max()
        settings = {"tolerance": tolerance, "max_steps": max_steps, "solver": "Taylor series, linearised at its end"}
        about: dict[str, Any] = {"training": training, "system": {"samples": None}, "error_scale": "maximum"}
        coordinates = {"time": times, "mode": np.arange(1, 4)}
        return self.dataset("theory", variables, coordinates, settings, error=error, **about)

    def emergence_time(
        self, fraction: Annotated[float, "fraction of the final strength, between 0 and 1"] = 0.5
    ) -> xr.Dataset:
        """``emergence_time``: the flow time at which each mode reaches a fraction of its final strength.

        It is 0 where a mode starts beyond the fraction, and otherwise as accurate as the integration. Modes that take
        longer than ``1e4 / S`` (with ``loss="half_mean"``) are an error.
        """
        fraction = check_fraction(fraction)
        grid = np.geomspace(1e-4, 1e4, 4000) / (self.target_scale * CLOCKS[self.loss])
        states = _states(self, grid, 1e-12, 1_000_000)
        _check_finished(states, grid, 1_000_000)
        curves = _strengths(np, states, self) / FINAL_STRENGTHS
        when = np.array([_first_crossing(grid, curve, fraction) for curve in curves.T])
        return self.dataset("theory", {"emergence_time": when}, {"mode": np.arange(1, 4)}, {"fraction": fraction})

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        samples: Annotated[int | None, "training samples drawn from the 8 inputs (default: each input once)"] = None,
        seeds: Seeds = 10,
        key: Key = 0,
        devices: Any = None,
        memory_limit: MemoryLimit = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train the network itself, with gradients by automatic differentiation through its ReLUs.

        ``<name>_error`` is the estimated numerical error of each value: that of the integrator for gradient flow, and
        rounding.

        Parameters
        ----------
        samples
            Size of the training set of each seed, drawn from the 8 inputs with replacement. None or infinity stands
            for each input once, and all seeds are then alike.
        """
        times, training = self.check_run(times, training, "simulate")
        samples = check_samples(samples)
        variables = simulate_runs(
            partial(_draw, self, samples),
            times,
            training,
            stable_rate=self._stable_learning_rate(),
            # Drawn inputs may hold one of the 8 several times as often as the others.
            excess=1.0 if samples is None else 4.0,
            operations=400.0,
            bytes_per_run=8.0 * (2 * (samples or 8) + 12 * times.size),
            **run_options(self.name, seeds, key, devices, memory_limit, progress),
        )
        coordinates = {"seed": np.arange(seeds), "time": times, "mode": np.arange(1, 4)}
        settings, system = {"samples": samples, "seeds": seeds, "key": key}, {"samples": samples}
        return self.dataset("simulation", variables, coordinates, settings, training=training, system=system)

    @property
    def _start(self) -> tuple[float, ...]:
        """The three weights and the offset at the start."""
        return self.initial_first, self.initial_second, self.initial_third, self.initial_offset

    def _stable_learning_rate(self) -> float:
        """2 over the largest curvature at the minimum, or at the start if that is larger."""
        minimum = [*[np.sqrt(2 * self.target_scale)] * 3, -self.target_scale]
        bend = _curvatures(jnp.array([minimum, self._start], float), self)
        return float(2 / (CLOCKS[self.loss] * np.linalg.eigvalsh(bend).max()))


@numpy_unless_traced
def network(xp: Any, weights: Any, bits: Any) -> Any:
    """What each neuron adds to the output, with the shared weights of eq. C.9; the offset is not in it.

    ``weights`` are the three weights and the offset, along the last axis; ``bits`` are inputs x bits. The result is
    inputs x modes, for each of the weights.
    """
    alpha, beta, gamma = weights[..., 0], weights[..., 1], weights[..., 2]
    sums = bits @ np.array([[-1.0, 1.0, -1.0], [-1.0, 1.0, -1.0], [1.0, -1.0, 1.0]]).T
    hidden = sums * weights[..., None, :3] + xp.stack([0 * alpha, beta, -gamma], -1)[..., None, :]
    # The derivative of JAX's function is zero at zero.
    active = np.maximum(hidden, 0) if xp is np else jax.nn.relu(hidden)
    return active * xp.stack([-2 * alpha, beta, gamma], -1)[..., None, :]


def _states(
    model: ParityMode, flow_times: np.ndarray, tolerance: float, max_steps: int
) -> Float[Array | np.ndarray, "time 4"]:
    """Logarithms of the squared weights, and the offset."""
    if is_traced(model, flow_times):
        return _traced_states(model, jnp.asarray(flow_times), jnp.asarray(tolerance), max_steps)
    clock, start = CLOCKS[model.loss] / 8, np.array([*2 * np.log(model._start[:3]), model.initial_offset])
    return follow(start, clock * flow_times, model.target_scale, tolerance, max_steps)


@partial(jax.jit, static_argnames="max_steps")
def _traced_states(model: ParityMode, times: Array, tolerance: Array, max_steps: int) -> Float[Array, "time 4"]:
    *weights, offset = model._start
    start = jnp.stack([*(2 * jnp.log(weight) for weight in weights), jnp.asarray(offset, float)])
    clock = CLOCKS[model.loss] / 8
    return follow_traced(start, clock * times, jnp.asarray(model.target_scale), tolerance, max_steps)


def _check_finished(states: Any, times: np.ndarray, max_steps: int) -> None:
    lost = ~np.isfinite(np.asarray(states)).all(-1)
    if lost.any():
        raise ValueError(
            f"the integration took {max_steps} steps and did not reach time {times[np.argmax(lost)]:g}: "
            "raise max_steps or ask for earlier times"
        )


@numpy_unless_traced
def _curves(xp: Any, model: ParityMode, states: Any) -> dict[str, Any]:
    strength, weights = _strengths(xp, states, model), xp.exp(states[:, :3] / 2)
    return {
        "strength": strength,
        "total_strength": strength.sum(-1),
        "weight": weights,
        "offset": states[:, 3],
        "test_loss": _loss(xp.concatenate([weights, states[:, 3:]], -1), model, np.ones(8)),
    }


def _strengths(xp: Any, states: Any, model: ParityMode) -> Any:
    """``Y . f_q / (8 S^2)``: alpha^2 / (4 S), beta^2 / (8 S), gamma^2 / (8 S)."""
    return xp.exp(states[:, :3]) / (np.array([4.0, 8.0, 8.0]) * model.target_scale)


def _loss(weights: Any, model: ParityMode, counts: Any) -> Any:
    """Mean of halves over the inputs, each taken ``counts`` times."""
    output = network(weights, BITS).sum(-1) + weights[..., 3:]
    return (counts * (output - model.target_scale * PARITY) ** 2).sum(-1) / (2 * counts.sum())


@jax.jit
def _curvatures(points: Float[Array, "point 4"], model: ParityMode) -> Float[Array, "point 4 4"]:
    return jax.vmap(lambda weights: jax.hessian(_loss)(weights, model, np.ones(8)))(points)


def _draw(model: ParityMode, samples: int | None, key: Array) -> TrainingProblem:
    """Draw a training set: how often it holds each of the 8 inputs."""
    counts = jnp.ones(8)
    if samples is not None:
        drawn = jax.random.randint(key, (samples,), 0, 8)
        counts = jnp.zeros(8).at[drawn].add(1.0)
    slope = jax.grad(_loss)

    def gradient(weights: Array) -> Array:
        return CLOCKS[model.loss] * slope(weights, model, counts)

    def measure(weights: Array) -> dict[str, Array]:
        strengths = PARITY @ network(weights, BITS) / (8 * model.target_scale)
        return {
            "strength": strengths,
            "total_strength": strengths.sum(),
            "weight": weights[:3],
            "offset": weights[3],
            "train_loss": _loss(weights, model, counts),
            "test_loss": _loss(weights, model, jnp.ones(8)),
        }

    return TrainingProblem(gradient, measure, jnp.asarray(model._start, float))


def _first_crossing(times: np.ndarray, curve: np.ndarray, fraction: float) -> float:
    """Where a curve first passes a fraction, by a cubic spline in log time."""
    from scipy.interpolate import CubicSpline

    if curve[0] >= fraction:
        return 0.0
    above = np.nonzero(curve >= fraction)[0]
    if above.size == 0:
        raise ValueError(f"a mode has not reached {fraction:g} by time {times[-1]:g}: start from larger weights")
    near = slice(max(int(above[0]) - 8, 0), int(above[0]) + 8)
    return float(np.exp(CubicSpline(np.log(times[near]), curve[near] - fraction).solve(0.0, extrapolate=False)[0]))
