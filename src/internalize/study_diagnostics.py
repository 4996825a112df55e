"""The study's `diagnostics` section: what a running job may take before it is reported or ended.

Invariant: nothing here changes a result: a job reads it, no step's spec and no store key holds it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from internalize.study_model import Settings

Seconds = Annotated[float, Field(gt=0)]


class Deadlines(Settings):
    """Longest time of each phase of a step, seconds; null: none."""

    start: Seconds | None = None
    """Loading the model, the engine and the checkpoint."""
    play: Seconds | None = None
    """The rollout."""
    train: Seconds | None = None
    """All optimizer steps."""
    save: Seconds | None = None
    """Writing the checkpoint."""


class Diagnostics(Settings):
    """Limits of running jobs; a job that passes one ends with the stacks of its threads."""

    sample_seconds: Seconds = 10.0
    """Time between two samples of memory and two writes of the heartbeat."""
    silence: Seconds | None = 1800.0
    """Longest time without an engine call or an optimizer step inside a phase that makes them; null: none."""
    deadlines: Deadlines = Deadlines()
    """Longest time of each phase."""
    grace: Seconds = 30.0
    """Time that a phase gets to end by itself before its process is ended."""
    growth_mib: Seconds = 64.0
    """Steady growth of host memory a step, MiB, that raises the alarm."""
    horizon: Seconds = 1800.0
    """The alarm is raised when memory runs out within this time at the rate of the last samples."""
