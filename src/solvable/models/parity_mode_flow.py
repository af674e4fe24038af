"""The flow of the parity network in the logarithms of its squared weights, by Taylor series, and linear near its end.

The rates are linear in the squared weights and the offset, so that the Taylor coefficients of a solution follow from
each other by products of series, to any order. A step sums the series as far as its last terms allow; the same series
gives the solution at all times within the step. Where JAX traces the parameters, Diffrax integrates instead.

>>> import numpy as np
>>> from solvable.models.parity_mode_flow import follow
>>> start = np.array([-9.2, -9.2, -9.2, 0.0])
>>> states = follow(start, np.array([0.0, 100.0]), target=1.0, tolerance=1e-11, max_steps=1000)
>>> np.exp(states[-1, :3]).round(8), states[-1, 3].round(8)
(array([2., 2., 2.]), np.float64(-1.0))
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.precision import in_float64

# Rates of ln alpha^2, ln beta^2, ln gamma^2 and c for the sum of halves: linear in alpha^2, beta^2, gamma^2, c and in
# the target (C.15-C.18, corrected).
_PULL = np.array([[-16.0, 16, 0, 8], [16, -28, 0, -20], [0, 0, -4, -4], [2, -5, -1, -8]])
_DRIVE = np.array([8.0, 4, 4, 0])
# How near to its end the flow counts as linear, over the square root of the tolerance; and squarings of a matrix
# exponential, enough for times of 1e15 over the fastest rate.
_LINEAR, _SQUARINGS = 0.1, 64
# Order of the Taylor series, and how much of the length that its last terms allow a step takes.
_ORDER, _CAUTION = 24, 0.8


@in_float64
def velocity(squares: Float[Array, "3"], offset: Array, target: Array | float) -> Float[Array, "4"]:
    """Rates of ``ln alpha^2``, ``ln beta^2``, ``ln gamma^2`` and ``c`` for the sum of halves (C.15-C.18, corrected)."""
    return jnp.asarray(_PULL) @ jnp.append(squares, offset) + target * _DRIVE


def follow(
    start: Float[np.ndarray, "4"], times: Float[np.ndarray, "time"], target: float, tolerance: float, max_steps: int
) -> Float[np.ndarray, "time 4"]:
    """Logarithms of the squared weights, and the offset, at times of the flow on the sum of halves.

    In logarithms a small start keeps its digits. Near its end the flow is linear, and it is continued there in closed
    form. Times that ``max_steps`` steps do not reach are NaN.
    """
    end, near = _end(np, target), _LINEAR * np.sqrt(tolerance)
    found = np.full((len(times), 4), np.nan)
    state, now = np.asarray(start, float), 0.0
    with np.errstate(all="ignore"):
        for _ in range(max_steps):
            if np.abs((state - end) / [1, 1, 1, target]).max() < near:
                late = times >= now
                found[late] = _linear_end(end, target, state, times[late] - now)
                return found
            series, unit = _taylor(state, target)
            length = _step_length(series, state, tolerance) * unit
            if not 0 < length < np.inf:
                return found
            within = (times >= now) & (times <= now + length)
            found[within] = np.polynomial.polynomial.polyval((times[within] - now) / unit, series).T
            if times[-1] <= now + length:
                return found
            state, now = np.polynomial.polynomial.polyval(length / unit, series), now + length
    return found


def _taylor(state: Float[np.ndarray, "4"], target: float) -> tuple[Float[np.ndarray, "order 4"], float]:
    """Coefficients of the solution through a state, in powers of the time over a unit that is returned with them."""
    series = np.empty((_ORDER + 1, 4))
    squares, rates = np.empty((_ORDER + 1, 3)), np.empty((_ORDER + 1, 4))
    series[0], squares[0] = state, np.exp(state[:3])
    rates[0] = _PULL @ np.append(squares[0], state[3]) + target * _DRIVE
    # The time in which the fastest rate acts: coefficients then neither overflow nor vanish.
    unit = 1 / max(np.abs(rates[0]).max(), target)
    rates[0] *= unit
    for order in range(_ORDER):
        series[order + 1] = rates[order] / (order + 1)
        # (ln p)' = rate: p' is the product of the series of p and of its rate.
        squares[order + 1] = (squares[: order + 1] * rates[order::-1, :3]).sum(0) / (order + 1)
        rates[order + 1] = unit * (_PULL @ np.append(squares[order + 1], series[order + 1, 3]))
    return series, unit


def _step_length(series: Float[np.ndarray, "order 4"], state: Float[np.ndarray, "4"], tolerance: float) -> float:
    """The time, in units of the series, up to which its last two terms are within the tolerance."""
    allowed = tolerance * (1 + np.abs(state))
    orders = np.array([[_ORDER - 1], [_ORDER]])
    return _CAUTION * float(((allowed / np.abs(series[-2:])) ** (1 / orders)).min())


def _linear_end(
    end: Float[np.ndarray, "4"], target: float, state: Float[np.ndarray, "4"], spans: Float[np.ndarray, "time"]
) -> Float[np.ndarray, "time 4"]:
    """The flow linearised at its end, ``spans`` after the given state.

    A gradient flow is symmetric in the weights themselves, so that its rates in any coordinates are real.
    """
    rates, directions = np.linalg.eig(_PULL * [2 * target, 2 * target, 2 * target, 1])
    shares = np.linalg.solve(directions, (state - end).astype(directions.dtype))
    return end + (np.exp(spans[:, None] * rates) * shares @ directions.T).real


def _end(xp: Any, target: Any) -> Any:
    """Where the flow ends: squared weights ``2 S``, as logarithms, and the offset ``-S``."""
    return xp.stack([*[xp.log(2 * xp.asarray(target))] * 3, -xp.asarray(target)])


def follow_traced(
    start: Float[Array, "4"], times: Float[Array, "time"], target: Array, tolerance: Array, max_steps: int
) -> Float[Array, "time 4"]:
    """As :func:`follow`, by Diffrax, whose result JAX can differentiate and vectorise.

    Near the end, the integrator, which is explicit, would take steps of one length forever, however little moves.
    """
    import diffrax

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_rates),
        diffrax.Dopri8(),
        t0=0.0,
        t1=jnp.maximum(times[-1], 1e-300),
        dt0=None,
        y0=start,
        args=(target, _LINEAR * jnp.sqrt(tolerance)),
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
        event=diffrax.Event(_is_nearly_learned),
        max_steps=max_steps,
        throw=False,
    )
    (during, last), (_, (when,)) = solution.ys, solution.ts
    # An integration that took all its steps stands anywhere: what follows it is not known.
    learned = solution.result == diffrax.RESULTS.event_occurred
    after = jnp.where(learned, _traced_linear_end(target, last[0], times - when), jnp.nan)
    return jnp.where((times <= when)[:, None], during, after)


def _is_nearly_learned(_: Any, state: Array, args: tuple[Array, Array], **__: Any) -> Array:
    """Whether the flow is linear to within the tolerance: the terms that are left out are squares of the distance."""
    target, near = args
    distance = state - _end(jnp, target)
    return jnp.max(jnp.abs(distance / jnp.stack([*[jnp.ones(())] * 3, target]))) < near


def _traced_linear_end(target: Array, state: Float[Array, "4"], spans: Float[Array, "time"]) -> Float[Array, "time 4"]:
    """The flow linearised at its end, ``spans`` after the given state."""
    end = _end(jnp, target)
    pull = jax.jacfwd(lambda state: _rates(0.0, state, (target, jnp.zeros(()))))(end)

    def at(span: Array) -> Array:
        # Times before the given state are not asked for, but are computed, and would overflow.
        return jax.scipy.linalg.expm(pull * jnp.maximum(span, 0.0), max_squarings=_SQUARINGS) @ (state - end)

    return end + jax.vmap(at)(spans)


def _rates(_: Any, state: Array, args: tuple[Array, Array]) -> Array:
    return velocity(jnp.exp(state[:3]), state[3], args[0])
