"""Which functions are compiled with deterministic kernels, and that nested ones and measures can be."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from solvable import networks
from solvable.numerics import determinism

INPUTS = np.random.default_rng(0).normal(size=(24, 5)).astype(np.float32)
DATA = networks.Fixed(INPUTS, np.arange(24) % 3)


@pytest.fixture
def compiled_with(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """The options of every compiled program that has some, on a device that is taken for a GPU."""
    seen: list[dict] = []
    original = determinism.eqx.filter_jit

    def filter_jit(function, **options):
        compiled = original(function, **options)

        def call(*arguments, **keywords):
            seen.append(options)
            return compiled(*arguments, **keywords)

        return call

    monkeypatch.setattr(determinism.eqx, "filter_jit", filter_jit)
    monkeypatch.setattr(determinism.jax, "default_backend", lambda: "gpu")
    return seen


def test_options_are_those_of_the_context(compiled_with):
    double = determinism.jit(lambda x: 2 * x)
    fixed = {"compiler_options": {"xla_gpu_deterministic_ops": True}}
    assert float(double(jnp.ones(()))) == 2
    with determinism.deterministic_kernels():
        assert float(double(jnp.ones(()))) == 2
        with determinism.deterministic_kernels(False):  # changes nothing
            double(jnp.ones(()))
        # Inside another compiled function the options are those of that one: JAX refuses them there.
        assert float(jax.jit(lambda x: double(x) + 1)(jnp.ones(()))) == 3
    double(jnp.ones(()))
    assert compiled_with == [{}, fixed, fixed, {}, {}]


def test_on_a_cpu_nothing_is_asked_for():
    with determinism.deterministic_kernels():
        assert determinism.compiler_options() is None


@pytest.mark.parametrize("inspect", [networks.feature_metrics, networks.feature_record(), networks.kernel_metrics(4)])
def test_measures_follow_the_context(inspect, monkeypatch):
    """With the options (which a CPU's compiler ignores) they give the same numbers."""
    network = networks.MLP(5, 3, width=6, depth=3, key=jax.random.key(0))
    other = networks.MLP(5, 3, width=6, depth=3, key=jax.random.key(1))
    usual = inspect(network, DATA, other)
    monkeypatch.setattr(determinism.jax, "default_backend", lambda: "gpu")
    with determinism.deterministic_kernels():
        fixed = inspect(network, DATA, other)
    assert usual.keys() == fixed.keys()
    for name, values in usual.items():
        np.testing.assert_array_equal(np.asarray(values), np.asarray(fixed[name]))


def test_trainings_are_deterministic_with_a_checkpoint_or_where_asked(tmp_path, monkeypatch):
    asked: list[bool] = []

    def noted(network, data, initial):
        asked.append(determinism._wanted.get())
        return {}

    def go(**options):
        networks.train(
            lambda key: networks.MLP(5, 3, width=4, depth=2, key=key),
            DATA,
            optax.sgd(0.1),
            steps=1,
            inspect=noted,
            inspect_at=[1],
            loss="cross-entropy",
            **options,
        )

    go()
    go(deterministic=True)
    go(checkpoint=tmp_path / "run")
    assert asked == [False, True, True]
    with pytest.raises(ValueError, match="deterministic=False cannot be combined with a checkpoint"):
        go(checkpoint=tmp_path / "run", deterministic=False)
    with pytest.raises(ValueError, match="deterministic must be True, False or None, not 'yes'"):
        go(deterministic="yes")
