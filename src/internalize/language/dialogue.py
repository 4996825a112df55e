"""What the stages need of a language: conversations to token ids and back, whatever tokenizer and chat template.

Invariant: `user`, then for every turn the sampled ids and `result`, concatenated, is the prompt of the next call;
sampled ids never pass through text. Stages know this protocol alone: `template.Template` is the closed vocabulary of
the bundled game, `chat.ChatTemplate` the tokenizer and chat template of a model from the hub; `folder.load_dialogue`
tells them apart by the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from internalize.language.calls import CallTable


class Reply(NamedTuple):
    """One parsed reply. `call` is set for kind "call", `say` for kind "say"; a "bad" reply keeps the text of
    its think."""

    think: str
    kind: Literal["call", "say", "bad"]
    call: str | None = None
    say: str | None = None


class Dialogue(Protocol):
    """Renders prompts and parses replies of one model about one game."""

    @property
    def calls(self) -> CallTable:
        """The calls that a reply can make, by word."""

    @property
    def stop_id(self) -> int:
        """The token that ends a reply."""

    @property
    def size(self) -> int:
        """Token ids are below it."""

    @property
    def canonical(self) -> bool:
        """A text has one spelling in tokens, so rendering a parsed reply again gives its very ids."""

    @property
    def answer_tokens(self) -> int:
        """Tokens that an answer to a question may take."""

    # Text

    def encode(self, text: str) -> list[int]:
        """Ids of plain text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens included."""

    def offsets(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Where each token's characters stand in `decode(ids)`."""

    def unreadable(self, ids: Sequence[int]) -> int:
        """How many ids stand for words that the model has no token for."""

    # What the model reads

    def task(self, text: str, knowledge: Sequence[str] | None = None) -> str:
        """The words of the first user turn: an observation or a question, behind what the model is told."""

    def opening(self, task: str) -> list[int]:
        """The first user turn with all that stands before it, and its generation prompt."""

    def user(self, text: str, knowledge: Sequence[str] | None = None) -> list[int]:
        """`opening(task(text, knowledge))`."""

    def result(self, text: str, reply: Sequence[int]) -> list[int]:
        """What follows a reply: a tool's result as the next turn, with its generation prompt."""

    def read_user(self, ids: Sequence[int]) -> tuple[str, list[str]]:
        """(text, knowledge) of `user`, or of `result` without knowledge; text as it is where ids are neither."""

    def split(self, tokens: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """A conversation cut into (what is read, reply) pairs; joined they are the conversation."""

    # What the model writes

    def reply_ids(self, think: str, call: str | None = None, say: str | None = None) -> list[int]:
        """A whole reply; ValueError unless exactly one of `call` and `say` is given."""

    def ended(self, reply: Sequence[int]) -> list[int]:
        """A reply as it stands in a history: with its end token, if histories need one."""

    def parse(self, ids: Sequence[int]) -> Reply:
        """Read a sampled reply; "bad" is all that is not one well-formed call or answer."""

    def begun(self, parts: Sequence[str]) -> list[int]:
        """The beginning of a reply whose think starts with `parts`."""

    def recital(self, parts: Sequence[str]) -> list[int]:
        """Ids that state `parts` at the top of a think."""

    def top(self, reply: Sequence[int]) -> int:
        """Index in a reply at which its think begins."""

    def said(self) -> list[int]:
        """What stands between a prompt and an answer in text."""
