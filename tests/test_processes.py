"""Helpers end with their parent."""

from __future__ import annotations

import os
import signal
import time

from internalize.processes import die_with_parent


def test_a_parent_that_ended_before_the_call_is_not_missed() -> None:
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        own = os.getpid()
        if os.fork() == 0:
            while os.getppid() == own:
                time.sleep(0.001)
            die_with_parent(signal.SIGKILL, own)
            os.write(writer, b"it lives on")
        os._exit(0)
    os.waitpid(parent, 0)
    os.close(writer)
    assert os.read(reader, 20) == b""
    os.close(reader)
