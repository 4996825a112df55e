"""What a trainer's checkpoint says about the trainer, and whether another trainer may load it.

Invariant: a checkpoint is loaded only by a trainer with the same model config and, where the moments come
along, the same optimizer settings; the first key that differs is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.train.distributed import Precision
from internalize.train.optimizer import OptimizerSpec


class CheckpointMismatchError(UserError):
    """A checkpoint belongs to another model or optimizer than this trainer's."""

    title = "checkpoint mismatch"


def settings(model_config: Mapping[str, Any], optimizer: OptimizerSpec, precision: Precision) -> dict[str, Any]:
    """The part of ``args`` in ``common.pt`` that must agree; the learning rate may differ, it comes with each
    step, and fp32 is not said.
    """
    kept = {key: value for key, value in asdict(optimizer).items() if key != "lr"}
    return {
        "model_config": plain(model_config),
        "optimizer": plain(kept | ({"precision": precision} if precision != "fp32" else {})),
    }


def holds_optimizer(args: Mapping[str, Any]) -> bool:
    """Whether a checkpoint holds optimizer state: moments, or the master weights of a bf16 model."""
    return bool(args.get("has_moments")) or (args.get("optimizer") or {}).get("precision") == "bf16"


def refuse_other(folder: Path, saved: Mapping[str, Any], mine: Mapping[str, Any], with_optimizer: bool) -> None:
    """Compares the ``settings`` of a checkpoint with a trainer's.

    Args:
        with_optimizer: the optimizer's too: the checkpoint holds its state.

    Raises:
        CheckpointMismatchError: names the first key that differs.
    """
    for part in ("model_config", "optimizer") if with_optimizer else ("model_config",):
        theirs, ours = saved.get(part) or {}, mine[part]
        for key in sorted({*theirs, *ours}):
            if theirs.get(key) != ours.get(key):
                raise CheckpointMismatchError(
                    f"the checkpoint was written with another {part}",
                    where=f"{folder}: {part}.{key}",
                    expected=repr(ours.get(key)),
                    got=repr(theirs.get(key)),
                    fix="load it with the settings that it was trained with",
                )


def plain(value: Any) -> Any:
    """The value as it comes back from ``common.pt``: dicts with string keys in order, lists for lists and
    tuples.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
