"""``solvable diagnose``: the feature report of saved features, or of a checkpoint on saved data."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from solvable import diagnostics
from solvable.diagnostics.archives import BATCH, FEATURES, LAST_LAYER, batches, read_arrays, reports
from solvable.files import check_writable
from solvable.plotting import save_figure

_DATA_FILE = tuple(f"{part}_{name}" for part in ("train", "test") for name in ("inputs", "labels"))


def diagnose(
    features: str | None, checkpoint: str | None, model: str | None, data: str | None, as_json: bool, plot: str | None
) -> None:
    """Print the report of a feature file, or of a checkpoint."""
    check_plot(plot)
    if features is not None:
        if checkpoint or model or data:
            raise ValueError("give a file of features, or --checkpoint with --model and --data, not both")
        report, collapsed = reports(read_file(features, FEATURES, LAST_LAYER))
    elif checkpoint and model and data:
        report, collapsed = _of_checkpoint(checkpoint, model, read_file(data, _DATA_FILE))
    else:
        raise ValueError(
            "give a file of features (solvable diagnose features.npz), "
            "or all of --checkpoint weights.safetensors --model module:function --data data.npz"
        )
    if as_json:
        content = json.loads(report.to_json())
        if collapsed is not None:
            content["collapse"] = json.loads(collapsed.to_json())
        print(json.dumps(content))
    else:
        print(report.summary())
        if collapsed is not None:
            print(f"\n{collapsed.summary()}")
    if plot:
        print(f"figure: {save_figure(report.plot(), plot)}", file=sys.stderr)


def check_plot(path: str | None) -> None:
    """Whether a figure can be written there, before anything is computed."""
    if path:
        check_writable(path)
        if Path(path).suffix not in (".png", ".svg", ".pdf"):
            raise ValueError(f"--plot {path} must end in .png, .svg or .pdf")


def read_file(path: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")
    return read_arrays(path, needed, optional, name=path)


def _of_checkpoint(
    checkpoint: str, model: str, data: dict[str, np.ndarray]
) -> tuple[diagnostics.FeatureReport, diagnostics.CollapseReport | None]:
    network = with_weights(network_maker(model)(), checkpoint)
    return _of_torch(network, data) if _is_torch(network) else _of_equinox(network, data)


def network_maker(text: str) -> Callable[..., Any]:
    """The function that makes the network, from ``module:function``; the module may lie in the current folder."""
    module_name, colon, function_name = text.partition(":")
    if not (module_name and colon and function_name):
        raise ValueError(f"--model {text!r} must look like module:function, such as my_networks:small_cnn")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ImportError(f"--model {text}: there is no module {error.name!r} here or installed") from error
    maker = getattr(module, function_name, None)
    if not callable(maker):
        raise ValueError(f"--model {text}: {module_name} has no function {function_name!r} that makes a network")
    return maker


def with_weights(network: Any, checkpoint: str) -> Any:
    """The network with the weights of a checkpoint."""
    import equinox as eqx

    if _is_torch(network):
        try:
            network.load_state_dict(read_weights(checkpoint))
        except RuntimeError as error:
            raise ValueError(f"{checkpoint} does not fit the network: {error}") from error
        return network
    if not isinstance(network, eqx.Module):
        raise ValueError(f"--model must make a torch.nn.Module or an equinox.Module, not {type(network).__name__}")
    if Path(checkpoint).suffix != ".eqx":
        raise ValueError(
            f"--checkpoint {checkpoint}: weights of an Equinox network end in .eqx, "
            "as equinox.tree_serialise_leaves(path, network) writes them"
        )
    try:
        return eqx.tree_deserialise_leaves(checkpoint, network)
    except (RuntimeError, ValueError, EOFError) as error:
        raise ValueError(f"{checkpoint} does not fit the network: {str(error).splitlines()[0]}") from error


def _is_torch(network: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "torch" for kind in type(network).__mro__)


def _of_torch(
    network: Any, data: dict[str, np.ndarray]
) -> tuple[diagnostics.FeatureReport, diagnostics.CollapseReport | None]:
    import torch

    import solvable.torch

    class Batches:
        def __init__(self, part: str) -> None:
            self.inputs, self.labels = data[f"{part}_inputs"], data[f"{part}_labels"]
            kind = next((weight.dtype for weight in network.parameters()), torch.float32)
            self.cast = kind if self.inputs.dtype.kind == "f" else None

        def __len__(self) -> int:
            return -(-len(self.inputs) // BATCH)

        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            for inputs, labels in batches(self.inputs, self.labels):
                # A copy: np.load may hand out read-only memory, which torch warns of.
                yield torch.tensor(inputs, dtype=self.cast), torch.tensor(labels)

    train, test = Batches("train"), Batches("test")
    report = solvable.torch.diagnose(network, train, test)
    if data["train_labels"].dtype.kind not in "iu":
        return report, None
    return report, solvable.torch.collapse(network, train)


def read_weights(path: str) -> dict[str, Any]:
    """The weights in a checkpoint, without running anything that is in it."""
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no checkpoint {path}")
    if place.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise ImportError("reading .safetensors needs safetensors: pip install 'solvable[torch]'") from error
        return load_file(place)
    if place.suffix not in (".pt", ".pth", ".ckpt", ".bin"):
        raise ValueError(f"--checkpoint {path} must end in .safetensors, .pt, .pth, .ckpt or .bin (PyTorch) or .eqx")
    import pickle

    import torch

    try:
        content = torch.load(place, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is refused: reading it could run code that is in it. Save the weights alone, "
            "torch.save(network.state_dict(), path), or with safetensors.torch.save_file(network.state_dict(), path)"
        ) from error
    while isinstance(content, dict) and not all(isinstance(value, torch.Tensor) for value in content.values()):
        inner = next((content[name] for name in ("state_dict", "model_state_dict", "model") if name in content), None)
        if inner is None:
            raise ValueError(f"{path} holds no state_dict; it has the entries {', '.join(map(str, content))}")
        content = inner
    return dict(content)


def _of_equinox(
    network: Any, data: dict[str, np.ndarray]
) -> tuple[diagnostics.FeatureReport, diagnostics.CollapseReport | None]:
    import solvable.equinox

    train, test = ((data[f"{part}_inputs"], data[f"{part}_labels"]) for part in ("train", "test"))
    report = solvable.equinox.diagnose(network, train, test)
    if data["train_labels"].dtype.kind not in "iu":
        return report, None
    return report, solvable.equinox.collapse(network, train)
