from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from internalize.errors import UserError
from internalize.knowledge.ops import Condition, Expect

BEFORE = {"n": 3, "s": "a", "c": ["x", "x", "y", "y"], "d": ["x", "x", "y", "z"], "b": False}
AFTER = {"n": 5, "s": "a", "c": ["r", "x", "r", "y"], "d": ["r", "x", "r", "z"], "b": True}

CASES = [
    ({"op": "eq", "probe": "n", "value": 5}, True),
    ({"op": "eq", "probe": "n", "value": 3}, False),
    ({"op": "eq", "probe": "c", "value": ["r", "x", "r", "y"]}, True),
    ({"op": "ne", "probe": "s", "value": "a"}, False),
    ({"op": "ne", "probe": "s", "value": "b"}, True),
    ({"op": "lt", "probe": "n", "value": 5}, False),
    ({"op": "lt", "probe": "n", "value": 6}, True),
    ({"op": "gt", "probe": "n", "value": 4}, True),
    ({"op": "gt", "probe": "n", "value": 5}, False),
    ({"op": "in", "probe": "s", "values": ["a", "b"]}, True),
    ({"op": "in", "probe": "s", "values": ["b"]}, False),
    ({"op": "same", "probe": "c", "other": "c"}, True),
    ({"op": "same", "probe": "c", "other": "d"}, False),
    ({"op": "differ", "probe": "c", "other": "d", "cells": [3]}, True),
    ({"op": "differ", "probe": "c", "other": "d", "cells": [2]}, False),
    ({"op": "differ", "probe": "c", "other": "d", "cells": [2, 3]}, False),
    ({"op": "count", "probe": "c", "besides": ["x"], "value": 3}, True),
    ({"op": "count", "probe": "c", "besides": [], "value": 3}, False),
    ({"op": "distinct", "probe": "c", "besides": ["x"], "value": 2}, True),
    ({"op": "distinct", "probe": "c", "besides": [], "value": 2}, False),
    ({"op": "unchanged", "probe": "s"}, True),
    ({"op": "unchanged", "probe": "n"}, False),
    ({"op": "changed", "probe": "n"}, True),
    ({"op": "changed", "probe": "s"}, False),
    ({"op": "shift", "probe": "n", "by": 2}, True),
    ({"op": "shift", "probe": "n", "by": 1}, False),
    ({"op": "paints", "probe": "c", "cells": [0, 2]}, True),
    ({"op": "paints", "probe": "c", "cells": [0, 2], "value": "r"}, True),
    ({"op": "paints", "probe": "c", "cells": [0, 2], "value": "x"}, False),
    ({"op": "paints", "probe": "c", "cells": [0, 2], "besides": ["r"]}, False),
    ({"op": "paints", "probe": "c", "cells": [0]}, False),
    ({"op": "paints", "probe": "c", "cells": [0, 1]}, False),
    ({"op": "turns", "probe": "c", "value": "r"}, True),
    ({"op": "turns", "probe": "c", "value": "y"}, False),
    ({"op": "not", "of": {"op": "changed", "probe": "s"}}, True),
    ({"op": "not", "of": {"op": "eq", "probe": "b", "value": True}}, False),
]


def op(data: dict[str, Any]) -> Any:
    return TypeAdapter(Expect).validate_python(data)


@pytest.mark.parametrize(("data", "expected"), CASES, ids=[f"{c['op']}-{i}" for i, (c, _) in enumerate(CASES)])
def test_truth_of_a_step(data: dict[str, Any], expected: bool) -> None:
    assert op(data).holds(BEFORE, AFTER) is expected


def test_turns_needs_a_change() -> None:
    assert not op({"op": "turns", "probe": "c", "value": "x"}).holds(BEFORE, BEFORE)


@pytest.mark.parametrize(
    "data",
    [
        {"op": "eq", "probe": "missing", "value": 1},
        {"op": "lt", "probe": "s", "value": 1},
        {"op": "lt", "probe": "b", "value": 1},
        {"op": "count", "probe": "n", "besides": [], "value": 1},
        {"op": "paints", "probe": "c", "cells": [9]},
        {"op": "differ", "probe": "c", "other": "d", "cells": [4]},
    ],
)
def test_a_claim_that_does_not_fit_the_game_is_a_user_error(data: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        op(data).holds(BEFORE, AFTER)


def test_reads_names_every_probe() -> None:
    assert op({"op": "not", "of": {"op": "same", "probe": "c", "other": "d"}}).reads() == {"c", "d"}


CELLS = st.lists(st.sampled_from("xyz"), min_size=3, max_size=3)
CONDITIONS = st.one_of(
    st.builds(lambda v: {"op": "eq", "probe": "c", "value": v}, CELLS),
    st.builds(lambda v: {"op": "eq", "probe": "n", "value": v}, st.integers(-3, 3)),
    st.builds(lambda v: {"op": "ne", "probe": "c", "value": v}, CELLS),
    st.builds(lambda v: {"op": "gt", "probe": "n", "value": v}, st.integers(-3, 3)),
    st.just({"op": "same", "probe": "c", "other": "d"}),
    st.builds(
        lambda v: {"op": "differ", "probe": "c", "other": "d", "cells": v},
        st.lists(st.integers(0, 2), unique=True),
    ),
    st.builds(lambda v: {"op": "count", "probe": "c", "besides": ["x"], "value": v}, st.integers(0, 3)),
    st.builds(lambda v: {"op": "distinct", "probe": "c", "besides": ["x"], "value": v}, st.integers(0, 3)),
)


@given(CONDITIONS, CELLS, CELLS, st.integers(-3, 3))
def test_distance_is_zero_exactly_where_the_condition_holds(
    data: dict[str, Any], c: list[str], d: list[str], n: int
) -> None:
    condition = TypeAdapter(Condition).validate_python(data)
    probes = {"c": c, "d": d, "n": n}
    far = condition.distance(probes)
    assert 0.0 <= far <= 1.0
    assert (far == 0.0) == condition.holds(probes, probes)
