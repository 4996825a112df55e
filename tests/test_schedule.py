"""Phases, resets and cite weights of any schedule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from internalize.schedule import cite_weights, phases, resets, rollouts
from internalize.study_arms import Arm, RlSettings, SftSettings

counts = st.integers(1, 9)
warmups = st.integers(0, 9)
schedules = st.one_of(
    st.just({"type": "none"}),
    st.fixed_dictionaries({"type": st.just("sft_first"), "steps": counts}),
    st.fixed_dictionaries({"type": st.just("sft_interleaved"), "every": counts}),
    st.fixed_dictionaries({"type": st.just("sft_freq"), "sft": counts, "of": counts, "warmup": warmups}),
    st.fixed_dictionaries({"type": st.just("sft_joint"), "fraction": st.just(0.5), "warmup": warmups}),
)


def arm(schedule: dict[str, Any], steps: int, cite_weight: float | list[float] = 1.0, frozen: bool = False) -> Arm:
    return Arm(
        name="a",
        rows={"r": 1.0},
        schedule=schedule,  # type: ignore[arg-type]
        steps=steps,
        seeds=[0],
        cite_weight=cite_weight,
        sft=SftSettings(),
        rl=RlSettings(frozen_adam=frozen),
        status="valid",
        note="",
    )


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ({"type": "none"}, "rrrrrrrr"),
        ({"type": "sft_first", "steps": 3}, "sssrrrrr"),
        ({"type": "sft_first", "steps": 8}, "ssssssss"),
        ({"type": "sft_interleaved", "every": 2}, "srrsrrsr"),
        ({"type": "sft_interleaved", "every": 3}, "srrrsrrr"),
        ({"type": "sft_freq", "sft": 1, "of": 2}, "srsrsrsr"),
        ({"type": "sft_freq", "sft": 2, "of": 4, "warmup": 1}, "sssrrssr"),
        ({"type": "sft_joint", "fraction": 0.5}, "jjjjjjjj"),
        ({"type": "sft_joint", "fraction": 0.5, "warmup": 2}, "ssjjjjjj"),
    ],
)
def test_phases_of_each_schedule(schedule: dict[str, Any], expected: str) -> None:
    assert "".join(phase[0] for phase in phases(arm(schedule, 8))) == expected


@given(schedules, st.integers(1, 30))
def test_rollouts_are_counted_over_the_steps_that_play(schedule: dict[str, Any], steps: int) -> None:
    order = phases(arm(schedule, steps))
    numbers = rollouts(order)
    assert [number is None for number in numbers] == [phase == "sft" for phase in order]
    played = [number for number in numbers if number is not None]
    assert played == list(range(len(played)))


@given(schedules, st.integers(1, 30), st.integers(0, 10))
def test_a_longer_arm_begins_like_the_shorter(schedule: dict[str, Any], steps: int, more: int) -> None:
    short, long = phases(arm(schedule, steps)), phases(arm(schedule, steps + more))
    assert len(short) == steps
    assert long[:steps] == short
    assert resets(long)[:steps] == resets(short)


@given(st.lists(st.sampled_from(["sft", "rl", "joint"]), max_size=20), st.booleans())
def test_moments_are_cleared_exactly_where_sft_ends(order: list[Any], frozen: bool) -> None:
    cleared = resets(order, frozen)
    assert len(cleared) == len(order)
    for step, clear in enumerate(cleared):
        ends = step > 0 and order[step - 1] == "sft" and order[step] in ("rl", "joint")
        assert clear == (ends and not frozen)


@given(schedules, st.integers(1, 30), st.floats(0.5, 64))
def test_one_cite_weight_holds_wherever_rows_are_read(schedule: dict[str, Any], steps: int, weight: float) -> None:
    one = arm(schedule, steps, weight)
    assert cite_weights(one) == [1.0 if phase == "rl" else weight for phase in phases(one)]


@given(schedules, st.integers(1, 30), st.data())
def test_listed_cite_weights_go_to_the_reading_steps_in_order(schedule: dict[str, Any], steps: int, data: Any) -> None:
    reading = [step for step, phase in enumerate(phases(arm(schedule, steps))) if phase != "rl"]
    weights = data.draw(st.lists(st.floats(1, 64), min_size=len(reading), max_size=len(reading)))
    given_weights = cite_weights(arm(schedule, steps, weights or 1.0))
    assert [given_weights[step] for step in reading] == weights
    assert all(w == 1.0 for step, w in enumerate(given_weights) if step not in reading)
