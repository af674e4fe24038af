"""Rows of the two-time functions on slots: what is known of them, and the pass that fills the next one."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from solvable.models.feature_scaling.anderson import anderson
from solvable.models.feature_scaling.mode_quadrature import Modes

_MATRICES = ("Hw", "P", "G", "R3", "R1", "S", "X", "C0", "F", "C3", "RR")
_TOLERANCE = 1e-10

# From the grid's training loss and the kernel's growth to what the noise of fast modes adds, and the loss with it.
Correction = Callable[[float, float], tuple[float, float]]


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

    def __init__(self, modes: Modes, richness: float, features: float, samples: float) -> None:
        self._eigenvalues, self._counts, self._targets = (np.asarray(value, float) for value in modes[1:])
        self._trace_weights = self._eigenvalues * self._counts
        self._richness, self._features, self._samples = float(richness), features, samples
        self._finite_features, self._offline = features < math.inf, samples < math.inf
        self.count = self.passes = 0
        self._kinds: list[int] = []
        self._room = 0
        nodes = self._eigenvalues.size
        self._m = {name: np.zeros((0, 0)) for name in _MATRICES}
        self._H = np.zeros((0, nodes, 0))
        self._ones = np.zeros((0, nodes))
        self._noise = np.zeros((nodes, 0))
        self._stage, self._weights = np.zeros(0), np.zeros(0)
        self._fed = np.zeros(0)
        self._largest_drive = 0.0
        self._make_room()

    def _make_room(self) -> None:
        """Rows are stored as long as there is room; a little more at a time keeps them short."""
        room = max(48, int(self._room * 1.3))
        more = room - self._room
        self._m = {name: np.pad(value, ((0, more), (0, more))) for name, value in self._m.items()}
        self._H = np.pad(self._H, ((0, more), (0, 0), (0, more)))
        self._ones = np.pad(self._ones, ((0, more), (0, 0)))
        self._noise = np.pad(self._noise, ((0, 0), (0, more)))
        self._stage, self._weights, self._fed = (np.pad(v, (0, more)) for v in (self._stage, self._weights, self._fed))
        self._room = room

    def kick(self, variance: Float[np.ndarray, "node"]) -> None:
        """An impulse of the given variance on each mode; it depends on earlier rows only."""
        if self.count + 1 >= self._room:
            self._make_room()
        t, m = self.count, self._m
        weights = np.append(self._weights[:t], 0.0)
        m["Hw"][t, : t + 1] = weights + self._richness * self._fed[: t + 1]
        row = m["Hw"][t, :t]
        correlation = m["Hw"][:t, :t] @ (m["C3"][:t, :t] @ row)
        m["G"][t, :t] = row + self._richness * weights[:t] * correlation
        m["R3"][t, t] = m["R1"][t, t] = m["RR"][t, t] = 1.0
        self._H[t, :, t] = 1.0
        self._noise[:, t] = variance
        m["F"][t, t] = m["C3"][t, t] = self._trace_weights @ variance
        self._weights[t] = 1.0
        m["P"][t, : t + 1] = (weights * m["C3"][t, : t + 1]) @ m["Hw"][: t + 1, : t + 1]
        self._fed[: t + 1] += m["P"][t, : t + 1]
        self._kinds.append(-1)
        self.count += 1

    def begin_stage(self, own_weight: float, later_weight: float) -> None:
        """The next row is a stage whose integral gives itself one weight, and later rows give it another."""
        if self.count + 1 >= self._room:
            self._make_room()
        self._own, self._later = own_weight, later_weight
        self._stage[self.count] = 1.0
        before = [place for place, kind in enumerate(self._kinds) if kind == self._kind()]
        self._same = before[-2:]

    def _kind(self) -> int:
        return 1 if self._kinds and self._kinds[-1] == 0 else 0

    def solve(self, correction: Correction) -> float:
        """Find the row; the residual that is left."""
        t = self.count
        self._correction = correction
        diagonal = np.sqrt(np.abs(np.diagonal(self._m["C3"])[: t + 1]))
        *guess, scale = self._guess()
        self._scale = np.maximum(np.append(diagonal[:t], scale), 1e-150) * max(scale, 1e-150)
        memory = 25 if self._finite_features or self._offline else 10
        start = self._pack(*guess)
        solution, residual, passes = anderson(self._pass, start, tolerance=_TOLERANCE, memory=memory)
        self.passes += passes
        self._pass(solution)
        return residual

    def _guess(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
        """The row of one step ago, moved along the diagonal: in log time two-time functions are nearly self-similar."""
        t, m = self.count, self._m
        here = np.zeros(t + 1)
        here[t] = 1.0
        if not self._same:
            scale = math.sqrt((self._eigenvalues**2 * self._targets).sum())
            return np.zeros(t + 1), here, here, np.zeros(t + 1), max(scale, 1e-12)
        last = self._same[-1]
        shift = t - last

        def moved(name: str) -> np.ndarray:
            row = m[name][last, : last + 1]
            return np.concatenate([row[:shift], row])[: t + 1] if last + 1 >= shift else np.pad(row, (shift, 0))

        value = m["C3"][last, last]
        ratio = value / m["C3"][self._same[0], self._same[0]] if len(self._same) == 2 else 1.0
        ratio = ratio if 0.05 < ratio < 1 else 1.0
        scale = math.sqrt(max(value * ratio, 1e-300))
        return moved("C3") * ratio, moved("R3"), moved("R1"), moved("C0"), scale

    def _pack(self, c3: np.ndarray, r3: np.ndarray, r1: np.ndarray, c0: np.ndarray) -> np.ndarray:
        parts = [c3 / self._scale, np.zeros(1)]
        if self._finite_features:
            parts.append(r3[:-1])
        if self._offline:
            parts += [r1[:-1], c0 / self._c0_scale()]
        return np.concatenate(parts)

    def _c0_scale(self) -> float:
        return max(float(self._m["C0"][self._same[-1], self._same[-1]]) if self._same else 1.0, 1e-300)

    def _pass(self, x: np.ndarray) -> np.ndarray:
        """One pass through the equations: the row that a guess of the row gives."""
        t, m = self.count, self._m
        size = t + 1
        c3, drift = x[:size] * self._scale, x[size] / (self._richness * self._own or 1.0)
        rest = x[size + 1 :]
        r3, r1 = np.zeros(size), np.zeros(size)
        if self._finite_features:
            r3[:t], rest = rest[:t], rest[t:]
        if self._offline:
            r1[:t] = rest[:t]
            c0 = rest[t:] * self._c0_scale()
            m["C0"][t, :size] = m["C0"][:size, t] = c0
        weight_norm, own_push = self._push(c3, drift)
        product = self._diagonal(own_push)
        learned = self._learned(product)
        r3[t] = 1 - learned / self._features
        r1[t] = 1 - learned / self._samples
        self._modes_row(r3, r1)
        self._response_rows()
        node = self._loss_row()
        growth = own_push / self._own
        grid_test = float(node.sum())
        grid_train = self._train() if self._offline else grid_test
        missing, train = self._correction(grid_train, growth)
        self._second_row()
        new_drift = -missing / growth
        extra = missing * self._trace_weights / self._trace_weights.sum()
        self._row = Unknowns(
            grid_test + missing, train, node + extra, weight_norm, growth, float(m["C3"][t, t]), 0.0, missing
        )
        self._drift = new_drift
        parts = [m["C3"][t, :size] / self._scale, np.array([new_drift * self._richness * self._own])]
        if self._finite_features:
            parts.append(m["R3"][t, :t])
        if self._offline:
            parts += [m["R1"][t, :t], m["C0"][t, :size] / self._c0_scale()]
        return np.concatenate(parts)

    def _push(self, c3: np.ndarray, drift: float) -> tuple[float, float]:
        """Rows of H^w, P and G; C_w(t, t) and G(t, t)."""
        t, m, own, richness = self.count, self._m, self._own, self._richness
        size = t + 1
        weights = np.append(self._weights[:t], own)
        fed = self._fed[:size] + own * np.append((weights[:t] * c3[:t]) @ m["Hw"][:t, :t], 0.0)
        row = (weights + richness * fed) / (1 - richness * own * (own * c3[t] + drift))
        m["Hw"][t, :size] = row
        m["P"][t, :size] = (weights * c3) @ m["Hw"][:size, :size] + drift * row
        m["C3"][t, :size] = m["C3"][:size, t] = c3
        correlation = m["Hw"][:size, :size] @ (m["C3"][:size, :size] @ row)
        m["G"][t, :size] = row + richness * weights * correlation
        return float(correlation[t]), float(m["G"][t, t])

    def _learned(self, product: float) -> float:
        rates = self._eigenvalues * product
        return float((self._counts * rates / (1 + rates)).sum())

    def _diagonal(self, push: float) -> float:
        """``G R3 R1`` on the diagonal: with ``d(x) = sum lambda x / (1 + lambda x)``, x = G (1 - d/P) (1 - d/N)."""
        if not (self._finite_features or self._offline):
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
        t, m = self.count, self._m
        size = t + 1
        drive = m["G"][t, :size]
        m["R3"][t, :size], m["R1"][t, :size] = r3, r1
        if self._finite_features:
            drive = drive[t] * r3 + np.append(drive[:t] @ m["R3"][:t, :t], 0.0)
        if self._offline:
            drive = drive[t] * r1 + np.append(drive[:t] @ m["R1"][:t, :t], 0.0)
        stage = self._stage[:size]
        mixed = ((drive * stage)[:t] @ self._H[:t].reshape(t, self._H[0].size)).reshape(-1, self._room)[:, :size]
        mixed = mixed + (drive * (1 - stage))
        row = -self._eigenvalues[:, None] * mixed
        row[:, t] = 1.0
        row /= (1 + self._eigenvalues * drive[t])[:, None]
        self._H[t, :, :size] = row
        self._ones[t] = row @ stage

    def _response_rows(self) -> None:
        t, m = self.count, self._m
        size = t + 1
        through = (self._trace_weights @ self._H[t, :, :size]) * self._stage[:size]
        m["S"][t, :size] = through @ m["G"][:size, :size]
        here = np.zeros(size)
        here[t] = 1.0
        if not self._offline:
            m["R1"][t, :size] = here
        else:
            into = m["S"][t, :size] @ m["R3"][:size, :size]
            m["R1"][t, :size] = self._with_diagonal(-into / self._samples, m["R1"], here)
        if not self._finite_features:
            m["R3"][t, :size] = here
        else:
            back = m["R1"][t, :size] @ m["S"][:size, :size] if self._offline else m["S"][t, :size]
            m["R3"][t, :size] = self._with_diagonal(-back / self._features, m["R3"], here)
        m["RR"][t, :size] = m["R3"][t, :size] @ m["R1"][:size, :size]

    def _with_diagonal(self, kernel: np.ndarray, known: np.ndarray, here: np.ndarray) -> np.ndarray:
        """Row t of ``[1 - kernel]^-1``, whose earlier rows are known."""
        t = self.count
        return (here + np.append(kernel[:t] @ known[:t, :t], 0.0)) / (1 - kernel[t])

    def _loss_row(self) -> np.ndarray:
        """What each node adds to the loss; with reused samples also row t of C0."""
        t, m = self.count, self._m
        size = t + 1
        stage, row = self._stage[:size], self._H[t, :, :size]
        if self._finite_features:
            pushed = m["G"][:size, :size] @ (m["C3"][:size, :size] @ m["G"][t, :size])
            m["X"][t, :size] = m["X"][:size, t] = stage * pushed / self._features
            self._through = (row * stage) @ m["X"][:size, :size]
        missing = -row
        missing[:, t] += 1.0
        kicked = missing * self._noise[:, :size]
        if self._offline:
            kicked = kicked + (missing * stage) @ m["C0"][:size, :size] / self._samples
        kicked *= self._counts[:, None]
        vectors = self._trace_weights[:, None] * self._through - kicked if self._finite_features else -kicked
        signal = self._eigenvalues * self._targets
        node = signal * self._ones[t] ** 2 + (vectors * row).sum(1) + kicked[:, t]
        if self._offline:
            whole = self._ones[:size] @ (signal * self._ones[t]) + self._through_modes(vectors) + kicked.sum(0)
            m["C0"][t, :size] = m["C0"][:size, t] = whole * stage
        return node

    def _through_modes(self, vectors: np.ndarray) -> np.ndarray:
        size = self.count + 1
        padded = np.zeros((vectors.shape[0], self._room))
        padded[:, :size] = vectors
        return self._H[:size].reshape(size, -1) @ padded.ravel()

    def _train(self) -> float:
        t, m = self.count, self._m
        row = m["R1"][t, : t + 1]
        kicks = self._trace_weights @ self._noise[:, : t + 1] / self._trace_weights.sum()
        return float(row @ m["C0"][: t + 1, : t + 1] @ row + self._samples * (row**2) @ kicks)

    def _second_row(self) -> None:
        """Rows of F and C3."""
        t, m = self.count, self._m
        size = t + 1
        stage, row = self._stage[:size], self._H[t, :, :size]
        carried = row * self._noise[:, :size]
        if self._offline:
            carried = carried + (row * stage) @ m["C0"][:size, :size] / self._samples
        if self._finite_features:
            carried = carried + self._eigenvalues[:, None] * self._through
        signal = self._eigenvalues**2 * self._targets
        second = stage * (self._ones[:size] @ (signal * self._ones[t]))
        if self._finite_features or self._offline or self._noise.any():
            second = second + self._through_modes(self._trace_weights[:, None] * carried)
        m["F"][t, :size] = m["F"][:size, t] = second
        third = m["RR"][:size, :size] @ (m["F"][:size, :size] @ m["RR"][t, :size])
        m["C3"][t, :size] = m["C3"][:size, t] = third

    def finish(self) -> Unknowns:
        """Keep the row."""
        t = self.count
        self._largest_drive = max(self._largest_drive, self._row.drive)
        self._weights[t] = self._later
        self._fed[: t + 1] += self._later * self._m["P"][t, : t + 1]
        self._kinds.append(self._kind())
        self.count += 1
        return self._row._replace(largest_drive=self._largest_drive)
