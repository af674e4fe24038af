"""What the variables of the committee are."""

from collections.abc import Mapping

from solvable.dataset import Meaning

_TIME = "steps × dt"

_VALUES = {
    "train_loss": Meaning("training loss", "1", "L_train"),
    "test_loss": Meaning("test loss", "1", "L_test"),
    "alignment": Meaning("overlap of a neuron with an index vector", "1", "A"),
    "overlap": Meaning("overlap of two neurons", "1", "C^w"),
    "kernel_alignment": Meaning("alignment of the tangent kernel with the target", "1", "√P yᵀKy/(|K||y|²)"),
    "weight_correlation": Meaning("overlap of weights at two times", "1", "C^w"),
    "gradient_correlation": Meaning("mean product of the signals at two times", "1", "C^g"),
    "weight_response": Meaning("response of the weights to a push", "1", "R^w"),
    "field_response": Meaning("response of the signals to the fields", "1", "R^h"),
    "index_response": Meaning("response of the signals to the index fields", "1", "R^h*"),
    "loss_gap": Meaning("test loss less training loss, leading order in 1/γ", "1", "L_test − L_train"),
}

MEANINGS: Mapping[str, Meaning] = {
    **_VALUES,
    **{f"{name}_error": Meaning(f"error of: {about.long_name}", about.units) for name, about in _VALUES.items()},
    "time": Meaning("training time", _TIME, "t"),
    "time2": Meaning("earlier time", _TIME, "s"),
    "neuron": Meaning("index of the neuron", "1", "i"),
    "neuron2": Meaning("index of the other neuron", "1", "j"),
    "index": Meaning("index of the index field", "1", "q"),
}
DIMS: Mapping[str, tuple[str, ...]] = {
    "train_loss": ("time",),
    "test_loss": ("time",),
    "alignment": ("time", "neuron", "index"),
    "overlap": ("time", "neuron", "neuron2"),
    "kernel_alignment": ("time",),
    "loss_gap": ("time",),
    "weight_correlation": ("time", "time2", "neuron", "neuron2"),
    "gradient_correlation": ("time", "time2", "neuron", "neuron2"),
    "weight_response": ("time", "time2", "neuron", "neuron2"),
    "field_response": ("time", "time2", "neuron", "neuron2"),
    "index_response": ("time", "neuron", "index"),
}
