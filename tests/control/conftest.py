"""Fixtures of a working directory with a fake Slurm, and of a study that has begun in it."""

from __future__ import annotations

from begun import plan, store
from control_fakes import fake_slurm, line, no_slurm, work

__all__ = ["fake_slurm", "line", "no_slurm", "plan", "store", "work"]
