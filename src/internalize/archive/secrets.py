"""What must not be published: keys, tokens, private paths, the user's own secrets.

Invariant: every byte that would be sent is looked at, compressed files as what they unpack to (names of packed files
too, since a tar holds them as text); a finding is told by kind and place, never by its value.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from internalize.archive.tarread import LIMITS, Refused
from internalize.errors import CorruptPayload

PIECE = 4 << 20
OVERLAP = 4 << 10
"""Bytes of a piece that are looked at again with the next: longer than any pattern's match needs."""
OWN_NAMES = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|PRIVATE_KEY|CREDENTIAL", re.IGNORECASE)
SHORTEST_OWN = 12

# kind -> what every match starts with, and the whole of it
PATTERNS: dict[str, tuple[tuple[bytes, ...], re.Pattern[bytes]]] = {
    "a Hugging Face token": ((b"hf_",), re.compile(rb"hf_[A-Za-z0-9]{30,60}(?![A-Za-z0-9])")),
    "an OpenAI or Anthropic key": ((b"sk-",), re.compile(rb"sk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,180}(?![A-Za-z0-9])")),
    "an AWS key": ((b"AKIA", b"ASIA"), re.compile(rb"A[KS]IA[0-9A-Z]{16}(?![0-9A-Z])")),
    "a GitHub token": (
        (b"ghp_", b"gho_", b"ghs_", b"github_pat_"),
        re.compile(rb"(?:gh[pos]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})"),
    ),
    "a Google key": ((b"AIza",), re.compile(rb"AIza[0-9A-Za-z_-]{35}")),
    "a Slack token": ((b"xoxb-", b"xoxp-", b"xoxa-"), re.compile(rb"xox[abp]-[0-9A-Za-z-]{20,}")),
    "a private key": ((b"-----BEGIN ",), re.compile(rb"-----BEGIN (?:[A-Z]+ ){0,2}PRIVATE KEY-----")),
    "a bearer token": ((b"Bearer ",), re.compile(rb"Bearer [A-Za-z0-9._~+/-]{24,}")),
    "a home folder": (
        (b"/home/", b"/Users/", b"/root/"),
        re.compile(rb"(?<![\w./-])(?:/(?:home|Users)/[A-Za-z0-9][\w.-]*/|/root/[\w.-])"),
    ),
}


@dataclass(frozen=True)
class Finding:
    """Something that looks like a secret."""

    path: str
    kind: str
    offset: int
    """Of the unpacked content."""


def scan(root: Path, paths: Iterable[str], own: Mapping[str, str] | None = None) -> list[Finding]:
    """What looks like a secret in the files; one finding a kind and file.

    Args:
        own: the user's secrets by name; environment variables that are called like secrets, unless given.

    Raises:
        Refused: a compressed file unpacks to more than a reader accepts.
        CorruptPayload: one cannot be unpacked.
    """
    exact = own_secrets() if own is None else {name: value.encode() for name, value in own.items()}
    found = []
    for path in paths:
        if path.endswith((".zst", ".gz")):
            kinds = _scan_stream(_unpacked(root / path), exact)
        else:
            with (root / path).open("rb") as handle:
                kinds = _scan_stream(_pieces(handle), exact)
        found += [Finding(path, kind, offset) for kind, offset in sorted(kinds.items())]
    return found


def own_secrets() -> dict[str, bytes]:
    """Values of environment variables whose names say that they are secret, and the hub token on disk."""
    named = {f"the value of ${name}": value for name, value in os.environ.items() if OWN_NAMES.search(name)}
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser() / "token"
    if home.is_file():
        named["your hub token"] = home.read_text().strip()
    return {name: value.encode() for name, value in named.items() if len(value) >= SHORTEST_OWN}


def masked(text: str) -> str:
    """The text without the user's own secrets, wherever it comes from: a server may send back what it was sent."""
    for value in own_secrets().values():
        text = text.replace(value.decode(), "***")
    return text


def _scan_stream(pieces: Iterator[bytes], exact: Mapping[str, bytes]) -> dict[str, int]:
    """Kind -> offset of its first match."""
    found: dict[str, int] = {}
    kept, base = b"", 0
    for piece in pieces:
        data = kept + piece
        for kind, at in _matches(data, exact, found):
            found[kind] = base + at
        kept = data[-OVERLAP:]
        base += len(data) - len(kept)
    return found


def _matches(data: bytes, exact: Mapping[str, bytes], known: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for kind, (starts, pattern) in PATTERNS.items():
        if kind in known:
            continue
        for start in starts:  # finding the literal is many times faster than the pattern
            at = data.find(start)
            while at >= 0 and pattern.match(data, at) is None:
                at = data.find(start, at + 1)
            if at >= 0:
                yield kind, at
                break
    for kind, value in exact.items():
        if kind not in known and (at := data.find(value)) >= 0:
            yield kind, at


def _pieces(handle: Any) -> Iterator[bytes]:
    while piece := handle.read(PIECE):
        yield piece


def _unpacked(path: Path) -> Iterator[bytes]:
    most = max(LIMITS.floor, path.stat().st_size * LIMITS.ratio)
    total = 0
    try:
        with path.open("rb") as raw:
            if path.suffix == ".zst":
                reader = zstandard.ZstdDecompressor(max_window_size=LIMITS.window)
                stream: Any = reader.stream_reader(raw, read_across_frames=True)
            else:
                stream = gzip.open(raw)  # noqa: SIM115 (closed with the file below it)
            for piece in _pieces(stream):
                total += len(piece)
                if total > most:
                    raise Refused("a decompression bomb", where=str(path), got=f"more than {most} bytes")
                yield piece
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise CorruptPayload(f"cannot unpack ({error})", where=str(path)) from error
