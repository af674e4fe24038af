"""Networks and data as practitioners have them: every kind works in every diagnostic, or is refused in one line.

One small network in many wrappings. Where a wrapping does not change the function, its numbers are those of the plain
network; half precision changes them by its rounding.
"""

import copy
import dataclasses
import functools
import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable.equinox
from solvable.diagnostics import laziness, ntk, stability
from solvable.networks.forecast import forecast

torch = pytest.importorskip("torch")
import solvable.torch  # noqa: E402

SIZE, CLASSES = 40, 3
RNG = np.random.default_rng(0)
LEFT, RIGHT = RNG.normal(size=(2, SIZE, 4)).astype(np.float32)
LABELS = RNG.integers(CLASSES, size=SIZE)
ONE_HOT = np.eye(CLASSES)[LABELS]
NUMBERS = RNG.normal(size=(SIZE, CLASSES)).astype(np.float32)


@dataclasses.dataclass
class Answer:
    loss: typing.Any
    scores: typing.Any


FORMS = {
    "array": lambda outputs: outputs,
    "tuple": lambda outputs: (outputs, (outputs, outputs)),
    "dict": lambda outputs: {"loss": (outputs**2).mean(), "logits": outputs, "hidden": outputs},
    "dataclass": lambda outputs: Answer((outputs**2).mean(), outputs),
}


class Network(torch.nn.Module):
    """Two layers; one input of four numbers, or two inputs."""

    def __init__(self, form: str = "array") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head, self.form = torch.nn.Linear(4, 8), torch.nn.Linear(8, CLASSES), FORMS[form]

    def forward(self, left: torch.Tensor, right: torch.Tensor | None = None) -> typing.Any:
        return self.form(self.head(torch.tanh(self.first(left if right is None else left + right))))


class Convolutional(torch.nn.Module):
    """A network that ends in a convolution and an average over positions: it has no linear last layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Conv1d(1, 5, 3, padding=1), torch.nn.Tanh())
        self.head = torch.nn.Conv1d(5, CLASSES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x[:, None])).mean(-1)


class Encoder(torch.nn.Module):
    """Attention over the four numbers as words, with the past keys and values of a language model among its outputs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.attention = torch.nn.Linear(1, 8), torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head = torch.nn.LayerNorm(8), torch.nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> typing.Any:
        words = self.embed(x[..., None])
        heard, weights = self.attention(words, words, words)
        found = self.head(self.norm(words + heard).mean(1))
        return {"logits": found, "past_key_values": ((words, heard), (words, heard)), "attentions": weights}


class Tied(torch.nn.Module):
    """A network whose last layer has the weights of its first one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = torch.nn.Linear(4, CLASSES, bias=False), torch.nn.Linear(4, CLASSES, bias=False)
        self.back = torch.nn.Linear(CLASSES, 4)
        self.head.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.back(self.first(x))))


class Keywords(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = Network()

    def forward(self, **inputs: torch.Tensor) -> typing.Any:
        return self.inside(inputs["left"])


def normalised() -> torch.nn.Module:
    """In training mode, as in a training loop: dropout and statistics of batches are not what is measured."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Dropout(0.3)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, CLASSES)).train()


def frozen() -> Network:
    network = Network()
    network.first.requires_grad_(False)
    return network


class Kind(typing.NamedTuple):
    """A network, its inputs for kernels, its batches, its targets, and options of ``diagnose``."""

    make: typing.Callable[[], typing.Any] = Network
    inputs: typing.Any = LEFT
    batch: typing.Callable[[typing.Any, typing.Any], typing.Any] = lambda inputs, targets: (inputs, targets)
    targets: typing.Any = LABELS
    options: typing.Any = None
    # Relative error of numbers against the plain network; None where the function is another one.
    error: float | None = 1e-5
    # Of the batches, if it is not that of the network.
    dtype: typing.Any = None


