"""Laws from solvable models: the curve at ``time_unit`` times the intrinsic time, in a free unit, plus a floor."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from solvable.inference import feature_curves
from solvable.inference.emulator import Axis, Emulator, cached
from solvable.inference.law import Law, LawParameter
from solvable.inference.runs import Run, sizes_of
from solvable.inference.splines import Grid
from solvable.ranges import parse_range

if TYPE_CHECKING:
    from solvable.model import Model

_TERMS = {"unit": "loss of the data per loss of the theory", "floor": "loss that training cannot remove"}
_SIZES = "train at three widths or more, or fix the units of time and loss (fixed={'time_unit': ..., 'unit': ...})"
_TIME_UNIT = "flow time of the theory per intrinsic time of the data"
# How much of the theory's time the data may span, in the box of the time unit.
_LEAST_TIME = 10.0
_LEAST_CURVE = 1e-13
_NODES = {1: 15, 2: 13, 3: 8, 4: 6}
_MOST_FREE = 4
_GRID = Grid(np.log(feature_curves.TIMES))


class Curve:
    """The logarithm of a loss over the logarithm of time, by a cubic spline, with what lies before and after.

    Before the first time the loss is a straight line from its value at zero; after the last it continues as the power
    law that it has there.

    Parameters
    ----------
    grid
        Knots at the logarithms of increasing times.
    logs
        Logarithm of the loss at each of them.
    start
        The loss at time zero.
    """

    def __init__(self, grid: Grid, logs: np.ndarray, start: float) -> None:
        self.grid, self.logs, self.start = grid, logs, start
        self.begin, self.end = math.exp(grid.knots[0]), math.exp(grid.knots[-1])

    def __call__(self, times: np.ndarray) -> np.ndarray:
        """The loss at any times.

        Parameters
        ----------
        times
            Times, zero or more.
        """
        loss = np.exp(self.grid(self.logs, np.log(np.maximum(times, self.begin))))
        early, late = times < self.begin, times > self.end
        if early.any():
            loss[early] = self.start + (math.exp(self.logs[0]) - self.start) * times[early] / self.begin
        if late.any():
            slope = float(self.grid.slopes[-1] @ self.logs)
            loss[late] = np.exp(self.logs[-1] + slope * np.log(times[late] / self.end))
        return loss


class TheoryLaw(Law):
    """Base class of laws whose loss is ``unit * theory(time_unit * flow_time) + floor``."""

    terms = ("unit", "floor")
    term_help = _TERMS
    optional_terms = ("floor",)
    # The longest time at which the theory is known.
    _latest: float

    def _curve(self, theta: Mapping[str, float], run: Run) -> Curve:
        raise NotImplementedError

    def basis(self, theta: Mapping[str, float], run: Run) -> np.ndarray:
        """The theory's curve at the times of the run, and ones.

        Parameters
        ----------
        theta
            The nonlinear parameters by name.
        run
            The run.
        """
        return np.stack([self._curve(theta, run)(theta["time_unit"] * run.flow_time), np.ones(run.size)], axis=1)

    def _time_unit(self, runs: Sequence[Run]) -> LawParameter:
        longest = max(float(run.flow_time[-1]) for run in runs)
        low, high = _LEAST_TIME / longest, self._latest / longest
        return LawParameter(
            "time_unit", low, high, math.sqrt(low * high), log=True, natural_step=1.0, help=_TIME_UNIT,
            remedy="fix it to the learning rate where the theory's own system was trained",
        )  # fmt: skip

    def check(self, runs: Sequence[Run]) -> list[str]:
        """Warn where times are steps whose learning rates are not known.

        Parameters
        ----------
        runs
            The runs.
        """
        unknown = [run.name for run in runs if run.schedule is None and run.learning_rate is None and run.peak == 1.0]
        if not unknown:
            return []
        return [
            f"the learning rates of {', '.join(map(repr, unknown[:3]))}{' and others' * (len(unknown) > 3)} are not "
            "known: a constant rate is assumed, and forecasts assume that it goes on; pass training=... if it does not"
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureScalingLaw(TheoryLaw):
    """Gradient flow of :class:`solvable.FeatureScaling`, for runs of any widths.

    Runs whose ``sizes`` have no ``width`` have infinitely many features. Curves come from tables that are part of the
    package (Chebyshev polynomials of solved curves); the last step of a fit corrects them by the solver.

    Parameters
    ----------
    regime
        ``"rich"``, with a free richness, or ``"lazy"``.
    start
        Where capacity, source and richness start.
    corrections
        Differences of the solver from the tables, by width; see :meth:`exact`.
    parameters
        The fitted parameters with their boxes; set by the law itself.
    """

    regime: str = "rich"
    start: Mapping[str, float] = dataclasses.field(default_factory=dict)
    corrections: Mapping[float, np.ndarray] = dataclasses.field(default_factory=dict)
    parameters: tuple[LawParameter, ...] = ()
    _latest = float(feature_curves.TIMES[-1])

    def __post_init__(self) -> None:
        if not self.parameters:
            object.__setattr__(self, "parameters", (*self._shape(), self._time_unit([_UNIT_RUN])))
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

    def prepare(self, runs: Sequence[Run]) -> "FeatureScalingLaw":
        """The law with a box of the time unit that suits the length of the runs.

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
        return dataclasses.replace(self, parameters=(*self._shape(), self._time_unit(runs)))

    def _curve(self, theta: Mapping[str, float], run: Run) -> Curve:
        width = run.sizes.get("width", math.inf)
        key = (theta["capacity"], theta["source"], theta.get("richness", 0.0), width)
        memory: dict[Any, Curve] = self._memory  # type: ignore[attr-defined]
        if key not in memory:
            if len(memory) > 64:
                memory.pop(next(iter(memory)))
            logs = feature_curves.emulated(*key) + self.corrections.get(width, 0.0)
            memory[key] = Curve(_GRID, logs, feature_curves.initial(*key[:2]))
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

        width = run.sizes.get("width", math.inf)
        correction, passed = self.corrections.get(width, 0.0), run.flow_time

        def basis(theta: Mapping[str, Any]) -> list[Any]:
            point = (theta["capacity"], theta["source"])
            logs = differentiable_curves.emulated(*point, theta.get("richness", 0.0), width) + correction
            start = differentiable_curves.initial(*point)
            return [differentiable_curves.curve(logs, start, theta["time_unit"] * passed), jnp.ones(passed.size)]

        return basis

    def exact(self, theta: Mapping[str, float], runs: Sequence[Run]) -> "FeatureScalingLaw":
        """The law with tables that agree with the solver at ``theta``, for the widths of the runs.

        Parameters
        ----------
        theta
            The best nonlinear parameters by name.
        runs
            The runs, whose widths matter.
        """
        point = (theta["capacity"], theta["source"], theta.get("richness", 0.0))
        widths = sorted(set(sizes_of(runs, "width").tolist()))
        found = {
            width: feature_curves.exact(*point, width) - feature_curves.emulated(*point, width) for width in widths
        }
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


