"""TCP ports that are free now.

Invariant: ports that are given together differ. Somebody else may take one before it is used: bind soon.
"""

from __future__ import annotations

import contextlib
import socket


def free_port(address: str = "") -> int:
    """A free port of an address; of all addresses by default."""
    return free_ports(1, address)[0]


def free_ports(count: int, address: str = "") -> list[int]:
    """So many different free ports."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((address, 0))
        return [int(one.getsockname()[1]) for one in sockets]
