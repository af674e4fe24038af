"""Kernels from outer products are those of the gradients themselves, and layers that have none are left alone."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable import diagnostics
from solvable.diagnostics import linear_layers
from solvable.diagnostics.tangent import network_of
from solvable.networks import MLP, centred

torch = pytest.importorskip("torch")
nn = torch.nn

pytestmark = pytest.mark.usefixtures("every_size")

INPUTS = np.random.default_rng(0).normal(size=(9, 4))


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for outer products in small networks as well."""
    monkeypatch.setattr(linear_layers, "WORTHWHILE", 0)


def torch_gradients(network: "nn.Module") -> np.ndarray:
    """The Jacobian by one backward pass for each input and output, (inputs, outputs, parameters)."""
    rows = []
    for one in torch.tensor(INPUTS):
        outputs = network(one[None])[0]
        rows.append([torch.cat([part.reshape(-1) for part in _slopes(output, network)]).numpy() for output in outputs])
    return np.array(rows)


def _slopes(output: "torch.Tensor", network: "nn.Module") -> list:
    parameters = list(network.parameters())
    found = torch.autograd.grad(output, parameters, retain_graph=True, allow_unused=True)
    return [torch.zeros_like(own) if part is None else part for own, part in zip(parameters, found, strict=True)]


class Tied(nn.Module):
    """A layer that runs twice, one whose weights are used elsewhere, and one that sees several positions."""

    def __init__(self) -> None:
        super().__init__()
        self.twice, self.elsewhere, self.positions, self.head = (nn.Linear(4, 4) for _ in range(4))
        self.unused = nn.Linear(2, 2)

    def forward(self, x: "torch.Tensor") -> "torch.Tensor":
        x = torch.tanh(self.twice(torch.tanh(self.twice(x))))
        x = torch.tanh(self.elsewhere(x)) + x @ self.elsewhere.weight
        x = torch.tanh(self.positions(torch.stack([x, 2 * x], 1))).sum(1)
        return self.head(x)


def networks() -> dict:
    torch.manual_seed(0)
    tied_head = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    tied_head[2].weight = tied_head[0].weight
    found = {
        "plain": nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 3, bias=False)),
        "normalised": nn.Sequential(nn.Linear(4, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 3)),
        "shared": tied_head,
        "tied": Tied(),
        "convolution": nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.Flatten(), nn.Linear(9, 2)),
    }
    return {name: network.double() for name, network in found.items()}


@pytest.mark.parametrize("name", ["plain", "normalised", "shared", "tied", "convolution"])
def test_torch_kernels_are_those_of_the_gradients(name: str) -> None:
    network = networks()[name]
    gradients = torch_gradients(network)
    full = np.einsum("icp,jdp->icjd", gradients, gradients)
    assert np.allclose(diagnostics.ntk(network, INPUTS, outputs="full"), full, rtol=1e-10, atol=1e-12)
    assert np.allclose(diagnostics.ntk(network, INPUTS), np.einsum("icjc->ij", full), rtol=1e-10, atol=1e-12)
    assert np.allclose(
        diagnostics.ntk(network, INPUTS[:5], INPUTS[3:], outputs="sum"),
        full.sum((1, 3))[:5, 3:],
        rtol=1e-10,
        atol=1e-12,
    )
    factor = diagnostics.ntk(network, INPUTS, landmarks=9).values
    assert np.allclose(factor @ factor.T, np.einsum("icjc->ij", full), atol=1e-6 * full.max())


def test_which_layers_are_outer_products() -> None:
    sizes = {name: network_of(network).gradient_size(INPUTS) for name, network in networks().items()}
    assert sizes["plain"] == (4 + 7 + 1) + (7 + 3 + 1)
    assert sizes["normalised"] == (4 + 7 + 1) + 14 + (7 + 3 + 1)
    assert sizes["shared"] == 16 + 4 + 4
    assert sizes["tied"] == 3 * 20 + 6 + (4 + 4 + 1)


class Positions(eqx.Module):
    """Linear layers on several positions, where gradients are sums of outer products."""

    inside: eqx.nn.Linear
    head: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.head(jnp.tanh(jax.vmap(self.inside)(jnp.stack([x, 2 * x]))).sum(0))


class Repeated(eqx.Module):
    layer: eqx.nn.Linear

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layer(jnp.tanh(self.layer(x)))


@functools.cache
def modules() -> dict:
    keys = jax.random.split(jax.random.key(0), 4)
    return {
        "equinox": eqx.nn.MLP(4, 3, 7, depth=2, key=keys[0]),
        "own": MLP(4, 3, width=7, depth=3, key=keys[1], parameterisation="ntk", bias_scale=0.3),
        "centred": centred(MLP(4, 3, width=7, depth=2, key=keys[1], parameterisation="mean-field")),
        "positions": Positions(eqx.nn.Linear(4, 5, key=keys[2]), eqx.nn.Linear(5, 2, key=keys[3])),
        "repeated": Repeated(eqx.nn.Linear(4, 4, key=keys[2])),
    }


@pytest.mark.parametrize("name", ["equinox", "own", "centred", "positions", "repeated"])
def test_equinox_kernels_are_those_of_the_gradients(name: str) -> None:
    module = modules()[name]
    trained, rest = eqx.partition(module, eqx.is_inexact_array)
    trained = jax.tree.map(lambda leaf: leaf.astype("float64"), trained)
    jacobian = jax.jit(jax.jacrev(lambda own: jax.vmap(eqx.combine(own, rest))(jnp.asarray(INPUTS))))(trained)
    gradients = np.concatenate([np.reshape(leaf, (9, leaf.shape[1], -1)) for leaf in jax.tree.leaves(jacobian)], axis=2)
    full = np.einsum("icp,jdp->icjd", gradients, gradients)
    found = diagnostics.ntk(module, INPUTS, outputs="full", dtype="float64", method="jacobian")
    assert np.allclose(found, full, rtol=1e-10, atol=1e-12)
    assert np.allclose(diagnostics.ntk(module, INPUTS, dtype="float64"), np.einsum("icjc->ij", full), rtol=1e-10)
    assert np.allclose(diagnostics.ntk(module, INPUTS[:1], dtype="float64"), np.einsum("icjc->ij", full)[:1, :1])


def test_own_networks_have_outer_products_too() -> None:
    network = network_of(modules()["own"], dtype="float64")
    factors = 5  # of the parameterisation, which are constants
    assert network.gradient_size(INPUTS) <= (4 + 7 + 1) + (7 + 7 + 1) + (7 + 3 + 1) + factors + 3


def test_small_networks_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_layers, "WORTHWHILE", 5000)
    assert network_of(modules()["equinox"]).gradient_size(INPUTS) == 4 * 7 + 7 + 7 * 7 + 7 + 7 * 3 + 3
    assert network_of(networks()["plain"]).gradient_size(INPUTS) == 4 * 7 + 7 + 7 * 3
