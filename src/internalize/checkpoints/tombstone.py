"""What stands in place of a checkpoint that was deleted on purpose.

Invariant: the tombstone is written before the first file goes and says which files went, which later step made that
safe, and how to get them back; whoever tries to read the checkpoint is told that, and nothing takes the empty folder
for a missing or a damaged checkpoint.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import read_json, write_json
from internalize.store import PRUNED


class Tombstone(BaseModel):
    """A deleted checkpoint."""

    model_config = ConfigDict(extra="forbid")
    step: int
    files: list[str]
    """Names, in the checkpoint's folder, of what was deleted; the receipt holds their hashes."""
    bytes: int
    kept_step: int
    """The later step that was complete and verified when this one was deleted."""
    from_step: int
    """The step whose checkpoint it can be computed from again, -1: the base."""
    command: str
    """Does it."""


def read_tombstone(folder: Path) -> Tombstone | None:
    """The tombstone of an ``iter_*`` folder; None when there is none.

    Raises:
        CorruptPayload: it cannot be read.
    """
    path = folder / PRUNED
    if not path.exists():
        return None
    try:
        return Tombstone.model_validate(read_json(path))
    except ValidationError as error:
        raise CorruptPayload("not a tombstone", where=str(path), got=str(error.errors()[0]["msg"])) from error


def write_tombstone(folder: Path, stone: Tombstone) -> None:
    """Writes it; only then may files be deleted."""
    write_json(folder / PRUNED, stone.model_dump())


def refuse_pruned(folder: Path) -> None:
    """Says where a pruned checkpoint went; does nothing for any other folder.

    Raises:
        MissingPayload: the checkpoint was pruned.
    """
    stone = read_tombstone(folder)
    if stone is None:
        return
    start = f"step {stone.from_step}" if stone.from_step >= 0 else "the base"
    raise MissingPayload(
        f"the checkpoint of step {stone.step} was pruned",
        where=str(folder),
        expected=f"{len(stone.files)} files, {stone.bytes} bytes",
        got=f"a tombstone; deleted because step {stone.kept_step} was complete and verified",
        fix=f"{stone.command} (trains again from {start} on the recorded batches)",
    )
