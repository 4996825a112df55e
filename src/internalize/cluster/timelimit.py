"""The end of a job's time, seen from the segment that runs in it.

Invariant: a segment stops for time only between two steps, and only after it has committed a new one; so a job that is
put back into the queue again and again always gets on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

ENDS = "INTERNALIZE_JOB_ENDS"
"""Variable in which the launcher says when the job's time is up, seconds since 1970."""
REQUEUE = 75
"""Exit status that asks the launcher to put the job back into the queue (EX_TEMPFAIL)."""
SPARE = 1.2
"""A step may take this much longer than the longest so far."""


class TimeIsUp(Exception):
    """The next step would not be finished in time; the steps so far are committed."""


class TimeLimit:
    """Watches the time of a job.

    Args:
        ends: when the job's time is up; None: no limit.
        clock: seconds since 1970.
    """

    def __init__(self, ends: float | None, clock: Callable[[], float] = time.time) -> None:
        self.ends = ends
        self.called = False
        """True once the job was told to stop."""
        self._clock = clock
        self._began: float | None = None
        self._longest = 0.0

    @classmethod
    def of_environment(cls) -> TimeLimit:
        """The limit that the launcher has set; from now on SIGUSR1 asks to stop after the current step."""
        text = os.environ.get(ENDS)
        limit = cls(float(text) if text else None)
        if text is not None:
            signal.signal(signal.SIGUSR1, limit.call)
        return limit

    def call(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Asks to stop after the current step (a signal handler)."""
        self.called = True

    def before_step(self) -> None:
        """To be called before each step that must be computed.

        Raises:
            TimeIsUp: a step has been computed since the start, and the job was told to stop or the next step would
                outlast the job.
        """
        now = self._clock()
        if self._began is not None:
            self._longest = max(self._longest, now - self._began)
            if self.called:
                raise TimeIsUp("told to stop before the job's time is up")
            if self.ends is not None and now + SPARE * self._longest > self.ends:
                left = max(0, round(self.ends - now))
                raise TimeIsUp(f"{left} s are left, the longest step took {self._longest:.0f} s")
        self._began = now
