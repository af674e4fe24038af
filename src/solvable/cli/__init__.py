"""The command line. Nothing heavy is imported until a command needs it."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from solvable.cli import interrupts


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; mistakes of the user end in one line on stderr and exit code 2."""
    # More threads than one make OpenBLAS slower by an order of magnitude on a busy machine with few cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    interrupts.forget_announcement()
    if arguments is not None:
        # Called from Python: the process is the caller's, and how it handles signals is not changed.
        sys.exit(_run(arguments))
    with interrupts.prompt_interrupts():
        code = _run(None)
        if code == interrupts.INTERRUPTED:
            interrupts.announce()
            interrupts.leave(code)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    import typer

    from solvable.cli.app import app

    # Typer carries its own copy of click in some versions and imports it in others: find the base of its errors.
    usage_error: Any = next(
        base for base in typer.BadParameter.__mro__ if base.__name__ in ("ClickException", "TyperException")
    )
    try:
        result = app(args=None if arguments is None else list(arguments), prog_name="solvable", standalone_mode=False)
    except usage_error as error:
        return _fail(error.format_message())
    except typer.Exit as error:
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return interrupts.INTERRUPTED
    except (ValueError, ImportError, OSError) as error:
        if os.environ.get("SOLVABLE_DEBUG"):
            raise
        return _fail(str(error))
    return result if isinstance(result, int) else 0


def _fail(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    return 2
