from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from internalize.harness.episode import Episode
from internalize.rollout.advantages import episode_advantages
from internalize.rollout.metrics import rollout_metrics

Make = Callable[..., Episode]


def test_metrics_of_a_small_rollout(make_episode: Make) -> None:
    episodes = [
        make_episode(1.0, calls=3, group=0),
        make_episode(0.0, calls=1, group=0),
        make_episode(0.5, calls=2, group=1),
        make_episode(0.5, calls=2, group=1, valid=False),
    ]
    episodes[1].calls[0].finish = "length"
    episodes[2].unknown_words = 4
    episodes[3].calls[1].prompt_ids = [0]
    m = rollout_metrics(episodes, episode_advantages(episodes))
    assert (m["groups"], m["silent_groups"], m["silent_group_share"], m["invalid_episodes"]) == (2, 1, 0.5, 1)
    assert m["advantage_abs_mean"] == 0.5
    assert (m["llm_calls"], m["sampled_tokens"], m["sampled_tokens_per_call"]) == (8, 24, 3.0)
    assert m["prompt_tokens"] == (2 + 7 + 12) + 2 + (2 + 7) + (2 + 1)
    assert m["prefix_cache_share"] == pytest.approx((0 + 5 + 10 + 0 + 0 + 5 + 0 + 5) / 35)
    assert (m["truncated_share"], m["packed_share"], m["unknown_words"]) == (1 / 8, 0.75, 4)
    assert m["sampled_nll"] == pytest.approx(sum(0.6 + 3 * k for k in (0, 1, 2, 0, 0, 1, 0, 1)) / 24)
    assert m["context_longest"] == 15


def test_an_empty_rollout_has_finite_metrics() -> None:
    assert all(math.isfinite(v) for v in rollout_metrics([], episode_advantages([])).values())
