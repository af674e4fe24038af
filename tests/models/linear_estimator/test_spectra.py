"""The Marchenko-Pastur quadrature: normalisation, moments, and every aspect ratio including one."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvable.models.linear_estimator.spectra import MarchenkoPastur, trapezoid_rule, upper_edge

RATIOS = [0.01, 0.1, 0.5, 0.9, 0.999, 1.0, 1.001, 1.5, 3.0, 10.0]


@pytest.mark.parametrize("ratio", RATIOS)
def test_moments(ratio: float) -> None:
    """Mass 1, mean 1, second moment 1 + lambda; the rule is exact to rounding."""
    law = MarchenkoPastur(ratio)
    ones = jnp.ones_like(law.nodes)
    assert float(law.average(ones, 1.0)) == pytest.approx(1, rel=1e-13, abs=0)
    assert float(law.weighted_average(ones)) == pytest.approx(1, rel=1e-13, abs=0)
    assert float(law.weighted_average(law.nodes)) == pytest.approx(1 + ratio, rel=1e-13, abs=0)


@given(st.floats(0.01, 0.95))
def test_inverse_moments(ratio: float) -> None:
    """E[1/nu] = 1/(1-lambda) and E[1/nu^2] = 1/(1-lambda)^3 below one."""
    law = MarchenkoPastur(ratio)
    assert float(law.average(1 / law.nodes)) == pytest.approx(1 / (1 - ratio), rel=1e-11, abs=0)
    assert float(law.average(1 / law.nodes**2)) == pytest.approx(1 / (1 - ratio) ** 3, rel=1e-10, abs=0)


@given(st.floats(0.01, 10.0), st.floats(1e-6, 1.0))
def test_stieltjes_transform(ratio: float, shift: float) -> None:
    """E[1/(nu + g)] solves a quadratic, in closed form."""
    law = MarchenkoPastur(ratio)
    b = 1 - ratio + shift
    # Written without cancellation for either sign of b.
    root = np.sqrt(b**2 + 4 * ratio * shift)
    expected = 2 / (root + b) if b > 0 else (root - b) / (2 * ratio * shift)
    assert float(law.average(1 / (law.nodes + shift), 1 / shift)) == pytest.approx(expected, rel=1e-11, abs=0)


@pytest.mark.parametrize("ratio", [0.1, 0.9, 1.0, 1.5])
@pytest.mark.parametrize("s", [1.0, 400.0, 4e5])
def test_against_thirty_digits(ratio: float, s: float) -> None:
    """exp(-s nu), scaled by its value at the edge, against mpmath in the angle variable."""
    law = MarchenkoPastur(ratio)
    value = float(law.weighted_average(jnp.exp(-s * law.offsets)))
    with mpmath.workdps(30):
        width = 4 * mpmath.sqrt(mpmath.mpf(ratio))
        # E[nu e^{-s(nu - edge)}] = (8/pi) int sqrt(x(1-x)) e^{-z x} dx = 2 e^{-z/2} I_1(z/2) / (z/2), z = s width.
        half = s * width / 2
        expected = 2 * mpmath.exp(-half) * mpmath.besseli(1, half) / half
    assert value == pytest.approx(float(expected), rel=1e-12, abs=0)


def test_an_offset_rule_gives_the_same_average() -> None:
    """Shifting all nodes by half a step changes nothing but rounding: the error estimate of predict rests on this."""
    for ratio in RATIOS:
        values = [
            float(law.average(jnp.exp(-10 * law.nodes), 1.0))
            for law in (MarchenkoPastur(ratio), MarchenkoPastur(ratio, trapezoid_rule(offset=0.5)))
        ]
        assert values[0] == pytest.approx(values[1], rel=1e-12, abs=0)


def test_edges_and_gradient() -> None:
    assert upper_edge(4.0) == 9.0
    assert float(MarchenkoPastur(4.0).edge) == 1.0
    # d/d lambda of the second moment 1 + lambda
    slope = jax.grad(lambda ratio: MarchenkoPastur(ratio).weighted_average(MarchenkoPastur(ratio).nodes))(0.7)
    assert float(slope) == pytest.approx(1.0, rel=1e-11, abs=0)
