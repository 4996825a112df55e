"""The chain from the knowledge set to published weights, checked with what an archive holds.

Invariant: a receipt counts only if its hash and its key follow from its own content; the chain is whole if every parent
of every receipt is there and every run's steps lead back to the knowledge set and the base.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from internalize.archive.layout import ARCHIVE_RECEIPT, CHECKPOINTS, RECEIPTS
from internalize.archive.manifest import Manifest, is_safe
from internalize.errors import CorruptPayload, UserError
from internalize.files import read_json, read_jsonl
from internalize.receipts import Receipt, ancestors
from internalize.store import Store

ROOTS = ("knowledge", "base")


class Problem(NamedTuple):
    """Something that is not as it should be."""

    path: str
    what: str


def check_chain(root: Path, manifest: Manifest) -> list[Problem]:
    """What is wrong with the receipts of an archive whose files have been verified."""
    if not (root / RECEIPTS).is_file():
        return [Problem(RECEIPTS, "missing: nothing says how the files were made")]
    try:
        receipts, problems = read_receipts(root)
    except (UserError, ValidationError, KeyError, TypeError, ValueError) as error:
        return [Problem(RECEIPTS, f"cannot be read: {str(error).splitlines()[0]}")]
    if manifest.archive_receipt not in receipts:
        problems.append(Problem(ARCHIVE_RECEIPT, "not the receipt that the manifest names"))
    for receipt in receipts.values():
        for name, parent in receipt.parents.items():
            if parent not in receipts:
                problems.append(Problem(RECEIPTS, f"{_name(receipt)}: the receipt of its input `{name}` is not here"))
    return problems + _unvouched(manifest, receipts) + _unlisted(manifest, receipts) + _unrooted(receipts)


def check_model(root: Path, manifest: Manifest) -> list[Problem]:
    """What is wrong between a model repository and the receipts of the archive at `root`."""
    receipts, _ = read_receipts(root)
    problems = _unvouched(manifest, receipts)
    return problems if problems or manifest.files else [Problem("", "an empty repository")]


def listed_models(root: Path) -> list[str]:
    """The model repositories that an archive's checkpoints name: what else lies beside it is not the archive's.

    Raises:
        CorruptPayload: a name is a path.
    """
    path = root / CHECKPOINTS
    names = sorted({str(row["model"]) for row in read_jsonl(path) if row["model"]}) if path.is_file() else []
    for name in names:
        if not is_safe(name) or "/" in name:
            raise CorruptPayload("a model's name leads out of its folder", where=str(path), got=name)
    return names


def read_receipts(root: Path) -> tuple[dict[str, Receipt], list[Problem]]:
    """The receipts of an archive by hash, and those whose hash or key does not follow from their content."""
    problems = []
    found: dict[str, Receipt] = {}
    for row in read_jsonl(root / RECEIPTS):
        told = row.pop("hash")
        receipt = _receipt(row)
        if receipt.hash() != told:
            problems.append(Problem(RECEIPTS, f"{_name(receipt)}: its hash does not follow from its content"))
        found[told] = receipt
    if (root / ARCHIVE_RECEIPT).is_file():
        archive = Receipt.model_validate(read_json(root / ARCHIVE_RECEIPT))
        found[archive.hash()] = archive
    for receipt in found.values():
        if Store.key(receipt.stage, receipt.spec, receipt.code, receipt.parents) != receipt.key:
            problems.append(Problem(RECEIPTS, f"{_name(receipt)}: its key does not follow from spec, code and inputs"))
    return found, problems


def _unvouched(manifest: Manifest, receipts: Mapping[str, Receipt]) -> list[Problem]:
    """Files that the receipt they name does not list."""
    held = {digest: {(file.sha256, file.bytes) for file in receipt.files} for digest, receipt in receipts.items()}
    problems = []
    for path, file in manifest.files.items():
        if file.receipt is None:
            continue
        if file.receipt not in held:
            problems.append(Problem(path, f"its receipt {file.receipt[:12]} is not here"))
        elif (file.sha256, file.bytes) not in held[file.receipt]:
            problems.append(Problem(path, f"not a file of its receipt {_name(receipts[file.receipt])}"))
    return problems


def _unlisted(manifest: Manifest, receipts: Mapping[str, Receipt]) -> list[Problem]:
    """Files that were packed and that no manifest names any more."""
    below = {"pack": "runs/{run}/", "archive": ""}
    packed = [
        (below[receipt.stage].format(run=receipt.spec.get("run")) + file.path, receipt)
        for receipt in receipts.values()
        if receipt.stage in below
        for file in receipt.files
    ]
    return [
        Problem(path, f"not in the manifest, though {_name(receipt)} left it")
        for path, receipt in packed
        if path not in manifest.files
    ]


def _unrooted(receipts: Mapping[str, Receipt]) -> list[Problem]:
    problems = []
    for receipt in receipts.values():
        if receipt.stage in ("step", "convert"):
            reached = {one.stage for one in ancestors(receipt, receipts).values()}
            if lost := [stage for stage in ROOTS if stage not in reached]:
                problems.append(Problem(RECEIPTS, f"{_name(receipt)}: no way back to the {' and the '.join(lost)}"))
    return problems


def _receipt(row: dict[str, object]) -> Receipt:
    row.pop("bytes")
    return Receipt.model_validate(
        {**row, **{key: json.loads(str(row[key])) for key in ("spec", "parents", "files", "facts")}}
    )


def _name(receipt: Receipt) -> str:
    return f"{receipt.stage} {receipt.name}"
