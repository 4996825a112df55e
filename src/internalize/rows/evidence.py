"""What the audit holds rows against.

Invariant: everything here is read from records and settings; a row's own claims are not among it.
"""

from __future__ import annotations

from dataclasses import dataclass

from internalize.language.dialogue import Reply
from internalize.records import SftRow
from internalize.rows.context import RowContext
from internalize.rows.leak import Leaks


@dataclass(frozen=True)
class Piece:
    """One user turn and reply of a row, with the positions of the reply's tokens and its mask."""

    user: list[int]
    reply: list[int]
    start: int
    """Index of the reply's first token in the row."""
    weights: list[float]
    cite: list[int]
    text: str
    """What the user turn says, its markers and the knowledge in front aside."""
    knowledge: list[str]
    """Facts in front of the user turn."""
    parsed: Reply

    @property
    def trained(self) -> bool:
        """True if any token of the reply has weight."""
        return any(self.weights)


class Evidence:
    """Records by episode, the forms of the knowledge set, and what earlier rows were."""

    def __init__(self, context: RowContext) -> None:
        self.context = context
        self.template = context.template
        self.leaks = Leaks(context.knowledge, context.template)
        self.replies = {e.plan.id: [call.output_ids for call in e.calls] for e in context.episodes}
        self.parents = {tuple(row.tokens): row for row in context.parent}
        self.answers = {(form["prompt"], form["answer"]) for form in context.knowledge.recall if form["expressible"]}
        self.atoms = {form["atom"] for form in context.knowledge.recall} | set(context.knowledge.prompt_facts)
        self.seen: set[tuple[tuple[int, ...], tuple[float, ...]]] = set()
        self._pieces: tuple[SftRow | None, list[Piece]] = (None, [])

    def pieces(self, row: SftRow) -> list[Piece]:
        """The row cut into turns (the last row's cut is kept: every check asks for it)."""
        if self._pieces[0] is not row:
            self._pieces = (row, self._cut(row))
        return self._pieces[1]

    def _cut(self, row: SftRow) -> list[Piece]:
        pieces, at = [], 0
        for user, reply in self.template.split(row.tokens):
            start = at + len(user)
            at = start + len(reply)
            text, knowledge = self.template.read_user(user)
            pieces.append(
                Piece(
                    user=user,
                    reply=reply,
                    start=start,
                    weights=row.weights[start:at],
                    cite=row.cite[start:at],
                    text=text,
                    knowledge=knowledge,
                    parsed=self.template.parse(reply),
                )
            )
        return pieces
