"""slime's debug-rollout format: our dumps round trip, its own files become Dr.GRPO batches."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.errors import CorruptPayload, MissingPayload, UserError
from internalize.rollout.dump import Dump
from internalize.rollout.slime import from_slime, load_slime, save_slime, to_slime
from internalize.train.batch import TrainSequence

finite = st.floats(-50, 50, allow_nan=False)


@st.composite
def policy(draw: Any) -> TrainSequence:
    n = draw(st.integers(2, 9))
    mask = [0, *draw(st.lists(st.integers(0, 1), min_size=n - 1, max_size=n - 1))]
    advantage = draw(finite)
    return TrainSequence(
        draw(st.lists(st.integers(0, 99), min_size=n, max_size=n)),
        advantages=[advantage * m for m in mask],
        rollout_logprobs=draw(st.lists(finite, min_size=n, max_size=n)),
        pg_mask=mask,
        episode=draw(st.sampled_from(["a", "b", "c"])),
    )


@st.composite
def row(draw: Any) -> TrainSequence:
    n = draw(st.integers(2, 9))
    weights = [0.0, *map(float, draw(st.lists(st.integers(0, 32), min_size=n - 1, max_size=n - 1)))]
    return TrainSequence(draw(st.lists(st.integers(0, 99), min_size=n, max_size=n)), ce_weights=weights, episode="row")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.one_of(policy(), row()), max_size=4), max_size=3),
    st.dictionaries(st.sampled_from("xy"), st.integers()),
)
def test_round_trip_is_exact(batches: list[list[TrainSequence]], meta: dict[str, Any]) -> None:
    dump = Dump(3, batches, meta)
    payload = to_slime(dump, {"a": 1.0, "b": -0.5, "c": 0.25}, {"a": 0, "b": 0, "c": 1})
    assert from_slime(payload) == dump


def test_the_samples_are_slimes(tmp_path: Path) -> None:
    sequence = TrainSequence(
        [5, 6, 7, 8],
        advantages=[0, 0, 0.5, 0.5],
        rollout_logprobs=[0, 0, -1.25, -0.5],
        pg_mask=[0, 0, 1, 1],
        episode="e1",
    )
    other = TrainSequence([5, 9], ce_weights=[0, 8.0], episode="row 4")
    save_slime(tmp_path / "7.pt", to_slime(Dump(7, [[sequence], [other]]), {"e1": 1.5}, {"e1": 3}))
    payload = load_slime(tmp_path / "7.pt")
    assert payload["rollout_id"] == 7
    first, second = payload["samples"]
    assert (first["tokens"], first["response_length"], first["loss_mask"]) == ([5, 6, 7, 8], 2, [1, 1])
    assert (first["rollout_log_probs"], first["reward"], first["group_index"]) == ([-1.25, -0.5], 1.5, 3)
    assert (second["loss_mask"], second["rollout_log_probs"], second["reward"]) == ([8], None, None)
    assert [sample["index"] for sample in payload["samples"]] == [0, 1]
    assert [sample["rollout_id"] for sample in payload["samples"]] == [0, 1]
    for sample in payload["samples"]:
        assert sample["status"] == "completed"
        assert len(sample["loss_mask"]) == sample["response_length"]
        assert {type(value) for value in sample["loss_mask"]} == {int}


def theirs(index: int, rollout_id: int | None, group: int, reward: Any, **changes: Any) -> dict[str, Any]:
    """A sample as slime dumps it."""
    return {
        "index": index,
        "rollout_id": rollout_id,
        "group_index": group,
        "tokens": [1, 2, 3, 4],
        "response_length": 2,
        "loss_mask": None,
        "rollout_log_probs": [-0.5, -1.0],
        "reward": reward,
        "status": "completed",
        "metadata": {},
        "remove_sample": False,
        **changes,
    }


def test_files_of_slime_get_the_episode_mean_as_baseline() -> None:
    samples = [
        theirs(0, 0, 0, 1.0),
        theirs(1, 0, 0, 1.0),  # the same execution in two samples counts once
        theirs(2, 1, 0, 0.0),
        theirs(3, 2, 1, 5.0, loss_mask=[0, 1]),
        theirs(4, 3, 1, 5.0, remove_sample=True),
    ]
    dump = from_slime({"rollout_id": 4, "samples": samples}, executions_a_step=2)
    assert [len(batch) for batch in dump.batches] == [3, 2]
    advantages = [sequence.advantages for batch in dump.batches for sequence in batch]
    assert advantages == [[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5], [0, 0, -0.5, -0.5], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert dump.batches[1][0].pg_mask == [0, 0, 0, 1]
    assert dump.batches[1][1].pg_mask == [0, 0, 0, 0]
    assert dump.batches[0][0].rollout_logprobs == [0, 0, -0.5, -1.0]


def test_executions_that_fill_no_step_are_dropped_as_slime_does() -> None:
    samples = [theirs(i, None, 0, float(i)) for i in range(5)]
    dump = from_slime({"rollout_id": 0, "samples": samples}, executions_a_step=2)
    assert [len(batch) for batch in dump.batches] == [2, 2]
    assert [len(batch) for batch in from_slime({"rollout_id": 0, "samples": samples}).batches] == [5]


def test_rows_of_slime_are_weighted_by_their_mask() -> None:
    sample = theirs(0, 0, 0, None, rollout_log_probs=None, loss_mask=[0, 8])
    sequence = from_slime({"rollout_id": 0, "samples": [sample]}).batches[0][0]
    assert (sequence.ce_weights, sequence.pg_mask) == ([0, 0, 0, 8.0], None)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([theirs(0, 0, 0, None)], "no reward"),
        ([theirs(0, 0, 0, {"acc": 1.0})], "no reward"),
        ([theirs(0, 0, 0, 1.0), theirs(1, 0, 0, 2.0)], "different rewards"),
        ([theirs(0, 0, 0, 1.0, rollout_log_probs=[0.0])], "another length"),
        ([theirs(0, 0, 0, 1.0, loss_mask=[1])], "another length"),
        ([theirs(0, 0, 0, 1.0, response_length=9)], "another length"),
    ],
)
def test_a_sample_that_contradicts_itself_is_named(samples: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        from_slime({"rollout_id": 0, "samples": samples})
    assert "samples[" in error.value.where


def test_a_reward_can_be_chosen() -> None:
    samples = [theirs(0, 0, 0, {"acc": 1.0}), theirs(1, 1, 0, {"acc": 0.0})]
    dump = from_slime({"rollout_id": 0, "samples": samples}, reward_key="acc")
    assert [sequence.advantages[-1] for sequence in dump.batches[0] if sequence.advantages] == [0.5, -0.5]


@pytest.mark.parametrize(
    ("sequence", "words"),
    [
        (TrainSequence([1, 2], ce_weights=[0, 0.5], episode="e"), "would cut this weight"),
        (TrainSequence([1, 2], teacher_logprobs=np.zeros((2, 3)), kl_mask=[0, 1], episode="e"), "no soft labels"),
        (TrainSequence([1, 2], [0, 1.0], [0, 1.0], [0, -1.0], [0, 1], episode="e"), "one mask"),
        (TrainSequence([1, 2], None, [0, 1.0], [0, -1.0], [0, 1], episode="x"), "no return"),
    ],
)
def test_what_the_format_cannot_say_is_refused(sequence: TrainSequence, words: str) -> None:
    with pytest.raises(UserError, match=words):
        to_slime(Dump(0, [[sequence]]), {"e": 1.0}, {"e": 0})


class Status(enum.Enum):
    DONE = "completed"


def test_files_are_read_without_running_them(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with pytest.raises(MissingPayload):
        load_slime(path)
    for content in (
        {"rollout_id": "eval_3", "samples": []},
        {"samples": []},
        [1],
        {"rollout_id": 0, "samples": [Status.DONE]},
    ):
        torch.save(content, path)
        with pytest.raises(CorruptPayload):
            load_slime(path)
