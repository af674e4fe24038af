"""The public face of the feature-scaling model: parameters, theory, simulation and summaries."""

import math
import warnings
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

import jax
import numpy as np
import xarray as xr

from solvable.checks import Rule, check_choice, check_count, rules
from solvable.dataset import Stopwatch, make_dataset, provenance
from solvable.model import Model, parameter
from solvable.models.feature_scaling import compute, exponents, limits, simulation
from solvable.models.feature_scaling.meanings import MEANINGS
from solvable.models.feature_scaling.spectrum import is_traced, listed, nodes
from solvable.models.feature_scaling.theory import Curves, curves
from solvable.timegrid import check_times

_TRACE_CLASS = Rule(
    "a finite number above 1, or the eigenvalues k^-capacity would have no finite sum (the kernel would not be trace "
    "class; a finite explicit spectrum may fall more slowly)",
    lambda value: 1 < value < math.inf,
)
_STABLE, _QUIET = 1.9, 0.9
# What is learned if nothing else is given: a hard task.
_CAPACITY, _SOURCE, _MODES = 1.5, 0.5, 1000
# Quadrature over modes reaches down to eigenvalues far below one over the last time.
_LATEST = 1e60


class FeatureScaling(Model):
    """A two-layer linear network on power-law features, whose features learn: scaling laws beyond the kernel limit.

    The network ``f = w^T A psi / N`` sees modes ``psi_k`` of variance ``lambda_k = k^-capacity`` and learns a target
    with ``lambda_k w_k^2 = k^(-capacity source - 1)``, both not normalised, ``k = 1 ... modes`` (which may be infinite
    in theory, not in simulations); or any ``spectrum`` (lambda_k) and ``target`` (w_k) given as lists. ``A(0)`` is
    standard normal, ``w(0) = 0``. Projected gradient descent (eq. 4) moves w, and A as fast as ``richness`` says;
    ``richness = 0`` is the lazy (kernel) limit. Each step takes a new ``batch``, or with ``samples`` draws it, with
    replacement, from that many that are kept.

    Times are descent steps (``descent="discrete"``) or flow time, learning rate times steps (``"flow"``).
    Losses are ``sum_k lambda_k v_k^2`` without a factor 1/2.

    >>> import solvable
    >>> model = solvable.FeatureScaling(capacity=1.5, source=0.5, modes=float("inf"))
    >>> model.phase()
    'hard'
    >>> model.predict([0, 10, 100]).test_loss.values.round(3)
    array([1.962, 0.701, 0.157])
    """

    name: ClassVar[str] = "feature-scaling"
    usual_times: ClassVar[str] = "1:500:31log"
    predict_like_simulation: ClassVar[Mapping[str, Any]] = {"descent": "discrete"}
    simulates_whole_steps: ClassVar[bool] = True

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
    batch: float = parameter("batch size", rules.count_or_infinite, symbol="B", default=math.inf)
    richness: float = parameter("how fast features learn; 0 is lazy", rules.not_negative, symbol="γ", default=1.0)
    learning_rate: float = parameter("learning rate", rules.positive, symbol="η", default=0.1)
    modes: float | None = parameter(
        "number of modes (default: 1000, or those of the spectrum)",
        rules.count_or_infinite,
        symbol="M",
        default=None,
        optional=True,
    )
    samples: int | None = parameter(
        "number of samples that are reused; inf: each is new", rules.count, symbol="P", default=None, infinite=True
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
            self.modes = _MODES if self.modes is None else self.modes
        elif self.modes is None:
            self.modes = math.inf

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        if (self.spectrum is None) != (self.target is None):
            raise ValueError("spectrum and target belong together: give both, or neither with capacity and source")
        if self.spectrum is None:
            _check_signal(self.capacity, self.source)
            return
        if self.capacity is not None or self.source is not None or self.modes != math.inf:
            raise ValueError(
                "a spectrum says it all: leave out capacity, source and modes (fit_source_capacity measures them)"
            )
        if isinstance(self.spectrum, np.ndarray) and isinstance(self.target, np.ndarray):
            if self.spectrum.shape != self.target.shape:
                raise ValueError(f"target must have one entry for each of the {self.spectrum.size} eigenvalues")
            if not self.target.any():
                raise ValueError("target is zero: at least one coefficient must not be")

    def sample_count(self) -> Any:
        """Number of samples that are reused; infinitely many if each is new."""
        return math.inf if self.samples is None else self.samples

    def mode_count(self) -> Any:
        """Number of modes, those of the spectrum if there is one."""
        return self.modes if self.spectrum is None else np.size(self.spectrum)

    def predict(
        self,
        times: Any,
        *,
        descent: Annotated[Literal["discrete", "flow"], "whole steps of descent, or gradient flow"] = "discrete",
        two_time: Annotated[bool, "also the correlation and response matrices (discrete only)"] = False,
        exact_batch: Annotated[bool, "add the 1/B term per mode that the theory drops (discrete, new samples)"] = False,
        per_decade: Annotated[int, "time steps a decade on logarithmic grids (flow only)"] = 16,
        progress: bool | None = False,
    ) -> xr.Dataset:
        """Theory's losses at the given times, from corrected equations of the paper (see docs/errata).

        Solvers: ``march``, the two-time equations step by step; ``slot march``, the same for gradient flow on
        logarithmic times at any finite features, batch and samples; without any of these, ``descent`` of the infinite
        network and ``exponential midpoint`` for its flow. All but the slot march can be differentiated; sizes and
        richness may be traced. ``numerical_error`` is relative, of nodes and time grid.
        """
        watch = Stopwatch()
        check_choice("descent", descent, ("discrete", "flow"))
        times = check_times(times, whole=descent == "discrete")
        options = {
            "two_time": two_time,
            "exact_batch": exact_batch,
            "per_decade": check_count("per_decade", per_decade, least=4),
            "progress": progress,
        }
        self._check_options(descent, two_time, exact_batch)
        if not times[-1] <= _LATEST:
            raise ValueError(
                f"times must be at most {_LATEST:g} for these modes, not {times[-1]:g}: ask for earlier times"
            )
        found = curves(self, times, descent, options)
        modes = self.mode_count()
        system = {"descent": descent, "modes": None if modes == math.inf else int(modes), "network": "projected"}
        attributes = provenance(self, "theory", {"descent": descent, **found.solver}, watch, found.error, system=system)
        if not is_traced(self):
            attributes |= self._guards(found, descent)
        variables: dict[str, Any] = {"test_loss": (("time",), found.test_loss)}
        if found.train_loss is not None:
            variables["train_loss"] = (("time",), found.train_loss)
        variables["kernel_growth"] = (("time",), found.growth)
        # Tail nodes stand for no number of modes: theirs is what all together add.
        heavy = np.asarray(found.modes.counts) if not is_traced(self) else found.modes.counts
        weight = jax.numpy.where(heavy > 0, heavy, 1.0)
        variables["mode_error"] = (("time", "mode"), found.node_loss / weight)
        variables["mode_weight"] = (("mode",), weight)
        variables["mode_eigenvalue"] = (("mode",), found.modes.eigenvalues)
        # An axis must be made of numbers: where the place of the last node depends on a traced capacity, count nodes.
        ranks = found.modes.ranks
        ranks = np.arange(1.0, ranks.shape[0] + 1) if isinstance(ranks, jax.core.Tracer) else ranks
        coordinates = {"time": times, "mode": ranks}
        if two_time and found.two_time is not None:
            coordinates["earlier_time"] = times
            variables |= _matrices(found, times)
        return make_dataset(variables, coordinates, attributes, MEANINGS)

    def _check_options(self, descent: str, two_time: bool, exact_batch: bool) -> None:
        if descent == "flow" and (two_time or exact_batch):
            raise ValueError('two_time and exact_batch are for whole steps: use descent="discrete"')
        if exact_batch and (self.samples is not None or self.batch == math.inf):
            raise ValueError("exact_batch is for batches of new samples: give a finite batch, and no samples")
        if descent == "discrete" and not is_traced(self):
            strongest = 1.0 if self.spectrum is None else float(np.max(self.spectrum))
            if self.learning_rate * strongest >= 2:
                raise ValueError(
                    f"learning_rate = {self.learning_rate:g} is not below 2 / lambda_1 = {2 / strongest:g}: descent "
                    "diverges from the first step on; lower it"
                )

    def _guards(self, found: Curves, descent: str) -> dict[str, float]:
        """How near training is to its instabilities, with a warning where it is too near for theory to be trusted."""
        growth = float(np.max(found.growth))
        strongest, trace = float(np.max(found.modes.eigenvalues)), float(found.modes.trace)
        guards = {}
        if descent == "discrete":
            guards["edge_of_stability"] = self.learning_rate * growth * strongest / 2
            if guards["edge_of_stability"] * 2 > _STABLE:
                warnings.warn(
                    f"the kernel grew by {growth:.3g}, so that learning_rate * growth * lambda_1 = "
                    f"{2 * guards['edge_of_stability']:.3g} is near 2, the edge of stability: losses stop falling as "
                    'a power law; lower learning_rate or use descent="flow"',
                    stacklevel=3,
                )
        if self.batch < math.inf:
            guards["noise_gain"] = self.learning_rate * growth * trace / (2 * self.batch)
            if guards["noise_gain"] > _QUIET:
                warnings.warn(
                    f"learning_rate * growth * Tr Lambda / (2 batch) = {guards['noise_gain']:.3g} is near 1, where the "
                    "noise of the batches feeds itself: lower learning_rate or raise batch",
                    stacklevel=3,
                )
        return guards

    def _power_law(self) -> tuple[np.ndarray, np.ndarray]:
        if self.spectrum is not None:
            raise ValueError("exponents belong to power laws: fit_source_capacity(spectrum, target) finds them")
        return np.asarray(self.capacity, float), np.asarray(self.source, float)

    def exponents(self) -> xr.Dataset:
        """Exponents of the loss in time, features, samples, compute and of its transients, lazy and rich.

        ``printed`` holds what the paper says, which differs for the model bottleneck (eqs. 8, 9: the exponent is
        ``capacity min(1, source)``) and the transients of hard tasks. Negative exponents grow.
        """
        watch = Stopwatch()
        capacity, source = self._power_law()
        tables = {
            name: [make(capacity, source, regime == "rich") for regime in exponents.REGIMES]
            for name, make in (("exponent", exponents.table), ("printed", exponents.printed))
        }
        return make_dataset(
            {
                name: (
                    ("quantity", "regime"),
                    [[column[quantity] for column in columns] for quantity in exponents.QUANTITIES],
                )
                for name, columns in tables.items()
            },
            {"quantity": list(exponents.QUANTITIES), "regime": list(exponents.REGIMES)},
            provenance(self, "asymptotic theory", {"phase": self.phase()}, watch),
            MEANINGS,
        )

    def level(self, n: int) -> float:
        """Time exponent after n rounds of self-consistency (eq. 62), from lazy (0) towards ``2 beta / (1 + beta)``."""
        return exponents.level(float(self._power_law()[1]), check_count("n", n, least=0))

    def phase(self) -> str:
        """``hard``, ``easy`` or ``super-easy``."""
        return exponents.PHASES[int(exponents.phase_number(*self._power_law()))]

    def phase_map(self, capacities: Any, sources: Any) -> xr.Dataset:
        """Phase and exponents over a grid of capacities and sources (Fig. 1), lazy and rich."""
        watch = Stopwatch()
        capacities, sources = (np.atleast_1d(np.asarray(values, float)) for values in (capacities, sources))
        for capacity in capacities:
            self.replace(capacity=capacity, source=1.0, spectrum=None, target=None)
        if not (np.isfinite(sources) & (sources > 0)).all():
            raise ValueError(f"sources must be positive finite numbers, not {sources.tolist()}")
        across, along = np.meshgrid(capacities, sources, indexing="ij")
        tables = [exponents.table(across, along, regime == "rich") for regime in exponents.REGIMES]
        values = np.array([[table[quantity] for table in tables] for quantity in exponents.QUANTITIES])
        dims = ("capacity", "source")
        coordinates = {"capacity": capacities, "source": sources}
        coordinates |= {"quantity": np.array(exponents.QUANTITIES), "regime": np.array(exponents.REGIMES)}
        return make_dataset(
            {
                "phase": (dims, exponents.phase_number(across, along)),
                "exponent": (("quantity", "regime", *dims), values),
            },
            coordinates,
            provenance(self, "asymptotic theory", {}, watch),
            MEANINGS,
        )

    def limit(self) -> xr.Dataset:
        """Losses as time goes to infinity, without batch noise; the same for every richness."""
        watch = Stopwatch()
        if self.batch < math.inf and (self.features < math.inf or self.samples is not None):
            raise ValueError("batch noise does not die out: limit() is for full batches, replace(batch=inf)")
        fewest = min(self.features, self.sample_count())
        scale = 10.0 if fewest == math.inf else 10 * fewest ** (self.capacity or 3.0)
        found = limits.limit(nodes(self, scale, fine=True), self.features, self.sample_count())
        variables = {"test_loss": ((), found.test_loss)}
        if self.samples is not None:
            variables["train_loss"] = ((), found.train_loss)
        return make_dataset(variables, {}, provenance(self, "theory", {}, watch), MEANINGS)

    def compute_optimal(
        self,
        budgets: Any,
        *,
        per_decade: Annotated[int, "time steps a decade"] = 8,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """The least loss at each compute ``C = features * time``, over the number of features; gradient flow.

        The model's own ``features`` are not used. Local exponents are slopes between neighbouring budgets, positive
        where the loss falls; the loss near its minimum is a parabola in the logarithm of the number of features.
        """
        watch = Stopwatch()
        budgets = check_times(budgets)
        capacity, source = self._power_law()
        share = exponents.features_share(float(capacity), float(source), self.richness > 0)
        found = compute.envelope(self, budgets, share, check_count("per_decade", per_decade, least=4), progress)
        return make_dataset(
            {name: (("budget",), values) for name, values in found.items()},
            {"budget": budgets},
            provenance(self, "theory", {"per_decade": per_decade}, watch),
            MEANINGS,
        )

    def simulate(
        self,
        times: Any,
        *,
        seeds: Annotated[int, "number of independent runs"] = 32,
        key: Annotated[int, "key of the random numbers"] = 0,
        modes: int | None = None,
        memory_limit: Annotated[float | None, "bytes that the runs of a chunk may take together"] = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train networks of finite size by eq. 4, one for each seed; times are descent steps.

        The system is that of ``predict``, with all modes of the model. ``modes`` cuts off a power law of infinitely
        many; the dataset then has the number of modes that were trained among its parameters. Where features, batch
        and samples are all infinite nothing is random: there is one run, and all seeds agree.
        """
        return self._simulate(simulation.run, times, seeds, key, modes, memory_limit, devices, progress)

    def simulate_linear_network(
        self,
        times: Any,
        *,
        seeds: Annotated[int, "number of independent runs"] = 8,
        key: Annotated[int, "key of the random numbers"] = 0,
        modes: int | None = None,
        memory_limit: Annotated[float | None, "bytes that the runs of a chunk may take together"] = None,
        devices: Any = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train both layers of a plain linear network (appendix G), with the squared norm of its readout, the spike.

        ``modes`` is as in :meth:`simulate`.
        """
        if self.richness == 0 or self.features == math.inf:
            raise ValueError("the linear network needs richness > 0 and a finite number of features")
        return self._simulate(simulation.run_linear, times, seeds, key, modes, memory_limit, devices, progress)

    def _simulate(
        self,
        run: Any,
        times: Any,
        seeds: int,
        key: int,
        modes: int | None,
        limit: float | None,
        devices: Any,
        show: Any,
    ) -> xr.Dataset:
        watch = Stopwatch()
        times = check_times(times, whole=True)
        seeds = check_count("seeds", seeds)
        trained = self._with_modes(modes)
        eigenvalues, target = listed(trained)
        features, batch, samples = (
            None if size == math.inf else int(size) for size in (self.features, self.batch, self.sample_count())
        )
        plan = simulation.Plan(
            features,
            batch,
            samples,
            float(self.learning_rate),
            float(self.richness),
            tuple(eigenvalues.tolist()),
            tuple(target.tolist()),
        )
        random = run is not simulation.run or features or batch or samples
        runs = seeds if random else 1
        options = {"seeds": runs, "key": key, "memory_limit": limit, "devices": devices, "progress": show}
        found = run(plan, times, options)
        settings = {"modes": len(plan.target), "seeds": seeds, "runs": runs, "key": key}
        network = "projected" if run is simulation.run else "linear"
        system = {"descent": "discrete", "modes": len(plan.target), "network": network}
        # Each step adds sums over the modes to the weights, rounded by the machine precision; errors of steps add up.
        rounding = float(np.finfo(float).eps) * (len(plan.target) + float(times[-1]))
        return make_dataset(
            {name: (("seed", "time"), np.repeat(values, seeds // runs, 0)) for name, values in found.items()},
            {"seed": np.arange(seeds), "time": times},
            provenance(trained, "simulation", settings, watch, rounding, system=system),
            MEANINGS,
        )

    def _with_modes(self, modes: int | None) -> Self:
        """The model that is trained: this one, or with so many modes of its infinitely many."""
        if modes is None:
            if self.mode_count() == math.inf:
                raise ValueError(
                    f"infinitely many modes cannot be trained: replace(modes={_MODES}), say, which theory then has, too"
                )
            return self
        count, own = check_count("modes", modes), self.mode_count()
        if own < math.inf:
            if count != own:
                raise ValueError(
                    f"modes = {count}, but the model has {own:g} and theory is about all of them: leave modes out, or "
                    "build the model with as many"
                )
            return self
        return self.replace(modes=count)


def _check_signal(capacity: Any, source: Any) -> None:
    """The tail of the target's power, ``k^-(capacity source)``, must be a number, and its sum finite."""
    if isinstance(capacity, jax.core.Tracer) or isinstance(source, jax.core.Tracer):
        return
    if not 1e-9 <= capacity * source <= 1e3:
        raise ValueError(
            f"capacity * source must lie between 1e-9 and 1000, not {capacity * source:g}: with source = {source:g} "
            "the target would have no finite power, or no second mode; change source"
        )


def _matrices(found: Curves, times: np.ndarray) -> dict[str, Any]:
    solution = found.two_time
    assert solution is not None
    places = np.ix_(times.astype(int), times.astype(int))
    names = {
        "C_2": solution.correlation_2,
        "C_3": solution.correlation_3,
        "C_w": solution.weight_correlation,
        "R_3": solution.response_3,
        "R_24": solution.response_24,
    }
    if found.train_loss is not None:
        # With new samples only its diagonal, the loss, is needed and computed.
        names["C_0"] = solution.correlation_0
    return {name: (("time", "earlier_time"), values[places]) for name, values in names.items()}
