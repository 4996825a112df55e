"""A folder that is made over several attempts and appears when it is whole.

Invariant: under its own name a folder is never half made; one process makes it at a time; an attempt with the same
source and settings as the one before keeps what that one finished, an attempt with others starts over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from internalize.errors import LeaseHeld, UserError
from internalize.files import disk_error, fsync_dir, read_json, write_json

PLAN = "conversion.json"
PARTIAL = ".converting"


@contextlib.contextmanager
def folder_for(target: Path) -> Iterator[Path]:
    """A working folder beside ``target`` that becomes ``target`` when the block ends well; kept when it does not.

    Raises:
        UserError: there is something at ``target`` already.
        LeaseHeld: another process is making it.
    """
    if target.exists():
        raise UserError(
            "the target folder is there already",
            where=str(target),
            expected="a name that is free: a conversion never writes into a finished folder",
            fix="name another folder, or move this one away",
        )
    work = target.with_name(target.name + PARTIAL)
    try:
        work.mkdir(parents=True, exist_ok=True)
        with _held(work):
            try:
                yield work
                os.replace(work, target)
            finally:
                with contextlib.suppress(OSError):
                    work.rmdir()  # only when nothing was begun
        fsync_dir(target.parent)
    except OSError as error:
        raise disk_error(error, target) from error


def start(folder: Path, identity: str, leftovers: tuple[str, ...]) -> None:
    """Prepares a folder for an attempt: removes half-written files, and what another source or other settings left.

    Args:
        identity: changes with the source and the settings.
        leftovers: patterns of the files that an attempt finishes one by one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PLAN
    same = path.exists() and read_json(path).get("identity") == identity
    for pattern in ("**/*.tmp", *(() if same else leftovers)):  # below it too: files of `megatron/` can be cut
        for left in folder.glob(pattern):
            left.unlink()
    if not same:
        write_json(path, {"identity": identity})


def finish(folder: Path) -> None:
    """Removes the mark of an unfinished attempt."""
    (folder / PLAN).unlink(missing_ok=True)
    fsync_dir(folder)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise LeaseHeld(
            "another process is making this folder",
            where=str(folder),
            fix="wait for it to end or end it, then run the same command again: nothing is lost",
        ) from None
    finally:
        os.close(handle)
