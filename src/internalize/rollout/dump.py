"""The debug dump of a step: the exact training batches, replayable.

Invariant: `load_dump(save_dump(batches))` is the batches, token for token and bit for bit, and loads with
`weights_only=True` (tensors, numbers, strings, lists, dicts: nothing that can run code). Equal batches give
equal bytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import write_bytes
from internalize.train.batch import TrainSequence

DUMP_VERSION = 1
# stream -> type in the file; float64 because log-probs and weights are Python floats
STREAMS = {
    "tokens": torch.int64,
    "ce_weights": torch.float64,
    "advantages": torch.float64,
    "rollout_logprobs": torch.float64,
    "pg_mask": torch.int8,
    "kl_mask": torch.int8,
}


@dataclass(slots=True)
class Dump:
    """What a dump file holds."""

    rollout_id: int
    batches: list[list[TrainSequence]]
    """One list an optimizer step, in the order they were taken."""
    meta: dict[str, Any] = field(default_factory=dict)


def save_dump(
    path: Path,
    rollout_id: int,
    batches: Sequence[Sequence[TrainSequence]],
    meta: Mapping[str, str | int | float | bool | None] | None = None,
) -> None:
    """Write `path` (by convention `rollout/<id>.pt`) atomically."""
    payload = {
        "version": DUMP_VERSION,
        "rollout_id": rollout_id,
        "meta": dict(meta or {}),
        "batches": [[_pack(s) for s in batch] for batch in batches],
    }
    # not torch.save(path): it writes the file's own name, here a random temporary one, into the archive
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    write_bytes(path, buffer.getvalue())


def load_dump(path: Path) -> Dump:
    """Read a dump. Raises MissingPayload or CorruptPayload."""
    if not path.exists():
        raise MissingPayload("no such rollout dump", where=str(path))
    try:
        payload = torch.load(path, weights_only=True)
        if payload["version"] != DUMP_VERSION:
            raise ValueError(f"version {payload['version']}, this code reads {DUMP_VERSION}")
        batches = [[_unpack(s) for s in batch] for batch in payload["batches"]]
        return Dump(rollout_id=payload["rollout_id"], batches=batches, meta=payload["meta"])
    except Exception as error:  # torch raises half a dozen types for a damaged archive
        raise CorruptPayload(f"not a rollout dump ({error})", where=str(path)) from error


def _pack(sequence: TrainSequence) -> dict[str, Any]:
    row: dict[str, Any] = {"episode": sequence.episode}
    for name, dtype in STREAMS.items():
        stream = getattr(sequence, name)
        row[name] = None if stream is None else torch.tensor(stream, dtype=dtype)
    teacher = sequence.teacher_logprobs
    row["teacher_logprobs"] = None if teacher is None else torch.from_numpy(np.ascontiguousarray(teacher))
    return row


def _unpack(row: Mapping[str, Any]) -> TrainSequence:
    lists: dict[str, Any] = {name: None if row[name] is None else row[name].tolist() for name in STREAMS}
    teacher = row["teacher_logprobs"]
    return TrainSequence(**lists, teacher_logprobs=None if teacher is None else teacher.numpy(), episode=row["episode"])
