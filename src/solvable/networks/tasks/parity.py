"""Multitask sparse parity: control bits name a skill, and the target is the parity of the few bits this skill reads.

Skills occur with power-law frequencies and read disjoint sets of bits (layerwise, Table 4.2 and appendix C.3). All
skill bits are one random 32-bit word, so that a new sample costs two random words, which never dominates a step.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from solvable.checks import check_count, is_traced
from solvable.networks.sources import Fixed, Fresh
from solvable.precision import in_float64

_WORD = 32
_ENUMERATED = 12


class SparseParity(eqx.Module):
    """Skills, each the parity of its own relevant bits. The defaults are those of the thesis.

    An input is ``(one-hot of the skill, skill bits)`` in zeros and ones; skill ``k`` (from 0 here) reads the bits
    ``k m, ..., k m + m - 1``, and ``g_k = (-1)^(their sum)`` if the skill is ``k``, else 0.

    Parameters
    ----------
    skills
        Number of skills.
    skill_bits
        Number of skill bits, at most 32.
    relevant
        Number m of bits that each skill reads.
    exponent
        Skills have frequencies ``P_k ~ (k + 1)^-(exponent + 1)``.
    target_scale
        The scale S of the targets ``S g_k``.

    >>> from solvable.networks.tasks.parity import SparseParity
    >>> task = SparseParity(skills=3, skill_bits=9)
    >>> task.inputs, task.frequencies().round(3).tolist()
    (12, [0.666, 0.22, 0.115])
    """

    skills: int = eqx.field(default=5, static=True)
    skill_bits: int = eqx.field(default=32, static=True)
    relevant: int = eqx.field(default=3, static=True)
    exponent: float = eqx.field(default=0.6, static=True)
    target_scale: float = eqx.field(default=5.0, static=True)

    def __check_init__(self) -> None:
        for name in ("skills", "skill_bits", "relevant"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number, 1 or more, not {getattr(self, name)!r}")
        if self.skill_bits > _WORD:
            raise ValueError(
                f"skill_bits must be at most {_WORD}, not {self.skill_bits}: they are drawn as one word per sample"
            )
        if self.skills * self.relevant > self.skill_bits:
            raise ValueError(
                f"{self.skills} skills of {self.relevant} bits each need {self.skills * self.relevant} skill bits, not "
                f"{self.skill_bits}: no two skills read the same bit. Lower skills or relevant, or raise skill_bits"
            )
        for name in ("exponent", "target_scale"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be positive and finite, not {value!r}")

    @property
    def inputs(self) -> int:
        """Length of an input: control bits and skill bits."""
        return self.skills + self.skill_bits

    @in_float64
    def frequencies(self, practised: int | Array | None = None) -> Array:
        """``P_k``, the frequencies of the skills.

        Parameters
        ----------
        practised
            Only this many skills, the most frequent, occur; by default all.
        """
        rank = jnp.arange(1.0, self.skills + 1)
        weights = rank ** -(self.exponent + 1)
        if practised is not None:
            weights = jnp.where(rank <= practised, weights, 0.0)
        return weights / weights.sum()

    def encode(self, skill: Int[Array, "*n"], word: UInt32[Array, "*n"]) -> Float[Array, "*n inputs"]:
        """Inputs of the network: the control bits of the skill, then the skill bits.

        Parameters
        ----------
        skill
            Skills, counted from 0.
        word
            Random words, of which the lowest bits are the skill bits.
        """
        control = skill[..., None] == jnp.arange(self.skills)
        bits = (word[..., None] >> jnp.arange(self.skill_bits, dtype=jnp.uint32)) & jnp.uint32(1)
        return jnp.concatenate([control.astype(jnp.float32), bits.astype(jnp.float32)], axis=-1)

    def parity(self, skill: Int[Array, "*n"], word: UInt32[Array, "*n"]) -> Float[Array, "*n"]:
        """``g_k`` of the skill: +1 if an even number of its bits is set, else -1.

        Parameters
        ----------
        skill, word
            As in :meth:`encode`.
        """
        mask = jnp.uint32(2**self.relevant - 1) << (self.relevant * skill).astype(jnp.uint32)
        odd = jax.lax.population_count(word & mask) & jnp.uint32(1)
        return 1 - 2 * odd.astype(jnp.float32)

    def draw(
        self, key: Array, count: int, practised: int | Array | None = None
    ) -> tuple[Int[Array, " n"], UInt32[Array, " n"]]:
        """Random skills, by inversion of their cumulative frequencies, and random words of skill bits.

        Parameters
        ----------
        key
            A JAX key.
        count
            Number of samples.
        practised
            As in :meth:`frequencies`.
        """
        words = jax.random.bits(key, (2, count), jnp.uint32)
        return self._skill_of(words[0], self._thresholds(practised), practised), words[1]

    @in_float64
    def _thresholds(self, practised: int | Array | None) -> UInt32[Array, " k"]:
        """Cumulative frequencies as words, without the last, which is one. The error of a frequency is below 3e-10."""
        below = jnp.cumsum(self.frequencies(practised))[:-1] * 2.0**_WORD
        return jnp.minimum(below, 2.0**_WORD - 1).astype(jnp.uint32)

    def _skill_of(
        self, word: UInt32[Array, " n"], thresholds: UInt32[Array, " k"], practised: int | Array | None
    ) -> Int[Array, " n"]:
        above = jnp.sum(word[:, None] >= thresholds, axis=-1, dtype=jnp.int32)
        return above if practised is None else jnp.minimum(above, jnp.asarray(practised - 1, jnp.int32))

    def sample(
        self, key: Array, count: int, practised: int | Array | None = None
    ) -> tuple[Float[Array, "n inputs"], Float[Array, " n"]]:
        """Independent samples: inputs, and targets ``S g_k``.

        Parameters
        ----------
        key, count, practised
            As in :meth:`draw`.
        """
        return self._samples(*self.draw(key, count, practised))

    def _samples(self, skill: Int[Array, " n"], word: UInt32[Array, " n"]) -> tuple[Array, Array]:
        return self.encode(skill, word), jnp.asarray(self.target_scale, jnp.float32) * self.parity(skill, word)

    def fresh(self, practised: int | Array | None = None) -> Fresh:
        """New samples at every step: infinite data.

        Parameters
        ----------
        practised
            As in :meth:`frequencies`; it may be traced, so that different tasks are trained side by side.
        """
        return Fresh(_Draws(self, self._thresholds(practised), practised))

    def fixed(
        self, key: Array, samples: int, *, count: int | Array | None = None, practised: int | Array | None = None
    ) -> Fixed:
        """A training set. Those of one key are nested: a smaller one is part of a larger one.

        Parameters
        ----------
        key
            A JAX key.
        samples
            Number of samples that are drawn.
        count
            Use only this many of the samples, the first; it may be traced.
        practised
            As in :meth:`fresh`.
        """
        check_count("samples", samples)
        if count is not None and not is_traced(count) and not 1 <= count <= samples:
            raise ValueError(f"count must be from 1 to the {samples} samples drawn, not {count}")
        inputs, targets = self.sample(key, samples, practised)
        return Fixed(inputs, targets, count=count)

    def held_out(self, key: Array, points: int, *, complete: bool = True) -> "HeldOut":
        """A held-out set to measure skill strengths on.

        Parameters
        ----------
        key
            A JAX key.
        points
            Approximate number of inputs of every skill. If it is enough for all inputs, and there are at most 12 skill
            bits, all inputs are taken, and the strength is exact.
        complete
            Combine every draw of the irrelevant bits with all ``2^m`` settings of the relevant ones. Then contributions
            of other bits, and constants, cancel exactly, and only the spread of the strength itself over irrelevant
            bits is left: a few hundred inputs are better than 20 000 independent ones.
        """
        check_count("points", points)
        if complete and self.skill_bits <= _ENUMERATED and points >= 2**self.skill_bits:
            every = jnp.arange(2**self.skill_bits, dtype=jnp.uint32)
            words = jnp.broadcast_to(every, (self.skills, every.size))
        elif complete:
            words = self._completed(key, math.ceil(points / 2**self.relevant))
        else:
            words = jax.random.bits(key, (self.skills, points), jnp.uint32)
        skill = jnp.broadcast_to(jnp.arange(self.skills)[:, None], words.shape)
        return HeldOut(skill, words, self)

    def _completed(self, key: Array, draws: int) -> UInt32[Array, "skill n"]:
        """Words with the relevant bits of the skill replaced by each of their settings."""
        shift = (self.relevant * jnp.arange(self.skills)).astype(jnp.uint32)[:, None, None]
        mask = jnp.uint32(2**self.relevant - 1) << shift
        setting = jnp.arange(2**self.relevant, dtype=jnp.uint32)[None, None, :] << shift
        others = jax.random.bits(key, (self.skills, draws, 1), jnp.uint32) & ~mask
        return (others | setting).reshape(self.skills, -1)


class HeldOut(eqx.Module):
    """Held-out words of every skill. As a measure for ``train``, ``held_out.strengths`` gives ``R_k`` of each."""

    skill: Int[Array, "skill point"]
    word: UInt32[Array, "skill point"]
    task: SparseParity

    @in_float64
    def strengths(self, network: Callable[..., Any], data: Any = None, key: Any = None) -> Float[Array, " skill"]:
        """``R_k = E[g_k f | skill k]``, in float64 (layerwise, eq. 4.7)."""
        return jnp.mean(self.products(network), axis=-1)

    @in_float64
    def products(self, network: Callable[..., Any]) -> Float[Array, "skill point"]:
        """``g_k f`` for every input; its spread gives the error of a strength on independent inputs."""
        outputs = jax.vmap(network)(self.task.encode(self.skill, self.word).reshape(-1, self.task.inputs))
        sign = self.task.parity(self.skill, self.word)
        return sign * outputs.reshape(sign.shape).astype(jnp.float64)


class _Draws(eqx.Module):
    """A sampler. All that depends on the practised skills is an array, which may differ between runs."""

    task: SparseParity
    thresholds: UInt32[Array, " k"]
    practised: Any

    def __call__(self, key: Array, count: int) -> tuple[Array, Array]:
        words = jax.random.bits(key, (2, count), jnp.uint32)
        return self.task._samples(self.task._skill_of(words[0], self.thresholds, self.practised), words[1])
