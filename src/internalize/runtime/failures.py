"""What ends a step from outside, so that it is worth trying again.

Invariant: a `WorkerLost` says which process is gone and what its last words were; a fault of the input or of the code
is never one.
"""

from __future__ import annotations

from internalize.errors import ProcessLost


class WorkerLost(ProcessLost):
    """A rank or an engine died, or never came up: the step is lost, what was committed is not."""

    title = "run-time failure"
