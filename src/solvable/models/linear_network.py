"""Two linear layers: singular modes learned one after the other, low rank, and neural collapse."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from solvable.checks import check_choice, check_fraction, is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider
from solvable.coverage import Covers
from solvable.dataset import VARIABLES, Meaning
from solvable.model import Key, MemoryLimit, Model, parameter
from solvable.models import linear_network_story
from solvable.numerics.arrays import numpy_unless_traced
from solvable.numerics.descent import FOLLOWED, TrainingProblem, check_stable, follow_steps, simulate_runs
from solvable.numerics.ensemble import Traceable, ensemble, run_options
from solvable.numerics.kappa import effective_dimension
from solvable.training import GradientDescent, Training

# A direction of the features counts for their rank when it is at least this strong, relative to the strongest.
RANK_CUTOFF = 1e-2
# The error of the integrator is estimated with a tolerance larger by this factor, for what theory gives as well.
_LOOSER = 100.0
_COMPARED = ("strength", "test_loss", "feature_dimension")
# Learned if nothing else is given.
_SINGULAR_VALUES = (3.0, 2.0, 1.0)
_INITIAL = ("balanced", "random")

_MEANINGS = {
    **VARIABLES,
    "mode": Meaning("singular mode of the correlation, strongest first", "1", "i"),
    "neuron": Meaning("hidden unit, counted from 1", "1"),
    "direction": Meaning("singular direction of the features, strongest first", "1"),
    "emergence_time": Meaning("time at which the mode emerges", "flow time", "τ"),
    "test_loss": Meaning("loss over the whole input distribution", "1", "L"),
    "strength": Meaning("strength of a mode in the network's map", "1", "α_i²"),
    "singular_value": Meaning("singular values of the first layer, strongest first", "1"),
    "rank": Meaning(f"directions of the features stronger than {RANK_CUTOFF:g} of the strongest", "1"),
    "feature_dimension": Meaning("effective dimension of the features", "1", "D_eff"),
    "imbalance": Meaning("size of the conserved difference of the layers", "1", "‖W₁ᵀW₁ − W₂W₂ᵀ‖"),
    "drift": Meaning("change of the conserved difference since the start", "1"),
    "first": Meaning("first layer", "1", "W₁"),
    "second": Meaning("second layer", "1", "W₂"),
}


def _learned(which: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda model, training: which(model.emergence_time(fraction=0.5).emergence_time.data)


CONTROLS = Controls(
    sliders={
        "singular_values": Slider(0, 5),
        "width": log_slider(1, 300, whole=True),
        "initial_scale": log_slider(1e-8, 1),
    },
    start={"singular_values": "3,2,1", "seeds": "6"},
    summaries=(
        Summary("first", "first mode half learned at", _learned(lambda times: times.min()), "flow time"),
        Summary("last", "last mode half learned at", _learned(lambda times: times.max()), "flow time"),
    ),
    plane=("last", "initial_scale", "singular_values.1"),
    stories=(linear_network_story.STORY,),
    explain=linear_network_story.explain,
    system=linear_network_story.system,
)


class LinearNetwork(Model):
    """``f(x) = x^T W1 W2`` on whitened inputs, trained by gradient flow on ``E|f - f*|^2 / 2`` from a small start.

    What the network learns is set by the correlation ``E[x f*(x)^T]`` alone: its singular values ``rho_i`` are
    learned along its singular vectors, the strongest first. From balanced layers aligned with them,
    ``W1(0) = U A R``, ``W2(0) = R^T A V^T`` with ``A = initial_scale`` on ``min(width, modes)`` modes, the strength
    ``alpha_i^2 = u_i^T W1 W2 v_i`` is (layerwise thesis, eq. 3.15; corrected: see docs/errata)

        alpha_i^2(t) = rho_i / (1 + (rho_i / initial_scale^2 - 1) exp(-2 rho_i t)).

    ``predict`` is exact for this start, and ``simulate`` starts from it unless told otherwise. A small random start
    (``simulate(..., initial="random")``) approaches the same curves as width grows: only the part of it that grows
    matters, and random layers are drawn with entries of standard deviation ``initial_scale sqrt(2 / width)``, so that
    this part has the mean square of the balanced start. Each mode then emerges up to about ``sqrt(2 / width) / (2
    rho_i)`` earlier or later, and the strengths at the start are random, of mean zero.

    Give either the ``singular_values`` (3, 2, 1 if neither is given), or the ``correlation`` as a matrix (inputs x
    outputs).

    >>> import solvable
    >>> model = solvable.LinearNetwork([3.0, 1.0], width=50)
    >>> model.emergence_time().emergence_time.values.round(2)
    array([2.49, 6.91])
    """

    name: ClassVar[str] = "linear-network"
    loss_convention: ClassVar[str] = "E|f - f*|^2 / 2: half of the square, summed over outputs"
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = _MEANINGS
    theory_covers: ClassVar[tuple[Covers, ...]] = FOLLOWED
    simulation_covers: ClassVar[tuple[Covers, ...]] = FOLLOWED
    usual_times: ClassVar[str] = "0:10:51"

    singular_values: np.ndarray | None = parameter(
        "singular values of the correlation of inputs and targets (default: 3, 2, 1)",
        rules.not_negative_vector,
        symbol="ρ_i",
        default=None,
        optional=True,
    )
    width: int = parameter("number of hidden units", rules.count, symbol="p", default=100)
    initial_scale: float = parameter(
        "singular value of each layer at the start, on the modes", rules.positive, symbol="α_i(0)", default=1e-3
    )
    correlation: np.ndarray | None = parameter(
        "correlation of inputs and targets, inputs x outputs",
        rules.finite_matrix,
        symbol="E[x yᵀ]",
        default=None,
        optional=True,
    )

    def __post_init__(self) -> None:
        if self.singular_values is None and self.correlation is None:
            self.singular_values = np.array(_SINGULAR_VALUES)

    def __check_init__(self) -> None:
        if self.singular_values is not None and self.correlation is not None:
            raise ValueError("give either singular_values or correlation, not both")

    @classmethod
    def from_data(cls, inputs: Any, targets: Any, **parameters: Any) -> Self:
        """The network whose inputs are whitened data.

        Parameters
        ----------
        inputs
            Whitened inputs X, samples x inputs, with ``X^T X = n``.
        targets
            Targets, samples x outputs: one-hot labels, random or not, or numbers to be regressed.
        **parameters
            Other parameters of the model.
        """
        inputs, targets = np.asarray(inputs, float), np.asarray(targets, float)
        targets = targets[:, None] if targets.ndim == 1 else targets
        if inputs.ndim != 2 or targets.ndim != 2 or len(inputs) != len(targets) or not inputs.size:
            raise ValueError(
                f"inputs and targets must be matrices with one row for each sample, not {inputs.shape} and "
                f"{targets.shape}"
            )
        excess = np.abs(inputs.T @ inputs / len(inputs) - np.eye(inputs.shape[1])).max()
        if not excess < 1e-8:
            raise ValueError(
                f"inputs must be whitened, but X^T X / n differs from the identity by {excess:.3g}: "
                "pass sqrt(n) U of the singular value decomposition X = U S V^T"
            )
        return cls(correlation=inputs.T @ targets / len(inputs), **parameters)

    @property
    def modes(self) -> Any:
        """Singular values of the correlation, strongest first."""
        return _modes(self)

    def predict(self, times: Any, training: Training | None = None) -> xr.Dataset:
        """The exact solution from balanced layers: strengths, loss, rank and effective dimension of the features.

        The flow is in closed form. Gradient descent keeps the layers balanced and aligned, and is followed step by
        step: with ``alpha_i^2`` the strength, the gradient in ``alpha_i`` is ``-alpha_i (rho_i - alpha_i^2)``.
        """
        times, training = self.check_run(times, training, "predict")
        modes = self.modes
        if isinstance(training, GradientDescent):
            if not is_traced(self, training):
                check_stable(training, self._stable_learning_rate(), times[-1])
            found = follow_steps(_balanced, self, times, training, operations=10.0 * modes.size)
            strength = found["strength"]
        else:
            strength = _sigmoid_growth(modes, self._start(), training.flow_time(times)[:, None])
        variables = {"strength": strength, **_of_strengths(modes, strength)}
        coordinates = {"time": times, "mode": self._numbers}
        return self.dataset("theory", variables, coordinates, training=training, system={"initial": "balanced"})

    def emergence_time(
        self, fraction: Annotated[float, "fraction of the final strength, between 0 and 1"] = 0.5
    ) -> xr.Dataset:
        """``emergence_time``: the flow time at which each mode reaches a fraction of its singular value.

        It is infinite for modes that are never learned: singular values of zero, and modes beyond the width.
        """
        fraction = check_fraction(fraction)
        modes, start = self.modes, self._start()
        when = {"emergence_time": _time_to_reach(modes, start, fraction)}
        return self.dataset("theory", when, {"mode": self._numbers}, {"fraction": fraction})

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        initial: Annotated[Literal["balanced", "random"], "balanced layers, or independent entries"] = "balanced",
        seeds: Annotated[int, "number of independent starts"] = 10,
        key: Key = 0,
        weights: Annotated[bool, "also return both layers at every time"] = False,
        tolerance: Annotated[float, "relative tolerance of the integrator"] = 1e-12,
        devices: Any = None,
        memory_limit: MemoryLimit = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train both matrices, once for each seed: by gradient flow (adaptive eighth-order Runge-Kutta), or in steps.

        Layers that have learned their target to within ``tolerance`` of its size stay as they are. ``drift`` is how far
        the conserved ``W1^T W1 - W2 W2^T`` has moved: it measures the integrator. So does ``<name>_error``, which is
        what a hundred times larger tolerance changes.

        Parameters
        ----------
        initial
            The layers at the start. ``"balanced"``: aligned with the modes and of equal size, as in ``predict``, with a
            random rotation of the hidden units for each seed. ``"random"``: independent Gaussian entries, whose curves
            fluctuate about those of ``predict``.
        """
        times, training = self.check_run(times, training, "simulate")
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        check_choice("initial", initial, _INITIAL)
        check_fraction(tolerance, "tolerance")
        target = _Target.of(self)
        inputs, outputs = target.correlation.shape
        if isinstance(training, GradientDescent):
            return self._simulated_steps(target, times, training, initial, weights, options)
        tolerances = np.array([tolerance, min(_LOOSER * tolerance, 0.5)])
        run = Traceable(_train_with_both, self, target, training.flow_time(times), initial, weights, tolerances)
        size = 16.0 * (20 + 2 * len(times)) * self.width * (inputs + outputs)
        both = ensemble(run, bytes_per_run=size, **options)
        result, looser = ({name: values[:, place] for name, values in both.items()} for place in (0, 1))
        steps = result.pop("steps")
        if not np.isfinite(result["test_loss"]).all():
            raise ValueError(
                f"the integrator did not reach time {times[-1]:g}: use earlier times or a larger tolerance"
            )
        dims: dict[str, tuple[str, ...]] = {"strength": ("mode",), "singular_value": ("direction",)}
        dims |= {"first": ("input", "neuron"), "second": ("neuron", "output")}
        errors = {f"{name}_error": np.abs(result[name] - looser[name]) for name in _COMPARED}
        variables = {
            name: (("seed", "time", *dims.get(name.removesuffix("_error"), ())), values)
            for name, values in (result | errors).items()
        }
        settings = {"tolerance": tolerance, "key": key, "most_steps": int(steps.max())}
        coordinates = {"seed": np.arange(seeds), "time": times, "mode": self._numbers}
        coordinates["direction"] = np.arange(1, result["singular_value"].shape[-1] + 1)
        if weights:
            coordinates["neuron"] = np.arange(1, self.width + 1)
        system = {"initial": initial}
        return self.dataset("simulation", variables, coordinates, settings, training=training, system=system)

    def _simulated_steps(
        self,
        target: "_Target",
        times: np.ndarray,
        training: GradientDescent,
        initial: str,
        weights: bool,
        options: dict[str, Any],
    ) -> xr.Dataset:
        """Gradient descent on both matrices."""
        inputs, outputs = target.correlation.shape
        result = simulate_runs(
            partial(_draw, self, target, initial, weights),
            times,
            training,
            stable_rate=self._stable_learning_rate(),
            operations=6.0 * inputs * outputs * self.width,
            bytes_per_run=16.0 * (20 + 2 * len(times)) * self.width * (inputs + outputs),
            **options,
        )
        dims: dict[str, tuple[str, ...]] = {"strength": ("mode",), "singular_value": ("direction",)}
        dims |= {"first": ("input", "neuron"), "second": ("neuron", "output")}
        variables = {
            name: (("seed", "time", *dims.get(name.removesuffix("_error"), ())), values)
            for name, values in result.items()
            if not (name.endswith("_error") and name.removesuffix("_error") not in _COMPARED)
        }
        coordinates = {"seed": np.arange(options["seeds"]), "time": times, "mode": self._numbers}
        coordinates["direction"] = np.arange(1, result["singular_value"].shape[-1] + 1)
        if weights:
            coordinates["neuron"] = np.arange(1, self.width + 1)
        settings = {"solver": "steps", "key": options["key"]}
        system = {"initial": initial}
        return self.dataset("simulation", variables, coordinates, settings, training=training, system=system)

    def _stable_learning_rate(self) -> float:
        """2 over the largest curvature, that of the strongest mode once it is learned (or of the start)."""
        return float(1 / max(float(np.max(self.modes)), float(np.max(self._start())), 1e-300))

    def _start(self) -> Any:
        """``alpha_i(0)^2``: no more modes can be learned than there are hidden units."""
        return (self._numbers <= self.width) * self.initial_scale**2

    @property
    def _numbers(self) -> np.ndarray:
        """The modes, counted from 1."""
        given: Any = self.singular_values if self.correlation is None else self.correlation
        return np.arange(1, min(np.shape(given)) + 1)


