"""The committee: its solvers against each other and against simulation, its summaries, and bad input."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

import solvable
from solvable import Committee, activations, compare, solvers, teachers
from solvable.models.committee.checks import find_jump

TIMES = np.array([0.0, 0.4, 1.0, 2.0, 4.0])


def _scores(theory, other, names=("train_loss", "test_loss", "alignment", "overlap")):
    """Differences of two theories in units of both errors."""
    parts = []
    for name in names:
        error = np.hypot(theory[f"{name}_error"].values, other[f"{name}_error"].values)
        difference = (theory[name] - other[name]).values
        parts.append((difference[error > 0] / error[error > 0]).ravel())
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def model():
    return Committee(step=0.2)


@pytest.fixture(scope="module")
def latent(model):
    return model.predict(TIMES, solver=solvers.Latent(samples=4096), correlations=True)


def test_the_response_functions_lead_to_the_same_curves(model, latent):
    # Another route to every number: derivatives along paths, no averages with latents. Two sets of four scrambles each,
    # about ten independent numbers: 4.5 with so few scrambles is passed by chance once in some hundred tests.
    response = model.predict(TIMES, solver=solvers.Response(samples=1024), correlations=True)
    scores = _scores(latent, response)
    assert np.abs(scores).max() < 4.5
    assert np.sqrt(np.mean(scores**2)) < 2
    names = ("weight_correlation", "gradient_correlation")
    assert np.sqrt(np.mean(_scores(latent, response, names) ** 2)) < 2.5


def test_two_times_contain_equal_times(latent):
    diagonal = np.einsum("ttij->tij", latent.weight_correlation.values)
    np.testing.assert_allclose(diagonal, latent.overlap.values, rtol=1e-12)
    correlation = latent.gradient_correlation.values
    np.testing.assert_allclose(correlation, np.einsum("tsij->stji", correlation), atol=1e-12)
    # For gradient_readout 1 the mean squared signal at the start is <phi'^2 Delta^2>, positive and symmetric.
    assert (np.linalg.eigvalsh(correlation[0, 0]) > 0).all()


def test_many_samples_give_the_online_limit():
    model = Committee(step=0.2, samples_per_dimension=2000.0)
    finite = model.predict(TIMES, solver=solvers.Latent(samples=8192, scrambles=2))
    online = model.replace(samples_per_dimension=np.inf).predict(TIMES)
    # The approach is as 1/gamma, with a constant near 10 where the loss falls; sampling adds 1 %.
    for name in ("test_loss", "alignment", "overlap"):
        np.testing.assert_allclose(finite[name], online[name], rtol=0.03, atol=0.01)


def test_short_steps_give_the_flow():
    times = [0.4, 2.0]
    model = Committee(step=0.02)
    flow = model.predict(times, solver=solvers.Flow(samples=4096, scrambles=2), key=1)
    for step, allowed in ((0.1, 0.06), (0.02, 0.013)):
        descent = model.replace(step=step).predict(times, solver=solvers.Latent(samples=4096, scrambles=2), key=1)
        # First order in the step: the training loss falls by up to 60 % of the step faster.
        np.testing.assert_allclose(descent.train_loss, flow.train_loss, rtol=allowed)
    assert (
        abs(
            model.replace(step=0.2)
            .predict(times, solver=solvers.Latent(samples=4096, scrambles=2), key=1)
            .train_loss.values[0]
            / flow.train_loss.values[0]
            - 1
        )
        > 0.02
    )


@pytest.mark.slow
def test_adaptive_and_geometric_grids_agree():
    model = Committee()
    results = [
        model.predict([1.0, 5.0], solver=solvers.Flow(samples=2048, scrambles=2, grid=grid))
        for grid in ("geometric", "adaptive")
    ]
    for name in ("train_loss", "test_loss"):
        np.testing.assert_allclose(results[0][name], results[1][name], rtol=0.02)
    assert json.loads(results[0].attrs["solver"])["evaluations"] > 0


@pytest.mark.parametrize("decay", [0.3, pytest.param(0.0, marks=pytest.mark.slow)])
def test_theory_meets_simulation(decay):
    # 40 datasets at D = 150. Scores of one order parameter at several times go together; 3.8 is passed once in about
    # 500 such tests.
    model = Committee(step=0.2, weight_decay=decay)
    times = [1.0, 3.0, 6.0]
    theory = model.predict(times, solver=solvers.Latent(samples=8192), kernel_alignment=True)
    simulation = model.simulate(times, dimension=150, seeds=40)
    comparison = compare(theory, simulation)
    for name in ("train_loss", "test_loss", "alignment", "overlap", "kernel_alignment"):
        scores = comparison[name].sel(statistic="z_score").values
        assert np.abs(scores).max() < 3.8, (name, scores)
    if decay:
        # Without the decay the same curves are many standard errors away.
        other = compare(model.replace(weight_decay=0.0).predict(times), simulation, allow_different=["weight_decay"])
        assert np.abs(other.overlap.sel(statistic="z_score").values).max() > 10


@pytest.mark.slow
def test_a_kinked_student_of_two_index_fields_meets_simulation():
    signs = np.array([1.0, -1.0]) / np.sqrt(2)
    model = Committee(
        samples_per_dimension=3.0,
        activation=activations.relu,
        teacher=lambda one, other: (jnp.tanh(one) - jnp.tanh(other)) / np.sqrt(2),
        initial_alignment=0.2 * np.eye(2),
        initial_overlap=np.eye(2),
        step=0.6,
        readout=signs,
        gradient_readout=signs,
    )
    times = np.array([1, 6, 20]) * 0.6
    comparison = compare(
        model.predict(times, solver=solvers.Latent(samples=8192)), model.simulate(times, dimension=120, seeds=80)
    )
    for name in ("train_loss", "alignment", "overlap"):
        assert np.abs(comparison[name].sel(statistic="z_score").values).max() < 3.8, name


def test_the_loss_gap_is_the_leading_order_in_one_over_gamma():
    # Eq. 18: right at large gamma, far too small at small gamma, and the same by both routes.
    ratios = {}
    for gamma in (100.0, 2.0):
        gap = Committee(step=0.2, samples_per_dimension=gamma).loss_gap([0.0, 0.4, 2.0])
        difference = (gap.test_loss - gap.train_loss).values
        # At time zero both losses are the same: what they differ by is sampling, and stays a share of the loss.
        sampling = difference[0] * (gap.train_loss / gap.train_loss[0]).values
        ratios[gamma] = (difference - sampling)[1:] / gap.loss_gap.values[1:]
    np.testing.assert_allclose(ratios[100.0], 1, atol=0.1)
    assert ratios[2.0][1] > 1.4
    other = Committee(step=0.2).loss_gap([0.4, 2.0], solver=solvers.Response(samples=1024))
    here = Committee(step=0.2).loss_gap([0.4, 2.0])
    np.testing.assert_allclose(here.loss_gap, other.loss_gap, rtol=0.05)


def test_accuracy_raises_the_samples_until_it_is_met():
    model = Committee(step=0.2)
    rough = model.predict([1.0], solver=solvers.Latent(samples=256))
    fine = model.predict([1.0], solver=solvers.Latent(samples=256), accuracy=0.01)
    assert rough.attrs["numerical_error"] > 0.01 >= fine.attrs["numerical_error"]
    assert json.loads(fine.attrs["solver"])["solver"].count("samples=256,") == 0
    assert fine.attrs["accuracy_reached"] == "True"


def test_accuracy_that_cannot_be_had_is_said():
    model = Committee(step=0.2)
    small = solvers.Latent(samples=256, memory_limit=3e6)
    with pytest.warns(UserWarning, match="accuracy 1e-05 not reached, only .*lower samples"):
        result = model.predict([1.0], solver=small, accuracy=1e-5)
    assert result.attrs["accuracy_reached"] == "False"
    assert np.isfinite(result.train_loss).all()


def test_divergence_names_its_time_and_a_stable_step():
    model = Committee(step=3.0)
    with pytest.raises(ValueError, match=r"diverged at time [\d.]+ with step = 3: a step below [\d.e+-]+ is stable"):
        model.predict(np.arange(0, 120, 3), solver=solvers.Latent(samples=512, scrambles=2))
    kept = model.predict(np.arange(0, 120, 3), solver=solvers.Latent(samples=512, scrambles=2), keep_diverged=True)
    assert kept.attrs["diverged_at"] > 0
    finite = np.isfinite(kept.train_loss.values)
    assert finite[0]
    assert not finite[-1]
    assert not finite[np.argmin(finite) :].any()
    # Also where nothing was recorded before.
    with pytest.raises(ValueError, match="diverged at time"):
        model.predict([600.0], solver=solvers.Latent(samples=512, scrambles=2))
    none = model.predict([600.0], solver=solvers.Latent(samples=512, scrambles=2), keep_diverged=True)
    assert np.isnan(none.test_loss.values).all()


def test_the_stable_step_is_stable():
    model = Committee(step=3.0)
    try:
        model.predict(np.arange(0, 120, 3), solver=solvers.Latent(samples=512, scrambles=2))
    except ValueError as error:
        stable = float(str(error).split("a step below ")[1].split(" ")[0])
    calm = model.replace(step=0.9 * stable)
    result = calm.predict(np.arange(0, 41, 5) * calm.step, solver=solvers.Latent(samples=512, scrambles=2))
    assert result.train_loss.values[-1] < result.train_loss.values[0]


def test_the_kernel_is_that_of_the_network():
    model = Committee(output_scale=0.7)
    rng = np.random.default_rng(0)
    inputs, other, weights = rng.normal(size=(3, 5)), rng.normal(size=(4, 5)), rng.normal(size=(2, 5))

    def network(at, x):
        return 0.35 * jnp.sum(activations.quadratic(0.5)(at @ x))

    import jax

    gradients = [jax.vmap(lambda x: jax.grad(network)(weights, x).ravel())(jnp.asarray(x)) for x in (inputs, other)]
    np.testing.assert_allclose(model.kernel(inputs, other, weights), gradients[0] @ gradients[1].T, rtol=1e-12)
    # The printed kernel, (1/N) sum phi' phi' x.x', lacks alpha^2 / N.
    slopes = [1 + 0.5 * x @ weights.T for x in (inputs, other)]
    printed = (slopes[0] @ slopes[1].T / 2) * (inputs @ other.T)
    np.testing.assert_allclose(model.kernel(inputs, other, weights), 0.7**2 / 2 * printed, rtol=1e-12)
    # Without weights those of the start: |w|^2 = C_11 D, w . beta = A D with beta = sqrt(D) e_1.
    start = np.sqrt(5) * np.array([[0.3, np.sqrt(1 - 0.09), 0, 0, 0]])
    one = Committee(initial_alignment=[[0.3]], initial_overlap=[[1.0]])
    np.testing.assert_allclose(one.kernel(inputs, other), one.kernel(inputs, other, start), rtol=1e-12)
    with pytest.raises(ValueError, match="weights must have 2 rows"):
        model.kernel(inputs, other, rng.normal(size=(3, 5)))


def test_recovered_weights_have_no_loss():
    model = Committee(output_scale=0.5, activation=activations.quadratic(0.25), step=0.01)
    there = model.recovery()
    at = model.replace(initial_alignment=there.alignment.values, initial_overlap=there.overlap.values)
    still = at.predict([0.0, 0.1], solver=solvers.Latent(samples=1024, scrambles=2))
    np.testing.assert_allclose(still.train_loss, 0, atol=1e-12)
    np.testing.assert_allclose(still.test_loss, 0, atol=1e-10)
    np.testing.assert_allclose(still.alignment.values[1], there.alignment.values, rtol=1e-6)


def test_the_early_rate_is_that_of_eq_19():
    # 3 eps / 2 as alpha goes to 0, less the decay.
    model = Committee(activation=activations.quadratic(0.1), output_scale=1e-3, initial_overlap=np.eye(2))
    assert model.early_alignment_rate() == pytest.approx(0.15, rel=2e-3)
    assert model.replace(weight_decay=0.05).early_alignment_rate() == pytest.approx(0.10, rel=2e-3)


def test_names_and_functions_are_the_same():
    by_name = Committee(activation="quadratic(0.5)", teacher="square")
    assert by_name.task.activation == activations.quadratic(0.5)
    assert by_name.task.teacher == teachers.square()
    fields = [Committee(activation=name).activation for name in ("relu", "tanh", "erf", "linear")]
    assert [repr(field) for field in fields[:3]] == ["relu", "tanh", "erf"]
    # Teachers may take their fields one by one or as a vector.
    start = {"initial_alignment": 0.1 * np.eye(2), "initial_overlap": np.eye(2)}
    one = Committee(teacher=lambda a, b: a * b, **start)
    two = Committee(teacher=lambda h: h[0] * h[1], **start)
    fields = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7)))
    np.testing.assert_array_equal(one.task.target(fields), two.task.target(fields))


def test_it_is_public_and_carries_its_provenance(latent):
    assert solvable.Committee is Committee
    assert solvable.models.get("committee") is Committee
    parameters = json.loads(latent.attrs["parameters"])
    assert parameters["samples_per_dimension"] == 2.0
    assert "0x" not in latent.attrs["parameters"]
    assert "peak_bytes" in json.loads(latent.attrs["solver"])
    for name in latent.data_vars:
        assert latent[name].attrs["long_name"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples_per_dimension": 0.0}, "samples_per_dimension must be a positive number"),
        ({"samples_per_dimension": -1.0}, "samples_per_dimension"),
        ({"step": 0.0}, "step must be a positive"),
        ({"initial_overlap": [[1.0, 2.0], [2.0, 1.0]]}, "positive definite, but has the eigenvalue -1"),
        ({"initial_overlap": [[1.0, 0.1], [0.3, 1.0]]}, "symmetric"),
        ({"initial_alignment": [[1.5], [0.0]]}, "shorter than their part along the index"),
        ({"initial_alignment": [[0.1], [0.0], [0.0]]}, "one row a neuron"),
        ({"readout": [1.0, 2.0, 3.0]}, "readout must have one number a neuron, 2 in all, not 3"),
        ({"activation": lambda h: jnp.sign(h)}, "continuous, but jumps near"),
        ({"activation": lambda h: jnp.array([h, h])}, "one number for one number"),
        ({"activation": lambda h: jnp.log(h)}, "must be finite"),
        ({"activation": "gelu"}, "no activation is named 'gelu'; there are relu"),
        ({"teacher": "cube"}, "no teacher is named 'cube'"),
        ({"teacher": lambda a, b, c: a}, "function of 1 index field"),
        ({"teacher": 3.0}, "teacher must be a function"),
        ({"weight_decay": -0.1}, "weight_decay"),
    ],
)
def test_bad_parameters_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        Committee(**changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": [0.15]}, "whole numbers of steps of 0.1"),
        ({"solver": "exact"}, "solver must be one of latent"),
        ({"solver": 3}, "one of solvable.solvers"),
        ({"accuracy": 2.0}, "accuracy must lie between 0 and 1"),
        ({"solver": solvers.Online(), "kernel_alignment": True}, "Online gives losses"),
        ({"solver": solvers.Response(samples=64), "kernel_alignment": True}, "Latent or Flow"),
        ({"times": [1.0, 0.5]}, "increase"),
        ({"key": -1}, "key"),
        ({"responses": True}, "Response"),
    ],
)
def test_bad_requests_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        Committee().predict(options.pop("times", [0.1]), **options)


def test_the_online_limit_is_for_its_own_solver():
    with pytest.raises(ValueError, match="online limit, use Online"):
        Committee(samples_per_dimension=np.inf).predict([1.0], solver=solvers.Latent())
    with pytest.raises(ValueError, match="positive finite number to simulate"):
        Committee(samples_per_dimension=np.inf).simulate([1.0], dimension=20, seeds=1)


@pytest.mark.parametrize("solver", [solvers.Latent, solvers.Flow, solvers.Response])
def test_bad_settings_of_solvers(solver):
    with pytest.raises(ValueError, match="samples"):
        solver(samples=2)
    with pytest.raises(ValueError, match="scrambles"):
        solver(scrambles=1)


def test_jumps_are_found_where_they_are_and_kinks_are_none():
    assert find_jump(lambda x: np.where(x > 0.731, 1.0, 0.0) + x) == pytest.approx(0.731, abs=1e-6)
    assert find_jump(lambda x: np.abs(x) + np.maximum(x - 1, 0)) is None
    assert find_jump(lambda x: np.tanh(1e4 * x)) is None
