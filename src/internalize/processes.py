"""Processes that are ours: found again by pid and start time, ended one by one, never by name; and helpers that end
with their parent.

Invariant: a pid that has been given to another process since is not ours any more and is never signalled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Process:
    """A process as it was when it was started or seen."""

    pid: int
    started: int
    """Clock ticks since boot."""

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this pid now; None when there is none, or only a zombie."""
        try:
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else cls(pid, int(fields[19]))

    @classmethod
    def read(cls, text: str) -> Process:
        """From what `str` gave."""
        pid, started = text.split()
        return cls(int(pid), int(started))

    def __str__(self) -> str:
        return f"{self.pid} {self.started}"

    @property
    def alive(self) -> bool:
        """Does it still run?"""
        now = Process.of(self.pid)
        return now is not None and now.started == self.started

    def send(self, number: int) -> None:
        """Sends a signal, if it still runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def end(processes: Iterable[Process], patience: float = 10.0) -> None:
    """SIGTERM to each, SIGKILL after `patience` seconds to those that are left; returns when all have ended."""
    waiting = list(processes)
    for process in waiting:
        process.send(signal.SIGTERM)
    deadline = time.monotonic() + patience
    while (waiting := [process for process in waiting if process.alive]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in waiting:
        process.send(signal.SIGKILL)
    while any(process.alive for process in waiting):
        time.sleep(0.02)


def with_environment(*needed: str) -> list[Process]:
    """Processes started with all of these `NAME=value` entries in their environment; never this one or those above."""
    ours = {os.getpid(), *_ancestors()}
    wanted = {entry.encode() for entry in needed}
    found = []
    for folder in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) not in ours and wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                process = Process.of(int(folder.name))
                found += [process] if process is not None else []
    return found


def die_with_parent(number: int = signal.SIGTERM, parent: int | None = None) -> None:
    """From now on the kernel sends this process the signal when its parent ends (Linux; elsewhere nothing happens).

    Args:
        parent: the pid of the parent, as the parent itself told it; without it, a parent that ended before this call
            is not missed.
    """
    parent = parent or os.getppid()
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it ended in between
        os.kill(os.getpid(), number)


def _ancestors() -> list[int]:
    pids, pid = [], os.getppid()
    while pid > 1:
        pids.append(pid)
        try:
            pid = int((PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return pids