@numpy_unless_traced
def _modes(xp: Any, model: Any) -> Any:
    if model.correlation is not None:
        return xp.linalg.svd(model.correlation, compute_uv=False)
    return -xp.sort(-model.singular_values)


@numpy_unless_traced
def _sigmoid_growth(xp: Any, modes: Any, start: Any, time: Any) -> Any:
    """Eq. 3.15, written to hold for singular values of zero too: ``s' = 2 s (rho - s)``."""
    exponent = 2 * modes * time
    safe = xp.where(exponent > 0, exponent, 1.0)
    # (1 - exp(-2 rho t)) / rho, which is 2 t at rho = 0.
    grown = 2 * time * xp.where(exponent > 0, -xp.expm1(-safe) / safe, 1.0)
    return start / (start * grown + xp.exp(-exponent))


@numpy_unless_traced
def _of_strengths(xp: Any, modes: Any, strength: Any) -> dict[str, Any]:
    """What the strengths of the modes say about the loss and about the features."""
    return {
        "test_loss": xp.sum((modes - strength) ** 2, axis=1) / 2,
        "rank": _rank(xp, strength),
        "feature_dimension": effective_dimension(strength),
    }


@numpy_unless_traced
def _time_to_reach(xp: Any, modes: Any, start: Any, fraction: Any) -> Any:
    """The flow time at which each mode reaches a fraction of its singular value."""
    learned = (start > 0) & (modes > 0)
    ratio = xp.where(learned, modes / xp.where(start > 0, start, 1.0) - 1, 1.0)
    # A start beyond the fraction is there already; one above the target shrinks towards it.
    waits = ratio * fraction > 1 - fraction
    late = xp.log(xp.where(waits, ratio, 1.0) * fraction / (1 - fraction)) / (2 * xp.where(learned, modes, 1.0))
    return xp.where(learned, xp.where(waits, late, 0.0), xp.inf)


