"""The stability monitor for torch modules: the same numbers as for JAX, and the network is left as it was found."""

import copy
import math

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import solvable.torch
from solvable.diagnostics import stability

RNG = np.random.default_rng(3)
INPUTS, LABELS = RNG.normal(size=(30, 3)).astype("float32"), RNG.integers(0, 4, 30)
TARGETS = RNG.normal(size=(30, 4)).astype("float32")
DATA = torch.tensor(INPUTS), torch.tensor(LABELS)
EXACT = {"budget": 900.0, "tolerance": 0, "dtype": "float64", "count": 41}


class Apply(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def network(*between):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 5), *(between or (torch.nn.Tanh(),)), torch.nn.Linear(5, 4))


def in_jax(parameters, inputs):
    first, bias, second, shift = parameters
    return jnp.tanh(inputs @ first.T + bias) @ second.T + shift


def arrays(module):
    return tuple(value.detach().numpy() for value in module.parameters())


@pytest.mark.parametrize("loss", ["mse", "half-mse", "cross-entropy"])
def test_torch_and_jax_agree(loss):
    targets = LABELS if loss == "cross-entropy" else TARGETS
    batches = [(INPUTS[:20], targets[:20]), (INPUTS[20:], targets[20:])]
    module = network()
    options = {"loss": loss, **EXACT, "budget": 150.0}
    with_jax = stability(in_jax, batches, parameters=arrays(module), **options)
    with_torch = stability(module, [tuple(map(torch.tensor, batch)) for batch in batches], **options)
    assert with_torch.loss == pytest.approx(with_jax.loss, rel=1e-12)
    assert with_torch.sharpness == pytest.approx(with_jax.sharpness, rel=1e-9)
    assert with_torch.gauss_newton[0] == pytest.approx(with_jax.gauss_newton[0], rel=1e-8)
    assert with_torch.statistical_error == pytest.approx(with_jax.statistical_error, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "torch_loss", "targets"),
    [
        ("mse", torch.nn.MSELoss(), TARGETS),
        ("cross-entropy", torch.nn.CrossEntropyLoss(), LABELS),
        ("cross-entropy", torch.nn.CrossEntropyLoss(reduction="none"), LABELS),
    ],
)
def test_named_losses_are_those_of_torch(name, torch_loss, targets):
    data = torch.tensor(INPUTS), torch.tensor(targets)
    named, given = (stability(network(), data, loss=loss, budget=40) for loss in (name, torch_loss))
    assert given.sharpness == pytest.approx(named.sharpness, rel=1e-5)
    assert given.loss == pytest.approx(torch_loss(network()(data[0]), data[1]).mean().item(), rel=1e-5)


def test_gauss_newton_against_the_whole_matrix():
    module = network().double()
    names = dict(module.named_parameters())

    def outputs(*values):
        found = torch.func.functional_call(module, dict(zip(names, values, strict=True)), (DATA[0].double(),))
        return found.reshape(-1)

    jacobian = torch.cat(
        [part.reshape(120, -1) for part in torch.autograd.functional.jacobian(outputs, tuple(names.values()))], 1
    )
    report = stability(module, (DATA[0], torch.tensor(TARGETS)), loss="half-mse", **EXACT)
    expected = torch.linalg.eigvalsh(jacobian.T @ jacobian / 30).flip(0).numpy()
    np.testing.assert_allclose(report.gauss_newton[:20], expected[:20], rtol=1e-7, atol=1e-10)
    assert report.gauss_newton.min() > -1e-10


def test_rectifiers_have_a_hessian_almost_everywhere():
    """Its diagonal blocks vanish for f = second . relu(first): on the squared loss each is that of Gauss-Newton."""
    report = stability(network(torch.nn.ReLU()), DATA, budget=60)
    assert report.sharpness > 0
    assert report.error < 1e-2 * report.sharpness


class Sequence(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(16, 32)
        self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.head = torch.nn.Linear(32, 16)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))


def convolutional():
    layers = [torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.AvgPool2d(2)]
    layers += [torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(800, 4)]
    return torch.nn.Sequential(*layers)


def perceptron():
    layers = [torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 4))


def multiplications(function):
    with FlopCounterMode(display=False) as counter:
        function()
    return counter.get_total_flops()


