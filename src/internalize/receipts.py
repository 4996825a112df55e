"""Receipts: the small JSON files that the DAG is made of.

Invariant: a receipt holds only what is determined by (spec, code, parents): two runs of the same study on one machine
write equal receipts, so a forced rerun that changes nothing stops the cascade. What differs from run to run (attempts,
wall and CPU time, host, versions) lies in `run.json` beside the payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import digest, read_json, write_json

RECEIPT_VERSION = 1


class PayloadFile(BaseModel):
    """One payload file: path below the entry, content hash and size in bytes."""

    model_config = ConfigDict(extra="forbid")
    path: str
    sha256: str
    bytes: int


class Receipt(BaseModel):
    """What one stage did and what it left behind."""

    model_config = ConfigDict(extra="forbid")
    version: int = RECEIPT_VERSION
    stage: str
    name: str
    """Readable name of the entry, for example `recite-seed0-step0003`."""
    key: str
    """SHA-256 of (stage, spec, code, parents): the store key."""
    code: str
    """Fingerprint of the package code that the stage imports."""
    spec: dict[str, Any]
    parents: dict[str, str]
    """Input name -> hash of that input's receipt."""
    entry: str
    """Payload folder, relative to the store."""
    files: list[PayloadFile]
    status: Literal["done", "stopped"] = "done"
    facts: dict[str, Any]
    """Small deterministic results that later stages and tables use."""

    def hash(self) -> str:
        """Hash of what a later stage can read: settings, files, facts and status.

        Name, code and parents are left out: arms that share a step share its result, and an edit that changes no
        byte of a result reruns nothing behind it.
        """
        return digest(self.model_dump(include={"stage", "spec", "files", "status", "facts"}))

    def payload_bytes(self) -> int:
        """Size of the payload in bytes."""
        return sum(file.bytes for file in self.files)


def write_receipt(path: Path, receipt: Receipt) -> None:
    """Writes a receipt, unless the file already says exactly this (an equal receipt keeps its time stamp)."""
    if path.exists():
        try:
            if read_receipt(path) == receipt:
                path.touch()
                return
        except CorruptPayload:
            pass
    write_json(path, receipt.model_dump())


def read_receipt(path: Path) -> Receipt:
    """Reads and validates a receipt.

    Raises:
        MissingPayload: the file is not there.
        CorruptPayload: it is not a receipt.
    """
    if not path.exists():
        raise MissingPayload(
            "receipt not found", where=str(path), fix="run the study again: the store makes it anew without computing"
        )
    raw = read_json(path)
    try:
        return Receipt.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise CorruptPayload(
            f"not a receipt: {first['msg']} at {'.'.join(map(str, first['loc']))}",
            where=str(path),
            fix="delete the file and run the study again: the store makes it anew without computing",
        ) from error


def ancestors(receipt: Receipt, known: Mapping[str, Receipt]) -> dict[str, Receipt]:
    """By hash: what a receipt was made from, directly or not, as far as it is among the `known` (hash -> receipt)."""
    found: dict[str, Receipt] = {}
    waiting = list(receipt.parents.values())
    while waiting:
        digest = waiting.pop()
        if digest in known and digest not in found:
            found[digest] = known[digest]
            waiting += known[digest].parents.values()
    return found
