"""The checks of the audit.

Invariant: a check yields (expected, got) for each thing that is wrong with a row and nothing for a sound
row; it changes neither the row nor, `duplicate` aside, the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from internalize.language import markup
from internalize.records import SftRow
from internalize.rows import stance as stances
from internalize.rows.evidence import Evidence, Piece

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
    """Ids of the vocabulary; neither `<pad>` nor `<unk>`."""
    size = len(evidence.vocab)
    outside = [token for token in row.tokens if not 0 <= token < size]
    if outside:
        yield f"ids 0 .. {size - 1}", str(outside[0])
    for word in (markup.PAD, markup.UNK):
        if evidence.vocab.id(word) in row.tokens:
            yield f"no {word}", f"{word} at index {row.tokens.index(evidence.vocab.id(word))}"


def length(row: SftRow, evidence: Evidence) -> Findings:
    """No longer than the context."""
    if len(row.tokens) > evidence.context.max_context:
        yield f"at most {evidence.context.max_context} tokens", str(len(row.tokens))


def template(row: SftRow, evidence: Evidence) -> Findings:
    """Every user turn, and every trained reply, is what the template renders from its own words."""
    render = evidence.context.template
    for piece in evidence.pieces(row):
        again = render.user(piece.text, piece.knowledge or None)
        marks = set(piece.text.split()) & set(markup.SPECIALS)
        if again != piece.user or marks:
            yield evidence.vocab.decode(again), evidence.vocab.decode(piece.user)
        said = piece.parsed
        if said.kind == "bad":
            if piece.trained:
                yield "a trained reply that parses", evidence.vocab.decode(piece.reply)
            continue
        again = render.reply_ids(said.think, call=said.call, say=said.say)
        if again != piece.reply:
            yield evidence.vocab.decode(again), evidence.vocab.decode(piece.reply)


def mask(row: SftRow, evidence: Evidence) -> Findings:
    """Weight on replies only; the number of trained replies is the stated number of turns."""
    pieces = evidence.pieces(row)
    replies = {i for piece in pieces for i in range(piece.start, piece.start + len(piece.reply))}
    outside = [i for i, weight in enumerate(row.weights) if weight and i not in replies]
    if outside:
        word = evidence.vocab.tokens[row.tokens[outside[0]]]
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
    allowed = set(evidence.context.knowledge.trained_facts)
    for piece in evidence.pieces(row):
        count = sum(piece.cite)
        if piece.cite[:count] != [1] * count:
            yield (
                "inserted facts at the top of the think",
                f"cite marks {piece.cite} in the reply at index {piece.start}",
            )
        for token, mark in zip(piece.reply, piece.cite, strict=True):
            word = evidence.vocab.tokens[token]
            if mark and word not in allowed:
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
        yield "distinct rows", f"a repeated row: {evidence.vocab.decode(row.tokens[:24])} .."
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
        yield "a row of the parent set", evidence.vocab.decode(row.tokens[:24])


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
        if row.source == "armc" and not piece.trained and ours[-len(spoken) :] == spoken:
            continue  # an untrained turn has no cite marks; its inserted facts are history
        if row.source == "nostance" and piece.parsed.kind == "call":
            spoken = _from_need(spoken, evidence)
        if ours != spoken:
            yield evidence.vocab.decode(spoken), evidence.vocab.decode(ours)


def game(row: SftRow, evidence: Evidence) -> Findings:
    """The recorded calls, carried out again, show the model exactly what the row shows it."""
    start = evidence.context.starts.get(row.provenance.episode or "")
    if start is None:
        return
    play = evidence.context.game
    calls = play.call_words()
    state = play.start(start.level, start.seed)
    for number, piece in enumerate(evidence.pieces(row)):
        if state.done:
            yield f"an episode of {number} turns", "a turn after its end"
            return
        if piece.text != play.observe(state):
            yield play.observe(state), piece.text
            return
        action = calls.get(piece.parsed.call or "")
        if action is None or play.refuse(state, action) is not None:
            state = play.idle(state)
        else:
            state = play.apply(state, action)


def stance(row: SftRow, evidence: Evidence) -> Findings:
    """A taught turn states nothing that the knowledge set refutes, and acts as its own facts say."""
    if row.source not in TAUGHT:
        return
    places = evidence.context.knowledge.places
    for piece in evidence.pieces(row):
        if not piece.trained:
            continue
        think = piece.parsed.think
        for lie in stances.falsehoods(think, places):
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


def _from_need(reply: list[int], evidence: Evidence) -> list[int]:
    words = evidence.vocab.decode(reply).split()
    head = words[: words.index(markup.THINK_END)] if markup.THINK_END in words else []
    if stances.NEED not in head:
        return reply
    return reply[len(head) - 1 - head[::-1].index(stances.NEED) :]
