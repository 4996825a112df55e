"""The side of a process that its driver calls.

Invariant: every CPU second of the process is reported with exactly one answer.
"""

from __future__ import annotations

import time
from typing import Any


class Called:
    """Methods that another process asks for by name."""

    _charged = 0.0

    def call(self, name: str, *arguments: Any) -> tuple[Any, float]:
        """Runs the method `name`; its result, and the CPU seconds of this process since the last call."""
        result = getattr(self, name)(*arguments)
        spent = time.process_time()
        self._charged, spent = spent, spent - self._charged
        return result, spent
