"""Saving and loading Megatron's torch_dist checkpoints inside this process.

Invariant: the bytes depend on the state alone. Equal states give equal files, whatever the folder's name, the
process or its history; so a repeated step has the hashes of the first. Three things of the stock path had to
go: the folder name and a random id in ``.metadata``, and pickles whose bytes depend on which equal strings
happen to be one object.

The stock strategy hands the writing to a manager process, which costs more than a small step and breaks
scripts without a ``__main__`` guard; here torch's own FileSystemWriter writes in this process, in the same
layout. ``metadata.json`` is written last (by Megatron), so an interrupted save never looks complete.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from internalize import files
from internalize.checkpoints.torch_dist import METADATA, TorchDist
from internalize.errors import CorruptPayload, UserError
from internalize.train.mcore import (
    CheckpointingException,
    MCoreSavePlanner,
    SaveShardedStrategy,
    ShardedObject,
    ShardedTensor,
    dist_checkpointing,
    mcore_to_pyt_state_dict,
    replace_keys_with_sharded_keys,
)

_SHARD = re.compile(r"__(\d+)_\d+\.distcp")
_TORCH_SAVE_FAILED = re.compile("PytorchStreamWriter|inline_container|iostream error")


def save(state: dict[str, Any], folder: Path) -> None:
    """Writes a (sharded) state dict into an empty or absent folder; all ranks call it.

    Args:
        state: as Megatron's ``sharded_state_dict`` gives it, plus plain values for ``common.pt``.
        folder: the caller renames it into place when everything of its step is there.

    Raises:
        UserError: the file system refused a write.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _quiet():
            dist_checkpointing.save(
                _canonical(state), str(folder), sharded_strategy=_InProcess(), validate_access_integrity=False
            )
        for path in sorted(folder.iterdir()):
            if _is_mine(path.name):
                with path.open("rb") as handle:
                    os.fsync(handle.fileno())
        files.fsync_dir(folder)
    except (OSError, RuntimeError) as error:
        raise _refused_write(error, folder) or error from error
    except dcp.api.CheckpointException as error:  # a BaseException that carries what went wrong on each rank
        failures = [failure for failure, _ in error.failures.values()]
        known = (_refused_write(failure, folder) for failure in failures)
        raise next(filter(None, known), failures[0]) from error


def load(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Megatron's own load, after the folder has been checked by ``TorchDist`` (so that no pickle of it is
    trusted unseen).

    Args:
        state: sharded state dict that says which tensors, at which parallel shape, are wanted.

    Raises:
        MissingPayload, CorruptPayload: the folder is incomplete or damaged, or holds another model.
    """
    with TorchDist(folder):
        pass
    try:
        with _quiet():
            loaded: dict[str, Any] = dist_checkpointing.load(state, str(folder), validate_access_integrity=False)
    except (
        dcp.api.CheckpointException,
        CheckpointingException,
        RuntimeError,
        EOFError,
        pickle.UnpicklingError,
        ValueError,
    ) as error:
        raise CorruptPayload(
            "the checkpoint does not hold this trainer's state",
            where=str(folder),
            expected="every tensor of the model and, where asked for, of its optimizer",
            got=str(error).strip().splitlines()[-1][:300],
            fix="rerun the step that wrote it",
        ) from error
    return loaded


def _is_mine(name: str) -> bool:
    """Did this rank write the file? Only its writer can make it durable on a network file system."""
    shard = _SHARD.match(name)
    return dist.get_rank() == (int(shard[1]) if shard else 0)


def _refused_write(error: BaseException, folder: Path) -> UserError | None:
    """The user's error for a write that the file system refused; torch.save's writer hides the OSError."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, OSError):
        return files.disk_error(error, folder)
    if isinstance(error, RuntimeError) and _TORCH_SAVE_FAILED.search(str(error)):
        return files.disk_error(OSError(errno.EIO, "torch.save failed, the disk may be full"), folder)
    return None


class _InProcess(SaveShardedStrategy):  # type: ignore[misc]  # megatron-core ships no types
    """Megatron's sharded tensors -> torch's distributed checkpoint, in this process, one file a rank."""

    def __init__(self) -> None:
        super().__init__("torch_dist", 1)

    @property
    def can_handle_sharded_objects(self) -> bool:
        return True

    def save(self, sharded_state_dict: dict[str, Any], checkpoint_dir: str | Path) -> None:
        by_key, _, _ = replace_keys_with_sharded_keys(sharded_state_dict, True)
        dcp.state_dict_saver._save_state_dict(
            mcore_to_pyt_state_dict(by_key, False),
            storage_writer=_Writer(checkpoint_dir, sync_files=False),
            planner=MCoreSavePlanner(dedup_replicated_tensors=False, flatten_state_dict=False),
        )


class _Writer(FileSystemWriter):
    """Torch's writer with an index whose bytes are a function of its content."""

    def storage_meta(self) -> StorageMeta:
        return StorageMeta()

    def finish(self, metadata: Metadata, results: list[list[Any]]) -> None:
        super().finish(metadata, results)
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, protocol=4)
        pickler.fast = True  # no memo: equal values give equal bytes, shared or not
        pickler.dump(metadata)
        files.write_bytes(Path(self.path) / METADATA, buffer.getvalue())


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides two deprecation notes that Megatron's calls into torch cause; nothing here could act on them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`load_state_dict` is deprecated", category=FutureWarning)
        warnings.filterwarnings("ignore", message="Please use DTensor instead", category=FutureWarning)
        yield


def _canonical(value: Any) -> Any:
    """The same nested value with fresh containers and interned strings, so that its pickle depends on its
    content alone.
    """
    if isinstance(value, ShardedTensor | ShardedObject):
        return value
    if isinstance(value, str):
        return sys.intern(value)
    if isinstance(value, dict):
        return {_canonical(k): _canonical(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_canonical(v) for v in value)
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return value
