"""Rows from episodes: the history of an episode with weights on the model's own tokens.

Invariant: weight falls on replies only; a turn that is not trained keeps its place in the history with
weight 0; `cite` marks exactly the tokens that a builder put in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from internalize.records import RowProvenance, SftRow
from internalize.rows.context import RowContext
from internalize.rows.leak import Leaks
from internalize.rows.talk import Talk, Turn, talk_of

Refuse = Callable[[Turn], str | None]
Edit = Callable[[Talk, Turn], "Edited"]

HELD_OUT = "states held-out knowledge"


@dataclass(frozen=True)
class Edited:
    """A reply as the row gives it: `head`, the ids that a builder `inserted` (the cite mask), the rest that is `kept`;
    `facts` are its atoms."""

    kept: list[int]
    inserted: list[int] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    head: list[int] = field(default_factory=list)


def usable_talks(context: RowContext, *, knowledge: bool = False) -> Iterator[Talk]:
    """The harvest's episodes as talks; those that can't be packed are counted and left out."""
    for episode in context.episodes:
        if not episode.valid:
            context.dropped_episodes[f"invalid: {episode.reason}"] += 1
        elif not episode.prefix_extending:
            context.dropped_episodes["history is not a prefix"] += 1
        elif not episode.calls:
            context.dropped_episodes["no call"] += 1
        else:
            yield talk_of(episode, context.game, context.template, knowledge=knowledge)


def pack_all(
    context: RowContext,
    source: str,
    refuse: Refuse,
    edit: Edit,
    *,
    knowledge: bool = False,
    per_turn: bool = False,
) -> list[SftRow]:
    """One row an episode, or (`per_turn`) one row a trained turn behind the history as it was recorded.

    Args:
        source: the row's `source`.
        refuse: why a turn that ended in a call is not trained, or None.
        edit: the reply as the row gives it.
        knowledge: keep the facts of the first user turn.
    """
    leaks = Leaks(context.knowledge, context.template)
    rows: list[SftRow] = []
    seen: set[tuple[int, ...]] = set()
    for talk in usable_talks(context, knowledge=knowledge):
        refused: list[str] = []
        if per_turn:
            made = list(_turn_rows(talk, source, refuse, edit, refused))
        else:
            packed = _pack(talk, source, refuse, edit, refused)
            made = [packed] if packed is not None else []
        context.dropped_turns.update(refused)
        dropped = context.dropped_turns if per_turn else context.dropped_episodes
        if not made:
            context.dropped_episodes["no turn to train"] += 1
        for row in made:
            if len(row.tokens) > context.max_context:
                dropped["longer than max_context"] += 1
            elif context.template.unreadable(row.tokens):
                dropped["a word outside the vocabulary"] += 1
            elif leaks.found(row.tokens) is not None:
                dropped[HELD_OUT] += 1
            elif tuple(row.tokens) in seen:
                dropped["duplicate"] += 1
            else:
                seen.add(tuple(row.tokens))
                rows.append(row)
    return rows


def _turn_rows(talk: Talk, source: str, refuse: Refuse, edit: Edit, refused: list[str]) -> Iterator[SftRow]:
    """One row for each trained turn; the turns before it stand as they were recorded, with weight 0."""
    history: list[int] = []
    for turn in talk.turns:
        why = "not a call" if turn.kind != "call" else refuse(turn)
        if why:
            refused.append(why)
        else:
            reply = edit(talk, turn)
            read = [*history, *turn.user]
            said = [*reply.head, *reply.inserted, *reply.kept]
            unmarked = [0] * (len(read) + len(reply.head))
            yield SftRow(
                tokens=[*read, *said],
                weights=[0.0] * len(read) + [1.0] * len(said),
                cite=[*unmarked, *[1] * len(reply.inserted), *[0] * len(reply.kept)],
                source=source,
                provenance=RowProvenance(episode=talk.episode, turns=1, atoms=sorted(set(reply.facts))),
            )
        history += [*turn.user, *turn.reply]


def _pack(talk: Talk, source: str, refuse: Refuse, edit: Edit, refused: list[str]) -> SftRow | None:
    """The row of one talk, up to its last trained turn;
    None without one. Reasons of untrained turns go to `refused`."""
    tokens: list[int] = []
    weights: list[float] = []
    cite: list[int] = []
    facts: list[str] = []
    trained = end = 0
    for turn in talk.turns:
        why = "not a call" if turn.kind != "call" else refuse(turn)
        reply = edit(talk, turn)
        weight = 0.0 if why else 1.0
        if why:
            refused.append(why)
        for ids, w, c in (
            (turn.user, 0.0, 0),
            (reply.head, weight, 0),
            (reply.inserted, weight, int(not why)),
            (reply.kept, weight, 0),
        ):
            tokens += ids
            weights += [w] * len(ids)
            cite += [c] * len(ids)
        if not why:
            facts += reply.facts
            trained += 1
            end = len(tokens)
    if not trained:
        return None
    provenance = RowProvenance(episode=talk.episode, turns=trained, atoms=sorted(set(facts)))
    return SftRow(tokens=tokens[:end], weights=weights[:end], cite=cite[:end], source=source, provenance=provenance)
