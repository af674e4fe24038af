"""Two linear layers: singular modes learned one after the other, low rank, and neural collapse."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable.checks import check_choice, check_fraction, is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider
from solvable.coverage import Covers
from solvable.dataset import VARIABLES, Meaning
from solvable.model import Key, MemoryLimit, Model, parameter
from solvable.models import linear_network_story
from solvable.models.linear_network_simulation import RANK_CUTOFF, Target, drawn, rank, train_with_all
from solvable.numerics.arrays import numpy_unless_traced
from solvable.numerics.descent import FOLLOWED, TrainingProblem, check_stable, follow_steps, simulate_runs
from solvable.numerics.ensemble import Traceable, ensemble, run_options
from solvable.numerics.kappa import effective_dimension
from solvable.training import GradientDescent, Training

# The error of the integrator is estimated with tolerances larger by these factors, for what theory gives as well.
_LOOSER = (30.0, 100.0)
_COMPARED = ("strength", "test_loss", "feature_dimension")
# The axes of what is measured, after seeds and times.
_DIMENSIONS = {
    "strength": ("mode",),
    "singular_value": ("direction",),
    "first": ("input", "neuron"),
    "second": ("neuron", "output"),
}
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
        what 30 and 100 times larger tolerances change, at this time or at the one before or after.

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
        target = Target.of(self)
        inputs, outputs = target.correlation.shape
        if isinstance(training, GradientDescent):
            return self._simulated_steps(target, times, training, initial, weights, options)
        tolerances = np.array([tolerance, *(min(factor * tolerance, 0.5) for factor in _LOOSER)])
        run = Traceable(train_with_all, self, target, training.flow_time(times), initial, weights, tolerances)
        size = 8.0 * tolerances.size * (20 + 2 * len(times)) * self.width * (inputs + outputs)
        found = ensemble(run, bytes_per_run=size, **options)
        result = {name: values[:, 0] for name, values in found.items()}
        steps = result.pop("steps")
        if not np.isfinite(result["test_loss"]).all():
            raise ValueError(
                f"the integrator did not reach time {times[-1]:g}: use earlier times or a larger tolerance"
            )
        errors = {f"{name}_error": _largest_change(found[name]) for name in _COMPARED}
        settings = {"tolerance": tolerance, "key": key, "most_steps": int(steps.max())}
        return self._simulated(result | errors, times, settings, training, initial)

    def _simulated_steps(
        self,
        target: Target,
        times: np.ndarray,
        training: GradientDescent,
        initial: str,
        weights: bool,
        options: dict[str, Any],
    ) -> xr.Dataset:
        """Gradient descent on both matrices."""
        inputs, outputs = target.correlation.shape
        result = simulate_runs(
            partial(drawn, self, target, initial, weights),
            times,
            training,
            stable_rate=self._stable_learning_rate(),
            operations=6.0 * inputs * outputs * self.width,
            bytes_per_run=16.0 * (20 + 2 * len(times)) * self.width * (inputs + outputs),
            **options,
        )
        found = {
            name: values
            for name, values in result.items()
            if not (name.endswith("_error") and name.removesuffix("_error") not in _COMPARED)
        }
        return self._simulated(found, times, {"solver": "steps", "key": options["key"]}, training, initial)

    def _simulated(
        self,
        found: dict[str, np.ndarray],
        times: np.ndarray,
        settings: dict[str, Any],
        training: Training,
        initial: str,
    ) -> xr.Dataset:
        """What was measured of all runs, and both layers where they were asked for, as a dataset."""
        variables = {
            name: (("seed", "time", *_DIMENSIONS.get(name.removesuffix("_error"), ())), values)
            for name, values in found.items()
        }
        seeds, directions = found["singular_value"].shape[0], found["singular_value"].shape[-1]
        coordinates = {"seed": np.arange(seeds), "time": times, "mode": self._numbers}
        coordinates["direction"] = np.arange(1, directions + 1)
        if "first" in found:
            coordinates["neuron"] = np.arange(1, self.width + 1)
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


def _largest_change(values: np.ndarray) -> np.ndarray:
    """What looser tolerances change; axes are (seed, tolerance, time, ...), and the first tolerance is the tightest.

    The difference of two integrations changes its sign from time to time, and near these zeros it says nothing about
    the error. The largest of two differences at three neighbouring times is hardly ever small by such a chance.
    """
    changes = np.abs(values[:, 1:] - values[:, :1]).max(axis=1)
    edges = [(0, 0), (1, 1), *[(0, 0)] * (changes.ndim - 2)]
    before_and_after = np.pad(changes, edges, mode="edge")
    return np.maximum(changes, np.maximum(before_and_after[:, :-2], before_and_after[:, 2:]))


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
        "rank": rank(xp, strength),
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


def _balanced(model: LinearNetwork) -> TrainingProblem:
    """Training of balanced and aligned layers, whose strength is the square of one number for each mode."""
    modes, start = model.modes, jnp.sqrt(model._start())
    return TrainingProblem(lambda scale: -scale * (modes - scale**2), lambda scale: {"strength": scale**2}, start)
