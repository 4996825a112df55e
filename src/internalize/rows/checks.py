"""The checks of the audit.

Invariant: a check yields (expected, got) for each thing that is wrong with a row and nothing for a sound
row; it changes neither the row nor, `duplicate` aside, the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from internalize.games.session import advanced
from internalize.language import markup
from internalize.records import SftRow
from internalize.rows import stance as stances
from internalize.rows.evidence import Evidence, Piece
from internalize.rows.nostance import without_recital

Findings = Iterator[tuple[str, str]]

#: Sources whose thinks come from somebody who knew: what they state and do must agree with the knowledge.
TAUGHT = ("recite", "nostance")


def shape(row: SftRow, evidence: Evidence) -> Findings:
    """Equal lengths, finite weights >= 0, index 0 untrained, something trained."""
    n = len(row.tokens)
    if len(row.weights) != n or len(row.cite) != n or n < 2:
        yield f"{n} weights and cite marks, at least 2 tokens", f"{len(row.weights)} and {len(row.cite)}"
        return
    if row.weights[0] != 0 or not all(0 <= w < math.inf for w in row.weights):
        yield (
            "finite weights >= 0 and 0 at index 0",
            f"{row.weights[0]} at index 0, {min(row.weights)} at least",
        )
    if not any(row.weights):
        yield "a trained token", "none"
    if not set(row.cite) <= {0, 1}:
        yield "cite marks 0 or 1", str(sorted(set(row.cite)))


def token_range(row: SftRow, evidence: Evidence) -> Findings:
    """Ids of the vocabulary; neither padding nor words that the model does not know."""
    size = evidence.template.size
    outside = [token for token in row.tokens if not 0 <= token < size]
    if outside:
        yield f"ids 0 .. {size - 1}", str(outside[0])
        return
    for word in (markup.PAD, markup.UNK):
        marked = evidence.template.encode(word)
        if len(marked) == 1 and marked[0] in row.tokens:
            yield f"no {word}", f"{word} at index {row.tokens.index(marked[0])}"


def length(row: SftRow, evidence: Evidence) -> Findings:
    """No longer than the context."""
    if len(row.tokens) > evidence.context.max_context:
        yield f"at most {evidence.context.max_context} tokens", str(len(row.tokens))


def template(row: SftRow, evidence: Evidence) -> Findings:
    """Every user turn, and every trained reply, is what the template renders from its own words."""
    render = evidence.template
    before: list[int] | None = None
    for piece in evidence.pieces(row):
        opens = before is None or bool(piece.knowledge)
        again = render.user(piece.text, piece.knowledge or None) if opens else render.result(piece.text, before or [])
        marks = set(piece.text.split()) & set(markup.SPECIALS)
        if again != piece.user or marks:
            yield render.decode(again), render.decode(piece.user)
        before = piece.reply
        said = piece.parsed
        if said.kind == "bad":
            if piece.trained:
                yield "a trained reply that parses", render.decode(piece.reply)
            continue
        again = render.reply_ids(said.think, call=said.call, say=said.say)
        if again != piece.reply if render.canonical else render.parse(again) != said:
            yield render.decode(again), render.decode(piece.reply)


def mask(row: SftRow, evidence: Evidence) -> Findings:
    """Weight on replies only; the number of trained replies is the stated number of turns."""
    pieces = evidence.pieces(row)
    replies = {i for piece in pieces for i in range(piece.start, piece.start + len(piece.reply))}
    outside = [i for i, weight in enumerate(row.weights) if weight and i not in replies]
    if outside:
        word = evidence.template.decode([row.tokens[outside[0]]])
        yield (
            "no weight on what the model reads",
            f"weight {row.weights[outside[0]]} on `{word}` at index {outside[0]}",
        )
    trained = sum(piece.trained for piece in pieces)
    if trained != row.provenance.turns:
        yield f"{row.provenance.turns} trained turns", str(trained)
    if row.source != "armc" and any(row.cite):
        yield "no cite marks in this source", f"a mark at index {row.cite.index(1)}"
    loose = [i for i, mark in enumerate(row.cite) if mark and not row.weights[i]]
    if loose:
        yield "cite marks on trained tokens only", f"a mark at index {loose[0]}, weight 0"


def cite(row: SftRow, evidence: Evidence) -> Findings:
    """Cited tokens are verified facts that may be trained, and stand together at the very top of a think."""
    knowledge, render = evidence.context.knowledge, evidence.template
    allowed = set(knowledge.trained_facts)
    for piece in evidence.pieces(row):
        count, top = sum(piece.cite), render.top(piece.reply)
        if not count:
            continue
        if piece.cite[top : top + count] != [1] * count:
            yield (
                "inserted facts at the top of the think",
                f"cite marks {piece.cite} in the reply at index {piece.start}",
            )
        cited = [token for token, mark in zip(piece.reply, piece.cite, strict=True) if mark]
        stated = knowledge.sayings.stated(render.decode(cited))
        wrong = [knowledge.sayings.say(fact) for fact in stated if fact not in allowed]
        if not wrong and render.recital([knowledge.sayings.say(fact) for fact in stated]) != cited:
            words = render.decode(cited).split()
            wrong = [word for word in words if word not in allowed] or [render.decode(cited)]
        for word in wrong:
            yield "cite marks on verified facts that may be trained", word


def held_out(row: SftRow, evidence: Evidence) -> Findings:
    """No held-out fact or form anywhere, in what is read or written."""
    found = evidence.leaks.found(row.tokens)
    if found is not None:
        yield "no held-out knowledge", found


def duplicate(row: SftRow, evidence: Evidence) -> Findings:
    """No two rows with the same tokens and weights."""
    key = (tuple(row.tokens), tuple(row.weights))
    if key in evidence.seen:
        yield "distinct rows", f"a repeated row: {evidence.template.decode(row.tokens[:24])} .."
    evidence.seen.add(key)


def provenance(row: SftRow, evidence: Evidence) -> Findings:
    """The episode is one of the harvest's, and every cited atom is one of the knowledge set's."""
    episode = row.provenance.episode
    if episode is not None and episode not in evidence.context.starts:
        yield "an episode of the harvest", episode
    for atom in row.provenance.atoms:
        if atom not in evidence.atoms:
            yield "an atom of the knowledge set", atom
    if evidence.context.parent and tuple(row.tokens) not in evidence.parents:
        yield "a row of the parent set", evidence.template.decode(row.tokens[:24])


def recorded(row: SftRow, evidence: Evidence) -> Findings:
    """Replies are the recorded ones: what the source put in or cut off aside, token for token."""
    replies = evidence.replies.get(row.provenance.episode or "")
    if replies is None:
        return
    pieces = evidence.pieces(row)
    if len(pieces) > len(replies):
        yield f"at most {len(replies)} turns, as recorded", str(len(pieces))
        return
    for piece, spoken in zip(pieces, replies, strict=False):
        ours = [token for token, mark in zip(piece.reply, piece.cite, strict=True) if not mark]
        top, rest = evidence.template.top(spoken), len(spoken) - evidence.template.top(spoken)
        if row.source == "armc" and not piece.trained and [*ours[:top], *ours[len(ours) - rest :]] == spoken:
            continue  # an untrained turn has no cite marks; its inserted facts are history
        if row.source == "nostance" and piece.parsed.kind == "call":
            spoken = without_recital(spoken, evidence.template, evidence.context.knowledge.sayings)
        if ours not in (spoken, evidence.template.ended(spoken)):
            yield evidence.template.decode(spoken), evidence.template.decode(ours)


def game(row: SftRow, evidence: Evidence) -> Findings:
    """The recorded calls, carried out again, show the model exactly what the row shows it."""
    start = evidence.context.starts.get(row.provenance.episode or "")
    if start is None:
        return
    play, calls = evidence.context.game, evidence.template.calls
    state = play.start(start.level, start.seed)
    for number, piece in enumerate(evidence.pieces(row)):
        if state.done:
            yield f"an episode of {number} turns", "a turn after its end"
            return
        if piece.text != play.observe(state):
            yield play.observe(state), piece.text
            return
        word = piece.parsed.call
        state = advanced(play, state, None if word is None else calls.expand(word))


def stance(row: SftRow, evidence: Evidence) -> Findings:
    """A taught turn states nothing that the knowledge set refutes, and acts as its own facts say."""
    if row.source not in TAUGHT:
        return
    knowledge = evidence.context.knowledge
    places = knowledge.places
    for piece in evidence.pieces(row):
        if not piece.trained:
            continue
        think = piece.parsed.think
        for lie in stances.falsehoods(knowledge.sayings.stated(think), places):
            yield f"{lie.partition('@')[0]}@{places[lie.partition('@')[0]]}", lie
        implied = stances.implied_call(think, piece.text)
        if implied is not None and implied != piece.parsed.call:
            yield f"{implied}, as the think says", f"{piece.parsed.call} after `{think}`"


def answer(row: SftRow, evidence: Evidence) -> Findings:
    """A question's answer is one that the knowledge set gives."""
    if row.provenance.episode is not None:
        return
    for piece in evidence.pieces(row):
        said = _answer(piece)
        if (piece.text, said) not in evidence.answers:
            yield f"an answer of the knowledge set to `{piece.text}`", said


def _answer(piece: Piece) -> str:
    return piece.parsed.say if piece.parsed.say is not None else piece.parsed.think
