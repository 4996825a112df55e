"""The watchdog of a job: one thread that samples memory, keeps the heartbeat and ends what hangs.

Invariant: the job's own thread only leaves notes (phase, sign of life) in memory; files and judgements are the
watchdog's. What it writes lies in a run-time folder beside the store's entries (`store/running/STAGE-KEY`), which moves
into the entry with its commit as `runtime/` and is part of no hash.

    heartbeat.json              pid, host, step, phase, seconds in it, last sign of life
    meminfo/HOST-PID.jsonl      memory over time
    stacks.txt                  stacks of all threads when a limit was passed; kept over retries
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.diagnostics.limits import Limits
from internalize.diagnostics.meminfo import MemoryLog
from internalize.diagnostics.stall import (
    Interrupt,
    Stalled,
    arm_last_resort,
    disarm_last_resort,
    dump_stacks,
    end_process,
)
from internalize.store import Stopwatch

HEARTBEAT = "heartbeat.json"
TICK = 1.0
"""Longest time between two looks at the limits, seconds."""


@dataclass
class _Phase:
    """What the job is doing now."""

    name: str
    since: float
    beats: int = 0
    last: float = 0.0
    what: str = ""
    condemned: bool = False


@dataclass
class _Now:
    """The step in progress."""

    folder: Path
    step: str
    phases: list[_Phase] = field(default_factory=list)


class Watchdog:
    """Watches the steps of one process; `start` it before the first and `stop` it after the last.

    Args:
        limits: what is allowed.
        say: takes alarms and the reason of an end.
    """

    def __init__(self, limits: Limits, say: Callable[[str], None]) -> None:
        self.limits = limits
        self.memory = MemoryLog(limits)
        self._say = say
        self._interrupt = Interrupt()
        self._lock = threading.RLock()
        self._now: _Now | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> Watchdog:
        """Starts watching; returns itself."""
        self._interrupt.install()
        self._thread.start()
        return self

    def stop(self) -> None:
        """Ends watching; idempotent."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        self._interrupt.remove()

    def watch(self, folder: Path, step: str) -> Watch:
        """The stopwatch of the next step; its run-time files go to `folder`."""
        with self._lock:
            self._now = _Now(folder, step)
        return Watch(self, folder)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The block is phase `name` of the step: its deadline holds.

        Raises:
            Stalled: it passed its deadline, or gave no sign of life for too long.
        """
        phase = _Phase(name, time.monotonic())
        with self._lock:
            now = self._now
            if now is not None:
                now.phases.append(phase)
        deadline = self.limits.deadlines.get(name)
        if deadline is not None:
            arm_last_resort(deadline + 2 * self.limits.grace + TICK)
        try:
            yield
        finally:
            if deadline is not None:
                disarm_last_resort()
            with self._lock:
                if not phase.condemned:
                    self._interrupt.withdraw()
                if now is not None and phase in now.phases:
                    now.phases.remove(phase)

    def beat(self, what: str) -> None:
        """A sign of life; costs a few attribute writes."""
        now = self._now
        if now is not None and now.phases:
            phase = now.phases[-1]
            phase.last, phase.what = time.monotonic(), what
            phase.beats += 1

    def finish(self, folder: Path) -> Path | None:
        """Ends a step: nothing is written to its folder from now on. Returns the folder if there is one."""
        with self._lock:
            if self._now is not None and self._now.folder == folder:
                self._look(self._now)
                self._now = None
            alarm = self.memory.step_done()
            if alarm:
                self._say(f"memory alarm: {alarm}")
        return folder if folder.exists() else None

    # The watchdog's own thread

    def _run(self) -> None:
        shortest = [self.limits.sample_seconds, TICK, self.limits.silence or TICK]
        tick = min(*shortest, *(limit for limit in self.limits.deadlines.values() if limit is not None)) / 4
        due = 0.0
        while not self._stopped.wait(tick):
            with self._lock:
                now = self._now
                if now is None:
                    continue
                if time.monotonic() >= due:
                    due = time.monotonic() + self.limits.sample_seconds
                    self._look(now)
                over = self._over(now)
            if over is not None:
                self._end(now, *over)

    def _look(self, now: _Now) -> None:
        """One sample and one heartbeat. A full disk must not end the job: it ends by its own write."""
        phase = now.phases[-1] if now.phases else _Phase("", time.monotonic())
        with contextlib.suppress(OSError):
            alarm = self.memory.take(now.folder, phase.name)
            if alarm:
                self._say(f"memory alarm: {alarm}")
            heartbeat = now.folder / HEARTBEAT
            temporary = heartbeat.with_suffix(f".{os.getpid()}")
            temporary.write_text(json.dumps(self._sign(now, phase), indent=2) + "\n")
            temporary.replace(heartbeat)

    def _sign(self, now: _Now, phase: _Phase) -> dict[str, Any]:
        at = time.monotonic()
        return {
            "time": round(time.time(), 3),
            "pid": os.getpid(),
            "host": platform.node(),
            "step": now.step,
            "phase": phase.name,
            "phase_s": round(at - phase.since, 1),
            "beats": phase.beats,
            "last_beat": phase.what,
            "last_beat_s": round(at - phase.last, 1) if phase.beats else None,
            "alarms": self.memory.alarms,
        }

    def _over(self, now: _Now) -> tuple[_Phase, str, str] | None:
        """The phase that is over a limit, with the limit and what was found, in words."""
        at = time.monotonic()
        for phase in now.phases:
            deadline, silence = self.limits.deadlines.get(phase.name), self.limits.silence
            if phase.condemned:
                continue
            if deadline is not None and at - phase.since > deadline:
                return phase, f"phase {phase.name} done within {deadline:g} s", f"{at - phase.since:.0f} s"
            if silence is not None and phase.beats and at - phase.last > silence:
                found = f"none for {at - phase.last:.0f} s, after {phase.what} ({phase.beats} so far)"
                return phase, f"a sign of life of phase {phase.name} every {silence:g} s", found
        return None

    def _end(self, now: _Now, phase: _Phase, expected: str, got: str) -> None:
        stacks = dump_stacks(now.folder, f"{now.step}: {expected}, {got}")
        error = Stalled(
            f"phase {phase.name} hangs",
            where=now.step,
            expected=expected,
            got=got,
            fix=f"the stacks of all threads are in {stacks}; run again: the job goes on after the last committed step",
        )
        with self._lock:
            if phase not in now.phases:
                return  # it ended in this moment
            phase.condemned = True
            self._say(f"{error.what}: the stacks of all threads are in {stacks}")
            self._interrupt.send(error)
        if not self._stopped.wait(self.limits.grace):
            end_process(self._say, error)


class Watch(Stopwatch):
    """A stopwatch whose phases are watched."""

    def __init__(self, dog: Watchdog, folder: Path) -> None:
        super().__init__()
        self._dog, self._folder = dog, folder

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """As a stopwatch's; the phase has its deadline."""
        with super().phase(name), self._dog.phase(name):
            yield

    def limit(self, name: str) -> contextlib.AbstractContextManager[None]:
        """A phase that is watched but not timed."""
        return self._dog.phase(name)

    def beat(self, what: str) -> None:
        """A sign of life."""
        self._dog.beat(what)

    def finish(self) -> Path | None:
        """The step's run-time folder, to be moved into its entry; nothing is written there from now on."""
        return self._dog.finish(self._folder)

    def report(self) -> dict[str, Any]:
        """As a stopwatch's, and the alarms."""
        alarms = self._dog.memory.alarms
        return {**super().report(), **({"memory_alarms": list(alarms)} if alarms else {})}


def beat_on_calls(owner: object, method: str, beat: Callable[[], None]) -> None:
    """From now on every return of `owner.method(...)` is a sign of life. Only this object changes."""
    inner = getattr(owner, method)

    def watched(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        beat()
        return result

    setattr(owner, method, watched)
