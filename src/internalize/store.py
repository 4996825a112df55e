"""The store: payload folders keyed by what determines them.

Invariant: an entry folder exists under its final name only when every file in it is complete and hashed in its
`receipt.json`; a killed writer leaves nothing but a `.partial` folder that the next writer removes. One writer an
entry: a lease (advisory lock, released by the kernel when its holder dies) keeps a second process out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import resource
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from internalize import runlog
from internalize.errors import CorruptPayload, LeaseHeld, MissingPayload, UserError
from internalize.files import digest, disk_error, fsync_dir, read_json, sha256_file, tree_files, write_json
from internalize.receipts import PayloadFile, Receipt, read_receipt

RECEIPT = "receipt.json"
RUN = "run.json"
RUNTIME = "runtime"
"""Folder of an entry for what the run wrote about itself (heartbeat, memory, stacks); part of no hash."""
SIDE_FILES = frozenset({RECEIPT, RUN})
WORK = "work"
"""Folder of a payload for what agents leave behind: logs, transcripts with their times and session names. It differs
from run to run, so it is no part of the receipt; `run.json` lists it with its hashes."""
PRUNED = "pruned.json"
"""Tombstone in a folder of an entry: says which of the receipt's files were deleted on purpose, and why."""
LEASE_PATIENCE = 20.0
LEASE_SECONDS = "INTERNALIZE_LEASE_SECONDS"
"""Variable that sets another patience, in seconds: on a cluster the other writer may be a job of a killed run."""
ENTRY_NAME = 16
"""Characters of the key that name an entry's folder."""


@dataclass(frozen=True)
class Input:
    """A verified input of a stage."""

    receipt: Receipt
    payload: Path

    @property
    def facts(self) -> dict[str, Any]:
        """The facts of the input's receipt."""
        return self.receipt.facts


