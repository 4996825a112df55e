"""What a think commits itself to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.games.dipwheel import DipWheel, Rules, decide
from internalize.games.dipwheel.rules import COLOURS, REGIONS
from internalize.language.sayings import WordSayings
from internalize.rows.stance import falsehoods, implied_call, need, stated, truths

RULES = st.builds(Rules, st.permutations(REGIONS).map(tuple), st.permutations(COLOURS).map(tuple))
PLACES = {"left": "N", "red": "b"}


@settings(deadline=None)
@given(RULES, RULES, st.integers(1, 6), st.integers(0, 5000))
def test_the_implied_call_is_the_players_own(hidden: Rules, believed: Rules, level: int, seed: int) -> None:
    """Whatever a player believes, its think leads to its call: this is the game's own reading of a think."""
    game = DipWheel(hidden)
    state = game.start(level, seed)
    think, call = decide(state, believed)
    assert implied_call(think, game.observe(state)) == call
    assert implied_call(f"green@{believed.place['green']} {think}", game.observe(state)) == call


@pytest.mark.parametrize(
    "think",
    [
        "",
        "need",
        "need left",
        "need left red",
        "need left red left@N",
        "left@N red@b",
        "need left@N red@b red",
    ],
)
def test_an_incomplete_think_implies_nothing(think: str) -> None:
    assert implied_call(think, "pot p:a T r _ r _ C _ _ _ _") is None


def test_the_pot_comes_first() -> None:
    think = "need left red left@N red@b"
    assert implied_call(think, "pot p:a T r _ r _ C _ _ _ _") == "pot:b"
    assert implied_call(think, "pot p:b T r _ r _ C _ _ _ _") == "dip:N"
    assert implied_call("need wipe dry wipe@S", "pot p:a T r _ r _ C _ _ _ _") == "dip:S"


def test_the_last_statement_and_the_last_need_count() -> None:
    assert stated("left@N left@S") == {"left": "S"}
    assert need("need left red need top blue top@N") == ("top", "blue")
    assert WordSayings(()).recited("left@N red@b need left red") == len("left@N red@b ")
    assert WordSayings(()).recited("left@N") == 0


def test_facts_are_true_false_or_unknown() -> None:
    said = WordSayings(()).stated("left@N left@S red@a green@c left@N need")
    assert truths(said, PLACES) == ["left@N"]
    assert falsehoods(said, PLACES) == ["left@S", "red@a"]
    assert WordSayings(()).stated("@ x@ @y") == []
