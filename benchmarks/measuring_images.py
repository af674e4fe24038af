"""What measuring an image network along its training costs: all feature measures and neural collapse of two sets.

    python -m benchmarks.measuring_images --out FILE [--commit COMMIT]

The network is the ResNet18 of :mod:`benchmarks.images` after some hundred steps. The time is given as a share of an
epoch, and split into the forward pass, the sums on the device, the transfer, and the algebra on the host. Beside it
stand the floor of the forward pass, from its operations and the rates of matrix products in the same run, and the
rounding error that shortened products bring.
"""

import argparse
import contextlib
import datetime
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from benchmarks import images
from benchmarks.timing import Result
from solvable import diagnostics
from solvable.diagnostics.eigenbasis import eigenbasis
from solvable.diagnostics.features import features_in
from solvable.networks import feature_record, one_set
from solvable.networks.losses import sample_loss
from solvable.networks.measures import begin
from solvable.networks.parts import cast
from solvable.networks.sources import Fixed

REPEATS = 3 if images.ON_CPU else 7
PRODUCT = 512 if images.ON_CPU else 8192
# What is measured may cost this share of an epoch.
PROMISED = 0.1
LOSS = "cross-entropy"


def last_layer(network: Any) -> Any:
    return network.last


def median_seconds(function: Callable[[], Any]) -> float:
    jax.block_until_ready(function())
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(function())
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextlib.contextmanager
def sums_by(library: str) -> Iterator[None]:
    """With "jax" the sums are one program, on a CPU as well; with "numpy" they are made step by step.

    The latter is what was done before: the host waits for each set, and for each of its sums.
    """
    kept = one_set.library_of
    one_set.library_of = lambda array: library  # type: ignore[assignment, return-value]
    try:
        yield
    finally:
        one_set.library_of = kept


def split(network: Any, data: Fixed, points: int) -> dict[str, float]:
    """Seconds of each part by itself; together they take less, because host and device work side by side."""
    train = data.inputs[:points], data.targets[:points]
    test = data.test_inputs[:points], data.test_targets[:points]

    def both() -> Any:
        return begin(network, last_layer, train, test, sample_loss(LOSS), "default")

    with sums_by("numpy"):  # the forward passes without the sums
        forward = median_seconds(lambda: [one._pieces for one in both()])
    with sums_by("jax"):
        sets, transfer = both(), []
        rows = one_set._rows(network.last, *network.last.weight.shape[::-1])
        sums = median_seconds(
            lambda: [one_set._summarise(one._pieces, one._targets, rows, one._loss, True) for one in sets]
        )
        for _ in range(REPEATS):
            # New arrays each time, because the host keeps what it has read.
            fresh = jax.block_until_ready([one._found for one in both()])
            start = time.perf_counter()
            found = jax.device_get(fresh)
            transfer.append(time.perf_counter() - start)
    for one, numbers in zip(sets, found, strict=True):
        one._found = numbers
    parts: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        marks = [time.perf_counter()]
        measured, tested = (one.finish() for one in sets)
        for statistic in (measured.statistics, tested.statistics):
            _ = statistic.feature_covariance
        marks.append(time.perf_counter())
        basis = eigenbasis(measured.statistics)
        marks.append(time.perf_counter())
        diagnostics.collapse(measured.statistics, network.last.weight, network.last.bias)
        marks.append(time.perf_counter())
        features_in(basis, measured.statistics, tested.statistics)
        marks.append(time.perf_counter())
        for name, took in zip(("moments", "eigenbasis", "collapse", "overlaps"), np.diff(marks), strict=True):
            parts.setdefault(f"host: {name}", []).append(float(took))
    return {
        "forward pass of both sets": forward,
        "sums on the device": sums,
        "transfer": statistics.median(transfer),
        **{name: statistics.median(times) for name, times in parts.items()},
    }


