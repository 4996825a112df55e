"""The convert stage: the checkpoint of one step as a model folder.

Invariant: the payload is a model folder that transformers, an engine and an archive take as it is; a step that the
guard stopped has no checkpoint and gives an empty payload that says so. A killed conversion keeps the weight files that
were whole: they lie beside the store's own working folder, which every attempt begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.checkpoints.model_folder import move_into, write_model
from internalize.checkpoints.resumable import PARTIAL
from internalize.store import Input

STEP, BASE = "step", "base"


def build(
    folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Writes the model folder of a step.

    Args:
        folder: empty payload folder.
        spec: `dtype` (bfloat16, float16, float32, keep) and `shard_bytes`.
        inputs: `step` and the `base` that its arm started from.

    Returns:
        Facts: phase and step, tensors, parameters, bytes, type; or where the arm was stopped.

    Raises:
        UserError: the checkpoint is pruned, incomplete or damaged, or is another model than the base.
    """
    receipt = inputs[STEP].receipt
    step = int(receipt.spec["step"])
    facts: dict[str, Any] = {"step": step, "phase": receipt.facts["phase"]}
    if receipt.status == "stopped":
        return facts | {"converted": False, "stopped_at": receipt.facts["stopped_at"]}
    work = folder.with_name(folder.name.removesuffix(".partial") + PARTIAL)
    made = write_model(
        inputs[STEP].payload, step, inputs[BASE].payload, work, spec["dtype"], int(spec["shard_bytes"]), progress
    )
    move_into(work, folder)
    return facts | {"converted": True, **made}
