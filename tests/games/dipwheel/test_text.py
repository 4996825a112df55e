from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.files import digest
from internalize.games.dipwheel import DipWheel
from internalize.games.dipwheel.rules import COLOURS, POTS, REGIONS, STATIONS, fact_words
from internalize.games.dipwheel.text import CALL_WORDS


def test_word_order_is_pinned(game: DipWheel) -> None:
    """A change here changes the ids of every model: retrain the shipped base."""
    words = game.words()
    assert len(words) == len(set(words)) == 94
    assert digest(list(words)) == "271fdf3ecf6cb2ce0d5934ab0c5e4404c1b15ee9b58b836b5e98efe8e4550c13"


def test_words_cover_the_contract(game: DipWheel) -> None:
    forms = "left at N|blue at c|at N is left|claim left@N|true|false|blank left at"
    forms += "|ask left|tell|need left dry|look"
    words = set(game.words())
    assert {word for form in forms.split("|") for word in form.split()} <= words
    assert {*REGIONS, *STATIONS, *COLOURS, *POTS, *fact_words(), *CALL_WORDS} <= words


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 999), st.lists(st.sampled_from(sorted(CALL_WORDS)), max_size=8))
def test_observations_are_twelve_known_words(game: DipWheel, level: int, seed: int, calls: list[str]) -> None:
    state = game.start(level, seed)
    for call in calls:
        if not state.done:
            state = game.apply(state, game.call_words()[call])
    words = game.observe(state).split()
    assert len(words) == 12
    assert set(words) <= set(game.words())
    assert (words[0], words[2], words[7]) == ("pot", "T", "C")
    assert words[1] == f"p:{POTS[state.pot]}"
    assert [words[3:7], words[8:]] == [["_rgu"[cell] for cell in side] for side in (state.target, state.canvas)]


def test_observation_by_hand(game: DipWheel) -> None:
    state = game.start(2, 0)._replace(pot=1, target=(1, 1, 0, 0), canvas=(0, 3, 2, 0))
    assert game.observe(state) == "pot p:b T r r _ _ C _ u g _"
