"""Standard output and standard error: one-line warnings, any encoding, closed pipes and full disks.

Results are written to files before anything is printed, so an error of a stream loses nothing. It only remains to exit
like other Unix tools, without a traceback.
"""

import codecs
import contextlib
import errno
import os
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

# Exit code that a shell reports for a program that was stopped by a closed pipe: 128 + SIGPIPE.
CLOSED_PIPE = 141
# Exit code of Unix tools if standard output cannot be written.
UNWRITABLE = 1

_PLAIN = {"±": "+-", "…": "...", "×": "x", "·": "*", "−": "-", "–": "-", "≥": ">=", "≤": "<=", "√": "sqrt", "²": "^2"}
_PLAIN_LETTERS = "solvable-plain"


def prepare_streams() -> None:
    """Let streams with a small character set, such as ASCII, replace other characters by plain letters."""
    codecs.register_error(_PLAIN_LETTERS, _in_plain_letters)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and not _writes_everything(stream):
            reconfigure(errors=_PLAIN_LETTERS)


def _writes_everything(stream: TextIO) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        return codecs.lookup(encoding).name.startswith("utf")
    except LookupError:
        return False


def _in_plain_letters(error: UnicodeError) -> tuple[str | bytes, int]:
    """Error handler for :mod:`codecs`: λ becomes lambda, ± becomes +-, and unknown characters a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    written = b"".join(_plain(character) for character in error.object[error.start : error.end])
    return written, error.end


def _plain(character: str) -> bytes:
    if "\udc80" <= character <= "\udcff":
        # An undecodable byte of a file name: write the same byte.
        return bytes([ord(character) - 0xDC00])
    if character in _PLAIN:
        return _PLAIN[character].encode()
    name = unicodedata.name(character, "")
    if name.startswith("GREEK "):
        word = name.split(" LETTER ")[-1].split(" ")[0].lower().replace("lamda", "lambda")
        return (word.capitalize() if " CAPITAL " in name else word).encode()
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore") or b"?"


def print_stderr(text: str) -> None:
    """Print a line on stderr. If that is closed, the work continues."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each warning once, as ``warning: text`` on stderr, without the path of the source line."""
    seen: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = " ".join(str(message).split())
        if text not in seen:
            seen.add(text)
            print_stderr(f"warning: {text}")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


class StdoutError(Exception):
    """Standard output could not be written."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"cannot write to standard output: {cause.strerror or cause}")
        self.closed = isinstance(cause, BrokenPipeError) or cause.errno in (errno.EPIPE, errno.ESHUTDOWN)


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Context for everything that is printed on stdout, to distinguish errors of the stream from errors of files."""
    try:
        yield
        # sys.stdout is None if the program was started with its standard output closed.
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise StdoutError(error) from error


def exit_code_of(error: StdoutError) -> int:
    """The exit code if standard output could not be written. A closed pipe needs no message."""
    abandon_stdout()
    if error.closed:
        return CLOSED_PIPE
    print_stderr(f"error: {error}")
    return UNWRITABLE


def abandon_stdout() -> None:
    """Redirect standard output to the null device, so that the flush when Python ends cannot fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
