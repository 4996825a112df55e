"""Fixtures of a working directory with a fake Slurm."""

from __future__ import annotations

from control_fakes import fake_slurm, line, no_slurm, work

__all__ = ["fake_slurm", "line", "no_slurm", "work"]
