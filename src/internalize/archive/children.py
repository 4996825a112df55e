"""Helper processes that do not outlive the process they help.

Invariant: a helper whose parent is killed dies at once, so that nothing goes on writing or sending behind the back of
whoever runs the command again.
"""

from __future__ import annotations

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Call it first in a helper (Linux; elsewhere it does nothing)."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it died in between
        os.kill(os.getpid(), signal.SIGKILL)
