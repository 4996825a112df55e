"""Ending a phase that hangs, with the stacks of all threads.

Invariant: a phase over its limit ends in one of three ways, in this order: an error raised in the main thread; after
the grace, the end of the process; and if even Python does not run any more (a call into C that keeps the interpreter
lock), the end of the process by faulthandler's own thread. Nothing of an unfinished step is ever committed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from internalize.errors import UserError

SIGNAL = signal.SIGUSR2
EXIT_STATUS = 70
STACKS = "stacks.txt"


class Stalled(UserError):
    """A phase took longer than its limit, or gave no sign of life."""

    title = "stalled"


def dump_stacks(folder: Path, title: str) -> Path:
    """Appends the stacks of all threads to stacks.txt; returns its path."""
    path = folder / STACKS
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        handle.write(f"== {datetime.now(UTC).isoformat(timespec='seconds')} pid {os.getpid()}: {title}\n")
        handle.flush()
        faulthandler.dump_traceback(handle, all_threads=True)
        handle.write("\n")
    return path


class Interrupt:
    """Raises an error in the main thread from another one. `install` only works in the main thread."""

    def __init__(self) -> None:
        self._error: UserError | None = None
        self._before: Any = None
        self.installed = False

    def install(self) -> None:
        """Takes the signal over; without effect outside the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(SIGNAL, self._handle)
            self.installed = True

    def remove(self) -> None:
        """Gives the signal back."""
        if self.installed:
            signal.signal(SIGNAL, self._before or signal.SIG_DFL)
            self.installed = False

    def send(self, error: UserError) -> None:
        """Raises `error` in the main thread as soon as it runs Python code or waits in an interruptible call."""
        self._error = error
        if self.installed:
            signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def withdraw(self) -> None:
        """What was sent and not yet raised is no longer wanted."""
        self._error = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        if callable(self._before):
            self._before(number, frame)


def end_process(say: Callable[[str], None], error: UserError) -> None:
    """Ends this process at once; what is committed stays, what is not is lost (as with kill -9)."""
    say(f"{error}\n  the main thread does not answer: this process is ended")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(EXIT_STATUS)


def arm_last_resort(seconds: float) -> None:
    """After `seconds`, unless disarmed: stacks to stderr and the end of the process, without the interpreter lock."""
    with contextlib.suppress(ValueError, OSError):  # no stderr
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)


def disarm_last_resort() -> None:
    """The phase has ended."""
    faulthandler.cancel_dump_traceback_later()