class _Target(NamedTuple):
    """The correlation and its singular vectors."""

    correlation: Float[Array, "input output"]
    left: Float[Array, "input mode"]
    right: Float[Array, "mode output"]

    @classmethod
    def of(cls, model: LinearNetwork) -> "_Target":
        correlation = model.correlation if model.correlation is not None else np.diag(np.asarray(model.modes))
        left, _, right = np.linalg.svd(np.asarray(correlation), full_matrices=False)
        return cls(jnp.asarray(correlation), jnp.asarray(left), jnp.asarray(right))


def _layers(model: LinearNetwork, target: _Target, initial: str, key: Array) -> tuple[Array, Array]:
    inputs, outputs = target.correlation.shape
    first_key, second_key = jax.random.split(key)
    if initial == "random":
        deviation = model.initial_scale * np.sqrt(2 / model.width)
        shapes = ((inputs, model.width), (model.width, outputs))
        first, second = (jax.random.normal(k, s) for k, s in zip((first_key, second_key), shapes, strict=True))
        return deviation * first, deviation * second
    active = min(model.width, target.left.shape[1])
    rotation = jnp.linalg.qr(jax.random.normal(first_key, (model.width, active)))[0].T
    scale = model.initial_scale
    return scale * target.left[:, :active] @ rotation, scale * rotation.T @ target.right[:active]


