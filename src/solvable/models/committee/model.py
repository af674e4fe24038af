"""The committee machine: parameters, what theory says of its training, and how to train it."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable import activations, teachers
from solvable.checks import check_count, rules
from solvable.dataset import Stopwatch, make_dataset, provenance
from solvable.model import Model, function, parameter
from solvable.models.committee import checks, early
from solvable.models.committee.kernel import tangent_kernel
from solvable.models.committee.latent import Latent
from solvable.models.committee.meanings import DIMS, MEANINGS
from solvable.models.committee.population import test_loss as population_loss
from solvable.models.committee.problem import Problem, Runs, Wanted
from solvable.models.committee.simulation import initial_weights
from solvable.models.committee.simulation import simulate as run_committees
from solvable.models.committee.solvers import SOLVERS, Online, Solver
from solvable.models.committee.task import Task
from solvable.precision import require_float64
from solvable.progress import progress_bar
from solvable.timegrid import check_times, count_steps

# The default setting groks: training loss falls at once, test loss when the neurons turn to the teacher.
_START_OVERLAP = ((1.0, 0.0), (0.0, 1.0))
_START_ALIGNMENT = ((0.2,), (-0.2,))
# Beyond this many samples accuracy is not bought but waited for.
_MOST_SAMPLES = 2**20


class Committee(Model):
    """``f(x) = sum_i c_i phi(w_i . x)`` learns ``sigma(h*_1..K)``, ``h*_q = beta_q . x``, from ``P = gamma D`` samples.

    Inputs are ``x ~ N(0, I/D)``. Full-batch descent

        w_i <- (1 - dt weight_decay) w_i + (dt / gamma) sum_mu g_i^mu x^mu,     g_i = b_i phi'(h_i) (sigma - f),

    from weights with given overlaps ``w_i . w_j / D`` and alignments ``w_i . beta_q / D``. As D grows every curve of it
    becomes deterministic, and dynamical mean-field theory gives it (delayed-features, eqs. 3-9; several of its printed
    equations are corrected here: see docs/errata). Losses are ``<(sigma - f)^2>``, without a half. Times are
    ``step`` times the number of steps.

    >>> import solvable
    >>> online = solvable.Committee(samples_per_dimension=float("inf"))
    >>> curve = online.predict([0.0, 10.0, 20.0])
    >>> curve.test_loss.values.round(4)
    array([8.053e-01, 3.350e-02, 1.000e-04])
    """

    name: ClassVar[str] = "committee"
    simulates_whole_steps: ClassVar[bool] = True
    whole_step_options: ClassVar[Mapping[str, tuple[str | None, ...]]] = {
        "solver": ("latent", "response", "fixed-point", "online", None)
    }
    usual_times: ClassVar[str] = "0:28:29"

    samples_per_dimension: float = parameter(
        "training samples for each input dimension", rules.positive_or_infinite, symbol="γ", default=6.0
    )
    activation: Callable[..., Any] = function(
        "activation: quadratic(0.3), relu, erf, tanh, linear, or any continuous JAX function of one number",
        activations.parse,
        symbol="φ",
        default=activations.quadratic(0.3),
    )
    teacher: Callable[..., Any] = function(
        "target: square, linear, or any JAX function of the index fields",
        teachers.parse,
        symbol="σ",
        default=teachers.square(),
    )
    output_scale: float = parameter("scale of the output", rules.positive, symbol="α", default=0.5)
    initial_overlap: np.ndarray = parameter(
        "overlaps of the neurons at the start", rules.finite_matrix, symbol="C(0)", default=_START_OVERLAP
    )
    initial_alignment: np.ndarray = parameter(
        "alignment of each neuron with each index vector at the start",
        rules.finite_matrix,
        symbol="A(0)",
        default=_START_ALIGNMENT,
    )
    step: float = parameter("step of descent", rules.positive, symbol="dt", default=0.25)
    weight_decay: float = parameter("weight decay", rules.not_negative, symbol="d", default=0.0)
    readout: np.ndarray | None = parameter(
        "readout of each neuron (default α/N)", rules.finite_vector, symbol="c", default=None, optional=True
    )
    gradient_readout: np.ndarray | None = parameter(
        "readout in the gradient (default 1; the readout itself for plain descent)",
        rules.finite_vector,
        symbol="b",
        default=None,
        optional=True,
    )

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        if not isinstance(self.initial_overlap, jax.core.Tracer):
            checks.check_start(self.initial_overlap, self.initial_alignment)
        neurons, indices = self.initial_alignment.shape
        checks.check_readout("readout", self.readout, neurons)
        checks.check_readout("gradient_readout", self.gradient_readout, neurons)
        checks.check_activation(self.activation)
        checks.check_teacher(self.teacher, indices)

    @property
    def time_step(self) -> float:
        return self.step

    @property
    def task(self) -> Task:
        """The student and the teacher, as the solvers see them."""
        require_float64()
        neurons = self.initial_overlap.shape[0]
        readout = np.full(neurons, self.output_scale / neurons) if self.readout is None else self.readout
        moved = np.ones(neurons) if self.gradient_readout is None else self.gradient_readout
        return Task(self.activation, self.teacher, jnp.asarray(readout), jnp.asarray(moved))

    def predict(
        self,
        times: Any,
        *,
        solver: Annotated[
            Literal["latent", "flow", "online", "response", "fixed-point"] | Solver | None,
            "how to solve the theory (default: latent; online where gamma is infinite)",
        ] = None,
        accuracy: Annotated[float | None, "raise the samples until the relative error is this"] = None,
        correlations: Annotated[bool, "two-time correlations, too"] = False,
        responses: Annotated[bool, "responses, too (solvers response and fixed-point)"] = False,
        kernel_alignment: Annotated[bool, "alignment of the tangent kernel, too"] = False,
        key: Annotated[int, "key of the samples"] = 0,
        keep_diverged: Annotated[bool, "on divergence, return what came before"] = False,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Losses, alignment and overlap as D grows, each with its error.

        ``solver`` is one of ``solvable.solvers`` or its name. With ``accuracy`` its samples are raised, fourfold at a
        time, until the losses are known to that share of themselves, and alignments and overlaps to that share of the
        largest; if that cannot be had a warning says what was reached (attribute ``accuracy_reached``).
        """
        wanted = Wanted(correlations=correlations, responses=responses, kernel_alignment=kernel_alignment)
        return self._solve(times, self._solver(solver), wanted, accuracy, key, keep_diverged, progress)

    def simulate(
        self,
        times: Any,
        *,
        dimension: Annotated[int, "input dimension"] = 300,
        seeds: Annotated[int, "number of datasets"] = 20,
        key: Annotated[int, "key of the random numbers"] = 0,
        dtype: Annotated[Literal["float32", "float64"], "precision of the runs"] = "float64",
        form: Annotated[Literal["auto", "primal", "dual", "fused"], "how a step is computed"] = "auto",
        keep_diverged: Annotated[bool, "on divergence, return what came before"] = False,
        memory_limit: float | None = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Descent on ``seeds`` datasets of ``P = gamma D`` samples, from exactly the prescribed overlaps.

        All datasets share the initial weights, as in the paper. The test loss is exact, from overlap and alignment.
        ``form`` is how a step reads the data (inputs twice, their inner products once, or inputs once by a kernel for
        GPUs); ``auto`` takes the fastest of the first two. Runs go in chunks that fit ``memory_limit``.
        """
        watch = Stopwatch()
        counts = count_steps(times, self.step)
        task = self.task
        measured = run_committees(
            task,
            samples_per_dimension=self.samples_per_dimension,
            initial_overlap=self.initial_overlap,
            initial_alignment=self.initial_alignment,
            step=self.step,
            steps=counts.tolist(),
            dimension=dimension,
            seeds=seeds,
            key=key,
            weight_decay=self.weight_decay,
            dtype=dtype,
            form=form,
            test_loss=partial(population_loss, task),
            keep_diverged=keep_diverged,
            memory_limit=memory_limit,
            progress=progress,
        )
        settings = {
            "dimension": dimension,
            "samples": round(self.samples_per_dimension * dimension),
            "seeds": seeds,
            "key": key,
            "dtype": dtype,
            "form": form,
        }
        system = {
            "dimension": dimension,
            "descent": "discrete",
            "samples_per_dimension": float(self.samples_per_dimension),
            "batch": "full",
        }
        # Each step adds a sum over the samples, rounded by the precision of the runs; errors of steps add up.
        rounding = float(np.finfo(dtype).eps) * (1 + int(counts[-1]))
        names = ("train_loss", "test_loss", "alignment", "overlap", "kernel_alignment")
        neurons, indices = self.initial_alignment.shape
        return make_dataset(
            {name: (("seed", *DIMS[name]), getattr(measured, name)) for name in names},
            {
                "seed": np.arange(seeds),
                "time": counts * self.step,
                "neuron": np.arange(neurons),
                "neuron2": np.arange(neurons),
                "index": np.arange(indices),
            },
            provenance(self, "simulation", settings, watch, rounding, error_scale="maximum", system=system),
            MEANINGS,
            may_diverge=keep_diverged,
        )

    def loss_gap(self, times: Any, *, solver: Any = None, key: int = 0, progress: bool | None = None) -> xr.Dataset:
        """Eq. 18, ``(2 alpha / gamma N) sum_ij int R^w_ij C^g_ij``, beside the losses whose difference it approximates.

        It is the leading order in 1/gamma: good to a few percent at gamma = 50, too small by half or more where
        grokking lives (gamma below 10).
        """
        return self._solve(times, self._solver(solver), Wanted(loss_gap=True), None, key, False, progress)

    def escape_time(self) -> float:
        """When alignment reaches the scale of zero loss, ``2/(3 eps) ln(1/(sqrt(alpha eps) A0))`` (eq. 20, corrected).

        For the paper's task from alignments that are not too small: an error names the range.
        """
        return early.escape_time(self.task, jnp.asarray(self.initial_alignment), jnp.asarray(self.initial_overlap))

    def early_alignment_rate(self) -> float:
        """The rate at which a small alignment grows with many samples: ``3 eps / 2`` as alpha goes to 0 (eq. 19)."""
        return early.early_alignment_rate(
            self.task,
            jnp.asarray(self.initial_overlap),
            indices=self.initial_alignment.shape[1],
            weight_decay=self.weight_decay,
        )

    def recovery(self) -> xr.Dataset:
        """Alignment and overlap of weights with zero loss, where they are known: the paper's task."""
        watch = Stopwatch()
        alignment = early.recovery(self.task)
        neurons = np.arange(alignment.shape[0])
        return make_dataset(
            {
                "alignment": (("neuron", "index"), alignment),
                "overlap": (("neuron", "neuron2"), alignment @ alignment.T),
            },
            {"neuron": neurons, "neuron2": neurons, "index": np.arange(1)},
            provenance(self, "theory", {}, watch),
            MEANINGS,
        )

    def kernel(self, inputs: Any, other_inputs: Any, weights: Any = None) -> np.ndarray:
        """The tangent kernel ``sum_i c_i^2 phi'(w_i.x) phi'(w_i.x') x.x'`` of inputs (sample, dimension).

        For the paper's readout it is ``alpha^2 / N`` times the printed one (see docs/errata). ``weights`` (neuron,
        dimension) are by default those that ``simulate`` begins with, where the index vectors are the first axes.
        """
        inputs, other = (jnp.atleast_2d(jnp.asarray(array, float)) for array in (inputs, other_inputs))
        dimension = inputs.shape[1]
        if weights is None:
            weights = np.sqrt(dimension) * initial_weights(self.initial_overlap, self.initial_alignment, dimension)
        rows = jnp.atleast_2d(jnp.asarray(weights, float))
        if not dimension == other.shape[1] == rows.shape[1] or rows.shape[0] != self.initial_overlap.shape[0]:
            raise ValueError(
                f"inputs {inputs.shape}, other_inputs {other.shape} and weights {rows.shape} must share their last "
                f"axis, and weights must have {self.initial_overlap.shape[0]} rows, one a neuron"
            )
        return np.asarray(tangent_kernel(self.task, rows @ inputs.T, rows @ other.T, inputs @ other.T))

    def _solver(self, solver: Any) -> Solver:
        if solver is None:
            return Online() if math.isinf(self.samples_per_dimension) else Latent()
        if isinstance(solver, str):
            if solver not in SOLVERS:
                raise ValueError(
                    f"solver must be one of {', '.join(SOLVERS)}, or one of solvable.solvers, not {solver!r}"
                )
            solver = SOLVERS[solver]()
        if not hasattr(solver, "solve"):
            raise ValueError(f"solver must be one of solvable.solvers (Latent, Flow, Online, ...), not {solver!r}")
        if math.isinf(self.samples_per_dimension) and not isinstance(solver, Online):
            raise ValueError(
                f"samples_per_dimension is infinite: that is the online limit, use Online() and not {solver!r}"
            )
        return solver

    def _problem(self) -> Problem:
        return Problem(
            self.task,
            self.samples_per_dimension,
            self.initial_alignment,
            self.initial_overlap,
            self.step,
            self.weight_decay,
        )

    def _solve(
        self,
        times: Any,
        solver: Solver,
        wanted: Wanted,
        accuracy: float | None,
        key: int,
        keep_diverged: bool,
        progress: bool | None,
    ) -> xr.Dataset:
        watch = Stopwatch()
        times = check_times(times)
        if solver.whole_steps:
            times = count_steps(times, self.step) * self.step
        check_count("key", key, 0)
        if accuracy is not None and not 0 < accuracy < 1:
            raise ValueError(f"accuracy must lie between 0 and 1, not {accuracy!r}")
        problem = self._problem()
        checks.check_solver_cost(solver, problem, times)

        def solved(solver: Solver) -> Runs:
            with progress_bar(f"solving {self.name}", solver.work(problem, times), progress) as advance:
                return solver.solve(problem, times, wanted, key, advance, keep_diverged)

        solver, runs = (solver, solved(solver)) if accuracy is None else refine(solved, solver, accuracy)
        values, errors = summarise(runs)
        reached = relative_error(values, errors)
        settings = {"solver": str(solver), "key": key, **runs.notes}
        attributes = provenance(self, "theory", settings, watch, reached, system=_system(solver, problem))
        if accuracy is not None:
            attributes["accuracy_reached"] = str(reached <= accuracy)
        if runs.diverged_at is not None:
            attributes["diverged_at"] = runs.diverged_at
        neurons, indices = self.initial_alignment.shape
        coordinates: dict[str, Any] = {"time": times, "neuron": np.arange(neurons), "neuron2": np.arange(neurons)}
        coordinates["index"] = np.arange(indices)
        if any("time2" in DIMS[name] for name in values):
            coordinates["time2"] = times
        variables = {name: (DIMS[name], value) for name, value in values.items()}
        variables |= {f"{name}_error": (DIMS[name], error) for name, error in errors.items()}
        dataset = make_dataset(variables, coordinates, attributes, MEANINGS, may_diverge=keep_diverged)
        for name in errors:
            count = runs.values[name].shape[0]
            # The spread over few scrambles of the samples is itself not well known.
            if count > 1:
                dataset[f"{name}_error"].attrs["degrees_of_freedom"] = count - 1
        return dataset


def _system(solver: Solver, problem: Problem) -> dict[str, Any]:
    """What a solver solves: infinite dimension, steps or flow, and the online limit of infinitely many samples."""
    one_pass = isinstance(solver, Online) and solver.saad_solla
    return {
        "dimension": None,
        "descent": "discrete" if solver.whole_steps else "flow",
        "samples_per_dimension": None if isinstance(solver, Online) else float(problem.samples_per_dimension),
        "batch": "one sample" if one_pass else "full",
    }


def refine(solved: Callable[[Solver], Runs], solver: Solver, accuracy: float) -> tuple[Solver, Runs]:
    """Raise the samples, fourfold at a time, until the error is small enough; a warning says if it cannot be had."""
    runs = solved(solver)
    while (reached := relative_error(*summarise(runs))) > accuracy:
        message = _cannot(solver)
        if message is None:
            larger: Any = dataclasses.replace(solver, samples=4 * solver.samples)  # type: ignore[attr-defined,type-var]
            try:
                runs = solved(larger)
                solver = larger
                continue
            except MemoryError as error:
                message = str(error)
        warnings.warn(f"accuracy {accuracy:g} not reached, only {reached:.2g}: {message}", stacklevel=4)
        break
    return solver, runs


def summarise(runs: Runs) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Means over the runs, and errors: spread over runs, half the bracket of the self-term, and the time steps."""
    values = {name: array.mean(0) for name, array in runs.values.items()}
    errors = {}
    for name, array in runs.values.items():
        count = array.shape[0]
        spread = array.std(0, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(array.shape[1:])
        parts = [runs.bias[name]] if name in runs.bias else []
        parts += [runs.time_error[name]] if name in runs.time_error else []
        errors[name] = np.sqrt(spread**2 + sum(part**2 for part in parts))
    return values, errors


def relative_error(values: dict[str, np.ndarray], errors: dict[str, np.ndarray]) -> float:
    """The largest error: of losses as a share of the loss, of alignment and overlap as a share of the largest."""
    shares = [0.0]
    for name, scale_each in (("train_loss", True), ("test_loss", True), ("alignment", False), ("overlap", False)):
        if name in values and np.isfinite(values[name]).any():
            value, error = np.abs(values[name]), errors[name]
            scale = value if scale_each else np.nanmax(np.abs(values["overlap"])) ** (0.5 if name == "alignment" else 1)
            shares.append(float(np.nanmax(error / np.maximum(scale, 1e-300))))
    return max(shares)


def _cannot(solver: Any) -> str | None:
    """Why more samples would not help, or None if they may."""
    if not hasattr(solver, "samples"):
        return f"{solver} has no samples to raise"
    if 4 * solver.samples > _MOST_SAMPLES:
        return (
            f"the error falls slowly with samples, and {solver.samples} are much: pass a solver with more of them, or "
            "ask for earlier times"
        )
    return None
