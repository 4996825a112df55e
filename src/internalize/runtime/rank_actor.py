"""A training rank as a Ray actor.

Invariant: the ranks meet at a port that rank 0 holds open from the moment it is chosen, so nobody can take it before.
"""

from __future__ import annotations

import os

import ray
from torch._C._distributed_c10d import TCPStore

from internalize.runtime.rank import Rank, join


class RankActor(Rank):
    """A rank that is called through Ray."""

    def open_store(self) -> tuple[str, int]:
        """Rank 0: opens the store that the ranks meet at; its address."""
        host = ray.util.get_node_ip_address()
        self._store = TCPStore(host, 0, is_master=True, wait_for_workers=False)
        return host, self._store.port

    def meet(self, host: str, port: int, rank: int, ranks: int) -> int:
        """Joins the process group; the process id."""
        join(self._store if rank == 0 else TCPStore(host, port, is_master=False), rank, ranks)
        return os.getpid()
