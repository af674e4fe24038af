"""A kernel that reads the data once a step: each program holds a few rows while it needs them for h and for X^T g.

The fields of a row need only the weights, so a program can take its rows from memory, form their fields and signals,
and add their share of ``g X`` before it lets go of them. Programs write partial sums, which are added up outside.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from solvable.models.committee.task import Task

# Rows held at once, rows of one program, and columns of one piece: powers of two, which the compiler wants.
ROWS_AT_ONCE = 4
ROWS_PER_PROGRAM = 64
PIECE = 512
# Every neuron keeps a row of partial sums in registers; more of them would spill.
MOST_NEURONS = 8


def padded_shape(samples: int, dimension: int) -> tuple[int, int]:
    """The shape of the data with whole programs of rows and whole pieces of columns; the padding is zeros."""
    return -(-samples // ROWS_PER_PROGRAM) * ROWS_PER_PROGRAM, -(-dimension // PIECE) * PIECE


def fused_velocity(
    task: Task,
    inputs: Float[Array, "row column"],
    target: Float[Array, "sample"],
    weights: Float[Array, "neuron column"],
    interpret: bool | None = None,
) -> tuple[Float[Array, "neuron column"], Float[Array, "sample"]]:
    """``(1/P) g X`` and the errors, as ``forms.velocity`` gives them; inputs and weights padded with zeros.

    On a CPU the kernel is interpreted, which is right but slow.
    """
    from jax.experimental import pallas as pl

    if interpret is None:
        interpret = jax.default_backend() == "cpu"
    rows, columns = inputs.shape
    neurons, samples = weights.shape[0], target.shape[0]
    programs = rows // ROWS_PER_PROGRAM
    by_program = pl.BlockSpec((ROWS_PER_PROGRAM,), lambda i: (i,))
    whole_readout = pl.BlockSpec((neurons,), lambda i: (0,))
    partial_sums, error = pl.pallas_call(
        partial(_kernel, task.activation, neurons, columns // PIECE),
        grid=(programs,),
        in_specs=[
            pl.BlockSpec((ROWS_PER_PROGRAM, columns), lambda i: (i, 0)),
            by_program,
            pl.BlockSpec((neurons, columns), lambda i: (0, 0)),
            whole_readout,
            whole_readout,
        ],
        out_specs=[pl.BlockSpec((1, neurons, columns), lambda i: (i, 0, 0)), by_program],
        out_shape=[
            jax.ShapeDtypeStruct((programs, neurons, columns), weights.dtype),
            jax.ShapeDtypeStruct((rows,), weights.dtype),
        ],
        interpret=interpret,
        **({} if interpret else _compiler_options()),
    )(inputs, jnp.pad(target, (0, rows - samples)), weights, task.readout, task.gradient_readout)
    # Rows of padding have errors too, but being zero they add nothing to the sums.
    return partial_sums.sum(axis=0) / samples, error[:samples]


def _compiler_options() -> dict[str, Any]:
    from jax.experimental.pallas import triton

    return {"compiler_params": triton.CompilerParams(num_warps=8, num_stages=1)}


def _kernel(
    activation: Any,
    neurons: int,
    pieces: int,
    inputs: Any,
    target: Any,
    weights: Any,
    readout: Any,
    gradient_readout: Any,
    partial_sums: Any,
    error: Any,
) -> None:
    from jax.experimental import pallas as pl

    def columns(piece: int) -> Any:
        return pl.ds(piece * PIECE, PIECE)

    def add_rows(index: Array, sums: tuple[Array, ...]) -> tuple[Array, ...]:
        rows = pl.ds(index * ROWS_AT_ONCE, ROWS_AT_ONCE)
        held = [inputs[rows, columns(piece)] for piece in range(pieces)]
        left, slopes = target[rows], []
        for neuron in range(neurons):
            field = jnp.zeros_like(left)
            for piece in range(pieces):
                field += jnp.sum(held[piece] * weights[neuron, columns(piece)][None, :], axis=1)
            value, slope = jax.jvp(jax.vmap(activation), (field,), (jnp.ones_like(field),))
            left = left - readout[neuron] * value
            slopes.append(slope)
        error[rows] = left
        signals = [gradient_readout[neuron] * slopes[neuron] * left for neuron in range(neurons)]
        return tuple(
            sums[neuron * pieces + piece] + jnp.sum(signals[neuron][:, None] * held[piece], axis=0)
            for neuron in range(neurons)
            for piece in range(pieces)
        )

    start = (jnp.zeros((PIECE,), inputs.dtype),) * (neurons * pieces)
    sums = jax.lax.fori_loop(0, ROWS_PER_PROGRAM // ROWS_AT_ONCE, add_rows, start)
    for neuron in range(neurons):
        for piece in range(pieces):
            partial_sums[0, neuron, columns(piece)] = sums[neuron * pieces + piece]
