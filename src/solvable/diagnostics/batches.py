"""Batches of features, outputs and targets from NumPy, JAX or PyTorch, checked before they are summed."""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

Library = Literal["numpy", "jax", "torch"]
# Sums of squares of anything larger overflow float64.
_LARGEST = 1e145
# Rows per batch where whole arrays are split into batches.
BATCH_SIZE = 1024


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


class ArrayBatches:
    """Arrays with equal numbers of rows as an iterable of batches; ``convert`` is applied to the arrays of a batch."""

    def __init__(self, *arrays: Any, convert: Callable[..., tuple[Any, ...]] = lambda *rows: rows) -> None:
        lengths = {len(array) if array.ndim else 0 for array in arrays}
        if len(lengths) > 1:
            raise ValueError(f"arrays that belong together must have equally many rows, not {sorted(lengths)}")
        self._arrays, self._convert, self._length = arrays, convert, lengths.pop()

    def __len__(self) -> int:
        return math.ceil(self._length / BATCH_SIZE)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for begin in range(0, self._length, BATCH_SIZE):
            yield self._convert(*(array[begin : begin + BATCH_SIZE] for array in self._arrays))


class SeveralInputs:
    """Several arrays of inputs with equal numbers of rows, from a tuple or a mapping, indexed like one array.

    Its ``arrays`` are passed on as they were given: a tuple as positional arguments, a mapping as keywords.
    """

    def __init__(self, arrays: tuple[Any, ...] | Mapping[str, Any], name: str = "inputs") -> None:
        self.arrays: Any = dict(arrays) if isinstance(arrays, Mapping) else tuple(arrays)
        if not self.arrays:
            raise ValueError(f"{name} is empty: give an array, a tuple of arrays or a mapping of arrays")
        for place, array in self._items():
            if not hasattr(array, "shape"):
                raise ValueError(f"{name} must be arrays, but {place!r} is {type(array).__name__}: leave it out")
        sizes = {place: len(array) if array.shape else 0 for place, array in self._items()}
        if len(set(sizes.values())) > 1 or 0 in sizes.values():
            raise ValueError(f"{name} must be arrays of equally many rows, one or more, not {sizes}")
        self.shape, self.ndim = (next(iter(sizes.values())),), 1

    def _items(self) -> list[tuple[Any, Any]]:
        return list(self.arrays.items() if isinstance(self.arrays, dict) else enumerate(self.arrays))

    def map(self, change: Callable[[Any], Any]) -> Any:
        """The tuple or the mapping with each array changed."""
        found = [change(array) for _, array in self._items()]
        return dict(zip(self.arrays, found, strict=True)) if isinstance(self.arrays, dict) else tuple(found)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> "SeveralInputs":
        """Some of the rows of every array; one row is that of a batch of one."""
        rows = slice(rows, rows + 1) if isinstance(rows, int) else rows
        return SeveralInputs(self.map(lambda array: array[rows]))


def several(inputs: Any) -> bool:
    """Whether inputs are several arrays: a mapping, or a tuple of arrays."""
    together = isinstance(inputs, tuple) and len(inputs) > 0 and all(hasattr(one, "shape") for one in inputs)
    return isinstance(inputs, Mapping) or together


def as_batches(
    data: Any, name: str, convert: Callable[..., tuple[Any, ...]] = lambda *rows: rows
) -> Iterable[tuple[Any, Any]]:
    """Batches (inputs, targets) as they are; a pair of whole arrays is split into batches.

    A tuple or list of two arrays is such a pair: as batches, its members would have to be pairs themselves.
    """
    rule = f"the {name} must be batches (inputs, targets), or one pair of whole arrays"
    if hasattr(data, "shape"):
        raise ValueError(f"{rule}, not one array of shape {tuple(data.shape)}")
    if data is None or isinstance(data, str | bytes | int | float):
        raise ValueError(f"{rule}, not {data!r}")
    if not isinstance(data, Iterable):
        raise ValueError(f"{rule}, not {type(data).__name__}")
    if not isinstance(data, tuple | list) or len(data) < 2 or not all(hasattr(member, "shape") for member in data):
        return data
    if len(data) != 2:
        raise ValueError(
            f"the {name} is {len(data)} arrays: give a pair of whole arrays (inputs, targets), or a list of batches"
        )
    inputs, targets = data
    if not inputs.shape or not targets.shape or len(inputs) != len(targets):
        counts = [len(array) if array.shape else "no" for array in data]
        raise ValueError(f"the {name} has {counts[0]} inputs but {counts[1]} targets: each input needs one")
    return ArrayBatches(inputs, targets, convert=convert)