_UNIT_RUN = Run("unit", steps=np.array([1.0, 100.0]), loss=np.array([1.0, 0.5]))


@dataclasses.dataclass(frozen=True, eq=False)
class ModelLaw(TheoryLaw):
    """The theory of any model, with some of its numeric fields free.

    The theory is solved at the Chebyshev nodes of the box of the free fields; the emulator is kept in the user's cache.

    Parameters
    ----------
    model
        The model; its fields that are not free keep their values.
    free
        The free fields, each with the ends of its box; None takes the ends of the page's slider. By default the
        positive numbers of the model that change the shape of its curve and have a slider, at most four.
    variable
        The curve of the theory.
    parameters
        The fitted parameters with their boxes; made from ``free`` by default.
    emulator
        The solved curves over the box; computed, or read from the cache, by default.
    """

    model: "Model"
    free: Mapping[str, tuple[float, float] | None] | None = None
    variable: str = "test_loss"
    parameters: tuple[LawParameter, ...] = ()
    emulator: Emulator | None = None
    _grid: Grid = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.parameters:
            object.__setattr__(self, "parameters", (*self._shape(), self._time_unit([_UNIT_RUN])))
        object.__setattr__(self, "_memory", {})
        object.__setattr__(self, "_grid", Grid(np.log(self._times())))

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the model."""
        return self.model.name

    @property
    def _latest(self) -> float:  # type: ignore[override]
        return float(self._times()[-1])

    def _times(self) -> np.ndarray:
        usual = np.asarray(parse_range(self.model.usual_times), float)
        speed = self.model.default_training.speed if self.model.default_training.counts_steps else 1.0
        return np.geomspace(0.03 * speed, 30 * usual[-1] * speed, 90)

    def _shape(self) -> tuple[LawParameter, ...]:
        sliders = self.model.controls.sliders
        chosen = self.free if self.free is not None else _DEFAULT_FREE.get(self.model.name)
        if chosen is None:
            chosen = _numbers(self.model)
        found = []
        about = {field.name: field.metadata for field in dataclasses.fields(self.model)}
        for name, box in chosen.items():
            if name not in about or "rule" not in about[name]:
                raise ValueError(
                    f"{type(self.model).__name__} has no parameter {name!r} to fit; it has "
                    f"{', '.join(_numbers(self.model))}"
                )
            if box is None and name not in sliders:
                raise ValueError(f"give {name} a box to search: free={{{name!r}: (low, high)}}")
            low, high = (sliders[name].low, sliders[name].high) if box is None else box
            log = bool(sliders[name].log) if name in sliders else low > 0 and high / low > 30
            value = getattr(self.model, name)
            start = float(np.clip(value if isinstance(value, float | int) else (low + high) / 2, low, high))
            remedy = "record earlier and later times, or fix it"
            found.append(LawParameter(name, low, high, start, log=log, help=str(about[name]["help"]), remedy=remedy))
        if len(found) > _MOST_FREE:
            raise ValueError(
                f"at most {_MOST_FREE} parameters of a model can be free, not {len(found)}: name them, as in "
                f"free={{{found[0].name!r}: ({found[0].low:g}, {found[0].high:g})}}"
            )
        return tuple(found)

    def prepare(self, runs: Sequence[Run]) -> "ModelLaw":
        """The law with its emulator, and a box of the time unit that suits the length of the runs.

        Parameters
        ----------
        runs
            The runs.
        """
        shape, times = self._shape(), self._times()
        axes = [Axis.between(p.name, p.low, p.high, _NODES[len(shape)], log=p.log) for p in shape]
        described = {
            "model": repr(self.model),
            "variable": self.variable,
            "axes": [(axis.name, axis.nodes.tolist()) for axis in axes],
            "times": [float(times[0]), float(times[-1]), times.size],
        }
        emulator = cached(self.model.name, described, lambda: Emulator.build(self._solve, axes, times, progress=None))
        return dataclasses.replace(self, parameters=(*shape, self._time_unit(runs)), emulator=emulator)

    def _solve(self, **point: float) -> np.ndarray:
        """The logarithm of the loss at all times; times of steps are whole ones."""
        from scipy.interpolate import PchipInterpolator

        from solvable.training import GradientFlow

        times = self._times()
        model = self.model.replace(**point)
        if any(cover.kind is GradientFlow for cover in model.theory_covers):
            loss = model.predict(np.append(0.0, times), GradientFlow())[self.variable].values
            loss, first = loss[1:], loss[0]
            return np.log(np.maximum(loss, _LEAST_CURVE * first))
        training = model.default_training
        steps = np.unique(np.round(times / training.speed))
        loss = model.predict(np.unique(np.append(0.0, steps)), training)[self.variable].values
        logs = np.log(np.maximum(loss, _LEAST_CURVE * loss[0]))
        return PchipInterpolator(np.unique(np.append(0.0, steps)) * training.speed, logs, extrapolate=True)(times)

    def _curve(self, theta: Mapping[str, float], run: Run) -> Curve:
        if self.emulator is None:
            raise ValueError("call prepare(runs) before the basis of this law: it builds the emulator")
        key = tuple(theta[axis.name] for axis in self.emulator.axes)
        memory: dict[Any, Curve] = self._memory  # type: ignore[attr-defined]
        if key not in memory:
            if len(memory) > 64:
                memory.pop(next(iter(memory)))
            logs = self.emulator(**{axis.name: theta[axis.name] for axis in self.emulator.axes})
            # Before the first time the curve is flat to a good approximation.
            memory[key] = Curve(
                self._grid,
                logs,
                math.exp(float(logs[0])),
            )
        return memory[key]

    def settings(self) -> dict[str, object]:
        """The model, its free fields and the error of the emulator."""
        boxes = {p.name: [p.low, p.high] for p in self.parameters if p.name != "time_unit"}
        error = None if self.emulator is None else self.emulator.error
        numbers = {
            name: value
            for name, value in self.model.parameters().items()
            if isinstance(value, str | int | float) or value is None
        }
        return {
            "law": self.name,
            "model_parameters": numbers,
            "free": boxes,
            "variable": self.variable,
            "emulator_error": error,
        }


_DEFAULT_FREE: Mapping[str, Mapping[str, tuple[float, float] | None]] = {
    "skills": {"exponent": (0.15, 1.5), "initial_strength": (1e-4, 0.3)},
}


def _numbers(model: "Model") -> dict[str, None]:
    """The fields that are plain numbers with a slider that is not one of counts."""
    sliders = model.controls.sliders
    return {
        field.name: None
        for field in dataclasses.fields(model)
        if field.name in sliders
        and not sliders[field.name].whole
        and isinstance(getattr(model, field.name), float)
        and math.isfinite(getattr(model, field.name))
    }


def law_of_model(model: "Model", free: Mapping[str, tuple[float, float] | None] | None = None) -> Law:
    """The law of a model: that of the tables for feature scaling, and one with an emulator for all others.

    Parameters
    ----------
    model
        The model.
    free
        Its free fields, each with the ends of its box or None.
    """
    from solvable.models.feature_scaling import FeatureScaling

    if isinstance(model, FeatureScaling):
        if model.spectrum is not None:
            raise ValueError("feature scaling is fitted with capacity and source: leave out spectrum and target")
        lazy = model.richness == 0
        boxes = {"capacity": feature_curves.CAPACITY, "source": feature_curves.SOURCE}
        start = {name: float(np.clip(getattr(model, name), *box)) for name, box in boxes.items()}
        if not lazy:
            start["richness"] = float(np.clip(model.richness, *feature_curves.RICHNESS))
        return FeatureScalingLaw("lazy" if lazy else "rich", start)
    return ModelLaw(model, free)
