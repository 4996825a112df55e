"""Work that is killed at a chosen moment, in a fork: a new process would import torch first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import torch


def killed_at_fsync(number: int, work: Callable[[], object]) -> None:
    """Runs `work` in a fork that is killed (-9) where it asks for its fsync number `number`, counted from 1."""
    child = os.fork()
    if not child:
        try:
            torch.set_num_threads(1)  # renews torch's pool, which a fork leaves broken, before threads race for it
            _kill_at(number)
            work()
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def _kill_at(number: int) -> None:
    real, lock, count = os.fsync, threading.Lock(), [0]

    def fsync(handle: int) -> None:
        with lock:
            count[0] += 1
            if count[0] == number:
                os.kill(os.getpid(), signal.SIGKILL)
        real(handle)

    os.fsync = fsync  # type: ignore[assignment]  # only the fork ends with it
