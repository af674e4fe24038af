"""What a figure's result depends on: the source it runs, the scale, the versions it runs with, and the device.

The source is that of the figure's own file and of all it imports, found by reading the files and following their
imports, in functions too, without running anything. So an edit to one model leaves the figures of the others finished.
"""

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

_OURS = "solvable"
# These load modules by names that no reading of their source can find: who uses them is taken to use everything.
_LOAD_BY_NAME = ("solvable", "solvable.models", "solvable.papers")


def fingerprint(module: str, scale: str, environment: Mapping[str, object]) -> str:
    """A text that stays the same as long as the figure of this module would come out the same."""
    digest = hashlib.sha256(json.dumps([module, scale, dict(environment)], sort_keys=True).encode())
    for name, path in sorted(sources(module).items()):
        digest.update(f"\n{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def sources(module: str) -> dict[str, Path]:
    """Files of every module that importing this one can run, of its own package and of ours, by name."""
    packages = {_OURS, module.partition(".")[0]}
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = None if name in found or name.partition(".")[0] not in packages else _file(name)
        if path is None:
            continue
        found[name] = path
        # Importing a.b.c runs a and a.b first.
        parent = name.rpartition(".")[0]
        waiting += [parent, *_imports(name if path.name == "__init__.py" else parent, path.read_bytes())]
    return found


@cache
def _imports(package: str, text: bytes) -> tuple[str, ...]:
    found: list[str] = []
    try:
        tree = ast.parse(text)
    except SyntaxError:
        # Running it will say what is wrong.
        return ()
    for node in _run_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found += _whole_package() if alias.name in _LOAD_BY_NAME else [alias.name]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: 1 - node.level or None] if node.level else []
            source = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                found += _named(source, alias.name)
    return tuple(found)


def _named(source: str, name: str) -> list[str]:
    """What ``from source import name`` runs."""
    inner = f"{source}.{name}"
    if inner in _LOAD_BY_NAME or (source in _LOAD_BY_NAME and _file(inner) is None):
        return _whole_package()
    return [source, inner]


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING``, which never run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node = ast.Module(node.orelse, [])
        yield node
        yield from _run_nodes(node)


@cache
def _whole_package() -> list[str]:
    root = _file(_OURS)
    assert root is not None
    files = [path.relative_to(root.parent).with_suffix("") for path in root.parent.rglob("*.py")]
    return [".".join((_OURS, *file.parts)).removesuffix(".__init__") for file in files]


def _file(name: str) -> Path | None:
    """The source of a module, found without running it; none for what is not a module."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top) if top else None
    if spec is None or not rest:
        return Path(spec.origin) if spec and spec.origin else None
    for folder in spec.submodule_search_locations or []:
        stem = Path(folder, *rest)
        for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            if path.is_file():
                return path
    return None
