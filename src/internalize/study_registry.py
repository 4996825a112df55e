"""What has become of runs: why an arm has its status, and the runs that are no arms.

Invariant: a run is named once, as an arm or here; nothing here is planned.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from internalize.study_model import Name, Settings, Status


class Recorded(Settings):
    """Runs that are known but not planned: shakedowns, probes, failed starts, data builds."""

    status: Status
    """Registry status."""
    reason: str
    """Why they have it."""
    runs: Annotated[list[Name], Field(min_length=1)]
    """Their names."""
