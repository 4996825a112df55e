from __future__ import annotations

from collections.abc import Callable

import pytest

from internalize.errors import UserError
from internalize.harness.episode import Episode
from internalize.rollout.advantages import episode_advantages
from internalize.rollout.samples import samples
from internalize.train.batch import TrainSequence

Make = Callable[..., Episode]


def _trained(sequences: list[TrainSequence]) -> list[tuple[int, float, float]]:
    """(token, log-prob, advantage) wherever the mask is 1."""
    out = []
    for s in sequences:
        assert s.pg_mask is not None
        assert s.rollout_logprobs is not None
        assert s.advantages is not None
        out += [row[:3] for row in zip(s.tokens, s.rollout_logprobs, s.advantages, s.pg_mask, strict=True) if row[3]]
        assert all(
            a == 0.0 and p == 0.0 for a, p, m in zip(s.advantages, s.rollout_logprobs, s.pg_mask, strict=True) if not m
        )
    return out


def test_mask_lies_exactly_on_the_sampled_tokens(make_episode: Make) -> None:
    episodes = [make_episode(1.0, calls=3), make_episode(0.0, calls=1)]
    packed = samples(episodes, episode_advantages(episodes))
    assert len(packed) == 2
    assert packed[0].tokens == [100, 200, 300, 400, 500, 101, 201, 301, 401, 501, 102, 202, 302, 402, 502]
    assert packed[0].pg_mask == [0, 0, 1, 1, 1] * 3
    assert _trained(packed) == [
        (token, logprob, advantage)
        for episode, advantage in zip(episodes, (0.5, -0.5), strict=True)
        for call in episode.calls
        for token, logprob in zip(call.output_ids, call.logprobs, strict=True)
    ]
    assert [s.episode for s in packed] == [e.plan.id for e in episodes]


def test_one_sample_a_call_trains_the_same_tokens(make_episode: Make) -> None:
    episodes = [make_episode(1.0, calls=3), make_episode(0.0, calls=2)]
    advantages = episode_advantages(episodes)
    calls = samples(episodes, advantages, per_call=True)
    assert [s.episode for s in calls] == [e.plan.id for e in episodes for _ in e.calls]
    assert [s.tokens for s in calls] == [c.prompt_ids + c.output_ids for e in episodes for c in e.calls]
    assert _trained(calls) == _trained(samples(episodes, advantages))


def test_a_broken_prefix_falls_back_to_one_sample_a_call(make_episode: Make) -> None:
    broken, whole = make_episode(1.0, calls=3), make_episode(0.0, calls=2)
    expected = _trained(samples([broken, whole], episode_advantages([broken, whole])))
    broken.calls[2].prompt_ids = [9, 9]  # as if a harness had compacted the history
    sequences = samples([broken, whole], episode_advantages([broken, whole]))
    assert [s.episode for s in sequences] == [broken.plan.id] * 3 + [whole.plan.id]
    assert _trained(sequences) == expected


def test_invalid_episodes_are_left_out_and_silent_ones_train_nothing(make_episode: Make) -> None:
    episodes = [make_episode(1.0), make_episode(0.0, valid=False), make_episode(1.0, calls=1)]
    sequences = samples(episodes, episode_advantages(episodes))
    assert [s.episode for s in sequences] == [episodes[0].plan.id, episodes[2].plan.id]
    assert [s.last_trained for s in sequences] == [0, 0]
    never_called = make_episode(0.0, calls=0)
    assert len(samples([*episodes, never_called], episode_advantages([*episodes, never_called]))) == 2


def test_advantages_of_other_episodes_are_refused(make_episode: Make) -> None:
    with pytest.raises(UserError, match="one advantage"):
        samples([make_episode(1.0)], episode_advantages([]))
