"""Importing and using solvable changes nothing for the rest of a process, and its numbers do not depend on the rest.

The tests themselves run with JAX in float64, so whatever must hold in a user's float32 program is run in a process of
its own. There and here every number must be the same to the last bit.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from paths import SOURCE

from solvable import models

# A user's program. It draws, makes arrays and sums without naming a dtype: float64 anywhere would change every number.
USER = """
import hashlib, jax, jax.numpy as jnp

def user():
    inputs = jax.random.normal(jax.random.key(3), (64, 5))
    weights = jnp.linspace(-1, 1, 5)
    step = jax.jit(jax.grad(lambda weights: jnp.mean((jnp.tanh(inputs @ weights) - jnp.arange(64) / 64) ** 2)))
    for _ in range(20):
        weights = weights - 0.1 * step(weights)
    state, _ = jax.lax.scan(lambda sum, row: (sum + row, None), jnp.zeros(5), inputs)
    result = jnp.concatenate([weights, state, jnp.cumsum(jnp.ones(7) / 3)])
    return hashlib.sha256(bytes(str(result.dtype), "ascii") + result.tobytes()).hexdigest()
"""

# Theory, simulation and diagnostics; the arrays that came out, as bytes.
SOLVABLE = """
import equinox, jax, jax.numpy as jnp, numpy as np, solvable, solvable.equinox

def use():
    model = solvable.ScalarNetwork()
    curves = [model.predict([0.0, 0.5, 2.0]), model.simulate([0.0, 0.5], samples=20, seeds=2, progress=False)]
    network = equinox.nn.MLP(5, 3, 80, 1, key=jax.random.key(0), dtype=jnp.float32)
    inputs = jax.random.normal(jax.random.key(1), (90, 5), jnp.float32)
    labels = jnp.arange(90, dtype=jnp.int32) % 3
    trained = jax.tree.map(lambda leaf: leaf * jnp.float32(1.1) if equinox.is_array(leaf) else leaf, network)
    report = solvable.equinox.diagnose(trained, (inputs, labels), (inputs, labels), initial=network, progress=False)
    kernels = [solvable.diagnostics.ntk(network, inputs[:20], dtype=dtype).values for dtype in (None, "float64")]
    arrays = [values.values for curve in curves for values in curve.variables.values()] + kernels
    return [report.to_json().encode(), *(str(array.dtype).encode() + array.tobytes() for array in arrays)]
"""


def in_this_process(*scripts: str) -> Any:
    """What the variable ``found`` is at the end of scripts that run one after the other here, in float64."""
    namespace: dict[str, Any] = {}
    exec("\n".join(scripts), namespace)
    return namespace["found"]


def in_new_process(*scripts: str, folder: Path) -> Any:
    """The same in a new process, which computes in float32."""
    answer = folder / "answer"
    end = f"import pickle\npickle.dump(found, open({str(answer)!r}, 'wb'))"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCE), environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([*scripts, end])], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads(answer.read_bytes())


@pytest.fixture(scope="module")
def float64_numbers() -> list[bytes]:
    """What solvable gives in a process that computes in float64 throughout."""
    return in_this_process(SOLVABLE, "found = use()")


@pytest.fixture(scope="module")
def user_alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the user's program gives where solvable is never imported."""
    check = "import sys\nassert 'solvable' not in sys.modules"
    return in_new_process(USER, "found = user()", check, folder=tmp_path_factory.mktemp("alone"))


def test_importing_and_using_changes_nothing(tmp_path: Path, user_alone: str, float64_numbers: list[bytes]) -> None:
    state = """
import os

def state():
    return dict(os.environ), dict(jax.config.values), jnp.ones(1).dtype == jnp.float32
"""
    states, before, after, numbers = in_new_process(
        USER,
        state,
        "before = state(), user()",
        SOLVABLE,
        "numbers = use()",
        "after = state(), user()",
        "found = (before[0] == after[0], before[0][2]), before[1], after[1], numbers",
        folder=tmp_path,
    )
    assert states == (True, True)
    assert before == after == user_alone
    # JAX was used in float32 first, and theory did not suffer.
    assert numbers == float64_numbers


