"""Weights by name, from arrays into a PyTorch or an Equinox network; what does not fit is named."""

import sys
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.diagnostics.tangent import is_torch
from solvable.diagnostics.users_precision import precision_of


def with_arrays(network: Any, arrays: Mapping[str, np.ndarray], name: str = "the file") -> Any:
    """The network with these weights: names are those of ``state_dict()`` in PyTorch, and of paths in Equinox.

    The path of a leaf is how it is written in Python, such as ``layers[0].weight``. Every weight must be there once, in
    the shape that it has in the network, and nothing else; precision is that of the network.
    """
    wanted = _torch_weights(network) if is_torch(network) else _equinox_weights(network)
    missing = [key for key in wanted if key not in arrays]
    unknown = [key for key in arrays if key not in wanted]
    if missing or unknown:
        parts = [f"it lacks {_some(missing)}"] if missing else []
        parts += [f"the network has no {_some(unknown)}"] if unknown else []
        raise ValueError(f"{name} does not fit the network: {', and '.join(parts)}; the network has {_some(wanted)}")
    for key, value in wanted.items():
        if tuple(arrays[key].shape) != tuple(value.shape):
            shapes = f"shape {tuple(arrays[key].shape)} where the network has {tuple(value.shape)}"
            raise ValueError(f"{name} does not fit the network: {key!r} has {shapes}")
    return _into_torch(network, arrays) if is_torch(network) else _into_equinox(network, arrays)


def _torch_weights(network: Any) -> dict[str, Any]:
    return dict(network.state_dict())


def _into_torch(network: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    torch = sys.modules["torch"]
    network.load_state_dict({key: torch.tensor(value) for key, value in arrays.items()})
    return network


def _path(path: Any) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def _equinox_weights(network: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(network, eqx.is_array))
    return {_path(path): leaf for path, leaf in leaves}


def _into_equinox(network: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    def put(path: Any, leaf: Any) -> Any:
        return jnp.asarray(arrays[_path(path)], leaf.dtype) if eqx.is_array(leaf) else leaf

    with precision_of(network):
        return jax.tree_util.tree_map_with_path(put, network)


def _some(names: Any, most: int = 4) -> str:
    names = [repr(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