def _draw(model: LinearNetwork, target: _Target, initial: str, weights: bool, key: Array) -> TrainingProblem:
    """The two matrices at the start, their gradients and what is measured of them."""
    layers = _layers(model, target, initial, key)

    def gradient(state: tuple[Array, Array]) -> tuple[Array, Array]:
        error = state[0] @ state[1] - target.correlation
        return error @ state[1].T, state[0].T @ error

    def measure(state: tuple[Array, Array]) -> dict[str, Array]:
        found = _measure(target, _difference(layers), *state)
        return found | ({"first": state[0], "second": state[1]} if weights else {})

    return TrainingProblem(gradient, measure, layers)


def _train_with_both(
    model: LinearNetwork,
    target: _Target,
    times: Any,
    initial: str,
    weights: bool,
    tolerances: Any,
    key: Array,
) -> dict[str, Array]:
    """One run with each of two tolerances, both at once: compiling takes longer than training."""
    train = partial(_train, model, target, times, initial, weights)
    return jax.vmap(lambda tolerance: train(tolerance, key))(tolerances)


def _train(
    model: LinearNetwork, target: _Target, times: Array, initial: str, weights: bool, tolerance: Array, key: Array
) -> dict[str, Array]:
    """One run: ``W1' = (C - W1 W2) W2^T``, ``W2' = W1^T (C - W1 W2)``.

    Neither layer leaves the span of the incoming and outgoing weights of the start, so that a wide network is one with
    as many units as inputs and outputs together, exactly. The error never grows: once it is below the tolerance nothing
    is left to integrate, which an explicit method would do in steps of one length forever.
    """
    import diffrax

    wide = _layers(model, target, initial, key)
    basis = jnp.linalg.qr(jnp.concatenate([wide[0].T, wide[1]], axis=1))[0]
    layers = (wide[0] @ basis, basis.T @ wide[1])
    negligible = tolerance * jnp.linalg.norm(target.correlation)

    def flow(_: Any, state: tuple[Array, Array], __: Any) -> tuple[Array, Array]:
        first, second = state
        error = target.correlation - first @ second
        return error @ second.T, first.T @ error

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(flow),
        diffrax.Dopri8(),
        t0=0.0,
        t1=jnp.maximum(times[-1], 1e-12),
        dt0=None,
        y0=layers,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance * model.initial_scale),
        event=diffrax.Event(
            lambda _, state, __, **___: jnp.linalg.norm(target.correlation - state[0] @ state[1]) < negligible
        ),
        max_steps=1_000_000,
        throw=False,
    )
    (during, last), (_, (when,)) = solution.ys, solution.ts
    learned = (solution.result == diffrax.RESULTS.event_occurred) & (times > when)
    states = jax.tree.map(lambda past, end: jnp.where(learned[:, None, None], end, past), during, last)
    begin = _difference(layers)
    measured = jax.vmap(lambda first, second: _measure(target, begin, first, second))(*states)
    if weights:
        measured |= {"first": states[0] @ basis.T, "second": basis @ states[1]}
    return {**measured, "steps": solution.stats["num_steps"]}


