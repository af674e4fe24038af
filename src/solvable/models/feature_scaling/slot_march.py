"""The two-time equations of :mod:`solvable.models.feature_scaling.two_time` for gradient flow, on logarithmic times.

Time is cut into steps that grow, each step into slots: with noise a *kick* at its beginning, then the two stages of an
L-stable, stiffly accurate Runge-Kutta scheme (SDIRK2). Integrals over time become sums over slots with the
lower triangular weights U: the scheme's own within a step, ``h b`` for earlier steps, 1 for earlier kicks. With
E the projector on stages, ``o`` the product entry by entry and c the drift of
:mod:`solvable.models.feature_scaling.slot_noise`,

    H^w = [1 - gamma U (U o C3 + diag c)]^-1 U       G = H^w + gamma U o C_w          J = G R3 R1
    Z_k = 1 - lambda_k (1 + lambda_k J E)^-1 J       (on stages H_k, on kicks minus the response to a kick)

and the rest as there, with ``W = E C0 E / P + D_k`` and ``D_k`` the variance of the kicks. Because U has a diagonal, a
row depends on itself: its unknown entries are the fixed point of one pass through the equations, found by Anderson
acceleration (plain iteration fails for hard tasks). NumPy: rows are short, and the number of passes varies.

Where the noise of the batches follows a schedule, a kick has the noise of both its sides, and the steps shrink towards
every break of the schedule and towards its end: what the noise does there is seen in the fast modes alone.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from solvable.models.feature_scaling import exponents
from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.noise_profile import NoiseProfile
from solvable.models.feature_scaling.slot_noise import STAGE, FastModes, impulse_share
from solvable.models.feature_scaling.slot_rows import Completed, Correction, Rows, Unknowns
from solvable.progress import progress_bar

# The noise-driven drift of a step, beyond which the equations of a row have wrong solutions, too. With a constant noise
# and new samples longer steps start near enough to the right one.
_LARGEST_DRIFT = 0.3
# To what residual a row is solved, with and without noise.
_NOISY_TOLERANCE, _TOLERANCE = 1e-8, 1e-10
# The network is at rest where so little drives it that the loss changes no more, or that rounding is all there is.
_QUIET, _SILENT, _UNCHANGED = 1e-8, 1e-15, 1e-9
_LOST = 1e-13
# The largest residual of a row, and how often the growth of the kernel and the fluctuations of the weights, which
# depend on each other, are computed from each other.
_UNSOLVED, _SUBSTITUTIONS, _SETTLED = 1e-4, 8, 1e-9
# Up to where the fluctuations of the weights that the noise makes are a small correction, and long steps are right.
_MOST_NOISE = 0.2


class Flow(NamedTuple):
    """Gradient flow with batch noise ``learning rate / batch``, zero for none, or a profile of it over flow time.

    Label noise is a variance.
    """

    richness: float
    features: float = math.inf
    samples: float = math.inf
    noise: float | NoiseProfile = 0.0
    label_noise: float = 0.0


class Curve(NamedTuple):
    """Values at the ends of the steps, the beginning included."""

    times: Float[np.ndarray, "step"]
    test_loss: Float[np.ndarray, "step"]
    train_loss: Float[np.ndarray, "step"]
    node_loss: Float[np.ndarray, "step node"]
    growth: Float[np.ndarray, "step"]
    # Largest residual of the rows, passes in all, and whether the network came to rest before the last time.
    residual: float
    passes: int
    at_rest: bool


def slot_march(
    modes: Modes,
    flow: Flow,
    last_time: float,
    *,
    per_decade: int = 16,
    fast: tuple[np.ndarray, np.ndarray] | None = None,
    progress: bool | None = False,
    limit: int = 700,
) -> Curve:
    """March to ``last_time``. ``fast`` are eigenvalues and counts of the modes that carry noise (default: the modes).

    Steps are ``ln(10) / per_decade`` of the time; with schedules shorter where the noise would move the weights too far
    in one. ``limit`` is how many slots there may be beyond those of the grid.
    """
    eigenvalues, trace = np.asarray(modes.eigenvalues, float), float(modes.trace)
    begin = 0.3 / float(eigenvalues.max())
    growth_of_step = math.log(10) / per_decade
    rates, counts = fast if fast is not None else (eigenvalues, np.asarray(modes.counts, float))
    signal = float(modes.signal)
    noise = flow.noise if isinstance(flow.noise, NoiseProfile) else NoiseProfile.constant(flow.noise)
    noisy = noise.largest > 0
    fast_modes = FastModes(rates, counts, signal + flow.label_noise, flow.richness)
    # Extrapolated rows need steps of equal ratios.
    late = noisy and noise.is_constant and flow.richness > 0
    tolerance = _NOISY_TOLERANCE if noisy else _TOLERANCE
    rows = Rows(modes, flow.richness, flow.features, flow.samples, flow.label_noise, tolerance)
    # Only the kernel of finitely many features has a finite number of modes that fluctuate.
    shares: np.ndarray | float | None = None
    if late:
        shares = fast_modes.shares() if fast is not None else 0.0
        _check_plateau(modes, flow, noise.largest, fast is not None, last_time, limit)
    limit += 3 * math.ceil(math.log1p(last_time / begin) / growth_of_step)
    records = [(0.0, signal, signal + flow.label_noise, eigenvalues * modes.targets, 1.0)]
    now, earlier, growth, worst, at_rest, equal = 0.0, 0.0, 1.0, 0.0, False, 0
    first_drive: float | None = None
    with progress_bar("marching", math.log1p(last_time / begin), progress) as advance:
        while now < last_time * (1 - 1e-12):
            train = records[-1][2]
            step = _step(now, begin, growth_of_step, last_time, noise)
            long_step = False
            full_step = step
            if noisy and flow.richness > 0:
                strongest = max(noise.after(now), noise.before(now + step))
                drift = flow.richness * strongest / 2 * train * trace
                # How much the fluctuations of the weights that the noise makes change the kernel.
                strong = drift * strongest / 2 * flow.features > _MOST_NOISE if fast is not None else False
                if not late or strong:
                    step = min(step, _LARGEST_DRIFT / drift)
                long_step = drift * step > _LARGEST_DRIFT * (1 + 1e-9)
            # How many steps in a row have grown by the same ratio.
            equal = equal + 1 if noise.is_constant and step == full_step else 0
            if rows.count + 3 > limit:
                raise ValueError(
                    f"the march needs more than {limit} slots to reach time {last_time:g} (it is at {now:g}): the "
                    "noise keeps its steps short. Choose earlier times or a larger batch, or lower per_decade"
                )
            if noisy:
                area = train * (noise.before(now) * earlier + noise.after(now) * step) / 2
                rows.kick(area * impulse_share(eigenvalues * growth * step))
                fast_modes.kick(area, step)
            for stage in range(2):
                there = now + step * (STAGE if stage == 0 else 1.0)
                noises = (noise.after(now), noise.before(there))
                own_weights = (step * STAGE, step * (1 - STAGE if stage == 0 else STAGE))
                rows.begin_stage(*own_weights)
                correct = _correction(fast_modes, stage, step, noises, flow.richness, shares) if noisy else _quiet
                residual = rows.solve(correct, long_step, equal >= 2)
                row = rows.finish()
                worst = max(worst, residual)
            if noisy:
                end = fast_modes.at_stage(1, step, noises, row.growth, row.train_loss - row.missing)
                fast_modes.accept(end, row.growth)
            if late and worst > _UNSOLVED:
                raise ValueError(
                    f"the march lost the solution at time {now:g}: a row is left with a residual of {worst:.2g}. Raise "
                    "per_decade, or choose earlier times or a larger batch"
                )
            now, earlier = now + step, step
            advance(math.log1p(now / begin) - math.log1p((now - step) / begin))
            growth = row.growth
            records.append((now, row.test_loss, row.train_loss, row.node_loss, 1 + flow.richness * row.weight_norm))
            _check(records[-1], row, now)
            first_drive = row.drive if first_drive is None else first_drive
            # Noise drives it as long as there is a training loss. What that can still do to the test loss is its root,
            # which is little only beside a test loss that stays: where both fall together, the march goes on.
            left = row.train_loss / records[0][2]
            left = left if noisy else min(row.drive / first_drive, left)
            recent = [record[1] for record in records[-3:]]
            still = left < _QUIET and max(recent) - min(recent) < _UNCHANGED * recent[-1]
            beside = min(1.0, row.test_loss / records[0][1]) ** 2
            if still or left < (_QUIET * beside if noisy else _SILENT):
                at_rest = True
                break
            if row.test_loss < _LOST * records[0][1]:
                raise ValueError(
                    f"at time {now:g} less than {_LOST:g} of the loss is left, which the two-time equations do not "
                    "resolve in float64: choose earlier times"
                )
    times, test, training, node, growths = (np.array(column) for column in zip(*records, strict=True))
    return Curve(times, test, training, node, growths, worst, rows.passes, at_rest)


def _check_plateau(modes: Modes, flow: Flow, noise: float, finite: bool, last_time: float, limit: int) -> None:
    """Refuse a noise whose fluctuations of the weights are too strong for long steps, and stay so on the plateau."""
    most = flow.richness * (noise / 2) ** 2 * float(modes.signal + flow.label_noise) * float(modes.trace)
    if not finite or flow.features == flow.samples or most * flow.features < _MOST_NOISE:
        return
    rest = exponents.limit(modes, flow.features, flow.samples, flow.label_noise)
    loss = rest.train_loss if flow.samples < math.inf else rest.test_loss + flow.label_noise
    drift = flow.richness * noise / 2 * loss * float(modes.trace)
    strength = drift * noise / 2 * flow.features
    if strength > _MOST_NOISE and 3 * last_time * drift / _LARGEST_DRIFT > limit:
        raise ValueError(
            "on its plateau the noise of the batches moves the weights further than the theory carries: richness * "
            f"(learning_rate / 2 batch_size)^2 * features * loss * Tr(Lambda) = {strength:.2g} is above "
            f"{_MOST_NOISE:g}. Raise batch_size {math.sqrt(strength / _MOST_NOISE):.2g}-fold, or choose flow times up "
            f"to {limit * _LARGEST_DRIFT / (3 * drift):.2g}"
        )


def _step(now: float, begin: float, growth: float, last_time: float, noise: NoiseProfile) -> float:
    """The next step: a fraction of the time and, with a schedule, of the time until its next break or its end."""
    step = (now + begin) * math.expm1(growth)
    if noise.is_constant:
        return step
    left = noise.next_break(now, last_time) - now
    step = min(step, -(left + begin) * math.expm1(-growth))
    # A step that would leave a tiny one behind goes all the way.
    return left if step > 0.8 * left else step


def _quiet(grid_loss: float, growth: float, _: float) -> Completed:
    """Without noise nothing is missing."""
    return Completed(0.0, grid_loss, growth)


def _correction(
    fast: FastModes,
    stage: int,
    step: float,
    noises: tuple[float, float],
    richness: float,
    shares: np.ndarray | float | None,
) -> Correction:
    """What the noise adds at a stage.

    Without ``shares`` the kernel that the noise sees is that of the grid, an average over the step. With them, where
    steps may be long, it is that of equal times, ``M = 1 + gamma (C_w + q)``, with a share q of the fluctuations of the
    weights, which depends on M in turn.
    """

    # Where the substitutions of the next pass begin; they end at the same point from anywhere.
    felt = 0.0

    def correction(grid_loss: float, growth: float, weights: float) -> Completed:
        if shares is None:
            found = fast.at_stage(stage, step, noises, growth, grid_loss)
            return Completed(found.missing, found.loss, growth)
        nonlocal felt
        growth = 0.0
        for _ in range(_SUBSTITUTIONS):
            before, growth = growth, max(1 + richness * (weights + felt), 1e-3)
            if abs(growth - before) < _SETTLED * growth:
                break
            found = fast.at_stage(stage, step, noises, growth, grid_loss)
            felt = fast.fluctuation(found, shares)
        whole = fast.fluctuation(found, 1.0) if isinstance(shares, np.ndarray) else 0.0
        return Completed(found.missing, found.loss, growth, whole)

    return correction


def _check(record: tuple[float, float, float, np.ndarray, float], row: Unknowns, now: float) -> None:
    _, test, train, _, _ = record
    if not (np.isfinite(test) and test > 0 and train > -1e-9 * test and row.drive > -1e-9 * row.largest_drive):
        raise ValueError(
            f"the march lost the solution at time {now:g} (test loss {test:.3g}, train loss {train:.3g}): "
            "raise per_decade, or choose earlier times"
        )