def counts(network: Any, data: Fixed, points: int) -> dict[str, float]:
    """What one measurement asks for: programs of the device, bytes to the host, eigenvalue problems there."""
    sizes: list[int] = []
    solve = np.linalg.eigh

    def counted(matrix: Any, *arguments: Any) -> Any:
        sizes.append(len(matrix))
        return solve(matrix, *arguments)

    sets = [(data.inputs[:points], data.targets[:points]), (data.test_inputs[:points], data.test_targets[:points])]
    with sums_by("jax"):
        begun = begin(network, last_layer, *sets, sample_loss(LOSS), "default")
        np.linalg.eigh = counted  # type: ignore[assignment]
        try:
            feature_record(points, last_layer=last_layer, loss=LOSS)(network, data, network)
        finally:
            np.linalg.eigh = solve
    return {
        "forward programs": sum(len(one._pieces) for one in begun),
        "programs for sums": len(begun),
        "megabytes to the host": sum(leaf.nbytes for one in begun for leaf in jax.tree.leaves(one._found)) / 1e6,
        "eigenvalue problems": len(sizes),
        "size of the largest": max(sizes),
    }


def forward_variants(network: Any, data: Fixed, points: int) -> dict[str, dict[str, float]]:
    """The bare forward pass of the images of both sets in other ways, and the error of its features."""
    body = eqx.tree_at(last_layer, eqx.nn.inference_mode(network), eqx.nn.Identity())
    few = data.inputs[: min(points, one_set.BATCH_SIZE)]

    def features(kind: Any, options: dict[str, bool], precision: str) -> Callable[[Any], Any]:
        arrays, static = eqx.partition(cast(body, kind), eqx.is_array)

        def run(arrays: Any, inputs: Any) -> Any:
            with jax.default_matmul_precision(precision):
                return jax.vmap(eqx.combine(arrays, static))(inputs.astype(kind))

        compiled = jax.jit(run, compiler_options=options or None)
        return lambda inputs: compiled(arrays, inputs)

    exact = features(jnp.float32, {}, "highest")
    reference = np.asarray(exact(few), float)
    ways = {
        "float32": exact,
        "products shortened (default)": features(jnp.float32, {}, "default"),
        "the same, channels last": features(jnp.float32, {"xla_gpu_force_conv_nhwc": True}, "default"),
        "bfloat16": features(jnp.bfloat16, {}, "default"),
    }
    rows: dict[str, dict[str, float]] = {}
    for name, run in ways.items():
        try:
            found = np.asarray(run(few), float)
            took = median_seconds(lambda run=run: run(few)) * 2 * points / len(few)
        except Exception as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        error = float(np.linalg.norm(found - reference) / np.linalg.norm(reference))
        rows[name] = {"seconds": took, "relative error of the features": error}
    return rows


def forward_work(network: Any) -> float:
    """Operations of one image's forward pass: two for each product of its convolutions and matrices.

    Counted in the traced program, because not every compiler says what a program costs before it is compiled, and none
    counts the products of a library's convolution.
    """
    arrays, static = eqx.partition(eqx.nn.inference_mode(network), eqx.is_array)
    image = jnp.zeros((images.SIZE, images.SIZE, 3), jnp.float32)
    return float(products(jax.make_jaxpr(lambda arrays, x: eqx.combine(arrays, static)(x))(arrays, image).jaxpr))


def products(program: Any) -> int:
    """Operations of the convolutions and matrix products of a traced program, and of the programs that it calls."""
    total = 0
    for equation in program.eqns:
        if equation.primitive.name == "conv_general_dilated":
            kernel = equation.invars[1].aval.shape
            features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(kernel) // features
        elif equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            summed = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
            total += 2 * math.prod(equation.outvars[0].aval.shape) * summed
        for inner in jaxprs_in_params(equation.params):
            total += products(inner)
    return total


