"""One agent process and everything it starts.

Invariant: when `run` returns, however it ended, no process of its group is left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from internalize.errors import UserError

TERM_SECONDS = 3.0
"""Between SIGTERM and SIGKILL."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended. `status` is negative for a signal."""

    status: int
    timed_out: bool = False

    @property
    def killed(self) -> bool:
        """By a signal, or with the status that shells and node give for one."""
        return self.status < 0 or self.status in (129, 130, 137, 143)


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    output: Path,
    log: Path,
    seconds: float,
) -> Exit:
    """Run `command` in a session of its own, in `folder`, with exactly this environment and no input.

    Args:
        output, log: files for standard output and standard error.
        seconds: limit of the whole run; then the group is ended.

    Raises:
        UserError: it can't be started.
    """
    with output.open("wb") as out, log.open("wb") as err:
        try:
            process = subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError("cannot start the agent", where=command[0], got=str(error)) from error
        timed_out = False
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            end_group(process.pid, process)
        return Exit(process.returncode, timed_out)


def end_group(group: int, leader: subprocess.Popen[bytes] | None = None) -> None:
    """End all processes of a group, politely first. `leader` is reaped."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            break
        deadline = time.monotonic() + TERM_SECONDS
        while time.monotonic() < deadline and _alive(group, leader):
            time.sleep(0.02)
    if leader is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            leader.wait(TERM_SECONDS)


def _alive(group: int, leader: subprocess.Popen[bytes] | None) -> bool:
    if leader is not None:
        leader.poll()  # a zombie would still count as alive
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