class Store:
    """Payload folders below `root`, one a key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @staticmethod
    def key(stage: str, spec: Mapping[str, Any], code: str, parents: Mapping[str, str]) -> str:
        """The hash of everything that determines a result."""
        return digest({"stage": stage, "spec": dict(spec), "code": code, "parents": dict(parents)})

    def folder(self, stage: str, key: str) -> Path:
        """Where the entry of `key` lies, or would lie."""
        return self.root / stage / key[:ENTRY_NAME]

    def find(self, stage: str, key: str) -> Receipt | None:
        """The receipt of a complete entry, checked by file names and sizes; None when there is none.

        An entry of which files were pruned is complete: nothing is computed anew because of that.

        Raises:
            CorruptPayload: the entry is there but a file of it is missing or has another size.
        """
        folder = self.folder(stage, key)
        if not (folder / RECEIPT).exists():
            return None
        receipt = read_receipt(folder / RECEIPT)
        if receipt.key != key:
            raise CorruptPayload(
                "entry holds another key", where=str(folder), expected=key, got=receipt.key, fix=_rebuild_hint(folder)
            )
        gone = pruned_files(folder)
        for file in receipt.files:
            if file.path not in gone:
                _check_size(folder, file)
        return receipt

    def open(self, receipt: Receipt) -> Input:
        """The payload of a receipt, verified against its hashes; files that were pruned are not looked for (who wants
        to read one is told by `checkpoints.tombstone`).

        Raises:
            MissingPayload: the folder or a file is gone.
            CorruptPayload: a file's content differs.
        """
        folder = self.root / receipt.entry
        if not folder.exists():
            raise MissingPayload(
                f"the payload of {receipt.stage} `{receipt.name}` is gone",
                where=str(folder),
                fix=f"rebuild it: internalize forget {receipt.stage} {receipt.key[:16]} and run the study again",
            )
        gone = pruned_files(folder)
        for file in receipt.files:
            if file.path in gone:
                continue
            _check_size(folder, file)
            actual = sha256_file(folder / file.path)
            if actual != file.sha256:
                raise CorruptPayload(
                    f"content of {receipt.stage} `{receipt.name}` changed",
                    where=str(folder / file.path),
                    expected=f"sha256 {file.sha256}",
                    got=f"sha256 {actual}",
                    fix=_rebuild_hint(folder),
                )
        return Input(receipt, folder)

    @contextlib.contextmanager
    def lease(self, stage: str, key: str) -> Iterator[None]:
        """Holds the only right to write the entry of `key`.

        Raises:
            LeaseHeld: another live process still writes it after a short wait.
        """
        path = self.root / "leases" / f"{stage}-{key[:16]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+") as handle:
            deadline = time.monotonic() + float(os.environ.get(LEASE_SECONDS) or LEASE_PATIENCE)
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        handle.seek(0)
                        raise LeaseHeld(
                            f"another process is writing {stage} {key[:16]}",
                            where=str(path),
                            got=f"held by {handle.read().strip() or 'an unnamed process'}",
                            fix="wait for it to end or end it, then run the same command again: nothing is lost",
                        ) from None
                    time.sleep(0.2)
                except OSError as error:
                    raise UserError(
                        "this file system has no locks",
                        where=str(path),
                        got=error.strerror or str(error),
                        fix="keep the store where flock works between nodes (Lustre: mounted with `flock`)",
                    ) from error
            handle.truncate(0)
            handle.write(f"pid {os.getpid()} on {platform.node()}")
            handle.flush()
            yield

    def commit(
        self,
        partial: Path,
        *,
        stage: str,
        name: str,
        key: str,
        spec: Mapping[str, Any],
        code: str,
        parents: Mapping[str, str],
        facts: Mapping[str, Any],
        status: str,
        run: Mapping[str, Any],
        runtime: Path | None = None,
    ) -> Receipt:
        """Hashes and fsyncs the files of `partial`, writes the receipt into it and renames it to its final place.

        An entry already there with the same files is kept as it is (the first run's times stay). `runtime`, a folder
        of `running`, moves into the entry.
        """
        final = self.folder(stage, key)
        files: list[PayloadFile] = []
        work: list[PayloadFile] = []
        try:
            for path in tree_files(partial):
                with path.open("rb") as handle:
                    os.fsync(handle.fileno())
                file = PayloadFile(
                    path=path.relative_to(partial).as_posix(), sha256=sha256_file(path), bytes=path.stat().st_size
                )
                (work if file.path.startswith(f"{WORK}/") else files).append(file)
            receipt = Receipt.model_validate(
                {
                    "stage": stage,
                    "name": name,
                    "key": key,
                    "code": code,
                    "spec": dict(spec),
                    "parents": dict(parents),
                    "entry": final.relative_to(self.root).as_posix(),
                    "files": files,
                    "status": status,
                    "facts": dict(facts),
                }
            )
            if final.exists() and _is_complete(final) and read_receipt(final / RECEIPT) == receipt:
                shutil.rmtree(partial)
                return receipt
            kept = {WORK: [file.model_dump() for file in work]} if work else {}
            write_json(partial / RUN, {**run, **kept})
            write_json(partial / RECEIPT, receipt.model_dump())
            for folder in sorted({p.parent for p in tree_files(partial)}, reverse=True):
                fsync_dir(folder)
            if final.exists():
                retired = final.with_name(f"{final.name}.replaced-{time.time_ns()}")
                os.replace(final, retired)
                runlog.record(self.root, "superseded", stage=stage, name=name, key=key, kept_as=retired.name)
            if runtime is not None and runtime.exists():
                os.replace(runtime, partial / RUNTIME)
            os.replace(partial, final)
            fsync_dir(final.parent)
        except OSError as error:
            raise disk_error(error, partial) from error
        why = "; ".join(map(str, facts["reasons"])) if status == "stopped" and "reasons" in facts else None
        runlog.record(self.root, "computed", stage=stage, name=name, key=key, status=status, why=why)
        return receipt

    def partial(self, stage: str, key: str) -> Path:
        """A fresh, empty folder beside the entry's final place; call it only under the lease."""
        folder = self.folder(stage, key)
        partial = folder.with_name(folder.name + ".partial")
        try:
            if partial.exists():
                shutil.rmtree(partial)
            partial.mkdir(parents=True)
        except OSError as error:
            raise disk_error(error, partial) from error
        return partial

    def running(self, stage: str, key: str) -> Path:
        """Where a run in progress writes about itself; what failed runs wrote stays there until one commits."""
        return self.root / "running" / f"{stage}-{key[:ENTRY_NAME]}"

    def scratch(self, stage: str, key: str) -> Path:
        """Where the processes that make an entry may exchange files; not made here."""
        return self.root / "scratch" / f"{stage}-{key[:ENTRY_NAME]}"

    def forget(self, stage: str, key: str) -> Path | None:
        """Moves an entry out of the way, so that the next run recomputes it; returns where it went."""
        folder = self.folder(stage, key)
        if len(key) < ENTRY_NAME or not folder.is_dir():
            return None
        retired = folder.with_name(f"{folder.name}.forgotten-{time.time_ns()}")
        os.replace(folder, retired)
        runlog.record(self.root, "set aside", stage=stage, key=key, why="internalize forget", kept_as=retired.name)
        return retired

    def run_info(self, receipt: Receipt) -> dict[str, Any]:
        """Times, host and versions of the run that made a receipt; empty when the payload was pruned."""
        path = self.root / receipt.entry / RUN
        return dict(read_json(path)) if path.exists() else {}


class Stopwatch:
    """Wall and CPU seconds since its making, for `run.json`; `phase(name)` adds up parts."""

    def __init__(self) -> None:
        self.wall = time.perf_counter()
        self.cpu = time.process_time()
        self.parts: dict[str, float] = {}

    def charge_startup(self) -> None:
        """Counts what this process has spent so far, its imports above all, as part `startup`."""
        self.cpu = 0.0
        self.parts["startup"] = time.process_time()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Adds the CPU seconds of the block to part `name`."""
        start = time.process_time()
        try:
            yield
        finally:
            self.parts[name] = self.parts.get(name, 0.0) + time.process_time() - start

    def beat(self, what: str) -> None:
        """A sign of life; nobody listens here (diagnostics.watchdog does)."""

    def add(self, name: str, seconds: float) -> None:
        """Counts CPU seconds of other processes as part `name`."""
        if seconds:
            self.cpu -= seconds
            self.parts[name] = self.parts.get(name, 0.0) + seconds

    def report(self) -> dict[str, Any]:
        """Seconds so far, peak memory (MiB) and the software versions."""
        return {
            "wall_s": round(time.perf_counter() - self.wall, 3),
            "cpu_s": round(time.process_time() - self.cpu, 3),
            "cpu_parts_s": {name: round(value, 3) for name, value in self.parts.items()},
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "host": platform.node(),
            "python": platform.python_version(),
            "versions": {name: _version(name) for name in ("torch", "megatron-core", "numpy", "snakemake")},
        }


def pruned_files(entry: Path) -> frozenset[str]:
    """Paths, below an entry, of the files that its tombstones say were deleted."""
    stones = sorted(entry.glob(f"*/{PRUNED}"))
    return frozenset(f"{stone.parent.name}/{name}" for stone in stones for name in read_json(stone)["files"])


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def _is_complete(folder: Path) -> bool:
    return (folder / RECEIPT).exists()


def _check_size(folder: Path, file: PayloadFile) -> None:
    path = folder / file.path
    if not path.exists():
        raise MissingPayload(
            "a payload file is gone", where=str(path), expected=f"{file.bytes} bytes", fix=_rebuild_hint(folder)
        )
    size = path.stat().st_size
    if size != file.bytes:
        raise CorruptPayload(
            "a payload file has another size",
            where=str(path),
            expected=f"{file.bytes} bytes",
            got=f"{size} bytes",
            fix=_rebuild_hint(folder),
        )


def _rebuild_hint(folder: Path) -> str:
    return (
        f"internalize forget {folder.parent.name} {folder.name}, then run the study again: "
        "only this entry and what depends on it are recomputed"
    )
