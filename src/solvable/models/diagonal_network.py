"""The diagonal linear network: independent modes, each a product of two layers, solved for any start."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.checks import check_choice, check_count, rules
from solvable.dataset import Meaning, Stopwatch, make_dataset, provenance
from solvable.model import Model, parameter
from solvable.numerics import layer_product
from solvable.numerics.cost import check_descent_cost
from solvable.numerics.descent import check_learning_rate, descend_with_error
from solvable.numerics.ensemble import ensemble
from solvable.timegrid import check_times


class DiagonalNetwork(Model):
    """``f(x) = sum_i x_i a_i b_i`` learns ``f*(x) = sum_i x_i S_i`` by gradient flow on ``E[(f - f*)^2] / 2``.

    The features ``x_i`` are independent, centred and have the given variances, so the modes ``a_i b_i`` learn on their
    own, each as ``da/dt = b E[x^2] (S - a b)``, ``db/dt = a E[x^2] (S - a b)`` (layerwise, eq. 3.6). The solution is
    exact for any layers at the start: equal ones give the sigmoid of eq. 3.9, others the one-pair case of theorem 1
    (corrected: see docs/errata). ``a^2 - b^2`` never changes (eq. 3.8). Time is that of gradient flow: learning rate
    times steps.

    >>> import solvable
    >>> model = solvable.DiagonalNetwork([1.0, 0.1], [1.0, 1.0], [0.01, 0.01], [0.01, 0.01])
    >>> model.emergence_time().values.round(1)
    array([ 3.1, 31.3])
    """

    name: ClassVar[str] = "diagonal-network"
    # Modes emerge at 2.7, 3.8 and 7.0 with the default layers.
    usual_times: ClassVar[str] = "0:9:46"

    variances: np.ndarray = parameter(
        "variance of each feature", rules.positive_vector, symbol="E[x²]", default=(1.0, 1.0, 1.0)
    )
    target_scales: np.ndarray = parameter(
        "target's coefficient of each feature", rules.finite_vector, symbol="S", default=(3.0, 2.0, 1.0)
    )
    first: np.ndarray = parameter(
        "first layer at the start", rules.finite_vector, symbol="a(0)", default=(1e-3, 1e-3, 1e-3)
    )
    second: np.ndarray = parameter(
        "second layer at the start", rules.finite_vector, symbol="b(0)", default=(1e-3, 1e-3, 1e-3)
    )

    def __check_init__(self) -> None:
        Model.__check_init__(self)
        lengths = {name: np.shape(values) for name, values in self.parameters().items()}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {shape[0]}" for name, shape in lengths.items())
            raise ValueError(f"the lists must be equally long, one entry a mode, but {told}")
        for name in ("variances", "target_scales", "first", "second"):
            layer_product.check_sizes(name, getattr(self, name))

    @classmethod
    def balanced(cls, variances: Any, target_scales: Any, initial_strength: Any) -> Self:
        """Equal layers whose product is ``initial_strength`` (one number, or one a mode): the sigmoid start of eq. 3.9.

        Where the target is negative one layer is, too, and ``initial_strength`` is the size of the product.
        """
        targets = np.atleast_1d(np.asarray(target_scales, dtype=float))
        strengths = np.broadcast_to(np.asarray(initial_strength, dtype=float), targets.shape)
        _check_sigmoid(strengths, np.abs(targets), "initial_strength")
        return cls(variances, targets, np.sqrt(strengths), np.sign(targets) * np.sqrt(strengths))

    @property
    def imbalance(self) -> np.ndarray:
        """``a^2 - b^2`` of each mode, conserved by the flow (eq. 3.8)."""
        return (self.first + self.second) * (self.first - self.second)

    def predict(self, times: Any) -> xr.Dataset:
        """The exact curves, and beside them those of the linear model ``f = sum_i x_i theta_i`` from 0 (eq. 3.10)."""
        watch = Stopwatch()
        times = check_times(times)
        aligned, opposed = layer_product.aligned_and_opposed(self.first, self.second)
        flow = layer_product.flow(aligned, opposed, self.target_scales, times[:, None] * self.variances)
        first, second = layer_product.layers_at(self.first, self.second, flow.growth)
        error = (self.target_scales - self.first * self.second) * flow.remaining
        linear = -self.target_scales * jnp.expm1(-times[:, None] * self.variances)
        left = self.target_scales * jnp.exp(-times[:, None] * self.variances)
        return make_dataset(
            {
                "strength": (("time", "mode"), first * second),
                "first": (("time", "mode"), first),
                "second": (("time", "mode"), second),
                "imbalance": (("time", "mode"), first**2 - second**2),
                "test_loss": (("time",), (self.variances * error**2).sum(-1) / 2),
                "linear_strength": (("time", "mode"), linear),
                "linear_test_loss": (("time",), (self.variances * left**2).sum(-1) / 2),
            },
            {"time": times, "mode": np.arange(self._modes)},
            provenance(self, "theory", {}, watch, system={"samples": None}),
            _MEANINGS,
        )

    def sigmoid(self, times: Any) -> xr.Dataset:
        """Eq. 3.9: what equal layers do, and unequal ones nearly do. Needs ``0 < a b / S < 1``."""
        watch = Stopwatch()
        times = check_times(times)
        _check_sigmoid(self.first * self.second, self.target_scales, "first * second")
        start = self.first * self.second / self.target_scales
        decay = jnp.exp(-2 * jnp.abs(self.target_scales) * self.variances * times[:, None])
        left = (1 / start - 1) * decay
        error = self.target_scales * left / (1 + left)
        return make_dataset(
            {
                "strength": (("time", "mode"), self.target_scales / (1 + left)),
                "test_loss": (("time",), (self.variances * error**2).sum(-1) / 2),
            },
            {"time": times, "mode": np.arange(self._modes)},
            provenance(self, "sigmoid theory", {}, watch, system={"samples": None}),
            _MEANINGS,
        )

    def emergence_time(self, eps: Annotated[float, "share of the target, between 0 and 1"] = 0.05) -> xr.DataArray:
        """When each mode's ``a b / S`` reaches ``eps`` (eq. 3.12, here for any layers).

        0 where it starts beyond ``eps``, infinite where it never gets there: layers with no aligned part die out.
        """
        return self._times(_check_share(eps, 1.0), "emergence_time")

    def saturation_time(self, eps: Annotated[float, "share of the target, below one half"] = 0.05) -> xr.DataArray:
        """How long each mode's ``a b / S`` takes from ``eps`` to ``1 - eps`` (eq. 3.12, here for any layers).

        Counted from time 0 where the mode starts beyond ``eps``.
        """
        eps = _check_share(eps, 0.5)
        begin, end = self._times(eps, "saturation_time"), self._times(1 - eps, "saturation_time")
        # A mode that never emerges never saturates: infinite, not infinity less infinity.
        lasting = jnp.where(jnp.isinf(end.data), jnp.inf, end.data - jnp.where(jnp.isinf(begin.data), 0.0, begin.data))
        return end.copy(data=lasting if isinstance(lasting, jax.core.Tracer) else np.asarray(lasting))

    def stage_overlap(self) -> xr.Dataset:
        """The ``eps`` at which a mode saturates (``1 - eps``) just when the next one emerges (``eps``).

        With ``r = E[x^2] |S|`` and ``q = S / (a b) - 1``, for modes i and j, i the first of the two to be half learned,

            eps = 1 / (1 + exp((r_i ln q_j - r_j ln q_i) / (r_i + r_j))),

        which for equal q is ``1 / (1 + q^((r_i - r_j)/(r_i + r_j)))``: eq. 3.13, corrected, see docs/errata. Small
        values mean stages; 1/2 means that both are learned at once. Needs equal layers with ``0 < a b / S < 1``.
        """
        watch = Stopwatch()
        if self._modes < 2:
            raise ValueError("stages need at least 2 modes, not 1")
        _check_sigmoid(self.first * self.second, self.target_scales, "first * second")
        if not np.allclose(np.abs(self.first), np.abs(self.second), rtol=1e-6, atol=0):
            raise ValueError(
                "eq. 3.13 is for layers of equal size, |first| = |second|: compare emergence_time and saturation_time"
            )
        order = np.argsort(self.emergence_time(0.5).values, kind="stable")
        rate = (self.variances * np.abs(self.target_scales))[order]
        log_start = np.log(self.target_scales / (self.first * self.second) - 1)[order]
        gap = (rate[:-1] * log_start[1:] - rate[1:] * log_start[:-1]) / (rate[:-1] + rate[1:])
        return make_dataset(
            {
                "overlap": (("stage",), np.exp(-np.logaddexp(0, gap))),
                "mode": (("stage",), order[:-1]),
                "next_mode": (("stage",), order[1:]),
            },
            {"stage": np.arange(self._modes - 1)},
            provenance(self, "theory", {}, watch),
            _MEANINGS,
        )

    def simulate(
        self,
        times: Any,
        *,
        samples: Annotated[int | None, "number of training samples (inf: the population)"] = 1000,
        method: Annotated[Literal["descent", "flow"], "whole steps, or the flow they approximate"] = "descent",
        learning_rate: Annotated[float, "largest step of descent"] = 0.01,
        seeds: Annotated[int, "number of independent runs"] = 10,
        key: Annotated[int, "key of the random numbers"] = 0,
        progress: bool | None = None,
    ) -> xr.Dataset:
        """Full-batch training on drawn Gaussian features with these variances, one training set a seed.

        Each stretch between two times is cut into equal steps of at most ``learning_rate``. Finite samples correlate
        the features, so that the modes pull at each other. The test loss is the population's. ``<name>_error`` is how
        far each value is estimated to be from the flow's, because of the steps and of rounding.
        """
        watch = Stopwatch()
        times = check_times(times)
        check_count("seeds", seeds)
        check_count("key", key, 0)
        check_choice("method", method, ("descent", "flow"))
        if samples is not None and samples != np.inf:
            check_count("samples", samples)
        samples = None if samples == np.inf else samples
        stable_rate = self._stable_learning_rate()
        learning_rate = check_learning_rate(learning_rate, stable_rate)
        check_descent_cost(self.name, times[-1] / learning_rate, seeds, 2.0 * self._modes**2 + 20 * self._modes, method)
        # The largest eigenvalue of drawn moments is above that of the population by this factor, for many samples.
        excess = 1.0 if samples is None else (1 + (self._modes / samples) ** 0.5) ** 2
        run = partial(_run, self, times, samples, learning_rate, method, stable_rate / excess)
        size = 8.0 * (2 * (samples or 1) * self._modes + 3 * self._modes**2 + 6 * times.size * self._modes)
        measured, errors = ensemble(
            run, seeds=seeds, key=key, bytes_per_run=size, progress=progress, label=f"simulating {self.name}"
        )
        if not np.isfinite(measured.test_loss).all():
            raise ValueError(f"descent diverged with learning_rate = {learning_rate:g}: lower it or raise samples")
        settings = {"samples": samples, "method": method, "learning_rate": learning_rate, "seeds": seeds, "key": key}
        variables = measured._asdict() | {f"{name}_error": values for name, values in errors._asdict().items()}
        return make_dataset(
            {name: (("seed", "time", "mode")[: values.ndim], values) for name, values in variables.items()},
            {"time": times, "mode": np.arange(self._modes), "seed": np.arange(seeds)},
            provenance(self, "simulation", settings, watch, system={"samples": samples}),
            _MEANINGS,
        )

    @property
    def _modes(self) -> int:
        return self.variances.shape[0]

    def _times(self, share: float, name: str) -> xr.DataArray:
        watch = Stopwatch()
        if not isinstance(self.target_scales, jax.core.Tracer) and (self.target_scales == 0).any():
            place = int(np.argmax(self.target_scales == 0))
            raise ValueError(f"a share of the target needs a target: target_scales[{place}] is 0; remove that mode")
        aligned, opposed = layer_product.aligned_and_opposed(self.first, self.second)
        clock = layer_product.time_to_reach(share, aligned, opposed, self.target_scales)
        dataset = make_dataset(
            {name: (("mode",), clock / self.variances)},
            {"mode": np.arange(self._modes)},
            provenance(self, "theory", {"eps": share}, watch),
            _MEANINGS,
        )
        return dataset[name]

    def _stable_learning_rate(self) -> float:
        """2 over the largest curvature ``E[x^2] (a^2 + b^2)``, which is largest at the start or at the end."""
        start = self.first**2 + self.second**2
        end = np.hypot(2 * self.target_scales, self.imbalance)
        return float(2 / np.max(self.variances * np.maximum(np.maximum(start, end), 1.0)))


class _Measured(NamedTuple):
    strength: Array
    first: Array
    second: Array
    imbalance: Array
    train_loss: Array
    test_loss: Array
    linear_strength: Array
    linear_test_loss: Array


def _run(
    model: DiagonalNetwork,
    times: np.ndarray,
    samples: int | None,
    learning_rate: float,
    method: str,
    stable_rate: float,
    key: Array,
) -> tuple[_Measured, _Measured]:
    """One run, and its errors. The labels have no noise, so the training set enters only through its second moments."""
    variances, targets = jnp.asarray(model.variances), jnp.asarray(model.target_scales)
    if samples is None:
        moments = jnp.diag(variances)
    else:
        features = jax.random.normal(key, (samples, variances.size)) * jnp.sqrt(variances)
        moments = features.T @ features / samples

    def velocity(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        first, second, linear = state
        pull = moments @ (targets - first * second)
        return second * pull, first * pull, moments @ (targets - linear)

    def measure(state: tuple[Array, Array, Array]) -> _Measured:
        first, second, linear = state
        error, left = targets - first * second, targets - linear
        return _Measured(
            strength=first * second,
            first=first,
            second=second,
            imbalance=first**2 - second**2,
            train_loss=error @ moments @ error / 2,
            test_loss=(variances * error**2).sum() / 2,
            linear_strength=linear,
            linear_test_loss=(variances * left**2).sum() / 2,
        )

    start = (jnp.asarray(model.first), jnp.asarray(model.second), jnp.zeros_like(targets))
    return descend_with_error(velocity, measure, start, times, learning_rate, method, stable_rate)


def _check_share(eps: float, below: float) -> float:
    if isinstance(eps, bool) or not 0 < eps < below:
        raise ValueError(f"eps must lie between 0 and {below:g}, both excluded, not {eps!r}")
    return float(eps)


def _check_sigmoid(strengths: Any, targets: Any, what: str) -> None:
    if isinstance(strengths, jax.core.Tracer) or isinstance(targets, jax.core.Tracer):
        return
    for place, (strength, target) in enumerate(zip(strengths, targets, strict=True)):
        if target == 0 or not 0 < strength / target < 1:
            raise ValueError(
                f"the sigmoid of eq. 3.9 needs a start strictly between 0 and the target, but at mode {place} "
                f"{what} = {strength:g} and the target is {target:g}: use predict, which takes any start"
            )


_MEANINGS: Mapping[str, Meaning] = {
    "test_loss": Meaning("test loss", "1", "L"),
    "train_loss": Meaning("training loss", "1", "L_tr"),
    "strength": Meaning("strength of the mode", "1", "ab"),
    "first": Meaning("first layer", "1", "a"),
    "second": Meaning("second layer", "1", "b"),
    "imbalance": Meaning("difference of the squared layers", "1", "a² − b²"),
    "linear_strength": Meaning("strength of the mode in the linear model", "1", "θ"),
    "linear_test_loss": Meaning("test loss of the linear model", "1", "L_lin"),
    "emergence_time": Meaning("time at which the mode emerges", "learning rate × steps", "τ_e"),
    "saturation_time": Meaning("time from emergence to saturation", "learning rate × steps", "τ_s"),
    "overlap": Meaning("overlap of a stage with the next", "1", "ε"),
    "mode": Meaning("index of the mode", "1", "i"),
    "next_mode": Meaning("index of the mode learned next", "1"),
    "stage": Meaning("index of the stage", "1"),
    "time": Meaning("training time", "learning rate × steps", "t"),
}
