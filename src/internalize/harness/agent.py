"""What differs between agent CLIs.

Invariant: everything that decides what an agent does, its command and its environment, is made here from its
arguments alone; nothing is inherited from the user's shell, home or settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from internalize.harness.installs import Install

SYSTEM = "Play the game with the tools look, act and status until it is over."
"""System prompt. A closed-vocabulary model never sees it (`gateway.harness_text`)."""
MCP_TOOLS = ("mcp__game__look", "mcp__game__act", "mcp__game__status")
PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Errand:
    """One episode, as its agent is told about it."""

    task: str
    """As `Agent.spell` writes it."""
    url: str
    """Base URL of the episode's session at the gateway."""
    key: str
    model: str
    mcp_config: Path
    home: Path
    temporary: Path
    seconds: float
    """Limit of the episode; calls may take as long."""
    max_turns: int


class Agent(Protocol):
    """An agent CLI."""

    @property
    def name(self) -> str:
        """As the study file spells it."""
        ...

    @property
    def version(self) -> str:
        """The one version whose behaviour is known."""
        ...

    @property
    def log(self) -> str:
        """Name of the file that keeps its standard error."""
        ...

    @property
    def first_request(self) -> str | None:
        """`gateway.harness_text.fingerprint` of the first request that this version sends;
        None pins nothing."""
        ...

    def find(self) -> Install | None:
        """Where it is installed."""
        ...

    def spell(self, task: str) -> str:
        """The task so written that the CLI passes it on unchanged."""
        ...

    def command(self, install: Install, errand: Errand) -> list[str]:
        """The words that play one episode."""
        ...

    def environment(self, install: Install, errand: Errand) -> dict[str, str]:
        """The whole environment."""
        ...

    def looped(self, transcript: list[Any], log: str) -> bool:
        """Its guard against repeated calls ended the episode."""
        ...


def mcp_config(command: list[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """`mcp.json`, as both CLIs read it."""
    server = {"command": command[0], "args": command[1:], "env": dict(environment)}
    return {"mcpServers": {"game": server}}


def base_environment(errand: Errand, path: str = PATH) -> dict[str, str]:
    """A home, a temporary folder and a locale of its own."""
    return {"PATH": path, "HOME": str(errand.home), "TMPDIR": str(errand.temporary), "LANG": "C.UTF-8"}
