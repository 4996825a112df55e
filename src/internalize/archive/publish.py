"""Publishing: what would be sent, sending it in batches, and holding the hub's hashes against ours.

Invariant: a file that the hub already holds is not sent again, whatever was interrupted before; the manifests and the
card go last, so that a repository with a manifest is a whole one; publishing has succeeded only when the hub's own list
equals ours, name by name and hash by hash. A permanent error stops at once, a passing one is tried again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from internalize.archive.hub import Addition, Hub, Kind, Permanent, RemoteFile, Transient
from internalize.archive.layout import MANIFEST, README, SUMS
from internalize.archive.manifest import git_sha1, read_manifest
from internalize.errors import UserError
from internalize.files import sha256_file

FILE_LIMIT = 50_000_000_000
FOLDER_LIMIT = 10_000
REPOSITORY_LIMIT = 100_000
"""The hub's limits: bytes a file, entries a folder, files a repository."""
LAST = (README, MANIFEST, SUMS)
KEPT = frozenset({".gitattributes"})
"""Files that the hub makes itself."""
Progress = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Upload:
    """A folder and the repository that it is to equal."""

    root: Path
    repository: str
    kind: Kind
    private: bool = False
    _git: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def files(self) -> dict[str, tuple[str, int]]:
        """Path -> hash and size of every file, from the folder's manifests as they are when first asked for."""
        manifest = read_manifest(self.root)
        found = {path: (file.sha256, file.bytes) for path, file in manifest.files.items()}
        for name in (MANIFEST, SUMS):
            found[name] = (sha256_file(self.root / name), (self.root / name).stat().st_size)
        return found

    def is_held(self, path: str, there: RemoteFile | None) -> bool:
        """Is what the hub holds under `path` this file?"""
        sha256, size = self.files[path]
        if there is None or there.size != size:
            return False
        return there.sha256 == sha256 if there.sha256 is not None else there.git_sha1 == self._git_sha1(path)

    def _git_sha1(self, path: str) -> str:
        if path not in self._git:
            self._git[path] = git_sha1(self.root / path)
        return self._git[path]


@dataclass(frozen=True)
class Patience:
    """How long to try."""

    tries: int = 8
    wait: float = 2.0
    """Seconds after the first failure; doubled after each further one."""
    most: float = 120.0

    def sleep(self, failures: int) -> None:
        """Waits after the `failures`-th failure in a row."""
        time.sleep(min(self.most, self.wait * 2 ** (failures - 1)))


@dataclass(frozen=True)
class Sizes:
    """How large a commit may get."""

    files: int = 500
    bytes: int = 5_000_000_000


@dataclass
class Outcome:
    """What publishing a repository did."""

    repository: str
    sent: int = 0
    bytes: int = 0
    commits: int = 0
    retries: int = 0
    already_there: int = 0
    deleted: int = 0
    errors: list[str] = field(default_factory=list)
    """Passing errors that were met."""


def check_limits(files: Mapping[str, tuple[str, int]], where: str) -> None:
    """Raises UserError when the hub would refuse the files for their number or size."""
    folders = Counter(path.rpartition("/")[0] for path in files)
    folder, count = max(folders.items(), key=lambda item: item[1], default=("", 0))
    largest = max(files, key=lambda path: files[path][1], default="")
    for wrong, what, got in (
        (count >= FOLDER_LIMIT, f"fewer than {FOLDER_LIMIT} files a folder", f"{count} in {folder or 'the root'}"),
        (len(files) > REPOSITORY_LIMIT, f"at most {REPOSITORY_LIMIT} files", str(len(files))),
        (bool(largest) and files[largest][1] >= FILE_LIMIT, f"files below {FILE_LIMIT} bytes", largest),
    ):
        if wrong:
            raise UserError("the hub does not take this", where=where, expected=what, got=got)


def batches(
    paths: Iterable[str],
    files: Mapping[str, tuple[str, int]],
    sizes: Sizes = Sizes(),
) -> list[list[str]]:
    """The commits: files in order of their names, card and manifests alone and last."""
    found: list[list[str]] = []
    size = 0
    for path in sorted(paths, key=lambda one: (one in LAST, one)):
        full = bool(found) and (len(found[-1]) >= sizes.files or size + files[path][1] > sizes.bytes)
        if not found or full or (path in LAST and found[-1][-1] not in LAST):
            found.append([])
            size = 0
        found[-1].append(path)
        size += files[path][1]
    return found


