"""The feature-scaling model: parameters, theory, simulation and summaries."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import xarray as xr

from solvable.checks import Rule, check_choice, check_count, rules
from solvable.controls import Controls
from solvable.coverage import Covers
from solvable.dataset import Meaning
from solvable.model import Key, MemoryLimit, Model, Seeds, parameter
from solvable.models.feature_scaling import compute, exponents
from solvable.models.feature_scaling.best_schedule import best_schedules
from solvable.models.feature_scaling.data_reuse import effective_epochs
from solvable.models.feature_scaling.labels import CONTROLS, MEANINGS
from solvable.models.feature_scaling.mode_quadrature import nodes
from solvable.models.feature_scaling.model_checks import (
    check_epochs,
    check_sampling,
    check_schedule_request,
    check_target,
)
from solvable.models.feature_scaling.prediction import has_batches
from solvable.models.feature_scaling.simulation import MODES, simulated
from solvable.models.feature_scaling.theory import SOLVERS, predicted
from solvable.numerics.ensemble import run_options
from solvable.optax_descent import OptaxDescent
from solvable.timegrid import check_times
from solvable.training import SGD, GradientDescent, GradientFlow, Training

_TRACE_CLASS = Rule(
    "a finite number above 1, or the eigenvalues k^-capacity would have no finite sum (the kernel would not be trace "
    "class; a finite explicit spectrum may fall more slowly)",
    lambda value: 1 < value < math.inf,
)
# What is learned if nothing else is given: a hard task.
_CAPACITY, _SOURCE = 1.5, 0.5
# Quadrature over modes reaches down to eigenvalues far below one over the last time.
_LATEST = 1e60


_OPTIONS = (
    "momentum",
    "nesterov",
    "weight_decay",
    "decoupled",
    "feature_learning_rate",
    "ema_decay",
    "average_from",
)
_SCHEDULES = ("learning_rate", "feature_learning_rate", "momentum")
_SAMPLING = ("online", "replacement", "epochs", "cyclic")


class FeatureScaling(Model):
    """A two-layer linear network on power-law features, whose features learn: scaling laws beyond the kernel limit.

    The network ``f = w^T A psi / N`` sees modes ``psi_k`` of variance ``lambda_k = k^-capacity`` and learns a target
    with ``lambda_k w_k^2 = k^(-capacity source - 1)``, both not normalised, ``k = 1 ... modes`` (which may be infinite
    in theory, not in simulations); or any ``spectrum`` (lambda_k) and ``target`` (w_k) given as lists. ``A(0)`` is
    standard normal, ``w(0) = 0``. Projected gradient descent (eq. 4) moves w, and A as fast as ``richness`` says;
    ``richness = 0`` is the lazy (kernel) limit, in which features stay as they are. Full-batch training sees the whole
    population, or with ``samples`` that training set. The batches of SGD are of new samples (``sampling="online"``), or
    drawn from the training set: with ``"replacement"``, in ``"epochs"`` that reshuffle it, or in a fixed order
    (``"cyclic"``). A constant ratio of the features' learning rate to that of the readout is a factor of ``richness``.

    Losses are mean squares, ``sum_k lambda_k v_k^2``, without a factor 1/2; the test loss is on labels without noise.

    >>> import solvable
    >>> model = solvable.FeatureScaling(capacity=1.5, source=0.5, modes=float("inf"))
    >>> model.phase()
    'hard'
    >>> model.predict([0, 10, 100]).test_loss.values.round(3)
    array([1.962, 0.701, 0.157])
    >>> model.predict([0, 1, 10], solvable.GradientFlow()).test_loss.values.round(3)
    array([1.962, 0.708, 0.158])
    """

    name: ClassVar[str] = "feature-scaling"
    loss_convention: ClassVar[str] = "mean square error, sum_k lambda_k v_k^2, without a factor 1/2"
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = MEANINGS
    default_training: ClassVar[Training] = GradientDescent(learning_rate=0.1)
    simulation_covers: ClassVar[tuple[Covers, ...]] = (
        Covers(GradientDescent, options=_OPTIONS, schedules=_SCHEDULES),
        Covers(
            SGD,
            options=(*_OPTIONS, "batch_fraction"),
            sampling=_SAMPLING,
            schedules=(*_SCHEDULES, "batch_size"),
        ),
        Covers(OptaxDescent, options=("optimiser", "ema_decay", "average_from"), sampling=_SAMPLING),
    )
    theory_covers: ClassVar[tuple[Covers, ...]] = (
        Covers(GradientFlow, schedules=("learning_rate",)),
        *simulation_covers,
    )
    usual_times: ClassVar[str] = "1:500:31log"

    capacity: float | None = parameter(
        "exponent of the eigenvalues (default: 1.5)", _TRACE_CLASS, symbol="α", default=None, optional=True
    )
    source: float | None = parameter(
        "exponent of the target's tail in terms of the eigenvalues (default: 0.5)",
        rules.positive,
        symbol="β",
        default=None,
        optional=True,
    )
    features: float = parameter("number of features", rules.count_or_infinite, symbol="N", default=math.inf)
    richness: float = parameter("how fast features learn; 0 is lazy", rules.not_negative, symbol="γ", default=1.0)
    modes: float | None = parameter(
        "number of modes (default: 1000, or those of the spectrum)",
        rules.count_or_infinite,
        symbol="M",
        default=None,
        optional=True,
    )
    samples: int | None = parameter(
        "size of the training set; inf: the population", rules.count, symbol="P", default=None, infinite=True
    )
    label_noise: float = parameter(
        "standard deviation of the noise on each label", rules.not_negative, symbol="σ", default=0.0
    )
    spectrum: Any = parameter(
        "eigenvalues, in place of capacity", rules.positive_vector, symbol="λ_k", default=None, optional=True
    )
    target: Any = parameter(
        "coefficients, in place of source", rules.finite_vector, symbol="w*_k", default=None, optional=True
    )

    def __post_init__(self) -> None:
        """Without a spectrum, what is not given is a hard task of finitely many modes, which can be trained."""
        if self.spectrum is None and self.target is None:
            self.capacity = _CAPACITY if self.capacity is None else self.capacity
            self.source = _SOURCE if self.source is None else self.source
            self.modes = MODES if self.modes is None else self.modes
        elif self.modes is None:
            self.modes = math.inf

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        check_target(self)

    @property
    def sample_count(self) -> Any:
        """Size of the training set; infinite if none is kept."""
        return math.inf if self.samples is None else self.samples

    @property
    def mode_count(self) -> Any:
        """Number of modes, those of the spectrum if there is one."""
        return self.modes if self.spectrum is None else np.size(self.spectrum)

    def check_training(self, training: Training | None, verb: str) -> Training:
        """Return the training, or the default one, if ``verb`` covers it and its batches come from where samples are.

        Parameters
        ----------
        training
            How the network is trained; None for the default.
        verb
            ``"predict"`` or ``"simulate"``.
        """
        kept = self.samples is not None
        if isinstance(training, SGD | OptaxDescent) and has_batches(training) and training.sampling is None:
            training = training.replace(sampling="replacement" if kept else "online")
        training = super().check_training(training, verb)
        if isinstance(training, SGD | OptaxDescent) and has_batches(training):
            check_sampling(self, training)
        return training

    def predict(
        self,
        times: Any,
        training: Training | None = None,
        *,
        solver: Annotated[
            Literal["recursion", "march", "exponential-midpoint", "slot-march"] | None,
            "how the equations are solved (default: exactly, for this training)",
        ] = None,
        correlations: Annotated[bool, "also the two-time correlations and responses (march only)"] = False,
        exact_batch: Annotated[bool, "add the 1/B term per mode that the theory drops (march, new samples)"] = False,
        per_decade: Annotated[int, "time steps per decade on logarithmic grids (flows only)"] = 16,
        progress: bool | None = False,
    ) -> xr.Dataset:
        """Predict the losses from the corrected equations of the paper (see docs/errata).

        With an average of the weights in the training, ``averaged_test_loss`` is its test loss. All solvers but the
        slot march can be differentiated; sizes, richness and learning rate may be traced.
        ``numerical_error`` is relative: that of the nodes, and of the time grid for flows.

        Parameters
        ----------
        solver
            By default, steps are followed one by one: by ``"recursion"`` for infinitely many features and full
            batches of the population, or batches of new samples if lazy, and otherwise by the ``"march"`` through the
            two-time equations, whose memory grows as the square of the steps. Flows are solved on logarithmic times: by
            ``"exponential-midpoint"`` for the whole population and infinitely many features, and otherwise by the
            ``"slot-march"``. Asked for with a training of steps, these two are the limit of small steps at fixed
            ``learning_rate / batch_size``, which late times need; with schedules of both, and with momentum as a
            longer step.
        correlations
            Whether to add the two-time correlations and responses, over ``time`` and ``earlier_time``; march only.
        exact_batch
            Whether to add the term ``lambda_k^2 <v_k^2> / B`` that the theory drops; march and new samples only.
        per_decade
            Time steps per decade on the logarithmic grids of the flows.
        progress
            Whether to show a progress bar; None shows one on a terminal.
        """
        times, training = self.check_run(times, training, "predict")
        options = {
            "solver": None if solver is None else check_choice("solver", solver, SOLVERS),
            "correlations": correlations,
            "exact_batch": exact_batch,
            "per_decade": check_count("per_decade", per_decade, least=4),
            "progress": progress,
        }
        if not times[-1] <= _LATEST:
            raise ValueError(
                f"times must be at most {_LATEST:g} for these modes, not {times[-1]:g}: ask for earlier times"
            )
        return predicted(self, times, training, options)

    def _power_law(self) -> tuple[np.ndarray, np.ndarray]:
        if self.spectrum is not None:
            raise ValueError("exponents belong to power laws: fit_source_capacity(spectrum, target) finds them")
        return np.asarray(self.capacity, float), np.asarray(self.source, float)

    def exponents(self) -> xr.Dataset:
        """Exponents of the loss in time, features, samples, compute and of its transients, lazy and rich.

        ``loss ∝ x^(-exponent)``: negative exponents grow. ``printed`` holds what the paper says, which differs for the
        model bottleneck (eqs. 8, 9: the exponent is ``capacity min(1, source)``) and the transients of hard tasks.
        """
        variables, coordinates = exponents.as_variables(*self._power_law())
        return self.dataset("asymptotic theory", variables, coordinates, {"phase": self.phase()})

    def self_consistency(self, rounds: int = 6) -> xr.Dataset:
        """Time exponent after each round of self-consistency (eq. 62), from lazy towards ``2 beta / (1 + beta)``.

        Parameters
        ----------
        rounds
            Number of rounds; round 0 is the lazy exponent.
        """
        rounds = check_count("rounds", rounds, least=0)
        found = exponents.self_consistency(float(self._power_law()[1]), rounds)
        return self.dataset("asymptotic theory", {"exponent": found}, {"round": np.arange(rounds + 1)})

    def phase(self) -> str:
        """``hard``, ``easy`` or ``super-easy``."""
        return exponents.PHASES[int(exponents.phase_number(*self._power_law()))]

    def phase_map(self, capacities: Any, sources: Any) -> xr.Dataset:
        """Phase and exponents over a grid of capacities and sources (Fig. 1), lazy and rich.

        Parameters
        ----------
        capacities
            Exponents of the eigenvalues, each above 1.
        sources
            Exponents of the target, each positive.
        """
        capacities, sources = (np.atleast_1d(np.asarray(values, float)) for values in (capacities, sources))
        for capacity in capacities:
            self.replace(capacity=capacity, source=1.0, spectrum=None, target=None)
        if not (np.isfinite(sources) & (sources > 0)).all():
            raise ValueError(f"sources must be positive finite numbers, not {sources.tolist()}")
        return self.dataset("asymptotic theory", *exponents.over_plane(capacities, sources))

    def limit(self, training: Training | None = None) -> xr.Dataset:
        """Losses as time goes to infinity, without batch noise; the same for every richness.

        Parameters
        ----------
        training
            Any training without batch noise has the same limit. SGD has it, too, where everything is learned.
        """
        training = self.check_training(training, "predict")
        if has_batches(training) and (self.features < math.inf or self.samples is not None or self.label_noise):
            raise ValueError("batch noise does not die out: limit() is for GradientFlow and GradientDescent")
        if getattr(training, "weight_decay", 0.0):
            raise ValueError("limit() is without weight decay: leave out weight_decay")
        fewest = min(self.features, self.sample_count)
        scale = 10.0 if fewest == math.inf else 10 * fewest ** (self.capacity or 3.0)
        found = exponents.limit(nodes(self, scale, fine=True), self.features, self.sample_count, self.label_noise**2)
        return self.dataset("theory", found._asdict() if self.samples is not None else {"test_loss": found.test_loss})

    def compute_optimal(
        self,
        budgets: Any,
        training: Training | None = None,
        *,
        per_decade: Annotated[int, "time steps per decade"] = 8,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """The least loss at each compute ``C = features * time``, and the number of features and the time that have it.

        The model's own ``features`` are not used. Local exponents are slopes between neighbouring budgets, positive
        where the loss falls; the loss near its minimum is a parabola in the logarithm of the number of features.

        Parameters
        ----------
        budgets
            Increasing compute budgets, each at least 100.
        training
            ``GradientFlow`` by default. ``GradientDescent`` and ``SGD`` are taken in the limit of small steps, at fixed
            ``learning_rate / batch_size``; times then are steps, and need not be whole.
        """
        budgets = check_times(budgets)
        training = self.check_training(GradientFlow() if training is None else training, "predict")
        capacity, source = self._power_law()
        share = exponents.features_share(float(capacity), float(source), self.richness > 0)
        per_decade = check_count("per_decade", per_decade, least=4)
        found = compute.envelope(self, budgets, training, share, per_decade, progress)
        best = self.dataset("theory", found, {"budget": budgets}, {"per_decade": per_decade}, training=training)
        best["time"].attrs["units"] = "steps" if training.counts_steps else "flow time / η"
        return best

    def best_schedule(
        self,
        steps: Any,
        max_learning_rate: float,
        batch_size: float,
        *,
        vary_batch: bool = False,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """The learning-rate schedule with the least loss after ``steps`` steps, and what the usual schedules lose.

        For lazy networks (``richness = 0``) of infinitely many features on new samples, by the costate equations of
        ``solvable.models.feature_scaling.best_schedule``. ``attrs["sentence"]`` says what was found.

        Parameters
        ----------
        steps
            Number of steps, or several increasing numbers. Exponents are local, between one number and the next; for
            the first, between half of it and itself.
        max_learning_rate
            Largest learning rate that a schedule may have; the usual schedules have it as their peak, the ``tuned``
            ones the best peak up to it.
        batch_size
            Number of samples in each batch.
        vary_batch
            Whether the batch size is optimised, too, at ``steps * batch_size`` samples in all; it need not be whole.
        progress
            Whether to show a progress bar; None shows one on a terminal.

        Returns
        -------
        xarray.Dataset
            ``learning_rate`` and ``batch_size`` over ``schedule`` and ``step`` for the largest number of steps;
            ``test_loss``, ``excess`` (relative to the best) and ``exponent`` over ``horizon`` and ``schedule``;
            ``predicted_exponent`` where it is known.
        """
        horizons = check_schedule_request(self, steps, max_learning_rate, batch_size)
        return best_schedules(self, horizons, float(max_learning_rate), float(batch_size), vary_batch, progress)

    def effective_epochs(
        self,
        epochs: Any,
        training: Training | None = None,
        *,
        solver: Literal["march", "slot-march"] | None = None,
        per_decade: int = 16,
        progress: bool | None = False,
    ) -> xr.Dataset:
        """How many epochs of new samples K epochs over the training set are worth: E(K), with E(inf) and K*.

        ``effective_epochs`` is E(K), after which time new samples give the same test loss, at the same learning rate
        and batch size; ``final_effective_epochs`` is E(inf), ``half_epoch`` the K at which ``E(K) = K / 2`` (NaN if
        that is after the last one) and ``best_epoch`` when the test loss is least, which with label noise may be before
        the last one. ``attrs["sentence"]`` says it in words.

        Parameters
        ----------
        epochs
            Increasing numbers of epochs K, each a number of passes over the training set.
        training
            SGD on batches of the training set, ``sampling="epochs"`` by default.
        solver
            ``"march"`` follows every step, ``"slot-march"`` the limit of small steps (draws with replacement only); by
            default the first up to 1200 steps.
        per_decade
            Time steps per decade of the slot march.
        progress
            Whether to show a progress bar; None shows one on a terminal.
        """
        epochs, training = check_epochs(self, epochs, training, solver)
        options = {"solver": solver, "per_decade": check_count("per_decade", per_decade, least=4), "progress": progress}
        return effective_epochs(self, epochs, training, options)

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        seeds: Seeds = 32,
        key: Key = 0,
        modes: int | None = None,
        memory_limit: MemoryLimit = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train networks of finite size by eq. 4, one for each seed.

        The system is that of ``predict``, with all modes of the model. Where features and samples are infinite and
        batches are full nothing is random: there is one run, and all seeds agree.

        Parameters
        ----------
        modes
            Number of modes at which a power law of infinitely many is cut off; the dataset then has it among its
            parameters.
        """
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        return simulated(self, "projected", times, training, modes, options)

    def simulate_linear_network(
        self,
        times: Any,
        training: Training | None = None,
        *,
        seeds: Seeds = 8,
        key: Key = 0,
        modes: int | None = None,
        memory_limit: MemoryLimit = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train both layers of a plain linear network (appendix G), with the squared norm of its readout, the spike.

        Parameters
        ----------
        times, training, seeds, key, modes, memory_limit, devices, progress
            As in :meth:`simulate`. Batches are of new samples.
        """
        if self.richness == 0 or self.features == math.inf:
            raise ValueError("the linear network needs richness > 0 and a finite number of features")
        if self.samples is not None:
            raise ValueError("the linear network is trained on the population: leave out samples")
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        return simulated(self, "linear", times, training, modes, options)
