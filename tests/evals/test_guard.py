"""The collapse guard trips on collapsed play and leaves good play alone."""

from __future__ import annotations

import math

import pytest

from internalize.errors import StudyError
from internalize.evals.guard import Guard, GuardThresholds
from internalize.evals.play_metrics import play_metrics
from internalize.files import canonical_json

BASE = {
    "calls_per_episode": 4.6,
    "calls_uncleared": 4.8,
    "think_tokens": 5.4,
    "tool_call_ending_rate": 0.997,
    "text_end_share": 0.0,
    "repetition_share": 0.0,
    "noop_share": 0.1,
    "look_share": 0.0,
    "loop_share": 0.02,
    "clear_rate": 0.06,
}
PLAYING = {**BASE, "zero_variance_share": 0.3, "loss": 0.1, "grad_norm": 1.0, "logprob_abs_diff": 1e-6}


def guard(**thresholds) -> Guard:
    return Guard(thresholds, BASE)


def stops(*history, **thresholds) -> list[str]:
    """Keys that broke, by name."""
    verdict = guard(**thresholds).check(history)
    assert verdict.stop == bool(verdict.reasons)
    return verdict.reasons


def test_the_base_itself_plays_on():
    assert stops(PLAYING) == []


def test_a_single_call_policy_is_stopped():
    reasons = stops({**PLAYING, "calls_per_episode": 1.0, "calls_uncleared": 1.0})
    assert len(reasons) == 1
    assert "1.00 replies an episode" in reasons[0]


def test_fast_good_play_is_not():
    fast = {
        **PLAYING,
        "calls_per_episode": 1.1,
        "calls_uncleared": 1.0,
        "clear_rate": 0.97,
        "think_tokens": 1.0,
    }
    assert stops({**fast, "zero_variance_share": 1.0}, {**fast, "zero_variance_share": 1.0}) == []


def test_few_calls_because_all_but_few_clear_are_fine():
    """Episodes that clear at once must not count as collapse; those that do not clear are long."""
    assert stops({**PLAYING, "calls_per_episode": 1.1, "calls_uncleared": 4.0, "clear_rate": 0.45}) == []


def test_text_endings_are_stopped_even_after_good_play():
    reasons = stops({**PLAYING, "tool_call_ending_rate": 0.6, "text_end_share": 0.55, "clear_rate": 0.6})
    assert len(reasons) == 2


def test_tool_call_ending_alone():
    assert stops({**PLAYING, "tool_call_ending_rate": 0.89}) != []
    assert stops({**PLAYING, "tool_call_ending_rate": 0.91}) == []


def test_a_reading_no_worse_than_the_base_never_stops():
    loose = Guard({}, {**BASE, "tool_call_ending_rate": 0.8, "text_end_share": 0.7})
    assert not loose.check([{**PLAYING, "tool_call_ending_rate": 0.85, "text_end_share": 0.6}]).stop
    assert loose.check([{**PLAYING, "tool_call_ending_rate": 0.75, "text_end_share": 0.6}]).stop


@pytest.mark.parametrize("key", ["noop_share", "look_share", "loop_share"])
def test_loops_are_stopped(key):
    assert stops({**PLAYING, key: 0.8}) != []
    assert stops({**PLAYING, key: 0.8, "clear_rate": 0.6}) == []


def test_short_thinks():
    assert stops({**PLAYING, "think_tokens": 1.7}) != []
    assert stops({**PLAYING, "think_tokens": 2.8}) == []


def test_repetition():
    assert stops({**PLAYING, "repetition_share": 0.2}) != []


def test_silent_groups_must_last():
    silent = {**PLAYING, "zero_variance_share": 0.95}
    assert stops(silent) == []
    assert stops(silent, silent) != []
    assert stops(silent, PLAYING, silent) == []
    assert stops(silent, {"step": 1, "loss": 0.3}, silent) != []  # an SFT step between them played nothing
    assert stops(silent, silent, silent, zero_variance_rollouts=4) == []


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_numbers_that_are_not_finite_stop_any_play(value):
    for key in ("loss", "grad_norm"):
        good = {**PLAYING, "clear_rate": 1.0, key: value}
        verdict = guard().check([good])
        assert verdict.reasons == [f"{key} is not finite"]
        canonical_json(verdict.record())  # can be written: no NaN in it


def test_logprob_difference_against_the_first_rollout():
    def at(value):
        return {**PLAYING, "logprob_abs_diff": value}

    assert stops(at(1e-6), at(1e-3)) == []  # a thousand times more, but below the floor
    assert stops(at(0.01), at(0.049)) == []
    assert stops(at(0.01), at(0.051)) != []
    assert stops(at(0.01), {"loss": 0.1}, at(0.051)) != []


def test_a_step_that_did_not_play_is_judged_by_its_training_alone():
    verdict = guard().check([{"loss": 0.4, "grad_norm": 2.0}])
    assert not verdict.stop
    assert verdict.readings == {"loss": 0.4, "grad_norm": 2.0}
    assert not guard().check([{"step": 3}]).stop
    assert not guard().check([]).stop


def test_readings_and_record():
    record = guard().check([{**PLAYING, "calls_per_episode": 1.0, "calls_uncleared": 1.0}]).record()
    assert record["stop"] is True
    assert record["readings"]["calls_uncleared"] == 1.0
    assert record["readings"]["tool_call_ending_rate"] == BASE["tool_call_ending_rate"]


def test_bad_thresholds_and_references_are_user_errors():
    with pytest.raises(StudyError, match=r"guard\.calls"):
        Guard({"calls": 1}, BASE)
    with pytest.raises(StudyError, match=r"guard\.text_end_share"):
        Guard({"text_end_share": 2.0}, BASE)
    with pytest.raises(StudyError, match="lacks readings"):
        Guard(GuardThresholds(), {"calls_per_episode": 3.0})


def test_on_real_episodes(game, play, solved):
    """The guard reads what `play_metrics` writes: collapsed policies trip, a perfect one does not."""
    wandering = [
        play([("need left red left@S red@a", "pot:a"), ("need left red left@S red@a", "dip:S")] * 2, seed=s)
        for s in range(8)
    ]
    judge = Guard({}, play_metrics(wandering, game))

    def verdict(episodes):
        return judge.check([play_metrics(episodes, game)]).stop

    assert not verdict([solved(level, seed) for level in (1, 2, 3) for seed in range(4)])
    assert verdict([play([("", "say")], seed=seed) for seed in range(8)])
    assert verdict(
        [play([("need left red left@S", "dip:NE")], seed=seed) for seed in range(8)]
    )  # into the trap at once
    assert verdict([play([("need left red left@S", "look")] * 4, seed=seed) for seed in range(8)])
    assert not verdict(wandering)
