"""Names, units and dimensions of what committees are measured by, and datasets that have them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from solvable.dataset import Meaning
from solvable.training import SGD, Training

if TYPE_CHECKING:
    from solvable.models.committee.model import Committee

# What is measured of averaged weights beside the weights themselves.
AVERAGED = ("train_loss", "test_loss", "train_error_rate", "test_error_rate")
MEANINGS: Mapping[str, Meaning] = {
    "train_loss": Meaning("training loss", "1", "L_train"),
    "test_loss": Meaning("test loss", "1", "L_test"),
    "alignment": Meaning("overlap of a neuron with an index vector", "1", "A"),
    "overlap": Meaning("overlap of two neurons", "1", "C^w"),
    "train_error_rate": Meaning("fraction of training samples that are misclassified", "1", "E_train"),
    "test_error_rate": Meaning("fraction of new inputs that are misclassified", "1", "E_test"),
    "averaged_train_loss": Meaning("training loss of the averaged weights", "1", "L̄_train"),
    "averaged_test_loss": Meaning("test loss of the averaged weights", "1", "L̄_test"),
    "averaged_train_error_rate": Meaning("misclassified training samples of the averaged weights", "1", "Ē_train"),
    "averaged_test_error_rate": Meaning("misclassified new inputs of the averaged weights", "1", "Ē_test"),
    "readout": Meaning("trained readout", "1", "c"),
    "class": Meaning("number of the class", "1", "k"),
    "kernel_alignment": Meaning("alignment of the tangent kernel with the target", "1", "√P yᵀKy/(|K||y|²)"),
    "weight_correlation": Meaning("overlap of weights at two times", "1", "C^w"),
    "gradient_correlation": Meaning("mean product of the signals at two times", "1", "C^g"),
    "weight_response": Meaning("response of the weights to a perturbation", "1", "R^w"),
    "field_response": Meaning("response of the signals to the fields", "1", "R^h"),
    "index_response": Meaning("response of the signals to the index fields", "1", "R^h*"),
    "loss_gap": Meaning("test loss less training loss, leading order in 1/γ", "1", "L_test − L_train"),
    "escape_time": Meaning("time at which alignment reaches the scale of zero loss", "flow time", "t"),
    "early_alignment_rate": Meaning("rate at which a small alignment grows", "1 / flow time"),
    "kernel": Meaning("tangent kernel", "1", "K"),
    "earlier_time": Meaning("earlier time", "steps", "s"),
    "neuron": Meaning("number of the neuron", "1", "i"),
    "other_neuron": Meaning("number of the other neuron", "1", "j"),
    "index": Meaning("number of the index field", "1", "q"),
    "sample": Meaning("number of the input", "1", "μ"),
    "other_sample": Meaning("number of the other input", "1", "ν"),
}
DIMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("train_loss", "test_loss", "kernel_alignment", "loss_gap"), ("time",)),
    **dict.fromkeys(("train_error_rate", "test_error_rate"), ("time",)),
    **{f"averaged_{name}": ("time",) for name in AVERAGED},
    "readout": ("time", "neuron"),
    **dict.fromkeys(("alignment", "index_response"), ("time", "neuron", "index")),
    "overlap": ("time", "neuron", "other_neuron"),
    **dict.fromkeys(
        ("weight_correlation", "gradient_correlation", "weight_response", "field_response"),
        ("time", "earlier_time", "neuron", "other_neuron"),
    ),
}


def labelled(
    model: "Committee",
    method: str,
    values: Mapping[str, np.ndarray],
    times: np.ndarray,
    settings: Mapping[str, Any],
    *,
    training: Training,
    **about: Any,
) -> xr.Dataset:
    """A dataset of order parameters at the times; those of simulations have the seed as their first axis."""
    seed = ("seed",) if method == "simulation" else ()
    coordinates = {"time": times, **coordinates_of(model)}
    if seed:
        coordinates["seed"] = np.arange(settings["seeds"])
    dims = {name: DIMS[name.removesuffix("_error")] for name in values}
    if model.class_readout is not None:
        of_classes = {name: ("time", "class", "neuron") for name in dims if name.removesuffix("_error") == "readout"}
        dims |= of_classes
        if of_classes:
            coordinates["class"] = np.arange(1, len(model.class_readout) + 1)
    if any("earlier_time" in axes for axes in dims.values()):
        coordinates["earlier_time"] = times
    variables = {name: ((*seed, *dims[name]), value) for name, value in values.items()}
    dataset = model.dataset(method, variables, coordinates, settings, training=training, **about)
    if isinstance(training, SGD) and training.sampling == "online":
        dataset["time"].attrs["units"] = "D steps"
    if "earlier_time" in coordinates:
        dataset["earlier_time"].attrs["units"] = dataset["time"].attrs["units"]
    return dataset


def coordinates_of(model: "Committee") -> dict[str, np.ndarray]:
    """Neurons and index fields, counted from 1."""
    neurons, indices = (np.arange(1, count + 1) for count in model.initial_alignment.shape)
    return {"neuron": neurons, "other_neuron": neurons, "index": indices}
