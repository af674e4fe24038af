"""A text for language models that needs no download: the documentation of Python and of installed packages.

Files are read and never run: docstrings are extracted from the syntax tree. Versions differ between machines and so
does the text; a :class:`Text` states the versions and its sha256.
"""

import ast
import contextlib
import dataclasses
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sysconfig
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from solvable.checks import check_count
from solvable.networks.data.cache import data_folder, write_archive
from solvable.networks.sources import Fresh

Bytes = NDArray[np.uint8]
TEXTS = {"python-docs": "documentation of Python, its standard library, and packages written in it"}
VOCABULARY = 256  # tokens are bytes of UTF-8
_RECIPE = 1  # to be increased when the same files give another text
_SHORTEST = 100  # characters of a docstring: shorter ones are mostly labels
_TEST_ONE_IN = 10  # documents are in the test set
_SEPARATOR = b"\n\n"
_SKIPPED_FOLDERS = {"site-packages", "dist-packages", "test", "tests", "testing", "idlelib", "lib2to3", "__pycache__"}


@dataclasses.dataclass(frozen=True)
class Text:
    """Bytes of a training and of a test text, which share no document.

    Parameters
    ----------
    name
        Name of the text.
    train, test
        Bytes of the two parts.
    documents
        Number of documents in each part.
    versions
        Versions of Python and of the packages.
    sha256
        Hash of the training text followed by the test text.
    """

    name: str
    train: Bytes
    test: Bytes
    documents: tuple[int, int]
    versions: dict[str, str]
    sha256: str

    @property
    def unigram_entropy(self) -> float:
        """Cross entropy of the test text in nats per byte, under the byte frequencies of the training text."""
        counts = np.bincount(self.train, minlength=VOCABULARY)[None]
        return _cross_entropy(counts, np.zeros(self.test.size - 1, int), self.test[1:])

    @property
    def bigram_entropy(self) -> float:
        """The same under the frequencies of bytes given the byte before."""
        pairs = np.bincount(self.train[:-1].astype(int) * VOCABULARY + self.train[1:], minlength=VOCABULARY**2)
        return _cross_entropy(pairs.reshape(VOCABULARY, VOCABULARY), self.test[:-1], self.test[1:])

    def __repr__(self) -> str:
        sizes = " and ".join(f"{part.size / 1e6:.2f} MB" for part in (self.train, self.test))
        return f"Text({self.name!r}, train and test {sizes}, {sum(self.documents)} documents)"


def load_text(
    name: str = "python-docs",
    *,
    packages: Sequence[str] = ("numpy", "scipy", "jax"),
    folder: str | os.PathLike[str] | None = None,
) -> Text:
    """The documentation of Python and of installed packages as bytes, about 11 MB by default.

    It contains the manual of the language (the topics of ``help()``) and all docstrings of 100 characters or more in
    the standard library and the packages, each once, in the order of their files. The docstrings of a file are one
    document; by the hash of its name, one document in ten belongs to the test text, the same in every version.

    Parameters
    ----------
    name
        ``"python-docs"``.
    packages
        Names of installed packages.
    folder
        Folder of the cache, which has one file for each set of versions; see :func:`solvable.networks.data_folder`.
    """
    if name not in TEXTS:
        raise ValueError(f"there is no text called {name!r}: choose one of {', '.join(TEXTS)}")
    folders = {package: _folder_of(package) for package in packages}
    versions = {"python": platform.python_version()}
    versions |= {package: importlib.metadata.version(package) for package in packages}
    digest = hashlib.sha256(json.dumps([_RECIPE, name, versions]).encode()).hexdigest()[:12]
    path = data_folder(folder) / "text" / f"{name}-{digest}.npz"
    text = _read(path, name, versions)
    if text is None:
        text = _joined(name, versions, _documents(folders))
        parts = {"train": text.train, "test": text.test, "documents": np.asarray(text.documents)}
        # Without a cache the text is read again, which only costs time.
        with contextlib.suppress(OSError, ValueError):
            write_archive(path, sha256=np.asarray(text.sha256), **parts)
    return text


