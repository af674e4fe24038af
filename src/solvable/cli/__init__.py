"""The command line. Large packages are imported only when a command needs them."""

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Any

from solvable.cli import interrupts

# Commands that answer at once: their programs are compiled without optimisations.
_QUICK = ("predict", "grokking-time")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. Errors of the user end in one line on stderr and exit code 2.

    Parameters
    ----------
    arguments
        The arguments; by default those of the process, ``sys.argv``.
    """
    from solvable.cli.streams import StdoutError, exit_code_of, plain_warnings, prepare_streams, printing

    # With several threads OpenBLAS is slower by an order of magnitude on a busy machine with few cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    interrupts.forget_announcement()
    prepare_streams()
    # If called from Python, the process belongs to the caller, and its signal handlers are not changed.
    own_process = arguments is None
    if own_process:
        from solvable import compiler

        compiler.collect_garbage_rarely()
        os.environ.update(compiler.environment(quick=sys.argv[1:2] in ([verb] for verb in _QUICK)))
    with interrupts.prompt_interrupts() if own_process else contextlib.nullcontext():
        try:
            # Leaving ``printing`` flushes stdout, so that errors appear here and not when Python ends.
            with plain_warnings(), printing():
                code = _run(arguments)
        except StdoutError as error:
            code = exit_code_of(error)
        if code == interrupts.INTERRUPTED:
            interrupts.announce()
            if own_process:
                interrupts.leave(code)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    import typer

    from solvable.cli.app import app
    from solvable.cli.streams import StdoutError

    # Some versions of Typer have their own copy of click, others import it: find the base class of its errors.
    usage_error: Any = next(
        base for base in typer.BadParameter.__mro__ if base.__name__ in ("ClickException", "TyperException")
    )
    try:
        result = app(args=None if arguments is None else list(arguments), prog_name="solvable", standalone_mode=False)
    except usage_error as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            # A group without a command prints its help, which is not an error.
            print(error.format_message())
            return 0
        return _fail(_with_value(error, sys.argv[1:] if arguments is None else arguments))
    except typer.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return interrupts.INTERRUPTED
    except SystemExit as stop:
        # Typer exits like this if a pipe was closed.
        raise StdoutError(BrokenPipeError(errno.EPIPE, "closed pipe")) from stop
    except StdoutError:
        raise
    except Exception as error:
        if os.environ.get("SOLVABLE_DEBUG"):
            raise
        return _fail_of(error)
    return result if isinstance(result, int) else 0


def _with_value(error: Any, arguments: Sequence[str]) -> str:
    """The message of a usage error, with the wrong value, which Typer does not always mention."""
    # Validators of Typer write so in front of the messages of choices.
    message = error.format_message().replace(": Value error, ", ": ")
    names = getattr(getattr(error, "param", None), "opts", None) or ()
    if not message.startswith("Invalid value"):
        return message
    given = [value for name, value in itertools.pairwise(arguments) if name in names]
    given += [part.partition("=")[2] for part in arguments if part.partition("=")[0] in names and "=" in part]
    return message if not given or given[-1] in message else f"{message.rstrip('.')}, not {given[-1]!r}"


def _fail_of(error: Exception) -> int:
    """Print one line for any error; unexpected ones say how to get a traceback."""
    if isinstance(error, ValueError | ImportError | OSError):
        return _fail(str(error))
    text = str(error).strip().splitlines()[0] if str(error).strip() else ""
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return _fail(f"this needs more memory than is available ({text or 'out of memory'}): ask for less at once")
    _fail(f"unexpected {type(error).__name__}: {text}; this is a bug in solvable: SOLVABLE_DEBUG=1 shows a traceback")
    return 1


def _fail(message: str) -> int:
    from solvable.cli.streams import print_stderr

    print_stderr("error: " + " ".join(message.split()))
    return 2
