"""The committee machine: parameters, what theory says of its training, and how to train it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
import numpy as np
import xarray as xr

from solvable import activations, teachers
from solvable.checks import Rule, check_choice, is_traced, rules
from solvable.controls import Controls
from solvable.coverage import Covers, check_training
from solvable.dataset import Meaning
from solvable.model import Key, MemoryLimit, Model, choice, function, parameter
from solvable.models.committee import labels, online, runs, theory
from solvable.models.committee.algorithm import Algorithm
from solvable.models.committee.flow import Flow
from solvable.models.committee.latent import Latent
from solvable.models.committee.losses import LABELS, LOSSES, Labelling, Loss
from solvable.models.committee.model_checks import check_batches, check_readout_training, check_task
from solvable.models.committee.page import CONTROLS
from solvable.models.committee.problem import OutputRequest, Problem, Solver, problem_of
from solvable.models.committee.start import check_activation, check_readout, check_start
from solvable.numerics.ensemble import run_options
from solvable.training import SGD, GradientDescent, GradientFlow, Training

_FLIPS = Rule("a number from 0 to 1/2", lambda value: 0 <= value <= 0.5)
# The default setting groks: the training loss falls immediately, the test loss when the neurons turn to the teacher.
_START_OVERLAP = ((1.0, 0.0), (0.0, 1.0))
_START_ALIGNMENT = ((0.2,), (-0.2,))
_PLAIN = (Covers(GradientDescent, options=("weight_decay",)), *Flow.covers)


# Without a kept training set batches are new samples, and with one they come from it.
_SGD = Covers(
    SGD,
    options=Latent.covers[1].options,
    sampling=("online", *Latent.covers[1].sampling),
    schedules=Latent.covers[1].schedules,
)


class Committee(Model):
    """``f(x) = sum_i c_i phi(w_i . x)`` learns ``sigma(h*_1..K)``, ``h*_q = beta_q . x``, from ``P = gamma D`` samples.

    Inputs are ``x ~ N(0, I/D)``. Full-batch gradient descent of learning rate dt and weight decay d is

        w_i <- (1 - dt d) w_i + (dt / gamma) sum_mu g_i^mu x^mu,     g_i = b_i phi'(h_i) (sigma - f),

    from weights with given overlaps ``w_i . w_j / D`` and alignments ``w_i . beta_q / D``. As D grows every curve of it
    becomes deterministic, and dynamical mean-field theory gives it (delayed-features, eqs. 3-9; several of its printed
    equations are corrected here: see docs/errata). Squared losses are ``<(sigma - f)^2>``, without a factor 1/2.

    Other losses act through ``g_i = b_i phi'(h_i) s`` with the force ``s = -dl/df`` in place of ``sigma - f``. Labels
    may be classes and noisy, index fields may come in clusters, and training may take batches: see
    :mod:`solvable.models.committee.losses`.

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
    loss_convention: ClassVar[str] = (
        "mean over samples of the model's loss, the squared error (sigma - f)^2 without a factor 1/2; the test loss is "
        "that of labels without noise or flips"
    )
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = labels.MEANINGS
    default_training: ClassVar[Training] = GradientDescent(learning_rate=0.25)
    simulation_covers: ClassVar[tuple[Covers, ...]] = (Latent.covers[0], _SGD)
    theory_covers: ClassVar[tuple[Covers, ...]] = (*simulation_covers, *Flow.covers)
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
    loss: str = choice("loss of a sample", symbol="ℓ", default="squared", choices=LOSSES)
    huber_width: float = parameter(
        "error beyond which the Huber loss is linear", rules.positive, symbol="δ", default=1.0
    )
    labels: str = choice(
        "label of a sample: the teacher's output, its sign, +1 with the probability sigmoid of it, the cluster, or the "
        "largest of several outputs",
        symbol="y",
        default="teacher",
        choices=LABELS,
    )
    label_noise: float = parameter(
        "standard deviation of the noise on the labels", rules.not_negative, symbol="ς", default=0.0
    )
    label_flips: float = parameter("fraction of flipped labels", _FLIPS, symbol="p", default=0.0)
    noise_draw: str = choice(
        "label noise: fixed for each sample, or drawn afresh at each step",
        symbol="",
        default="fixed",
        choices=("fixed", "fresh"),
    )
    cluster_means: np.ndarray | None = parameter(
        "mean of the index fields in each cluster, one row per cluster (default: no clusters)",
        rules.finite_matrix,
        symbol="κ",
        default=None,
        optional=True,
    )
    cluster_weights: np.ndarray | None = parameter(
        "relative frequency of each cluster (default: equal)",
        rules.positive_vector,
        symbol="π",
        default=None,
        optional=True,
    )
    class_readout: np.ndarray | None = parameter(
        "readout of each class for the softmax loss, one row per class, in place of readout",
        rules.finite_matrix,
        symbol="c_k",
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
        check_task(self, neurons, indices)

    @property
    def loss_function(self) -> Loss:
        """The loss of a sample."""
        return Loss("huber", float(self.huber_width)) if self.loss == "huber" else Loss(self.loss)

    @property
    def labelling(self) -> Labelling:
        """How samples get their labels."""
        noise = float(self.label_noise)
        return Labelling(self.labels, noise, float(self.label_flips), noise > 0 and self.noise_draw == "fresh")

    def predict(
        self,
        times: Any,
        training: Training | None = None,
        *,
        solver: Annotated[
            Literal["latent", "flow", "online", "response", "fixed-point"] | Solver | None,
            "how to solve the theory (by default chosen by the training)",
        ] = None,
        accuracy: Annotated[float | None, "refine samples and time steps until the relative error is this"] = None,
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
            ``GradientDescent`` (the default, with a learning rate of 0.25) or ``SGD(learning_rate,
            batch_fraction=...)``, with any of their options; ``GradientFlow``, with or without weight decay; an
            :class:`solvable.Algorithm` of your own; or, where ``samples_per_dimension`` is infinite,
            ``SGD(learning_rate, batch_size=1)``.
        solver
            One of ``solvable.solvers``, or its name. By default ``Latent`` for gradient descent, ``Flow`` for gradient
            flow, and ``Online`` where ``samples_per_dimension`` is infinite.
        accuracy
            Refine the solver until losses are known to this relative error, and alignments and overlaps to this
            fraction of the largest: its samples are raised by powers of four, and the time steps of a flow are halved.
            Where that cannot be reached a warning says so (attribute ``accuracy_reached``).
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
            ``GradientDescent`` (the default, with a learning rate of 0.25) or ``SGD(learning_rate,
            batch_fraction=...)``, with any of their options; an :class:`solvable.Algorithm` of your own; or, where
            ``samples_per_dimension`` is infinite, ``SGD(learning_rate, batch_size=1)``, which has no training set and
            no training loss.
        form
            What a step reads: ``"primal"`` the inputs twice, ``"dual"`` their inner products once. ``"auto"`` takes the
            faster of the two.
        on_divergence
            ``"raise"`` a ``DivergedError``, or ``"keep"`` what came before, with NaN after it.
        """
        times, training = self._check_run(times, training, "simulate")
        check_choice("on_divergence", on_divergence, theory.ON_DIVERGENCE)
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        size = runs.Size(dimension, seeds, key, dtype, form)
        return runs.simulated(self, times, training, size, options, on_divergence)

    @classmethod
    def predict_many(
        cls, models: Sequence[Any], times: Any, trainings: Sequence[Training], **options: Any
    ) -> list[xr.Dataset] | None:
        """Predictions of several committees in one program: for gradient descent with polynomial activations.

        Parameters
        ----------
        models
            Models with equally many neurons and the same teacher.
        times
            Increasing numbers of steps, the same for all.
        trainings
            The training of each model.
        **options
            ``solver``, ``key`` and ``progress``, as in :meth:`predict`; with others there is no common program.
        """
        if set(options) - {"solver", "key", "progress"}:
            return None
        return theory.solve_many(models, times, trainings, **options)

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
        problem = self._plain_problem(GradientFlow())
        return self.dataset("theory", {"escape_time": online.escape_time(problem)})

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
        rate = online.early_alignment_rate(self._plain_problem(chosen))
        return self.dataset("theory", {"early_alignment_rate": rate})

    def recovery(self) -> xr.Dataset:
        """Alignment and overlap of weights with zero loss, where they are known: the paper's task."""
        alignment = online.recovery(self._plain_problem(GradientFlow()))
        variables = {
            "alignment": (("neuron", "index"), alignment),
            "overlap": (("neuron", "other_neuron"), alignment @ alignment.T),
        }
        return self.dataset("theory", variables, labels.coordinates_of(self))

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
        kernel = runs.tangent_kernel(self, self._plain_problem(GradientFlow()), inputs, other, weights)
        coordinates = {"sample": np.arange(1, len(inputs) + 1), "other_sample": np.arange(1, len(other) + 1)}
        return self.dataset("theory", {"kernel": kernel}, coordinates)

    def _plain_problem(self, training: Training) -> Problem:
        """The problem, if it is the squared error of a teacher without noise on Gaussian inputs."""
        problem = problem_of(self, training)
        if not problem.is_plain:
            raise ValueError(
                "known for the squared error of a teacher without noise on Gaussian inputs only, not for "
                f"{theory.of_task(problem)}: use predict"
            )
        return problem

    def _check_run(self, times: Any, training: Training | None, verb: str) -> tuple[np.ndarray, Training]:
        """Checked times and training, neither traced nor at odds with the number of samples."""
        times, training = self.check_run(times, training, verb)
        if is_traced(self, training):
            raise ValueError(
                "the solvers of the committee work on plain numbers and cannot be differentiated or vectorised by JAX: "
                "pass plain numbers, one model at a time"
            )
        if isinstance(training, SGD):
            check_batches(self.samples_per_dimension, training)
        check_readout_training(self, training)
        return times, training

    def check_training(self, training: Training | None, verb: str) -> Training:
        """Return the training, or the default one, if ``verb`` (``"predict"`` or ``"simulate"``) covers it.

        Parameters
        ----------
        training
            How the model is trained; None for the default.
        verb
            ``"predict"`` or ``"simulate"``.
        """
        if isinstance(training, Algorithm):
            if math.isinf(self.samples_per_dimension):
                raise ValueError(
                    "algorithms of your own act on a training set, which needs a finite samples_per_dimension"
                )
            return training
        if isinstance(training, SGD) and training.sampling is None:
            training = training.replace(sampling="online" if math.isinf(self.samples_per_dimension) else "epochs")
        return Model.check_training(self, training, verb)
