"""Rows of the two-time functions on slots: what is known of them, and the pass that fills the next one.

The equations are those of :mod:`solvable.models.feature_scaling.slot_march`. Symbols, and the names of the arrays:

| symbol | name | what it is |
|---|---|---|
| ``U`` | ``weights`` | weights of the slots in integrals over time, those of the next row |
| ``E`` | ``is_stage`` | 1 for stages, 0 for kicks |
| ``H^w`` | ``weight_response`` | response of the readout to the drive |
| ``(U o C3 + diag c) H^w`` | ``feedback`` | what the learned features feed back to the readout |
| ``G`` | ``push`` | how the network's function moves with the drive |
| ``R1``, ``R3`` | ``sample_response``, ``feature_response`` | responses through training set and random features |
| ``R3 R1`` | ``joint_response`` | both |
| ``Z_k`` | ``mode_row`` | response of each mode's error; for kicks minus that to a kick: ``(1 + lambda_k E J)^-1`` |
| ``Z_k E 1`` | ``mode_decay`` | what is left of each mode's target |
| ``S`` | ``mode_response`` | sum of the modes' responses, ``sum_k lambda_k H_k G`` |
| ``X`` | ``feature_noise`` | variance that the random features add, ``G C3 G^T / N`` |
| ``C0`` | ``error_correlation`` | correlation of the error, weighted by the kernel |
| ``R1^-1 C2 R1^-T`` | ``batch_correlation`` | correlation of the error on the batch |
| ``C3`` | ``drive_correlation`` | correlation of the error that the features see, which drives the weights |
| ``D_k`` | ``kick_variance`` | variance of the kicks of batch noise, for each mode |
| ``c`` | ``drift`` | drift of the readout by the noise of fast modes |
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from solvable.models.feature_scaling.anderson import anderson, damped_anderson
from solvable.models.feature_scaling.mode_quadrature import Modes
from solvable.models.feature_scaling.resolvents import Resolvents
from solvable.models.feature_scaling.slot_guess import extrapolated, shifted

# Rows whose steps the noise does not shorten are solved to this residual, on the branch where this is positive: the
# denominator of the readout's response.
_LATE_TOLERANCE, _LEAST_DENOMINATOR = 1e-6, 0.2


class Completed(NamedTuple):
    """What the noise of fast modes adds to the loss, the loss with it, the growth that it sees, and what it adds to
    the squared weights."""

    missing: float
    loss: float
    growth: float
    weights: float = 0.0


# From the grid's training loss, the kernel's growth as the grid has it, and the squared weights.
Correction = Callable[[float, float, float], Completed]


@dataclasses.dataclass
class TwoTime:
    """The two-time functions so far, as square matrices over the slots; their names are explained at the top."""

    weight_response: np.ndarray
    feedback: np.ndarray
    push: np.ndarray
    feature_response: np.ndarray
    sample_response: np.ndarray
    joint_response: np.ndarray
    mode_response: np.ndarray
    feature_noise: np.ndarray
    error_correlation: np.ndarray
    batch_correlation: np.ndarray
    drive_correlation: np.ndarray

    @classmethod
    def empty(cls) -> "TwoTime":
        return cls(*(np.zeros((0, 0)) for _ in dataclasses.fields(cls)))

    def lengthened(self, more: int) -> "TwoTime":
        values = (getattr(self, field.name) for field in dataclasses.fields(self))
        return TwoTime(*(np.pad(value, ((0, more), (0, more))) for value in values))


class Unknowns(NamedTuple):
    """One solved row, as far as the caller needs it."""

    test_loss: float
    train_loss: float
    node_loss: Float[np.ndarray, "node"]
    weight_norm: float
    growth: float
    drive: float
    largest_drive: float
    missing: float


class Rows:
    """All rows so far; ``kick`` and ``begin_stage``/``solve``/``finish`` add one each."""

    def __init__(
        self,
        modes: Modes,
        richness: float,
        features: float,
        samples: float,
        label_noise: float = 0.0,
        tolerance: float = 1e-10,
    ) -> None:
        self._tolerance = tolerance
        self._label_noise = label_noise
        self._drifts: list[float] = []
        self._eigenvalues, self._counts, self._targets = (np.asarray(value, float) for value in modes[1:])
        self._trace_weights = self._eigenvalues * self._counts
        self._richness, self._features, self._samples = float(richness), features, samples
        self._finite_features, self._finite_samples = features < math.inf, samples < math.inf
        self.count = self.passes = 0
        self._stages: list[int] = []
        self._allocated = 0
        nodes = self._eigenvalues.size
        self._known = TwoTime.empty()
        self._modes = Resolvents(self._eigenvalues)
        self._mode_decay = np.zeros((0, nodes))
        self._kick_variance = np.zeros((nodes, 0))
        self._is_stage, self._weights = np.zeros(0), np.zeros(0)
        self._fed_back = np.zeros(0)
        self._largest_drive = 0.0
        self._lengthen()

    def _lengthen(self) -> None:
        """Allocate longer rows; a little more at a time, because work grows with what is allocated."""
        allocated = max(48, int(self._allocated * 1.3))
        more = allocated - self._allocated
        self._known = self._known.lengthened(more)
        self._mode_decay = np.pad(self._mode_decay, ((0, more), (0, 0)))
        self._kick_variance = np.pad(self._kick_variance, ((0, 0), (0, more)))
        self._is_stage, self._weights, self._fed_back = (
            np.pad(v, (0, more)) for v in (self._is_stage, self._weights, self._fed_back)
        )
        self._allocated = allocated

    def kick(self, variance: Float[np.ndarray, "node"]) -> None:
        """An impulse of the given variance on each mode; it depends on earlier rows only."""
        if self.count + 1 >= self._allocated:
            self._lengthen()
        t, m = self.count, self._known
        weights = np.append(self._weights[:t], 0.0)
        m.weight_response[t, : t + 1] = weights + self._richness * self._fed_back[: t + 1]
        row = m.weight_response[t, :t]
        correlation = m.weight_response[:t, :t] @ (m.drive_correlation[:t, :t] @ row)
        m.push[t, :t] = row + self._richness * weights[:t] * correlation
        m.feature_response[t, t] = m.sample_response[t, t] = m.joint_response[t, t] = 1.0
        self._modes.append(self._modes.row(np.zeros(t + 1)))
        self._kick_variance[:, t] = variance
        m.batch_correlation[t, t] = m.drive_correlation[t, t] = self._trace_weights @ variance
        self._weights[t] = 1.0
        m.feedback[t, : t + 1] = (weights * m.drive_correlation[t, : t + 1]) @ m.weight_response[: t + 1, : t + 1]
        self._fed_back[: t + 1] += m.feedback[t, : t + 1]
        self._stages.append(-1)
        self._drifts.append(0.0)
        self.count += 1

    def begin_stage(self, own_weight: float, later_weight: float) -> None:
        """The next row is a stage whose integral gives itself one weight, and later rows give it another."""
        if self.count + 1 >= self._allocated:
            self._lengthen()
        self._own_weight, self._later_weight = own_weight, later_weight
        self._is_stage[self.count] = 1.0
        before = [place for place, kind in enumerate(self._stages) if kind == self._kind()]
        self._same = before[-2:]

    def _kind(self) -> int:
        return 1 if self._stages and self._stages[-1] == 0 else 0

    def solve(self, correction: Correction, long_step: bool = False, equal_ratios: bool = False) -> float:
        """Find the row; the residual that is left.

        In a long step the noise moves the weights far. With ``equal_ratios`` the last steps grew like this one, so that
        the row can be extrapolated from theirs.
        """
        t = self.count
        self._correction = correction
        diagonal = np.sqrt(np.abs(np.diagonal(self._known.drive_correlation)[: t + 1]))
        guess, scale = shifted(self._known, t, self._same, self._eigenvalues, self._targets)
        self._scale = np.maximum(np.append(diagonal[:t], scale), 1e-150) * max(scale, 1e-150)
        drift = self._drifts[self._same[-1]] if self._same else 0.0
        if equal_ratios and len(self._same) == 2 and 2 * self._same[0] + 1 >= t:
            guess, drift = extrapolated(self._known, t, self._same, scale), self._next_drift()
        # In units of what it does to the row, or of itself where that is much.
        self._drift_scale = max(1.0, abs(drift) * self._richness * self._own_weight)
        self._drift_scale /= self._richness * self._own_weight or 1.0
        start = self._pack(guess, drift)
        if long_step:
            solution, residual, passes = damped_anderson(
                self._pass, start, self._on_branch, tolerance=_LATE_TOLERANCE, memory=25
            )
        else:
            memory = 25 if self._finite_features or self._finite_samples else 10
            solution, residual, passes = anderson(self._pass, start, tolerance=self._tolerance, memory=memory)
        self.passes += passes
        if solution is not self._last_point:
            self._pass(solution)
        return residual

    def _next_drift(self) -> float:
        """The drift of the row, on a line through those of the same stage in the last two steps."""
        earlier, last = (self._drifts[place] for place in self._same)
        return 2 * last - earlier

    def _on_branch(self, x: np.ndarray) -> bool:
        """Whether the response of the readout is on the branch that learns."""
        t, own = self.count, self._own_weight
        drift = x[t + 1] * self._drift_scale
        return 1 - self._richness * own * (own * x[t] * self._scale[t] + drift) > _LEAST_DENOMINATOR

    def _pack(self, rows: list[np.ndarray], drift: float) -> np.ndarray:
        """The unknowns, from rows of C3, R3, R1 and C0, and the drift."""
        c3, r3, r1, c0 = rows
        parts = [c3 / self._scale, np.array([drift / self._drift_scale])]
        if self._finite_features:
            parts.append(r3[:-1])
        if self._finite_samples:
            parts += [r1[:-1], c0 / self._c0_scale()]
        return np.concatenate(parts)

    def _c0_scale(self) -> float:
        return max(float(self._known.error_correlation[self._same[-1], self._same[-1]]) if self._same else 1.0, 1e-300)

    def _pass(self, x: np.ndarray) -> np.ndarray:
        """One pass through the equations: the row that a guess of the row gives."""
        self._last_point = x
        t, m = self.count, self._known
        size = t + 1
        c3, drift = x[:size] * self._scale, x[size] * self._drift_scale
        rest = x[size + 1 :]
        r3, r1 = np.zeros(size), np.zeros(size)
        if self._finite_features:
            r3[:t], rest = rest[:t], rest[t:]
        if self._finite_samples:
            r1[:t] = rest[:t]
            c0 = rest[t:] * self._c0_scale()
            m.error_correlation[t, :size] = m.error_correlation[:size, t] = c0
        weight_norm, own_push = self._push(c3, drift)
        product = self._diagonal(own_push)
        learned = self._learned(product)
        r3[t] = 1 - learned / self._features
        r1[t] = 1 - learned / self._samples
        self._modes_row(r3, r1)
        self._response_rows()
        node = self._loss_row()
        growth = own_push / self._own_weight
        grid_test = float(node.sum())
        grid_train = self._train() if self._finite_samples else grid_test + self._label_noise
        completed = self._correction(grid_train, growth, weight_norm)
        missing, growth = completed.missing, completed.growth
        self._second_row()
        new_drift = -missing / growth
        extra = missing * self._trace_weights / self._trace_weights.sum()
        self._row = Unknowns(
            test_loss=grid_test + missing,
            train_loss=completed.loss,
            node_loss=node + extra,
            weight_norm=weight_norm + completed.weights,
            growth=growth,
            drive=float(m.drive_correlation[t, t]),
            largest_drive=0.0,
            missing=missing,
        )
        self._drift = new_drift
        parts = [m.drive_correlation[t, :size] / self._scale, np.array([new_drift / self._drift_scale])]
        if self._finite_features:
            parts.append(m.feature_response[t, :t])
        if self._finite_samples:
            parts += [m.sample_response[t, :t], m.error_correlation[t, :size] / self._c0_scale()]
        return np.concatenate(parts)

    def _push(self, c3: np.ndarray, drift: float) -> tuple[float, float]:
        """Rows of H^w, P and G; C_w(t, t) and G(t, t)."""
        t, m, own, richness = self.count, self._known, self._own_weight, self._richness
        size = t + 1
        weights = np.append(self._weights[:t], own)
        fed = self._fed_back[:size] + own * np.append((weights[:t] * c3[:t]) @ m.weight_response[:t, :t], 0.0)
        row = (weights + richness * fed) / (1 - richness * own * (own * c3[t] + drift))
        m.weight_response[t, :size] = row
        m.feedback[t, :size] = (weights * c3) @ m.weight_response[:size, :size] + drift * row
        m.drive_correlation[t, :size] = m.drive_correlation[:size, t] = c3
        correlation = m.weight_response[:size, :size] @ (m.drive_correlation[:size, :size] @ row)
        m.push[t, :size] = row + richness * weights * correlation
        return float(correlation[t]), float(m.push[t, t])

    def _learned(self, product: float) -> float:
        rates = self._eigenvalues * product
        return float((self._counts * rates / (1 + rates)).sum())

    def _diagonal(self, push: float) -> float:
        """``G R3 R1`` on the diagonal: with ``d(x) = sum lambda x / (1 + lambda x)``, x = G (1 - d/P) (1 - d/N)."""
        if not (self._finite_features or self._finite_samples):
            return push

        def balance(x: float) -> float:
            learned = self._learned(x)
            return x - push * max(0.0, 1 - learned / self._features) * max(0.0, 1 - learned / self._samples)

        low, high = 0.0, push
        if balance(high) <= 0 or push <= 0:
            return push
        from scipy.optimize import brentq

        return float(brentq(balance, low, high, xtol=1e-300, rtol=1e-14))

    def _modes_row(self, r3: np.ndarray, r1: np.ndarray) -> None:
        t, m = self.count, self._known
        size = t + 1
        drive = m.push[t, :size]
        m.feature_response[t, :size], m.sample_response[t, :size] = r3, r1
        if self._finite_features:
            drive = drive[t] * r3 + np.append(drive[:t] @ m.feature_response[:t, :t], 0.0)
        if self._finite_samples:
            drive = drive[t] * r1 + np.append(drive[:t] @ m.sample_response[:t, :t], 0.0)
        self._mode_row = self._modes.row(drive)
        self._mode_decay[t] = self._mode_row @ self._is_stage[:size]

    def _response_rows(self) -> None:
        t, m = self.count, self._known
        size = t + 1
        through = (self._trace_weights @ self._mode_row) * self._is_stage[:size]
        m.mode_response[t, :size] = through @ m.push[:size, :size]
        here = np.zeros(size)
        here[t] = 1.0
        if not self._finite_samples:
            m.sample_response[t, :size] = here
        else:
            into = m.mode_response[t, :size] @ m.feature_response[:size, :size]
            m.sample_response[t, :size] = self._with_diagonal(-into / self._samples, m.sample_response, here)
        if not self._finite_features:
            m.feature_response[t, :size] = here
        else:
            back = m.mode_response[t, :size]
            if self._finite_samples:
                back = m.sample_response[t, :size] @ m.mode_response[:size, :size]
            m.feature_response[t, :size] = self._with_diagonal(-back / self._features, m.feature_response, here)
        m.joint_response[t, :size] = m.feature_response[t, :size] @ m.sample_response[:size, :size]

    def _with_diagonal(self, kernel: np.ndarray, known: np.ndarray, here: np.ndarray) -> np.ndarray:
        """Row t of ``[1 - kernel]^-1``, whose earlier rows are known."""
        t = self.count
        return (here + np.append(kernel[:t] @ known[:t, :t], 0.0)) / (1 - kernel[t])

    def _loss_row(self) -> np.ndarray:
        """What each node adds to the loss; with reused samples also row t of C0."""
        t, m = self.count, self._known
        size = t + 1
        stage, row = self._is_stage[:size], self._mode_row
        if self._finite_features:
            pushed = m.push[:size, :size] @ (m.drive_correlation[:size, :size] @ m.push[t, :size])
            m.feature_noise[t, :size] = m.feature_noise[:size, t] = stage * pushed / self._features
            self._through = (row * stage) @ m.feature_noise[:size, :size]
        missing = -row
        missing[:, t] += 1.0
        kicked = missing * self._kick_variance[:, :size]
        if self._finite_samples:
            kicked = kicked + (missing * stage) @ self._noisy_correlation() / self._samples
        kicked *= self._counts[:, None]
        vectors = self._trace_weights[:, None] * self._through - kicked if self._finite_features else -kicked
        signal = self._eigenvalues * self._targets
        node = signal * self._mode_decay[t] ** 2 + (vectors * row).sum(1) + kicked[:, t]
        if self._finite_samples:
            whole = self._mode_decay[:size] @ (signal * self._mode_decay[t])
            whole = whole + self._through_modes(vectors) + kicked.sum(0)
            m.error_correlation[t, :size] = m.error_correlation[:size, t] = whole * stage
        return node

    def _through_modes(self, vectors: np.ndarray) -> np.ndarray:
        """``sum_k Z_k vector_k``, of which the last row is the one that is being found."""
        return np.append(self._modes.applied(vectors), (self._mode_row * vectors).sum())

    def _train(self) -> float:
        t, m = self.count, self._known
        row = m.sample_response[t, : t + 1]
        kicks = self._trace_weights @ self._kick_variance[:, : t + 1] / self._trace_weights.sum()
        return float(row @ self._noisy_correlation() @ row + self._samples * (row**2) @ kicks)

    def _noisy_correlation(self) -> np.ndarray:
        """C0 with the variance of the label noise, which is the same at all stages."""
        size = self.count + 1
        correlation, stage = self._known.error_correlation[:size, :size], self._is_stage[:size]
        return correlation + self._label_noise * np.outer(stage, stage) if self._label_noise else correlation

    def _second_row(self) -> None:
        """Rows of F and C3."""
        t, m = self.count, self._known
        size = t + 1
        stage, row = self._is_stage[:size], self._mode_row
        carried = row * self._kick_variance[:, :size]
        if self._finite_samples:
            carried = carried + (row * stage) @ self._noisy_correlation() / self._samples
        if self._finite_features:
            carried = carried + self._eigenvalues[:, None] * self._through
        signal = self._eigenvalues**2 * self._targets
        second = stage * (self._mode_decay[:size] @ (signal * self._mode_decay[t]))
        if self._finite_features or self._finite_samples or self._kick_variance.any():
            second = second + self._through_modes(self._trace_weights[:, None] * carried)
        m.batch_correlation[t, :size] = m.batch_correlation[:size, t] = second
        third = m.joint_response[:size, :size] @ (m.batch_correlation[:size, :size] @ m.joint_response[t, :size])
        m.drive_correlation[t, :size] = m.drive_correlation[:size, t] = third

    def finish(self) -> Unknowns:
        """Keep the row."""
        t = self.count
        self._modes.append(self._mode_row)
        self._largest_drive = max(self._largest_drive, self._row.drive)
        self._weights[t] = self._later_weight
        self._fed_back[: t + 1] += self._later_weight * self._known.feedback[t, : t + 1]
        self._stages.append(self._kind())
        self._drifts.append(self._drift)
        self.count += 1
        return self._row._replace(largest_drive=self._largest_drive)
