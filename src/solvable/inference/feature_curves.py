"""Loss curves of the feature-scaling model on one grid of times: exact ones, and emulated ones that fits can afford.

Curves are of gradient flow on the whole population, with infinitely many modes. The emulator is of ratios that are
smooth and near one: the rich curve over the lazy one, which is a sum over modes, and the curve of N features over

    P + L_infinity(t) (1 - P / L(0)),
    P = sum_k lambda_k w_k^2 / (1 + lambda_k r),     sum_k lambda_k r / (1 + lambda_k r) = N,

where P is the loss at which N features end, which does not depend on richness (feature-scaling, eq. 76, corrected: see
docs/errata). The second ratio is tabulated over ``log L_infinity / P`` instead of time, because widths leave the curve
of the infinite network where that is near zero.

Mini-batches enter in the limit of small steps through one number, the noise ``learning rate / batch size``. For
infinitely many features the curve with noise over the one without is tabulated, too; noise zero is one of its nodes.
"""

import functools
import math
from importlib import resources

import numpy as np

from solvable.inference.emulator import Axis, Emulator
from solvable.inference.splines import Grid
from solvable.models.feature_scaling.mode_quadrature import Modes, power_law_modes
from solvable.precision import in_float64

# Flow times of all curves.
TIMES = np.geomspace(0.03, 1e5, 79)
# The box of the shipped tables.
CAPACITY, SOURCE, RICHNESS, WIDTH = (1.2, 2.0), (0.3, 1.0), (0.03, 10.0), (16.0, 1024.0)
_NODES = 72
_PER_DECADE = 16
_WIDTH_PER_DECADE = 12
INFINITE_TABLE, WIDTH_TABLE = "feature-scaling-infinite.npz", "feature-scaling-widths.npz"
NOISE_TABLE, LAZY_NOISE_TABLE = "feature-scaling-noise.npz", "feature-scaling-lazy-noise.npz"
# The largest noise of the tables, learning rate over batch size in the units of the theory. The loss of lazy networks
# diverges where noise times the trace of the kernel, at most 5.6 in the box, is two.
NOISE = 0.05
# Where the effect of the noise is no longer proportional to it, after the long times of rich networks.
_NOISE_SCALE = 1e-3
_NOISE_PER_DECADE = 24
# The largest error where lazy networks take the ratios of the least richness, at 16 solved curves of capacity 1.2.
_LAZY_WIDTH_ERROR = 0.0067
# Places at which ratios of finite widths are tabulated: log L_infinity / P if negative, else as a part of its start.
PLACES = np.concatenate([np.linspace(-8.0, -0.2, 40), [-0.1], np.linspace(0.0, 1.0, 41)])
LATE, EARLY = Grid(PLACES[PLACES <= 0]), Grid(PLACES[PLACES >= 0])
_MEMORY = 64
# Chebyshev nodes of the plateau per axis; the error, below 3e-5, is that of the quadrature over modes.
_PLATEAU_NODES = 9


def axes(*, widths: bool) -> tuple[Axis, ...]:
    """The axes of the shipped tables: of infinitely many features, or of finitely many."""
    counts = (4, 4, 5) if widths else (7, 8, 10)
    own = (
        Axis.between("capacity", *CAPACITY, counts[0]),
        Axis.between("source", *SOURCE, counts[1]),
        Axis.between("richness", *RICHNESS, counts[2], log=True),
    )
    if not widths:
        return own
    nodes = Axis.between("width", *WIDTH, 4, log=True).nodes
    return (*own, Axis("width", np.round(nodes), log=True))


def noise_axes(*, lazy: bool) -> tuple[Axis, ...]:
    """The axes of the tables with batch noise: of lazy networks, or of rich ones."""
    noise = Axis.between("noise", 0.0, NOISE, 8, log=True, shift=_NOISE_SCALE)
    counts = (6, 6) if lazy else (5, 5)
    shape = (Axis.between("capacity", *CAPACITY, counts[0]), Axis.between("source", *SOURCE, counts[1]))
    return (*shape, noise) if lazy else (*shape, Axis.between("richness", *RICHNESS, 7, log=True), noise)


@functools.lru_cache(_MEMORY)
def _modes(capacity: float, source: float) -> Modes:
    # Features that grow make late times later.
    return power_law_modes(capacity, source, math.inf, 3e3 * TIMES[-1], head=12, per_decade=6.0, reach=1e2)


@functools.lru_cache(_MEMORY)
def lazy(capacity: float, source: float) -> np.ndarray:
    """The logarithm of the loss of infinitely many lazy features, from a table of 16 x 16 sums; exact to rounding."""
    return lazy_table()(capacity=capacity, source=source)


