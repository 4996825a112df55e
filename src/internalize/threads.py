"""One compute thread a process.

Two processes of one thread beat one process of two on small machines (measured), and sums taken by one thread come out
the same every time.
"""

from __future__ import annotations

import os


def one_thread() -> None:
    """Call it before torch is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
