from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from internalize.errors import CorruptPayload, MissingPayload
from internalize.rollout.dump import load_dump, save_dump
from internalize.train.batch import TrainSequence


def _batches() -> list[list[TrainSequence]]:
    teacher = np.log(np.random.default_rng(0).dirichlet(np.ones(5), 3)).astype(np.float32)
    return [
        [
            TrainSequence(
                [1, 2, 3],
                advantages=[0.0, 0.1 + 0.2, 0.0],
                rollout_logprobs=[0.0, -1 / 3, 0.0],
                pg_mask=[0, 1, 0],
                episode="a",
            ),
            TrainSequence([4, 5, 6], ce_weights=[0.0, 32.0, 1e-9], episode="row 7"),
        ],
        [TrainSequence([7, 8, 9], teacher_logprobs=teacher, kl_mask=[0, 1, 1], episode="b")],
        [],
    ]


def _same(a: TrainSequence, b: TrainSequence) -> bool:
    names = ("tokens", "ce_weights", "advantages", "rollout_logprobs", "pg_mask", "kl_mask", "episode")
    equal = all(getattr(a, n) == getattr(b, n) and type(getattr(a, n)) is type(getattr(b, n)) for n in names)
    one, two = a.teacher_logprobs, b.teacher_logprobs
    return equal and (
        (one is None and two is None)
        or (one is not None and two is not None and one.dtype == two.dtype and np.array_equal(one, two))
    )


def test_round_trip_is_exact_and_needs_no_pickled_code(tmp_path: Path) -> None:
    path = tmp_path / "rollout" / "12.pt"
    save_dump(path, 12, _batches(), {"phase": "joint", "temperature": 1.0, "note": None})
    assert torch.load(path, weights_only=True)["rollout_id"] == 12
    dump = load_dump(path)
    assert (dump.rollout_id, dump.meta) == (12, {"phase": "joint", "temperature": 1.0, "note": None})
    assert [len(b) for b in dump.batches] == [2, 1, 0]
    for batch, loaded in zip(_batches(), dump.batches, strict=True):
        assert all(_same(a, b) for a, b in zip(batch, loaded, strict=True))


def test_equal_batches_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("1.pt", "other-name.pt"):
        save_dump(tmp_path / name, 1, _batches())
    assert (tmp_path / "1.pt").read_bytes() == (tmp_path / "other-name.pt").read_bytes()


def test_missing_and_damaged_dumps_are_named(tmp_path: Path) -> None:
    with pytest.raises(MissingPayload):
        load_dump(tmp_path / "0.pt")
    save_dump(tmp_path / "0.pt", 0, _batches())
    data = (tmp_path / "0.pt").read_bytes()
    (tmp_path / "0.pt").write_bytes(data[: len(data) // 2])
    with pytest.raises(CorruptPayload):
        load_dump(tmp_path / "0.pt")
    torch.save({"version": 99, "batches": []}, tmp_path / "1.pt")
    with pytest.raises(CorruptPayload, match="version 99"):
        load_dump(tmp_path / "1.pt")
