"""Conversations to tokens and back, for the gateway.

Invariant: `opening`, then for every turn the sampled ids and `result`, concatenated, is the prompt of the next
call; the sampled ids never pass through text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from internalize.language.calls import ToolCall
from internalize.language.dialogue import Dialogue, Reply


class Dialect(Protocol):
    """The chat template, tokenizer and tool parser of one model."""

    @property
    def stop_id(self) -> int:
        """The token that ends a reply."""
        ...

    def opening(self, task: str) -> list[int]:
        """The first user turn with its generation prompt."""
        ...

    def result(self, text: str, reply: Sequence[int]) -> list[int]:
        """A tool's result as the next user turn behind a reply, with its generation prompt."""
        ...

    def read(self, ids: Sequence[int]) -> Reply:
        """Parse a sampled reply; kind "bad" unless it is whole and well formed."""
        ...

    def tool_call(self, word: str) -> ToolCall:
        """The call that a reply of kind "call" means."""
        ...

    def unknown(self, ids: Sequence[int]) -> int:
        """How many of `ids` stand for words that the model has no token for."""
        ...


class DialogueDialect:
    """A model's dialogue. What a client says around the task is not rendered (see `gateway.harness_text`): whichever
    harness plays, the model reads the same tokens. The task may begin with the knowledge (`Dialogue.task`)."""

    def __init__(self, template: Dialogue) -> None:
        self.template = template

    @property
    def stop_id(self) -> int:
        return self.template.stop_id

    def opening(self, task: str) -> list[int]:
        return self.template.opening(task)

    def result(self, text: str, reply: Sequence[int]) -> list[int]:
        return self.template.result(text, reply)

    def read(self, ids: Sequence[int]) -> Reply:
        return self.template.parse(ids)

    def tool_call(self, word: str) -> ToolCall:
        return self.template.calls.expand(word)

    def unknown(self, ids: Sequence[int]) -> int:
        return self.template.unreadable(ids)
