"""A training rank as a process of its own: `torchrun ... -m internalize.runtime.launch`.

Invariant: a rank lives as long as its driver: when the connection ends, however it ends, the rank ends.

The driver starts torchrun by itself (`parallel.runtime: torchrun`). Environment: torchrun's (RANK, WORLD_SIZE,
LOCAL_RANK, MASTER_ADDR, MASTER_PORT), and the driver's address and key.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import traceback
from multiprocessing.connection import Client, Connection
from typing import Any

from internalize.errors import UserError

ADDRESS, KEY = "INTERNALIZE_DRIVER", "INTERNALIZE_DRIVER_KEY"


def main() -> None:
    """Connects to the driver, joins the other ranks and answers until the driver goes away."""
    missing = [
        name for name in (ADDRESS, KEY, "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ
    ]
    if missing:
        raise UserError(
            "not a rank's environment",
            expected=f"{', '.join(missing)} in the environment",
            fix="let a segment start it: `parallel.runtime: torchrun` in the study",
        )
    host, _, port = os.environ[ADDRESS].rpartition(":")
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with Client((host, int(port)), authkey=bytes.fromhex(os.environ[KEY])) as driver:
        send(driver, (rank, socket.gethostname(), os.getpid()))
        serve(driver, rank, ranks)


def serve(driver: Connection, rank: int, ranks: int) -> None:
    """Answers requests `(name, arguments)` with a result, a `UserError` or a `Failed`."""
    from internalize.runtime.answers import Failed
    from internalize.runtime.rank import Rank, join

    join(None, rank, ranks)
    member = Rank()
    while True:
        try:
            name, arguments = receive(driver)
        except EOFError:
            os._exit(1)  # the driver is gone; the other ranks see the same, so there is nobody to say goodbye to
        answer: Any
        try:
            answer = member.call(name, *arguments)
        except UserError as error:
            answer = error
        except Exception:
            answer = Failed(traceback.format_exc())
        send(driver, answer)


def send(connection: Connection, message: Any) -> None:
    """By value: `Connection.send` would lend tensors from shared memory, which ends with their owner."""
    connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


def receive(connection: Connection) -> Any:
    """What the other side sent; only ever a process that knows this segment's key."""
    return pickle.loads(connection.recv_bytes())


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
