from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.engine.protocol import SamplingParams
from internalize.errors import CorruptPayload, UserError
from internalize.files import read_jsonl, write_jsonl
from internalize.harness.episode import (
    CallRecord,
    Episode,
    EpisodePlan,
    Outcome,
    read_episodes,
    write_episodes,
)

IDS = st.lists(st.integers(0, 90), min_size=1, max_size=6)
WORDS = st.text("abc@:<> é\n", max_size=8)
REALS = st.floats(-40, 0)


@st.composite
def calls(draw: st.DrawFn, index: int) -> CallRecord:
    output = draw(IDS)
    return CallRecord(
        index=index,
        prompt_ids=draw(IDS),
        output_ids=output,
        logprobs=draw(st.lists(REALS, min_size=len(output), max_size=len(output))),
        finish=draw(st.sampled_from(["stop", "length", "abort"])),
        weight_version=draw(WORDS),
        cached_tokens=draw(st.integers(0, 5)),
        think=draw(WORDS),
        kind=draw(st.sampled_from(["call", "say", "bad"])),
        call_word=draw(st.none() | WORDS),
        observation=draw(WORDS),
        say=draw(st.none() | WORDS),
        sampling=SamplingParams(draw(st.floats(0, 3)), draw(st.integers(1, 9)), tuple(draw(IDS))),
    )


@st.composite
def episodes(draw: st.DrawFn, index: int) -> Episode:
    return Episode(
        plan=EpisodePlan(f"e{index}", draw(st.integers(1, 4)), draw(st.integers(0, 2**53)), 0, index),
        calls=[draw(calls(i)) for i in range(draw(st.integers(0, 3)))],
        journal=[{"tool": "look", "arguments": {}, "result": {"n": i}} for i in range(draw(st.integers(0, 3)))],
        outcome=Outcome(draw(st.booleans()), False, True, 3, 1, 0, 7, 0.25, draw(st.floats(0, 1))),
        components={"clear": 0.0, "acts": draw(REALS)},
        returned=draw(REALS),
        valid=draw(st.booleans()),
        reason=draw(st.none() | WORDS),
        unknown_words=draw(st.integers(0, 4)),
    )


@settings(max_examples=30, deadline=None)
@given(data=st.data(), count=st.integers(0, 3))
def test_records_round_trip(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, count: int) -> None:
    folder = tmp_path_factory.mktemp("episodes")
    written = [data.draw(episodes(i)) for i in range(count)]
    write_episodes(folder, written)
    assert read_episodes(folder) == written


def _one(session: str = "e0") -> Episode:
    call = CallRecord(0, [1, 2], [3, 4], [-0.1, -0.2], "stop", "v", 0, "need", "call", "dip:N", "pot")
    return Episode(
        plan=EpisodePlan(session, 1, 7, 0, 0),
        calls=[call],
        journal=[{"tool": "look", "arguments": {}, "result": {}}],
        outcome=Outcome(True, False, False, 1, 0, 0, 4, 0.0, 1.0),
        components={"clear": 1.0},
        returned=1.0,
    )


def test_equal_episodes_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_episodes(tmp_path / name, [_one(), _one("e1")])
    for path in sorted((tmp_path / "a").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    def damaged(name: str, change: object) -> Path:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        write_episodes(folder, [_one()])
        rows = list(read_jsonl(folder / name))
        assert callable(change)
        write_jsonl(folder / name, change(rows))
        return folder

    cases = [
        ("episodes.jsonl", lambda rows: [{**rows[0], "colour": 1}]),
        ("episodes.jsonl", lambda rows: [{k: v for k, v in rows[0].items() if k != "returned"}]),
        ("episodes.jsonl", lambda rows: []),
        ("calls.jsonl.zst", lambda rows: []),
        ("calls.jsonl.zst", lambda rows: [{k: v for k, v in rows[0].items() if k != "session"}]),
        ("calls.jsonl.zst", lambda rows: [*rows, {**rows[0], "session": "nobody"}]),
        ("journal.jsonl.zst", lambda rows: [*rows, *rows]),
    ]
    for name, change in cases:
        with pytest.raises(CorruptPayload):
            read_episodes(damaged(name, change))
    with pytest.raises(UserError, match="not found"):
        read_episodes(tmp_path / "nowhere")


def test_prefix_extending_sees_a_broken_history() -> None:
    episode = _one()
    assert episode.prefix_extending
    good = CallRecord(1, [1, 2, 3, 4, 9], [5], [0.0], "stop", "v", 0, "", "say", None, "", "x")
    episode.calls.append(good)
    assert episode.prefix_extending
    for prompt in ([1, 2, 3, 9], [1, 2, 3], [1, 2, 3, 5, 9], [0, 2, 3, 4, 9]):
        good.prompt_ids = prompt
        assert not episode.prefix_extending
