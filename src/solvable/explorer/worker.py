"""A worker process: runs one task after the other, reports progress, and stops a task when asked to.

Started by :mod:`solvable.explorer.workers` as ``python -P worker.py``, without the current folder on the path. It
communicates with its parent through standard input and output only, and ends when its parent does.
"""

import importlib.util
import os
import pickle
import struct
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

PROGRAM = str(Path(__file__).resolve())
_HEADER = struct.Struct("<Q")
_BETWEEN_REPORTS = 0.1
# Bytes beyond which a worker drops its compiled programs. One that holds more all the same is replaced.
MOST_MEMORY = 900_000_000


class StoppedError(Exception):
    """Raised inside a task to stop it."""


def write_message(stream: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(_HEADER.pack(len(data)) + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> Any:
    """The next message; EOFError if the other side has closed the pipe."""
    header = _exactly(stream, _HEADER.size)
    return pickle.loads(_exactly(stream, _HEADER.unpack(header)[0]))


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


class _Control:
    """Messages from the parent: the queue of jobs, and the numbers of the jobs to stop."""

    def __init__(self, stream: IO[bytes]) -> None:
        import queue

        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.stopped: set[int] = set()
        self._stream = stream
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                kind, *rest = read_message(self._stream)
                if kind == "stop":
                    self.stopped.add(rest[0])
                else:
                    self.jobs.put(rest)
        except (EOFError, OSError):
            # The parent has ended.
            os._exit(0)


def main() -> None:
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Output of libraries must not get between the messages.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    control = _Control(sys.stdin.buffer)
    from solvable.explorer.programs import ProgramMemory
    from solvable.explorer.tasks import run
    from solvable.precision import in_float64
    from solvable.progress import progress_callback

    compute = in_float64(run)
    programs = ProgramMemory(MOST_MEMORY)

    write_message(out, ("ready", 0, None))
    while True:
        number, task, payload = control.jobs.get()
        last = 0.0

        def listen(share: float, number: int = number) -> None:
            nonlocal last
            if number in control.stopped:
                raise StoppedError
            if time.monotonic() - last > _BETWEEN_REPORTS:
                last = time.monotonic()
                write_message(out, ("progress", number, share))

        def send(partial: Any, number: int = number) -> None:
            if number in control.stopped:
                raise StoppedError
            write_message(out, ("partial", number, partial))

        try:
            with progress_callback(listen):
                answer = ("done", number, compute(task, payload, send))
        except StoppedError:
            answer = ("cancelled", number, None)
        except MemoryError:
            answer = ("failed", number, "there is not enough memory: choose smaller sizes")
        except Exception as error:
            answer = ("failed", number, _words(error))
        control.stopped.discard(number)
        held = memory()
        write_message(out, answer)
        # Nobody waits now.
        if programs.is_too_large(payload.get("model", ""), held):
            programs.drop()
            held = memory()
        write_message(out, ("memory", number, held))


def memory() -> int:
    """Bytes of memory that this process holds; where the system does not say, the most that it has ever held."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        # Windows tells nothing without help: there a worker lives as long as its page's server.
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _words(error: Exception) -> str:
    text = " ".join(str(error).split())[:600]
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


def import_own_package() -> None:
    """Import the ``solvable`` that this file belongs to, wherever the parent has found it."""
    spec = importlib.util.spec_from_file_location("solvable", Path(__file__).parents[1] / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["solvable"] = package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)


if __name__ == "__main__":
    import_own_package()
    main()
