"""Loss of the skill model at 200 times x 200 basis sizes for infinitely many skills, compared with the direct sum."""

import math
import time

import numpy as np

from benchmarks.timing import Result, seconds
from solvable.models.skills import SkillModel

SKILLS = 10_000_000
BLOCK = 1_000_000
MODEL = SkillModel(0.6, skills=math.inf)
TIMES = np.geomspace(1, 1e8, 200)
SIZES = np.unique(np.round(np.geomspace(1, SKILLS, 240)))[-200:]


def direct(times: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """An optimised direct sum: each term once, cumulative sums for all basis sizes, in blocks that fit into the cache.

    Both methods take the frequencies of untaught skills from the zeta function, because 1e7 skills are not enough.
    """
    from scipy.special import zeta

    scale = 1 / zeta(1.6)
    untaught = scale * zeta(1.6, sizes + 1)
    out = np.empty((times.size, sizes.size))
    for row, now in enumerate(times):
        total, filled = 0.0, 0
        for begin in range(0, SKILLS, BLOCK):
            chance = scale * np.arange(begin + 1.0, begin + BLOCK + 1) ** -1.6
            rest = 1 / (1 + np.exp(np.minimum(2 * chance * now, 300.0)) / 99)
            sums = total + np.cumsum(chance * rest**2)
            while filled < sizes.size and sizes[filled] <= begin + BLOCK:
                out[row, filled] = sums[int(sizes[filled]) - begin - 1]
                filled += 1
            total = sums[-1]
    return (out + untaught) / 2


def run() -> list[Result]:
    sample = TIMES[[20, 100, 180]]
    begin = time.perf_counter()
    expected = direct(sample, SIZES)
    slow = (time.perf_counter() - begin) / sample.size * TIMES.size
    fast = seconds(lambda: MODEL.losses(TIMES, SIZES).test_loss.values)
    begin = time.perf_counter()
    SkillModel(0.61, skills=math.inf).losses(TIMES, SIZES[:-1])
    cold = time.perf_counter() - begin
    found = MODEL.losses(TIMES, SIZES).test_loss.values[[20, 100, 180]]
    error = float(np.max(np.abs(found / expected - 1)))
    return [
        Result("200 x 200 losses, infinitely many skills", fast, "s"),
        Result("the same with other shapes and parameters (may compile)", cold, "s"),
        Result("direct sum to 1e7 (3 of 200 times measured, rest extrapolated)", slow, "s"),
        Result("ratio", slow / fast, "x", at_least=100),
        Result("largest relative difference at the 3 x 200 points", error, "", at_most=1e-9),
    ]
