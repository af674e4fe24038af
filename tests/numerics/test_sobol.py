"""Sobol points are SciPy's, made without importing ``scipy.stats``."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import qmc

from solvable.numerics import sobol


@pytest.mark.parametrize(("count", "dimension", "key"), [(1, 3, 0), (2, 1, 7), (1000, 5, 3), (2048, 64, (0, 2, 1))])
@pytest.mark.filterwarnings("ignore:The balance properties")
def test_points_are_those_of_scipy(count, dimension, key):
    uniform = sobol.sequence(qmc.Sobol, dimension, np.random.default_rng(key), scramble=True, bits=30).random(count)
    found = sobol.sobol_normals(count, dimension, key)
    assert np.array_equal(found, ndtri(uniform + 0.5**31))


def test_without_the_table_scipy_itself_is_asked(monkeypatch):
    expected = sobol.sobol_normals(64, 4, 5)
    monkeypatch.setattr(sobol, "_table", lambda: None)
    assert np.array_equal(sobol.sobol_normals(64, 4, 5), expected)


def test_scipy_stats_is_not_imported():
    code = (
        "import sys; from solvable.numerics.sobol import sobol_normals; sobol_normals(8, 2, 0); "
        "sys.exit('scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
