"""Inputs that the diagnostics, the bridges to PyTorch and Equinox, and their commands refuse in words.

Each case is a call that must raise an error whose message is one line and contains the words.
"""

import contextlib
import functools
import io
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import torch

import solvable.equinox
import solvable.torch
from solvable import diagnostics
from solvable.cli import _run
from solvable.networks.forecast import forecast


class Case(NamedTuple):
    """A name, a call that must be refused, and words that the error must contain."""

    name: str
    call: Callable[[], Any]
    words: str


RNG = np.random.default_rng(0)
X, Y, OUTPUTS = RNG.normal(size=(40, 4)), RNG.integers(3, size=40), RNG.normal(size=(40, 3))
FEATURES = RNG.normal(size=(40, 6))
SAMPLE = (FEATURES, OUTPUTS, Y)
KERNEL = FEATURES @ FEATURES.T
PAIR = torch.tensor(X, dtype=torch.float32), torch.tensor(Y)
ARRAYS = X.astype("float32"), Y


def linear(parameters: Any, inputs: Any) -> Any:
    return inputs @ parameters


def twice(parameters: Any, inputs: Any) -> Any:
    return inputs @ parameters, inputs @ parameters


WEIGHTS = np.ones((4, 3))


@functools.cache
def net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


class Heads(torch.nn.Module):
    """Two outputs of a row each: which one is meant has to be said."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return {"left": self.left(x), "right": self.right(x)}


class Words(torch.nn.Module):
    """A network that returns no array at all."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> str:
        return str(self.layer(x).shape)


@functools.cache
def module() -> eqx.nn.MLP:
    return eqx.nn.MLP(4, 3, 8, depth=1, key=jax.random.key(0))


def replaced(sample: tuple, place: int, value: Any) -> tuple:
    return tuple(value if number == place else part for number, part in enumerate(sample))


def with_entry(array: np.ndarray, value: float) -> np.ndarray:
    changed = array.copy()
    changed[3, 1] = value
    return changed


def report(train: Any = SAMPLE, test: Any = SAMPLE, **options: Any) -> Any:
    return diagnostics.features(train, test, **options)


def statistics(*sample: Any, **options: Any) -> Any:
    return diagnostics.FeatureStatistics(**options).update(*sample)


def of_torch(train: Any = PAIR, test: Any = PAIR, model: Any = None, **options: Any) -> Any:
    return solvable.torch.diagnose(net() if model is None else model, train, test, **options)


def of_equinox(train: Any = ARRAYS, test: Any = ARRAYS, model: Any = None, **options: Any) -> Any:
    return solvable.equinox.diagnose(module() if model is None else model, train, test, **options)


def lazy(before: Any, after: Any = None, **options: Any) -> Any:
    return diagnostics.laziness(linear, before, WEIGHTS if after is None else after, X, **options)


def foretold(targets: Any = OUTPUTS, inputs: Any = X, **options: Any) -> Any:
    return forecast(linear, inputs, targets, **{"parameters": WEIGHTS, **options})


MAKERS = """
import equinox, jax, torch

def torch_network():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

def equinox_network():
    return equinox.nn.MLP(4, 3, 8, depth=1, key=jax.random.key(0))

def needs(width):
    return torch.nn.Linear(4, width)

def nothing():
    return 3
"""


def command(*arguments: str, **files: dict[str, Any] | str | bytes) -> Callable[[], None]:
    """A command in a folder with these files (arrays of an .npz, or text); its message becomes the error."""

    def call() -> None:
        errors, here = io.StringIO(), Path.cwd()
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            (place / "bad_input_makers.py").write_text(MAKERS)
            for name, content in {"good": _data(), **files}.items():
                if isinstance(content, dict):
                    np.savez(place / f"{name}.npz", **content)
                else:
                    text = content.encode() if isinstance(content, str) else content
                    (place / name.replace("__", ".")).write_bytes(text)
            sys.path.insert(0, folder)
            os.chdir(place)
            try:
                with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                    code = _run(list(arguments))
            finally:
                os.chdir(here)
                sys.path.remove(folder)
                sys.modules.pop("bad_input_makers", None)
        if code != 2:
            raise AssertionError(f"the exit code was {code}, not 2: {errors.getvalue()}")
        lines = errors.getvalue().strip().splitlines()
        if len(lines) != 1:
            raise AssertionError(f"the message has {len(lines)} lines: {errors.getvalue()}")
        raise ValueError(lines[0])

    return call