# Programs that run one after the other in one float32 process, each with names of its own. A user's program comes last,
# and finds JAX as it was before all of them.
PROGRAMS = {
    "an error inside": """
import solvable
for wrong in (lambda: solvable.ScalarNetwork().predict([-1.0]), lambda: solvable.sweep("scalar-network", {"no": [1]})):
    try:
        wrong()
    except Exception as error:
        refused = type(error).__name__
    else:
        raise AssertionError("not refused")
found = "refused"
""",
    "threads": """
from concurrent.futures import ThreadPoolExecutor
import jax.numpy as jnp, solvable

def bits(target):
    curve = solvable.ScalarNetwork(target=target).predict([0.0, 0.5, 2.0])
    return curve.test_loss.values.tobytes() + curve.first.values.tobytes()

targets = [1.0, 2.0, 3.0, 4.0] * 3
with ThreadPoolExecutor(4) as pool:
    together = list(pool.map(bits, targets))
    inside = list(pool.map(lambda _: str(jnp.ones(1).dtype), range(4)))
found = together == [bits(target) for target in targets], inside
""",
    "derivatives": """
import jax, solvable

def loss(target):
    return solvable.ScalarNetwork(target=target).predict([1.0]).test_loss.data[0]

try:
    jax.grad(loss)(2.0)
except ValueError as error:
    refused = str(error)
with jax.enable_x64(True):
    slope = float(jax.grad(loss)(2.0))
    h = 1e-5
    found = refused, slope, (float(loss(2.0 + h)) - float(loss(2.0 - h))) / (2 * h)
""",
    "a user's network": """
import equinox as eqx, jax, jax.numpy as jnp, numpy as np, solvable.equinox

class Recurrent(eqx.Module):
    cell: jax.Array
    last: eqx.nn.Linear

    def __call__(self, rows):
        step = lambda state, row: (jnp.tanh((self.cell @ state + row).astype(jnp.float32)), None)
        return self.last(jax.lax.scan(step, jnp.zeros(4), rows)[0])

first, second = jax.random.split(jax.random.key(0))
network = Recurrent(jax.random.normal(first, (4, 4)) / 2, eqx.nn.Linear(4, 2, key=second))

class Loader:
    def __iter__(self):
        for number in range(3):
            inputs = jax.random.normal(jax.random.key(number), (50, 6, 4))
            kept.append(inputs)
            yield inputs, inputs.sum(axis=(1, 2)).astype(int) % 2

kept = []
report = solvable.equinox.diagnose(network, Loader(), Loader(), progress=False)
own = jax.vmap(network)(jax.random.normal(jax.random.key(0), (50, 6, 4)))
seen = solvable.diagnostics.feature_kernel(network, kept[0]).values
found = report.precision, {str(batch.dtype) for batch in kept}, np.asarray(own @ own.T), seen
""",
    "a float64 network": """
import equinox as eqx, jax, numpy as np, solvable.equinox
with jax.enable_x64(True):
    network = eqx.nn.MLP(3, 2, 80, 1, key=jax.random.key(0))
inputs, labels = np.sin(np.arange(180.0)).reshape(60, 3), np.arange(60) % 2
report = solvable.equinox.diagnose(network, (inputs, labels), (inputs, labels), progress=False)
kernel = solvable.diagnostics.ntk(network, inputs)
found = report.precision, report.to_json(), kernel.attrs["precision"], kernel.values.tobytes()
""",
    "trained networks": """
import jax, numpy as np, optax, solvable.networks as networks

def network(key):
    return networks.MLP(2, 1, width=16, depth=2, key=key, parameterisation="ntk", bias_scale=0.5)

task = networks.circle(source=0.5, points=64, random_phases=True, key=jax.random.key(1))
found = [np.asarray(task.targets)]
for precision in ("float32", "float64"):
    options = dict(steps=5, precision=precision, inspect=networks.kernel_metrics(8), progress=False)
    training = networks.train(network, task, optax.sgd(0.1), **options)
    found += [values.values for values in training.curves.data_vars.values()]
    found += [np.asarray(leaf) for leaf in jax.tree.leaves(training.network()) if hasattr(leaf, "shape")]
parity = networks.SparseParity(skills=4, skill_bits=12)
found += [np.asarray(part).astype(int) for part in parity.draw(jax.random.key(0), 100)]
forecast = networks.forecast(network, task.inputs, task.targets, seeds=2, progress=False)
found = [array.tobytes() for array in [*found, forecast.eigenvalues, forecast.power]]
""",
    "sweeps": """
import numpy as np, solvable
targets = [0.5, 1.0, 2.0, 4.0]
alone = np.array([float(solvable.ScalarNetwork(target=target).kernel_ratio().kernel_ratio) for target in targets])
found = {}
for engine in ("serial", "vmap", "processes"):
    options = {"workers": 1} if engine == "processes" else {}
    axes = {"target": targets}
    swept = solvable.sweep("scalar-network", axes, "kernel_ratio", engine=engine, progress=False, **options)
    values = next(iter(swept.data_vars.values())).values
    found[engine] = str(values.dtype), values, alone
""",
    "the user at the end": f"{USER}\nfound = user()",
}


