"""Whether an episode that an agent played counts, and if not, the one word for why.

Invariant: an episode counts only if the agent met the game's own server once, every request continued the last
one, every text came back as it was sent, the journal holds exactly the calls that were sampled, the game came
to its end and the agent ended by itself with status 0. Never the exit status alone: agents report success
after many failures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from internalize.gateway import reasons
from internalize.gateway.calls import CallRow
from internalize.harness.counted import LOOP_GUARD
from internalize.harness.process import Exit
from internalize.language.calls import CallTable

MCP_NOT_CONNECTED = "mcp_not_connected"
"""The MCP server never took its seat, or the agent offered no tool."""
MCP_RESTARTED = "mcp_restarted"
"""More than one MCP server asked for the seat."""
JOURNAL_MISMATCH = "journal_mismatch"
"""The tool calls that were carried out are not those that were sampled."""
TIMEOUT = "timeout"
"""The outer time limit."""
AGENT_KILLED = "agent_killed"
"""The agent was ended by a signal."""
EXIT_STATUS = "exit_status"
"""The agent ended by itself with a status other than 0."""
UNFINISHED = "unfinished"
"""The agent ended well, the game had not."""


@dataclass(frozen=True)
class Facts:
    """What is known of a finished episode."""

    exit: Exit
    servers: int
    """MCP servers that asked for the seat."""
    session_reason: str | None
    """Why the gateway ended the session, if it did."""
    gateway_alive: bool
    """It still answers after the agent has ended."""
    mismatches: int
    calls: Sequence[CallRow]
    journal: Sequence[dict[str, Any]]
    game_over: bool
    looped: bool


def judge(facts: Facts, table: CallTable) -> str | None:
    """None, or the first reason that holds, the most specific first."""
    if facts.servers == 0:
        return MCP_NOT_CONNECTED
    if facts.session_reason is not None:
        return facts.session_reason
    if not facts.gateway_alive:
        return reasons.GATEWAY_LOST
    if facts.servers > 1:
        return MCP_RESTARTED
    if facts.mismatches:
        return reasons.SPLICE_MISMATCH
    if facts.looped:
        return LOOP_GUARD
    if facts.exit.timed_out:
        return TIMEOUT
    if facts.exit.killed:
        return AGENT_KILLED
    if facts.exit.status != 0:
        return EXIT_STATUS
    if not journal_agrees(facts.calls, facts.journal, table):
        return JOURNAL_MISMATCH
    return None if facts.game_over else UNFINISHED


def journal_agrees(calls: Sequence[CallRow], journal: Sequence[dict[str, Any]], table: CallTable) -> bool:
    """Every sampled call was carried out, in order, with its own arguments, and nothing else was."""
    sampled = [table.expand(call.call_word) for call in calls if call.kind == "call" and call.call_word]
    done = [(row["tool"], {k: v for k, v in row["arguments"].items() if v is not None}) for row in journal]
    return done == [(c.tool, {k: v for k, v in c.arguments().items() if v is not None}) for c in sampled]
