"""`internalize publish`: check, scan, show or send an archive and its model repositories.

Invariant: nothing is sent before every file of everything to be sent has been verified and scanned for secrets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from internalize.archive.chain import listed_models
from internalize.archive.hub import HuggingFace
from internalize.archive.publish import Progress, Sizes, Upload, batches, check_limits, publish
from internalize.archive.secrets import Finding, scan
from internalize.archive.text import size
from internalize.archive.verify import verify
from internalize.errors import UserError
from internalize.files import read_json

SHOWN = 20
"""Largest files that a dry run lists."""


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    to: str | None
    dataset: str | None
    models: Path
    private: bool = False
    allow: tuple[str, ...] = ()
    """Files whose findings are no secrets."""
    files_a_commit: int = 500


def send(folder: Path, options: Options, progress: Progress, seconds: float = 600.0) -> Iterator[str]:
    """Does it; yields lines for the user.

    Raises:
        UserError: the archive is not whole, holds what looks like a secret, has no name, or the hub refuses it.
    """
    folder = folder.resolve()  # `.` has no name, and reports and commits say which folder
    uploads = plan(folder, options)
    problems = verify(folder, None, progress, options.models)
    if problems:
        raise UserError(
            "the archive is not whole",
            where=str(folder),
            got="; ".join(f"{path}: {what}" for path, what in problems[:5]),
            fix="make it again: delete results/archive and run the study",
        )
    for upload in uploads:
        check_limits(upload.files, str(upload.root))
    progress("looking for secrets")
    findings = [one for upload in uploads for one in _scanned(upload, options.allow)]
    if options.to is None:
        yield from _shown(uploads, findings, options)
        return
    if findings:
        raise UserError(
            "what looks like a secret would be published",
            got="; ".join(_said(one) for one in findings[:10]),
            fix="remove it where it comes from, or pass --allow FILE if it is none",
        )
    endpoint = None if options.to == "hub" else options.to
    with HuggingFace(endpoint, seconds) as hub:
        for upload in uploads:
            done = publish(upload, hub, progress, sizes=Sizes(files=options.files_a_commit))
            yield (
                f"{done.repository}: {done.sent} files sent ({size(done.bytes)}) in {done.commits} commits, "
                f"{done.already_there} were there, {done.deleted} deleted, {done.retries} retries; "
                "the hub holds what we hold"
            )


def plan(folder: Path, options: Options) -> list[Upload]:
    """The repositories, the dataset first.

    Raises:
        UserError: the dataset has no name.
    """
    settings = read_json(folder / "state/study.json")["archive"] if (folder / "state/study.json").is_file() else {}
    name = options.dataset or settings.get("dataset")
    if not name or name.count("/") != 1:
        raise UserError(
            "the dataset repository has no name",
            got=str(name or "none"),
            expected="OWNER/NAME",
            fix="set `archive.dataset` in the study, or pass --dataset OWNER/NAME",
        )
    owner = name.partition("/")[0]
    found = [Upload(folder, name, "dataset", options.private)]
    if options.models.is_dir():
        for model in listed_models(folder):
            found.append(Upload(options.models / model, f"{owner}/{model}", "model", options.private))
    return found


def _scanned(upload: Upload, allow: tuple[str, ...]) -> list[Finding]:
    paths = [path for path in sorted(upload.files) if path not in allow]
    return [dataclasses.replace(one, path=f"{upload.root.name}/{one.path}") for one in scan(upload.root, paths)]


def _shown(uploads: list[Upload], findings: list[Finding], options: Options) -> Iterator[str]:
    for upload in uploads:
        files = upload.files
        total = sum(count for _, count in files.values())
        commits = batches(files, files, Sizes(files=options.files_a_commit))
        yield f"{upload.kind} {upload.repository}: {len(files)} files, {size(total)}, at most {len(commits)} commits"
        largest = sorted(files, key=lambda path: (-files[path][1], path))
        for path in largest[:SHOWN]:
            yield f"  {size(files[path][1]):>10}  {path}"
        if len(files) > SHOWN:
            yield f"  and {len(files) - SHOWN} smaller files, all in MANIFEST.sha256"
    yield from (f"REFUSED: {_said(one)}" for one in findings)
    yield "nothing was sent" + ("; it would be refused for the findings above" if findings else "")


def _said(one: Finding) -> str:
    return f"{one.path} holds {one.kind} (at byte {one.offset} of its content)"
