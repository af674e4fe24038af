"""Many runs at once: seed i is the same run whatever else runs, on however many devices."""

import json
import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable import LinearEstimator
from solvable.numerics.ensemble import _remembered, ensemble, run_options, trajectories


def gaussian_norm(key: jax.Array) -> dict:
    draw = jax.random.normal(key, (50,))
    return {"norm": jnp.sum(draw**2), "draw": draw}


def test_seed_is_the_same_in_any_company() -> None:
    # The compiled runs of a partial are remembered.
    run = partial(gaussian_norm)
    reference = ensemble(run, seeds=7, key=3)
    assert reference["draw"].shape == (7, 50)
    assert len(np.unique(reference["norm"])) == 7
    for limit in (1.0, 2.0, 3.0, 100.0):
        chunked = ensemble(run, seeds=7, key=3, bytes_per_run=1.0, memory_limit=limit)
        np.testing.assert_array_equal(chunked["draw"], reference["draw"])
    fewer = ensemble(run, seeds=2, key=3)
    np.testing.assert_array_equal(fewer["draw"], reference["draw"][:2])
    assert not np.allclose(ensemble(run, seeds=2, key=4)["norm"], fewer["norm"])


def scaled_norm(scale: float, key: jax.Array) -> jax.Array:
    return scale * gaussian_norm(key)["norm"]


def test_compiled_runs_are_remembered_by_their_arguments() -> None:
    """Equal arguments share a program, others do not; arrays, which cannot be told to be equal, always compile anew."""
    one, two = (ensemble(partial(scaled_norm, scale), seeds=3, key=1) for scale in (1.0, 2.0))
    np.testing.assert_allclose(two, 2 * one)
    before = _remembered.cache_info().hits
    np.testing.assert_array_equal(ensemble(partial(scaled_norm, 2.0), seeds=3, key=1), two)
    assert _remembered.cache_info().hits == before + 1
    for scale in (3.0, 4.0):
        result = ensemble(partial(scaled_norm, jnp.asarray(scale)), seeds=3, key=1)
        np.testing.assert_allclose(result, scale * one)


def test_trajectories_save_only_what_is_asked() -> None:
    """A multiplicative walk with a known end; the step is told how many were taken before."""
    run = trajectories(
        lambda key: (jax.random.normal(key), jnp.zeros((), int)),
        lambda state, count: (state[0] * 0.5, state[1] + count),
        lambda state: {"value": state[0], "sum": state[1]},
        [0, 3, 100],
        seeds=4,
        key=1,
    )
    assert run["value"].shape == (4, 3)
    np.testing.assert_allclose(run["value"][:, 1] / run["value"][:, 0], 0.5**3)
    np.testing.assert_allclose(run["value"][:, 2] / run["value"][:, 0], 0.5**100)
    assert (run["sum"] == [0, 0 + 1 + 2, sum(range(100))]).all()


def test_memory_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="one run needs about 4 GiB but the limit is 2 GiB.*raise memory_limit"):
        ensemble(gaussian_norm, seeds=1, key=0, bytes_per_run=4 * 2**30)


def test_simulations_do_not_depend_on_chunks_or_seeds() -> None:
    model, steps = LinearEstimator(aspect_ratio=0.5, label_noise=0.1), [0, 10, 100]
    whole = model.simulate(steps, dimension=30, seeds=5, key=2)
    chunked = model.simulate(steps, dimension=30, seeds=5, key=2, memory_limit=2e5)
    fewer = model.simulate(steps, dimension=30, seeds=2, key=2)
    for name in whole.data_vars:
        np.testing.assert_allclose(chunked[name], whole[name], rtol=1e-12)
        np.testing.assert_allclose(fewer[name], whole[name][:2], rtol=1e-12)


_ON_SEVERAL_DEVICES = """
import json, jax, solvable
model = solvable.LinearEstimator(aspect_ratio=0.5, label_noise=0.1)
results = {"devices": jax.local_device_count()}
# Enough factorisations at once to have deadlocked devices that do not take turns.
results["exact"] = model.simulate([10], dimension=120, seeds=60, key=2).test_loss.values[:6].tolist()
# Past the check of stability, which would be one more program to compile for each device.
run = model.simulate([0, 10], dimension=30, seeds=6, key=2, solver="steps", on_divergence="keep")
results["descent"] = run.test_loss.values.tolist()
print(json.dumps(results))
"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_devices_give_the_same_runs(devices: int) -> None:
    environment = {**os.environ, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, "-c", _ON_SEVERAL_DEVICES]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=True)
    results = json.loads(done.stdout)
    assert results["devices"] == devices
    model = LinearEstimator(aspect_ratio=0.5, label_noise=0.1)
    single = model.simulate([10], dimension=120, seeds=6, key=2)
    np.testing.assert_allclose(results["exact"], single.test_loss, rtol=1e-11)
    single = model.simulate([0, 10], dimension=30, seeds=6, key=2, solver="steps")
    np.testing.assert_allclose(results["descent"], single.test_loss, rtol=1e-11)


def test_options_of_runs_are_checked() -> None:
    options = run_options("quadratic", 3, 1, None, 1e6, False)
    assert ensemble(gaussian_norm, **options)["norm"].shape == (3,)
    for seeds, key, message in (
        (0, 0, "seeds must be a whole number, 1 or more"),
        (2, -1, "key must be a whole number, 0 or more"),
    ):
        with pytest.raises(ValueError, match=message):
            run_options("quadratic", seeds, key, None, None, None)
