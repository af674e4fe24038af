"""What a figure's result depends on: the source it runs, the scale, the versions it runs with, and the device.

The source is that of the figure's own file and of all it imports, found by reading the files and following their
imports, in functions too, without running anything. So an edit to one model leaves the figures of the others finished.
The datasets of a figure depend on less than its claims and its picture: see :func:`data_fingerprint`.
"""

import ast
import hashlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeGuard

_OURS = "solvable"
# These load modules by names that no reading of their source can find: who uses them is taken to use everything.
_LOAD_BY_NAME = ("solvable", "solvable.models", "solvable.papers")
# A new version of these changes how a figure looks, but not its datasets.
_DRAWING = {"matplotlib"}


def fingerprint(module: str, scale: str, environment: Mapping[str, object]) -> str:
    """A text that stays the same as long as the figure of this module would come out the same."""
    return _digest([module, scale, dict(environment)], sources(module))


def data_fingerprint(module: str, scale: str, environment: Mapping[str, object]) -> str:
    """A text that stays the same as long as ``compute`` of this module would return the same datasets.

    Of the files of the papers only the statements count that ``compute`` needs, directly or through other statements.
    So a claim or a picture can be corrected, in the figure's file or in one that it shares, without computing again.
    """
    statements, modules = _needed(module, "compute")
    computing = {name: version for name, version in environment.items() if name not in _DRAWING}
    return _digest([module, scale, computing, sorted(statements)], sources(*modules))


def _digest(content: list[object], files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name, path in sorted(files.items()):
        digest.update(f"\n{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def sources(*modules: str) -> dict[str, Path]:
    """Files of every module that importing these can run, of their own packages and of ours, by name."""
    packages = {_OURS, *(module.partition(".")[0] for module in modules)}
    found: dict[str, Path] = {}
    waiting = list(modules)
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
    for node in _run_nodes(_parse(text)):
        for source, name in _imported(package, node):
            found += _modules(source, name)
    return tuple(found)


def _parse(text: bytes) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        # Running it will say what is wrong.
        return ast.Module([], [])


def _imported(package: str, node: ast.AST) -> list[tuple[str, str]]:
    """What a node imports, in a module of this package: a module and a name in it, or no name for the module itself."""
    if isinstance(node, ast.Import):
        return [(alias.name, "") for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: 1 - node.level or None] if node.level else []
        source = ".".join([*above, *filter(None, [node.module])])
        return [(source, alias.name) for alias in node.names]
    return []


def _modules(source: str, name: str) -> list[str]:
    """The modules that ``from source import name`` runs, or ``import source`` if there is no name."""
    inner = f"{source}.{name}" if name else source
    if inner in _LOAD_BY_NAME or (source in _LOAD_BY_NAME and _file(inner) is None):
        return _whole_package()
    return [source, inner]


def _needed(module: str, name: str) -> tuple[set[str], set[str]]:
    """What a name of a figure's module needs: statements of the papers, as text, and modules from elsewhere."""
    papers = (f"{_OURS}.papers.", f"{module.rpartition('.')[0]}.")
    packages = (_OURS, module.partition(".")[0])
    statements: set[str] = set()
    modules: set[str] = set()
    seen: set[tuple[str, str]] = set()
    # Statements that bind no name may do anything: they are listed under the empty name, and always count.
    waiting = [(module, name), (module, "")]
    while waiting:
        home, wanted = waiting.pop()
        path = None if (home, wanted) in seen else _file(home)
        seen.add((home, wanted))
        if path is None:
            continue
        package = home if path.name == "__init__.py" else home.rpartition(".")[0]
        for node in _statements(path.read_bytes()).get(wanted, []):
            statements.add(f"{home}: {ast.unparse(node)}")
            waiting += [(home, inner.id) for inner in ast.walk(node) if isinstance(inner, ast.Name)]
            for source, alias in [pair for inner in ast.walk(node) for pair in _imported(package, inner)]:
                if alias not in ("", "*") and source.startswith(papers) and not _file(f"{source}.{alias}"):
                    waiting += [(source, alias), (source, "")]
                else:
                    modules.update(_modules(source, alias))
    return statements, {found for found in modules if found.partition(".")[0] in packages}


@cache
def _statements(text: bytes) -> dict[str, list[ast.stmt]]:
    """The statements of a module by the names that they bind; an import of several names counts as several."""
    found: dict[str, list[ast.stmt]] = {}
    for node in _parse(text).body:
        parts: dict[str, ast.stmt]
        if isinstance(node, ast.Import):
            parts = {alias.asname or alias.name.partition(".")[0]: ast.Import([alias]) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = {
                (alias.asname or alias.name).replace("*", ""): ast.ImportFrom(node.module, [alias], node.level)
                for alias in node.names
            }
        elif _is_docstring(node) or (_is_for_typing(node) and not node.orelse):
            continue
        else:
            parts = dict.fromkeys(_bound(node), node)
        for name, part in parts.items():
            found.setdefault(name, []).append(part)
    return found


def _bound(node: ast.stmt) -> set[str]:
    """The names that a definition or an assignment binds; the empty name for any other statement."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return {""}
    names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
    return names or {""}


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_for_typing(node: ast.AST) -> TypeGuard[ast.If]:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under ``if TYPE_CHECKING``, which never run."""
    for node in ast.iter_child_nodes(tree):
        if _is_for_typing(node):
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
