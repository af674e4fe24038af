"""The training regime for the report of a network: lazy or rich, or why that is not known."""

from typing import Any

from solvable.diagnostics.laziness import LazinessReport, laziness
from solvable.diagnostics.outputs import Field

NOT_GIVEN = "give the network as it was before training, initial=..."
_SEVERAL = (
    "batches are not (inputs, targets) with one array of inputs: call solvable.diagnostics.laziness with a function of "
    "one array"
)
# A kernel of so many inputs tells whether it changed, and costs little beside the features of a whole set.
_KERNEL_INPUTS = 64


def measured_training(
    model: Any, before: Any, after: Any, inputs: Any, output_field: Field | None, progress: bool | None
) -> tuple[LazinessReport | None, str]:
    """The report of :func:`laziness` on some inputs, or None and why it could not be measured."""
    if inputs is None:
        return None, _SEVERAL
    options: dict[str, Any] = {"kernel_inputs": _KERNEL_INPUTS, "progress": progress, "output_field": output_field}
    try:
        return laziness(model, before, after, inputs, **options), ""
    except (RuntimeError, NotImplementedError) as error:
        # Some operations of torch have no derivative of the kind that tangent kernels need.
        words = str(error).strip().splitlines() or [type(error).__name__]
        return None, f"the derivatives of the network could not be taken: {words[0]}"
