"""One way to find the outputs of a network, whatever it returns, for every measure."""

import dataclasses
import functools
import typing

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import solvable.equinox
from solvable import diagnostics
from solvable.networks.forecast import forecast

torch = pytest.importorskip("torch")
import solvable.torch  # noqa: E402

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(40, 4))
LABELS = RNG.integers(3, size=40)


@dataclasses.dataclass
class Answer:
    loss: typing.Any
    scores: typing.Any
    states: typing.Any = None


class Pair(typing.NamedTuple):
    value_loss: typing.Any
    logits: typing.Any


FORMS = {
    "tuple": lambda loss, outputs: (loss, outputs),
    "list": lambda loss, outputs: [loss, outputs],
    "recurrent": lambda loss, outputs: (outputs, (outputs, outputs)),
    "mapping": lambda loss, outputs: {"loss": loss, "logits": outputs, "hidden": outputs},
    "dataclass": lambda loss, outputs: Answer(loss, outputs),
    "named tuple": lambda loss, outputs: Pair(loss, outputs),
}


class Network(torch.nn.Module):
    """A plain network that returns its outputs in a form."""

    def __init__(self, form: typing.Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head, self.form = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3), form

    def forward(self, x: torch.Tensor) -> typing.Any:
        outputs = self.head(torch.tanh(self.first(x)))
        return self.form((outputs**2).mean(), outputs)


def plain(_: typing.Any, outputs: typing.Any) -> typing.Any:
    return outputs


def torch_measures(form: typing.Any) -> list[typing.Any]:
    """Everything that is measured on a torch network, the kernel first."""
    network = Network(form)
    inputs, labels = torch.tensor(INPUTS, dtype=torch.float32), torch.tensor(LABELS)
    moved = {key: value + 0.1 for key, value in network.state_dict().items()}
    pair = inputs, labels
    return [
        diagnostics.ntk(network, inputs),
        diagnostics.laziness(network, moved, network, inputs).distance,
        solvable.torch.diagnose(network, pair, pair).mp_distance,
        solvable.torch.collapse(network, pair).within_class,
        solvable.torch.Tracker(network, pair, pair)(0).mp_distance,
        forecast(network, INPUTS, LABELS).capacity,
    ]


@functools.cache
def plain_torch_measures() -> list[typing.Any]:
    return torch_measures(plain)


@pytest.mark.parametrize("name", FORMS)
def test_torch_forms_are_the_plain_network(name: str) -> None:
    kernel, *numbers = torch_measures(FORMS[name])
    expected, *others = plain_torch_measures()
    assert np.allclose(kernel, expected)
    assert numbers == others


PARAMETERS = [RNG.normal(size=(4, 8)), RNG.normal(size=(8, 3))]


def jax_measures(form: typing.Any) -> list[typing.Any]:
    """Everything that is measured on a function of a batch."""

    def network(parameters: typing.Any, inputs: typing.Any) -> typing.Any:
        outputs = jnp.tanh(inputs @ parameters[0]) @ parameters[1]
        return form(jnp.mean(outputs**2), outputs)

    later = [value + 0.1 for value in PARAMETERS]
    return [
        diagnostics.ntk(network, INPUTS, parameters=PARAMETERS),
        diagnostics.ntk(network, INPUTS, parameters=PARAMETERS, outputs="full"),
        diagnostics.laziness(network, PARAMETERS, later, INPUTS).distance,
        diagnostics.feature_kernel(network, INPUTS, parameters=PARAMETERS),
    ]


@functools.cache
def plain_jax_measures() -> list[typing.Any]:
    return jax_measures(plain)


@pytest.mark.parametrize("name", FORMS)
def test_functions_of_a_batch_are_the_plain_function(name: str) -> None:
    for found, expected in zip(jax_measures(FORMS[name]), plain_jax_measures(), strict=True):
        assert np.array_equal(found, expected)


