"""What a training needs of a device's memory, and which batch would fit where it does not."""

from collections.abc import Callable
from typing import Any

import jax

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


def available(device: jax.Device | None = None) -> float | None:
    """Bytes an accelerator has for us in all; None for a CPU, which does not say."""
    device = jax.devices()[0] if device is None else device
    statistics = device.memory_stats() if device.platform != "cpu" else None
    return None if not statistics else float(statistics.get("bytes_limit", 0)) or None


def is_full(error: BaseException) -> bool:
    """Whether this is the device's way to say that its memory is full."""
    return "RESOURCE_EXHAUSTED" in str(error) or isinstance(error, MemoryError)


def too_large(batch: int, runs: int, limit: float | None, cost: Callable[[int], float | None]) -> MemoryError:
    """The error for a batch that does not fit; ``cost(batch)`` counts the bytes of a smaller one to find which does."""
    whole, half = (cost(size) for size in (batch, max(1, batch // 2)))
    where = "the device" if limit is None else f"the {limit / _GIB:.3g} GiB there are"
    need = "" if whole is None else f" ({whole / _GIB:.3g} GiB by the compiler's count)"
    text = f"{runs} runs side by side at {batch} points a step do not fit into {where}{need}: "
    remedies = []
    if runs > 1:
        remedies.append(f"at_once={max(1, runs // 2)} trains fewer runs at a time")
    if limit is not None and whole is not None and half is not None and batch > 1:
        slope = (whole - half) / (batch - max(1, batch // 2))
        # A little less than what fits: other programs, such as the measurements, need room as well.
        fits = int(batch - (whole - 0.9 * limit) / slope) if slope > 0 else 0
        if fits >= 1:
            remedies.insert(0, f"batch={min(fits, batch - 1)} would fit")
    remedies = remedies or ["take a smaller network"]
    return MemoryError(text + ", or ".join(remedies) + "; checkpoints written so far are kept")