def tensors(value: typing.Any) -> typing.Any:
    """Arrays of a nested structure as tensors."""
    if isinstance(value, dict):
        return {name: tensors(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(tensors, value))
    return torch.tensor(np.asarray(value))


KINDS = {
    "plain": Kind(),
    "tuple": Kind(functools.partial(Network, "tuple")),
    "dict": Kind(functools.partial(Network, "dict")),
    "dataclass": Kind(functools.partial(Network, "dataclass")),
    "several inputs": Kind(inputs=(LEFT / 2, LEFT / 2), batch=lambda inputs, targets: (*inputs, targets)),
    "nested inputs": Kind(inputs=(LEFT / 2, LEFT / 2)),
    "dict batches": Kind(inputs={"left": LEFT}, batch=lambda inputs, targets: {**inputs, "labels": targets}),
    "nested dict": Kind(inputs={"right": LEFT / 2, "left": LEFT / 2}),
    "bfloat16": Kind(lambda: Network().to(torch.bfloat16), error=0.05),
    "float16": Kind(lambda: Network().to(torch.float16), error=0.01),
    "compiled": Kind(lambda: torch.compile(Network())),
    "one-hot": Kind(targets=ONE_HOT),
    "whole one-hot": Kind(targets=ONE_HOT.astype(int)),
    "regression": Kind(targets=NUMBERS),
    "no linear end": Kind(Convolutional, options={"feature_layer": "body"}, error=None),
    "inputs of a layer": Kind(Convolutional, options={"feature_layer": ("head", "inputs")}, error=None),
    "frozen": Kind(frozen, error=None),
    "attention and cache": Kind(Encoder, error=None),
    "normalisation and dropout": Kind(normalised, error=None),
    "tied weights": Kind(Tied, error=None),
    "keywords": Kind(Keywords, inputs={"left": LEFT}, batch=lambda inputs, targets: {**inputs, "labels": targets}),
    "data parallel": Kind(lambda: torch.nn.DataParallel(Network())),
    "float64 on float32": Kind(lambda: Network().double(), dtype=torch.float32),
}
table = pytest.mark.parametrize("name", KINDS)


def batches(kind: Kind, dtype: typing.Any) -> list[typing.Any]:
    """Two batches of tensors, inputs in the precision of the network."""

    def part(value: typing.Any, rows: slice) -> typing.Any:
        if isinstance(value, dict):
            return {name: part(one, rows) for name, one in value.items()}
        if isinstance(value, tuple):
            return tuple(part(one, rows) for one in value)
        return torch.tensor(value[rows]).to(dtype)

    rows = (slice(0, 20), slice(20, SIZE))
    return [kind.batch(part(kind.inputs, each), torch.tensor(kind.targets[each])) for each in rows]


def moved(model: typing.Any) -> dict[str, typing.Any]:
    """A copy of the state before a large step in all trained parameters, which is made."""
    before = copy.deepcopy(model.state_dict())
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in model.parameters():
            if value.requires_grad:
                value += 0.3 * torch.randn(value.shape, generator=generator).to(value.dtype)
    return before


@functools.cache
def measured(name: str, diagnostic: str) -> np.ndarray:
    """Numbers of a diagnostic for a kind of network and data."""
    kind = KINDS[name]
    model = kind.make()
    dtype = kind.dtype or next(model.parameters()).dtype
    quiet = {"progress": False}
    if diagnostic == "ntk":
        return ntk(model, kind.inputs, **quiet).values
    if diagnostic == "forecast":
        return forecast(model, kind.inputs, kind.targets, **quiet).eigenvalues[0][:20]
    if diagnostic == "stability":
        loss = None if kind.targets is LABELS else "mse"
        report = solvable.torch.stability(
            model, batches(kind, dtype), loss=loss, learning_rate=0.1, count=1, tolerance=1e-6, budget=80, **quiet
        )
        return np.array([report.loss, report.sharpness, report.gauss_newton[0], report.edge_fraction])
    before = moved(model)
    if diagnostic == "laziness":
        report = laziness(model, before, model, kind.inputs, kernel_inputs=10, **quiet)
        return np.array([report.distance, report.function_motion, report.kernel_change.distance])
    data = batches(kind, dtype)
    report = solvable.torch.diagnose(model, data, data, initial=before, **(kind.options or {}), **quiet)
    assert report.training is not None, report.not_measured
    return np.array([report.mp_distance, report.training.distance, *report.intensity[:3]])


@table
# Of torch, on the speed of its attention.
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("diagnostic", ["diagnose", "ntk", "laziness", "forecast", "stability"])
def test_kinds_of_networks_and_data(name: str, diagnostic: str) -> None:
    found = measured(name, diagnostic)
    assert np.isfinite(found).all()
    kind = KINDS[name]
    same_targets = kind.targets is LABELS or diagnostic in ("ntk", "laziness")
    if kind.error is None or not same_targets:
        return
    expected = measured("plain", diagnostic)
    if diagnostic == "forecast":  # weak modes of rounded weights are not weak in the same way
        found, expected = found[:5], expected[:5]
    np.testing.assert_allclose(found, expected, rtol=kind.error, atol=kind.error * np.abs(expected).max())


def test_frozen_layers_are_left_out_of_the_kernel() -> None:
    whole, part = Network(), frozen()
    difference = ntk(whole, LEFT, progress=False) - ntk(part, LEFT, progress=False)
    hidden = torch.tanh(whole.first(torch.tensor(LEFT))).detach().numpy()
    np.testing.assert_allclose(ntk(part, LEFT, progress=False), CLASSES * (hidden @ hidden.T + 1), rtol=1e-4)
    assert float(np.linalg.eigvalsh(difference)[-1]) > 0
    part.requires_grad_(False)
    for diagnostic in (ntk, lambda *arguments, **_: forecast(*arguments, NUMBERS)):
        with pytest.raises(ValueError, match="no parameters that require gradients") as caught:
            diagnostic(part, LEFT, progress=False)
        assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
def test_the_kernel_of_attention_is_that_of_its_gradients() -> None:
    """In evaluation mode torch has a fast path for attention, which has no derivatives."""
    model = Encoder().eval()
    rows = []
    for output in model(torch.tensor(LEFT[:4]))["logits"].flatten():
        parts = torch.autograd.grad(output, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    whole = torch.stack(rows) @ torch.stack(rows).T
    expected = whole.reshape(4, CLASSES, 4, CLASSES).diagonal(dim1=1, dim2=3).sum(-1)
    np.testing.assert_allclose(ntk(model, LEFT[:4], progress=False), expected, rtol=1e-4)


def test_state_dicts_of_wrapped_modules() -> None:
    model, wrapped = Network(), torch.nn.DataParallel(Network())
    states = model.state_dict(), wrapped.state_dict(), torch.compile(wrapped).state_dict()
    kernels = [ntk(one, LEFT, parameters=state, progress=False) for one in (model, wrapped) for state in states]
    for kernel in kernels:
        np.testing.assert_array_equal(kernel, kernels[0])
    inner = torch.nn.Sequential()
    inner.add_module("module", Network())  # the name of a layer, not of a wrapper
    np.testing.assert_array_equal(ntk(inner, LEFT, parameters=inner.state_dict(), progress=False), kernels[0])


class Lazy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.LazyLinear(CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: torch.jit.trace(Network(), torch.tensor(LEFT)), "ScriptModule hides"),
        (lambda: torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, CLASSES))), "ScriptModule hides"),
        (Lazy, "'head.weight' has no shape yet"),
    ],
)
def test_modules_without_layers_or_shapes(make: typing.Any, words: str) -> None:
    data = [(torch.tensor(LEFT), torch.tensor(LABELS))]
    measures: list[typing.Any] = [
        lambda model: ntk(model, LEFT, progress=False),
        lambda model: laziness(model, model.state_dict(), model, LEFT, progress=False),
        lambda model: forecast(model, LEFT, NUMBERS, progress=False),
        lambda model: solvable.torch.stability(model, data, progress=False),
    ]
    if make is not Lazy:  # which the first batch of a diagnosis gives its shapes
        measures.append(lambda model: solvable.torch.diagnose(model, data, data, progress=False))
    for measure in measures:
        with pytest.raises(ValueError, match=words) as caught:
            measure(make())
        assert "\n" not in str(caught.value)


