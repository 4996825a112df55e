"""What checkpoints there are: whole, pruned or broken, and why.

Invariant: a checkpoint is listed complete only when its receipt, every file of it at its size, its index, its data
cursor and its tracker are there, and the index covers every tensor; with ``verify``, only when every hash holds too.
Whatever else lies in the store beside checkpoints (unfinished writes, entries set aside) is listed apart, so that the
bytes add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from internalize.checkpoints import layout
from internalize.checkpoints.blobs import check_sum
from internalize.checkpoints.index import Index, read_index
from internalize.checkpoints.tombstone import read_tombstone
from internalize.checkpoints.torch_dist import METADATA, TorchDist
from internalize.errors import UserError
from internalize.files import digest, tree_files, write_json, write_text
from internalize.receipts import Receipt, read_receipt
from internalize.store import Store

STAGE = "step"
PLACE = re.compile(r"arms/(?P<arm>[^/]+)/seed(?P<seed>\d+)/steps\d+-\d+/step(?P<step>\d+)\.json$")


@dataclass(frozen=True)
class Checkpoint:
    """One row of the inventory.

    Attributes:
        state: complete, pruned, stopped (the guard ended the arm here: there is none) or incomplete.
        why: says why it is not complete.
        spec: first 12 hex digits of the hash of the step's settings.
        entry: folder below the store.
    """

    arm: str
    seed: int
    step: int
    phase: str
    state: str
    why: str
    files: int
    bytes: int
    spec: str
    entry: str


@dataclass(frozen=True)
class Other:
    """Something in the store that is no checkpoint of a receipt."""

    entry: str
    what: str
    files: int
    bytes: int


def step_receipts(results: Path, arm: str = "*", seed: str = "*") -> dict[tuple[str, int, int], Receipt]:
    """(arm, seed, step) -> receipt, of all arms and seeds or of one. Where segments of several cuts hold a step, the
    newest file counts."""
    found: dict[tuple[str, int, int], Receipt] = {}
    paths = (results / "receipts").glob(f"arms/{arm}/seed{seed}/steps*/step*.json")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime):
        match = PLACE.search(path.as_posix())
        if match is not None:
            found[match["arm"], int(match["seed"]), int(match["step"])] = read_receipt(path)
    return dict(sorted(found.items()))


def take_inventory(results: Path, store: Store, verify: bool = False) -> tuple[list[Checkpoint], list[Other]]:
    """The checkpoints of all receipts below ``results``, and what else lies in the store's folder of steps.

    Args:
        verify: read every file and compare its hash.
    """
    receipts = step_receipts(results)
    rows = [_row(*place, receipt, store, verify) for place, receipt in receipts.items()]
    known = {receipt.entry for receipt in receipts.values()}
    return rows, list(_others(store, known))


def why_incomplete(root: Path, iteration: int) -> str:
    """Why an iteration below ``root`` cannot be loaded; empty when it can.

    Looks at the index, at the size of every file, at the data cursor and at the tracker; reads no tensor.
    """
    folder = layout.iteration_folder(root, iteration)
    try:
        with TorchDist(folder) as checkpoint:
            uncovered = _uncovered(checkpoint.index)
        if uncovered:
            return f"{uncovered} is not covered by its chunks"
        layout.read_cursor(root, iteration)
        layout.read_tracker(root)
    except UserError as error:
        return f"{error.what}: {Path(error.where).name}, {error.got}"
    return ""


def broken_blobs(folder: Path) -> list[str]:
    """Files of an ``iter_*`` folder that hold a blob whose checksum differs: for folders without a receipt."""
    broken = []
    places = read_index(folder / METADATA).places.values()
    for file in sorted({place.file for place in places}):
        with (folder / file).open("rb") as handle:
            try:
                for place in places:
                    if place.file == file:
                        check_sum(handle.fileno(), place.offset, place.length)
            except ValueError as error:
                broken.append(f"{file}: {error}")
    return broken


def inspect_root(root: Path, verify: bool = False) -> list[dict[str, Any]]:
    """The iterations of a folder that no receipt describes (Megatron's and slime's layout)."""
    rows = []
    for iteration in layout.iterations(root):
        folder = layout.iteration_folder(root, iteration)
        why = why_incomplete(root, iteration)
        if not why and verify:
            why = "; ".join(broken_blobs(folder))
        files = tree_files(folder)
        size = sum(path.stat().st_size for path in files)
        state = "incomplete" if why else "complete"
        rows.append({"iteration": iteration, "state": state, "why": why, "files": len(files), "bytes": size})
    return rows


def write_inventory(folder: Path, rows: Sequence[Checkpoint], others: Sequence[Other]) -> None:
    """Writes ``checkpoints.json`` and ``checkpoints.md``."""
    plain = {"checkpoints": [asdict(row) for row in rows], "others": [asdict(other) for other in others]}
    write_json(folder / "checkpoints.json", plain)
    write_text(folder / "checkpoints.md", markdown(rows, others))


def markdown(rows: Sequence[Checkpoint], others: Sequence[Other]) -> str:
    """The inventory as a page."""
    whole = [row for row in rows if row.state == "complete"]
    lines = [
        "# Checkpoints",
        "",
        f"{len(rows)} steps: {len(whole)} complete checkpoints, {_size(sum(row.bytes for row in whole))}.",
        "",
        "| arm | seed | step | phase | state | files | size | spec | entry |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        state = f"{row.state}: {row.why}" if row.why else row.state
        lines.append(
            f"| {row.arm} | {row.seed} | {row.step} | {row.phase} | {state} | {row.files} | {_size(row.bytes)} "
            f"| `{row.spec}` | `{row.entry}` |"
        )
    if others:
        lines += ["", "## What else lies there", "", "| entry | what | files | size |", "|---|---|---|---|"]
        lines += [f"| `{one.entry}` | {one.what} | {one.files} | {_size(one.bytes)} |" for one in others]
    return "\n".join(lines) + "\n"


def _row(arm: str, seed: int, step: int, receipt: Receipt, store: Store, verify: bool) -> Checkpoint:
    root = store.root / receipt.entry
    folder = layout.iteration_folder(root, step)
    files = [path for path in tree_files(folder) if path.name != "pruned.json"] if folder.is_dir() else []
    state, why = _state(receipt, root, step, store, verify)
    return Checkpoint(
        arm,
        seed,
        step,
        str(receipt.facts.get("phase", receipt.spec.get("phase", ""))),
        state,
        why,
        len(files),
        sum(path.stat().st_size for path in files),
        digest(receipt.spec)[:12],
        receipt.entry,
    )


def _state(receipt: Receipt, root: Path, step: int, store: Store, verify: bool) -> tuple[str, str]:
    if receipt.status == "stopped":
        return "stopped", f"the guard stopped the arm at step {receipt.facts.get('stopped_at')}"
    try:
        stone = read_tombstone(layout.iteration_folder(root, step))
        if stone is not None:
            return "pruned", f"from step {stone.from_step} again by `{stone.command}`"
        if store.find(STAGE, receipt.key) is None:
            return "incomplete", "no entry in the store"
        if verify:
            store.open(receipt)
    except UserError as error:
        return "incomplete", f"{error.what}: {Path(error.where).name}"
    why = why_incomplete(root, step)
    return ("incomplete" if why else "complete"), why


def _others(store: Store, known: set[str]) -> Iterator[Other]:
    for path in sorted((store.root / STAGE).iterdir()) if (store.root / STAGE).is_dir() else ():
        entry = path.relative_to(store.root).as_posix()
        if entry in known or not path.is_dir():
            continue
        what = "complete, but no receipt names it"
        if path.name.endswith(".partial"):
            what = "unfinished: its writer is at work, or was killed"
        elif "." in path.name:
            what = f"set aside ({path.name.partition('.')[2].partition('-')[0]})"
        files = tree_files(path)
        yield Other(entry, what, len(files), sum(file.stat().st_size for file in files))


def _uncovered(index: Index) -> str:
    """A tensor whose chunks do not add up to it; empty when there is none."""
    for name, entry in index.tensors.items():
        if sum(chunk.sizes.numel() for chunk in entry.chunks) != entry.size.numel():
            return name
    return ""


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
