"""Is the ARC engine here? Where it is not, tests skip; where CI says that it must be, they fail."""

from __future__ import annotations

import importlib.util
import os

import pytest

from internalize.games.arc.engine import INSTALL

REQUIRED = "INTERNALIZE_REQUIRE_ARC"


def need_engine() -> None:
    """Skips the test, with what to do, unless `arcengine` is here."""
    if importlib.util.find_spec("arcengine") is not None:
        return
    why = f"arcengine is not installed. {INSTALL}"
    if os.environ.get(REQUIRED):
        pytest.fail(f"{REQUIRED} is set, and {why}")
    pytest.skip(why)
