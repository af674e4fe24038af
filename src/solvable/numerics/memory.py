"""How much memory a computation may take by default: one rule for the whole package."""

from collections.abc import Sequence

import jax

# On a CPU a simulation has to fit beside the other programs of a laptop; of an accelerator it may take this fraction.
CPU_MEMORY = 2.0 * 2**30
_FRACTION = 0.6


def device_memory(device: jax.Device) -> float | None:
    """Bytes that an accelerator has in all for this process; None for a CPU, which does not report it."""
    statistics = device.memory_stats() if device.platform != "cpu" else None
    return None if not statistics else float(statistics.get("bytes_limit", 0)) or None


def memory_limit(asked: float | None = None, devices: Sequence[jax.Device] | None = None) -> float:
    """Bytes that may be held at once: those asked for, or 2 GiB on a CPU and 60 % of all accelerators' memory.

    Parameters
    ----------
    asked
        What the user gave as ``memory_limit``; None for the default.
    devices
        The devices that share the work, all of one kind; the first device of JAX if not given.

    >>> memory_limit(1e6)
    1000000.0
    """
    if asked is None:
        chosen = jax.devices()[:1] if devices is None else devices
        one = device_memory(chosen[0])
        return CPU_MEMORY if one is None else _FRACTION * one * len(chosen)
    if not asked > 0:
        raise ValueError(f"memory_limit must be a positive number of bytes, not {asked:g}")
    return float(asked)
