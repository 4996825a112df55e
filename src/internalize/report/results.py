"""A finished study as it lies on disk: the results folder, its receipts, the store behind them.

Invariant: an input is named as the report's own rule named it, and it is the receipt with exactly the hash that the
report was made from; nothing here is guessed from a folder's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize import runlog
from internalize.errors import MissingPayload
from internalize.inputs import SEGMENT, input_name
from internalize.receipts import Receipt, read_receipt
from internalize.store import Input, Store

RECEIPTS = "receipts"


@dataclass(frozen=True)
class Results:
    """A results folder with its store."""

    folder: Path
    store: Store
    report: Receipt
    archive: Receipt | None
    """None while the study has not been archived."""
    receipts: Mapping[str, Receipt]
    """Label (`evals.recite.0`, `step.recite.0.0003`, ...) -> receipt, for every input of the report."""
    paths: Mapping[str, Path]
    """Label -> where its receipt lies."""
    others: Mapping[str, Receipt]
    """Hash -> receipt, for every receipt of the folder."""
    found: Mapping[Path, Receipt]
    """Every receipt of the folder, by where it lies."""

    @property
    def spec(self) -> dict[str, Any]:
        """The report's spec: the arms as told."""
        return self.report.spec

    def payload(self, label: str) -> Path:
        """The payload folder of an input; not verified."""
        return self.store.root / self.receipts[label].entry

    def inputs(self) -> dict[str, Input]:
        """The inputs of the report; not verified."""
        return {label: Input(receipt, self.payload(label)) for label, receipt in self.receipts.items()}

    def words(self) -> list[str]:
        """The `--config` words of the last launch of this study, as the store's log has them; none without a log."""
        found: list[str] = []
        for event in runlog.events(self.store.root):
            if event["event"] == "launched" and event.get("name") == self.spec["name"]:
                found = [str(word) for word in event.get("config", [])]
        return found


def read_results(folder: Path, store: Path) -> Results:
    """Reads the receipts of a results folder.

    Raises:
        MissingPayload: there is no report, or a receipt that it was made from is gone.
        CorruptPayload: a file among the receipts is none.
    """
    root = folder / RECEIPTS
    if not (root / "report.json").exists():
        raise MissingPayload(
            "no report yet", where=str(root / "report.json"), fix="run `make study` (or `snakemake`) first"
        )
    report = read_receipt(root / "report.json")
    found = {path: read_receipt(path) for path in sorted(root.rglob("*.json"))}
    by_hash: dict[str, list[Path]] = {}
    for path, receipt in found.items():
        by_hash.setdefault(receipt.hash(), []).append(path)
    paths = {}
    for label, digest in sorted(report.parents.items()):
        # arms that share a step share its receipt: take the one that lies where the label says
        at = [path for path in by_hash.get(digest, []) if label_of(path) == label]
        if not at:
            raise MissingPayload(
                f"the receipt of `{label}`, which the report was made from, is gone",
                where=str(root),
                expected=f"a receipt with hash {digest[:16]}",
                fix="run the study again: the store makes it anew without computing",
            )
        paths[label] = at[-1]
    archive = root / "archive.json"
    return Results(
        folder,
        Store(store),
        report,
        found.get(archive),
        {label: found[path] for label, path in paths.items()},
        paths,
        {digest: found[at[0]] for digest, at in by_hash.items()},
        found,
    )


def label_of(path: Path) -> str:
    """The name that the report's rule gives to a receipt."""
    match = SEGMENT.search(path.as_posix())
    if match is None:
        return input_name(path.as_posix())
    return f"step.{match['arm']}.{match['seed']}.{path.stem.removeprefix('step')}"
