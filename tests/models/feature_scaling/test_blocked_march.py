"""Triangular systems shared by all modes, the march that is built on them, and what it says about its cost."""

import numpy as np
import pytest

from solvable import SGD, FeatureScaling
from solvable.models.feature_scaling import march_cost
from solvable.models.feature_scaling.blocked_march import memory
from solvable.models.feature_scaling.mode_quadrature import power_law_modes
from solvable.models.feature_scaling.resolvents import BLOCK, Resolvents
from solvable.models.feature_scaling.two_time import Descent, march
from solvable.numerics.cost import unlimited

SMALL = power_law_modes(1.5, 0.4, 24, 10.0)


def test_rows_of_the_resolvents_are_those_of_inverse_matrices() -> None:
    """Over several blocks, the last one unfinished, with empty rows as kicks make them."""
    generator, size, eigenvalues = np.random.default_rng(0), 2 * BLOCK + 7, np.array([2.0, 0.3, 1e-4])
    kernel = np.tril(generator.normal(size=(size, size))) / size
    kernel[::3] = 0
    np.fill_diagonal(kernel, np.abs(np.diagonal(kernel)))
    exact = np.linalg.inv(np.eye(size) + eigenvalues[:, None, None] * kernel)
    solver = Resolvents(eigenvalues, capacity=8)
    for t in range(size):
        row = solver.row(kernel[t, : t + 1])
        np.testing.assert_allclose(row, exact[:, t, : t + 1], atol=1e-13)
        solver.append(row)
    vectors = generator.normal(size=(3, size))
    np.testing.assert_allclose(solver.applied(vectors), np.einsum("kts,ks->t", exact, vectors), atol=1e-12)
    np.testing.assert_allclose(solver.from_left(vectors[0]), vectors[0] @ exact, atol=1e-12)


@pytest.mark.parametrize(
    ("plan", "exact_batch"),
    [
        (Descent(0.2, 0.5, features=16, batch=8, label_noise=0.1, momentum=0.4, nesterov=True), True),
        (Descent(0.2, 0.5, features=16, batch=4, samples=12, label_noise=0.1), False),
        (Descent(0.2, 0.5, features=16, batch=4, samples=12, sampling="epochs"), False),
        pytest.param(
            Descent(0.2, 0.5, features=16, batch=4, samples=12, sampling="cyclic"), False, marks=pytest.mark.slow
        ),
        pytest.param(Descent(np.linspace(0.2, 0.1, 40), 0.5, features=16), False, marks=pytest.mark.slow),
    ],
    ids=["momentum", "replacement", "epochs", "cyclic", "schedule"],
)
def test_products_of_matrices_give_what_the_compiled_march_gives(plan: Descent, exact_batch: bool) -> None:
    """Two programs for the same equations; one has the noise of random features as X, the other through C2."""
    steps = 40
    averages = np.tril(np.ones((steps, steps)))[[10, steps - 1]]
    averages /= averages.sum(1, keepdims=True)
    compiled, blocked = (
        march(SMALL, plan, steps, exact_batch=exact_batch, averages=averages, compiled=how) for how in (True, False)
    )
    for name, values in compiled._asdict().items():
        largest = np.max(np.abs(values))
        np.testing.assert_allclose(getattr(blocked, name), values, atol=1e-12 * largest, rtol=0, err_msg=name)


def test_work_of_hours_is_refused_with_what_takes_a_minute() -> None:
    model = FeatureScaling(1.5, 0.4, features=64, modes=50)
    training = SGD(0.1, batch_size=16)
    with pytest.raises(ValueError, match=r"per_decade = 2000 .*(days|hours).*per_decade = \d+ takes about a minute"):
        model.predict([10**5], training, solver="slot-march", per_decade=2000)
    with pytest.raises(ValueError, match=r"GiB, more than .*: \d+ steps take about a minute; .*slot-march"):
        model.predict([10**6], training)
    # What it offers takes a minute, and more does not.
    steps = march_cost.steps_within(60.0, 50, compiled=False)
    seconds = [march_cost.march_seconds(count, 50, compiled=False) for count in (steps, steps + 1)]
    assert seconds[0] <= 60
    assert seconds[1] > 60 or memory(steps + 1, 50) > march_cost.largest_memory(compiled=False)


def test_long_marches_are_refused_for_their_time_unless_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(march_cost, "free_memory", lambda: 1e15)
    with pytest.raises(ValueError, match=r"through 50000 steps would take about .*hours|days.*longer than 60 minutes"):
        march_cost.check_march(50_001, 50, compiled=False)
    with unlimited():
        march_cost.check_march(50_001, 50, compiled=False)


def test_an_accelerator_may_be_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """4000 steps of 90 nodes need 27 GiB compiled, more than a CPU gives and a fifth of a large accelerator."""
    with pytest.raises(ValueError, match="GiB, more than 8"):
        march_cost.check_march(4001, 90, compiled=True)
    monkeypatch.setattr(march_cost, "device_memory", lambda _: 139 * 2.0**30)
    monkeypatch.setattr(march_cost.jax, "default_backend", lambda: "gpu")
    march_cost.check_march(4001, 90, compiled=True)
