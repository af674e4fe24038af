"""Statistics of last-layer features compared with a Gram matrix, and the distance compared with n x n kernels."""

import time
import tracemalloc
from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import Result, seconds
from solvable.diagnostics import FeatureStatistics, features
from solvable.diagnostics.features import minimum_projection_distance

SAMPLES, FEATURES, CLASSES = 60_000, 1024, 10


def sample(
    samples: int, width: int, classes: int = CLASSES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(samples, width))
    return phi, phi[:, :classes] + rng.normal(size=(samples, classes)), rng.integers(0, classes, samples)


def stream(data: tuple[np.ndarray, ...], batch: int = 10_000) -> FeatureStatistics:
    statistics = FeatureStatistics()
    for start in range(0, data[0].shape[0], batch):
        statistics.update(*(array[start : start + batch] for array in data))
    return statistics


def with_kernels(phi: np.ndarray, outputs: np.ndarray) -> float:
    """The distance to the minimum-projection operator by its definition, from n x n matrices."""

    def centred(kernel: np.ndarray) -> np.ndarray:
        kernel -= kernel.mean(axis=0)
        kernel -= kernel.mean(axis=1)[:, None]
        return kernel

    basis = np.linalg.qr(outputs)[0]
    kernel, projection = centred(phi @ phi.T), centred(basis @ basis.T)
    return 1 - float(np.vdot(kernel, projection)) / float(np.linalg.norm(kernel) * np.linalg.norm(projection))


def peak(function: Any) -> float:
    """Peak of the allocated bytes while a function runs."""
    tracemalloc.start()
    function()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(most)


def against_the_gram_matrix() -> list[Result]:
    data = sample(SAMPLES, FEATURES)
    # Alternating, so that a busy machine slows both.
    bare, streamed = [], []
    for _ in range(3):
        bare.append(seconds(lambda: data[0].T @ data[0], repeats=1, warm=False))
        streamed.append(seconds(lambda: stream(data) and 0, repeats=1, warm=False))
    statistics = stream(data)
    report = seconds(lambda: features(statistics, statistics) and 0, repeats=2)
    single = tuple(array.astype(np.float32) if array.dtype == float else array for array in data)
    return [
        Result("bare Gram matrix, n = 60000, p = 1024, float64", min(bare), "s"),
        Result("statistics of the same features, 10 outputs, labels", min(streamed), "s"),
        Result("ratio (best of three each, in turns)", min(streamed) / min(bare), "x", at_most=1.5),
        Result("the same from float32", seconds(lambda: stream(single) and 0, repeats=2) / min(bare), "x"),
        Result("the whole report from the statistics", report, "s"),
    ]


def against_kernels(samples: int = 10_000, width: int = 256) -> list[Result]:
    """At n = 10000, n x n kernels fit in memory (two of 0.8 GB). They grow like n², the statistics like n."""
    phi, outputs, labels = sample(samples, width)
    slow = seconds(lambda: with_kernels(phi, outputs), repeats=1, warm=False)

    def fast() -> float:
        return minimum_projection_distance(stream((phi, outputs, labels)))[0]

    quick = seconds(fast)
    difference = abs(fast() - with_kernels(phi, outputs))
    memory = peak(lambda: with_kernels(phi, outputs)) / peak(fast)
    return [
        Result(f"distance from n x n kernels, n = {samples}, p = {width}", slow, "s"),
        Result("distance from the statistics", quick, "s"),
        Result("times faster", slow / quick, "x", at_least=50),
        Result("times less memory", memory, "x", at_least=100),
        Result("difference", difference, "", at_most=1e-10),
    ]


def growth() -> list[Result]:
    """How the cost grows with the number of samples (like n) and of features (up to p²)."""

    def cost(samples: int, width: int) -> float:
        data = sample(samples, width)
        return seconds(lambda: stream(data) and 0, repeats=3)

    base = cost(10_000, 256)
    return [
        Result("cost of four times the samples (10000 to 40000, p = 256)", cost(40_000, 256) / base, "x"),
        Result("cost of four times the features (256 to 1024, n = 10000)", cost(10_000, 1024) / base, "x"),
    ]


