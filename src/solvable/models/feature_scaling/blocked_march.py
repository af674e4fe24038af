"""The march of :mod:`solvable.models.feature_scaling.two_time` on a CPU, at the speed of its matrix products.

The equations are the same. With ``F = R1^-1 C2 R1^-T``, which the march keeps in any case, the identity
``lambda_k H_k G = (1 - H_k) (R3 R1)^-1`` turns the noise of the random features into one more noise of the form of the
others, ``lambda_k^2 H_k X H_k^T = (1 - H_k) F (1 - H_k)^T / N``, so that

    C0 = sum_k lambda_k w_k^2 (H_k 1)(H_k 1)^T + (1 - H_k) [W + F / (N lambda_k)] (1 - H_k)^T
    F  = sum_k lambda_k^2 w_k^2 (H_k 1)(H_k 1)^T + (1 - H_k) F (1 - H_k)^T / N + lambda_k H_k W H_k^T

and ``X`` is not needed. All ``H_k = (1 + lambda_k K)^-1`` share ``K = G R3 R1``, whose triangular systems are solved in
blocks (:mod:`solvable.models.feature_scaling.resolvents`): no ``H_k`` is kept, memory is a dozen matrices over the
steps, and nothing is compiled. Each row costs ``4 nodes t^2`` operations in products of matrices, and eight products of
a matrix and a vector.
"""

import numpy as np
from jaxtyping import Float

from solvable.models.feature_scaling.march_problem import Kinds, Numbers, Solution, StepPlan
from solvable.models.feature_scaling.resolvents import BLOCK, Resolvents
from solvable.progress import progress_bar

# Matrices over all steps that are kept, and those over nodes and steps (in blocks, the latter once).
_MATRICES, _VECTORS = 13, BLOCK + 8


def memory(steps: int, nodes: int) -> float:
    """Bytes that the march takes at its peak."""
    return 8.0 * steps * (_MATRICES * steps + _VECTORS * nodes)


def operations(steps: int, nodes: int) -> float:
    """Multiplications and additions in products of matrices, with finite features and batches."""
    return 4 / 3 * nodes * float(steps) ** 3


def blocked_march(
    nodes: tuple[np.ndarray, ...],
    numbers: Numbers,
    plan: StepPlan,
    kinds: Kinds,
    averages: Float[np.ndarray, "average time"] | None = None,
    progress: bool | None = False,
) -> Solution:
    """As :func:`solvable.models.feature_scaling.two_time.march`, for numbers that JAX does not trace."""
    rows = _Rows(nodes, numbers, plan, kinds)
    steps = rows.steps
    # A training that diverges ends in infinities, which the caller looks for.
    quiet = np.errstate(over="ignore", invalid="ignore")
    with quiet, progress_bar("marching", float(steps) ** 3, progress) as advance:
        for step in range(steps):
            rows.add()
            advance(float(step + 1) ** 3 - float(step) ** 3)
            if not np.isfinite(rows.train_loss[step]):
                rows.diverge(step)
                break
    solution = rows.solution()
    return solution if averages is None else solution._replace(averaged_loss=rows.averaged_loss(averages))


