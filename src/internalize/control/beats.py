"""What running steps say of themselves: the heartbeats of their watchdogs, wherever the job runs.

Invariant: a step that has been committed or was killed long ago says nothing here; only the store's folder of running
things is read.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from internalize.diagnostics.watchdog import HEARTBEAT
from internalize.errors import UserError
from internalize.files import read_json

STEP = re.compile(r"^(?P<arm>.+)-seed(?P<seed>\d+)-step(?P<step>\d{4})$")
SILENT = 60.0
"""Seconds without a heartbeat from which on a step is said to be silent; a watchdog writes one every ten."""
GONE = 3600.0
"""Seconds from which on a heartbeat is taken for one that a killed job left behind."""


@dataclass(frozen=True)
class Beat:
    """The last heartbeat of a step."""

    arm: str
    seed: int
    step: int
    phase: str
    """`start`, `play`, `train`, `save`; empty between phases."""
    phase_s: float
    """Seconds in it, up to now."""
    host: str
    silent_s: float
    """Seconds since the heartbeat was written."""
    alarms: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"seed {self.seed} step {self.step}"
        if self.silent_s > SILENT:
            return f"{said}: no heartbeat for {self.silent_s:.0f} s (on {self.host})"
        doing = f": {self.phase} {self.phase_s:.0f} s" if self.phase else ""
        return said + doing + "".join(f"; {alarm}" for alarm in self.alarms)


def beats(running: Path, now: float | None = None) -> list[Beat]:
    """The heartbeats below the store's folder of running things, by arm, seed and step."""
    now = time.time() if now is None else now
    found = []
    for path in running.glob(f"*/{HEARTBEAT}"):
        try:
            told = read_json(path)
        except (OSError, UserError):
            continue  # its step was committed in this moment
        match = STEP.match(str(told["step"])) if isinstance(told, dict) else None
        if match is None or now - told["time"] > GONE:
            continue
        silent = max(0.0, now - told["time"])
        found.append(
            Beat(
                match["arm"],
                int(match["seed"]),
                int(match["step"]),
                str(told["phase"]),
                told["phase_s"] + silent,
                str(told["host"]),
                silent,
                tuple(map(str, told["alarms"])),
            )
        )
    return sorted(found, key=lambda beat: (beat.arm, beat.seed, beat.step))
