"""A worker process: ``python -m solvable.sweeps.worker FD`` computes the tiles it gets on a socket.

A process of its own and no fork, because JAX does not survive one; and the user's script is not imported again, so
that it needs no guard around its main part.
"""

import os
import pickle
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import NoReturn

from solvable.sweeps.execution import Cells, Compute, describe, evaluate

READY = "ready"


def main(descriptor: int) -> None:
    # Ctrl-C reaches every process of the terminal; the coordinator alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    sys.path[:] = connection.recv()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    compute = _unpack(tasks.get())
    connection.send(READY)
    while True:
        number, columns = pickle.loads(tasks.get())
        connection.send((number, *evaluate(compute, columns)))


def _receive(connection: Connection, tasks: "queue.SimpleQueue[bytes]") -> None:
    """Fetch the next task while one is computed, and end the process at once when the coordinator is gone."""
    while True:
        try:
            tasks.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)


def _unpack(data: bytes) -> Compute:
    """The function to call; if it cannot be loaded here, one that fails every cell with the reason."""
    try:
        return pickle.loads(data)
    except Exception as error:
        reason = f"a worker process cannot load the function to compute ({describe(error)})"

    def explain(cells: Cells) -> NoReturn:
        raise RuntimeError(reason)

    return explain


if __name__ == "__main__":
    main(int(sys.argv[1]))