def _difference(layers: tuple[Array, Array]) -> Array:
    first, second = layers
    return first.T @ first - second @ second.T


def _measure(target: _Target, begin: Array, first: Array, second: Array) -> dict[str, Array]:
    difference = _difference((first, second))
    values = jnp.linalg.svd(first, compute_uv=False)
    return {
        "strength": jnp.einsum("dm,dc,mc->m", target.left, first @ second, target.right),
        "test_loss": jnp.sum((first @ second - target.correlation) ** 2) / 2,
        "singular_value": values,
        "rank": _rank(jnp, values**2),
        "feature_dimension": effective_dimension(values**2),
        "imbalance": jnp.linalg.norm(difference),
        "drift": jnp.linalg.norm(difference - begin),
    }


def _rank(xp: Any, intensities: Any) -> Any:
    """How many directions are stronger than the cutoff; intensities are squares of strengths."""
    return xp.sum(intensities > RANK_CUTOFF**2 * xp.max(intensities, axis=-1, keepdims=True), axis=-1)


def _balanced(model: LinearNetwork) -> TrainingProblem:
    """Training of balanced and aligned layers, whose strength is the square of one number for each mode."""
    modes, start = model.modes, jnp.sqrt(model._start())
    return TrainingProblem(lambda scale: -scale * (modes - scale**2), lambda scale: {"strength": scale**2}, start)
