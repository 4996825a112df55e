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
            _end_group(process)
        return Exit(process.returncode, timed_out)


def _end_group(leader: subprocess.Popen[bytes]) -> None:
    """End all processes of its group, politely first, and reap it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(leader.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        deadline = time.monotonic() + TERM_SECONDS
        while time.monotonic() < deadline and _group_lives(leader):
            time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        leader.wait(TERM_SECONDS)


def _group_lives(leader: subprocess.Popen[bytes]) -> bool:
    leader.poll()  # a zombie would still count as alive
    try:
        os.killpg(leader.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
