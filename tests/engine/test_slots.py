from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.engine.slots import Slots
from internalize.errors import UserError

TOKENS = st.lists(st.integers(0, 3), max_size=12)


@settings(max_examples=100, deadline=None)
@given(held=TOKENS, prompt=st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_reusable_is_the_longest_common_prefix_short_of_the_last_token(held: list[int], prompt: list[int]) -> None:
    slots = Slots(1)
    slots.acquire(["a"])
    slots.hold("a", held)
    n = slots.reusable("a", prompt)
    assert held[:n] == prompt[:n]
    assert n < len(prompt)
    longer = n + 1
    assert longer > len(held) or longer >= len(prompt) or held[:longer] != prompt[:longer]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3, unique=True), max_size=15))
def test_rows_are_distinct_and_stable_while_held(calls: list[list[str]]) -> None:
    slots = Slots(3)
    rows: dict[str, int] = {}
    for names in calls:
        got = dict(zip(names, slots.acquire(names), strict=True))
        for name, row in got.items():
            assert rows.get(name, row) == row
        rows = {name: row for name, row in (rows | got).items() if name in slots}
        assert len(set(rows.values())) == len(rows) == len(slots)
        assert set(rows.values()) <= {0, 1, 2}


def test_acquire_keeps_what_it_needs_and_refuses_what_cannot_fit() -> None:
    slots = Slots(2)
    slots.acquire(["a"])
    slots.acquire(["b"])
    slots.hold("a", [1, 2])
    slots.acquire(["a", "c"])  # a is the oldest, but wanted: b goes
    assert "b" not in slots
    assert slots.cached("a") == [1, 2]
    with pytest.raises(UserError, match="too many"):
        slots.acquire(["a", "b", "c"])
    slots.clear()
    assert len(slots) == 0
    assert slots.cached("a") == []