class Module(eqx.Module):
    """An Equinox module of one input that returns fields."""

    network: eqx.nn.MLP
    form: typing.Any = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> typing.Any:
        outputs = self.network(x)
        return self.form(jnp.mean(outputs**2), outputs)


def test_equinox_modules_return_fields() -> None:
    mlp = eqx.nn.MLP(4, 3, 8, depth=1, key=jax.random.key(0))
    pair = INPUTS, LABELS
    expected = solvable.equinox.diagnose(mlp, pair, pair).mp_distance
    kernel = diagnostics.ntk(mlp, INPUTS)
    for name in ("mapping", "dataclass", "named tuple"):
        network = Module(mlp, FORMS[name])
        if name == "dataclass":  # which is no tree that jax.vmap can return
            assert np.allclose(diagnostics.ntk(network, INPUTS), kernel)
            continue
        assert solvable.equinox.diagnose(network, pair, pair).mp_distance == pytest.approx(expected, rel=1e-6)
        assert solvable.equinox.Tracker(pair, pair)(network).mp_distance == pytest.approx(expected, rel=1e-6)
        assert solvable.equinox.collapse(network, pair).classes == 3
        assert np.allclose(diagnostics.ntk(network, INPUTS), kernel)
    # A number for one input may be an output, so that nothing is guessed from places.
    network = Module(mlp, FORMS["tuple"])
    for measure in (
        lambda **chosen: solvable.equinox.diagnose(network, pair, pair, **chosen),
        lambda **chosen: diagnostics.ntk(network, INPUTS, **chosen),
    ):
        with pytest.raises(ValueError, match="output_field="):
            measure()
        measure(output_field=1)


def test_what_is_not_clear_is_asked_for() -> None:
    network = Network(lambda loss, outputs: {"policy": outputs, "value": outputs[:, :1]})
    pair = torch.tensor(INPUTS, dtype=torch.float32), torch.tensor(LABELS)
    measures = [
        lambda **chosen: diagnostics.ntk(network, pair[0], **chosen),
        lambda **chosen: solvable.torch.diagnose(network, pair, pair, **chosen),
        lambda **chosen: solvable.torch.collapse(network, pair, **chosen),
        lambda **chosen: solvable.torch.Tracker(network, pair, pair, **chosen)(0),
        lambda **chosen: forecast(network, INPUTS, LABELS, **chosen),
    ]
    for measure in measures:
        with pytest.raises(ValueError, match=r"'policy' .*'value' .*output_field=") as caught:
            measure()
        assert "\n" not in str(caught.value)
        measure(output_field="policy")
        measure(output_field=0)
        with pytest.raises(ValueError, match="output_field='logits' is not among the fields .*'policy', 'value'"):
            measure(output_field="logits")


class TwoHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.left, self.right = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3), torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> typing.Any:
        hidden = torch.tanh(self.body(x))
        return self.left(hidden), self.right(hidden)


def test_the_field_says_which_head_is_the_last_layer() -> None:
    network = TwoHeads()
    data = [(torch.tensor(INPUTS, dtype=torch.float32), torch.tensor(LABELS))]
    assert solvable.torch.find_last_layer(network, data, output_field=0) is network.left
    assert solvable.torch.find_last_layer(network, data, output_field=1) is network.right
    assert solvable.torch.diagnose(network, data, data, output_field=0).outputs == 3
    assert solvable.torch.diagnose(network, data, data, last_layer="right").outputs == 5


def test_outputs_without_a_row_for_each_input_are_refused() -> None:
    network = Network(lambda loss, outputs: outputs.squeeze())
    with pytest.raises(ValueError, match=r"batch of one it returned shape \(3,\)"):
        diagnostics.ntk(network, INPUTS)


def test_hugging_face_outputs() -> None:
    outputs = pytest.importorskip("transformers.modeling_outputs")
    network = Network(lambda loss, given: outputs.SequenceClassifierOutput(loss=loss, logits=given))
    assert np.allclose(diagnostics.ntk(network, INPUTS), diagnostics.ntk(Network(plain), INPUTS))