class Stateful(eqx.Module):
    """Equinox's batch normalisation, whose running statistics are an argument and a result."""

    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    head: eqx.nn.Linear

    def __init__(self, key: typing.Any) -> None:
        self.first, self.norm = eqx.nn.Linear(4, 8, key=key), eqx.nn.BatchNorm(8, "batch", mode="batch")
        self.head = eqx.nn.Linear(8, CLASSES, key=key)

    def __call__(self, x: typing.Any, state: typing.Any) -> typing.Any:
        x, state = self.norm(jnp.tanh(self.first(x)), state)
        return self.head(x), state


def test_equinox_modules_with_state() -> None:
    model, state = eqx.nn.make_with_state(Stateful)(jax.random.key(0))
    _, state = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(jnp.asarray(LEFT), state)
    data = LEFT, LABELS
    measures: list[typing.Any] = [
        lambda model, **options: ntk(model, LEFT, progress=False, **options),
        lambda model, **options: forecast(model, LEFT, NUMBERS, progress=False, **options),
        lambda model, **options: stability(model, data, progress=False, **options),
    ]
    for measure in (*measures, lambda model: solvable.equinox.diagnose(model, data, data, progress=False)):
        with pytest.raises(TypeError, match=r"'state': give a function") as caught:
            measure(model)
        assert "\n" not in str(caught.value)
        with pytest.raises(ValueError, match=r"not tuple") as caught:
            measure((model, state))
        assert "\n" not in str(caught.value)

    def apply(module: typing.Any, inputs: typing.Any) -> typing.Any:
        return jax.vmap(lambda x: module(x, state)[0])(inputs)

    still = eqx.nn.inference_mode(model)
    assert np.isfinite(ntk(apply, LEFT, parameters=still, progress=False)).all()
    assert np.isfinite(forecast((apply, still), LEFT, NUMBERS, progress=False).eigenvalues).all()
    assert stability(apply, data, parameters=still, progress=False).sharpness > 0
    assert solvable.equinox.stability(model, data, apply=apply, progress=False).sharpness > 0
    assert 0 < solvable.equinox.diagnose(model, data, data, apply=apply, progress=False).mp_distance < 1