def library_of(array: Any) -> Library:
    """The library that sums an array: its own on an accelerator, NumPy for everything in host memory.

    The module name decides, so that neither JAX nor PyTorch is imported for people who do not use it.
    """
    root = type(array).__module__.partition(".")[0]
    if root == "torch" and array.device.type == "cuda":
        return "torch"
    if root in ("jax", "jaxlib") and any(device.platform != "cpu" for device in array.devices()):
        return "jax"
    return "numpy"


def read_batch(features: Any, outputs: Any, targets: Any, number: int) -> Batch:
    """Convert the three arrays to the library of the features; raise a ValueError if their shapes do not fit."""
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
    labelled = targets.ndim == 1 and "float" not in str(targets.dtype)
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
            f"batch {number} has {outputs.shape[1]} outputs but {targets.shape[1]} real targets per sample; "
            "class labels must be whole numbers of shape (samples,)"
        )
    return Batch(library, features, outputs, targets, labelled)


def check_finite(batch: Batch, number: int) -> None:
    """Raise a ValueError that names the batch and the array if an entry is NaN, infinite or too large to square."""
    for name in ("features", "outputs") if batch.labelled else ("features", "outputs", "targets"):
        array = to_numpy(getattr(batch, name))
        if _has_finite_norm(array):
            continue
        finite = np.isfinite(array)
        if not finite.all():
            row = int(np.argmin(finite.all(axis=1)))
            bad = array[row][~finite[row]][0]
            raise ValueError(
                f"{name} of batch {number} contain {float(bad)} ({finite.size - int(finite.sum())} of {finite.size} "
                f"entries are not finite, the first in row {row}): leave this batch out, or repair the network"
            )
        largest = float(np.abs(array.astype(np.float64)).max())
        if largest > _LARGEST:
            raise ValueError(f"{name} of batch {number} reach {largest:.3g}, whose square overflows: rescale them")


def _has_finite_norm(array: np.ndarray) -> bool:
    """A check in one pass over memory. False may be a false alarm, for example where a sum overflows in float32."""
    if array.dtype not in (np.float64, np.float32):
        return False
    flat = array.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(float(np.vdot(flat, flat)))


def to_numpy(array: Any) -> np.ndarray:
    """Convert any array to NumPy, without a copy where possible."""
    if type(array).__module__.partition(".")[0] == "torch":
        array = array.detach().cpu()
        return (array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy()
    return np.asarray(array)


def check_real(array: np.ndarray, what: str) -> np.ndarray:
    """Return an array of real numbers, or raise a ValueError. Kind V is bfloat16 and its relatives."""
    if array.dtype == object or array.dtype.kind not in "fiubV":
        raise ValueError(f"{what} must be arrays of real numbers, not of {array.dtype}")
    return array


def _convert(array: Any, library: Library, like: Any) -> Any:
    if library == "jax":
        import jax.numpy as jnp

        return jnp.asarray(array if library_of(array) == "jax" else to_numpy(array))
    if library == "torch":
        torch = sys.modules["torch"]
        array = array.detach() if isinstance(array, torch.Tensor) else torch.as_tensor(np.asarray(array))
        return array.to(like.device)
    return check_real(to_numpy(array), "features, outputs and targets")
