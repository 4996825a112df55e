"""Conversations to tokens and back, for the gateway.

Invariant: `opening`, then for every turn the sampled ids and `result`, concatenated, is the prompt of the next
call; the sampled ids never pass through text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from internalize.language import markup
from internalize.language.calls import ToolCall
from internalize.language.template import Reply, Template


class Dialect(Protocol):
    """The chat template, tokenizer and tool parser of one model."""

    @property
    def stop_id(self) -> int:
        """The token that ends a reply."""
        ...

    def opening(self, task: str) -> list[int]:
        """The first user turn with its generation prompt."""
        ...

    def result(self, text: str) -> list[int]:
        """A tool's result as the next user turn, with its generation prompt."""
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


class ClosedDialect:
    """The word-level template of `language`. It has no system turn and no tool list: see
    `gateway.harness_text` for what is dropped. The task may begin with the knowledge (`know F1 .. F9`)."""

    def __init__(self, template: Template) -> None:
        self.template = template
        self._unk = template.vocab.id(markup.UNK)

    @property
    def stop_id(self) -> int:
        return self.template.stop_id

    def opening(self, task: str) -> list[int]:
        return self.template.user(task)

    def result(self, text: str) -> list[int]:
        return self.template.user(text)

    def read(self, ids: Sequence[int]) -> Reply:
        return self.template.parse(ids)

    def tool_call(self, word: str) -> ToolCall:
        return self.template.calls.expand(word)

    def unknown(self, ids: Sequence[int]) -> int:
        return list(ids).count(self._unk)
