"""The hub, one call at a time, from a process of its own that can be ended when it takes too long.

Invariant: a call ends: with its value, with a `Transient` error (worth another try), or with a `Permanent` one. What is
on the hub is known only from its own file list: a reply that was lost proves nothing.

huggingface_hub 2.4 retries some requests (429, 5xx, dropped uploads) and not others (commit, create, whoami), has no
timeout, and obeys any Retry-After; so retries and deadlines are kept out here, around it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, Protocol

from internalize.archive.secrets import masked
from internalize.errors import UserError
from internalize.processes import die_with_parent

Kind = Literal["dataset", "model"]
START_SECONDS = 300.0
"""What starting the helper may take."""
TRANSIENT = (408, 409, 412, 425, 429)
"""Status codes that pass: 409 and 412 mean that another commit came between."""


@dataclass(frozen=True)
class RemoteFile:
    """A file on the hub: SHA-256 where it is large, git's id where it is small."""

    size: int
    sha256: str | None
    git_sha1: str


@dataclass(frozen=True)
class Addition:
    """A file to send."""

    path: str
    local: Path
    bytes: int


class Transient(Exception):
    """A call that may well succeed the next time."""


class Permanent(UserError):
    """The hub said no."""

    title = "publish error"


class Hub(Protocol):
    """What publishing needs of a hub."""

    def create(self, repository: str, kind: Kind, private: bool) -> None:
        """Makes the repository unless it is there."""

    def files(self, repository: str, kind: Kind) -> dict[str, RemoteFile]:
        """Every file of the repository."""

    def commit(self, repository: str, kind: Kind, add: Sequence[Addition], delete: Sequence[str], message: str) -> None:
        """One commit."""


class HuggingFace:
    """The Hugging Face hub, or a server that speaks its API.

    Args:
        endpoint: its address; huggingface_hub's own default unless given.
        seconds: what a call may take besides sending.
        rate: bytes a second that sending is trusted to reach.

    Raises:
        UserError: huggingface_hub is not installed.
    """

    def __init__(self, endpoint: str | None = None, seconds: float = 600.0, rate: float = 500_000.0) -> None:
        from importlib.util import find_spec

        if find_spec("huggingface_hub") is None:
            raise UserError("huggingface_hub is not installed", fix="pip install 'internalize[publish]'")
        self.endpoint = endpoint
        self.seconds = seconds
        self.rate = rate
        self._process: Any = None
        self._line: Connection | None = None

    def create(self, repository: str, kind: Kind, private: bool) -> None:
        """Makes the repository unless it is there."""
        self._call("create", self.seconds, repository, kind, private)

    def files(self, repository: str, kind: Kind) -> dict[str, RemoteFile]:
        """Every file of the repository."""
        found: dict[str, RemoteFile] = self._call("files", self.seconds, repository, kind)
        return found

    def commit(self, repository: str, kind: Kind, add: Sequence[Addition], delete: Sequence[str], message: str) -> None:
        """One commit; its deadline grows with what it sends."""
        seconds = self.seconds + sum(one.bytes for one in add) / self.rate
        self._call("commit", seconds, repository, kind, list(add), list(delete), message)

    def close(self) -> None:
        """Ends the helper process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._process = self._line = None

    def __enter__(self) -> HuggingFace:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _call(self, name: str, seconds: float, *arguments: Any) -> Any:
        if self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._line, theirs = context.Pipe()
            self._process = context.Process(target=_serve, args=(theirs, self.endpoint, os.getpid()), daemon=True)
            self._process.start()
            theirs.close()
            self._wait(START_SECONDS, "start")
        line = self._line
        assert line is not None
        try:
            line.send((name, arguments))
        except OSError as error:
            self.close()
            raise Transient("the helper process is gone") from error
        outcome, value = self._wait(seconds, name)
        if outcome == "transient":
            raise Transient(value)
        if outcome == "permanent":
            raise Permanent(f"the hub refused `{name}`", where=str(arguments[0]), got=value, fix=_advice(value))
        return value

    def _wait(self, seconds: float, name: str) -> tuple[str, Any]:
        """The helper's next message."""
        assert self._line is not None
        try:
            if not self._line.poll(seconds):
                self.close()
                raise Transient(f"no answer to `{name}` within {seconds:.0f} s")
            outcome, value = self._line.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise Transient(f"the helper process died during `{name}`") from error
        return str(outcome), value


def _serve(line: Connection, endpoint: str | None, parent: int) -> None:
    """The helper process: answers calls until its parent goes away."""
    die_with_parent(signal.SIGKILL, parent)
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")  # without a xet service the client fails and does not fall back
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    from huggingface_hub import HfApi

    api = HfApi(endpoint=endpoint)
    line.send(("value", None))
    while True:
        try:
            name, arguments = line.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            line.send(("value", CALLS[name](api, *arguments)))
        except Exception as error:  # every kind that the client raises is told apart by its cause
            line.send(judge(error))


def _create(api: Any, repository: str, kind: Kind, private: bool) -> None:
    api.create_repo(repository, repo_type=kind, private=private, exist_ok=True)


def _files(api: Any, repository: str, kind: Kind) -> dict[str, RemoteFile]:
    found = {}
    for one in api.list_repo_tree(repository, repo_type=kind, recursive=True):
        if hasattr(one, "blob_id"):  # folders have none
            lfs = one.lfs
            found[one.path] = RemoteFile(one.size, lfs.sha256 if lfs else None, one.blob_id)
    return found


def _commit(api: Any, repository: str, kind: Kind, add: list[Addition], delete: list[str], message: str) -> None:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations: list[Any] = [CommitOperationAdd(one.path, str(one.local)) for one in add]
    operations += [CommitOperationDelete(path) for path in delete]
    api.create_commit(repository, operations, commit_message=message, repo_type=kind)


CALLS: dict[str, Any] = {"create": _create, "files": _files, "commit": _commit}


def judge(error: BaseException) -> tuple[str, str]:
    """`transient` or `permanent`, and the error in a line."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        status = getattr(response, "status_code", None)
        if status is not None:
            kind = "transient" if status in TRANSIENT or status >= 500 else "permanent"
            return kind, f"HTTP {status}: {_line(error)}"
        if any(base.__name__ in ("TransportError", "TimeoutException") for base in type(cause).__mro__):
            return "transient", _line(error)
        if isinstance(cause, ConnectionError | TimeoutError):
            return "transient", _line(error)
        cause = cause.__cause__ or cause.__context__
    return "permanent", _line(error)


def _line(error: BaseException) -> str:
    text = masked(" ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:300]}"


def _advice(text: str) -> str:
    if "HTTP 401" in text:
        return "log in with `hf auth login`, or set HF_TOKEN"
    if "HTTP 403" in text:
        return "use a token that may write to this repository, or another owner; what was sent so far stays"
    return "put it right and run the same command again: it goes on where it stopped"
