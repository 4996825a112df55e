from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from internalize.games.dipwheel import DipWheel, decide, random_rules
from internalize.games.session import GameSession
from internalize.games.shaping import Outcome, ShapingWeights, shaped_return, write_shaping
from internalize.language.calls import bundled

COMPONENTS = {"clear", "progress", "acts", "noops", "trap", "invalid", "text_end", "forfeit", "return"}
MOVES = (*bundled().words, "unusable")
SAFE = tuple(word for word in MOVES if word != "dip:NE")
EMPTY = Outcome(False, False, False, 0, 0, 0, 8, 0.5, 0.5)

small = st.floats(0, 0.2)
weights = st.builds(
    lambda act, noop, invalid, text_end, progress, more: ShapingWeights(
        clear=progress + more, progress=progress, act=act, noop=noop, invalid=invalid, text_end=text_end,
        trap=max(noop, invalid) + more,
    ),
    *(small, small, small, small, st.floats(0, 1), st.floats(0, 1)),
)  # fmt: skip


def move(session: GameSession, word: str) -> None:
    if word == "unusable":
        session.unusable()
    else:
        call = bundled().expand(word)
        session.call(call.tool, call.arguments())


def total(session: GameSession, weights: ShapingWeights) -> float:
    return shaped_return(session.outcome(), weights)["return"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"cleared": True, "progress": 1.0, "acts": 3}, {"clear": 1.0, "acts": -0.03}),
        ({"acts": 8, "noops": 8}, {"acts": -0.08, "noops": -0.16}),
        ({"acts": 8, "progress": 0.75, "invalid": 2}, {"acts": -0.08, "progress": 0.2, "invalid": -0.04}),
        ({"acts": 8, "progress": 0.25}, {"acts": -0.08, "progress": -0.2}),
        ({"acts": 2, "dead": True}, {"acts": -0.02, "trap": -0.25, "forfeit": -0.18}),
        ({"acts": 2, "text_end": True}, {"acts": -0.02, "text_end": -0.02, "forfeit": -0.18}),
    ],
)
def test_components_by_hand(change: dict[str, float], expected: dict[str, float]) -> None:
    found = shaped_return(replace(EMPTY, **change))
    assert set(found) == COMPONENTS
    assert found["return"] == pytest.approx(sum(expected.values()))
    assert {name: value for name, value in found.items() if value and name != "return"} == pytest.approx(expected)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from((1, 2, 3, 4, 5, 6)), st.integers(0, 200), weights, st.data())
def test_ending_early_never_beats_playing_on(
    game: DipWheel, level: int, seed: int, weights: ShapingWeights, data: st.DataObject
) -> None:
    """From one live state: answer in text, dip into the trap, or play on. Playing on means any acts (looks
    and unusable replies among them) up to a clear or the end of the budget, without the trap, whose final
    progress is not below that of the state. Neither early end returns more."""
    prefix = data.draw(st.lists(st.sampled_from(SAFE), max_size=11))

    def reached() -> GameSession:
        session = GameSession(game, level, seed)
        for word in prefix:
            if not session.done:
                move(session, word)
        return session

    assume(not reached().done)
    text, dead, on = reached(), reached(), reached()
    text.text_end()
    move(dead, "dip:NE")
    assert dead.state.dead
    before = game.progress(on.state)
    while not on.done:
        move(on, data.draw(st.sampled_from(SAFE)))
    assume(game.progress(on.state) >= before)
    assert total(text, weights) <= total(on, weights) + 1e-9
    assert total(dead, weights) <= total(on, weights) + 1e-9


@settings(deadline=None)
@given(st.integers(1, 12), st.data(), weights)
def test_wasting_the_rest_is_the_worst_play_on(budget: int, data: st.DataObject, weights: ShapingWeights) -> None:
    """The bound is tight: a text end costs the wasted rest of the budget plus `text_end`, nothing more."""
    acts = data.draw(st.integers(0, budget - 1))
    state = replace(EMPTY, budget=budget, acts=acts)
    ended = shaped_return(replace(state, text_end=True), weights)["return"]
    kind = "noops" if weights.noop >= weights.invalid else "invalid"
    wasted = shaped_return(replace(state, acts=budget, **{kind: budget - acts}), weights)["return"]
    assert ended == pytest.approx(wasted - weights.text_end)


def test_components_sum_to_the_return(play: Callable[..., GameSession], rng: random.Random) -> None:
    for seed in range(40):
        session = play(lambda _: rng.choice(bundled().words), 1 + seed % 6, seed)
        found = shaped_return(session.outcome())
        assert found.pop("return") == pytest.approx(sum(found.values()))


@pytest.mark.parametrize(
    "bad", [{"trap": 0.01}, {"clear": 0.3}, {"act": -0.01}, {"speed": 1.0}, {"noop": 0.3}, {"act": "much"}]
)
def test_weights_that_would_reward_giving_up_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ShapingWeights.model_validate(bad)


def test_shaping_file_states_every_weight(tmp_path: Path) -> None:
    write_shaping(tmp_path / "shaping.json")
    written = json.loads((tmp_path / "shaping.json").read_text())
    assert written.pop("forfeit") == pytest.approx(0.03)
    assert ShapingWeights.model_validate(written) == ShapingWeights()


def test_players_stand_where_the_design_says(
    game: DipWheel, play: Callable[..., GameSession], rng: random.Random
) -> None:
    """Levels 1-4, seeded: knowing the rules clears everything, guessing them nearly nothing, and giving up at
    once or looking on for ever is worse than guessing."""
    players: dict[str, Callable[[GameSession], str]] = {
        "knows": lambda session: decide(session.state, game.rules)[1],
        "guesses": lambda session: decide(session.state, random_rules(rng))[1],
        "random": lambda _: rng.choice(bundled().words),
        "looks": lambda _: "look",
    }
    clears, returns = {}, {}
    for name, choose in players.items():
        sessions = [play(choose, 1 + seed % 4, seed) for seed in range(800)]
        clears[name] = sum(session.state.cleared for session in sessions) / len(sessions)
        returns[name] = sum(shaped_return(s.outcome())["return"] for s in sessions) / len(sessions)
    assert clears["knows"] == 1.0
    assert 0.97 <= returns["knows"] <= 0.99
    assert clears["guesses"] <= 0.06
    assert -0.19 <= returns["guesses"] <= -0.11
    assert clears["random"] <= 0.10
    assert -0.25 <= returns["random"] <= -0.14
    assert clears["looks"] == 0
    given_up = replace(EMPTY, text_end=True)
    quits = sum(shaped_return(replace(given_up, budget=b))["return"] for b in (4, 5, 7, 8)) / 4
    assert quits < returns["looks"] < returns["guesses"]