def stream_on_gpu(p: int = 4096, n: int = 10**6, batch: int = 20_000, classes: int = CLASSES) -> list[Result]:
    """Statistics of batches on the device, compared with the rate of a float64 product of the same shape.

    The fraction counts the 2np² operations of the Gram matrix, and the wall time of everything except making the
    batches: casting, shifting, checking, cross moments.
    """
    import jax
    import jax.numpy as jnp

    @jax.jit
    def make(number: Any) -> tuple[Any, Any, Any]:
        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), number), 3)
        labels = jax.random.randint(keys[2], (batch,), 0, classes)
        phi = jax.random.normal(keys[0], (batch, p), jnp.float32) + 10
        return phi, jax.random.normal(keys[1], (batch, classes), jnp.float32), labels

    phi = make(0)[0].astype(jnp.float64)
    product = jax.jit(lambda array: array.T @ array)
    rate = 2 * batch * p**2 / seconds(lambda: product(phi), repeats=5)
    statistics = FeatureStatistics(classes).update(*make(0))
    busy = 0.0
    for number in range(1, n // batch + 1):
        data = jax.block_until_ready(make(number))
        begin = time.perf_counter()
        statistics.update(*data)
        busy += time.perf_counter() - begin
    achieved = 2 * (n // batch) * batch * p**2 / busy
    covariance = statistics.feature_covariance
    return [
        Result(f"float64 product of ({p}, {batch}) and ({batch}, {p})", rate / 1e12, "Tflop/s"),
        Result(f"{n} samples of {p} features streamed", busy, "s"),
        Result("fraction of the rate", achieved / rate, "", at_least=0.5),
        Result("largest error of a variance that is 1", float(np.abs(np.diag(covariance) - 1).max()), ""),
    ]


def perceptrons_and_others() -> dict[str, tuple[Any, Any, list[Any]]]:
    """Three networks in torch and in Equinox, each with batches of inputs and labels."""
    import equinox as eqx
    import jax
    import torch

    rng, keys = np.random.default_rng(0), jax.random.split(jax.random.key(0), 6)
    torch.manual_seed(0)

    def batches(number: int, samples: int, *shape: int, tokens: int = 0) -> list[Any]:
        if tokens:
            return [tuple(rng.integers(0, tokens, (2, samples, *shape))) for _ in range(number)]
        return [
            (rng.normal(size=(samples, *shape)).astype(np.float32), rng.integers(0, CLASSES, samples))
            for _ in range(number)
        ]

    class Sentences(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
            self.embed, self.head = torch.nn.Embedding(64, 64), torch.nn.Linear(64, 64)
            self.layers = torch.nn.TransformerEncoder(layer, 2)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.embed(x)))

    class Words(eqx.Module):
        embed: Any
        attention: Any
        perceptron: Any
        head: Any

        def __call__(self, x: Any) -> Any:
            x = jax.vmap(self.embed)(x)
            x = x + self.attention(x, x, x)
            return jax.vmap(self.head)(x + jax.vmap(self.perceptron)(x))

    relu, pool, nn = torch.nn.ReLU(), torch.nn.AvgPool2d(2), eqx.nn
    words = Words(
        nn.Embedding(64, 64, key=keys[0]),
        nn.MultiheadAttention(4, 64, key=keys[1]),
        nn.MLP(64, 64, 128, 1, key=keys[2]),
        nn.Linear(64, 64, key=keys[3]),
    )
    convolutions = nn.Sequential(
        [
            nn.Conv2d(1, 16, 3, padding=1, key=keys[4]),
            nn.Lambda(jax.nn.relu),
            nn.AvgPool2d(2, 2),
            nn.Conv2d(16, 32, 3, padding=1, key=keys[5]),
            nn.Lambda(lambda x: jax.nn.relu(x).ravel()),
            nn.Linear(32 * 49, CLASSES, key=keys[0]),
        ]
    )
    linear, conv = torch.nn.Linear, torch.nn.Conv2d
    return {
        "convolutional network": (
            torch.nn.Sequential(
                *(conv(1, 16, 3, padding=1), relu, pool, conv(16, 32, 3, padding=1), relu),
                *(torch.nn.Flatten(), linear(32 * 49, CLASSES)),
            ),
            convolutions,
            batches(8, 64, 1, 14, 14),
        ),
        "perceptron": (
            torch.nn.Sequential(linear(64, 512), relu, linear(512, 512), relu, linear(512, CLASSES)),
            nn.MLP(64, CLASSES, 512, 2, key=keys[0]),
            batches(4, 512, 64),
        ),
        "transformer": (Sentences(), words, batches(4, 16, 32, tokens=64)),
    }


def looks_in_gradients(repeats: int = 5) -> list[Result]:
    """Processor time of a look at the edge of stability, in that of the gradient that training computes."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    import torch

    from solvable.diagnostics import stability

    def processor_seconds(function: Any) -> float:
        begin = time.process_time()
        function()
        return time.process_time() - begin

    def loss(network: Any, inputs: Any, labels: Any) -> Any:
        rows = jax.vmap(network)(inputs)
        rows = jax.nn.log_softmax(rows.reshape(-1, rows.shape[-1]))
        return -jnp.mean(jnp.take_along_axis(rows, labels.reshape(-1, 1), 1))

    slope = eqx.filter_jit(eqx.filter_grad(loss))

    def in_torch(network: Any, data: Any) -> None:
        for inputs, labels in data:
            rows = network(inputs)
            torch.nn.functional.cross_entropy(rows.reshape(-1, rows.shape[-1]), labels.reshape(-1)).backward()

    def in_jax(network: Any, data: Any) -> None:
        for batch in data:
            jax.block_until_ready(slope(network, *batch))

    results = []
    for name, (module, network, batches) in perceptrons_and_others().items():
        tensors = [tuple(map(torch.tensor, batch)) for batch in batches]
        arrays = [tuple(map(jnp.asarray, batch)) for batch in batches]
        for library, gradient, model, data in (
            ("torch", in_torch, module, tensors),
            ("JAX", in_jax, network, arrays),
        ):
            look = partial(stability, model, data, tolerance=0, progress=False)
            took: dict[str, list[float]] = {"gradient": [], "look": []}
            for _ in range(repeats + 1):  # in turns, so that a busy machine slows both; the first time compiles
                took["gradient"].append(processor_seconds(partial(gradient, model, data)))
                took["look"].append(processor_seconds(look))
            one, whole = (min(times[1:]) for times in took.values())
            results.append(Result(f"gradient of a {name} in {library}", one, "s"))
            results.append(Result("a look at its stability, in gradients", whole / one, "x"))
    return results


def run() -> list[Result]:
    import jax

    results = [*against_the_gram_matrix(), *against_kernels(), *growth(), *looks_in_gradients()]
    if jax.default_backend() == "gpu":
        results += stream_on_gpu()
    return results
