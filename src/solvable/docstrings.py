"""Docstrings of models, completed from what is stated elsewhere, so that each argument is described in one place.

The docstring of a method describes the arguments that are particular to it. When its class is made, the others are
added to its ``Parameters`` section. Arguments with a help text in their annotation, ``Annotated[int, "seeds"]``,
have this text, which is also that of the flag on the command line. Arguments that mean the same in every model have a
shared text.
"""

import inspect
import re
import textwrap
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Arguments that mean the same in every model. What ``training`` may be is stated by the class of the model.
SHARED: Mapping[str, str] = {
    "times": "increasing times, in the units of the training",
    "devices": "JAX devices to run on; by default all local ones",
    "progress": "whether to show a progress bar; by default on a terminal",
}
_NAMES = re.compile(r"\**\w+(, \**\w+)*")
_WIDTH = 110


def describe_arguments(method: Callable[..., Any], shared: Mapping[str, str]) -> None:
    """Complete the docstring of a method: an entry for each argument, in the order of the signature.

    Parameters
    ----------
    method
        The method, with ``self`` or ``cls`` as its first argument.
    shared
        Texts of arguments that have none in their annotation.
    """
    texts = {}
    for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
        annotated = typing.get_origin(parameter.annotation) is Annotated
        texts[name] = typing.get_args(parameter.annotation)[1] if annotated else shared.get(name, "")
    if method.__doc__ and texts:
        method.__doc__ = with_parameters(method.__doc__, texts)


def shares_arguments(texts: Mapping[str, str]) -> Callable[[F], F]:
    """Decorator of a function: complete its docstring with the texts of arguments that it shares with others.

    >>> from solvable.docstrings import shares_arguments
    >>> @shares_arguments({"key": "random seed"})
    ... def draw(count, key=0):
    ...     '''Draw numbers.
    ...
    ...     Parameters
    ...     ----------
    ...     count
    ...         How many.
    ...     '''
    ...
    >>> print(draw.__doc__)
    Draw numbers.
    <BLANKLINE>
    Parameters
    ----------
    count
        How many.
    key
        Random seed.

    Parameters
    ----------
    texts
        Texts by name; those of other arguments are ignored, and an entry in the docstring takes precedence.
    """

    def complete(function: F) -> F:
        if function.__doc__:
            names = inspect.signature(function).parameters
            function.__doc__ = with_parameters(function.__doc__, {name: texts.get(name, "") for name in names})
        return function

    return complete


def with_parameters(docstring: str, texts: Mapping[str, str]) -> str:
    """A docstring whose ``Parameters`` section has an entry for each name; entries that are there already are kept.

    >>> from solvable.docstrings import with_parameters
    >>> print(with_parameters("Predict.", {"times": "increasing times"}))
    Predict.
    <BLANKLINE>
    Parameters
    ----------
    times
        Increasing times.

    Parameters
    ----------
    docstring
        The docstring.
    texts
        Texts of the arguments by name, in the order of the signature.
    """
    before, entries, after = _split(inspect.cleandoc(docstring).split("\n"))
    lines: list[str] = []
    for name, text in texts.items():
        written = next((entry for entry in entries if name in entry[0].replace("*", "").split(", ")), None)
        if written is not None:
            entries.remove(written)
            lines += written
        elif text and not re.search(rf"^(\w+, )*{name}(, \w+)*$", "\n".join(lines), re.MULTILINE):
            sentence = text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
            lines += [name, *textwrap.wrap(sentence, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4)]
    lines += [line for entry in entries for line in entry]
    section = ["", "Parameters", "----------", *lines] if lines else []
    return "\n".join([*_stripped(before), *section, *(["", *after] if after else [])])


def _split(lines: list[str]) -> tuple[list[str], list[list[str]], list[str]]:
    """What stands before the ``Parameters`` section, its entries, and what stands after it."""
    headers = [place for place, line in enumerate(lines[1:]) if line and not line.strip("-")]
    begin = next((place for place in headers if lines[place] == "Parameters"), None)
    if begin is None:
        examples = [place for place, line in enumerate(lines) if line.startswith(">>>")]
        end = min([*headers, *examples], default=len(lines))
        return lines[:end], [], lines[end:]
    entries: list[list[str]] = []
    end = begin + 2
    while end < len(lines) and end not in headers:
        line = lines[end]
        if _NAMES.fullmatch(line):
            entries.append([line])
        elif line.startswith("    "):
            entries[-1].append(line)
        elif line:
            break
        end += 1
    return lines[:begin], entries, lines[end:]


def _stripped(lines: Iterable[str]) -> list[str]:
    return "\n".join(lines).rstrip().split("\n")