class Windows(eqx.Module):
    """Random windows of a text for :class:`solvable.networks.Fresh`: tokens, and the next token at each position."""

    tokens: Array
    length: int = eqx.field(static=True)

    def __call__(self, key: jax.Array, count: int) -> tuple[Array, Array]:
        starts = jax.random.randint(key, (count, 1), 0, self.tokens.shape[0] - self.length, dtype=jnp.int32)
        window = self.tokens[starts + jnp.arange(self.length + 1, dtype=jnp.int32)].astype(jnp.int32)
        return window[:, :-1], window[:, 1:]


def windows(text: Text, length: int, *, test: int = 256) -> Fresh:
    """A source of random windows of the training text, with fixed windows of the test text as test set.

    Inputs and targets are (n, length) integers: the target at a position is the byte after it. The windows of the test
    set do not overlap and are spread over the whole test text.

    Parameters
    ----------
    text
        The text.
    length
        Number of bytes of a window.
    test
        Number of windows of the test set.
    """
    check_count("length", length)
    check_count("test", test)
    room = (text.test.size - 1) // length
    if text.train.size <= length or room < test:
        raise ValueError(
            f"{test} test windows of length {length} do not fit: the training text has {text.train.size} bytes and the "
            f"test text has room for {room} windows; ask for fewer (test=), or a smaller length"
        )
    starts = np.arange(test) * room // test * length
    rows = text.test[starts[:, None] + np.arange(length + 1)].astype(np.int32)
    return Fresh(Windows(jnp.asarray(text.train), int(length)), jnp.asarray(rows[:, :-1]), jnp.asarray(rows[:, 1:]))


def _cross_entropy(counts: np.ndarray, before: np.ndarray, after: Bytes) -> float:
    """Cross entropy of bytes, given counts of bytes after each state; half a count is added for unseen ones."""
    weights = counts + 0.5
    logarithms = np.log(weights / weights.sum(axis=1, keepdims=True))
    return float(-logarithms[before, after].mean())


def _folder_of(package: str) -> Path:
    spec = importlib.util.find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"there is no package {package!r} on this machine: install it, or leave it out of packages=")
    return Path(next(iter(spec.submodule_search_locations)))


def _documents(folders: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Name and text of every document, in a fixed order, each docstring once."""
    library = Path(sysconfig.get_path("stdlib"))
    seen: set[str] = set()
    topics = _topics(library / "pydoc_data" / "topics.py")
    for topic in sorted(topics):
        yield f"python/topics/{topic}", topics[topic]
    for package, folder in [("python", library), *folders.items()]:
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(folder)
            if _SKIPPED_FOLDERS.isdisjoint(inside.parts):
                new = [words for words in docstrings(path) if not (words in seen or seen.add(words))]  # type: ignore[func-returns-value]
                if new:
                    yield f"{package}/{inside.as_posix()}", "\n\n".join(new)


def _topics(path: Path) -> dict[str, str]:
    """The manual of the language, a dictionary literal in a file; empty if this Python does not have it."""
    try:
        tree = ast.parse(path.read_bytes())
    except OSError:
        return {}
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    return {key: text for value in values for key, text in ast.literal_eval(value).items()}


def docstrings(path: Path) -> list[str]:
    """The docstrings of a file, in the order of its syntax tree, and those that NumPy adds by ``add_newdoc``."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # templates, and files for other versions of Python
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(ast.get_docstring(node) or "")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "add_newdoc":
            parts = [part for argument in node.args for part in ast.walk(argument)]
            found += [p.value.strip() for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)]
    return [words for words in found if len(words) >= _SHORTEST]


def _joined(name: str, versions: dict[str, str], documents: Iterator[tuple[str, str]]) -> Text:
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for title, words in documents:
        in_test = int.from_bytes(hashlib.sha256(title.encode()).digest()[:4], "big") % _TEST_ONE_IN == 0
        parts[in_test].append(words.encode(errors="replace"))
    train, test = (np.frombuffer(_SEPARATOR.join(part), np.uint8) for part in parts)
    return Text(name, train, test, (len(parts[0]), len(parts[1])), versions, _digest(train, test))


def _digest(train: Bytes, test: Bytes) -> str:
    return hashlib.sha256(train.tobytes() + test.tobytes()).hexdigest()


def _read(path: Path, name: str, versions: dict[str, str]) -> Text | None:
    """The cached text, if it is intact."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            train, test, documents, digest = (kept[part] for part in ("train", "test", "documents", "sha256"))
            if str(digest) != _digest(train, test):
                return None
            return Text(name, train, test, (int(documents[0]), int(documents[1])), versions, str(digest))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
        return None
