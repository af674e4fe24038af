"""Every argument in the reference is described, on a line of its own (NumPy style)."""

import dataclasses
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
from paths import ROOT

# Numerical methods are shown so that they can be read, and are not public (docs/api/stability.md).
INTERNAL = re.compile(r"solvable\.(numerics|models\.[a-z_]+\.[a-z_]+)\b")
DIRECTIVE = re.compile(r"^\.\. auto(function|class|exception|module):: (solvable[\w.]*)\n((?:   :.*\n)*)", re.M)
OPTIONAL = {"solvable.torch": "torch"}


def documented() -> Iterator[tuple[str, Any]]:
    """Functions, classes and methods that the pages of the reference show, by their full names."""
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        for kind, path, options in DIRECTIVE.findall(page.read_text("utf-8") + "\n"):
            if INTERNAL.match(path):
                continue
            if any(path.startswith(name) and not importlib.util.find_spec(need) for name, need in OPTIONAL.items()):
                continue
            members = re.search(r":members:(.*)", options)
            if kind == "module":
                if members:
                    yield from module_members(path, listed(members[1]))
            else:
                yield from with_methods(path, find(path), listed(members[1]) if members else [])


def listed(text: str) -> list[str] | None:
    """Names after ``:members:``; None stands for all."""
    return [name.strip() for name in text.split(",")] if text.strip() else None


def find(path: str) -> Any:
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for name in parts[length:]:
            found = getattr(found, name)
        return found
    raise ImportError(path)


def module_members(path: str, names: list[str] | None) -> Iterator[tuple[str, Any]]:
    module = importlib.import_module(path)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == path]
    for name in names or getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
        yield from with_methods(f"{path}.{name}", getattr(module, name), None)


def with_methods(path: str, found: Any, names: list[str] | None) -> Iterator[tuple[str, Any]]:
    """A function or class, and the methods of the class that are shown: those asked for that have a docstring."""
    if not callable(found) or not found.__doc__ or getattr(found, "_is_protocol", False):
        return
    yield path, found
    if not inspect.isclass(found):
        return
    for name in vars(found) if names is None else names:
        method = inspect.getattr_static(found, name)
        function = getattr(found, name)
        if not name.startswith("_") and function.__doc__ and (callable(function) or isinstance(method, classmethod)):
            if isinstance(method, property) or inspect.isclass(function):
                continue
            yield f"{path}.{name}", method if inspect.isfunction(method) else function


def arguments(found: Any) -> list[str]:
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except ValueError:
        return []
    names = [parameter.name for parameter in parameters if not parameter.name.startswith("_")]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def described(found: Any) -> set[str]:
    """Names with an entry under ``Parameters`` or ``Attributes``."""
    texts = [found.__doc__ or ""]
    if inspect.isclass(found):
        texts += [base.__doc__ or "" for base in found.__mro__[1:-1] if base.__module__.startswith("solvable")]
        texts.append(found.__init__.__doc__ or "")
    names: set[str] = set()
    for text in texts:
        titles_and_bodies = re.split(r"^(\w[\w ]*)\n-{3,}\n", inspect.cleandoc(text), flags=re.M)[1:]
        for title, body in zip(titles_and_bodies[::2], titles_and_bodies[1::2], strict=True):
            if title in ("Parameters", "Attributes"):
                for entry in re.findall(r"^(\**\w+(?:, \**\w+)*)(?: : .*)?$", body, re.M):
                    names.update(name.strip(" *") for name in entry.split(","))
    return names


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    return dict(documented())


def test_every_argument_is_described(reference):
    assert len(reference) > 200
    missing = {
        path: [name for name in arguments(found) if name not in described(found)] for path, found in reference.items()
    }
    assert {path: names for path, names in missing.items() if names} == {}


def test_an_undescribed_argument_is_found():
    def function(first, second, *, third=None):
        """Do something.

        Parameters
        ----------
        first, second
            Described.

        Returns
        -------
        third
            Not an argument.
        """

    @dataclasses.dataclass
    class Record:
        """A record.

        Attributes
        ----------
        size : int
            Its size.
        """

        size: int
        colour: str

    assert described(function) == {"first", "second"}
    assert [name for name in arguments(function) if name not in described(function)] == ["third"]
    assert [name for name in arguments(Record) if name not in described(Record)] == ["colour"]
