"""Conversations as token ids: the only place that renders prompts and parses replies, for play and for
training rows.

Invariant: `parse(reply_ids(...))` gives back what went in, and a conversation is the plain concatenation of
`user` and `reply_ids` pieces, so the history of a live episode is always a prefix of its next prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from internalize.language import markup
from internalize.language.calls import CallTable, bundled
from internalize.language.vocabulary import Vocabulary

if TYPE_CHECKING:
    from internalize.games.protocol import Game


class Reply(NamedTuple):
    """One parsed reply. `call` is set for kind "call", `say` for kind "say"; a "bad" reply keeps the text of
    its think."""

    think: str
    kind: Literal["call", "say", "bad"]
    call: str | None = None
    say: str | None = None


class Template:
    """Renders and parses turns in one vocabulary. `calls` defaults to the call words of the bundled game."""

    def __init__(self, vocab: Vocabulary, calls: CallTable | None = None) -> None:
        self.vocab = vocab
        self.calls = calls if calls is not None else bundled()
        self.stop_id = vocab.id(markup.END)
        self._user = vocab.id(markup.USER)
        self._assistant = vocab.id(markup.ASSISTANT)
        self._think_end = vocab.id(markup.THINK_END)
        self._call = vocab.id(markup.CALL)
        self._say = vocab.id(markup.SAY)
        self._specials = frozenset(range(len(markup.SPECIALS)))

    @classmethod
    def of(cls, game: Game) -> Template:
        """Template over the game's own words and calls."""
        return cls(Vocabulary.of(game.words()), CallTable(game.call_words()))

    def user(self, text: str, knowledge: Sequence[str] | None = None) -> list[int]:
        """`<u> [know F1 .. Fn] text <a>`: a user turn with its generation prompt. No facts, no `know`."""
        front = [markup.KNOW, *knowledge] if knowledge else []
        return [self._user, *self.vocab.encode(" ".join([*front, text])), self._assistant]

    def reply_ids(self, think: str, call: str | None = None, say: str | None = None) -> list[int]:
        """`THINK </think> <call> CALL <end>` or `THINK </think> <say> WORDS <end>`; ValueError unless exactly
        one is given."""
        if (call is None) == (say is None):
            raise ValueError(f"a reply is either a call or a text answer, got call={call!r} say={say!r}")
        mark, text = (self._call, call) if call is not None else (self._say, say or "")
        return [*self.vocab.encode(think), self._think_end, mark, *self.vocab.encode(text), self.stop_id]

    def parse(self, ids: Sequence[int]) -> Reply:
        """Read one sampled reply (the ids after `<a>`, `<end>` included).

        "bad" is everything that is not a well-formed reply: no `</think>`, no `<end>` (token limit), special
        tokens (`<unk>` too) where words belong, or a call that is not exactly one known call word.
        """
        body = list(ids)
        cut = body.index(self._think_end) if self._think_end in body else len(body)
        think, tail = body[:cut], body[cut + 1 :]
        thought = self.vocab.decode(think)
        words = tail[1:-1]
        closed = len(tail) >= 2 and tail[-1] == self.stop_id
        if not closed or any(index in self._specials for index in (*think, *words)):
            return Reply(thought, "bad")
        text = self.vocab.decode(words)
        if tail[0] == self._say:
            return Reply(thought, "say", say=text)
        if tail[0] == self._call and text in self.calls:
            return Reply(thought, "call", call=text)
        return Reply(thought, "bad")
