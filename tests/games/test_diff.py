from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.games.diff import diff

FRAMES = st.integers(1, 5).flatmap(
    lambda width: st.integers(1, 5).flatmap(
        lambda height: st.tuples(
            *[st.tuples(*[st.tuples(*[st.integers(0, 3)] * width)] * height)] * 2,
            st.sets(st.integers(0, height - 1)),
        )
    )
)


@settings(deadline=None)
@given(FRAMES, st.integers(0, 8))
def test_diff_agrees_with_a_cell_by_cell_reading(drawn: tuple, cap: int) -> None:
    before, after, hud = drawn
    expected = [
        [x, y, before[y][x], after[y][x]]
        for y in range(len(before))
        for x in range(len(before[0]))
        if y not in hud and before[y][x] != after[y][x]
    ]
    found = diff(before, after, hud, cap)
    assert found.cells_changed == len(expected)
    assert found.changed_cells == expected[:cap]
    assert found.changed_omitted == max(0, len(expected) - cap)
    assert sum(found.change_kinds.values()) == len(expected)
    for kind, count in found.change_kinds.items():
        assert count == sum(f"{old}->{new}" == kind for _, _, old, new in expected)


def test_hud_rows_are_masked_and_cells_are_row_major() -> None:
    before = ((1, 1), (2, 2), (3, 3))
    after = ((9, 9), (2, 5), (6, 3))
    found = diff(before, after, {0}, 64)
    assert found == (2, {"2->5": 1, "3->6": 1}, [[1, 1, 2, 5], [0, 2, 3, 6]], 0)
