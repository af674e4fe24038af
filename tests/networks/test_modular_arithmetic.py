"""Modular arithmetic as a task: number theory first, then splits, noise and bad input."""

import jax
import numpy as np
import pytest

from solvable.networks import Fixed
from solvable.networks.tasks.modular import ModularArithmetic

PRIMES = (2, 3, 5, 7, 11, 13, 23)


@pytest.mark.parametrize("p", PRIMES[1:])
def test_quotients_times_divisors_are_dividends(p: int) -> None:
    sequences, answers = ModularArithmetic(p).equations()
    a, operation, b, equals = sequences.T
    assert len(sequences) == p * (p - 1)
    assert (answers * b % p == a).all()
    assert (operation == p).all()
    assert (equals == p + 1).all()
    assert len({(x, y) for x, y in zip(a, b, strict=True)}) == p * (p - 1)
    assert b.min() == 1
    assert b.max() == p - 1


def test_division_is_subtraction_of_logarithms() -> None:
    """Powers of a primitive root, 5 modulo 23: (g^i)/(g^j) = g^(i-j), exponents modulo 22. Another task's table."""
    p, root = 23, 5
    power = np.array([pow(root, i, p) for i in range(p - 1)])
    assert sorted(power) == list(range(1, p))
    sequences, answers = ModularArithmetic(p).equations()
    division = {(a, b): c for (a, _, b, _), c in zip(sequences.tolist(), answers.tolist(), strict=True)}
    exponents, differences = ModularArithmetic(p - 1, "subtraction").equations()
    for (i, _, j, _), k in zip(exponents, differences, strict=True):
        assert division[power[i], power[j]] == power[k]


@pytest.mark.parametrize("modulus", [2, 6, 9, 11])
@pytest.mark.parametrize("operation", ["addition", "subtraction", "multiplication"])
def test_operations_by_whole_numbers(modulus: int, operation: str) -> None:
    exact = {"addition": int.__add__, "subtraction": int.__sub__, "multiplication": int.__mul__}[operation]
    sequences, answers = ModularArithmetic(modulus, operation).equations()
    assert len(sequences) == modulus**2
    for (a, _, b, _), c in zip(sequences.tolist(), answers.tolist(), strict=True):
        assert 0 <= c < modulus
        assert (exact(a, b) - c) % modulus == 0


@pytest.mark.parametrize(("p", "operation", "fraction"), [(5, "division", 0.3), (6, "addition", 0.9)])
def test_split_has_every_equation_once(p: int, operation: str, fraction: float) -> None:
    task = ModularArithmetic(p, operation, train_fraction=fraction)
    data = jax.jit(task)(jax.random.key(4))
    assert isinstance(data, Fixed)
    rows = np.column_stack([np.r_[data.inputs, data.test_inputs], np.r_[data.targets, data.test_targets]])
    sequences, answers = task.equations()
    assert {tuple(row) for row in rows} == {tuple(row) for row in np.column_stack([sequences, answers])}
    assert len(rows) == task.size
    assert abs(len(data.inputs) - fraction * task.size) <= 0.5
    assert data.inputs.dtype == data.targets.dtype == np.int32


def test_each_key_has_its_own_split_and_keys_go_side_by_side() -> None:
    task = ModularArithmetic(11)
    keys = jax.random.split(jax.random.key(3), 3)
    together, alone = jax.jit(jax.vmap(task))(keys), jax.jit(task)
    for index in range(3):
        assert (np.asarray(together.inputs)[index] == np.asarray(alone(keys[index]).inputs)).all()
    assert (np.asarray(together.inputs)[0] != np.asarray(together.inputs)[1]).any()


def test_label_noise_spoils_exactly_its_share_of_the_training_set() -> None:
    task = ModularArithmetic(23, "addition", label_noise=0.25)
    data = jax.tree.map(np.asarray, jax.jit(task)(jax.random.key(0)))
    a, b = data.inputs[:, 0], data.inputs[:, 2]
    wrong = (a + b) % 23 != data.targets
    assert wrong.sum() == round(0.25 * task.train_size)
    assert ((data.test_inputs[:, 0] + data.test_inputs[:, 2]) % 23 == data.test_targets).all()
    # 66 wrong answers among 22 shifts: fewer than 15 different ones is a chance below 1e-5, and the key is fixed.
    assert len(set(((data.targets - a - b) % 23)[wrong].tolist())) >= 15
    clean = jax.jit(ModularArithmetic(23, "addition"))(jax.random.key(0))
    assert (np.asarray(clean.inputs) == data.inputs).all(), "noise must not change the split"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"modulus": 15}, "modulus must be a prime number to divide by, not 15: the next prime is 17"),
        ({"modulus": 1}, "modulus must be a whole number, 2 or more, not 1"),
        ({"modulus": 6.5}, "modulus must be a whole number"),
        ({"modulus": 7, "operation": "power"}, "operation must be one of 'division', 'addition'"),
        ({"modulus": 7, "train_fraction": 1.0}, "train_fraction must lie between 0 and 1, not 1.0"),
        ({"modulus": 3, "train_fraction": 0.01}, "leaves 0 to train on and 6 to test: neither may be empty"),
        ({"modulus": 3, "train_fraction": 0.99}, "leaves 6 to train on and 0 to test"),
        ({"modulus": 7, "label_noise": 1.0}, "label_noise must be a fraction of the training set"),
        ({"modulus": 7, "label_noise": float("nan")}, "label_noise must be a fraction"),
    ],
)
def test_bad_input_is_named(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModularArithmetic(**arguments)
