"""A linear model in its eigenbasis: what is learned first, what is learned from few samples, and what of the noise."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.checks import check_choice, check_count, check_fraction, is_traced, rules
from solvable.controls import Controls, Slider, Summary, log_slider, of_method
from solvable.dataset import VARIABLES, Meaning
from solvable.model import Key, MemoryLimit, Model, parameter
from solvable.models.linear_features import story
from solvable.models.linear_features.laplace import MORE_NODES, NODES
from solvable.models.linear_features.regression_flow import FlowState, flow_state, kappa_or_zero
from solvable.models.linear_features.simulation import Run, train_once
from solvable.numerics.arrays import array_module
from solvable.numerics.ensemble import Traceable, ensemble, run_options
from solvable.numerics.kappa import kappa, learnability
from solvable.training import Training

# Times x modes that are computed at once, with the nodes of the contours.
_TABLE = 2**14
# Degree of the polynomial whose zero is the time of a crossing.
_CHEBYSHEV = 24
# 40 modes that fall as 1/k: with 30 noisy samples the test loss first falls, and then rises fivefold.
_FALLING = tuple(round(1 / k, 4) for k in range(1, 41))
_MEANINGS: Mapping[str, Meaning] = {
    **VARIABLES,
    "mode": Meaning("mode, in the order of the intensities", "1", "k"),
    "sample": Meaning("training sample", "1", "i"),
    "test_loss": Meaning("expected test loss on clean labels", "1", "L"),
    "train_loss": Meaning("training loss on noisy labels", "1", "L_tr"),
    "bias": Meaning("test loss of the mean learned function, without noise", "1", "B"),
    "variance": Meaning("test loss by the draw of the samples, without noise", "1", "V"),
    "noise_loss": Meaning("test loss by the noise on the training labels", "1", "N"),
    "coefficient": Meaning("coefficient of the learned function", "1", "⟨e_k|f⟩"),
    "signal_fit": Meaning("fraction of the target's power that is learned", "1"),
    "noise_fit": Meaning("fraction of the training noise that is fitted", "1"),
    "learnability": Meaning("fraction of a mode that is learned", "1", "L_k"),
    "limit_coefficient": Meaning("coefficient of the minimum-norm solution", "1", "⟨e_k|f⟩"),
    "limit_test_loss": Meaning("test loss of the minimum-norm solution", "1", "L(∞)"),
    "limit_train_loss": Meaning("training loss of the minimum-norm solution", "1", "L_tr(∞)"),
    "limit_bias": Meaning("bias of the minimum-norm solution", "1", "B(∞)"),
    "limit_variance": Meaning("variance of the minimum-norm solution", "1", "V(∞)"),
    "limit_noise_loss": Meaning("test loss of the minimum-norm solution by noise", "1", "N(∞)"),
    "inputs": Meaning("position of the training sample", "1", "x"),
    "labels": Meaning("noisy label of the training sample", "1", "y"),
    "signal_time": Meaning("time by which the signal is learned", "flow time"),
    "noise_time": Meaning("time by which the noise is fitted", "flow time"),
}


def _first(model: Any, training: Any) -> str:
    if model.samples is None:
        return "no noise is fitted"
    times = model.phases()
    ratio = float(times.noise_time) / float(times.signal_time)
    return "signal first" if ratio > 3 else "noise first" if ratio < 1 / 3 else "together"


CONTROLS = Controls(
    sliders={
        "intensities": log_slider(1e-4, 10, before=("0",)),
        "target": Slider(-2, 2, count=80),
        "samples": log_slider(1, 2000, whole=True, after=("",)),
        "noise": Slider(0, 2),
    },
    start={"seeds": "40"},
    summaries=(
        Summary("limit", "test loss in the end", of_method("limit", "test_loss")),
        Summary("signal_time", "signal half learned at", of_method("phases", "signal_time"), "flow time"),
        Summary("noise_time", "noise half fitted at", of_method("phases", "noise_time"), "flow time"),
        Summary("kappa", "κ, modes above are learned", lambda model, training: model.kappa),
        Summary("regime", "what comes first", _first, planar=False),
    ),
    plane=("limit", "samples", "noise"),
    stories=(story.STORY,),
    explain=story.explain,
    system=story.system,
)


class LinearFeatures(Model):
    """Linear regression on orthogonal features of given intensities, trained by gradient flow from zero.

    The function is ``f(x) = sum_k theta_k sqrt(rho_k) e_k(x)`` with orthonormal ``e_k``; the target has coefficients
    ``w_k`` on the ``e_k``. With infinitely many samples (``samples=math.inf``) every mode learns on its own, at rate
    ``rho_k`` (layerwise thesis, eq. 1.26). With ``n`` samples and label noise the expected curves follow from the
    constant kappa of eq. 1.35 and its continuation to finite times; they are those of Gaussian features, exact as n
    grows (error of order 1/n), and a guide for others (sines: within about 0.1 in learnability at n <= 50).

    The test loss is ``E[(f - f*)^2] / 2``. Gradient flow descends the training loss ``sum (f - y)^2 / (2 n)``.

    >>> import numpy as np, solvable
    >>> model = solvable.LinearFeatures(np.arange(1, 9) ** -2.0, np.ones(8), samples=4)
    >>> shares = model.learnability().learnability
    >>> shares.values.round(2)
    array([0.94, 0.8 , 0.64, 0.5 , 0.39, 0.3 , 0.24, 0.2 ])
    >>> round(float(shares.sum()), 6)
    4.0
    """

    name: ClassVar[str] = "linear-features"
    loss_convention: ClassVar[str] = (
        "E[(f - f*)^2] / 2 on clean labels, and half of the mean square over noisy training labels"
    )
    controls: ClassVar[Controls] = CONTROLS
    meanings: ClassVar[Mapping[str, Meaning]] = _MEANINGS
    usual_times: ClassVar[str] = "0.1:1e3:41log"

    intensities: np.ndarray = parameter(
        "intensity (eigenvalue) of each mode, zero or more", rules.not_negative_vector, symbol="ρ_k", default=_FALLING
    )
    target: np.ndarray = parameter(
        "coefficient of the target on each mode", rules.finite_vector, symbol="⟨e_k|f*⟩", default=_FALLING
    )
    samples: int | None = parameter("number of training samples", rules.count, symbol="n", default=30, infinite=True)
    noise: float = parameter(
        "standard deviation of the noise on training labels", rules.not_negative, symbol="σ", default=0.5
    )

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        given, wanted = np.shape(self.target), np.shape(self.intensities)
        if given != wanted and len(given) == len(wanted) == 1:
            raise ValueError(
                f"target must have one coefficient for each intensity, not {given[0]} for {wanted[0]} "
                "(fill up with zeros)"
            )
        if not is_traced(self.intensities) and np.size(self.intensities) and not np.any(self.intensities):
            raise ValueError("at least one of the intensities must be positive: nothing else is ever learned")

    @property
    def kappa(self) -> Any:
        """The constant of eq. 1.35: modes much stronger than it are learned, much weaker ones are not."""
        if self.samples is None:
            raise ValueError("kappa needs a finite number of samples: build the model with samples=n")
        value = kappa(self.intensities, self.samples)
        return value if is_traced(value) else float(value)

    def learnability(self) -> xr.Dataset:
        """``learnability``: the expected fraction of each mode in the interpolating solution (eq. 1.35).

        It is ``rho_k / (rho_k + kappa)``, and its sum over modes is the number of samples.
        """
        learned = learnability(self.intensities, self.kappa)
        return self.dataset("theory", {"learnability": learned}, {"mode": self._numbers(None)})

    def limit(self) -> xr.Dataset:
        """The minimum-norm solution, where gradient flow ends: expected losses, coefficients and learnability.

        With ``L_k`` the learnability and ``gamma = sum_k L_k^2 / n``:

            bias = 1/2 sum_k w_k^2 (1 - L_k)^2
            variance = bias gamma / (1 - gamma)
            noise = sigma^2/2 gamma / (1 - gamma)

        The test loss is the sum of the three. The training loss is zero with fewer samples than modes; otherwise it is
        ``(1 - modes / n) / 2`` times the power of the noise and of the target on modes of zero intensity.
        """
        self._check_limit()
        return self.dataset("theory", self._limit_variables(None), {"mode": self._numbers(None)})

    def predict(
        self,
        times: Any,
        training: Training | None = None,
        *,
        modes: Annotated[int | None, "number of modes to list coefficients of (default: all)"] = None,
    ) -> xr.Dataset:
        """Expected losses and coefficients at the given times, and those of the solution they end in (``limit_*``).

        Curves of finite samples are inverse Laplace transforms by quadrature: ``numerical_error`` is their absolute
        error, relative to the loss at the start, and losses below it are not resolved. At ``samples`` equal to the
        number of modes the limit does not exist and is left out.
        """
        times, training = self.check_run(times, training, "predict")
        coordinates, clock = {"time": times, "mode": self._numbers(modes)}, training.flow_time(times)
        variables, error = (self._population(clock), None) if self.samples is None else self._finite(clock)
        variables["coefficient"] = variables["coefficient"][:, : coordinates["mode"].size]
        if self._has_limit():
            limit = self._limit_variables(modes)
            variables["learnability"] = limit.pop("learnability")
            variables |= {f"limit_{name}": values for name, values in limit.items()}
        about: dict[str, Any] = {"training": training, "system": {"features": "gaussian"}, "error_scale": "maximum"}
        return self.dataset("theory", variables, coordinates, {"modes": modes}, error=error, **about)

    def _population(self, times: np.ndarray) -> dict[str, Any]:
        """Eq. 1.26: with infinitely many samples each mode decays by itself and noise averages out."""
        xp = array_module(self, times)
        target = self.target
        exponent = xp.asarray(times)[:, None] * self.intensities
        loss = xp.sum(target**2 * xp.exp(-2 * exponent), axis=1) / 2
        coefficient = -target * xp.expm1(-exponent)
        return {
            "coefficient": coefficient,
            "test_loss": loss,
            "train_loss": loss + self.noise**2 / 2,
            "bias": loss,
            "variance": xp.zeros_like(loss),
            "noise_loss": xp.zeros_like(loss),
            "signal_fit": coefficient @ target / _power(xp, target),
            "noise_fit": xp.zeros_like(loss),
        }

    def _finite(self, times: np.ndarray) -> tuple[dict[str, Any], float | None]:
        xp = array_module(self, times)
        states, error = _states(*self._arrays(), times, NODES), None
        if xp is np:
            other = _states(*self._arrays(), times, MORE_NODES)
            scale = (np.sum(self.target**2) + self.noise**2) / 2 or 1.0
            error = max(
                float(np.max(np.abs(one - two))) / size
                for one, two, size in zip(states, other, (1.0, 1.0, scale, scale, scale), strict=True)
            )
        target = self.target
        bias = xp.sum(target**2 * states.missing**2, axis=1) / 2
        # Differences of what quadrature resolves to rounding only; none of these can be negative.
        noise_loss, signal_loss = xp.maximum(states.noise_loss, 0.0), xp.maximum(states.signal_loss, bias)
        variables = {
            "coefficient": target * (1 - states.missing),
            "test_loss": signal_loss + noise_loss,
            "train_loss": xp.maximum(states.train_loss, 0.0),
            "bias": bias,
            "variance": signal_loss - bias,
            "noise_loss": noise_loss,
            "signal_fit": (1 - states.missing) @ target**2 / _power(xp, target),
            "noise_fit": xp.clip(1 - states.noise_left, 0.0, 1.0),
        }
        return variables, error

    def _limit_variables(self, modes: int | None) -> dict[str, Any]:
        xp = array_module(self)
        target, rho, noise = self.target, self.intensities, self.noise
        present = rho > 0
        if self.samples is None:
            learned, gamma, unfitted = xp.where(present, 1.0, 0.0), xp.zeros(()), xp.ones(())
        else:
            learned = learnability(rho, kappa_or_zero(rho, self.samples))
            gamma = xp.sum(learned**2) / self.samples
            unfitted = xp.maximum(1 - xp.sum(present) / self.samples, 0.0)
        bias = xp.sum(target**2 * (1 - learned) ** 2) / 2
        excess = gamma / (1 - gamma)
        parts = {"bias": bias, "variance": bias * excess, "noise_loss": noise**2 / 2 * excess}
        losses = {
            "test_loss": sum(parts.values()),
            # What modes of zero intensity add to the labels is noise to the others.
            "train_loss": unfitted * (xp.sum(xp.where(present, 0.0, target**2)) + noise**2) / 2,
        }
        of_modes = {"coefficient": target * learned, "learnability": learned}
        return {**losses, **parts} | {name: (("mode",), values[:modes]) for name, values in of_modes.items()}

    def phases(self, fraction: Annotated[float, "fraction of the final value, between 0 and 1"] = 0.5) -> xr.Dataset:
        """``signal_time`` and ``noise_time``: the flow times at which the signal is learned and the noise fitted.

        Learning generalises if the first is much earlier than the second. The noise is fitted by the many weak modes
        together, at the rate ``sum(weak intensities) / n``, earlier than a weak mode learns its signal from
        infinitely many samples, ``1 / rho_k``. With infinitely many samples noise is never fitted (infinity).

        Parameters
        ----------
        fraction
            Fraction of the final value of ``signal_fit`` and ``noise_fit``, between 0 and 1.
        """
        fraction = check_fraction(fraction)
        reachable = np.asarray(self.target)[np.asarray(self.intensities) > 0]
        if not np.any(reachable):
            raise ValueError("there is no signal: the target is zero on every mode of positive intensity")
        self._check_limit()
        final = self._limit_variables(None)
        signal_end = float(np.asarray(final["learnability"][1]) @ self.target**2 / np.sum(self.target**2))
        fits = self._fits()
        signal_time = _time_of(lambda t: fits(t)[0] / signal_end - fraction, 1 / float(np.max(self.intensities)))
        noise_time = np.inf
        if self.samples is not None:
            noise_end = min(1.0, np.count_nonzero(self.intensities) / self.samples)
            noise_time = _time_of(lambda t: fits(t)[1] / noise_end - fraction, 1 / float(np.max(self.intensities)))
        when = {"signal_time": signal_time, "noise_time": noise_time}
        return self.dataset("theory", when, settings={"fraction": fraction})

    def _fits(self) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """``signal_fit`` and ``noise_fit`` as functions of time."""
        power = np.asarray(self.target) ** 2 / np.sum(self.target**2)

        def at(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if self.samples is None:
                return -np.expm1(-times[:, None] * self.intensities) @ power, np.zeros_like(times)
            state = _states(*self._arrays(), times, NODES)
            return (1 - state.missing) @ power, 1 - state.noise_left

        return at

    def simulate(
        self,
        times: Any,
        training: Training | None = None,
        *,
        features: Annotated[Literal["gaussian", "sine"], "independent Gaussians, or sines"] = "gaussian",
        modes: Annotated[int | None, "number of modes to list coefficients of (default: all)"] = None,
        seeds: Annotated[int, "number of independent training sets"] = 10,
        key: Key = 0,
        devices: Any = None,
        memory_limit: MemoryLimit = None,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Draw training sets and train on each: gradient flow in closed form, and the minimum-norm regression.

        The flow is exact in the singular vectors of the drawn features, and the test loss is that of the population.
        ``learnability`` is the fraction of each mode that one training set lets pass. ``limit_*`` is minimum-norm
        regression; directions weaker than rounding (1e-16 of the strongest times the size) count as absent.

        Parameters
        ----------
        features
            ``"gaussian"``: independent standard Gaussians, as in the theory. ``"sine"``: ``sqrt(2) sin(2 pi k x)`` with
            ``x`` uniform between 0 and 1; the positions of the samples are then returned as ``inputs``.
        """
        times, training = self.check_run(times, training, "simulate")
        check_choice("features", features, ("gaussian", "sine"))
        options = run_options(self.name, seeds, key, devices, memory_limit, progress)
        if self.samples is None:
            raise ValueError("simulate needs a finite number of samples: build the model with samples=n")
        count, total = self.samples, len(self.intensities)
        intensities, target, noise = map(jnp.asarray, (self.intensities, self.target, self.noise))
        clock = jnp.asarray(training.flow_time(times))
        numbers = self._numbers(modes)
        run = Traceable(train_once, intensities, target, noise, clock, count, features, numbers.size)
        size = 8.0 * (5 * count * total + 3 * len(times) * total + 4 * min(count, total) ** 2)
        result: Run = ensemble(run, bytes_per_run=size, **options)
        dims: dict[str, tuple[str, ...]] = {"coefficient": ("time", "mode")}
        dims |= dict.fromkeys(("learnability", "limit_coefficient"), ("mode",))
        dims |= dict.fromkeys(("inputs", "labels"), ("sample",))
        dims |= dict.fromkeys(("limit_test_loss", "limit_train_loss", "limit_noise_loss"), ())
        variables = {
            name: (("seed", *dims.get(name, ("time",))), values)
            for name, values in result._asdict().items()
            if not (name == "inputs" and features == "gaussian")
        }
        coordinates = {"seed": np.arange(seeds), "time": times, "sample": np.arange(count), "mode": numbers}
        # Singular values and projections are rounded by the machine precision times the size of the matrix.
        error = float(np.finfo(float).eps) * (count + total)
        about: dict[str, Any] = {"training": training, "system": {"features": features}, "error_scale": "maximum"}
        return self.dataset("simulation", variables, coordinates, {"key": key, "modes": modes}, error=error, **about)

    def _arrays(self) -> tuple[Any, Any, Any, Any]:
        return self.intensities, self.target, self.samples, self.noise

    def _numbers(self, modes: int | None) -> np.ndarray:
        """The first ``modes`` modes, or all of them, counted from 1."""
        total = np.shape(self.intensities)[0]
        return np.arange(1, (total if modes is None else min(check_count("modes", modes), total)) + 1)

    def _has_limit(self) -> bool:
        if self.samples is None or is_traced(self.intensities):
            return True
        return self.samples != np.count_nonzero(self.intensities)

    def _check_limit(self) -> None:
        if not self._has_limit():
            raise ValueError(
                f"with samples = {self.samples}, the number of modes of positive intensity, the solution is unique and "
                "its expected loss infinite: take fewer or more samples"
            )


