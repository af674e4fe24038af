"""The Jacobian of the flow in the coordinates of exchangeable neurons, for implicit steps.

With collective fields ``H_g = sum_i h_i / sqrt(n_g)`` and deviations ``d_i`` of each group, a coordinate ``a`` moves
the field of every neuron j by ``V_a(j)``, which is ``Y_a / sqrt(n_g)`` for a coordinate of ``H_g`` and
``sqrt(1 - 1/n_g) Y_a(j)`` for one of the deviations, and signals pull it by ``<sum_i V_a(i) g_i>``, times ``1/(n_g -
1)`` for deviations. Hence

    J[a, b] = <sum_ij V_a(i) (dg_i / dh_j) V_b(j)> / (1 or n_g - 1),

whose blocks are computed sector by sector (:mod:`solvable.models.committee.exchangeable`): where a sector is that of
the collective fields, the sum over neurons is taken first.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.models.committee.protocol import AnyArray, namespace

# Samples whose moments are added at a time.
_PART = 4096

Groups = tuple[tuple[int, ...], ...]
# Of each pair of sectors a matrix, whose rows are (collective field, coordinate) or the coordinates of deviations.
Blocks = list[list[Any]]


def sector_blocks(
    slopes: Float[AnyArray, "neuron neuron2 sample"], left: list[Any], right: list[Any], groups: Groups
) -> Blocks:
    """The blocks of the Jacobian between some coordinates of each sector and some others.

    Parameters
    ----------
    slopes
        ``dg_i / dh_j`` of every sample.
    left, right
        Latents of the coordinates that are pulled, and of those that move: (row, sample) for the collective fields,
        then (row, member and sample) for the deviations of each group of two or more.
    groups
        The neurons of each group.
    """
    if namespace(slopes, *left, *right) is not np:
        return _on_device(slopes, left, right, groups)
    samples = slopes.shape[2]
    total: Any = None
    for begin in range(0, samples, _PART):
        length = min(_PART, samples - begin)
        part = _part_of_sum(slopes, left, right, groups, begin, length)
        total = part if total is None else jax.tree.map(np.add, total, part)
    return jax.tree.map(lambda block: block / samples, total)


@partial(jax.jit, static_argnames="groups")
def _on_device(slopes: Array, left: list[Array], right: list[Array], groups: Groups) -> Blocks:
    samples = slopes.shape[2]
    length = math.gcd(samples, _PART)

    def add(number: Array, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, _part_of_sum(slopes, left, right, groups, number * length, length))

    first = _part_of_sum(slopes, left, right, groups, 0, length)
    total = jax.lax.fori_loop(1, samples // length, add, first)
    return jax.tree.map(lambda block: block / samples, total)


def _part_of_sum(slopes: Any, left: list[Any], right: list[Any], groups: Groups, begin: Any, length: int) -> Blocks:
    """The sum over some samples."""
    xp = namespace(slopes)

    def some(values: Any) -> Any:
        if xp is np:
            return values[..., begin : begin + length]
        return jax.lax.dynamic_slice_in_dim(values, begin, length, axis=values.ndim - 1)

    deviating = [group for group in groups if len(group) > 1]

    def by_member(sectors: list[Any]) -> list[Any]:
        together, *deviations = sectors
        shapes = [(len(rows), len(group), slopes.shape[2]) for rows, group in zip(deviations, deviating, strict=True)]
        return [some(together), *(some(rows.reshape(shape)) for rows, shape in zip(deviations, shapes, strict=True))]

    pulled, moved = by_member(left), by_member(right)
    slopes = some(slopes)
    # How all signals answer to each collective field, and how each collective signal answers to all fields.
    from_fields = xp.stack([slopes[:, np.array(group)].sum(axis=1) / math.sqrt(len(group)) for group in groups])
    to_signals = xp.stack([slopes[np.array(group)].sum(axis=0) / math.sqrt(len(group)) for group in groups])
    both = xp.stack([to_signals[:, np.array(group)].sum(axis=1) / math.sqrt(len(group)) for group in groups], axis=1)

    def collective(rows: list[list[Any]]) -> Any:
        return xp.concatenate([xp.concatenate(row, axis=1) for row in rows])

    count = len(groups)
    blocks: Blocks = [[_collective_block(xp, pulled[0], both, moved[0])]]
    for group, rows in zip(deviating, moved[1:], strict=True):
        own = np.array(group)
        each = [_bilinear(xp, pulled[0][:, None], to_signals[g][None, own], rows) for g in range(count)]
        blocks[0].append(_weight(group) * collective([[block] for block in each]))
    for group, rows in zip(deviating, pulled[1:], strict=True):
        weight, own = _weight(group) / (len(group) - 1), np.array(group)
        each = [_bilinear(xp, rows, from_fields[h][own, None], moved[0][:, None]) for h in range(count)]
        line = [weight * collective([each])]
        for other, others in zip(deviating, moved[1:], strict=True):
            line.append(weight * _weight(other) * _bilinear(xp, rows, slopes[np.ix_(group, other)], others))
        blocks.append(line)
    return blocks


def _collective_block(xp: Any, left: Any, weights: Any, right: Any) -> Any:
    """``<w_gh Y_a Y_b>`` of collective fields, as a matrix of rows (g, a) and columns (h, b)."""
    count, rows, columns = len(weights), len(left), len(right)
    if rows < columns:
        # The many rows are read once for all weights of the few.
        weighted = (weights[:, :, None] * left).reshape(count * count * rows, right.shape[1])
        found = (weighted @ right.T).reshape(count, count, rows, columns)
    else:
        found = xp.stack([xp.stack([(left * weight) @ right.T for weight in line]) for line in weights])
    return found.transpose(0, 2, 1, 3).reshape(count * rows, count * columns)


def _bilinear(xp: Any, left: Any, weights: Any, right: Any) -> Any:
    """``sum_ijp left(a, i, p) weights(i, j, p) right(b, j, p)``; the weights go to the side that has fewer rows."""
    rows, columns = len(left), len(right)
    if not rows * columns:
        return xp.zeros((rows, columns))
    if rows < columns:
        left = xp.einsum("aip,ijp->ajp", left, weights)
    else:
        right = xp.einsum("ijp,bjp->bip", weights, right)
    return left.reshape(rows, -1) @ right.reshape(columns, -1).T


def _weight(group: tuple[int, ...]) -> float:
    """The part that deviations, which have the variance of a member, have in the field of a member."""
    return math.sqrt(1 - 1 / len(group))


def grown_blocks(
    known: Blocks,
    slopes: Float[np.ndarray, "neuron neuron2 sample"],
    latents: list[Any],
    since: tuple[int, ...],
    groups: Groups,
) -> Blocks:
    """The blocks with the rows and columns of coordinates from ``since`` on, computed anew; on a CPU."""
    late = [rows[begin:] for rows, begin in zip(latents, since, strict=True)]
    below = sector_blocks(slopes, late, latents, groups)
    # The columns of late coordinates are the rows that they have with dg_j / dh_i, but for the factors 1/(n_g - 1).
    turned = slopes.transpose(1, 0, 2)
    beside = below if np.array_equal(slopes, turned) else sector_blocks(turned, late, latents, groups)
    fields = [len(groups), *[1] * (len(latents) - 1)]
    members = [1, *(len(group) - 1 for group in groups if len(group) > 1)]
    found: Blocks = []
    for row, line in enumerate(known):
        found.append([])
        for column, old in enumerate(line):
            shapes = (fields[row], since[row], fields[column], since[column])
            across = beside[column][row].reshape(fields[column], len(late[column]), fields[row], len(latents[row]))
            right = across[..., : since[row]].transpose(2, 3, 0, 1) * (members[column] / members[row])
            upper = np.concatenate([old.reshape(shapes), right], axis=3)
            lower = below[row][column].reshape(fields[row], len(late[row]), fields[column], len(latents[column]))
            whole = np.concatenate([upper, lower], axis=1)
            found[-1].append(whole.reshape(whole.shape[0] * whole.shape[1], -1))
    return found
