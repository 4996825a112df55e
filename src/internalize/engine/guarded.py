"""`python -m internalize.engine.guarded COMMAND...`: a command that ends with whoever started it.

Invariant: when standard input ends, which it does however the parent ends, the command and all that it has started are
told to end, and are killed if they do not; when the command ends by itself, its exit status is ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

GRACE = 4.0
"""Seconds between the request to end and the kill: less than `server.STOP_SECONDS`."""


def main(command: Sequence[str]) -> int:
    """Runs `command` in a session of its own; returns its exit status."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def end(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
            try:
                child.wait(GRACE)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)

    def watch() -> None:
        while os.read(0, 4096):  # unbuffered: Python does not end while a thread waits inside `sys.stdin`
            pass
        end()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    threading.Thread(target=watch, daemon=True).start()
    return child.wait()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
