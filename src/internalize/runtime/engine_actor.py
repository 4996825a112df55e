"""An engine as a Ray actor.

Invariant: its process imports the engine and no trainer (Megatron would cost it seconds).
"""

from __future__ import annotations

import os
import socket

from internalize.runtime.engines import EngineHost


class EngineActor(EngineHost):
    """An engine that is called through Ray."""

    def where(self) -> tuple[str, int]:
        """Host and process id."""
        return socket.gethostname(), os.getpid()
