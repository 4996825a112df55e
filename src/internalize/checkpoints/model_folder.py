"""A checkpoint as a model folder that others load, and a model folder as a checkpoint that training starts from.

Invariant: a model folder says everything about itself: weights and index, config.json with the type of its numbers,
generation_config.json, tokenizer, and below ``megatron/`` what the run needs to go on from it: ``common.pt``, its
arguments as readable ``args.json``, the tracker and the data cursor. (Moments are not part of it.)
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from internalize.checkpoints import layout
from internalize.checkpoints.arguments import COMMON, check_config, read_common
from internalize.checkpoints.bridges import converter_for
from internalize.checkpoints.resumable import folder_for
from internalize.checkpoints.safetensors import ModelRows
from internalize.checkpoints.to_hf import SHARD_BYTES, Dtype
from internalize.files import fsync_dir, read_json, write_bytes, write_json, write_text

MEGATRON = "megatron"
ARGS = "args.json"
ASSETS = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
    "*processor_config.json",
    "configuration*.json",
)
"""Files of the original folder that belong to any model made from it."""
Progress = Callable[[str], None]


def write_model(
    root: Path,
    iteration: int,
    origin: Path,
    folder: Path,
    dtype: Dtype = "bfloat16",
    shard_bytes: int = SHARD_BYTES,
    progress: Progress = lambda text: None,
    need_cursor: bool = True,
) -> dict[str, Any]:
    """Writes iteration ``iteration`` of a checkpoint root as a model folder.

    Args:
        root: folder with ``iter_*``, tracker and ``rollout/``.
        origin: model folder that the run started from: config.json, generation config, tokenizer.
        folder: where the files go; it may hold those of an interrupted conversion.
        need_cursor: refuse a checkpoint without data cursor; False says so and leaves it out.

    Returns:
        Facts: tensors, parameters, bytes of the weights, type, converter.

    Raises:
        UserError: a part is missing or damaged, or config, arguments and tensors do not describe one model.
    """
    checkpoint = layout.iteration_folder(root, iteration)
    config = read_json(origin / "config.json")
    common = read_common(checkpoint / COMMON)
    check_config(config, common["args"], str(checkpoint / COMMON))
    converter = converter_for(config, str(origin / "config.json"))
    converter.to_hf(checkpoint, origin, folder, dtype, shard_bytes, progress)
    with ModelRows(folder) as rows:
        slots = dict(rows.slots)
    types = sorted({str(slot.dtype).removeprefix("torch.") for slot in slots.values()})
    write_json(folder / "config.json", _typed(config, types))
    if not (origin / "generation_config.json").exists():
        ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in config}
        write_json(folder / "generation_config.json", ids)
    for path in sorted(origin.iterdir()):
        if path.name == "generation_config.json" or any(fnmatch(path.name, pattern) for pattern in ASSETS):
            write_bytes(folder / path.name, path.read_bytes())
    if need_cursor or layout.cursor_path(root, iteration).exists():
        _write_run(root, iteration, folder / MEGATRON, common)
    else:
        progress("the checkpoint has no data cursor: the model folder gets no megatron/, training cannot go on from it")
    fsync_dir(folder)
    return {
        "tensors": len(slots),
        "parameters": sum(slot.bytes // slot.dtype.itemsize for slot in slots.values()),
        "bytes": sum(slot.bytes for slot in slots.values()),
        "dtype": ", ".join(types),
        "converter": converter.name,
    }


def write_root(model: Path, target: Path, dtype: Dtype = "keep", progress: Progress = lambda text: None) -> int:
    """Writes a model folder as a checkpoint root that training starts from; returns its iteration.

    A folder that ``write_model`` made keeps its iteration, arguments and data cursor; any other starts at 0.

    Raises:
        UserError: the folder is incomplete or damaged, or ``target`` is there already.
    """
    config = read_json(model / "config.json")
    run = model / MEGATRON
    args: dict[str, Any] = {"model_config": config, "optimizer": {}, "seed": 0, "steps": 0, "lr": 0.0}
    iteration, cursor = 0, {"step": 0, "seed": 0, "next_step": 0, "optimizer_steps": 0}
    if (run / COMMON).exists():
        common = read_common(run / COMMON)
        check_config(config, common["args"], str(run / COMMON))
        iteration = layout.read_tracker(run)
        cursor = layout.read_cursor(run, iteration)
        args |= {key: value for key, value in common["args"].items() if key != "optimizer"}
    args |= {"has_moments": False, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1}
    with folder_for(target) as work:
        checkpoint = layout.iteration_folder(work, iteration)
        converter_for(config, str(model / "config.json")).from_hf(model, checkpoint, iteration, args, dtype, progress)
        layout.write_cursor(work, iteration, cursor)
        layout.write_tracker(work, iteration)
    return iteration


def _write_run(root: Path, iteration: int, folder: Path, common: dict[str, Any]) -> None:
    """What a run needs besides weights to go on."""
    cursor = layout.existing_cursor(root, iteration)
    write_bytes(folder / COMMON, (layout.iteration_folder(root, iteration) / COMMON).read_bytes())
    write_json(folder / ARGS, common)
    write_bytes(layout.cursor_path(folder, iteration), cursor.read_bytes())
    write_text(folder / layout.TRACKER, str(iteration))


def _typed(config: dict[str, Any], types: list[str]) -> dict[str, Any]:
    """config.json with the type that the weights really have; mixed types leave it as it is."""
    if len(types) != 1:
        return config
    return {**config, ("dtype" if "torch_dtype" not in config else "torch_dtype"): types[0]}


def move_into(work: Path, folder: Path) -> None:
    """Moves all that lies in ``work`` into ``folder`` (same file system) and removes ``work``."""
    for path in sorted(work.iterdir()):
        path.replace(folder / path.name)
    shutil.rmtree(work)
