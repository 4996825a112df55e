"""What a running job may take before somebody should look.

Invariant: limits end or report a job, they never enter a result; so they stand in no step's spec and no store key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PHASES = ("start", "play", "train", "save")


@dataclass(frozen=True)
class Limits:
    """Seconds and MiB; None is no limit.

    Args:
        sample_seconds: between two samples of memory, and between two writes of the heartbeat.
        silence: longest time without a sign of life inside a phase. It counts from the phase's first sign on: a phase
            that gives none (agents playing on their own) is bound by its deadline alone.
        deadlines: phase -> longest time.
        grace: from the request to end until the process is ended from outside.
        growth_mib: steady growth of memory a step that raises the alarm.
        horizon: the alarm is raised too when, at the rate of the last samples, memory runs out within this time.
    """

    sample_seconds: float = 10.0
    silence: float | None = 1800.0
    deadlines: Mapping[str, float | None] = field(default_factory=dict)
    grace: float = 30.0
    growth_mib: float = 64.0
    horizon: float = 1800.0

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Limits:
        """From a study's `diagnostics` section; the defaults where there is none."""
        return cls(**(settings or {}))