@pytest.fixture(scope="module")
def found_in_float32(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each program found, or its error, in a process that has JAX in float32."""
    run = f"""
import jax.numpy as jnp, traceback
answers = {{"solvable first": use()}}
for name, program in {PROGRAMS!r}.items():
    names = {{"__name__": "__main__"}}
    try:
        exec(program, names)
        answers[name] = names["found"]
    except Exception:
        answers[name] = traceback.format_exc()
    assert jnp.ones(1).dtype == jnp.float32, name
found = answers
"""
    return in_new_process(SOLVABLE, run, folder=tmp_path_factory.mktemp("programs"))


def test_the_user_may_come_second(
    found_in_float32: dict[str, Any], user_alone: str, float64_numbers: list[bytes]
) -> None:
    assert found_in_float32["the user at the end"] == user_alone
    assert found_in_float32["solvable first"] == float64_numbers


def test_an_error_inside_leaves_jax_as_it_was(found_in_float32: dict[str, Any], user_alone: str) -> None:
    assert found_in_float32["an error inside"] == "refused"
    assert found_in_float32["the user at the end"] == user_alone


def test_threads_get_what_one_gets(found_in_float32: dict[str, Any]) -> None:
    """Precision is a property of a thread in JAX; four threads switch it on and off at the same time."""
    assert found_in_float32["threads"] == (True, ["float32"] * 4)


def test_derivatives_in_float32_are_refused_with_the_remedy(found_in_float32: dict[str, Any]) -> None:
    refused, slope, difference = found_in_float32["derivatives"]
    assert "float32" in refused
    assert "jax_enable_x64" in refused
    assert "jax.enable_x64(True)" in refused
    # Central differences with h = 1e-5: truncation ~ h^2, rounding ~ 1e-16 / h.
    assert slope == pytest.approx(difference, rel=1e-8)


def test_a_users_network_runs_as_in_the_users_program(found_in_float32: dict[str, Any]) -> None:
    """A scan from ``jnp.zeros`` over float32 rows is an error in float64, and the loader would draw other numbers."""
    precision, drawn, own, seen = found_in_float32["a user's network"]
    assert precision == "float32"
    assert drawn == {"float32"}
    np.testing.assert_allclose(seen, own, rtol=1e-5, atol=1e-6)


def test_a_float64_network_keeps_its_digits_in_a_float32_program(found_in_float32: dict[str, Any]) -> None:
    narrow = found_in_float32["a float64 network"]
    assert narrow[::2] == ("float64", "float64")
    assert narrow == in_this_process(PROGRAMS["a float64 network"])


def test_trained_networks_do_not_depend_on_the_process(found_in_float32: dict[str, Any]) -> None:
    """Neither do a forecast, a task and what is measured on the way."""
    assert found_in_float32["trained networks"] == in_this_process(PROGRAMS["trained networks"])


@pytest.mark.parametrize("engine", ["serial", "vmap", "processes"])
def test_sweeps_compute_in_float64(found_in_float32: dict[str, Any], engine: str) -> None:
    """In this process, vectorised and in worker processes: what the model itself gives."""
    dtype, swept, alone = found_in_float32["sweeps"][engine]
    assert dtype == "float64"
    np.testing.assert_allclose(swept, alone, rtol=1e-14)


# Two times, so that whole steps and flows are both allowed, and one seed: what is compared are bits, not statistics.
CURVES = """
def curves(name):
    from solvable import models

    model = models.get(name)()
    return {"theory": model.predict([0, 1]), "simulation": model.simulate([0, 1], seeds=1, progress=False)}
"""


# Methods of every model are switched to float64 by the same wrapper (``Model.__init_subclass__``). These three compile
# integrators for some ten seconds each; the others have closed forms, integrators, draws and solvers between them.
LONG = ("linear-network", "committee", "parity-mode")


@pytest.fixture(scope="module")
def float32_process(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The curves of models in a process that has JAX in float32, or the error where there was one."""
    chosen = [name for name in models.names() if name not in LONG or request.config.getoption("--slow")]
    attempts = f"""
import jax, jax.numpy as jnp
assert jnp.ones(1).dtype == jnp.float32
found = {{}}
for name in {chosen!r}:
    try:
        found[name] = curves(name)
    except Exception as error:
        found[name] = repr(error)
assert jnp.ones(1).dtype == jnp.float32
"""
    return in_new_process(CURVES, attempts, folder=tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in models.names()]
)
def test_models_do_not_depend_on_the_process(name: str, float32_process: dict[str, Any]) -> None:
    """Predictions and simulations of every registered model, with JAX in float32 and (here) in float64."""
    narrow = float32_process[name]
    assert isinstance(narrow, dict), narrow
    wide: dict[str, xr.Dataset] = in_this_process(CURVES, f"found = curves({name!r})")
    for kind, expected in wide.items():
        found = narrow[kind]
        assert set(found.variables) == set(expected.variables)
        for variable, values in expected.variables.items():
            assert found[variable].dtype == values.dtype, f"{kind}: {variable}"
            np.testing.assert_array_equal(found[variable].values, values.values, err_msg=f"{kind}: {variable}")
