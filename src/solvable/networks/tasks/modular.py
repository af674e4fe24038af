"""Modular arithmetic: the equations a ∘ b = c modulo p, as sequences of tokens and classes."""

import dataclasses
import math
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.checks import check_choice, check_count
from solvable.networks.sources import Fixed

Operation = Literal["division", "addition", "subtraction", "multiplication"]


@dataclasses.dataclass(frozen=True)
class ModularArithmetic:
    """The equations ``a ∘ b = c`` modulo p, split into a training and a test set.

    An input is the sequence of tokens ``[a, ∘, b, =]``, its class is ``c``. The tokens 0 to p - 1 are the numbers,
    ``p`` is the operation and ``p + 1`` the equals sign. The task is a function of a key, which decides the split and
    the noise, so it can be given to :func:`solvable.networks.train` as ``data``: each seed then has its own split.

    Parameters
    ----------
    modulus
        p. Division needs a prime, because quotients would not exist otherwise.
    operation
        ``"division"``, with ``b`` from 1 to p - 1 and p (p - 1) equations; ``"addition"``, ``"subtraction"`` or
        ``"multiplication"``, with p² equations.
    train_fraction
        Fraction of the equations in the training set.
    label_noise
        Fraction of the training set with a wrong answer, drawn uniformly from all wrong ones.

    >>> import jax
    >>> from solvable.networks.tasks.modular import ModularArithmetic
    >>> task = ModularArithmetic(7, train_fraction=0.5)
    >>> data = task(jax.random.key(0))
    >>> data.inputs.shape, data.test_inputs.shape, task.tokens, task.outputs
    ((21, 4), (21, 4), 9, 7)
    """

    modulus: int
    operation: Operation = "division"
    train_fraction: float = 0.5
    label_noise: float = 0.0

    def __post_init__(self) -> None:
        check_count("modulus", self.modulus, least=2)
        check_choice("operation", self.operation, get_args(Operation))
        if self.operation == "division" and not _is_prime(self.modulus):
            raise ValueError(
                f"modulus must be a prime number to divide by, not {self.modulus}: the next prime is "
                f"{_next_prime(self.modulus)} (other operations take any modulus)"
            )
        if not 0 < self.train_fraction < 1:
            raise ValueError(f"train_fraction must lie between 0 and 1, not {self.train_fraction!r}")
        if not 0 <= self.label_noise < 1:
            raise ValueError(f"label_noise must be a fraction of the training set, below 1, not {self.label_noise!r}")
        if not 0 < self.train_size < self.size:
            raise ValueError(
                f"train_fraction = {self.train_fraction!r} of {self.size} equations leaves "
                f"{self.train_size} to train on and {self.size - self.train_size} to test: neither may be empty"
            )

    @property
    def size(self) -> int:
        """Number of equations."""
        return self.modulus * (self.modulus - (self.operation == "division"))

    @property
    def train_size(self) -> int:
        """Number of equations in the training set."""
        return round(self.train_fraction * self.size)

    @property
    def tokens(self) -> int:
        """Number of different tokens: the numbers, the operation and the equals sign."""
        return self.modulus + 2

    @property
    def length(self) -> int:
        """Length of a sequence."""
        return 4

    @property
    def outputs(self) -> int:
        """Number of classes."""
        return self.modulus

    def equations(self) -> tuple[np.ndarray, np.ndarray]:
        """All equations in order of a, then b: tokens (size, 4) and answers (size,)."""
        p = self.modulus
        table = np.meshgrid(np.arange(p), np.arange(self.operation == "division", p), indexing="ij")
        first, second = (numbers.ravel() for numbers in table)
        answers = _answers(self.operation, first, second, p)
        sequences = np.stack([first, np.full_like(first, p), second, np.full_like(first, p + 1)], axis=1)
        return sequences.astype(np.int32), answers.astype(np.int32)

    def __call__(self, key: PRNGKeyArray) -> Fixed:
        """The equations, split at random.

        Parameters
        ----------
        key
            A JAX key.
        """
        split_key, noise_key = jax.random.split(key)
        sequences, answers = (jnp.asarray(array) for array in self.equations())
        order = jax.random.permutation(split_key, self.size)
        train, test = order[: self.train_size], order[self.train_size :]
        noisy = self._with_noise(answers[train], noise_key)
        return Fixed(sequences[train], noisy, sequences[test], answers[test])

    def _with_noise(self, answers: Array, key: PRNGKeyArray) -> Array:
        """The rows are in random order already, so the first of them are a random choice."""
        wrong = round(self.label_noise * self.train_size)
        shift = jax.random.randint(key, (wrong,), 1, self.modulus, dtype=answers.dtype)
        return answers.at[:wrong].set((answers[:wrong] + shift) % self.modulus)


def _answers(operation: Operation, first: np.ndarray, second: np.ndarray, modulus: int) -> np.ndarray:
    if operation == "addition":
        return (first + second) % modulus
    if operation == "subtraction":
        return (first - second) % modulus
    if operation == "multiplication":
        return first * second % modulus
    inverses = np.array([0, *(pow(number, -1, modulus) for number in range(1, modulus))])
    return first * inverses[second] % modulus


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def _next_prime(number: int) -> int:
    while not _is_prime(number):
        number += 1
    return number
