from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from internalize.files import canonical_json
from internalize.knowledge.dsl import Experiment, Judgement, distance, judge, satisfied

LIT = {"op": "eq", "probe": "lamp", "value": True}
TEST = {"do": ["press"], "expect": [LIT], "null": [{"op": "unchanged", "probe": "lamp"}]}


@pytest.mark.parametrize("place", ["expect", "null", "pre", "given", "start"])
def test_an_unknown_operation_is_named_and_refused(place: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Experiment.model_validate({**TEST, place: [{"op": "eval", "code": "__import__('os')"}]})
    (error,) = caught.value.errors()
    assert (error["type"], error["loc"][0], error["ctx"]["tag"]) == ("union_tag_invalid", place, "eval")


@pytest.mark.parametrize(
    "change",
    [
        {"surprise": 1},
        {"expect": []},
        {"null": []},
        {"expect": [{**LIT, "extra": 1}]},
        {"expect": [{"op": "eq", "probe": "lamp"}]},
        {"expect": ["lamp == True"]},
        {"do": [{"any_of": ["press"]}]},
        {"do": [{"one_of": []}]},
        {"max_walk": -1},
        {"pre": [{"op": "unchanged", "probe": "lamp"}]},
        {"null": [{"op": "changed", "probe": "lamp"}]},
    ],
    ids=canonical_json,
)
def test_other_malformed_experiments_are_refused(change: dict[str, Any]) -> None:
    Experiment.model_validate(TEST)
    with pytest.raises(ValidationError):
        Experiment.model_validate({**TEST, **change})


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"op": "unchanged", "probe": "lamp"}, {"op": "changed", "probe": "lamp"}),
        ({"op": "eq", "probe": "n", "value": 1}, {"op": "ne", "probe": "n", "value": 1}),
        ({"op": "eq", "probe": "n", "value": 1}, {"op": "eq", "probe": "n", "value": True}),
        ({"op": "lt", "probe": "n", "value": 1}, {"op": "gt", "probe": "n", "value": 1}),
        (
            {"op": "paints", "probe": "c", "cells": [0]},
            {"op": "paints", "probe": "c", "cells": [0], "besides": ["x"]},
        ),
    ],
)
def test_different_claims_have_different_canonical_forms(one: dict[str, Any], two: dict[str, Any]) -> None:
    first, second = (Experiment.model_validate({**TEST, "expect": [data]}) for data in (one, two))
    assert canonical_json(first.canonical()) != canonical_json(second.canonical())


CONDITION = st.fixed_dictionaries(
    {"op": st.sampled_from(["eq", "ne"]), "probe": st.sampled_from("ab"), "value": st.integers(0, 3)}
)


@given(st.lists(CONDITION, min_size=1, max_size=4), st.randoms(), st.integers(1, 5), st.integers(0, 5))
def test_the_canonical_form_ignores_order_and_effort(
    conditions: list[dict[str, Any]], shuffler: Any, effort: int, max_walk: int
) -> None:
    shuffled = list(conditions)
    shuffler.shuffle(shuffled)
    one = Experiment.model_validate({**TEST, "pre": conditions, "expect": conditions})
    two = Experiment.model_validate(
        {**TEST, "pre": shuffled, "expect": shuffled, "effort": effort, "max_walk": max_walk}
    )
    assert canonical_json(one.canonical()) == canonical_json(two.canonical())


OFF, ON = {"lamp": False, "dial": 1}, {"lamp": True, "dial": 1}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (OFF, ON, Judgement.HELD),
        (ON, ON, Judgement.NONDISCRIMINATING),
        (OFF, OFF, Judgement.FAILED),
        (ON, OFF, Judgement.FAILED),
    ],
)
def test_a_step_supports_a_claim_only_where_the_null_would_break_it(
    before: dict[str, Any], after: dict[str, Any], expected: Judgement
) -> None:
    assert judge(Experiment.model_validate(TEST), before, after) is expected


def test_a_step_outside_given_says_nothing() -> None:
    test = Experiment.model_validate({**TEST, "given": [{"op": "changed", "probe": "dial"}]})
    assert judge(test, OFF, ON) is Judgement.INAPPLICABLE
    assert judge(test, OFF, {"lamp": False, "dial": 2}) is Judgement.FAILED


def test_the_null_can_predict_a_value_or_nothing_in_particular() -> None:
    same = Experiment.model_validate({**TEST, "null": [{"op": "eq", "probe": "lamp", "value": True}]})
    assert judge(same, OFF, ON) is Judgement.NONDISCRIMINATING
    free = Experiment.model_validate({**TEST, "null": [{"op": "otherwise"}]})
    assert judge(free, ON, ON) is Judgement.HELD


def test_choices_fill_one_of_steps_in_order_and_calls_lists_them_all() -> None:
    test = Experiment.model_validate({**TEST, "setup": ["rest"], "do": [{"one_of": ["press", "turn"]}, "rest"]})
    assert test.choices() == [("press", "rest"), ("turn", "rest")]
    assert test.calls() == {"press", "turn", "rest"}
    assert test.reads() == {"lamp"}


def test_distance_of_several_conditions_is_their_mean() -> None:
    pre = Experiment.model_validate({**TEST, "pre": [LIT, {"op": "eq", "probe": "dial", "value": 1}]}).pre
    assert distance(pre, ON) == 0.0
    assert satisfied(pre, ON)
    assert distance(pre, OFF) == 0.5
    assert not satisfied(pre, OFF)
    assert distance([], OFF) == 0.0
