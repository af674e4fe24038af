"""The versions, the device and the machine with which a report was made."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata

from solvable._version import __version__

# Packages that compute and draw: a new version of one of them can change a figure.
_PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optimistix", "optax", "numpy", "scipy", "xarray", "matplotlib")


def computed_with() -> dict[str, str]:
    """Versions and device, on which the numbers of a figure may depend besides its source."""
    import jax

    versions = {"solvable": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions | {"device": jax.devices()[0].device_kind, "device count": str(jax.device_count())}


def environment() -> dict[str, str]:
    """What :func:`computed_with` returns, and where and when the report is made."""
    system = f"{platform.system()} {platform.machine()}"
    return computed_with() | {"cores": str(_cores()), "system": system, "date": now()}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _cores() -> int:
    """The number of cores that this process may use; of the machine, if the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
