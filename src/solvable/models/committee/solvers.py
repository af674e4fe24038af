"""The solvers of the committee, by name; one interface."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from solvable.checks import check_count
from solvable.models.committee import online
from solvable.models.committee.fixed_point import solve_fixed_point
from solvable.models.committee.latent import Flow, Latent
from solvable.models.committee.population import test_loss_error
from solvable.models.committee.problem import Advance, Problem, Runs, Wanted
from solvable.models.committee.response import TwoTime, solve_response
from solvable.timegrid import count_steps

__all__ = ["SOLVERS", "FixedPoint", "Flow", "Latent", "Online", "Response", "Solver"]


class Solver(Protocol):
    """What solves the theory: settings, and :meth:`solve`."""

    @property
    def whole_steps(self) -> bool:
        """Whether times must be whole numbers of steps."""
        ...

    def work(self, problem: Problem, times: np.ndarray) -> float:
        """How much :meth:`solve` will report as done."""
        ...

    def solve(
        self, problem: Problem, times: np.ndarray, wanted: Wanted, key: int, advance: Advance, keep_diverged: bool
    ) -> Runs:
        """Order parameters at the times."""
        ...


@dataclasses.dataclass(frozen=True)
class Online:
    """Infinitely many samples (corrected eqs. 11-15): exact for polynomials, by quadrature otherwise.

    Descent in whole steps, or gradient flow with ``flow=True``. ``saad_solla=True``: one-pass stochastic descent,
    whose noise adds ``step <g g>`` to the drift of the overlaps; times are then those of its own flow.
    """

    flow: bool = False
    saad_solla: bool = False

    @property
    def whole_steps(self) -> bool:
        return not (self.flow or self.saad_solla)

    def work(self, problem: Problem, times: np.ndarray) -> float:
        return 1.0

    def solve(
        self, problem: Problem, times: np.ndarray, wanted: Wanted, key: int, advance: Advance, keep_diverged: bool
    ) -> Runs:
        if wanted.correlations or wanted.responses or wanted.loss_gap or wanted.kernel_alignment:
            raise ValueError("Online gives losses, alignment and overlap only: use Latent or Response for the rest")
        start = jnp.asarray(problem.alignment), jnp.asarray(problem.overlap)
        decay = problem.weight_decay
        if self.saad_solla:
            path = online.one_pass(problem.task, *start, _from_zero(times), step=problem.step, weight_decay=decay)
        elif self.flow:
            path = online.online_flow(problem.task, *start, _from_zero(times), weight_decay=decay)
        else:
            counts = count_steps(times, problem.step)
            path = online.online_descent(
                problem.task, *start, step=problem.step, steps=int(counts[-1]), weight_decay=decay
            )
            path = jax.tree.map(lambda values: values[counts], path)
        if self.flow or self.saad_solla:
            path = jax.tree.map(lambda values: values[-times.size :], path)
        advance(1.0)
        if not np.isfinite(path.test_loss).all():
            place = int(np.argmin(np.isfinite(path.test_loss)))
            raise ValueError(
                f"the online equations diverged before time {times[place]:g}: lower step = {problem.step:g}"
            )
        values = {name: np.asarray(array)[None] for name, array in path._asdict().items()}
        values["train_loss"] = values["test_loss"]
        quadrature = jax.jit(jax.vmap(lambda a, c: test_loss_error(problem.task, a, c)))(path.alignment, path.overlap)
        bias = {"test_loss": np.asarray(quadrature), "train_loss": np.asarray(quadrature)}
        return Runs(values, bias, {}, {})


@dataclasses.dataclass(frozen=True)
class _TwoTimeSolver:
    """A solver by response functions: whole steps from zero, everything at two times."""

    whole_steps: ClassVar[bool] = True

    def work(self, problem: Problem, times: np.ndarray) -> float:
        return 1.0

    def solve(
        self, problem: Problem, times: np.ndarray, wanted: Wanted, key: int, advance: Advance, keep_diverged: bool
    ) -> Runs:
        if wanted.kernel_alignment:
            raise ValueError("the alignment of the kernel needs the solver Latent or Flow")
        counts = count_steps(times, problem.step)
        everything = self._solved(problem, int(counts[-1]), key)
        advance(1.0)
        overlap = np.einsum("kttij->ktij", everything.weight_correlation)
        values = {name: getattr(everything, name)[:, counts] for name in ("train_loss", "test_loss", "alignment")}
        values["overlap"] = overlap[:, counts]
        grid = np.ix_(np.arange(overlap.shape[0]), counts, counts)
        if wanted.correlations:
            values["weight_correlation"] = everything.weight_correlation[grid]
            values["gradient_correlation"] = everything.gradient_correlation[grid]
        if wanted.responses:
            values["weight_response"] = everything.weight_response[grid]
            values["field_response"] = everything.field_response[grid]
            values["index_response"] = everything.index_response[:, counts]
        if wanted.loss_gap:
            values["loss_gap"] = _loss_gap(problem, everything)[:, counts]
        return Runs(values, {}, {}, {})

    def _solved(self, problem: Problem, steps: int, key: int) -> TwoTime:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Response(_TwoTimeSolver):
    """Responses by derivatives along each sample's path, marched once through time: the check of the closure.

    Costs grow with the cube of the number of steps. Kinks at zero (ReLU) enter by their jump formula.
    """

    samples: int = 2048
    scrambles: int = 4

    def __post_init__(self) -> None:
        check_count("samples", self.samples, 16)
        check_count("scrambles", self.scrambles, 2)

    def _solved(self, problem: Problem, steps: int, key: int) -> TwoTime:
        return solve_response(**_setting(problem), steps=steps, samples=self.samples, scrambles=self.scrambles, key=key)


@dataclasses.dataclass(frozen=True)
class FixedPoint(_TwoTimeSolver):
    """The paper's damped iteration on two-time functions (appendix A.6, eq. 32): the baseline."""

    samples: int = 8000
    damping: float = 0.5
    iterations: int = 30
    scrambles: int = 2

    def _solved(self, problem: Problem, steps: int, key: int) -> TwoTime:
        return solve_fixed_point(
            **_setting(problem),
            steps=steps,
            samples=self.samples,
            damping=self.damping,
            iterations=self.iterations,
            scrambles=self.scrambles,
            key=key,
        ).order_parameters


