"""Errata whose evidence is an identity: each is checked on a small system, together with what the paper prints."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

LEARNING_RATE, RICHNESS = 0.05, 0.7


class Descent:
    """Gradient descent of eq. 4 of feature-scaling, on the population, with the fields of eq. 18 at every step."""

    def __init__(self, projection: np.ndarray, eigenvalues: np.ndarray, target: np.ndarray, steps: int) -> None:
        self.width = len(projection)
        self.eigenvalues, self.target = eigenvalues, target
        weights, features = np.zeros(self.width), projection.copy()
        kernel = projection.T @ projection / self.width
        names = ("w", "v0", "v2", "v3", "v4", "vw")
        fields: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for _ in range(steps):
            v0 = target - features.T @ weights / self.width
            v2 = eigenvalues * v0
            v3 = projection @ v2
            v4 = projection.T @ v3 / self.width
            for name, field in zip(names, (weights, v0, v2, v3, v4, projection.T @ weights / self.width), strict=True):
                fields[name].append(field)
            self.features = features
            weights, features = (
                weights + LEARNING_RATE * features @ v2,
                features + LEARNING_RATE * RICHNESS * np.outer(weights, v2 @ kernel),
            )
        self.w, self.v0, self.v2, self.v3, self.v4, self.vw = (np.array(fields[name]) for name in names)

    def past(self, field: np.ndarray, correlation: np.ndarray) -> np.ndarray:
        """Sum over s < t of correlation(t, s) field(s), for every t."""
        return np.tril(correlation, -1) @ field


@pytest.fixture(scope="module")
def narrow() -> Descent:
    rng = np.random.default_rng(0)
    eigenvalues = np.arange(1, 9) ** -1.5
    return Descent(rng.standard_normal((5, 8)), eigenvalues, rng.standard_normal(8), 40)


@pytest.fixture(scope="module")
def wide() -> Descent:
    """Orthogonal columns make A(0)ᵀA(0)/N the identity, which is the limit of infinite width exactly."""
    rng = np.random.default_rng(1)
    projection = np.sqrt(12) * np.linalg.qr(rng.standard_normal((12, 8)))[0]
    return Descent(projection, np.arange(1, 9) ** -1.5, rng.standard_normal(8), 40)


def test_feature_scaling_5_the_output_is_divided_by_the_width(narrow):
    inputs = np.random.default_rng(2).standard_normal((200_000, 8)) * np.sqrt(narrow.eigenvalues)
    features, weights = inputs @ narrow.features.T, narrow.w[-1]
    exact = narrow.v0[-1] @ (narrow.eigenvalues * narrow.v0[-1])
    squares = (inputs @ narrow.target - features @ weights / narrow.width) ** 2
    # 200,000 samples, fixed seed: a chance of 1e-6 to differ by five standard errors.
    assert abs(squares.mean() - exact) < 5 * squares.std() / np.sqrt(len(squares))
    printed = (inputs @ narrow.target - features @ weights) ** 2
    assert printed.mean() > 5 * exact


def test_feature_scaling_20_the_sum_is_over_earlier_weights(narrow):
    correlation = narrow.v3 @ narrow.v3.T / narrow.width
    change = np.diff(narrow.vw, axis=0) - LEARNING_RATE * narrow.v4[:-1]
    memory = LEARNING_RATE**2 * RICHNESS * narrow.past(narrow.vw, correlation)[:-1]
    np.testing.assert_allclose(change, memory, atol=1e-14)
    printed = LEARNING_RATE**2 * RICHNESS * narrow.vw * np.tril(correlation, -1).sum(1)[:, None]
    assert np.abs(printed[:-1] - change).max() > 0.5 * np.abs(change).max()


def test_feature_scaling_44_the_memory_has_the_square_of_the_learning_rate(wide):
    correlation = wide.v2 @ wide.v2.T
    for field, source in ((wide.vw, wide.eigenvalues * wide.v0), (wide.w, wide.v3)):
        change = np.diff(field, axis=0) - LEARNING_RATE * source[:-1]
        memory = LEARNING_RATE * RICHNESS * wide.past(field, correlation)[:-1]
        np.testing.assert_allclose(change, LEARNING_RATE * memory, atol=1e-14)
        assert np.abs(memory - change).max() > 10 * np.abs(change).max()


def test_feature_scaling_23_the_present_belongs_to_the_sum(wide):
    # At infinite width R3 is the identity and u4 vanishes (eq. 43): a sum over s < t would make v4 zero.
    np.testing.assert_allclose(wide.v4, wide.v2, atol=1e-13)
    assert np.abs(wide.v4).max() > 0.1


def flow(target: np.ndarray, eigenvalues: np.ndarray, times: np.ndarray, richness: float = RICHNESS) -> tuple:
    """The flow of the network itself at infinite width, A(0) the identity: w = A Λ v0, A' = γ w (Λ v0)ᵀ."""
    size = len(target)

    def rate(_: float, state: np.ndarray) -> np.ndarray:
        weights, features = state[:size], state[size:].reshape(size, size)
        v2 = eigenvalues * (target - features.T @ weights)
        return np.concatenate([features @ v2, richness * np.outer(weights, v2).ravel()])

    start = np.concatenate([np.zeros(size), np.eye(size).ravel()])
    states = solve_ivp(rate, (0, times[-1]), start, t_eval=times, method="DOP853", rtol=1e-12, atol=1e-14).y.T
    features = states[:, size:].reshape(-1, size, size)
    weights = states[:, :size]
    return weights, features, target - np.einsum("tij,ti->tj", features, weights)


