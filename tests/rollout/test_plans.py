from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import UserError
from internalize.rollout.plans import BAND_BITS, BANDS, level_seed, rollout_plans, single_plans


def test_groups_share_level_and_seed_and_levels_take_turns() -> None:
    plans = rollout_plans(rollout=3, arm_seed=1, episodes=32, group_size=4, levels=(1, 2, 3, 4))
    assert len({p.id for p in plans}) == 32
    groups = {g: [p for p in plans if p.group == g] for g in range(8)}
    assert all(len(g) == 4 and len({(p.level, p.seed) for p in g}) == 1 for g in groups.values())
    assert [[p.index for p in g] for g in groups.values()] == [[0, 1, 2, 3]] * 8
    assert Counter(p.level for p in plans) == {1: 8, 2: 8, 3: 8, 4: 8}
    assert len({p.seed for p in plans}) == 8


def test_levels_take_turns_across_steps_when_groups_are_few() -> None:
    levels = [rollout_plans(step, 0, 4, 4, (1, 2, 3))[0].level for step in range(6)]
    assert levels == [1, 2, 3, 1, 2, 3]


def test_plans_depend_on_seed_and_step_only() -> None:
    assert rollout_plans(2, 0, 8, 4, (1, 2)) == rollout_plans(2, 0, 8, 4, (1, 2))
    keys = [(step, seed) for step in range(3) for seed in range(3)]
    seeds = [{p.seed for p in rollout_plans(*key, 8, 4, (1, 2))} for key in keys]
    assert len(set().union(*seeds)) == sum(map(len, seeds))


@settings(max_examples=200, deadline=None)
@given(
    bands=st.tuples(st.sampled_from(BANDS), st.sampled_from(BANDS)),
    keys=st.tuples(*[st.lists(st.integers(0, 10**6), max_size=3)] * 2),
)
def test_bands_never_share_a_seed(bands: tuple[str, str], keys: tuple[list[int], list[int]]) -> None:
    one, two = (level_seed(b, *k) for b, k in zip(bands, keys, strict=True))  # type: ignore[arg-type]
    assert (BANDS[one >> BAND_BITS], BANDS[two >> BAND_BITS]) == bands
    assert (one == two) == (bands[0] == bands[1] and keys[0] == keys[1])
    assert 0 <= one < 2**53  # exact as a JSON number everywhere


def test_single_plans_are_groups_of_one() -> None:
    plans = single_plans("eval", 5, 6, (1, 2, 3, 4), "step-0003")
    assert [p.level for p in plans] == [1, 2, 3, 4, 1, 2]
    assert [(p.group, p.index) for p in plans] == [(i, 0) for i in range(6)]
    assert plans[0].id == "step-0003-0000"
    assert [p.seed for p in plans] == [p.seed for p in single_plans("eval", 5, 6, (1, 2, 3, 4))]
    assert plans[:3] == single_plans("eval", 5, 3, (1, 2, 3, 4), "step-0003")


def test_impossible_plans_are_refused() -> None:
    for episodes, size, levels in ((30, 4, (1,)), (0, 4, (1,)), (4, 0, (1,)), (4, 4, ())):
        with pytest.raises(UserError):
            rollout_plans(0, 0, episodes, size, levels)
    with pytest.raises(UserError):
        single_plans("eval", 0, 0, (1,))