SOLVERS: dict[str, Callable[[], Any]] = {
    "latent": Latent,
    "flow": Flow,
    "online": Online,
    "response": Response,
    "fixed-point": FixedPoint,
}


def _setting(problem: Problem) -> dict[str, Any]:
    return {
        "task": problem.task,
        "samples_per_dimension": problem.samples_per_dimension,
        "initial_overlap": jnp.asarray(problem.overlap),
        "initial_alignment": jnp.asarray(problem.alignment),
        "step": problem.step,
        "weight_decay": problem.weight_decay,
    }


def _from_zero(times: np.ndarray) -> Any:
    """Integrators want an interval: time zero alone is none."""
    return jnp.asarray(times if times[-1] > 0 else np.array([0.0, 1e-12]))


def _loss_gap(problem: Problem, everything: TwoTime) -> np.ndarray:
    """``(2/gamma) sum_ij (c_i / b_i) dt sum_{s<t} R^w_ij(t, s) C^g_ij(t, s)`` (eq. 18)."""
    readout, moved = np.asarray(problem.task.readout), np.asarray(problem.task.gradient_readout)
    ratio = np.divide(readout, moved, out=np.zeros_like(readout), where=moved != 0)
    products = everything.weight_response * everything.gradient_correlation
    steps = products.shape[1]
    earlier = np.tril(np.ones((steps, steps)), -1)
    return 2 * problem.step / problem.samples_per_dimension * np.einsum("ktsij,i,ts->kt", products, ratio, earlier)
