"""``solvable diagnose``: the report of a file of features, or of a checkpoint and data."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from solvable import diagnostics
from solvable.cli.outputs import check_outputs, print_report
from solvable.diagnostics.archives import FEATURES, LAST_LAYER, read_arrays, reports, with_arrays
from solvable.diagnostics.outputs import Field
from solvable.diagnostics.tangent import is_torch
from solvable.networks.initialisations import make

_TORCH_FILES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin")
_DATA_FILE = tuple(f"{part}_{name}" for part in ("train", "test") for name in ("inputs", "labels"))


def diagnose(
    features: str | None,
    checkpoint: str | None,
    model: str | None,
    data: str | None,
    as_json: bool,
    plot: str | None,
    initial: str | None = None,
    output_field: str | None = None,
) -> None:
    """Print the report of a file of features, or of a checkpoint."""
    check_outputs({"plot": plot})
    if features is not None:
        if checkpoint or model or data:
            raise ValueError("give a file of features, or --checkpoint with --model and --data, not both")
        if initial or output_field:
            raise ValueError("--initial and --output-field need --checkpoint: a file of features contains no network")
        report, collapsed = reports(read_file(features, FEATURES, LAST_LAYER))
    elif checkpoint and model and data:
        arrays = read_file(data, _DATA_FILE)
        report, collapsed = _of_checkpoint(checkpoint, initial, model, arrays, _field(output_field))
    else:
        raise ValueError(
            "give a file of features (solvable diagnose features.npz), "
            "or all of --checkpoint weights.safetensors --model module:function --data data.npz"
        )
    if as_json:
        content = json.loads(report.to_json())
        if collapsed is not None:
            content["collapse"] = json.loads(collapsed.to_json())
        text = json.dumps(content)
    else:
        collapse = "" if collapsed is None else f"{collapsed.summary()}\n\n"
        # The report comes last, because it ends with recommendations.
        text = f"{collapse}{report.summary()}"
    print_report(text, report, plot)


def read_file(path: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}")
    return read_arrays(path, needed, optional, name=path)


def _field(text: str | None) -> Field | None:
    """Parse a name, or an index counted from 0."""
    return int(text) if text is not None and text.lstrip("-").isdigit() else text


def _of_checkpoint(
    checkpoint: str, initial: str | None, model: str, data: dict[str, np.ndarray], field: Field | None
) -> tuple[diagnostics.FeatureReport, diagnostics.CollapseReport | None]:
    """Reports of a network with the weights of a checkpoint, compared with its initial weights if these are given."""
    maker = network_maker(model)
    network = with_weights(make(maker), checkpoint)
    start = None if initial is None else with_weights(make(maker), initial, "--initial")
    if is_torch(network):
        import solvable.torch as bridge
    else:
        import solvable.equinox as bridge  # type: ignore[no-redef]
    train, test = ((data[f"{part}_inputs"], data[f"{part}_labels"]) for part in ("train", "test"))
    report = bridge.diagnose(network, train, test, initial=start, output_field=field)
    if data["train_labels"].dtype.kind not in "iu":
        return report, None
    return report, bridge.collapse(network, train, output_field=field)


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


def with_weights(network: Any, checkpoint: str, option: str = "--checkpoint") -> Any:
    """The network with the weights of a checkpoint."""
    import equinox as eqx

    if not is_torch(network) and not isinstance(network, eqx.Module):
        raise ValueError(f"--model must make a torch.nn.Module or an equinox.Module, not {type(network).__name__}")
    place = Path(checkpoint)
    if not place.exists():
        raise FileNotFoundError(f"{option}: there is no checkpoint {checkpoint}")
    known = (".npz", *_TORCH_FILES) if is_torch(network) else (".npz", ".eqx")
    if place.suffix not in known:
        kind = "PyTorch" if is_torch(network) else "Equinox"
        raise ValueError(f"{option} {checkpoint}: weights of a {kind} network end in {' or '.join(known)}")
    if place.suffix == ".npz":
        return with_arrays(network, read_arrays(place, name=checkpoint), checkpoint)
    if is_torch(network):
        try:
            network.load_state_dict(read_weights(place))
        except RuntimeError as error:
            raise ValueError(f"{checkpoint} does not fit the network: {_one_line(error)}") from error
        return network
    try:
        return eqx.tree_deserialise_leaves(checkpoint, network)
    except (RuntimeError, ValueError, EOFError) as error:
        raise ValueError(f"{checkpoint} does not fit the network: {str(error).splitlines()[0]}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def read_weights(place: Path) -> dict[str, Any]:
    """The weights in a PyTorch checkpoint, without executing any code in it."""
    if place.suffix == ".safetensors":
        try:
            from safetensors import SafetensorError
            from safetensors.torch import load_file
        except ImportError as error:
            raise ImportError("reading .safetensors needs safetensors: pip install 'solvable[torch]'") from error
        try:
            return load_file(place)
        except SafetensorError as error:
            raise ValueError(f"{place} is damaged and cannot be read: {_one_line(error)}") from error
    import pickle

    import torch

    try:
        content = torch.load(place, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{place} is refused: reading it could execute code in it. Save only the weights, "
            "torch.save(network.state_dict(), path), or with safetensors.torch.save_file(network.state_dict(), path)"
        ) from error
    except (RuntimeError, EOFError) as error:
        raise ValueError(f"{place} is damaged and cannot be read: {_one_line(error)}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{place} contains no state_dict, but a {type(content).__name__}")
    while isinstance(content, dict) and not all(isinstance(value, torch.Tensor) for value in content.values()):
        inner = next((content[name] for name in ("state_dict", "model_state_dict", "model") if name in content), None)
        if inner is None:
            raise ValueError(f"{place} contains no state_dict; it has the entries {', '.join(map(str, content))}")
        content = inner
    return dict(content)
