"""What a training needs of a device's memory, and which batch would fit where it does not."""

from collections.abc import Callable
from typing import Any

_GIB = 2**30


def needed(compiled: Any) -> float | None:
    """Bytes the compiled program holds at its peak, as the compiler counts them; None where it does not say."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    return float(
        analysis.temp_size_in_bytes
        + analysis.argument_size_in_bytes
        + analysis.output_size_in_bytes
        - analysis.alias_size_in_bytes
    )


def is_full(error: BaseException) -> bool:
    """Whether this is the device's way to say that its memory is full."""
    return "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower()


def too_large(batch: int, runs: int, limit: float | None, cost: Callable[[int], float | None]) -> MemoryError:
    """The error for a batch that does not fit; ``cost(batch)`` counts the bytes of smaller ones to find which does.

    Memory grows in proportion to the batch, beside what does not depend on it, so two smaller ones tell all others:
    the large one is not compiled once more, which can take long.
    """
    few, fewer = max(2, batch // 2), max(1, batch // 4)
    more, less = cost(few), cost(fewer)
    where = "the device" if limit is None else f"the {limit / _GIB:.3g} GiB there are"
    remedies, need = [], ""
    if more is not None and less is not None:
        slope = (more - less) / (few - fewer)
        need = f" ({(less + slope * (batch - fewer)) / _GIB:.3g} GiB by the compiler's count)"
        # A little less than what fits: other programs, such as the measurements, need room as well.
        fits = int(fewer + (0.9 * limit - less) / slope) if limit is not None and slope > 0 else 0
        if 1 <= fits < batch:
            remedies.append(f"batch={fits} would fit")
    if runs > 1:
        remedies.append(f"at_once={max(1, runs // 2)} trains fewer runs at a time")
    if batch > 1:
        remedies.append("pieces=2 takes the gradient of a batch in parts")
    text = f"{runs} runs side by side at {batch} points a step do not fit into {where}{need}: "
    return MemoryError(text + ", or ".join(remedies or ["take a smaller network"]) + "; checkpoints written are kept")