def _data() -> dict[str, np.ndarray]:
    inputs, labels = ARRAYS
    parts = {"train_inputs": inputs, "train_labels": labels, "test_inputs": inputs, "test_labels": labels}
    return {**parts, "inputs": X, "targets": OUTPUTS}


def _features() -> dict[str, np.ndarray]:
    names = ("features", "outputs", "labels")
    return {f"{part}_{name}": array for part in ("train", "test") for name, array in zip(names, SAMPLE, strict=True)}


def _weights() -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in net().state_dict().items()}


TORCH = ("--model", "bad_input_makers:torch_network", "--data", "good.npz")
EQUINOX = ("--model", "bad_input_makers:equinox_network", "--data", "good.npz")

INPUTS = [
    # Features, outputs and targets.
    Case("features: no tuple", lambda: report(FEATURES), "train must be FeatureStatistics or a tuple"),
    Case("features: pair", lambda: report(SAMPLE[:2]), "tuple (features, outputs, targets)"),
    Case("features: empty statistics", lambda: report(diagnostics.FeatureStatistics()), "statistics are empty"),
    Case("features: threshold 0", lambda: report(threshold=0), "threshold must lie between 0 and 1"),
    Case("features: threshold nan", lambda: report(threshold=float("nan")), "threshold must lie between 0 and 1"),
    Case("features: huge cutoff", lambda: report(intensity_cutoff=1e9), "no feature is left above the cutoff"),
    Case("features: nan", lambda: report(replaced(SAMPLE, 0, with_entry(FEATURES, np.nan))), "contain nan"),
    Case("features: inf", lambda: report(replaced(SAMPLE, 1, with_entry(OUTPUTS, np.inf))), "contain inf"),
    Case("features: too large", lambda: report(replaced(SAMPLE, 0, with_entry(FEATURES, 1e200))), "square overflows"),
    Case("features: three axes", lambda: report(replaced(SAMPLE, 0, FEATURES[:, :, None])), "must have shape"),
    Case("features: complex", lambda: report(replaced(SAMPLE, 0, FEATURES * 1j)), "real numbers, not of complex128"),
    Case("features: text", lambda: report(replaced(SAMPLE, 0, FEATURES.astype(str))), "arrays of real numbers"),
    Case("features: objects", lambda: report(replaced(SAMPLE, 0, FEATURES.astype(object))), "not of object"),
    Case("features: fewer outputs", lambda: report(replaced(SAMPLE, 1, OUTPUTS[1:])), "39 rows of outputs"),
    Case("features: no rows", lambda: report(tuple(part[:0] for part in SAMPLE)), "1 or more"),
    Case("features: all zero", lambda: report(replaced(SAMPLE, 0, 0 * FEATURES)), "features that are all zero"),
    Case("features: outputs zero", lambda: report(SAMPLE, replaced(SAMPLE, 1, 0 * OUTPUTS)), "span nothing"),
    Case("features: other width", lambda: report(SAMPLE, replaced(SAMPLE, 0, FEATURES[:, 1:])), "same number of"),
    Case("features: few test samples", lambda: report(SAMPLE, tuple(part[:2] for part in SAMPLE)), "distinguish 3"),
    Case("labels: from 1", lambda: statistics(FEATURES, OUTPUTS, Y + 1), "FeatureStatistics(classes=...)"),
    Case("labels: negative", lambda: statistics(FEATURES, OUTPUTS, Y - 1), "go from -1"),
    Case("labels: too many targets", lambda: statistics(FEATURES, OUTPUTS, FEATURES), "6 real targets"),
    Case("classes: one", lambda: statistics(*SAMPLE, classes=1), "classes must be a whole number, 2 or more"),
    Case("classes: half", lambda: statistics(*SAMPLE, classes=2.5), "classes must be a whole number"),
    Case("collapse: weights", lambda: diagnostics.collapse(statistics(*SAMPLE), np.ones((6, 3))), "transpose them"),
    Case("collapse: bias", lambda: diagnostics.collapse(statistics(*SAMPLE), np.ones((3, 6)), [1.0]), "bias must have"),
    Case(
        "collapse: nan weights",
        lambda: diagnostics.collapse(statistics(*SAMPLE), np.full((3, 6), np.nan)),
        "weights and bias must be finite",
    ),
    Case(
        "collapse: real targets",
        lambda: diagnostics.collapse(statistics(FEATURES, OUTPUTS, OUTPUTS), np.ones((3, 6))),
        "classes need labels",
    ),
    # Kernels.
    Case("spectrum: not square", lambda: diagnostics.spectrum(FEATURES, Y, kind="kernel"), "symmetric kernel"),
    Case("spectrum: kind", lambda: diagnostics.spectrum(KERNEL, Y, kind="gram"), "kind must be one of"),
    Case("spectrum: zero", lambda: diagnostics.spectrum(0 * KERNEL, Y), "kernel is zero"),
    Case("spectrum: negative", lambda: diagnostics.spectrum(-KERNEL, Y), "has eigenvalues down to -"),
    Case("spectrum: modes 0", lambda: diagnostics.spectrum(KERNEL, Y, modes=0), "modes must be a whole number"),
    Case("spectrum: nan", lambda: diagnostics.spectrum(with_entry(KERNEL, np.nan), Y), "not finite in row 3"),
    Case("spectrum: targets", lambda: diagnostics.spectrum(KERNEL, Y[1:]), "40 inputs and targets 39"),
    Case("spectrum: complex", lambda: diagnostics.spectrum(KERNEL * 1j, Y), "real numbers, not of complex128"),
    Case("alignment: constant", lambda: diagnostics.kernel_alignment(KERNEL, np.ones(40)), "is constant"),
    Case("cka: few", lambda: diagnostics.cka(FEATURES[:3], FEATURES[:3], debiased=True), "at least 4 inputs"),
    Case("change: zero", lambda: diagnostics.kernel_change(0 * KERNEL, KERNEL), "no relative change"),
    Case("ntk: no parameters", lambda: diagnostics.ntk(linear, X), "pass parameters=..."),
    Case("ntk: no network", lambda: diagnostics.ntk(3, X), "model must be a function"),
    Case("ntk: no floats", lambda: diagnostics.ntk(linear, X, parameters=np.ones((4, 3), int)), "no trainable"),
    Case("ntk: outputs", lambda: diagnostics.ntk(linear, X, parameters=WEIGHTS, outputs="all"), "outputs must be one"),
    Case("ntk: method", lambda: diagnostics.ntk(linear, X, parameters=WEIGHTS, method="fast"), "method must be one of"),
    Case("ntk: dtype", lambda: diagnostics.ntk(linear, X, parameters=WEIGHTS, dtype="half"), "dtype must be"),
    Case("ntk: no inputs", lambda: diagnostics.ntk(linear, X[:0], parameters=WEIGHTS), "at least one input"),
    Case("ntk: landmarks", lambda: diagnostics.ntk(linear, X, parameters=WEIGHTS, landmarks=99), "from 1 to the 40"),
    Case("ntk: batch", lambda: diagnostics.ntk(linear, X, parameters=WEIGHTS, batch_size=0), "batch_size must be"),
    Case("ntk: memory", lambda: diagnostics.ntk(linear, X, parameters=WEIGHTS, memory_limit=0), "memory_limit must be"),
    Case("ntk: two outputs", lambda: diagnostics.ntk(twice, X, parameters=WEIGHTS), "output_field="),
    Case(
        "ntk: field that is none",
        lambda: diagnostics.ntk(twice, X, parameters=WEIGHTS, output_field="logits"),
        "not among the fields",
    ),
    Case(
        "ntk: field of an array",
        lambda: diagnostics.ntk(linear, X, parameters=WEIGHTS, output_field=0),
        "which has no fields",
    ),
    Case("ntk: squeezed", lambda: diagnostics.ntk(lambda p, x: (x @ p)[0], X, parameters=WEIGHTS), "do not squeeze"),
    Case("ntk: state dict", lambda: diagnostics.ntk(net(), PAIR[0], parameters={}), "the parameters lack '0.weight'"),
    Case("ntk: wrong parameters", lambda: diagnostics.ntk(net(), PAIR[0], parameters=3), "a module or a state dict"),
    Case("ntk: arrays for a module", lambda: diagnostics.ntk(module(), X, parameters=[1.0]), "a module like it"),
    Case("ntk: nan", lambda: diagnostics.ntk(linear, X * np.nan, parameters=WEIGHTS), "not finite"),
    Case("laziness: same", lambda: lazy(WEIGHTS), "did not move"),
    Case("laziness: other shape", lambda: lazy(np.ones((4, 2))), "the model must be the same"),
    Case("laziness: thresholds", lambda: lazy(2 * WEIGHTS, thresholds=(1, 0.1)), "lazy <= rich"),
    Case("laziness: kernel_inputs", lambda: lazy(2 * WEIGHTS, kernel_inputs=-1), "kernel_inputs must be"),
    Case("laziness: nan", lambda: lazy(WEIGHTS * np.nan), "not finite"),
    # PyTorch.
    Case("torch: one array", lambda: of_torch(PAIR[0]), "not one array of shape (40, 4)"),
    Case("torch: nothing", lambda: of_torch(None), "or one pair of whole arrays, not None"),
    Case("torch: a number", lambda: of_torch(7), "or one pair of whole arrays, not 7"),
    Case("torch: lengths", lambda: of_torch((PAIR[0], PAIR[1][1:])), "40 inputs but 39 targets"),
    Case("torch: three arrays", lambda: of_torch((PAIR[0], PAIR[0], PAIR[1])), "3 arrays"),
    Case("torch: empty", lambda: of_torch([]), "training set is empty"),
    Case("torch: empty test", lambda: of_torch(PAIR, []), "test set is empty"),
    Case("torch: batch", lambda: of_torch([PAIR[0]]), "a batch must be (inputs, targets)"),
    Case("torch: mapping", lambda: of_torch([{"input": PAIR[0]}]), "none of labels"),
    Case("torch: labels", lambda: of_torch((PAIR[0], PAIR[1] + 1)), "number the classes from 0"),
    Case("torch: hidden layer", lambda: of_torch(last_layer="0"), "its 8 outputs are not the network's 3"),
    Case("torch: unknown layer", lambda: of_torch(last_layer="head"), "has no layer 'head'; it has 0, 1, 2"),
    Case("torch: other layer", lambda: of_torch(last_layer=torch.nn.Linear(2, 2)), "not a part of this Sequential"),
    Case("torch: two heads", lambda: of_torch(model=Heads()), "'left' (array of shape (40, 3)), 'right'"),
    Case("torch: no field", lambda: of_torch(model=Heads(), output_field="logits"), "'left', 'right'"),
    Case("torch: words", lambda: of_torch(model=Words()), "must return an array"),
    Case("torch: no layers", lambda: of_torch(model=torch.nn.ReLU()), "runs no layer with parameters"),
    Case("torch: unmoved start", lambda: of_torch(initial=net()), "did not move"),
    Case("torch: start of another", lambda: of_torch(initial={"0.weight": PAIR[0]}), "the parameters lack '0.bias'"),
    Case("torch: start is a number", lambda: of_torch(initial=3), "a module or a state dict, not int"),
    Case("torch: nan", lambda: of_torch((PAIR[0] * np.nan, PAIR[1])), "contain nan"),
    Case("torch: collapse of real targets", lambda: solvable.torch.collapse(net(), (X, OUTPUTS)), "need labels"),
    Case(
        "torch: tracker goes back",
        lambda: [solvable.torch.Tracker(net(), PAIR, PAIR, collapse=True)(0, mp_distance=1.0)],
        "give your number another name",
    ),
    # Equinox.
    Case("equinox: one array", lambda: of_equinox(X), "not one array of shape (40, 4)"),
    Case("equinox: nothing", lambda: of_equinox(None), "not None"),
    Case("equinox: lengths", lambda: of_equinox((X, Y[1:])), "40 inputs but 39 targets"),
    Case("equinox: empty", lambda: of_equinox([]), "training set is empty"),
    Case("equinox: batch of three", lambda: of_equinox([(X, X, Y)]), "must be a pair (inputs, targets)"),
    Case("equinox: labels", lambda: of_equinox((X, Y + 1)), "number the classes from 0"),
    Case("equinox: hidden layer", lambda: of_equinox(last_layer=lambda own: own.layers[0]), "is not the last step"),
    Case("equinox: layer by name", lambda: of_equinox(last_layer="0"), "a function that picks a layer"),
    Case("equinox: several layers", lambda: of_equinox(last_layer=lambda own: own.layers), "not tuple"),
    Case("equinox: iterator", lambda: solvable.equinox.collapse(module(), iter([ARRAYS])), "an iterator that runs out"),
    Case("equinox: no network", lambda: of_equinox(model=3), "model must be an Equinox module, not int"),
    Case("equinox: unmoved start", lambda: of_equinox(initial=module()), "did not move"),
    Case("equinox: start is a number", lambda: of_equinox(initial=3), "a module like it, not int"),
    Case("equinox: nan", lambda: of_equinox((jnp.full((5, 4), jnp.nan), jnp.zeros(5, int))), "contain nan"),
    # Forecasts.
    Case("forecast: few points", lambda: foretold(OUTPUTS[:9], X[:9]), "9 points: give at least 20"),
    Case("forecast: counts", lambda: foretold(OUTPUTS[1:]), "40 inputs and 39 targets"),
    Case("forecast: outputs", lambda: foretold(OUTPUTS[:, :2]), "3 outputs and the targets have 2"),
    Case("forecast: labels", lambda: foretold(Y + 1), "labels must be from 0 to 2"),
    Case("forecast: zero", lambda: foretold(0 * OUTPUTS), "nothing to learn"),
    Case("forecast: nan", lambda: foretold(with_entry(OUTPUTS, np.nan)), "not finite in row 3"),
    Case("forecast: text", lambda: foretold(OUTPUTS.astype(str)), "numbers or labels"),
    Case("forecast: start", lambda: foretold(initial_outputs="random"), "initial_outputs must be"),
    Case("forecast: window", lambda: foretold(first_mode=9, last_mode=3), "first_mode must be below last_mode"),
    Case("forecast: first", lambda: foretold(first_mode=0), "first_mode"),
    Case("forecast: draws", lambda: foretold(seeds=3), "cannot be initialised with 3 seeds"),
    Case("forecast: time limit", lambda: foretold(time_limit=0), "time_limit must be a positive number"),
    Case("forecast: too long", lambda: foretold(time_limit=1e-9), "longer than the time_limit"),
    Case("forecast: nan inputs", lambda: foretold(inputs=X * np.nan), "not finite on input 0"),
    Case("forecast: maker", lambda: forecast(lambda width: width, X, OUTPUTS), "it needs width"),
    Case("forecast: no network", lambda: forecast(lambda: 3, X, OUTPUTS), "not int"),
    # Commands.
    Case("diagnose: nothing", command("diagnose"), "give a file of features"),
    Case("diagnose: no file", command("diagnose", "none.npz"), "there is no file none.npz"),
    Case("diagnose: text", command("diagnose", "text.npz", text__npz="hello"), "text.npz is not an .npz file"),
    Case("diagnose: both", command("diagnose", "good.npz", "--checkpoint", "w.npz"), "not both"),
    Case("diagnose: start alone", command("diagnose", "good.npz", "--initial", "w.npz"), "need --checkpoint"),
    Case("diagnose: arrays", command("diagnose", "good.npz"), "has no array 'train_features'"),
    Case("diagnose: plot", command("diagnose", "f.npz", "--plot", "x.gif", f=_features()), ".png, .svg, .pdf"),
    Case("diagnose: weights", command("diagnose", "--checkpoint", "none.npz", *TORCH), "there is no checkpoint"),
    Case("diagnose: ending", command("diagnose", "--checkpoint", "w.txt", *TORCH, w__txt="x"), "end in .npz or"),
    Case("diagnose: lacks", command("diagnose", "--checkpoint", "w.npz", *TORCH, w={"a": X}), "lacks '0.weight'"),
    Case(
        "diagnose: shape",
        command("diagnose", "--checkpoint", "w.npz", *TORCH, w={**_weights(), "0.bias": np.ones(3)}),
        "'0.bias' has shape (3,) where the network has (8,)",
    ),
    Case(
        "diagnose: start that lacks",
        command("diagnose", "--checkpoint", "w.npz", "--initial", "i.npz", *TORCH, w=_weights(), i={"a": X}),
        "i.npz does not fit the network",
    ),
    Case("diagnose: paths", command("diagnose", "--checkpoint", "w.npz", *EQUINOX, w=_weights()), "layers[0].weight"),
    Case("diagnose: damaged .pt", command("diagnose", "--checkpoint", "w.pt", *TORCH, w__pt=b"PK"), "w.pt"),
    Case(
        "diagnose: damaged safetensors",
        command("diagnose", "--checkpoint", "w.safetensors", *TORCH, w__safetensors=b"12345678"),
        "is damaged",
    ),
    Case("diagnose: no module", command("diagnose", "--checkpoint", "w.npz", "--model", "no_such:f", "--data",
                                        "good.npz"), "there is no module"),
    Case("diagnose: no colon", command("diagnose", "--checkpoint", "w.npz", "--model", "makers", "--data", "good.npz"),
         "must look like module:function"),
    Case("diagnose: maker", command("diagnose", "--checkpoint", "w.npz", "--model", "bad_input_makers:needs", "--data",
                                    "good.npz"), "it needs width"),
    Case("diagnose: no network", command("diagnose", "--checkpoint", "w.npz", "--model", "bad_input_makers:nothing",
                                         "--data", "good.npz"), "not int"),
    Case("forecast: no data file", command("forecast", "--model", "mlp:8x2", "--data", "no.npz"), "there is no file"),
    Case("forecast: model", command("forecast", "--model", "mlp:8", "--data", "good.npz"), "mlp:WIDTHxDEPTH"),
    Case("forecast: limit", command("forecast", "--model", "mlp:8x2", "--data", "good.npz", "--time-limit", "0"),
         "time_limit must be"),
    Case("forecast: sum of what", command("forecast", "--model", "mlp:8x2", "--data", "good.npz", "--outputs", "mean"),
         "outputs must be"),
    Case("forecast: plot ending", command("forecast", "--model", "mlp:8x2", "--data", "good.npz", "--plot", "x.gif"),
         ".png, .svg, .pdf"),
]  # fmt: skip
