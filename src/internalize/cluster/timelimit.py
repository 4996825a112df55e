"""The end of a job's time, seen from the segment that runs in it.

Invariant: a segment stops for time only between two steps, and only after it has committed a new one; so a job that is
put back into the queue again and again always gets on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

ENDS = "INTERNALIZE_JOB_ENDS"
"""Variable in which the launcher says when the job's time is up, seconds since 1970."""
STOP = "INTERNALIZE_JOB_STOP"
"""Variable that names the file whose appearance asks to stop after the current step. A file and no signal, because
signals end programs that do not expect them and do not pass every container."""
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
        stop: file that asks to stop, once it exists.
        clock: seconds since 1970.
    """

    def __init__(self, ends: float | None, stop: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self.ends = ends
        self.stop = stop
        self._clock = clock
        self._began: float | None = None
        self._longest = 0.0

    @classmethod
    def of_environment(cls) -> TimeLimit:
        """The limit that the launcher has set; none without a launcher."""
        ends, stop = os.environ.get(ENDS), os.environ.get(STOP)
        return cls(float(ends) if ends else None, Path(stop) if stop else None)

    def before_step(self) -> None:
        """To be called before each step that must be computed.

        Raises:
            TimeIsUp: a step has been computed since the start, and the job was told to stop or the next step would
                outlast the job.
        """
        now = self._clock()
        if self._began is not None:
            self._longest = max(self._longest, now - self._began)
            if self.stop is not None and self.stop.exists():
                raise TimeIsUp("told to stop before the job's time is up")
            if self.ends is not None and now + SPARE * self._longest > self.ends:
                left = max(0, round(self.ends - now))
                raise TimeIsUp(f"{left} s are left, the longest step took {self._longest:.0f} s")
        self._began = now
