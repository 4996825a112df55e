"""Real agent CLIs in tests.

Where they are not installed their tests are skipped, unless INTERNALIZE_REQUIRE_CLIS is set (CI): then they fail.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

from internalize.harness.choose import AGENTS


def missing(what: str) -> None:
    """Skip, or fail where it must be there."""
    if os.environ.get("INTERNALIZE_REQUIRE_CLIS"):
        pytest.fail(what)
    pytest.skip(what)


def installed(name: str) -> Any:
    """The agent of that name, if its CLI is here at the version that we know."""
    agent = AGENTS[name]()
    found = agent.find()
    if found is None or found.version != agent.version:
        missing(f"{agent.name} {agent.version} is not installed (scripts/install-clis.sh)")
    return agent
