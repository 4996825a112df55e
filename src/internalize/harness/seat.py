"""An episode's game, shared by the gateway and the game service.

Invariant: the game lives here, in the harness's process, and nowhere else: an MCP server that dies takes no
state with it. Every tool call has its row in `journal.jsonl` before anybody hears its result.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from internalize.errors import UserError
from internalize.games.protocol import Game
from internalize.games.session import GameSession
from internalize.games.shaping import Outcome
from internalize.gateway.lines import Lines
from internalize.records import JournalRow

MAX_CALLS = 1000
"""Tool calls of one episode; refused calls cost no act, so without this a confused agent never ends."""


class Seat:
    """`gateway.session.Table` over a `GameSession`. Thread-safe."""

    def __init__(self, game: Game, level: int, seed: int, journal: Lines) -> None:
        self.token = secrets.token_urlsafe(24)
        """What the episode's MCP server must know."""
        self.servers: list[int] = []
        """Process ids of the MCP servers that asked for this seat; only the first got it."""
        self.journal: list[dict[str, Any]] = []
        self._session = GameSession(game, level, seed)
        self._lines = journal
        self._results: list[str] = []
        self._lock = threading.RLock()

    def start(self, pid: int) -> bool:
        """An MCP server asks for the seat. Only the first gets it: another one means that the first died in
        the middle of an episode, which then does not count."""
        with self._lock:
            self.servers.append(pid)
            return len(self.servers) == 1

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Carry out a tool call and return its text. Raises UserError for an unknown tool and after
        `MAX_CALLS`."""
        with self._lock:
            if len(self._results) >= MAX_CALLS:
                raise UserError("too many tool calls in one episode", expected=f"at most {MAX_CALLS}")
            row = self._session.call(tool, arguments)
            text = text_of(row)
            record = row.model_dump()
            self._lines.append(record)
            self.journal.append(record)
            self._results.append(text)
            return text

    def observe(self) -> str:
        """The current observation, free of charge."""
        with self._lock:
            return self._session.observe()

    @property
    def done(self) -> bool:
        """The episode is over."""
        with self._lock:
            return self._session.done

    @property
    def results(self) -> Sequence[str]:
        """Texts of all tool calls so far."""
        with self._lock:
            return tuple(self._results)

    def unusable(self) -> str:
        """Charge a reply without a usable call; returns the observation."""
        with self._lock:
            self._session.unusable()
            return self._session.observe()

    def text_end(self) -> None:
        """End the episode by a text answer."""
        with self._lock:
            self._session.text_end()

    def outcome(self) -> Outcome:
        """How the episode stands."""
        with self._lock:
            return self._session.outcome()


def text_of(row: JournalRow) -> str:
    """What the model reads of a tool call: plain text. `look` and `act` give the observation, or why the call
    was refused; `status` the state of the episode."""
    result = row.result
    if row.tool == "status" and not result.observation:
        return f"{result.state} {result.actions_left} acts left"
    return result.observation