def test_feature_scaling_45_errors_decay():
    eigenvalues, target = np.arange(1, 5) ** -1.5, np.array([1.0, -0.5, 0.3, 0.2])
    times = np.linspace(0, 3, 7)
    errors = flow(target, eigenvalues, times, richness=0.0)[2]
    np.testing.assert_allclose(errors, target * np.exp(-np.outer(times, eigenvalues)), rtol=1e-9)


def test_feature_scaling_53_the_loss_falls_at_twice_the_printed_rate():
    eigenvalues, target = np.arange(1, 5) ** -1.5, np.array([1.0, -0.5, 0.3, 0.2])
    step = 1e-4
    weights, features, errors = flow(target, eigenvalues, np.array([0.0, 1.0 - step, 1.0, 1.0 + step]))
    loss = (eigenvalues * errors**2).sum(1)
    # v0' = -M Λ v0 with M = AᵀA + γ|w|², which is what the flow of w and A gives.
    kernel = features[2].T @ features[2] + RICHNESS * weights[2] @ weights[2] * np.eye(4)
    gradient = eigenvalues * errors[2]
    form = gradient @ kernel @ gradient
    assert (loss[3] - loss[1]) / (2 * step) == pytest.approx(-2 * form, rel=1e-6)


def test_feature_scaling_63_the_kernel_grows_with_twice_gamma():
    eigenvalues, target = np.arange(1, 5) ** -1.5, np.array([1.0, -0.5, 0.3, 0.2])
    step = 1e-4
    weights, features, errors = flow(target, eigenvalues, np.array([0.0, 1.0 - step, 1.0, 1.0 + step]))
    kernel = np.einsum("tij,tik->tjk", features, features) + RICHNESS * np.einsum(
        "ti,ti,jk->tjk", weights, weights, np.eye(4)
    )
    learned, gradient = target - errors[2], eigenvalues * errors[2]
    spike = RICHNESS * (np.outer(learned, gradient) + np.outer(gradient, learned))
    growth = (kernel[3] - kernel[1]) / (2 * step) - spike
    np.testing.assert_allclose(growth, 2 * RICHNESS * learned @ gradient * np.eye(4), atol=1e-6)


def test_layerwise_1_28_parameters_turn_by_the_transpose():
    rng = np.random.default_rng(3)
    turn, weights = np.linalg.qr(rng.standard_normal((4, 4)))[0], rng.standard_normal(4)
    modes = rng.standard_normal((4, 50))  # sqrt(rho_k) e_k(x)
    output = weights @ (turn @ modes)
    np.testing.assert_allclose(turn.T @ weights @ modes, output, atol=1e-13)
    assert np.abs(turn @ weights @ modes - output).max() > 0.1


def test_layerwise_b_8_has_a_rate_too_many():
    a, b, strength, rate = 0.1, 0.1, 5.0, 0.05
    slope_a, slope_b = -rate * b * (a * b - strength), -rate * a * (a * b - strength)
    assert slope_a * b + a * slope_b == pytest.approx(-rate * (a**2 + b**2) * (a * b - strength))
    assert -rate * slope_a * b + a * slope_b == pytest.approx(0.475 * (slope_a * b + a * slope_b))


def test_layerwise_b_30_and_b_41_a_skill_from_few_samples():
    rng = np.random.default_rng(4)
    copies, samples, strength = 6, 3, 5.0
    features = rng.standard_normal((copies, samples))
    target = np.full(copies, strength / np.sqrt(copies))
    a, vector = 0.05, 0.05 * rng.standard_normal(copies)

    def rate(_: float, state: np.ndarray) -> np.ndarray:
        residual = features @ (features.T @ (state[1:] * state[0] - target)) / samples
        return -np.concatenate([[residual @ state[1:]], residual * state[0]])

    end = solve_ivp(rate, (0, 200), np.concatenate([[a], vector]), method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    basis = np.linalg.svd(features, full_matrices=False)[0]
    outside = np.eye(copies) - basis @ basis.T
    np.testing.assert_allclose(outside @ end[1:] * end[0], outside @ vector * end[0], atol=1e-10)
    assert np.linalg.norm(outside @ end[1:] * end[0]) > 20 * np.linalg.norm(outside @ vector * a)
    # The bound of B.30 holds for the transpose; the printed product has no meaning unless copies equal samples.
    difference = rng.standard_normal(copies)
    smallest = np.linalg.svd(features, compute_uv=False)[-1] ** 2
    assert np.sum((features.T @ difference) ** 2) >= smallest * np.sum((basis @ basis.T @ difference) ** 2)


def test_layerwise_the_third_corner_of_the_triangle():
    corners = np.eye(3) - 1 / 3
    np.testing.assert_allclose(corners[0], [2 / 3, -1 / 3, -1 / 3])
    lengths = [np.linalg.norm(corners[i] - corners[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    np.testing.assert_allclose(lengths, np.sqrt(2))
    printed = np.array([2 / 3, -1 / 3, -2 / 3])
    assert np.linalg.norm(printed - corners[2]) == pytest.approx(5 / 3)
