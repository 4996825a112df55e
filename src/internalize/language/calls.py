"""Call words and the tool calls they stand for: the one place where `dip:N` becomes `act {action, x, y}`.

Invariant: `word_of(expand(word)) == word` for every call word. Every harness and every row builder goes
through here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

from internalize.errors import UserError
from internalize.files import canonical_json
from internalize.games.protocol import Action

LOOK = "look"
STATUS: Final = "status"
SPELLED = "act:"


class ToolCall(NamedTuple):
    """One call of the game's tools. `look` and `status` carry no arguments."""

    tool: Literal["act", "look", "status"]
    action: str | None = None
    x: int | None = None
    y: int | None = None

    def arguments(self) -> dict[str, Any]:
        """The arguments that go over the wire: `{action, x, y}` for `act`, none for the others."""
        return {"action": self.action, "x": self.x, "y": self.y} if self.tool == "act" else {}


class CallTable:
    """Both directions of one game's call words, from `game.call_words()`; `look` is always among them.

    Args:
        spelled: also know every other call, by a word that spells it out (`act:["ACTION6",12,40]`, `status`); for
            models that are free to call anything.
    """

    def __init__(self, words: Mapping[str, Action], spelled: bool = False) -> None:
        self.spelled = spelled
        self._calls: dict[str, ToolCall] = {word: ToolCall("act", *action) for word, action in words.items()}
        self._calls[LOOK] = ToolCall("look")
        self._words = {call: word for word, call in self._calls.items()}
        self.words: tuple[str, ...] = tuple(self._calls)

    def __contains__(self, word: object) -> bool:
        return word in self._calls or (isinstance(word, str) and self._read(word) is not None)

    def expand(self, word: str) -> ToolCall:
        """The tool call of a call word; UserError names the known words."""
        call = self._calls.get(word) or self._read(word)
        if call is None:
            raise UserError("unknown call word", got=word, expected=" ".join(self.words))
        return call

    def word_of(self, call: ToolCall) -> str:
        """The call word of a tool call; UserError if the vocabulary has none (a click beside the pots,
        `status`)."""
        if call in self._words:
            return self._words[call]
        if not self.spelled:
            raise UserError("no call word for this tool call", got=repr(call))
        return SPELLED + canonical_json([call.action, call.x, call.y]) if call.tool == "act" else call.tool

    def _read(self, word: str) -> ToolCall | None:
        """The call that a spelled word spells; None for any other word."""
        if not self.spelled:
            return None
        if word == STATUS:
            return ToolCall(STATUS)
        try:
            action, x, y = json.loads(word.removeprefix(SPELLED)) if word.startswith(SPELLED) else (None, None, None)
        except ValueError:
            return None
        return ToolCall("act", action, x, y) if isinstance(action, str) else None


@lru_cache(maxsize=1)
def bundled() -> CallTable:
    """The table of the bundled game; its call words are the same under every rule set."""
    from internalize.games.dipwheel.text import CALL_WORDS

    return CallTable(CALL_WORDS)
