"""A terminal to run commands on."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def on_terminal(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Runs a command with a terminal of 30 x 120 as its output; its exit status and all that it wrote."""
    above, below = pty.openpty()
    size = {"COLUMNS": "120", "LINES": "30", "TERM": "xterm-256color"}
    with subprocess.Popen(
        command, cwd=folder, env={**environment, **size}, stdin=below, stdout=below, stderr=below, close_fds=True
    ) as process:
        os.close(below)
        said = b""
        while True:
            try:
                more = os.read(above, 65536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            said += more
    os.close(above)
    return process.returncode, said.decode()


def piped(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """The same into a pipe."""
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode()
