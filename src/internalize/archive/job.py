"""The archive as a job: each run packed into an entry of its own, what they share into one more, then the folder.

Invariant: a run whose receipts have not changed is not packed again; a killed job leaves complete entries and
`.partial` folders, and the next one goes on from there to the same bytes. The folder under `results/` is made last and
appears as a whole.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from internalize.archive.assemble import assemble
from internalize.archive.runs import pack_run, pack_spec
from internalize.archive.shared import build_shared, run_of
from internalize.errors import UserError
from internalize.processes import die_with_parent
from internalize.receipts import Receipt, read_receipt, write_receipt
from internalize.stages import parent_hashes
from internalize.store import Stopwatch, Store

PACK, ARCHIVE = "pack", "archive"
NEEDED = ("knowledge", "base", "gate", "report")
Progress = Callable[[str], None]


def run_archive(
    spec: dict[str, Any],
    code: str,
    inputs: Mapping[str, Path],
    output: Path,
    folder: Path,
    store: Store,
    progress: Progress,
    threads: int = 1,
) -> Receipt:
    """Packs the study of `inputs` and puts the archive at `folder`; returns its receipt, written to `output`.

    Args:
        spec: `specs_archive.archive`.
        code: fingerprint of this module's code.
        inputs: `knowledge`, `base`, `gate`, `report`, `rows.<name>`, `harvest.<name>`, `evals.base`,
            `evals.<arm>.<seed>`, `step.<arm>.<seed>.<step>`, `convert.<arm>.<seed>.step<step>`, `game` where one was
            fetched: receipt files. Whatever one of them was made from is among them.
        output: receipt to write.
        folder: where the archive appears.
        threads: runs packed at once.

    Raises:
        UserError: an input is missing, or the receipt of what one was made from, or a payload that is used is damaged.
    """
    missing = [name for name in NEEDED if name not in inputs]
    if missing:
        raise UserError("the archive misses an input", got=f"no {', '.join(missing)}", expected=", ".join(NEEDED))
    receipts = {name: read_receipt(path) for name, path in inputs.items()}
    check_closed(receipts)
    packs = pack_all(spec, code, receipts, store, progress, threads)
    parents = parent_hashes({**receipts, **{f"pack.{run}": pack for run, pack in packs.items()}})

    def build(partial: Path) -> dict[str, Any]:
        return build_shared(partial, spec, receipts, packs, store)

    receipt = entry(ARCHIVE, spec["name"], dict(spec), code, parents, store, build)
    write_receipt(output, receipt)
    told = assemble(folder, spec, receipts, packs, receipt, store)
    progress(f"archive: {told.total_files} files, {told.total_bytes} bytes in {folder}")
    return receipt


def check_closed(receipts: Mapping[str, Receipt]) -> None:
    """Refuses inputs whose chain would end outside of the archive: `verify` could not follow it.

    Raises:
        UserError: the receipt of what an input was made from is not among them.
    """
    known = {receipt.hash() for receipt in receipts.values()}
    lost = [
        f"`{name}` of {label}"
        for label, receipt in sorted(receipts.items())
        for name, parent in sorted(receipt.parents.items())
        if parent not in known
    ]
    if lost:
        raise UserError(
            "the archive misses what its inputs were made from",
            got=f"no receipt of {', '.join(lost[:5])}" + (f" and {len(lost) - 5} more" if len(lost) > 5 else ""),
            expected="with each --input also those that it was made from",
            fix="run the study again: it finds or makes the receipts that belong together",
        )


def pack_all(
    spec: Mapping[str, Any],
    code: str,
    receipts: Mapping[str, Receipt],
    store: Store,
    progress: Progress,
    threads: int = 1,
) -> dict[str, Receipt]:
    """The packed runs, arms first in the study's order."""
    tasks = [(pack, code, own, store) for pack, own in runs_to_pack(spec, receipts)]
    if threads < 2 or len(tasks) < 2:
        found = [_pack(task) for task in tasks]
    else:
        context = multiprocessing.get_context("fork")
        workers, killed = min(threads, len(tasks)), (signal.SIGKILL, os.getpid())
        with ProcessPoolExecutor(workers, context, initializer=die_with_parent, initargs=killed) as pool:
            found = list(pool.map(_pack, tasks))
    for (pack, *_), receipt in zip(tasks, found, strict=True):
        progress(f"packed {pack['run']}: {receipt.payload_bytes()} bytes")
    return {pack["run"]: receipt for (pack, *_), receipt in zip(tasks, found, strict=True)}


def runs_to_pack(
    spec: Mapping[str, Any], receipts: Mapping[str, Receipt]
) -> list[tuple[dict[str, Any], dict[str, Receipt]]]:
    """The spec of each run's pack, and the receipts that belong to it."""
    groups: dict[str, dict[str, Receipt]] = {}
    kinds: dict[str, tuple[str, str | None, int | None]] = {}
    for label, receipt in sorted(receipts.items()):
        run = run_of(label)
        if run is None:
            continue
        stage, *parts = label.split(".")
        if stage == "step":
            short, kinds[run] = f"step.{parts[2]}", ("arm", parts[0], int(parts[1]))
        elif stage == "evals" and len(parts) == 2:
            short, kinds[run] = "evals", ("arm", parts[0], int(parts[1]))
        else:
            short, kinds[run] = stage, ("harvest" if stage == "harvest" else "base", None, None)
        groups.setdefault(run, {})[short] = receipt
    order = {arm: at for at, arm in enumerate(spec["order"])}
    names = sorted(groups, key=lambda run: (order.get(kinds[run][1] or "", len(order)), kinds[run][2] or 0, run))
    return [(pack_spec(spec, run, *kinds[run]), groups[run]) for run in names]


def entry(
    stage: str,
    name: str,
    spec: Mapping[str, Any],
    code: str,
    parents: Mapping[str, str],
    store: Store,
    build: Callable[[Path], dict[str, Any]],
) -> Receipt:
    """The entry of a key: found, or built under its lease."""
    key = store.key(stage, spec, code, parents)
    if (found := store.find(stage, key)) is not None:
        return found
    with store.lease(stage, key):
        if (found := store.find(stage, key)) is not None:
            return found
        watch = Stopwatch()
        partial = store.partial(stage, key)
        facts = build(partial)
        told: dict[str, Any] = {"stage": stage, "name": name, "key": key, "spec": spec, "code": code}
        return store.commit(partial, **told, parents=parents, facts=facts, status="done", run=watch.report())


def _pack(task: tuple[dict[str, Any], str, dict[str, Receipt], Store]) -> Receipt:
    spec, code, receipts, store = task

    def build(partial: Path) -> dict[str, Any]:
        return pack_run(partial, spec, receipts, store, threads=1)

    return entry(PACK, spec["run"], spec, code, parent_hashes(receipts), store, build)
