"""Play metrics on hand-made episodes, every number worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import UserError
from internalize.evals.play_metrics import DEFINITIONS, play_metrics, states, true_facts
from internalize.games.dipwheel import DipWheel

FIRST_LEVEL = 1


def level1(game: DipWheel, region: str) -> int:
    """A seed whose level 1 needs `region`."""
    return next(seed for seed in range(200) if game.advice(game.start(1, seed)).need[0] == region)


def test_a_player_who_states_and_follows_the_needed_facts(game, solved):
    metrics = play_metrics([solved(level, 3) for level in (1, 2, 3, 4)], game)
    assert metrics["clears"] == metrics["episodes"] == 4
    assert metrics["needed_recited_share"] == metrics["right_given_recited"] == 1.0
    assert metrics["right_given_not_recited"] is None  # nothing to take a share of
    assert metrics["tool_call_ending_rate"] == 1.0
    assert metrics["top_recital_share"] == 0.0  # facts stand behind `need`
    assert metrics["noop_share"] == 0.0


def test_shares_by_hand(game, play):
    seed = level1(game, "left")
    colour = game.advice(game.start(1, seed)).need[1]
    fact = game.rules.fact(colour)
    episode = play(
        [
            (
                f"top@SE need left {colour} left@SE {fact}",
                "dip:SE",
            ),  # a true fact on top, its place named, not right
            (
                f"need left {colour} left@N {fact}",
                "dip:N",
            ),  # all needed facts, but the canvas now needs a wipe first
            ("left@N", "look"),  # no `need`: the whole think is its top
        ],
        seed=seed,
    )
    metrics = play_metrics([episode], game)
    assert metrics["calls_per_episode"] == 3
    assert metrics["think_tokens"] == pytest.approx((6 + 5 + 1) / 3)
    assert metrics["recital_share"] == 1.0
    assert metrics["top_recital_share"] == pytest.approx(2 / 3)
    assert metrics["named_given_top_recital"] == pytest.approx(1 / 2)
    assert metrics["distinct_facts"] == len({"top@SE", "left@N", fact})
    # stated: top@SE (named), the colour (not named), left@N (named), the colour, left@N (look names nothing)
    assert (metrics["recited_facts"], metrics["recited_named"]) == (5, 2)
    assert metrics["recited_named_share"] == pytest.approx(2 / 5)
    assert metrics["look_share"] == pytest.approx(1 / 3)
    assert metrics["right_share"] == pytest.approx(
        sum(call.call_word == game.advice(state).call for call, state in states(episode, game)) / 3
    )


def test_a_recited_fact_that_is_not_used(game, play):
    seed = level1(game, "left")
    colour = game.advice(game.start(1, seed)).need[1]
    think = f"left@N {game.rules.fact(colour)} need left {colour} right@SW {game.rules.fact(colour)}"
    metrics = play_metrics([play([(think, "dip:SW")], seed=seed)], game)
    assert metrics["needed_recited_share"] == 1.0
    assert metrics["right_given_recited"] == 0.0
    assert metrics["named_given_top_recital"] == 0.0


def test_other_wording_counts_apart(game, play):
    metrics = play_metrics([play([("left at N", "look"), ("left at SE", "look")])], game)
    assert metrics["recital_other_share"] == pytest.approx(1 / 2)
    assert metrics["recital_share"] == 0.0


def test_text_end_bad_replies_and_loops(game, play):
    text = play([("", "say")])
    bad = play([("x", None), ("y", None)])
    loop = play([("z", "look"), ("z", "look"), ("z", "look")])
    metrics = play_metrics([text, bad, loop], game)
    assert metrics["text_end_share"] == pytest.approx(1 / 3)
    assert metrics["tool_call_ending_rate"] == pytest.approx(3 / 6)
    assert metrics["invalid_share"] == pytest.approx(2 / 6)
    assert metrics["look_share"] == pytest.approx(3 / 6)
    assert metrics["loop_share"] == pytest.approx(2 / 6)  # the first look repeats nothing
    assert metrics["unique_action_share"] == pytest.approx(1 / 3)
    assert metrics["noop_share"] == pytest.approx(3 / 5)
    assert metrics["calls_uncleared"] == pytest.approx(2.0)


def test_returns_levels_and_standard_error(game, play, solved):
    episodes = [solved(1, 0), play([("", "say")], level=1), solved(2, 0)]
    returns = [episode.returned for episode in episodes]
    mean = sum(returns) / 3
    metrics = play_metrics(episodes, game)
    assert metrics["return_mean"] == pytest.approx(mean)
    assert metrics["return_sem"] == pytest.approx(math.sqrt(sum((r - mean) ** 2 for r in returns) / 2 / 3))
    assert (metrics["level1_clear_rate"], metrics["level2_clear_rate"]) == (0.5, 1.0)
    assert (metrics["level1_episodes"], metrics["level2_episodes"]) == (2, 1)
    assert metrics["calls_uncleared"] == 1.0


def test_invalid_episodes_are_counted_and_left_out(game, play, solved):
    metrics = play_metrics([solved(1, 0), play([("", "look")], valid=False)], game)
    assert (metrics["episodes"], metrics["invalid_episodes"]) == (1, 1)
    assert metrics["look_share"] == 0.0


@pytest.mark.parametrize(
    ("think", "repeats"),
    [
        ("a a a", True),
        ("need a b a b a b", True),
        ("a b a b", False),
        ("need left red left@N red@b", False),
        ("", False),
    ],
)
def test_repetition(game, play, think, repeats):
    assert play_metrics([play([(think, "look")])], game)["repetition_share"] == float(repeats)


def test_nothing_played_is_nothing_known(game):
    metrics = play_metrics([], game)
    assert metrics["episodes"] == 0
    assert metrics["return_mean"] is None
    assert metrics["recital_share"] is None


def test_facts_may_come_from_outside(game, solved):
    metrics = play_metrics([solved(1, 0)], game, facts=["nothing@here"])
    assert metrics["recital_share"] == 0.0


def test_every_metric_is_defined(game, solved):
    metrics = play_metrics([solved(1, 0)], game)
    assert {name.replace("level1", "level{k}") for name in metrics} == set(DEFINITIONS)


def test_a_game_without_stated_rules_is_refused():
    class Bare:
        name = "bare"

    with pytest.raises(UserError, match="does not state its rules"):
        true_facts(Bare())  # type: ignore[arg-type]


words = st.sampled_from(["dip:N", "dip:S", "dip:SW", "dip:NW", "pot:a", "pot:b", "look"])


@settings(max_examples=60, deadline=None)
@given(level=st.integers(1, 4), seed=st.integers(0, 50), calls=st.lists(words | st.none(), max_size=8))
def test_states_are_those_of_the_session(game, play, level, seed, calls):
    """The rebuilt states end where the session ended, and every share lies between 0 and 1."""
    state = game.start(level, seed)
    played = []
    for word in calls:
        if state.done:
            break
        played.append(("need left red", word))
        state = game.idle(state) if word in (None, "look") else game.apply(state, game.call_words()[word])
    episode = play(played, level, seed)
    seen = [before for _, before in states(episode, game)]
    assert len(seen) == len(played)
    assert [before.acts for before in seen] == list(range(len(seen)))
    assert (state.cleared, state.acts) == (episode.outcome.cleared, episode.outcome.acts)
    metrics = play_metrics([episode], game)
    assert all(0 <= v <= 1 for k, v in metrics.items() if v is not None and k.endswith(("_share", "_rate")))
