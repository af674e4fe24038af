"""The committee machine: parameters, what theory says of its training, and how to train it."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable import activations, teachers
from solvable.checks import check_choice, is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider, of_method, of_trained
from solvable.dataset import Meaning
from solvable.divergence import DivergedError
from solvable.model import Key, MemoryLimit, Model, function, parameter
from solvable.models.committee import online, simulation, story, theory
from solvable.models.committee.flow import Flow
from solvable.models.committee.latent import Latent
from solvable.models.committee.problem import (
    OutputRequest,
    Solver,
    check_activation,
    check_readout,
    check_start,
    check_teacher,
    initial_weights,
    problem_of,
)
from solvable.numerics.ensemble import run_options
from solvable.training import SGD, Covers, GradientDescent, GradientFlow, Training, check_training

# The default setting groks: the training loss falls immediately, the test loss when the neurons turn to the teacher.
_START_OVERLAP = ((1.0, 0.0), (0.0, 1.0))
_START_ALIGNMENT = ((0.2,), (-0.2,))
_PLAIN = (Covers(GradientDescent, options=("weight_decay",)), *Flow.covers)


class _QuickLatent(Latent):
    """One small set of samples: a look at the curves, without the errors that a result needs."""

    least_replicates: ClassVar[int] = 1


class _QuickFlow(Flow):
    """As :class:`_QuickLatent`, for gradient flow."""

    least_replicates: ClassVar[int] = 1


def _quick_look(model: "Committee", training: Training) -> dict[str, Any]:
    """Options of ``predict`` for a quick look: few samples, and a coarse latent basis."""
    if math.isinf(model.samples_per_dimension):
        return {}
    solver = _QuickFlow if isinstance(training, GradientFlow) else _QuickLatent
    return {"solver": solver(samples=512, replicates=1, tolerance=0.05)}


CONTROLS = Controls(
    sliders={
        "samples_per_dimension": log_slider(0.3, 100, after=("inf",)),
        "output_scale": log_slider(0.05, 5),
        "initial_alignment": Slider(-0.6, 0.6, count=60),
        "learning_rate": log_slider(0.01, 1),
        "weight_decay": log_slider(1e-4, 1, before=("0",)),
    },
    # One-pass SGD takes one sample at a time.
    start={"seeds": "8", "batch_size": "1"},
    summaries=(
        Summary(
            "rate",
            "early growth rate of alignment",
            of_trained("early_alignment_rate", "early_alignment_rate"),
            "1/time",
        ),
        Summary("escape", "escape time, eq. 20 corrected", of_method("escape_time", "escape_time"), "flow time"),
    ),
    plane=("rate", "output_scale", "weight_decay"),
    stories=(story.STORY,),
    explain=story.explain,
    system=story.system,
    # Mean-field theory of finite data.
    slow=lambda model, training: not math.isinf(model.samples_per_dimension),
    quick=_quick_look,
)


class Committee(Model):
    """``f(x) = sum_i c_i phi(w_i . x)`` learns ``sigma(h*_1..K)``, ``h*_q = beta_q . x``, from ``P = gamma D`` samples.

    Inputs are ``x ~ N(0, I/D)``. Full-batch gradient descent of learning rate dt and weight decay d is

        w_i <- (1 - dt d) w_i + (dt / gamma) sum_mu g_i^mu x^mu,     g_i = b_i phi'(h_i) (sigma - f),

    from weights with given overlaps ``w_i . w_j / D`` and alignments ``w_i . beta_q / D``. As D grows every curve of it
    becomes deterministic, and dynamical mean-field theory gives it (delayed-features, eqs. 3-9; several of its printed
    equations are corrected here: see docs/errata). Losses are ``<(sigma - f)^2>``, without a factor 1/2.

    One-pass stochastic gradient descent, ``SGD(learning_rate, batch_size=1)``, needs infinitely many samples. It is in
    the scaling of Saad and Solla, ``w_i <- (1 - dt d / D) w_i + dt g_i x`` with a fresh input at every step: time then
    counts D steps, so that flow time passes by ``dt`` per unit of time as in gradient descent.

    >>> import solvable
    >>> online = solvable.Committee(samples_per_dimension=float("inf"))
    >>> curve = online.predict([0, 40, 80], solvable.GradientDescent(learning_rate=0.25))
    >>> curve.test_loss.values.round(4)
    array([8.053e-01, 3.350e-02, 1.000e-04])
    """

    name: ClassVar[str] = "committee"
    loss_convention: ClassVar[str] = "mean square <(sigma - f)^2> over samples, without a factor 1/2"
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = theory.MEANINGS
    default_training: ClassVar[Training] = GradientDescent(learning_rate=0.25)
    theory_covers: ClassVar[tuple[Covers, ...]] = online.Online.covers
    simulation_covers: ClassVar[tuple[Covers, ...]] = tuple(
        cover for cover in online.Online.covers if cover.kind is not GradientFlow
    )
    usual_times: ClassVar[str] = "0:112:29"

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
    readout: np.ndarray | None = parameter(
        "readout of each neuron (default α/N)", rules.finite_vector, symbol="c", default=None, optional=True
    )
    gradient_readout: np.ndarray | None = parameter(
        "readout in the gradient (default 1; the readout itself for plain gradient descent)",
        rules.finite_vector,
        symbol="b",
        default=None,
        optional=True,
    )

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        if not is_traced(self.initial_overlap, self.initial_alignment):
            check_start(self.initial_overlap, self.initial_alignment)
        neurons, indices = self.initial_alignment.shape
        check_readout("readout", self.readout, neurons)
        check_readout("gradient_readout", self.gradient_readout, neurons)
        check_activation(self.activation)
        check_teacher(self.teacher, indices)

    def predict(
        self,
        times: Any,
        training: Training | None = None,
        *,
        solver: Annotated[
            Literal["latent", "flow", "online", "response", "fixed-point"] | Solver | None,
            "how to solve the theory (by default chosen by the training)",
        ] = None,
        accuracy: Annotated[float | None, "raise the samples until the relative error is this"] = None,
        correlations: Annotated[bool, "two-time correlations, too"] = False,
        responses: Annotated[bool, "responses, too (solvers response and fixed-point)"] = False,
        kernel_alignment: Annotated[bool, "alignment of the tangent kernel, too"] = False,
        key: Annotated[int, "random seed of the samples"] = 0,
        on_divergence: Annotated[Literal["raise", "keep"], "raise an error, or keep what came before"] = "raise",
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Predict losses, alignment and overlap as D grows, each with its error.

        Parameters
        ----------
        times
            Increasing times, in the units of the training: steps of gradient descent, D steps of one-pass SGD, flow
            time over the learning rate.
        training
            ``GradientDescent`` (the default, with a learning rate of 0.25), with or without momentum, weight decay and
            a learning-rate schedule; ``GradientFlow``, with or without weight decay; or, where
            ``samples_per_dimension`` is infinite, ``SGD(learning_rate, batch_size=1)``.
        solver
            One of ``solvable.solvers``, or its name. By default ``Latent`` for gradient descent, ``Flow`` for gradient
            flow, and ``Online`` where ``samples_per_dimension`` is infinite.
        accuracy
            Raise the samples of the solver, fourfold at a time, until losses are known to this relative error, and
            alignments and overlaps to this fraction of the largest. Where that cannot be reached a warning says so
            (attribute ``accuracy_reached``).
        correlations
            Whether to add the two-time functions ``weight_correlation`` and ``gradient_correlation``.
        responses
            Whether to add ``weight_response``, ``field_response`` and ``index_response``.
        kernel_alignment
            Whether to add the alignment of the tangent kernel with the target.
        on_divergence
            ``"raise"`` a ``DivergedError``, or ``"keep"`` what came before, with NaN after it.
        """
        request = OutputRequest(correlations=correlations, responses=responses, kernel_alignment=kernel_alignment)
        times, training = self._check_run(times, training, "predict")
        options: dict[str, Any] = {"accuracy": accuracy, "key": key, "on_divergence": on_divergence}
        return theory.solve(self, times, training, request, solver=solver, progress=progress, **options)

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        dimension: Annotated[int, "input dimension"] = 300,
        seeds: Annotated[int, "number of datasets"] = 20,
        key: Key = 0,
        dtype: Annotated[Literal["float32", "float64"], "precision of the runs"] = "float64",
        form: Annotated[Literal["auto", "primal", "dual"], "how a step is computed"] = "auto",
        on_divergence: Annotated[Literal["raise", "keep"], "raise an error, or keep what came before"] = "raise",
        devices: Any = None,
        memory_limit: MemoryLimit = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Train on ``seeds`` datasets of ``P = gamma D`` samples, from exactly the prescribed overlaps.

        All datasets share the initial weights, as in the paper. The test loss is exact, from overlap and alignment.

        Parameters
        ----------
        times
            Increasing numbers of steps; of D steps for SGD.
        training
            ``GradientDescent`` (the default, with a learning rate of 0.25), with or without momentum, weight decay and
            a learning-rate schedule; or, where ``samples_per_dimension`` is infinite, ``SGD(learning_rate,
            batch_size=1)``, which has no training set and no training loss.
        form
            What a step reads: ``"primal"`` the inputs twice, ``"dual"`` their inner products once. ``"auto"`` takes the
            faster of the two.
        on_divergence
            ``"raise"`` a ``DivergedError``, or ``"keep"`` what came before, with NaN after it.
        """
        times, training = self._check_run(times, training, "simulate")
        check_choice("on_divergence", on_divergence, theory.ON_DIVERGENCE)
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        problem, steps = problem_of(self, training), times.astype(int).tolist()
        error: DivergedError | None = None
        settings: dict[str, Any] = {"seeds": seeds, "key": key, "dtype": dtype}
        if isinstance(training, SGD):
            values = simulation.simulate_one_pass(problem, steps, dimension=dimension, dtype=dtype, **options)
            error = simulation.one_pass_divergence(problem, times, values["test_loss"])
            ratio, rounded = None, 1 + steps[-1] * dimension
        else:
            setup = simulation.set_up(problem, steps[-1], dimension=dimension, dtype=dtype, form=form)
            measured = simulation.simulate(setup, steps, **options)
            values = {name: value for name, value in measured._asdict().items() if name in theory.DIMS}
            settings |= {"samples": setup.samples, "form": form}
            if (measured.diverged >= 0).any() and on_divergence == "raise":
                error = simulation.divergence(setup, measured, key)
            ratio, rounded = float(self.samples_per_dimension), 1 + steps[-1]
        dataset = theory.labelled(
            self,
            "simulation",
            values,
            times,
            settings,
            training=training,
            system={"dimension": dimension, "samples_per_dimension": ratio},
            # Each step adds a sum over the samples, rounded by the precision of the runs; errors of steps add up.
            error=float(np.finfo(dtype).eps) * rounded,
            error_scale="maximum",
            may_diverge=True,
        )
        if error is not None and on_divergence == "raise":
            error.partial = dataset
            raise error
        return dataset

    def loss_gap(
        self,
        times: Any,
        training: Training | None = None,
        *,
        solver: Any = None,
        key: int = 0,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Eq. 18, ``(2 alpha / gamma N) sum_ij int R^w_ij C^g_ij``, beside the losses whose difference it approximates.

        It is the leading order in 1/gamma: good to a few percent at gamma = 50, too small by half or more in the range
        of grokking (gamma below 10).

        Parameters
        ----------
        times, training, solver, key, progress
            As in :meth:`predict`. The training must have no momentum and no schedule.
        """
        times, training = self._check_run(times, training, "predict")
        training = check_training(training, _PLAIN, "the loss gap of the committee", "Give one of these.")
        request = OutputRequest(loss_gap=True)
        return theory.solve(self, times, training, request, solver=solver, key=key, progress=progress)

    def escape_time(self) -> xr.Dataset:
        """When alignment reaches the scale of zero loss, ``2/(3 eps) ln(1/(sqrt(alpha eps) A0))`` (eq. 20, corrected).

        It is a flow time (variable ``escape_time``), for the paper's task from alignments that are not too small: an
        error names the range.
        """
        return self.dataset("theory", {"escape_time": online.escape_time(problem_of(self, GradientFlow()))})

    def early_alignment_rate(self, training: Training | None = None) -> xr.Dataset:
        """The rate at which a small alignment grows with many samples: ``3 eps / 2`` as alpha goes to 0 (eq. 19).

        It is per flow time (variable ``early_alignment_rate``), in the limit of small learning rates.

        Parameters
        ----------
        training
            ``GradientDescent`` or ``GradientFlow``; its weight decay is taken off the rate.
        """
        chosen = check_training(
            self.default_training if training is None else training,
            _PLAIN,
            "the early rate of the committee",
            f"The default is {self.default_training!r}.",
        )
        rate = online.early_alignment_rate(problem_of(self, chosen))
        return self.dataset("theory", {"early_alignment_rate": rate})

    def recovery(self) -> xr.Dataset:
        """Alignment and overlap of weights with zero loss, where they are known: the paper's task."""
        alignment = online.recovery(problem_of(self, GradientFlow()))
        variables = {
            "alignment": (("neuron", "index"), alignment),
            "overlap": (("neuron", "other_neuron"), alignment @ alignment.T),
        }
        return self.dataset("theory", variables, theory.coordinates_of(self))

    def kernel(self, inputs: Any, other_inputs: Any, weights: Any = None) -> xr.Dataset:
        """The tangent kernel ``sum_i c_i^2 phi'(w_i.x) phi'(w_i.x') x.x'`` (variable ``kernel``).

        For the paper's readout it is ``alpha^2 / N`` times the printed one (see docs/errata).

        Parameters
        ----------
        inputs
            Inputs x, (sample, dimension).
        other_inputs
            Inputs x', (sample, dimension).
        weights
            Weights, (neuron, dimension); by default those that ``simulate`` begins with, where the index vectors are
            the first axes.
        """
        inputs, other = (jnp.atleast_2d(jnp.asarray(array, float)) for array in (inputs, other_inputs))
        dimension = inputs.shape[1]
        if weights is None:
            start = initial_weights(self.initial_overlap, self.initial_alignment, dimension)
            weights = np.sqrt(dimension) * start
        rows = jnp.atleast_2d(jnp.asarray(weights, float))
        if not dimension == other.shape[1] == rows.shape[1] or rows.shape[0] != self.initial_overlap.shape[0]:
            raise ValueError(
                f"inputs {inputs.shape}, other_inputs {other.shape} and weights {rows.shape} must share their last "
                f"axis, and weights must have {self.initial_overlap.shape[0]} rows, one per neuron"
            )
        problem = problem_of(self, GradientFlow())
        weighted = problem.readout[:, None] ** 2 * problem.slopes(rows @ inputs.T)
        kernel = weighted.T @ problem.slopes(rows @ other.T) * (inputs @ other.T)
        coordinates = {"sample": np.arange(1, len(inputs) + 1), "other_sample": np.arange(1, len(other) + 1)}
        return self.dataset("theory", {"kernel": kernel}, coordinates)

    def _check_run(self, times: Any, training: Training | None, verb: str) -> tuple[np.ndarray, Training]:
        """Checked times and training, neither traced nor at odds with the number of samples."""
        times, training = self.check_run(times, training, verb)
        if is_traced(self, training):
            raise ValueError(
                "the solvers of the committee work on plain numbers and cannot be differentiated or vectorised by JAX: "
                "pass plain numbers, one model at a time"
            )
        if isinstance(training, SGD):
            if not math.isinf(self.samples_per_dimension):
                raise ValueError(
                    "SGD draws a new sample at every step, which needs samples_per_dimension = inf, not "
                    f"{self.samples_per_dimension:g}: change it, or train with GradientDescent on all samples"
                )
            if training.batch_size != 1:
                raise ValueError(
                    f"the theory of SGD is that of one sample per step: give batch_size=1, not {training.batch_size}"
                )
        return times, training