@pytest.mark.parametrize("parts", [1, 3, 8, 20])
@pytest.mark.parametrize(
    ("make", "shape"),
    [(perceptron, (20,)), (convolutional, (3, 10, 10)), (Sequence, (6,))],
    ids=["perceptron", "convolutional", "transformer"],
)
def test_a_look_takes_no_more_operations_than_it_says(make, shape, parts):
    """Multiplications as torch counts them, in units of those of the gradient that training computes."""
    torch.manual_seed(0)
    module = make().eval()
    if make is Sequence:
        batches = [(torch.randint(16, (4, *shape)), torch.randint(16, (4, *shape))) for _ in range(parts)]
    else:
        batches = [(torch.randn(4, *shape), torch.randint(4, (4,))) for _ in range(parts)]

    def gradient():
        # Fused attention hides its products from the counter.
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            for inputs, targets in batches:
                outputs = module(inputs)
                outputs = outputs.reshape(-1, outputs.shape[-1])
                torch.nn.functional.cross_entropy(outputs, targets.reshape(-1)).backward()

    one = multiplications(gradient)
    reports = []
    taken = multiplications(lambda: reports.append(stability(module, batches, tolerance=0)))
    (report,) = reports
    assert taken / one <= report.cost <= 20


class Squared(torch.autograd.Function):
    """A custom function that has two derivatives and no forward mode."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, slope):
        return 2 * context.saved_tensors[0] * slope


def test_layers_without_forward_mode():
    module = network(Apply(Squared.apply))
    report = stability(module, DATA, **{**EXACT, "count": 20})
    expected = stability(network(Apply(torch.square)), DATA, **{**EXACT, "count": 20})
    np.testing.assert_allclose(report.gauss_newton, expected.gauss_newton, rtol=1e-9, atol=1e-12)
    assert stability(module, DATA, tolerance=0).cost <= 20


def test_frozen_parameters_and_those_of_no_optimizer_are_left_out():
    module = network()
    module[0].requires_grad_(False)
    frozen = stability(module, DATA, **EXACT)
    other = network()
    optimizer = torch.optim.SGD(other[2].parameters(), lr=0.1)
    held = solvable.torch.stability(other, DATA, optimizer, **EXACT)
    assert frozen.parameters == held.parameters == 24
    np.testing.assert_allclose(frozen.eigenvalues[:15], held.eigenvalues[:15], rtol=1e-9)
    # Linear in what is left: the Hessian is the Gauss-Newton matrix.
    np.testing.assert_allclose(frozen.eigenvalues[:15], frozen.gauss_newton[:15], rtol=1e-8)


def test_learning_rates_of_groups_scale_the_curvature():
    """With rates r_i, steps are those of gradient descent in weights w_i / sqrt(r_i)."""
    torch.manual_seed(1)
    module = torch.nn.Linear(3, 1, bias=False).double()
    two = torch.nn.ParameterList([module.weight[:, :1].detach().clone(), module.weight[:, 1:].detach().clone()])

    class Split(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = two

        def forward(self, x):
            return x @ torch.cat(list(self.parts), 1).T

    split = Split()
    optimizer = torch.optim.SGD([{"params": [split.parts[0]], "lr": 0.4}, {"params": [split.parts[1]], "lr": 0.1}])
    inputs = torch.tensor(INPUTS, dtype=torch.float64)
    report = solvable.torch.stability(split, (inputs, torch.ones(30, 1)), optimizer, loss="half-mse", **EXACT)
    root = np.diag(np.sqrt([1.0, 0.25, 0.25]))
    expected = np.linalg.eigvalsh(root @ (inputs.T @ inputs / 30).numpy() @ root)[-1]
    assert report.sharpness == pytest.approx(expected, rel=1e-9)
    assert report.edge_fraction == pytest.approx(0.4 * expected / 2)


def test_coupled_weight_decay_adds_to_the_curvature():
    module = network()
    plain = solvable.torch.stability(module, DATA, torch.optim.SGD(module.parameters(), lr=0.1), **EXACT)
    decay = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.25)
    with_decay = solvable.torch.stability(module, DATA, decay, **EXACT)
    assert with_decay.sharpness == pytest.approx(plain.sharpness + 0.25, rel=1e-9)
    assert with_decay.gauss_newton[0] == pytest.approx(plain.gauss_newton[0] + 0.25, rel=1e-6)
    assert with_decay.edge == plain.edge == 20


def test_adam_in_use_is_read():
    module = network()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2, weight_decay=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(DATA[0]), DATA[1]).backward()
        optimizer.step()
    report = solvable.torch.stability(module, DATA, optimizer, budget=60)
    assert report.preconditioned
    assert report.edge == pytest.approx((2 - 1e-3) * 1.9 / (0.1 * 1e-2))
    assert "AdamW" in report.verdict
    assert 0 < report.edge_fraction < 10


def test_the_network_and_the_random_numbers_are_left_alone():
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(5, 4)
    )
    dataset = torch.utils.data.TensorDataset(*DATA)
    generator = torch.Generator().manual_seed(1)
    loader = torch.utils.data.DataLoader(dataset, 8, shuffle=True, generator=generator, drop_last=True)
    before, state, draws = copy.deepcopy(module.state_dict()), torch.get_rng_state(), generator.get_state()
    first, second = (stability(module, loader) for _ in range(2))
    assert first.sharpness == second.sharpness
    assert module.training
    assert all(value.grad is None for value in module.parameters())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(generator.get_state(), draws)


def test_batches_of_mappings_and_attention():
    class Reader(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(7, 8)
            self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = torch.nn.Linear(8, 7)

        def forward(self, input_ids):
            return {"logits": self.head(self.layer(self.embed(input_ids))), "loss": torch.zeros(())}

    torch.manual_seed(0)
    tokens = torch.randint(7, (6, 5))
    labels = torch.where(torch.rand(6, 5) < 0.2, -100, tokens)
    batches = [{"input_ids": tokens[i : i + 2], "labels": labels[i : i + 2]} for i in (0, 2, 4)]
    report = stability(Reader(), batches, budget=60)
    assert report.samples == int((labels >= 0).sum())
    assert report.error < 0.05 * report.sharpness


def test_half_precision_is_computed_in_float32():
    half = network().to(torch.bfloat16)
    report = stability(half, DATA)
    assert report.sharpness == stability(copy.deepcopy(half).float(), DATA).sharpness
    assert "(parameters in bfloat16)" in report.summary()
    assert half[0].weight.dtype is torch.bfloat16


class Once(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(context, slope):
        return slope * 2


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Once.apply, "no second derivative that can be computed"),
        (torch.sign, "sign"),
    ],
)
def test_networks_without_a_second_derivative(function, words):
    module = torch.nn.Sequential(network(), Apply(function))
    with pytest.raises(ValueError) as caught:
        stability(module, DATA)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": []}, "gave no batch"),
        ({"data": [DATA[0]]}, "batch must be"),
        ({"data": [{"input": DATA[0]}]}, "no targets"),
        ({"loss": torch.nn.CrossEntropyLoss(reduction="sum")}, "reduction='mean'"),
        ({"model": torch.nn.Sequential(network(), Apply(torch.Tensor.detach))}, "no derivative"),
        ({"model": network().requires_grad_(False)}, "requires_grad_"),
        ({"optimizer": torch.optim.SGD(network().parameters(), lr=0.1)}, "holds no parameter of this model"),
        ({"data": (DATA[0], DATA[1][:, None].float())}, "give loss="),
        ({"trainable": True}, "trainable is for JAX"),
        ({"data": (DATA[0] * math.nan, DATA[1])}, "on batch 1"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_a_line(change, words):
    arguments = {"model": network(), "data": DATA, **change}
    with pytest.raises(ValueError) as caught:
        stability(arguments.pop("model"), arguments.pop("data"), **arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_against_curvlinops():
    """Another implementation of the same matrices, where it is installed."""
    curvlinops = pytest.importorskip("curvlinops")
    module = network().double()
    data = [(DATA[0][:20].double(), DATA[1][:20]), (DATA[0][20:].double(), DATA[1][20:])]
    loss = torch.nn.CrossEntropyLoss()
    report = stability(module, data, **{**EXACT, "budget": 400.0})
    weights = list(module.parameters())
    for kind, found in (("HessianLinearOperator", report.eigenvalues), ("GGNLinearOperator", report.gauss_newton)):
        operator = getattr(curvlinops, kind)(module, loss, weights, data)
        size = report.parameters
        matrix = (operator @ torch.eye(size, dtype=torch.float64)).numpy()
        expected = np.sort(np.linalg.eigvalsh((matrix + matrix.T) / 2))[::-1]
        np.testing.assert_allclose(found[:10], expected[:10], rtol=1e-8)
