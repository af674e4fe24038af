"""Networks before training: a given one, or several from a function that makes them."""

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
from solvable.diagnostics.tangent import is_torch, shown
from solvable.networks.mlp import MLP
from solvable.networks.parts import Constant

_DEFAULT_SEEDS = 3
_BUILT_IN = re.compile(r"mlp:(\d+)x(\d+)")
_FORMS = "an Equinox module, a torch module, or a pair (apply, parameters)"


class Initial(NamedTuple):
    """A network in a form that :func:`solvable.diagnostics.ntk` takes, and its parameters if it is a function."""

    model: Any
    parameters: Any

    def constants(self) -> int:
        """The number of entries of :class:`Constant` arrays, which are not parameters."""

        def is_constant(node: Any) -> bool:
            return isinstance(node, Constant)

        nodes = jax.tree.leaves(self.model, is_leaf=is_constant) if isinstance(self.model, eqx.Module) else []
        held = [eqx.filter(node, eqx.is_inexact_array) for node in nodes if is_constant(node)]
        return sum(leaf.size for leaf in jax.tree.leaves(held))


def initial_networks(model: Any, parameters: Any, seeds: int | None, key: int) -> list[Initial]:
    """One network, or ``seeds`` of those that a function makes.

    The function is called as ``model(key=...)`` or ``model(seed=...)``, whichever it takes, or without arguments; torch
    is seeded before each call.
    """
    if parameters is not None or isinstance(model, eqx.Module) or is_torch(model):
        if seeds not in (None, 1):
            raise ValueError(
                f"one network cannot be initialised with {seeds} seeds: give a function of key or seed that makes it"
            )
        return [_initial(model, parameters)]
    if isinstance(model, tuple) and len(model) == 2 and callable(model[0]) and not isinstance(model[0], eqx.Module):
        return initial_networks(*model, seeds, key)
    if not callable(model):
        raise ValueError(f"model must be {_FORMS}, or a function that makes one, not {shown(model)}")
    count = _DEFAULT_SEEDS if seeds is None else check_count("seeds", seeds)
    return [_made(model, key, seed) for seed in range(count)]


def make(maker: Callable[..., Any], key: int = 0, seed: int = 0) -> Any:
    """Call a function that makes a network with a key or a seed, whichever it takes."""
    arguments = {"key": lambda: jax.random.fold_in(jax.random.key(key), seed), "seed": lambda: 1000 * key + seed}
    try:
        signature = list(inspect.signature(maker).parameters.values())
    except ValueError:
        signature = []
    takes = next((one.name for one in signature if one.name in arguments), None)
    needed = [
        one.name
        for one in signature
        if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name != takes
    ]
    if needed:
        raise ValueError(
            f"the function that makes the network must take key, seed or nothing, but it needs {', '.join(needed)}: if "
            "it is a network apply(parameters, inputs), pass parameters=..."
        )
    with _torch_seed(1000 * key + seed):
        return maker(**({takes: arguments[takes]()} if takes else {}))


def built_in(text: str, inputs: int, outputs: int) -> Callable[[Any], MLP] | None:
    """The function named by ``mlp:WIDTHxDEPTH``: ReLU, biases, NTK parameterisation; None for other texts."""
    if not text.startswith("mlp:"):
        return None
    found = _BUILT_IN.fullmatch(text)
    if found is None or int(found[1]) < 1 or int(found[2]) < 2:
        raise ValueError(f"{text!r} must be mlp:WIDTHxDEPTH with a depth of 2 or more, such as mlp:1024x3")
    width, depth = int(found[1]), int(found[2])
    return lambda key: MLP(inputs, outputs, width, depth, key=key, parameterisation="ntk", bias_scale=0.1)


def _initial(model: Any, parameters: Any = None) -> Initial:
    if isinstance(model, eqx.Module):
        return Initial(model if parameters is None else parameters, None)
    return Initial(model, parameters)


def _made(maker: Callable[..., Any], key: int, seed: int) -> Initial:
    made = make(maker, key, seed)
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        return _initial(*made)
    if isinstance(made, eqx.Module) or is_torch(made):
        return _initial(made)
    raise ValueError(f"the function that makes the network must return {_FORMS}, not {type(made).__name__}")


@contextmanager
def _torch_seed(seed: int) -> Iterator[None]:
    """Seed the global generator of torch, and restore it afterwards; nothing if torch is not imported."""
    if "torch" not in sys.modules:
        yield
        return
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def negated(inputs: Any) -> Any:
    """The inputs times -1; torch tensors remain tensors."""
    is_tensor = type(inputs).__module__.partition(".")[0] == "torch"
    return -inputs if is_tensor else jnp.negative(jnp.asarray(inputs))