def publish(
    upload: Upload,
    hub: Hub,
    progress: Progress,
    patience: Patience = Patience(),
    sizes: Sizes = Sizes(),
) -> Outcome:
    """Makes the repository equal to the folder; safe to run again after anything.

    Raises:
        Permanent: the hub refused.
        UserError: passing errors did not pass, the limits are exceeded, or the hub holds something else at the end.
    """
    files = upload.files
    check_limits(files, str(upload.root))
    outcome = Outcome(upload.repository)
    target = (upload.repository, upload.kind)
    _insist(lambda: hub.create(*target, upload.private), "create", outcome, patience, progress)

    def remote() -> dict[str, RemoteFile]:
        return _insist(lambda: hub.files(*target), "list", outcome, patience, progress)

    there = remote()
    todo = [path for path in files if not upload.is_held(path, there.get(path))]
    outcome.already_there = len(files) - len(todo)
    gone = sorted(set(there) - set(files) - KEPT)
    plan = batches(todo, files, sizes) or ([[]] if gone else [])
    for number, batch in enumerate(plan, start=1):
        delete = gone if number == len(plan) else []
        message = f"{upload.root.name}: part {number} of {len(plan)}"
        _send(upload, batch, delete, message, hub, remote, outcome, patience, progress)
        progress(f"{upload.repository}: {number}/{len(plan)} commits, {outcome.sent} files, {outcome.bytes} bytes")
    if wrong := differences(upload, remote()):
        raise UserError(
            "the hub does not hold what was sent",
            where=upload.repository,
            got="; ".join(wrong[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""),
            fix="run the same command again",
        )
    return outcome


def differences(upload: Upload, there: Mapping[str, RemoteFile]) -> list[str]:
    """What differs between folder and repository, in words."""
    files = upload.files
    wrong = [f"{path} is missing" for path in sorted(set(files) - set(there))]
    wrong += [f"{path} is extra" for path in sorted(set(there) - set(files) - KEPT)]
    both = sorted(set(files) & set(there))
    return wrong + [f"{path} differs" for path in both if not upload.is_held(path, there[path])]


def _send(
    upload: Upload,
    batch: Sequence[str],
    delete: Sequence[str],
    message: str,
    hub: Hub,
    remote: Callable[[], dict[str, RemoteFile]],
    outcome: Outcome,
    patience: Patience,
    progress: Progress,
) -> None:
    """One commit, tried until the hub holds its files; what a lost reply had done is not sent again."""
    files, left, failures = upload.files, list(batch), 0
    while left or delete:
        add = [Addition(path, upload.root / path, files[path][1]) for path in left]
        try:
            hub.commit(upload.repository, upload.kind, add, delete, message)
            outcome.commits += 1
            break
        except Transient as error:
            failures += 1
            _note(outcome, "commit", error, failures, patience, progress)
            there = remote()
            left = [path for path in left if not upload.is_held(path, there.get(path))]
            delete = [path for path in delete if path in there]
            if not left and not delete:
                outcome.commits += 1  # it had been applied, only the reply was lost
    outcome.sent += len(batch)
    outcome.bytes += sum(files[path][1] for path in batch)
    outcome.deleted += len(delete)


def _insist(call: Callable[[], T], what: str, outcome: Outcome, patience: Patience, progress: Progress) -> T:
    failures = 0
    while True:
        try:
            return call()
        except Transient as error:
            failures += 1
            _note(outcome, what, error, failures, patience, progress)


def _note(outcome: Outcome, what: str, error: Transient, failures: int, patience: Patience, progress: Progress) -> None:
    """Counts a passing error and waits; gives up after the last try."""
    outcome.retries += 1
    outcome.errors.append(str(error))
    if failures >= patience.tries:
        raise Permanent(
            f"`{what}` failed {failures} times",
            where=outcome.repository,
            got=str(error),
            fix="run the same command again later: what was sent stays",
        ) from error
    progress(f"{outcome.repository}: `{what}` failed ({error}); trying again")
    patience.sleep(failures)
