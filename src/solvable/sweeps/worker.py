"""A worker process: ``python -m solvable.sweeps.worker FD`` computes the tiles that it receives on a socket.

It is a new process instead of a fork, because JAX does not work after a fork; and it does not import the user's script,
so that the script needs no ``if __name__ == "__main__"``.
"""

import os
import pickle
import queue
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import NoReturn

from solvable.compiler import collect_garbage_rarely
from solvable.sweeps.execution import READY, CellList, Compute, evaluate
from solvable.sweeps.schema import error_text


def main(descriptor: int) -> None:
    collect_garbage_rarely()
    # Ctrl-C reaches every process of the terminal; only the coordinator reacts to it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    sys.path[:] = connection.recv()
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    compute = _unpickle(tasks.get())
    connection.send(READY)
    while True:
        number, columns = pickle.loads(tasks.get())
        connection.send((number, *evaluate(compute, columns)))


def _receive(connection: Connection, tasks: "queue.SimpleQueue[bytes]") -> None:
    """Receive the next task while one is computed, and end the process as soon as the coordinator is gone."""
    while True:
        try:
            tasks.put(connection.recv_bytes())
        except (EOFError, OSError):
            os._exit(1)


def _unpickle(data: bytes) -> Compute:
    """The function to call or, if it cannot be loaded here, one that fails every cell with the reason."""
    try:
        return pickle.loads(data)
    except Exception as error:
        reason = f"a worker process cannot load the function to compute ({error_text(error)})"

    def explain(cells: CellList) -> NoReturn:
        raise RuntimeError(reason)

    return explain


if __name__ == "__main__":
    main(int(sys.argv[1]))
