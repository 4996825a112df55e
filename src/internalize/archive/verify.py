"""`internalize verify`: is an archive what its manifests say, and do the receipts vouch for it?

Invariant: every file that was changed, cut, grown, swapped, added, removed or replaced by a link is named, whatever
kind of file it is, the manifests included; nothing in the archive is trusted to say where to look.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from internalize.archive.chain import Problem, check_chain, check_model, listed_models
from internalize.archive.layout import MANIFEST, RECEIPTS, SUMS
from internalize.archive.manifest import Manifest, hash_files, is_safe, read_manifest, sums
from internalize.errors import CorruptPayload, MissingPayload

Progress = Callable[[str], None]
OUTSIDE = (MANIFEST, SUMS)


def verify(
    root: Path, threads: int | None = None, progress: Progress = lambda text: None, models: Path | None = None
) -> list[Problem]:
    """The archive's problems, by path; none means that it is whole.

    Args:
        root: the archive's folder, or a model repository's.
        models: folder of model repositories; those that the archive lists are checked too, back to its receipts.
        threads: files hashed at once; all cores unless given.

    Raises:
        MissingPayload: there is no archive at `root`.
    """
    if not root.is_dir() or not ((root / MANIFEST).is_file() or (root / SUMS).is_file()):
        raise MissingPayload("no archive here", where=str(root), expected=f"{MANIFEST} and {SUMS} in it")
    problems: list[Problem] = []
    manifest: Manifest | None = None
    try:
        manifest = read_manifest(root)
    except (CorruptPayload, MissingPayload) as error:
        problems.append(Problem(MANIFEST, error.what))
    expected, complaints = _expected(root, manifest)
    problems += complaints
    found: dict[str, int] = {}
    for path, size in walk(root):
        if size is None:
            problems.append(Problem(path, "neither a file nor a folder (a link, a device)"))
        else:
            found[path] = size
    problems += [Problem(path, "missing") for path in sorted(set(expected) - set(found) - {p.path for p in problems})]
    problems += [
        Problem(path, "extra: no manifest names it") for path in sorted(set(found) - set(expected) - {*OUTSIDE})
    ]
    whole = []
    for path in sorted(set(expected) & set(found)):
        told = expected[path][1]
        if told is not None and found[path] != told:
            word = "truncated" if found[path] < told else "grown"
            problems.append(Problem(path, f"{word}: {found[path]} bytes instead of {told}"))
        whole.append(path)  # hashed too: a file that holds another's bytes is said to
    progress(f"hashing {len(whole)} files")
    hashes = dict(zip(whole, hash_files([root / path for path in whole], threads), strict=True))
    owners = {value: path for path, (value, _) in expected.items()}
    named = {problem.path for problem in problems}
    for path, value in hashes.items():
        if value != expected[path][0]:
            other = owners.get(value)
            if other is not None:
                problems.append(Problem(path, f"holds what {other} should hold"))
            elif path not in named:
                problems.append(Problem(path, "changed: another SHA-256"))
    if manifest is not None and not problems and (manifest.archive_receipt or RECEIPTS in manifest.files):
        progress("checking the chain of receipts")
        problems += check_chain(root, manifest)
        if models is not None and models.is_dir():
            for name in listed_models(root):
                problems += _check_model(root, models / name, threads, progress)
    return sorted(set(problems))


def _check_model(root: Path, folder: Path, threads: int | None, progress: Progress) -> list[Problem]:
    """What is wrong with a model repository of the archive at `root`."""
    if not (folder / MANIFEST).is_file():
        return [Problem(folder.name, "listed among the checkpoints, but its model repository is not here")]
    found = verify(folder, threads, progress)
    found += check_model(root, read_manifest(folder)) if not found else []
    return [Problem(f"{folder.name}/{one.path}", one.what) for one in found]


def walk(root: Path, below: str = "") -> Iterator[tuple[str, int | None]]:
    """Every file below `root` with its size, following no link; None for what is no plain file."""
    with os.scandir(root / below if below else root) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from walk(root, path)
            elif entry.is_file(follow_symlinks=False):
                yield path, entry.stat(follow_symlinks=False).st_size
            else:
                yield path, None


def _expected(root: Path, manifest: Manifest | None) -> tuple[dict[str, tuple[str, int | None]], list[Problem]]:
    """Path -> hash and size, from the manifest that can be trusted, and what is wrong with `MANIFEST.sha256`."""
    text = (root / SUMS).read_bytes() if (root / SUMS).is_file() and not (root / SUMS).is_symlink() else None
    if manifest is not None:
        right = text == sums(manifest, manifest.render())
        complaint = "missing" if text is None else "does not say what MANIFEST.json says"
        return {path: (file.sha256, file.bytes) for path, file in manifest.files.items()}, (
            [] if right else [Problem(SUMS, complaint)]
        )
    if text is None:
        return {}, [Problem(SUMS, "missing")]
    found: dict[str, tuple[str, int | None]] = {}
    complaints = []
    for number, line in enumerate(text.decode(errors="replace").splitlines(), start=1):
        value, gap, path = line.partition("  ")
        if not gap or len(value) != 64 or not is_safe(path):
            complaints.append(Problem(SUMS, f"line {number} is not a hash and a path"))
        elif path != MANIFEST:
            found[path] = (value, None)
    return found, complaints
