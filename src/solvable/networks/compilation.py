"""Compiled programs of a training, the device memory that they need, and which batch size would fit."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from solvable.networks.program import Recipe, Runs, State, advance, measurement
from solvable.networks.sources import Fixed
from solvable.numerics.determinism import COMPILER_OPTIONS
from solvable.numerics.memory import device_memory

_GIB = 2**30


class Compiled(NamedTuple):
    """The programs of a group of runs, and the text of the first, by which checkpoints recognise it.

    ``single`` says that it makes one step at a time.
    """

    advance: Any
    measure: Any
    text: str
    single: bool


class Programs:
    """The compiled programs, one set for every size of group."""

    def __init__(self, recipe: Recipe, measured: bool, limit: float | None, deterministic: bool) -> None:
        self.recipe, self.measured, self.deterministic = recipe, measured, deterministic
        self.limit = device_memory(jax.devices()[0]) if limit is None else limit
        self._compiled: dict[int, Compiled] = {}

    def of(self, state: State, runs: Runs) -> Compiled:
        """Both programs. A program that cannot fit into memory raises an error before anything is trained."""
        count = len(runs.keys)
        if count not in self._compiled:
            try:
                self._compiled[count] = self._compile(state, runs)
            except Exception as error:
                if is_memory_error(error) and not isinstance(error, MemoryError):
                    raise self.too_large(state, runs) from error
                raise
        return self._compiled[count]

    def _compile(self, state: State, runs: Runs) -> Compiled:
        lowered = self._lowered(self.recipe, state, runs)
        single = False
        if "stablehlo.convolution" in lowered.as_text():
            # On a CPU, convolutions compiled inside a loop are several times slower than outside. On an accelerator
            # they take long to compile, and their steps are long enough not to need blocks.
            single = jax.default_backend() == "cpu"
            plain = self.recipe if self.recipe.loops == "blocks" else self.recipe._replace(loops="one by one")
            lowered = self._lowered(plain, state, runs, single)
        program = compile_program(lowered, self.deterministic)
        need = needed_bytes(program)
        if self.limit is not None and need is not None and need > self.limit:
            raise self.too_large(state, runs)
        measure = None
        if self.measured:
            step = jnp.asarray(0, jnp.int32)
            measure = jax.jit(measurement(self.recipe, runs)).lower(state, eqx.filter(runs, eqx.is_array), step)
            measure = compile_program(measure, self.deterministic)
        return Compiled(program, measure, lowered.as_text() if self.deterministic else "", single)

    @staticmethod
    def _lowered(recipe: Recipe, state: State, runs: Runs, single: bool = False) -> Any:
        step = jnp.asarray(0, jnp.int32)
        return jax.jit(advance(recipe, runs, single)).lower(state, eqx.filter(runs, eqx.is_array), step, step)

    def too_large(self, state: State, runs: Runs) -> MemoryError:
        def cost(batch_size: int) -> float | None:
            smaller = self.recipe if self.recipe.batch_size is None else self.recipe._replace(batch_size=batch_size)
            return needed_bytes(self._lowered(smaller, state, runs).compile())

        batch_size = self.recipe.batch_size
        if batch_size is None:
            batch_size = 1 if not isinstance(runs.data, Fixed) else runs.data.inputs.shape[self.recipe.own_data]
        return _too_large(batch_size, len(runs.keys), self.limit, cost)


def compile_program(lowered: Any, deterministic: bool) -> Any:
    """Compile, with deterministic kernels where they are wanted and the compiler has them.

    Otherwise, the compiler of a GPU chooses those that happen to be fastest.
    """
    if deterministic:
        try:
            return lowered.compile(COMPILER_OPTIONS)
        except Exception as error:
            if is_memory_error(error):
                raise
            warnings.warn(f"on this device equal trainings may differ in the last bits: {error}", stacklevel=2)
    return lowered.compile()


def needed_bytes(compiled: Any) -> float | None:
    """Bytes that the compiled program holds at its peak, according to the compiler; None if it does not report them."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    return float(
        analysis.temp_size_in_bytes
        + analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
    )


def is_memory_error(error: BaseException) -> bool:
    """Whether an error of the device means that its memory is full."""
    return "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower()


def _too_large(batch_size: int, runs: int, limit: float | None, cost: Callable[[int], float | None]) -> MemoryError:
    """The error for a batch that does not fit, with a smaller one that does, by their ``cost(batch_size)`` in bytes.

    Memory is linear in the batch size, so two smaller ones determine all others: the large one, which can take long to
    compile, is not compiled again.
    """
    few, fewer = max(2, batch_size // 2), max(1, batch_size // 4)
    more, less = cost(few), cost(fewer)
    where = "the device" if limit is None else f"the available {limit / _GIB:.3g} GiB"
    remedies, need = [], ""
    if more is not None and less is not None:
        slope = (more - less) / (few - fewer)
        need = f" ({(less + slope * (batch_size - fewer)) / _GIB:.3g} GiB according to the compiler)"
        # A little less than what fits: other programs, such as the measurements, need memory as well.
        fits = int(fewer + (0.9 * limit - less) / slope) if limit is not None and slope > 0 else 0
        if 1 <= fits < batch_size:
            remedies.append(f"batch_size={fits} would fit")
    if runs > 1:
        remedies.append(f"runs_per_group={max(1, runs // 2)} trains fewer runs at once")
    if batch_size > 1:
        remedies.append("gradient_accumulation_steps=2 takes the gradient of a batch in two parts")
    text = f"{runs} runs side by side with {batch_size} samples per step do not fit into {where}{need}: "
    return MemoryError(text + ", or ".join(remedies or ["use a smaller network"]) + "; existing checkpoints are kept")