def _states(intensities: Any, target: Any, samples: Any, noise: Any, times: Any, nodes: int) -> FlowState:
    """The flow at each time. A traced one goes from time to time: each holds the modes at every node of its contour."""
    if is_traced(intensities, target, samples, noise, times):
        return jax.lax.map(partial(_state, intensities, target, samples, noise, nodes=nodes), jnp.asarray(times))
    parts = np.array_split(times, 1 + len(times) * len(intensities) // _TABLE)
    with np.errstate(all="ignore"):
        found = [_state_at(np, intensities, target, samples, noise, part, nodes) for part in parts]
    return FlowState(*map(np.concatenate, zip(*found, strict=True)))


@jax.jit
def _state(intensities: Array, target: Array, samples: Array, noise: Array, time: Array, nodes: Array) -> FlowState:
    return _state_at(jnp, intensities, target, samples, noise, time, nodes)


def _state_at(xp: Any, intensities: Any, target: Any, samples: Any, noise: Any, time: Any, nodes: Any) -> FlowState:
    """The flow at one time, or at many; the start, where the transform has no meaning, by itself."""
    state = flow_state(intensities, target, samples, noise, xp.where(time > 0, time, 1.0), nodes)
    power = xp.sum(target**2)
    start = (1.0, (power + noise**2) / 2, power / 2, 0.0)
    late = time > 0
    return FlowState(
        xp.where(late[..., None], state.missing, 1.0),
        *(xp.where(late, now, begin) for now, begin in zip(state[1:], start, strict=True)),
    )


def _power(xp: Any, target: Any) -> Any:
    """Total power of the target; 1 where there is none, so that fractions of it are zero."""
    power = xp.sum(target**2)
    return xp.where(power > 0, power, 1.0)


def _time_of(excess: Callable[[np.ndarray], np.ndarray], unit: float) -> float:
    """When an increasing curve crosses zero, to 1e-10 in the logarithm of time.

    In that logarithm every mode rises over a distance of order one, so that a polynomial through the curve at
    Chebyshev points of an interval of two is as accurate as the curve.
    """
    steps = np.arange(-2.0, 11.0)
    while (above := excess(unit * np.exp(2 * steps)) > 0)[0]:
        steps = steps - len(steps) + 1
    while not above[-1]:
        steps = steps + len(steps) - 1
        above = excess(unit * np.exp(2 * steps)) > 0
    middle = np.log(unit) + 2 * steps[int(np.argmax(above))] - 1
    curve = np.polynomial.Chebyshev.interpolate(lambda places: excess(np.exp(middle + places)), _CHEBYSHEV)
    low, high = -1.0, 1.0
    while high - low > 1e-11:
        half = (low + high) / 2
        low, high = (low, half) if curve(half) > 0 else (half, high)
    return float(np.exp(middle + (low + high) / 2))
