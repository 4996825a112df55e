"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What a check has found."""

    check: str
    ok: bool
    said: str
    fix: str = ""
    """What to do; empty when all is well."""
