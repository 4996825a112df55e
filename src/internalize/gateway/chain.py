"""Does a request continue the episode exactly where the last answer left it?

Invariant: a request that passes holds the task, every answer of the session in order, each with the game's own
result, and nothing else. What is passed on is never what the client sent, but what the session remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from internalize.errors import UserError
from internalize.gateway import reasons
from internalize.gateway.conversation import Conversation, Item, Replied, Result, Said
from internalize.gateway.harness_text import is_harness_text, split_front


class ChainBroken(UserError):
    """The request is none of the expected ones; `reason` is one of `gateway.reasons`."""

    title = "chain broken"

    def __init__(self, reason: str, what: str, *, got: str = "", expected: str = "") -> None:
        super().__init__(what, got=got, expected=expected)
        self.reason = reason


@dataclass(slots=True)
class Turn:
    """One answer that the client got."""

    sent: Replied
    mismatched: bool = False
    """The client handed back something else as this answer."""


def follow(conversation: Conversation, task: str, turns: Sequence[Turn], results: Sequence[str]) -> bool:
    """Check a request against the session. True: it asks for the next answer; False: it repeats the last
    request (its answer was lost on the way).

    Args:
        turns: the answers so far; marks those that came back changed.
        results: the game's answers to the tool calls, in order.

    Raises:
        ChainBroken: anything else.
    """
    front, rest = split_front(conversation.items)
    kept = [said for said in front if not is_harness_text(said)]
    if [said.text for said in kept] != [task] or kept[0].role != "user":
        raise _outside("the request does not begin with the task", [said.text for said in kept], task)
    known = len(rest) // 2
    if len(rest) % 2 or known not in (len(turns), len(turns) - 1):
        raise _outside(
            "the request is not one turn longer than the last",
            [type(item).__name__ for item in rest],
            f"{len(turns)} replies, each with its result",
        )
    for i in range(known):
        _check_turn(turns[i], rest[2 * i], rest[2 * i + 1], results[i] if i < len(results) else None)
    return known == len(turns)


def _check_turn(turn: Turn, replied: Item, result: Item, expected: str | None) -> None:
    if not isinstance(replied, Replied) or not isinstance(result, Result):
        texts = [item.text for item in (replied, result) if isinstance(item, Said)]
        raise _outside("a text stands between the turns", texts or ["no result"], "a reply and its result")
    ours = turn.sent.calls[0] if turn.sent.calls else None
    theirs = replied.calls[0] if len(replied.calls) == 1 else None
    if ours is None or theirs is None or (ours.id, ours.name) != (theirs.id, theirs.name):
        raise _outside("a reply is not the one that was sent", [repr(replied)], repr(turn.sent))
    if result.call_id != ours.id:
        raise _outside("a result answers another call", [result.call_id], ours.id)
    if expected is None or result.text != expected:
        raise ChainBroken(
            reasons.TOOL_FAILED,
            "a tool result is not what the game answered",
            got=result.text[:200],
            expected="no answer" if expected is None else expected,
        )
    # Clients trim texts and write JSON anew; the tokens are ours either way.
    same = theirs.arguments == ours.arguments and replied.think.split() == turn.sent.think.split()
    if not same or replied.text.split() != turn.sent.text.split():
        turn.mismatched = True


def _outside(what: str, got: Sequence[str], expected: str) -> ChainBroken:
    shown = " | ".join(text[:120] for text in got[:6]) or "nothing"
    return ChainBroken(reasons.OUTSIDE_CHAIN, what, got=shown, expected=expected[:200])