def product_rates() -> dict[str, float]:
    """Operations per second of large products of random matrices."""
    rates = {}
    for name, kind, precision in (
        ("float32", jnp.float32, "highest"),
        ("shortened", jnp.float32, "default"),
        ("bfloat16", jnp.bfloat16, "default"),
    ):
        matrix = jax.random.normal(jax.random.key(0), (PRODUCT, PRODUCT), kind)
        with jax.default_matmul_precision(precision):
            product = jax.jit(lambda a: a @ a)
            rates[name] = 2 * PRODUCT**3 / median_seconds(lambda product=product, matrix=matrix: product(matrix))
    return rates


def rounding(network: Any, data: Fixed, points: int) -> dict[str, float]:
    """The largest relative change of each kind of measure by shortened products."""
    default, exact = (
        feature_record(points, last_layer=last_layer, loss=LOSS, precision=precision)(network, data, network)  # type: ignore[arg-type]
        for precision in ("default", "highest")
    )
    changes = {}
    for name, values in exact.items():
        values, other = np.asarray(values, float), np.asarray(default[name], float)
        size = np.nanmax(np.abs(values))
        if size > 0:
            changes[name] = float(np.nanmax(np.abs(other - values)) / size)
    return changes


def measure(points: int = images.POINTS) -> dict[str, Any]:
    """All numbers, from one short training."""
    found: dict[str, Any] = {}

    def look(network: Any, data: Fixed) -> None:
        record = feature_record(points, last_layer=last_layer, loss=LOSS)
        found["seconds"] = median_seconds(lambda: record(network, data, network) and 0)
        with sums_by("numpy"):
            found["seconds step by step"] = median_seconds(lambda: record(network, data, network) and 0)
        found["parts"] = split(network, data, points)
        found["counts"] = counts(network, data, points)
        found["forward"] = forward_variants(network, data, points)
        found["changes"] = rounding(network, data, points)
        found["operations per image"] = forward_work(network)

    batch = images.BATCHES[0]
    step = images.step_seconds(batch, look=look)
    found["images"] = 2 * points
    found["epoch"] = images.COUNT / batch * step
    found["rates"] = product_rates()
    return found


def results(found: dict[str, Any]) -> list[Result]:
    """The numbers as a table."""
    epoch, work = found["epoch"], found["operations per image"] * found["images"]
    promised = None if images.ON_CPU else PROMISED
    table = [
        Result(f"all measures of {found['images']} images", 1e3 * found["seconds"], "ms"),
        Result("share of an epoch", found["seconds"] / epoch, "", at_most=promised),
        Result("the same step by step", found["seconds step by step"] / epoch, ""),
        *(Result(name, 1e3 * value, "ms") for name, value in found["parts"].items()),
        *(Result(name, value, "") for name, value in found["counts"].items()),
    ]
    for name, row in found["forward"].items():
        table.append(Result(f"forward pass, {name}", 1e3 * row["seconds"], "ms"))
        table.append(Result("relative error of its features", row["relative error of the features"], ""))
    for name, rate in found["rates"].items():
        table.append(Result(f"floor of the forward pass at {rate / 1e12:.3g} Tflop/s, {name}", 1e3 * work / rate, "ms"))
    worst = sorted(found["changes"].items(), key=lambda item: -item[1])[:4]
    table += [Result(f"change of {name} by shortened products", value, "") for name, value in worst]
    return table


def run() -> list[Result]:
    with jax.enable_x64(True):
        return results(measure())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="file for all numbers, as JSON")
    parser.add_argument("--commit", default="", help="commit that is measured, for the file")
    asked = parser.parse_args()
    begun = time.perf_counter()
    with jax.enable_x64(True):
        found = measure()
    about = {
        "what": (__doc__ or "").splitlines()[0],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": asked.commit,
        "device": jax.devices()[0].device_kind,
        "jax": jax.__version__,
        "seconds in all": time.perf_counter() - begun,
    }
    if asked.out:
        asked.out.write_text(json.dumps(about | found, indent=1) + "\n", "utf-8")
    for result in results(found):
        print(f"  {result}")
    print(f"{about['device']}, {about['seconds in all']:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
