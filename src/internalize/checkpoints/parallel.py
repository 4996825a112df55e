"""Several writers at once.

Invariant: the first error ends the work and is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


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
