from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.games.dipwheel.text import CALL_WORDS
from internalize.games.dipwheel.text import words as game_words
from internalize.language.calls import CallTable, bundled
from internalize.language.markup import SPECIALS
from internalize.language.template import Reply, Template
from internalize.language.vocabulary import Vocabulary

TEMPLATE = Template(Vocabulary.of(game_words()))
texts = st.lists(st.sampled_from(game_words()), max_size=9).map(" ".join)


def ids(text: str) -> list[int]:
    return TEMPLATE.vocab.encode(text)


@settings(deadline=None)
@given(texts, st.sampled_from(bundled().words))
def test_call_replies_round_trip(think: str, call: str) -> None:
    assert TEMPLATE.parse(TEMPLATE.reply_ids(think, call=call)) == Reply(think, "call", call=call)


@settings(deadline=None)
@given(texts, texts)
def test_text_replies_round_trip(think: str, say: str) -> None:
    assert TEMPLATE.parse(TEMPLATE.reply_ids(think, say=say)) == Reply(think, "say", say=say)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(0, len(TEMPLATE.vocab) - 1), max_size=8))
def test_whatever_is_well_formed_round_trips_and_the_rest_is_bad(sampled: list[int]) -> None:
    reply = TEMPLATE.parse(sampled)
    if reply.kind == "bad":
        assert (reply.call, reply.say) == (None, None)
    else:
        assert TEMPLATE.reply_ids(reply.think, call=reply.call, say=reply.say) == sampled


def test_rendering_by_hand() -> None:
    obs = "pot p:b T r r _ _ C _ _ _ _"
    assert TEMPLATE.user(obs) == ids(f"<u> {obs} <a>")
    assert TEMPLATE.user(obs, []) == ids(f"<u> {obs} <a>")
    assert TEMPLATE.user(obs, ["left@N", "red@b"]) == ids(f"<u> know left@N red@b {obs} <a>")
    assert TEMPLATE.reply_ids("need left red left@N red@b", call="dip:N") == ids(
        "need left red left@N red@b </think> <call> dip:N <end>"
    )
    assert TEMPLATE.reply_ids("", say="left@N") == ids("</think> <say> left@N <end>")
    assert TEMPLATE.stop_id == ids("<end>")[0]
    assert TEMPLATE.vocab.unknown == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "need left",
        "need left <end>",
        "</think>",
        "</think> <end>",
        "</think> <call> <end>",
        "</think> <call> dip:N",  # token limit
        "</think> <say> left@N",
        "</think> <call> dip:N dip:S <end>",
        "</think> <call> left@N <end>",  # a word, but no call
        "</think> <call> know <end>",
        "</think> dip:N <end>",
        "<call> dip:N <end>",
        "<u> </think> <call> dip:N <end>",
        "<unk> </think> <call> dip:N <end>",
        "need </think> left </think> <call> dip:N <end>",
        "</think> <say> left@N <call> dip:N <end>",
        "</think> <say> <pad> <end>",
        "</think> <call> dip:N <end> <end>",
        "</think> <call> dip:N <end> left",
    ],
)
def test_malformed_replies_are_bad(text: str) -> None:
    reply = TEMPLATE.parse(ids(text))
    assert reply.kind == "bad"
    assert (reply.call, reply.say) == (None, None)


def test_a_bad_reply_keeps_its_think() -> None:
    assert TEMPLATE.parse(ids("need left </think> <call> left <end>")).think == "need left"
    assert TEMPLATE.parse(ids("need left red")).think == "need left red"


@pytest.mark.parametrize("given", [{}, {"call": "dip:N", "say": "left@N"}])
def test_a_reply_is_a_call_or_a_text(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="either"):
        TEMPLATE.reply_ids("need", **given)


def test_calls_are_those_of_the_table() -> None:
    few = Template(TEMPLATE.vocab, CallTable({"dip:N": CALL_WORDS["dip:N"]}))
    assert few.parse(ids("</think> <call> dip:N <end>")).kind == "call"
    assert few.parse(ids("</think> <call> look <end>")).kind == "call"
    assert few.parse(ids("</think> <call> dip:S <end>")).kind == "bad"


@settings(deadline=None)
@given(st.lists(st.tuples(texts, texts, st.sampled_from(bundled().words)), min_size=1, max_size=4), texts)
def test_turns_can_be_told_apart(turns: list[tuple[str, str, str]], last: str) -> None:
    """A conversation splits at `<u>` and `<end>` into just the pieces it was made of."""
    pieces = [piece for obs, think, call in turns for piece in (TEMPLATE.user(obs), TEMPLATE.reply_ids(think, call))]
    conversation = [*chain.from_iterable(pieces), *TEMPLATE.user(last)]
    assert conversation.count(TEMPLATE.stop_id) == len(turns)
    rest = conversation
    for obs, think, call in turns:
        start = rest.index(SPECIALS.index("<a>")) + 1
        stop = rest.index(TEMPLATE.stop_id) + 1
        assert rest[:start] == TEMPLATE.user(obs)
        assert TEMPLATE.parse(rest[start:stop]) == Reply(think, "call", call=call)
        rest = rest[stop:]
    assert rest == TEMPLATE.user(last)
