from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from internalize.gateway import reasons
from internalize.gateway.calls import CallRow, SamplingRow
from internalize.harness import validity
from internalize.harness.process import Exit
from internalize.harness.validity import Facts, journal_agrees, judge
from internalize.language.calls import bundled

TABLE = bundled()


def _call(index: int, word: str | None) -> CallRow:
    return CallRow(
        session="e",
        request=f"e-{index}",
        index=index,
        prompt_ids=[1],
        output_ids=[2],
        logprobs=[-1.0],
        finish="stop",
        weight_version="v",
        cached_tokens=0,
        think="",
        kind="call" if word else "bad",
        call_word=word,
        say=None,
        sampling=SamplingRow(temperature=1.0, max_new_tokens=1, stop_ids=(2,)),
        seed=1,
    )


def _row(word: str) -> dict[str, Any]:
    call = TABLE.expand(word)
    return {"tool": call.tool, "arguments": {"action": call.action, "x": call.x, "y": call.y}}


GOOD = Facts(
    exit=Exit(0),
    servers=1,
    session_reason=None,
    gateway_alive=True,
    mismatches=0,
    calls=[_call(0, "pot:a"), _call(1, None), _call(2, "dip:N")],
    journal=[_row("pot:a"), _row("dip:N")],
    game_over=True,
    looped=False,
)
#: One change each, in the order in which they are looked for.
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"servers": 0}, validity.MCP_NOT_CONNECTED),
    ({"session_reason": reasons.OUTSIDE_CHAIN}, reasons.OUTSIDE_CHAIN),
    ({"gateway_alive": False}, reasons.GATEWAY_LOST),
    ({"servers": 2}, validity.MCP_RESTARTED),
    ({"mismatches": 1}, reasons.SPLICE_MISMATCH),
    ({"looped": True}, validity.LOOP_GUARD),
    ({"exit": Exit(-9, timed_out=True)}, validity.TIMEOUT),
    ({"exit": Exit(-9)}, validity.AGENT_KILLED),
    ({"exit": Exit(143)}, validity.AGENT_KILLED),
    ({"exit": Exit(1)}, validity.EXIT_STATUS),
    ({"exit": Exit(53)}, validity.EXIT_STATUS),
    ({"journal": [_row("pot:a")]}, validity.JOURNAL_MISMATCH),
    ({"game_over": False}, validity.UNFINISHED),
]


def test_a_good_episode_counts() -> None:
    assert judge(GOOD, TABLE) is None


@pytest.mark.parametrize(("change", "reason"), FAULTS)
def test_one_fault_one_reason(change: dict[str, Any], reason: str) -> None:
    assert judge(replace(GOOD, **change), TABLE) == reason


def test_of_two_faults_the_more_specific_names_the_episode() -> None:
    for i, (change, reason) in enumerate(FAULTS):
        for later, _ in FAULTS[i + 1 :]:
            assert judge(replace(GOOD, **{**later, **change}), TABLE) == reason


@pytest.mark.parametrize(
    ("words", "agrees"),
    [
        (["pot:a", "dip:N"], True),
        (["dip:N", "pot:a"], False),
        (["pot:a", "dip:S"], False),
        (["pot:b", "dip:N"], False),
        (["pot:a", "dip:N", "look"], False),
        ([], False),
    ],
)
def test_the_journal_holds_exactly_the_sampled_calls(words: list[str], agrees: bool) -> None:
    assert journal_agrees(GOOD.calls, [_row(word) for word in words], TABLE) is agrees
