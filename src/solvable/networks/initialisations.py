"""Networks as they are before training: from one that is at hand, or several from a function that makes them."""

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from solvable.checks import check_count
from solvable.diagnostics.tangent import is_torch
from solvable.networks.mlp import MLP
from solvable.networks.parts import Constant

DRAWS = 3
_BUILT_IN = re.compile(r"mlp:(\d+)x(\d+)")
_FORMS = "an Equinox module, a torch module, or a pair (apply, parameters)"


class Initial(NamedTuple):
    """A network in a form that :func:`solvable.diagnostics.ntk` takes, and its parameters where it brings none."""

    model: Any
    parameters: Any

    def constants(self) -> int:
        """How many numbers look like parameters and are not."""
        nodes = jax.tree.leaves(self.model, is_leaf=_is_constant) if isinstance(self.model, eqx.Module) else []
        held = [eqx.filter(node, eqx.is_inexact_array) for node in nodes if _is_constant(node)]
        return sum(leaf.size for leaf in jax.tree.leaves(held))


def _is_constant(node: Any) -> bool:
    return isinstance(node, Constant)


def initial_networks(model: Any, parameters: Any, draws: int | None, key: int) -> list[Initial]:
    """One network, or ``draws`` of those that a function makes.

    The function is called as ``model(key=...)`` or ``model(seed=...)``, whichever it takes, or with nothing, when torch
    is seeded before each call.
    """
    if parameters is not None or isinstance(model, eqx.Module) or is_torch(model):
        if draws not in (None, 1):
            raise ValueError(f"one network cannot be drawn {draws} times: give a function of key or seed that makes it")
        return [_initial(model, parameters)]
    if not callable(model):
        raise ValueError(f"model must be {_FORMS}, or a function that makes one, not {model!r}")
    count = DRAWS if draws is None else check_count("draws", draws)
    return [_made(model, key, draw) for draw in range(count)]


def make(maker: Callable[..., Any], key: int = 0, draw: int = 0) -> Any:
    """Call a function that makes a network with the key or seed of a draw, whichever it takes."""
    arguments = {
        "key": lambda: jax.random.fold_in(jax.random.key(key), draw),
        "seed": lambda: 1000 * key + draw,
    }
    try:
        wanted = list(inspect.signature(maker).parameters.values())
    except ValueError:
        wanted = []
    takes = next((one.name for one in wanted if one.name in arguments), None)
    needed = [
        one.name
        for one in wanted
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name != takes
    ]
    if needed:
        raise ValueError(
            f"the function that makes the network must take key, seed or nothing, but it needs {', '.join(needed)}: if "
            "it is a network apply(parameters, inputs), pass parameters=..."
        )
    with _torch_seeded(1000 * key + draw):
        return maker(**({takes: arguments[takes]()} if takes else {}))


def built_in(text: str, inputs: int, outputs: int) -> Callable[[Any], MLP] | None:
    """The maker that ``mlp:WIDTHxDEPTH`` names: ReLU, biases, NTK parameterisation; None for other texts."""
    if not text.startswith("mlp:"):
        return None
    found = _BUILT_IN.fullmatch(text)
    if found is None or int(found[1]) < 1 or int(found[2]) < 2:
        raise ValueError(f"{text!r} must be mlp:WIDTHxDEPTH with a depth of 2 or more, such as mlp:1024x3")

    def make(key: Any) -> MLP:
        return MLP(inputs, outputs, int(found[1]), int(found[2]), key=key, parameterisation="ntk", bias_scale=0.1)

    return make


def _initial(model: Any, parameters: Any = None) -> Initial:
    if isinstance(model, eqx.Module):
        return Initial(model if parameters is None else parameters, None)
    return Initial(model, parameters)


def _made(maker: Callable[..., Any], key: int, draw: int) -> Initial:
    made = make(maker, key, draw)
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return _initial(*made)
    if isinstance(made, eqx.Module) or is_torch(made):
        return _initial(made)
    raise ValueError(f"the function that makes the network must give {_FORMS}, not {type(made).__name__}")


@contextmanager
def _torch_seeded(seed: int) -> Iterator[None]:
    """Torch draws weights from a state that all share: seeded inside, as it was afterwards. Nothing without torch."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def negated(inputs: Any) -> Any:
    """The points opposite to the inputs, in the same kind of array."""
    return -inputs if is_tensor(inputs) else jnp.negative(jnp.asarray(inputs))


def is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor, without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch"
