"""An agent for tests that need no CLI: `agent_double.py` as an `Agent`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from internalize.harness.agent import Errand, base_environment
from internalize.harness.installs import Install
from internalize.harness.qwen_code import QwenCode

DOUBLE = Path(__file__).with_name("agent_double.py")


class Double:
    """`Agent` over `agent_double.py`."""

    name, version, log = "double", "1", "double.log"

    def __init__(
        self, how: str = "ok", first_request: str | None = None, hows: Mapping[str, str] | None = None
    ) -> None:
        """`how` says what goes wrong, `hows` by the id of the episode."""
        self.how, self.first_request, self.hows = how, first_request, hows or {}

    def find(self) -> Install | None:
        return Install((sys.executable, str(DOUBLE)), "1")

    def spell(self, task: str) -> str:
        return task

    def command(self, install: Install, errand: Errand) -> list[str]:
        return [
            *install.command,
            self.hows.get(errand.url.rsplit("/", 1)[-1], self.how),
            errand.task,
            str(errand.mcp_config),
        ]

    def environment(self, install: Install, errand: Errand) -> dict[str, str]:
        return {**base_environment(errand), "BASE_URL": errand.url, "KEY": errand.key}

    def looped(self, transcript: list[Any], log: str) -> bool:
        return QwenCode().looped(transcript, log)
