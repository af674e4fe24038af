"""Do two datasets state the same model, parameters and system?"""

import json
from collections.abc import Collection, Iterable
from typing import Any

import xarray as xr


def names_of(allowed: str | Collection[str]) -> set[str]:
    return {allowed} if isinstance(allowed, str) else set(allowed)


def check_same_system(
    theory: xr.Dataset,
    simulation: xr.Dataset,
    allow_different: bool | str | Collection[Any],
    whose: tuple[str, str] = ("theory", "simulation"),
) -> dict[str, Any]:
    """Raise a ValueError for different systems. Returns the sizes of the simulation that are infinite in theory."""
    allowed = allow_different if isinstance(allow_different, bool) else names_of(allow_different)
    limits: dict[str, Any] = {}
    for name, one, two, section in _stated_by_both(theory.attrs, simulation.attrs):
        if one == two:
            continue
        if one is None and section == "system":
            limits[name] = two
        elif not (allowed if isinstance(allowed, bool) else name in allowed):
            raise ValueError(
                f"{whose[0]} has {name} = {short(one)}, {whose[1]} {short(two)}: give both the same, "
                f"or pass allow_different=[{name!r}] to compare them anyway"
            )
    return limits


def _stated_by_both(theory: dict[Any, Any], simulation: dict[Any, Any]) -> Iterable[tuple[str, Any, Any, str]]:
    """Name, value in theory, value in simulation and section of everything that both datasets state."""
    if "model" in theory and "model" in simulation:
        yield "model", theory["model"], simulation["model"], "model"
    for section in ("parameters", "system"):
        one, two = (parsed(attrs.get(section)) for attrs in (theory, simulation))
        for name in one:
            if name in two:
                yield name, one[name], two[name], section


def parsed(text: Any) -> dict[str, Any]:
    """Parse a JSON attribute; empty if it is missing, or if another program wrote it."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
