"""Feature scaling as a law: networks of any width that learn features, or whose batches make noise."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from solvable.inference import feature_curves
from solvable.inference.law import LawParameter
from solvable.inference.runs import Run, sizes_of
from solvable.inference.splines import Grid
from solvable.inference.theory_laws import UNIT_RUN, Curve, TheoryLaw

_GRID = Grid(np.log(feature_curves.TIMES))
_SIZES = "train at three widths or more, or fix the units of time and loss (fixed={'time_unit': ..., 'unit': ...})"
_BATCHES = "train at two batch sizes or more"
# The noise of the smallest batch at which the search for it begins, as a part of the largest of the tables.
_LEAST_NOISE = 2e-4

# Width and batch size of a run; infinite where it has none.
Size = tuple[float, float]


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureScalingLaw(TheoryLaw):
    """Gradient flow of :class:`solvable.FeatureScaling`, for runs of any widths, or of any batch sizes.

    Runs whose ``sizes`` have no ``width`` have infinitely many features. Curves come from tables that are part of the
    package (Chebyshev polynomials of solved curves); the last step of a fit corrects them by the solver.

    Where ``sizes`` have a ``batch_size`` B, batches are of new samples and make noise in the limit of small steps. Its
    strength is ``batch_noise / B`` in the units of the theory. For networks of the model, with times in steps,
    ``batch_noise`` equals the time unit, which is the learning rate; here it is fitted. Runs without a batch size have
    no noise. Its tables are of infinitely many features and a constant rate: it is left out, with a warning, where a
    run with a batch size has a width or a schedule.

    Parameters
    ----------
    regime
        ``"rich"``, with a free richness, or ``"lazy"``.
    start
        Where capacity, source and richness start.
    corrections
        Differences of the solver from the tables, by width and batch size; see :meth:`exact`.
    parameters
        The fitted parameters with their boxes; set by the law itself.
    """

    regime: str = "rich"
    start: Mapping[str, float] = dataclasses.field(default_factory=dict)
    corrections: Mapping[Size, np.ndarray] = dataclasses.field(default_factory=dict)
    parameters: tuple[LawParameter, ...] = ()
    _latest = float(feature_curves.TIMES[-1])

    def __post_init__(self) -> None:
        if not self.parameters:
            object.__setattr__(self, "parameters", (*self._shape(), self._time_unit([UNIT_RUN])))
        object.__setattr__(self, "_memory", {})

    @property
    def name(self) -> str:  # type: ignore[override]
        """``"feature-scaling"`` or ``"feature-scaling-lazy"``."""
        return "feature-scaling" if self.regime == "rich" else "feature-scaling-lazy"

    def _shape(self) -> tuple[LawParameter, ...]:
        capacity = LawParameter(
            "capacity", *feature_curves.CAPACITY, self.start.get("capacity", 1.5), natural_step=0.1,
            help="exponent of the eigenvalues", remedy=_SIZES,
        )  # fmt: skip
        source = LawParameter(
            "source", *feature_curves.SOURCE, self.start.get("source", 0.5), natural_step=0.05,
            help="exponent of the target's tail in terms of the eigenvalues",
            remedy="train longer, so that the power law is seen for two decades, or fix the floor",
        )  # fmt: skip
        richness = LawParameter(
            "richness", *feature_curves.RICHNESS, self.start.get("richness", 0.5), log=True, natural_step=0.5,
            help="how fast features learn", remedy=_SIZES,
        )  # fmt: skip
        return (capacity, source, richness) if self.regime == "rich" else (capacity, source)

    def _noise(self, runs: Sequence[Run]) -> tuple[LawParameter, ...]:
        """The strength of the batch noise, if the runs have batch sizes and nothing that the tables do not know."""
        batches = sizes_of(runs, "batch_size")
        if not np.isfinite(batches).any() or _beyond_tables(runs):
            return ()
        high = feature_curves.NOISE * float(batches.min())
        low = _LEAST_NOISE * high
        return (
            LawParameter(
                "batch_noise", low, high, math.sqrt(low * high), log=True, natural_step=0.5,
                help="noise of batches of one sample: their learning rate, in the units of the theory", remedy=_BATCHES,
            ),
        )  # fmt: skip

    def prepare(self, runs: Sequence[Run]) -> "FeatureScalingLaw":
        """The law with boxes of the time unit and the batch noise that suit the runs.

        Parameters
        ----------
        runs
            The runs.
        """
        for width in set(sizes_of(runs, "width").tolist()):
            low, high = feature_curves.WIDTH
            if math.isfinite(width) and not low <= width <= high:
                raise ValueError(
                    f"width = {width:g} is outside of the tables of feature scaling, {low:g} to {high:g}: leave that "
                    "run out, or leave out its width if it is much larger"
                )
        for run in runs:
            if not run.sizes.get("batch_size", 1.0) > 0:
                raise ValueError(f"run {run.name!r}: batch_size must be positive, not {run.sizes['batch_size']:g}")
        return dataclasses.replace(self, parameters=(*self._shape(), *self._noise(runs), self._time_unit(runs)))

    def check(self, runs: Sequence[Run]) -> list[str]:
        """Warn where learning rates are not known, and where the noise of batches is left out.

        Parameters
        ----------
        runs
            The runs.
        """
        notes = super().check(runs)
        beyond = _beyond_tables(runs)
        if beyond and np.isfinite(sizes_of(runs, "batch_size")).any():
            notes.append(
                f"the noise of the batches is left out: run {beyond[0]!r} has {beyond[1]}, and the noise is known for "
                "infinitely many features at a constant rate only"
            )
        return notes

    def _size(self, run: Run) -> Size:
        noisy = any(one.name == "batch_noise" for one in self.parameters)
        return run.sizes.get("width", math.inf), run.sizes.get("batch_size", math.inf) if noisy else math.inf

    def _curve(self, theta: Mapping[str, float], run: Run) -> Curve:
        size = self._size(run)
        where = (*_point(theta), size[0], _strength(theta, size))
        memory: dict[Any, Curve] = self._memory  # type: ignore[attr-defined]
        # The correction belongs to the size, the emulated curve to the strength of its noise.
        if (key := (size, where)) not in memory:
            if len(memory) > 64:
                memory.pop(next(iter(memory)))
            logs = feature_curves.emulated(*where) + self.corrections.get(size, 0.0)
            memory[key] = Curve(_GRID, logs, feature_curves.initial(theta["capacity"], theta["source"]))
        return memory[key]

    def differentiable(self, run: Run) -> Callable[[Mapping[str, Any]], list[Any]]:
        """The basis as a pure function of JAX, from the same tables and corrections.

        Parameters
        ----------
        run
            The run.
        """
        import jax.numpy as jnp

        from solvable.inference import differentiable_curves

        size = self._size(run)
        correction, passed = self.corrections.get(size, 0.0), run.flow_time

        def basis(theta: Mapping[str, Any]) -> list[Any]:
            logs = differentiable_curves.emulated(*_point(theta), size[0], _strength(theta, size)) + correction
            start = differentiable_curves.initial(theta["capacity"], theta["source"])
            return [differentiable_curves.curve(logs, start, theta["time_unit"] * passed), jnp.ones(passed.size)]

        return basis

    def exact(self, theta: Mapping[str, float], runs: Sequence[Run]) -> "FeatureScalingLaw":
        """The law with tables that agree with the solver at ``theta``, for the widths and batch sizes of the runs.

        Parameters
        ----------
        theta
            The best nonlinear parameters by name.
        runs
            The runs, whose sizes matter.
        """
        found = {}
        for size in sorted({self._size(run) for run in runs}):
            where = (*_point(theta), size[0], _strength(theta, size))
            found[size] = feature_curves.exact(*where) - feature_curves.emulated(*where)
        return dataclasses.replace(self, corrections=found)

    def explain(self, theta: Mapping[str, float], unidentified: Sequence[str], runs: Sequence[Run]) -> list[str]:
        """The two explanations of the exponent of one curve.

        Parameters
        ----------
        theta
            The best nonlinear parameters by name.
        unidentified
            Names that the data do not determine.
        runs
            The runs.
        """
        if self.regime == "lazy" or not {"richness", "capacity"} & set(unidentified):
            return []
        source = theta["source"]
        tail = 2 * source / (1 + source) if source < 1 else source
        return [
            f"the late exponent is what these curves determine best; an exponent of {tail:.3g} would be a rich network "
            f"with source {tail / (2 - tail):.3g}, or a lazy one with source {tail:.3g}"
        ]

    def settings(self) -> dict[str, object]:
        """The regime, and where the search starts."""
        return {"law": self.name, "start": dict(self.start)}


def _point(theta: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Capacity, source and richness, which is zero for lazy networks."""
    return theta["capacity"], theta["source"], theta.get("richness", 0.0)


def _strength(theta: Mapping[str, Any], size: Size) -> Any:
    """The noise of batches of this size; a plain zero if there is none."""
    return theta["batch_noise"] / size[1] if math.isfinite(size[1]) else 0.0


def _beyond_tables(runs: Sequence[Run]) -> tuple[str, str] | None:
    """The first run with a batch size for which there are no tables of noise, and what it has."""
    for run in runs:
        if "batch_size" in run.sizes and "width" in run.sizes:
            return run.name, "a width"
        if "batch_size" in run.sizes and run.is_constant is False:
            return run.name, "a schedule of its learning rate"
    return None