class Tree(eqx.Module):
    """The Equinox twin: one or two inputs, outputs in a form."""

    first: eqx.nn.Linear
    head: eqx.nn.Linear
    form: str = eqx.field(static=True)

    def __init__(self, form: str = "array", dtype: typing.Any = jnp.float32) -> None:
        keys = jax.random.split(jax.random.key(0))
        layers = eqx.nn.Linear(4, 8, key=keys[0]), eqx.nn.Linear(8, CLASSES, key=keys[1])
        self.first, self.head = jax.tree.map(lambda leaf: leaf.astype(dtype), layers)
        self.form = form

    def __call__(self, left: typing.Any, right: typing.Any = 0.0) -> typing.Any:
        return FORMS[self.form](self.head(jnp.tanh(self.first(left + right))))


TREES: dict[str, tuple[Tree, typing.Any, typing.Any, float]] = {
    "tuple": (Tree("tuple"), LEFT, LABELS, 1e-5),
    "dict": (Tree("dict"), LEFT, LABELS, 1e-5),
    "dataclass": (Tree("dataclass"), LEFT, LABELS, 1e-5),
    "several inputs": (Tree(), (LEFT / 2, LEFT / 2), LABELS, 1e-5),
    "dict inputs": (Tree(), {"left": LEFT / 2, "right": LEFT / 2}, LABELS, 1e-5),
    "bfloat16": (Tree(dtype=jnp.bfloat16), LEFT, LABELS, 0.05),
    "float16": (Tree(dtype=jnp.float16), LEFT, LABELS, 0.02),
    "one-hot": (Tree(), LEFT, ONE_HOT, 1e-5),
    "regression": (Tree(), LEFT, NUMBERS, 1e-5),
}