@functools.cache
def lazy_table() -> Emulator:
    """The logarithms of lazy curves over capacity and source."""
    own = (Axis.between("capacity", *CAPACITY, 16), Axis.between("source", *SOURCE, 16))
    return Emulator.build(exact_lazy, own, TIMES, checks=0)


def exact_lazy(capacity: float, source: float) -> np.ndarray:
    """The logarithm of the loss of infinitely many lazy features: ``log sum_k lambda_k w_k^2 exp(-2 lambda_k t)``."""
    modes = _modes(capacity, source)
    decay = np.exp(-2 * np.multiply.outer(TIMES, modes.eigenvalues))
    return np.log(decay @ (modes.eigenvalues * modes.targets))


def initial(capacity: float, source: float) -> float:
    """The loss before training, ``zeta(capacity source + 1)``."""
    from scipy.special import zeta

    return float(zeta(capacity * source + 1))


@functools.cache
def plateau_table(width: float) -> Emulator:
    """The logarithm of the plateau of one width over capacity and source: the root finding is done once per node.

    Parameters
    ----------
    width
        Number of features.
    """
    axes = (Axis.between("capacity", *CAPACITY, _PLATEAU_NODES), Axis.between("source", *SOURCE, _PLATEAU_NODES))

    def curve(capacity: float, source: float) -> np.ndarray:
        return np.log([plateau(capacity, source, width)])

    return Emulator.build(curve, axes, np.ones(1), checks=0)


def plateau(capacity: float, source: float, width: float) -> float:
    """The loss at which finitely many features end."""
    from scipy.optimize import brentq

    modes = _modes(capacity, source)
    values, counts = np.asarray(modes.eigenvalues), np.asarray(modes.counts)

    def excess(log_scale: float) -> float:
        scaled = values * math.exp(log_scale)
        return float((counts * scaled / (1 + scaled)).sum()) - width

    scale = math.exp(brentq(excess, -20.0, 60.0))
    return float((values * modes.targets / (1 + values * scale)).sum())


@in_float64
def exact_infinite(capacity: float, source: float, richness: float) -> np.ndarray:
    """The logarithm of the loss of infinitely many features, by the exponential midpoint rule on two grids.

    Nodes are padded to one number, so that all parameters share one compiled program.
    """
    from solvable.models.feature_scaling.kernel_flow import flow

    if richness == 0:
        return exact_lazy(capacity, source)
    modes = _modes(capacity, source)
    used = np.asarray(modes.targets) > 0
    ranks, values, counts, targets = (np.asarray(part, float)[used] for part in modes)
    missing = _NODES - values.size
    if missing < 0:
        raise ValueError(f"capacity = {capacity:g} needs {values.size} nodes, more than {_NODES}: raise the capacity")
    filler = values.min() * 0.5 ** np.arange(1, missing + 1)
    padded = Modes(
        np.append(ranks, ranks.max() + np.arange(1, missing + 1)),
        np.append(values, filler),
        np.append(counts, np.zeros(missing)),
        np.append(targets, np.zeros(missing)),
    )
    fine, coarse = (
        np.asarray(flow(padded, richness, TIMES, count).node_loss).sum(1) for count in (2 * _PER_DECADE, _PER_DECADE)
    )
    # Second order in the step: a third of the difference is left in the finer one.
    return np.log(fine) + (np.log(fine) - np.log(coarse)) / 3


def exact_finite(capacity: float, source: float, richness: float, width: float) -> np.ndarray:
    """The logarithm of the loss of finitely many features, by the slot march."""
    from solvable.models.feature_scaling import FeatureScaling
    from solvable.training import GradientFlow

    model = FeatureScaling(capacity=capacity, source=source, richness=richness, modes=math.inf, features=round(width))
    found = model.predict(np.append(0.0, TIMES), GradientFlow(), per_decade=_WIDTH_PER_DECADE)
    return np.log(found.test_loss.values[1:])


def noise_ratio(capacity: float, source: float, richness: float, noise: float) -> np.ndarray:
    """The logarithm of the curve with batch noise over the one without, of infinitely many features.

    Both are marched on the same grid, so that the error of the grid cancels but for that of the noise.

    Parameters
    ----------
    capacity, source, richness
        Parameters of :class:`solvable.FeatureScaling`.
    noise
        Learning rate over batch size, in the limit of small steps.
    """
    if noise == 0:
        return np.zeros(TIMES.size)
    return _marched(capacity, source, richness, noise) - _marched(capacity, source, richness, 0.0)


