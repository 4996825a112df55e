"""Several writers at once, within a bound of memory.

Invariant: the first error ends the work and is raised; what is held at once never exceeds the bound, except by one
thing that is larger alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


class Budget:
    """Bytes that all writers together may hold."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._free = threading.Condition()

    @contextlib.contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Waits until ``size`` bytes fit, or nothing else is held."""
        with self._free:
            self._free.wait_for(lambda: self._held == 0 or self._held + size <= self.limit)
            self._held += size
        try:
            yield
        finally:
            with self._free:
                self._held -= size
                self._free.notify_all()


def each(work: Callable[[Item], None], items: Sequence[Item], writers: int) -> None:
    """Runs ``work`` on every item, ``writers`` at a time."""
    with ThreadPoolExecutor(max(1, min(writers, len(items)))) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
