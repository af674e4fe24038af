"""What a batch is: features, outputs and targets from NumPy, JAX or PyTorch, checked before anything is added up."""

import dataclasses
import math
import sys
from typing import Any, Literal

import numpy as np

Library = Literal["numpy", "jax", "torch"]
# Sums of squares of anything larger overflow float64.
_LARGEST = 1e145


@dataclasses.dataclass(frozen=True)
class Batch:
    """Arrays of one library: features (n, p), outputs (n, C), and labels (n,) or real targets (n, T)."""

    library: Library
    features: Any
    outputs: Any
    targets: Any
    labelled: bool

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of features and outputs."""
        return self.features.shape[1], self.outputs.shape[1]


def whole_arrays(data: Any, name: str) -> tuple[Any, Any] | None:
    """Inputs and targets, if ``data`` is one pair of whole arrays and not an iterable of batches; else None.

    A tuple or list of two arrays is such a pair: as batches, its members would have to be pairs themselves.
    """
    if hasattr(data, "shape"):
        raise ValueError(
            f"the {name} must be batches (inputs, targets), or one pair of whole arrays, not one array of shape "
            f"{tuple(data.shape)}"
        )
    if data is None or isinstance(data, str | bytes | int | float):
        raise ValueError(f"the {name} must be batches (inputs, targets), or one pair of whole arrays, not {data!r}")
    if not isinstance(data, tuple | list) or len(data) < 2 or not all(hasattr(member, "shape") for member in data):
        return None
    if len(data) != 2:
        raise ValueError(
            f"the {name} is {len(data)} arrays: give a pair of whole arrays (inputs, targets), or a list of batches"
        )
    inputs, targets = data
    if not inputs.shape or not targets.shape or len(inputs) != len(targets):
        counts = [len(array) if array.shape else "no" for array in data]
        raise ValueError(f"the {name} has {counts[0]} inputs but {counts[1]} targets: each input needs one")
    return inputs, targets


def library_of(array: Any) -> Library:
    """The library that adds an array up: its own on an accelerator, NumPy for everything in host memory.

    Told by the name of the module, so that neither JAX nor PyTorch is imported for people who do not use it.
    """
    root = type(array).__module__.partition(".")[0]
    if root == "torch" and array.device.type == "cuda":
        return "torch"
    if root in ("jax", "jaxlib") and any(device.platform != "cpu" for device in array.devices()):
        return "jax"
    return "numpy"


def read_batch(features: Any, outputs: Any, targets: Any, number: int) -> Batch:
    """The three arrays side by side in the library of the features, with shapes that fit, or a ValueError."""
    library = library_of(features)
    features, outputs, targets = (_convert(array, library, features) for array in (features, outputs, targets))
    if features.ndim != 2 or 0 in features.shape:
        raise ValueError(
            f"features of batch {number} must have shape (samples, features), both 1 or more, not "
            f"{tuple(features.shape)}: flatten all axes but the first"
        )
    outputs = outputs[:, None] if outputs.ndim == 1 else outputs
    if outputs.ndim != 2 or 0 in outputs.shape:
        raise ValueError(f"outputs of batch {number} must have shape (samples, outputs), not {tuple(outputs.shape)}")
    labelled = targets.ndim == 1 and not _is_floating(targets)
    if targets.ndim not in (1, 2) or 0 in targets.shape:
        raise ValueError(
            f"targets of batch {number} must be labels (samples,) or numbers (samples, outputs), not an array of "
            f"shape {tuple(targets.shape)}"
        )
    targets = targets[:, None] if targets.ndim == 1 and not labelled else targets
    rows = {"features": features.shape[0], "outputs": outputs.shape[0], "targets": targets.shape[0]}
    if len(set(rows.values())) > 1:
        counts = ", ".join(f"{count} rows of {name}" for name, count in rows.items())
        raise ValueError(f"batch {number} must have as many outputs and targets as features, not {counts}")
    if not labelled and targets.shape[1] != outputs.shape[1]:
        raise ValueError(
            f"batch {number} has {outputs.shape[1]} outputs but {targets.shape[1]} real targets a sample; "
            "labels of classes must be whole numbers of shape (samples,)"
        )
    return Batch(library, features, outputs, targets, labelled)


def check_finite(batch: Batch, number: int) -> None:
    """Raise a ValueError that names the batch and the array if anything is NaN, infinite or too large to square."""
    for name in ("features", "outputs", "targets"):
        if name == "targets" and batch.labelled:
            continue
        array = to_numpy(getattr(batch, name))
        if _surely_finite(array):
            continue
        finite = np.isfinite(array)
        if not finite.all():
            row = int(np.argmin(finite.all(axis=1)))
            bad = array[row][~finite[row]][0]
            raise ValueError(
                f"{name} of batch {number} hold {float(bad)} ({finite.size - int(finite.sum())} of {finite.size} "
                f"numbers are not finite, the first in row {row}): leave the batch out or mend the network"
            )
        largest = float(np.abs(array.astype(np.float64)).max())
        if largest > _LARGEST:
            raise ValueError(f"{name} of batch {number} reach {largest:.3g}, whose square overflows: divide them")


def _surely_finite(array: np.ndarray) -> bool:
    """One pass at the speed of memory; False may be a false alarm, as when float32 overflows."""
    if array.dtype not in (np.float64, np.float32):
        return False
    flat = array.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(float(np.vdot(flat, flat)))


def to_numpy(array: Any) -> np.ndarray:
    """Any array in host memory, without a copy where that can be."""
    if type(array).__module__.partition(".")[0] == "torch":
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":
            array = array.float()
        return array.numpy()
    return np.asarray(array)


def _convert(array: Any, library: Library, like: Any) -> Any:
    if library == "jax":
        import jax.numpy as jnp

        return jnp.asarray(array if library_of(array) == "jax" else to_numpy(array))
    if library == "torch":
        torch = sys.modules["torch"]
        array = array.detach() if isinstance(array, torch.Tensor) else torch.as_tensor(np.asarray(array))
        return array.to(like.device)
    array = to_numpy(array)
    if array.dtype == object or array.dtype.kind not in "fiubV":
        raise ValueError(f"features, outputs and targets must be arrays of real numbers, not of {array.dtype}")
    return array


def _is_floating(array: Any) -> bool:
    return "float" in str(array.dtype)
