"""Where the parts of a checkpoint lie: iteration folders, the tracker, the data cursor.

Invariant: the tracker names an iteration only after that iteration's folder and cursor are in place, so
whoever follows the tracker finds model, optimizer, random state and cursor of one and the same step::

    root/latest_checkpointed_iteration.txt              the tracker: "12"
    root/iter_0000012/                                  see torch_dist
    root/rollout/global_dataset_state_dict_12.pt        the data cursor after step 12

These are Megatron's and slime's own names. The functions take the root as given: a stage writes into a
temporary folder and renames the whole.
"""

from __future__ import annotations

import io
import pickle
import re
from pathlib import Path
from typing import Any

from internalize import files
from internalize.errors import CorruptPayload, MissingPayload

TRACKER = "latest_checkpointed_iteration.txt"
ITERATION = re.compile(r"iter_(\d{7,})")


def iteration_folder(root: Path, iteration: int) -> Path:
    """The folder of an iteration's model and optimizer."""
    return root / f"iter_{iteration:07d}"


def iterations(root: Path) -> list[int]:
    """Iterations that have a folder under ``root``, ascending, complete or not."""
    found = (ITERATION.fullmatch(path.name) for path in root.iterdir()) if root.is_dir() else ()
    return sorted(int(match[1]) for match in found if match)


def cursor_path(root: Path, iteration: int) -> Path:
    """The file of the data cursor that belongs to an iteration."""
    return root / "rollout" / f"global_dataset_state_dict_{iteration}.pt"


def existing_cursor(root: Path, iteration: int) -> Path:
    """The file of the data cursor of an iteration.

    Raises:
        MissingPayload: there is none; training must not go on with a guessed data order.
    """
    path = cursor_path(root, iteration)
    if not path.is_file():
        raise MissingPayload(
            "the checkpoint has no data cursor",
            where=str(path),
            expected=f"the cursor of iteration {iteration}, written together with its model",
            got="no such file",
            fix="rerun that step: without its cursor the data would silently start over",
        )
    return path


def write_cursor(root: Path, iteration: int, cursor: dict[str, Any]) -> None:
    """Writes the data cursor: plain values that say which data the next step starts with.

    The bytes depend on the values alone.

    Raises:
        UserError: the file system refused the write.
    """
    import torch  # only writing and reading a cursor needs it; the names above are used without

    buffer = io.BytesIO()
    torch.save(cursor, buffer)
    files.write_bytes(cursor_path(root, iteration), buffer.getvalue())


def read_cursor(root: Path, iteration: int) -> dict[str, Any]:
    """The data cursor of an iteration.

    Raises:
        MissingPayload: there is none.
        CorruptPayload: it cannot be decoded, or holds anything but plain values.
    """
    import torch

    path = existing_cursor(root, iteration)
    try:
        cursor = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from error
    if not isinstance(cursor, dict):
        raise _damaged(path, type(cursor).__name__)
    return cursor


def write_tracker(root: Path, iteration: int) -> None:
    """Names ``iteration`` as the latest; call it last.

    Raises:
        MissingPayload: the iteration's folder or cursor is not there yet.
    """
    for path in (iteration_folder(root, iteration), cursor_path(root, iteration)):
        if not path.exists():
            raise MissingPayload(
                "the tracker may not name an iteration that is not complete",
                where=str(path),
                expected="model folder and data cursor, written before the tracker",
                got="no such path",
            )
    files.write_text(root / TRACKER, f"{iteration}")


def read_tracker(root: Path) -> int:
    """The latest complete iteration.

    Raises:
        MissingPayload: there is no tracker. Nothing falls back to a base model on its own.
        CorruptPayload: it does not hold a number.
    """
    path = root / TRACKER
    if not path.is_file():
        raise MissingPayload(
            "no checkpoint here",
            where=str(path),
            expected=f"{TRACKER} beside the iter_* folders",
            got="no such file" if root.is_dir() else "no such folder",
            fix="rerun the step that should have written it, or name another folder",
        )
    text = path.read_text().strip()
    if not text.isdecimal():
        raise CorruptPayload("the tracker is damaged", where=str(path), expected="one number", got=repr(text[:40]))
    return int(text)


def _damaged(path: Path, got: str) -> CorruptPayload:
    return CorruptPayload(
        "the data cursor is damaged",
        where=str(path),
        expected="a torch.save file of plain values",
        got=got,
        fix="rerun the step that wrote it",
    )
