"""Conversations as token ids in a closed vocabulary, for play and for training rows (see `dialogue.Dialogue`).

Invariant: `parse(reply_ids(...))` gives back what went in, and a conversation is the plain concatenation of
`user` and `reply_ids` pieces, so the history of a live episode is always a prefix of its next prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from internalize.language import markup
from internalize.language.calls import CallTable, bundled
from internalize.language.dialogue import Reply
from internalize.language.vocabulary import Vocabulary

if TYPE_CHECKING:
    from internalize.games.protocol import Game

__all__ = ["Reply", "Template"]


class Template:
    """Renders and parses turns in one vocabulary. `calls` defaults to the call words of the bundled game."""

    canonical = True
    answer_tokens = 16

    def __init__(self, vocab: Vocabulary, calls: CallTable | None = None) -> None:
        self.vocab = vocab
        self.calls = calls if calls is not None else bundled()
        self.stop_id = vocab.id(markup.END)
        self._unk = vocab.id(markup.UNK)
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

    @property
    def size(self) -> int:
        return len(self.vocab)

    def encode(self, text: str) -> list[int]:
        return self.vocab.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.vocab.decode(ids)

    def offsets(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        ends = list(accumulate(len(self.vocab.tokens[index]) + 1 for index in ids))
        return [(end - len(self.vocab.tokens[index]) - 1, end - 1) for index, end in zip(ids, ends, strict=True)]

    def unreadable(self, ids: Sequence[int]) -> int:
        return list(ids).count(self._unk)

    def task(self, text: str, knowledge: Sequence[str] | None = None) -> str:
        """`[know F1 .. Fn] text`. No facts, no `know`."""
        front = [markup.KNOW, *knowledge] if knowledge else []
        return " ".join([*front, text])

    def opening(self, task: str) -> list[int]:
        """`<u> task <a>`."""
        return [self._user, *self.vocab.encode(task), self._assistant]

    def user(self, text: str, knowledge: Sequence[str] | None = None) -> list[int]:
        """`<u> [know F1 .. Fn] text <a>`: a user turn with its generation prompt."""
        return self.opening(self.task(text, knowledge))

    def result(self, text: str, reply: Sequence[int]) -> list[int]:
        return self.opening(text)

    def read_user(self, ids: Sequence[int]) -> tuple[str, list[str]]:
        words = self.vocab.decode(ids).split()[1:-1]
        facts = 0
        if words[:1] == [markup.KNOW]:
            facts = next((i for i, word in enumerate(words[1:]) if "@" not in word), len(words) - 1)
            words = words[1:]
        return " ".join(words[facts:]), words[:facts]

    def split(self, tokens: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """What stands before the first `<u>` is a user turn of its own."""
        pairs: list[tuple[list[int], list[int]]] = []
        asking = True
        for token in tokens:
            if token == self._user or not pairs:
                pairs.append(([], []))
                asking = True
            pairs[-1][0 if asking else 1].append(token)
            if token == self._assistant:
                asking = False
        return pairs

    def reply_ids(self, think: str, call: str | None = None, say: str | None = None) -> list[int]:
        """`THINK </think> <call> CALL <end>` or `THINK </think> <say> WORDS <end>`; ValueError unless exactly
        one is given."""
        if (call is None) == (say is None):
            raise ValueError(f"a reply is either a call or a text answer, got call={call!r} say={say!r}")
        mark, text = (self._call, call) if call is not None else (self._say, say or "")
        return [*self.vocab.encode(think), self._think_end, mark, *self.vocab.encode(text), self.stop_id]

    def ended(self, reply: Sequence[int]) -> list[int]:
        return list(reply)

    def begun(self, parts: Sequence[str]) -> list[int]:
        return self.recital(parts)

    def recital(self, parts: Sequence[str]) -> list[int]:
        return self.vocab.encode(" ".join(parts))

    def top(self, reply: Sequence[int]) -> int:
        return 0

    def said(self) -> list[int]:
        """`</think> <say>`."""
        return [self._think_end, self._say]

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