class _Rows:
    """The two-time functions so far: matrices over the steps, named as in :class:`two_time.Rows`."""

    def __init__(self, nodes: tuple[np.ndarray, ...], numbers: Numbers, plan: StepPlan, kinds: Kinds) -> None:
        self._eigenvalues, self._counts, self._targets = (np.asarray(value, float) for value in nodes)
        self._richness, self._features, self._samples, self._label_noise, self._per_epoch = (
            float(value) for value in numbers
        )
        readout, features, kept = (np.asarray(value, float) for value in plan.kernels)
        self._readout, self._feature_moves, self._kept = readout, features, kept
        self._inverse_batch = np.asarray(plan.inverse_batch, float)
        self._kinds = kinds
        self.steps, size = readout.shape[0], self._eigenvalues.size
        # Where a step moves the weights once and for all, the response of the readout is a running sum.
        below = np.tril(readout[1:, :-1] - readout[:-1, :-1], -1)
        self._running = not below.any()
        self._modes = Resolvents(self._eigenvalues, self.steps)
        square = (self.steps, self.steps)
        self.weight_response, self.weight_correlation, self.feedback = (np.zeros(square) for _ in range(3))
        self.push, self.feature_response, self.readout_response = (np.zeros(square) for _ in range(3))
        self.batch_correlation, self.drive_correlation = np.zeros(square), np.zeros(square)
        self.error_correlation = np.zeros(square)
        self.mode_response = self.sample_response = self.joint_response = self.sample_noise = np.zeros((0, 0))
        self.unseen_correlation = np.zeros((0, 0))
        if kinds.samples:
            self.mode_response, self.sample_response, self.joint_response = (np.zeros(square) for _ in range(3))
            self.sample_noise = np.zeros(square)
            if kinds.sampling == "epochs":
                self.unseen_correlation = np.zeros(square)
        else:
            self.joint_response = self.feature_response
        self.mode_decay, self.node_loss = np.zeros((self.steps, size)), np.zeros((self.steps, size))
        self.batch_noise = np.zeros((size if kinds.exact_batch else 1, self.steps))
        self.train_loss = np.zeros(self.steps)
        steps = np.arange(self.steps)
        self._epoch = np.floor((steps + 0.5) / self._per_epoch)
        self._place = np.round(steps - self._epoch * self._per_epoch)

    def add(self) -> None:
        """The next row, from those that are known."""
        t, known = self._modes.count, slice(0, self._modes.count)
        now = slice(0, t + 1)
        lam, counts = self._eigenvalues, self._counts
        row = self._push_row(t)
        drive = row @ self.feature_response[known, known] if self._kinds.features else row
        drive = drive @ self.sample_response[known, known] if self._kinds.samples else drive
        modes = self._modes.row(np.append(drive, 0.0))
        self.mode_decay[t] = modes.sum(1)
        through = ((lam * counts) @ modes) @ self.push[now, now]
        self._response_rows(t, through)
        # 1 - H_k, whose row t begins on the left of the diagonal.
        missing = -modes[:, :t]
        carried = None
        if self._kinds.features:
            # Correlations are symmetric: as the first factor they make the faster product.
            carried = (counts / self._features)[:, None] * (self.batch_correlation[known, known] @ missing.T).T
        self._loss_row(t, missing, carried)
        self._second_row(t, modes, carried)
        self._drive_row(t)
        self._modes.append(modes)

    def _push_row(self, t: int) -> np.ndarray:
        """Rows t of H^w, C_w and G, the last one returned."""
        known = slice(0, t)
        if self._running and t:
            row = self.weight_response[t - 1, :t] + self._readout[t, t - 1] * self.feedback[t - 1, :t]
        else:
            row = self._readout[t, :t] @ self.feedback[known, known]
        self.weight_response[t, :t] = row
        correlation = self.weight_response[: t + 1, :t] @ (self.drive_correlation[known, known] @ row)
        self.weight_correlation[t, : t + 1] = self.weight_correlation[: t + 1, t] = correlation
        push = self._kept[t] * row + self._richness * self._feature_moves[t, :t] * correlation[:t]
        self.push[t, :t] = push
        return push

    def _response_rows(self, t: int, through: np.ndarray) -> None:
        """Rows t of S, R1, -R1 S, R3 and R3 R1."""
        known, now = slice(0, t), slice(0, t + 1)
        here = np.zeros(t + 1)
        here[t] = 1.0
        back = -through
        if self._kinds.samples:
            self.mode_response[t, now] = through
            self._into = self._into_samples(t)
            moved = (self._seen_before(t)[:t] * self._into[:t]) @ self.sample_response[known, known]
            self.sample_response[t, now] = here
            self.sample_response[t, :t] -= moved
            back = -(self.sample_response[t, now] @ self.mode_response[now, now])
        self.readout_response[t, now] = back
        self.feature_response[t, now] = here
        if self._kinds.features:
            self.feature_response[t, :t] += back[:t] @ self.feature_response[known, known] / self._features
        if self._kinds.samples:
            joint = self.feature_response[t, now] @ self.sample_response[now, now]
            self.joint_response[t, now] = joint

    def _into_samples(self, t: int) -> np.ndarray:
        """Row t of S R3."""
        row = self.mode_response[t, : t + 1]
        return np.append(row[:t] @ self.feature_response[:t, :t], 0.0) if self._kinds.features else row

    def _seen_before(self, t: int) -> np.ndarray:
        """Row t of M: how much the samples of this step were seen at each earlier one."""
        epoch, place = self._epoch[: t + 1], self._place[: t + 1]
        if self._kinds.sampling == "epochs":
            return (epoch != epoch[t]) / self._samples
        if self._kinds.sampling == "cyclic":
            return (place == place[t]) * self._per_epoch / self._samples
        return np.full(t + 1, 1 / self._samples)

    def _loss_row(self, t: int, missing: np.ndarray, carried: np.ndarray | None) -> None:
        """Row t of C0 (without reused samples its diagonal only), and the noise that the losses make at t."""
        lam, known = self._eigenvalues, slice(0, t)
        reused = self._kinds.samples
        kicked = (self.sample_noise[known, known] @ missing.T).T if reused else missing * self.batch_noise[:, :t]
        kicked *= self._counts[:, None]
        if carried is not None:
            kicked += carried / lam[:, None]
        signal = lam * self._targets
        node = signal * self.mode_decay[t] ** 2 + np.einsum("ks,ks->k", kicked, missing)
        self.node_loss[t], loss = node, node.sum()
        self.error_correlation[t, t] = loss
        if self._kinds.samples:
            whole = self.mode_decay[known] @ (signal * self.mode_decay[t])
            whole += kicked.sum(0) - self._modes.applied(kicked)
            self.error_correlation[t, :t] = self.error_correlation[:t, t] = whole
            self._sample_noise_row(t)
            return
        noise = loss + self._label_noise
        if self._kinds.exact_batch:
            counted = self._counts > 0
            noise = noise + np.where(counted, node / np.where(counted, self._counts, 1.0), 0.0)
        self.train_loss[t] = loss
        self.batch_noise[:, t] = noise * self._inverse_batch[t] if self._kinds.batch else 0.0

    def _sample_noise_row(self, t: int) -> None:
        """Row t of C1 and W, and the training loss."""
        now, samples, sampling = slice(0, t + 1), self._samples, self._kinds.sampling
        here = np.zeros(t + 1)
        here[t] = 1.0
        noisy = self.error_correlation[now, now] + self._label_noise
        response = self.sample_response[t, now]
        moved = response - here
        excess = samples * self.sample_noise[now, now] - noisy
        # How the error on any one sample differs from that on a new one.
        total = moved
        if sampling != "replacement":
            total = -self._into @ self.sample_response[now, now] / samples
        train = (here + total) @ noisy @ (here + total) + total @ excess @ total
        noise = (self._seen_before(t) if sampling == "cyclic" else 1 / samples) * noisy[t]
        if sampling == "epochs":
            responses = self.sample_response[now, now]
            other = excess @ moved
            unseen = responses @ (noisy @ response) + responses @ other - other
            epoch = self._epoch[now]
            noise = noise - (epoch == epoch[t]) * unseen / samples + here * unseen[t] * self._inverse_batch[t]
            self.unseen_correlation[t, now] = self.unseen_correlation[now, t] = unseen
        elif sampling == "replacement" and self._kinds.batch:
            noise = noise + here * train * self._inverse_batch[t]
        self.train_loss[t] = train
        self.sample_noise[t, now] = self.sample_noise[now, t] = noise

    def _second_row(self, t: int, modes: np.ndarray, carried: np.ndarray | None) -> None:
        """Row t of F."""
        now, lam = slice(0, t + 1), self._eigenvalues
        second = self.mode_decay[now] @ (lam**2 * self._targets * self.mode_decay[t])
        if self._kinds.samples or self._kinds.batch:
            noise = self.sample_noise[now, now] if self._kinds.samples else None
            vectors = (noise @ modes.T).T if noise is not None else modes * self.batch_noise[:, now]
            vectors *= (lam * self._counts)[:, None]
            second[t] += np.einsum("ks,ks->", modes, vectors)
            if carried is not None:
                vectors[:, :t] -= carried
        elif carried is not None:
            vectors = -carried
        else:
            vectors = None
        if carried is not None:
            second[:t] += carried.sum(0)
            second[t] -= np.einsum("ks,ks->", carried, modes[:, :t])
        if vectors is not None:
            second[:t] += self._modes.applied(vectors)
        self.batch_correlation[t, now] = self.batch_correlation[now, t] = second

    def _drive_row(self, t: int) -> None:
        """Rows t of C3 and of what the learned features feed back to the readout."""
        now = slice(0, t + 1)
        joint = self.joint_response
        third = joint[now, now] @ (self.batch_correlation[now, now] @ joint[t, now])
        self.drive_correlation[t, now] = self.drive_correlation[now, t] = third
        moved = self._feature_moves[t, :t] * third[:t]
        self.feedback[t, :t] = self._richness * (moved @ self.weight_response[:t, :t])
        self.feedback[t, t] = self._kept[t]

    def diverge(self, step: int) -> None:
        """Mark what comes from this step on as unknown."""
        self.train_loss[step:] = self.node_loss[step:] = self.error_correlation[step:] = np.nan

    def solution(self) -> Solution:
        second = self.batch_correlation
        if self._kinds.samples:
            second = self.sample_response @ second @ self.sample_response.T
        return Solution(
            np.diagonal(self.error_correlation),
            self.train_loss,
            self.node_loss,
            self.weight_correlation,
            second,
            self.drive_correlation,
            self.error_correlation,
            self.feature_response,
            self.readout_response,
            np.tril(self._modes.kernel[: self.steps, : self.steps], -1),
        )

    def averaged_loss(self, averages: Float[np.ndarray, "average time"]) -> Float[np.ndarray, "average"]:
        """Test loss of averaged weights, as :func:`solvable.models.feature_scaling.two_time._averaged_loss` has it."""
        lam = self._eigenvalues
        response = averages @ self.weight_response
        correlation = response @ self.drive_correlation @ self.weight_response.T
        moves = averages @ self._feature_moves
        push = (averages @ self._kept)[:, None] * response + self._richness * moves * correlation
        losses = []
        for own in push:
            moved = self._modes.from_left(own @ self.joint_response)
            decay = 1 - lam * moved.sum(1)
            noise = moved @ self.sample_noise if self._kinds.samples else moved * self.batch_noise
            variance = lam * (noise * moved).sum(1)
            if self._kinds.features:
                left = own - lam[:, None] * (moved @ self.push)
                variance += ((left @ self.drive_correlation) * left).sum(1) / self._features
            losses.append((lam * (self._targets * decay**2 + self._counts * variance)).sum())
        return np.array(losses)