@pytest.mark.parametrize("name", TREES)
def test_the_same_in_equinox(name: str) -> None:
    model, inputs, targets, error = TREES[name]
    expected = ntk(Tree(), LEFT, progress=False).values
    found = ntk(model, inputs, progress=False).values
    np.testing.assert_allclose(found, expected, rtol=error, atol=error * expected.max())
    after = jax.tree.map(lambda leaf: leaf * 1.3 if eqx.is_inexact_array(leaf) else leaf, model)
    assert 0 < laziness(model, model, after, inputs, kernel_inputs=10, progress=False).distance < 2
    assert np.isfinite(forecast(model, inputs, targets, progress=False).eigenvalues).all()
    loss = None if targets is LABELS else "mse"
    targets = targets.astype(np.float32) if loss else targets
    edges = [
        stability(network, [(x, targets)], loss=loss, progress=False).sharpness
        for network, x in ((Tree(), LEFT), (model, inputs))
    ]
    np.testing.assert_allclose(*edges, rtol=max(error, 1e-3))
    if isinstance(inputs, np.ndarray):
        report = solvable.equinox.diagnose(model, (inputs, targets), (inputs, targets), progress=False)
        assert np.isfinite(report.mp_distance)
        return
    for data in ([(inputs, targets)], [{"left": LEFT, "labels": targets}]):
        with pytest.raises(ValueError, match="one array of inputs") as caught:
            solvable.equinox.diagnose(model, data, data, progress=False)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((LEFT, RIGHT[:5]), "equally many rows"),
        ({"left": LEFT, "right": RIGHT[:5]}, "equally many rows"),
        ({}, "is empty"),
        ({"left": "text"}, "must be arrays"),
    ],
)
def test_several_inputs_that_do_not_fit(inputs: typing.Any, message: str) -> None:
    for diagnostic in (ntk, lambda *arguments, **_: forecast(*arguments, NUMBERS)):
        with pytest.raises(ValueError, match=message) as caught:
            diagnostic(Network(), inputs, progress=False)
        assert "\n" not in str(caught.value)


def test_a_function_of_jax_takes_a_mapping_as_it_is() -> None:
    weights = jnp.asarray(RNG.normal(size=(4, 2)), jnp.float32)

    def apply(parameters: typing.Any, batch: typing.Any) -> typing.Any:
        return batch["left"] @ parameters + batch["right"] @ parameters

    found = ntk(apply, {"left": LEFT, "right": RIGHT}, parameters=weights, progress=False).values
    both = LEFT + RIGHT
    np.testing.assert_allclose(found, 2 * both @ both.T, rtol=1e-4, atol=1e-4)


def test_layers_whose_features_are_named() -> None:
    model = Convolutional()
    data = [(torch.tensor(LEFT), torch.tensor(LABELS))]
    outputs = solvable.torch.statistics(model, data, feature_layer="body", progress=False)
    inputs = solvable.torch.statistics(model, data, feature_layer=("head", "inputs"), progress=False)
    features = model.body(torch.tensor(LEFT)[:, None]).flatten(1).detach().numpy().astype(float)
    for found in (outputs, inputs):
        covariance = np.cov(features.T, bias=True)
        np.testing.assert_allclose(found.moments.on_host().feature_covariance, covariance, atol=1e-5)
    with pytest.raises(ValueError, match="no layer 'tail'"):
        solvable.torch.statistics(model, data, feature_layer="tail", progress=False)
    with pytest.raises(ValueError, match="'inputs' or 'outputs'"):
        solvable.torch.statistics(model, data, feature_layer=("head", "middle"), progress=False)
    with pytest.raises(ValueError, match="last_layer or feature_layer"):
        solvable.torch.statistics(model, data, "head", feature_layer="body", progress=False)
    with pytest.raises(ValueError, match="feature_layer="):
        solvable.torch.statistics(model, data, progress=False)
