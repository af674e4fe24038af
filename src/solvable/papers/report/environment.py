"""What a report was made with."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata

from solvable._version import __version__

# What computes and draws: a new version of one of these can change a figure.
_PACKAGES = ("jax", "jaxlib", "equinox", "diffrax", "optimistix", "optax", "numpy", "scipy", "xarray", "matplotlib")


def computed_with() -> dict[str, str]:
    """Versions and device: what a figure's numbers may depend on besides its source."""
    import jax

    versions = {"solvable": __version__, "Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions | {"device": jax.devices()[0].device_kind, "device count": str(jax.device_count())}


def environment() -> dict[str, str]:
    """The same, and where and when."""
    system = f"{platform.system()} {platform.machine()}"
    return computed_with() | {"cores": str(_cores()), "system": system, "date": now()}


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _cores() -> int:
    """Those this process may use, where the system says so."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
