from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import UserError
from internalize.harness.episode import Episode
from internalize.rollout.advantages import episode_advantages

Make = Callable[..., Episode]


def test_baseline_is_the_mean_over_episodes_not_over_calls(make_episode: Make) -> None:
    advantages = episode_advantages([make_episode(1.0, calls=3), make_episode(0.0, calls=1)])
    assert advantages.values == (0.5, -0.5)  # a call baseline would give 0.25 and -0.75


def test_no_division_by_the_standard_deviation(make_episode: Make) -> None:
    assert episode_advantages([make_episode(0.5), make_episode(0.25)]).values == (0.125, -0.125)


def test_zero_variance_groups_are_flagged_and_zero(make_episode: Make) -> None:
    same = [make_episode(0.1 + 0.2, group=0) for _ in range(3)]
    advantages = episode_advantages([*same, make_episode(1.0, group=1), make_episode(0.0, group=1)])
    assert advantages.values == (0.0, 0.0, 0.0, 0.5, -0.5)
    assert advantages.silent == (True, True, True, False, False)
    assert (advantages.groups, advantages.silent_groups) == (2, 1)


def test_groups_never_mix(make_episode: Make) -> None:
    """Three groups, each of equal returns: nothing to learn, whatever the groups' levels return."""
    episodes = [make_episode(r, group=g) for g, r in enumerate((5.0, 1.0, -1.0)) for _ in range(3)]
    assert set(episode_advantages(episodes).values) == {0.0}
    with pytest.raises(UserError, match="mixes"):
        episode_advantages([make_episode(0.0, group=0, seed=1), make_episode(1.0, group=0, seed=2)])


def test_invalid_episodes_have_no_part(make_episode: Make) -> None:
    episodes = [make_episode(1.0), make_episode(0.0), make_episode(100.0, valid=False)]
    advantages = episode_advantages(episodes)
    assert advantages.values == (0.5, -0.5, 0.0)
    assert advantages.silent == (False, False, True)
    lonely = episode_advantages([make_episode(1.0), make_episode(0.0, valid=False)])
    assert (lonely.values, lonely.silent_groups) == ((0.0, 0.0), 1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-2, 2), st.integers(1, 5)), min_size=1, max_size=16))
def test_advantages_of_a_group_sum_to_zero_and_keep_differences(
    make_episode: Make, rows: list[tuple[int, float, int]]
) -> None:
    advantages = episode_advantages([make_episode(r, calls=n, group=g) for g, r, n in rows])
    for group in {g for g, _, _ in rows}:
        chosen = [(r, advantages[i]) for i, (g, r, _) in enumerate(rows) if g == group]
        assert abs(sum(a for _, a in chosen)) < 1e-9
        first_return, first = chosen[0]
        assert all(abs((a - first) - (r - first_return)) < 1e-9 for r, a in chosen)
