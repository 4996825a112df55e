"""The archive's folder: packed runs, shared files and payload files by hard links, then card, crate, state, manifests.

Invariant: the folder appears by one rename, whole; the one before it is removed only after that. Its files are the
store's own where a receipt vouches for them (hard links: they cost no space, and must not be edited in place).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from internalize.archive.card import card
from internalize.archive.inventory import CHECKPOINTS
from internalize.archive.layout import ARCHIVE_RECEIPT, CRATE, LOG, MODELS, README
from internalize.archive.log import LOG_TABLE, write_state
from internalize.archive.manifest import File, Manifest, TableEntry, as_tables, entry, hash_files, write_manifests
from internalize.archive.models import assemble_models
from internalize.archive.rocrate import crate
from internalize.archive.shared import known_tables, links
from internalize.files import disk_error, fsync_dir, link, read_jsonl, tree_files, write_json, write_text
from internalize.receipts import Receipt
from internalize.store import RECEIPT, RUN, Store


def assemble(
    folder: Path,
    spec: Mapping[str, Any],
    receipts: Mapping[str, Receipt],
    packs: Mapping[str, Receipt],
    archive: Receipt,
    store: Store,
) -> Manifest:
    """Puts the archive at `folder`; returns its manifest.

    Raises:
        MissingPayload: a payload file went away since its receipt was read.
        UserError: the file system refused.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    if partial.exists():
        shutil.rmtree(partial)
    partial.mkdir(parents=True)
    try:
        files = _link_all(partial, spec, receipts, packs, archive, store)
        rows = write_state(partial, store, receipts)
        write_json(partial / ARCHIVE_RECEIPT, archive.model_dump())
        _copy_workflow(partial)
        tables = known_tables(archive.facts)
        entries = as_tables(archive.facts, {table.name: table.version for table in tables})
        entries["log"] = TableEntry(rows=rows, files=[LOG], schema_version=LOG_TABLE.version)
        manifest = Manifest(study=spec["name"], archive_receipt=archive.hash(), files=files, tables=entries)
        _hash_rest(partial, manifest)
        _name_schemas(manifest)
        told = [*receipts.values(), *packs.values(), archive]
        write_text(partial / CRATE, json.dumps(crate(spec, told, manifest), indent=1, ensure_ascii=False) + "\n")
        _hash_rest(partial, manifest)
        write_text(partial / README, card(partial, spec, archive, manifest, [*tables, LOG_TABLE]))
        _hash_rest(partial, manifest)
        manifest.total_files = len(manifest.files)
        manifest.total_bytes = sum(file.bytes for file in manifest.files.values())
        write_manifests(partial, manifest)
        swap(partial, folder)
        checkpoints = list(read_jsonl(folder / CHECKPOINTS.files[0]))
        if assemble_models(folder.with_name(MODELS), spec, receipts, checkpoints, store):
            swap(folder.with_name(f".{MODELS}.partial"), folder.with_name(MODELS))
    except OSError as error:
        raise disk_error(error, folder) from error
    return manifest


def swap(partial: Path, folder: Path) -> None:
    """Puts `partial` in the place of `folder`; a kill in between leaves one of them whole."""
    retired = folder.with_name(f".{folder.name}.retired")
    if retired.exists():
        shutil.rmtree(retired)
    if folder.exists():
        os.replace(folder, retired)
    os.replace(partial, folder)
    fsync_dir(folder.parent)
    if retired.exists():
        shutil.rmtree(retired)


def _link_all(
    root: Path,
    spec: Mapping[str, Any],
    receipts: Mapping[str, Receipt],
    packs: Mapping[str, Receipt],
    archive: Receipt,
    store: Store,
) -> dict[str, File]:
    found: dict[str, File] = {}
    for one in links(spec, receipts):
        link(store.root / one.entry / one.inside, root / one.path)
        found[one.path] = entry(one.sha256, one.bytes, one.path, one.receipt)
    for prefix, receipt in [*((f"runs/{run}/", pack) for run, pack in packs.items()), ("", archive)]:
        for file in receipt.files:
            if file.path not in (RECEIPT, RUN):
                path = prefix + file.path
                link(store.root / receipt.entry / file.path, root / path)
                found[path] = entry(file.sha256, file.bytes, path, receipt.hash())
    return found


def _hash_rest(root: Path, manifest: Manifest) -> None:
    """Adds the files that no receipt vouches for."""
    new = [path for path in tree_files(root) if path.relative_to(root).as_posix() not in manifest.files]
    for path, value in zip(new, hash_files(new, threads=1), strict=True):
        name = path.relative_to(root).as_posix()
        manifest.files[name] = entry(value, path.stat().st_size, name, None)


def _name_schemas(manifest: Manifest) -> None:
    for table in manifest.tables.values():
        for path in table.files:
            manifest.files[path].schema_version = table.schema_version


def _copy_workflow(root: Path) -> None:
    """The workflow's own files, as they were when the archive was made."""
    home = Path(os.environ.get("INTERNALIZE_HOME", "."))
    for path in [home / "Snakefile", *sorted((home / "rules").glob("*.smk"))]:
        if path.is_file():
            target = root / "state/workflow" / path.relative_to(home)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
