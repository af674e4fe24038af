"""Multitask sparse parity: frequencies, the skill functions, and skill strengths of networks that are known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.networks.tasks.parity import SparseParity

KEY = jax.random.key(7)


def exact_network(task: SparseParity, skill: int, scale: float):
    """``S g_k`` out of ReLUs: a zigzag in the number of set bits, shut off by the control bit of other skills."""
    bits = task.skills + task.relevant * skill + np.arange(task.relevant)

    def network(x):
        control = x[skill]
        # -relevant where another skill is asked for: then no bend is reached.
        total = jnp.sum(x[bits]) - task.relevant * (1 - control)
        bends = sum((-1) ** bend * 4 * jax.nn.relu(total - bend) for bend in range(1, task.relevant))
        return scale * (jax.nn.relu(control) - 2 * jax.nn.relu(total) - bends)

    return network


def test_frequencies_are_a_power_law_and_draws_follow_them():
    task = SparseParity()
    expected = np.arange(1, 6) ** -1.6
    np.testing.assert_allclose(task.frequencies(), expected / expected.sum(), rtol=1e-14)
    skill, word = jax.jit(task.draw, static_argnums=1)(KEY, 200_000)
    counts = np.bincount(skill, minlength=5)
    # Chi-square with 4 degrees of freedom: 23.5 is exceeded once in 10 000 draws.
    expected = 200_000 * expected / expected.sum()
    assert ((counts - expected) ** 2 / expected).sum() < 23.5
    # Each of 32 bits is set in half of the points of a skill, which has a word of its own: the largest of 32 z-scores
    # is above 4.7 once in 10 000.
    word, skill = np.asarray(word), np.asarray(skill)
    first = word[skill == 0]
    ones = np.array([np.sum((first >> bit) & 1) for bit in range(32)])
    assert np.abs(ones - first.size / 2).max() / np.sqrt(first.size / 4) < 4.7
    # And so the parity is independent of the skill.
    every = 1.0 - 2 * (np.bitwise_count(word & (7 << (3 * skill))) % 2)
    for k in range(5):
        signs = every[skill == k]
        assert abs(signs.sum()) < 4.5 * np.sqrt(signs.size)


def test_unpractised_skills_do_not_occur():
    task = SparseParity()
    count = jax.jit(lambda practised: jnp.bincount(task.draw(KEY, 20_000, practised)[0], length=5))
    assert count(1).tolist() == [20_000, 0, 0, 0, 0]
    assert (np.asarray(count(3)) > 0).tolist() == [True, True, True, False, False]
    two = np.asarray(task.frequencies(2))
    np.testing.assert_allclose(two[:2], [1 / (1 + 2**-1.6), 2**-1.6 / (1 + 2**-1.6)], rtol=1e-14)
    assert two[2:].tolist() == [0, 0, 0]


def test_inputs_and_parity_against_brute_force():
    task = SparseParity(skills=3, skill_bits=10, relevant=3)
    skill, word = jax.jit(task.draw, static_argnums=1)(KEY, 300)
    inputs, signs = jax.device_get(jax.jit(lambda: (task.encode(skill, word), task.parity(skill, word)))())
    drawn, targets = jax.jit(task.sample, static_argnums=1)(KEY, 300)
    np.testing.assert_array_equal(drawn, inputs)
    np.testing.assert_array_equal(targets, 5 * signs)
    assert drawn.dtype == targets.dtype == jnp.float32
    for x, k, w, sign in zip(inputs, np.asarray(skill), np.asarray(word), signs, strict=True):
        assert x[:3].tolist() == [k == other for other in range(3)]
        assert x[3:].tolist() == [(int(w) >> bit) & 1 for bit in range(10)]
        assert sign == (-1) ** int(x[3 + 3 * k : 6 + 3 * k].sum())


def test_skill_functions_are_orthonormal():
    """All inputs of a small task, weighted by their frequencies: E[g_j g_k] is diagonal, with P_k on the diagonal."""
    task = SparseParity(skills=3, skill_bits=6, relevant=2)

    @jax.jit
    def every_input():
        held = task.held_out(KEY, 64)
        inputs = task.encode(held.skill, held.word).reshape(-1, task.inputs)
        functions = jax.vmap(lambda x: jnp.stack([exact_network(task, k, 1.0)(x) for k in range(3)]))(inputs)
        return functions.T, jnp.stack([task.parity(jnp.full(64, k), held.word[0]) for k in range(3)])

    functions, signs = (np.asarray(part, float) for part in every_input())
    weights = np.repeat(np.asarray(task.frequencies()) / 64, 64)
    np.testing.assert_allclose((functions * weights) @ functions.T, np.diag(task.frequencies()), atol=1e-12)
    # Without control bits, parities of different sets are orthogonal too.
    np.testing.assert_array_equal(signs @ signs.T, 64 * np.eye(3))


@pytest.mark.parametrize("complete", [True, False])
def test_a_network_that_computes_a_skill_has_its_strength(complete):
    task = SparseParity(target_scale=5.0)

    @jax.jit
    def strengths():
        held = task.held_out(KEY, 200, complete=complete)
        return jnp.stack([held.strengths(exact_network(task, k, 5.0)) for k in (0, 3)])

    found = strengths()
    np.testing.assert_allclose(found, 5 * np.eye(5)[[0, 3]], atol=1e-12)


def test_complete_points_cancel_what_is_not_the_skill_and_are_unbiased():
    task = SparseParity()
    first = exact_network(task, 0, 5.0)

    def network(x):
        # A constant, other bits, a part of the relevant bits, and a part of the strength that other bits decide.
        return 3.0 + 2 * x[30] - x[5] * x[6] + 0.5 * first(x) * (1 + x[36])

    @jax.jit
    def measured():
        complete, plain = task.held_out(KEY, 2000), task.held_out(KEY, 20_000, complete=False)
        return complete.strengths(network), plain.products(network)

    found, products = (np.asarray(part) for part in measured())
    expected = np.array([0.5 * 5 * 1.5, 0, 0, 0, 0])
    np.testing.assert_allclose(found[1:], 0, atol=1e-12)
    # 250 draws of bit 36, each worth +-1.25: standard error 0.079; 4.5 of them once in 100 000.
    assert abs(found[0] - expected[0]) < 4.5 * 1.25 / np.sqrt(250)
    error = products.std(axis=1) / np.sqrt(products.shape[1])
    assert (np.abs(products.mean(axis=1) - expected) < 4.5 * error).all()


def test_small_tasks_are_measured_on_every_input():
    task = SparseParity(skills=2, skill_bits=5, relevant=2)
    weights = np.random.default_rng(0).normal(size=(2, task.inputs, 6))

    def network(x):
        return jax.nn.relu(x @ weights[0]).sum() - jax.nn.relu(x @ weights[1]).sum()

    found = jax.jit(lambda: task.held_out(KEY, 32).strengths(network))()
    for k in range(2):
        total = 0.0
        for bits in itertools.product((0.0, 1.0), repeat=5):
            hidden = np.maximum(np.array([k == 0, k == 1, *bits]) @ weights, 0).sum(axis=-1)
            total += (-1) ** int(sum(bits[2 * k : 2 * k + 2])) * (hidden[0] - hidden[1]) / 32
        assert float(found[k]) == pytest.approx(total, rel=1e-6)


def test_fixed_data_are_nested_and_may_be_counted_under_vmap():
    task = SparseParity()
    data = jax.jit(jax.vmap(lambda count: task.fixed(KEY, 50, count=count)))(np.array([10, 40]))
    assert data.inputs.shape == (2, 50, 37)
    assert data.count.tolist() == [10, 40]
    np.testing.assert_array_equal(data.inputs[0], data.inputs[1])
    inputs, targets = jax.jit(lambda: task.fresh().sample(KEY, 50))()
    np.testing.assert_array_equal(inputs, data.inputs[0])
    np.testing.assert_array_equal(targets, data.targets[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"skill_bits": 33}, "at most 32, not 33"),
        ({"skills": 6, "skill_bits": 16}, "need 18 skill bits, not 16"),
        ({"skills": 0}, "skills must be a whole number, 1 or more, not 0"),
        ({"relevant": 2.5}, "relevant must be a whole number"),
        ({"exponent": 0.0}, "exponent must be positive"),
        ({"target_scale": float("nan")}, "target_scale must be positive"),
    ],
)
def test_impossible_tasks_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        SparseParity(**settings)


def test_impossible_sizes_are_refused():
    task = SparseParity()
    with pytest.raises(ValueError, match="samples must be a whole number, 1 or more"):
        task.fixed(KEY, 0)
    with pytest.raises(ValueError, match="count must be from 1 to the 10"):
        task.fixed(KEY, 10, count=11)
    with pytest.raises(ValueError, match="points must be"):
        task.held_out(KEY, 0)