@functools.lru_cache(_MEMORY)
def _marched(capacity: float, source: float, richness: float, noise: float) -> np.ndarray:
    """The logarithm of the loss at :data:`TIMES` by the slot march, which knows the noise of batches."""
    from scipy.interpolate import CubicSpline

    from solvable.models.feature_scaling.slot_march import Flow, slot_march

    curve = slot_march(
        _modes(capacity, source), Flow(richness, noise=noise), TIMES[-1], per_decade=_NOISE_PER_DECADE, limit=2000
    )
    # Steps begin where the strongest mode, of eigenvalue one, is learned.
    clock = np.log1p(curve.times / 0.3)
    return CubicSpline(clock, np.log(curve.test_loss))(np.log1p(TIMES / 0.3))


def exact(capacity: float, source: float, richness: float, width: float = math.inf, noise: float = 0.0) -> np.ndarray:
    """The logarithm of the loss at :data:`TIMES`, from the solver.

    Parameters
    ----------
    capacity, source, richness
        Parameters of :class:`solvable.FeatureScaling`.
    width
        Number of features, which may be infinite.
    noise
        Learning rate over batch size; infinitely many features only.
    """
    if math.isinf(width):
        return exact_infinite(capacity, source, richness) + noise_ratio(capacity, source, richness, noise)
    return exact_finite(capacity, source, richness, width)


@functools.cache
def table(name: str) -> Emulator:
    """A shipped table, read once."""
    with resources.as_file(resources.files("solvable.inference") / "tables" / name) as path:
        return Emulator.read(path)


def emulated(
    capacity: float, source: float, richness: float, width: float = math.inf, noise: float = 0.0
) -> np.ndarray:
    """The logarithm of the loss at :data:`TIMES`, from the shipped tables.

    Curves of lazy networks of infinite width without noise are exact.

    Parameters
    ----------
    capacity, source, richness
        Parameters of :class:`solvable.FeatureScaling`, within the box of the tables; richness may be 0.
    width
        Number of features, within the box of the tables or infinite.
    noise
        Learning rate over batch size, up to :data:`NOISE`; infinitely many features only.
    """
    found = lazy(capacity, source)
    if richness > 0:
        found = found + table(INFINITE_TABLE)(capacity=capacity, source=source, richness=richness)
    if noise > 0 and richness > 0:
        found = found + table(NOISE_TABLE)(capacity=capacity, source=source, richness=richness, noise=noise)
    elif noise > 0:
        found = found + table(LAZY_NOISE_TABLE)(capacity=capacity, source=source, noise=noise)
    if math.isinf(width):
        return found
    point = {"capacity": capacity, "source": source, "width": width}
    # The ratio to the infinite network hardly depends on so small a richness: lazy networks have that of the least one.
    ratio = table(WIDTH_TABLE)(richness=max(richness, RICHNESS[0]), **point)
    near, places = _near(found, capacity, source, width)
    return near + _through(PLACES, ratio, places)


def _near(infinite: np.ndarray, capacity: float, source: float, width: float) -> tuple[np.ndarray, np.ndarray]:
    """The approximate curve of a finite width, and the place in the table of each of its times."""
    end = math.exp(float(plateau_table(width)(capacity=capacity, source=source)[0]))
    start = initial(capacity, source)
    above = infinite - math.log(end)
    places = np.where(above > 0, above / math.log(start / end), above)
    return np.log(end + np.exp(infinite) * (1 - end / start)), places


def _through(places: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Two cubic splines that meet at zero, where the places change their scale; flat beyond the ends."""
    zero = int(np.searchsorted(places, 0.0))
    late, early = LATE(values[: zero + 1], at), EARLY(values[zero:], at)
    return np.where(at < 0, late, early)


def width_ratio(logs: np.ndarray, infinite: np.ndarray, capacity: float, source: float, width: float) -> np.ndarray:
    """The ratio at :data:`PLACES` from the solved curves of a finite and of the infinite width.

    Parameters
    ----------
    logs, infinite
        Logarithms of the losses at :data:`TIMES`.
    capacity, source, width
        Parameters of the curve.
    """
    from scipy.interpolate import PchipInterpolator

    near, places = _near(infinite, capacity, source, width)
    x, y = np.append(1.0, places)[::-1], np.append(0.0, logs - near)[::-1]
    # Where the curve ends above the last places, the ratio decays as the excess over the plateau does.
    found = PchipInterpolator(x, y)(np.maximum(PLACES, x[0]))
    return np.where(x[0] > PLACES, y[0] * np.exp(np.minimum(PLACES - x[0], 0.0)), found)


def emulator_error(richness: float, width: float, noise: float = 0.0) -> float:
    """The largest relative error of the emulated curves, measured at points that are not nodes."""
    if noise > 0:
        return emulator_error(richness, width) + table(NOISE_TABLE if richness > 0 else LAZY_NOISE_TABLE).error
    if math.isinf(width):
        return 0.0 if richness == 0 else table(INFINITE_TABLE).error
    return _LAZY_WIDTH_ERROR if richness == 0 else table(WIDTH_TABLE).error
