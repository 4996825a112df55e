"""What the archive is made from: payloads of the store, opened file by file.

Invariant: a file is used only after its bytes have been held against its receipt; files that are not used are neither
read nor missed, so that checkpoints cost nothing here and a pruned one does not stop the archive.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from internalize.errors import CorruptPayload, MissingPayload
from internalize.files import sha256_file
from internalize.receipts import PayloadFile, Receipt
from internalize.store import WORK, Store


def open_parts(store: Store, receipt: Receipt, wanted: Callable[[str], bool]) -> Path:
    """The payload folder, with every wanted file verified.

    Raises:
        MissingPayload: a wanted file is gone.
        CorruptPayload: one differs from the receipt.
    """
    folder = store.root / receipt.entry
    for file in receipt.files:
        if wanted(file.path):
            check(folder / file.path, file, receipt)
    return folder


def check_left(store: Store, receipt: Receipt) -> None:
    """Verifies what an agent CLI's harness left beside a payload: it is in no receipt, `run.json` lists its hashes.

    Raises:
        MissingPayload, CorruptPayload: as `open_parts`.
    """
    for row in store.run_info(receipt).get(WORK, []):
        file = PayloadFile.model_validate(row)
        check(store.root / receipt.entry / file.path, file, receipt)


def check(path: Path, file: PayloadFile, receipt: Receipt) -> None:
    """Raises unless the file's bytes are those that the receipt names."""
    fix = f"internalize forget {receipt.stage} {receipt.key[:16]}, then run the study again"
    if not path.is_file():
        raise MissingPayload(f"a file of {receipt.stage} `{receipt.name}` is gone", where=str(path), fix=fix)
    actual = sha256_file(path)
    if actual != file.sha256:
        raise CorruptPayload(
            f"content of {receipt.stage} `{receipt.name}` changed",
            where=str(path),
            expected=f"sha256 {file.sha256}",
            got=f"sha256 {actual}",
            fix=fix,
        )


def is_checkpoint(path: str) -> bool:
    """Does a payload path belong to a checkpoint (model, optimizer, tracker, cursor)?"""
    return path.startswith(("iter_", "latest_", "rollout/global_"))
