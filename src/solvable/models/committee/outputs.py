"""What solvers are asked for and what they hand back: values, errors, names and units."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from solvable.dataset import Meaning
from solvable.models.committee.problem import Problem
from solvable.training import Covers

# Tells the progress bar how much more is done, as a fraction of the whole.
Advance = Callable[[float], None]


@dataclasses.dataclass(frozen=True)
class OutputRequest:
    """What is wanted beside losses, alignment and overlap."""

    correlations: bool = False
    responses: bool = False
    loss_gap: bool = False
    kernel_alignment: bool = False


class Solution(NamedTuple):
    """Order parameters of independent runs, and what is known of their errors.

    ``values`` maps names to arrays (run, time, ...). ``bias`` holds for some names half the distance between two
    conventions that err to opposite sides, ``time_error`` an estimate of the error of the time steps; both without the
    run axis. ``diverged_at`` is the time of divergence, in the units of the training, and ``stable_learning_rate`` an
    estimate of the learning rate below which training is stable there.
    """

    values: Mapping[str, np.ndarray]
    bias: Mapping[str, np.ndarray] = {}
    time_error: Mapping[str, np.ndarray] = {}
    notes: Mapping[str, float] = {}
    diverged_at: float | None = None
    stable_learning_rate: float | None = None


class Solver(Protocol):
    """A method that solves the theory: its settings, the trainings that it covers, and :meth:`solve`."""

    covers: ClassVar[tuple[Covers, ...]]

    def check_cost(self, problem: Problem, times: np.ndarray) -> None:
        """Raise a ValueError with an estimate where :meth:`solve` would take too long or too much memory."""
        ...

    def solve(
        self, problem: Problem, times: np.ndarray, request: OutputRequest, key: int, advance: Advance
    ) -> Solution:
        """Order parameters at the times, which are in the units of the training."""
        ...


def summarise(solution: Solution) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Means over the runs, and errors: spread over runs, bias and time steps in quadrature."""
    values = {name: array.mean(0) for name, array in solution.values.items()}
    errors = {}
    for name, array in solution.values.items():
        count = array.shape[0]
        spread = array.std(0, ddof=1) / math.sqrt(count) if count > 1 else np.zeros(array.shape[1:])
        parts = [part[name] for part in (solution.bias, solution.time_error) if name in part]
        errors[name] = np.sqrt(spread**2 + sum(part**2 for part in parts))
    return values, errors


def relative_error(values: Mapping[str, np.ndarray], errors: Mapping[str, np.ndarray]) -> float:
    """The largest error: of losses relative to each loss, of alignment and overlap relative to the largest."""
    found = [0.0]
    for name, relative_to_each in (("train_loss", True), ("test_loss", True), ("alignment", False), ("overlap", False)):
        if name in values and np.isfinite(values[name]).any():
            largest = np.nanmax(np.abs(values["overlap"])) ** (0.5 if name == "alignment" else 1)
            scale = np.abs(values[name]) if relative_to_each else largest
            found.append(float(np.nanmax(errors[name] / np.maximum(scale, 1e-300))))
    return max(found)


_VALUES = {
    "train_loss": Meaning("training loss", "1", "L_train"),
    "test_loss": Meaning("test loss", "1", "L_test"),
    "alignment": Meaning("overlap of a neuron with an index vector", "1", "A"),
    "overlap": Meaning("overlap of two neurons", "1", "C^w"),
    "kernel_alignment": Meaning("alignment of the tangent kernel with the target", "1", "√P yᵀKy/(|K||y|²)"),
    "weight_correlation": Meaning("overlap of weights at two times", "1", "C^w"),
    "gradient_correlation": Meaning("mean product of the signals at two times", "1", "C^g"),
    "weight_response": Meaning("response of the weights to a perturbation", "1", "R^w"),
    "field_response": Meaning("response of the signals to the fields", "1", "R^h"),
    "index_response": Meaning("response of the signals to the index fields", "1", "R^h*"),
    "loss_gap": Meaning("test loss less training loss, leading order in 1/γ", "1", "L_test − L_train"),
}
MEANINGS: Mapping[str, Meaning] = {
    **_VALUES,
    **{f"{name}_error": Meaning(f"error of: {about.long_name}", about.units) for name, about in _VALUES.items()},
    "escape_time": Meaning("time at which alignment reaches the scale of zero loss", "flow time", "t"),
    "early_alignment_rate": Meaning("rate at which a small alignment grows", "1 / flow time"),
    "kernel": Meaning("tangent kernel", "1", "K"),
    "earlier_time": Meaning("earlier time", "steps", "s"),
    "neuron": Meaning("number of the neuron", "1", "i"),
    "other_neuron": Meaning("number of the other neuron", "1", "j"),
    "index": Meaning("number of the index field", "1", "q"),
    "sample": Meaning("number of the input", "1", "μ"),
    "other_sample": Meaning("number of the other input", "1", "ν"),
}
_TWO_TIMES = ("time", "earlier_time", "neuron", "other_neuron")
DIMS: Mapping[str, tuple[str, ...]] = {
    "train_loss": ("time",),
    "test_loss": ("time",),
    "alignment": ("time", "neuron", "index"),
    "overlap": ("time", "neuron", "other_neuron"),
    "kernel_alignment": ("time",),
    "loss_gap": ("time",),
    "weight_correlation": _TWO_TIMES,
    "gradient_correlation": _TWO_TIMES,
    "weight_response": _TWO_TIMES,
    "field_response": _TWO_TIMES,
    "index_response": ("time", "neuron", "index"),
}
