"""Play as the archive keeps it: one folder an episode in `work.tar.zst`, and one table a record kind.

Invariant: both hold every episode, call and journal row of the payloads, in their order, byte for byte where a record
is copied; memory holds one episode at a time. Rows get the run, source, step and phase in front, so that a table of
many runs can be told apart.

Records are not parsed where copying their text will do: a study has millions of calls, and reading floats in order to
write them again is what would cost.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from json.encoder import encode_basestring
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import zstandard

from internalize.archive.tables import CALL, EPISODE, JOURNAL, TRANSCRIPT, Table, whole_text
from internalize.archive.tarzst import TarZst
from internalize.errors import CorruptPayload
from internalize.files import read_jsonl
from internalize.harness.episode import CALLS, EPISODES
from internalize.harness.episode import JOURNAL as JOURNALS

SESSION = b'{"session":'
RESULT = b',"result":'
ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
LONE = b"\\ud"
"""Where half a surrogate pair could hide in JSON text."""


@dataclass(frozen=True)
class Played:
    """One folder of play records in the store."""

    label: str
    """Folder in `work.tar.zst`: `step0003`, `eval-step0003`."""
    source: str
    step: int
    phase: str
    folder: Path
    work: Path
    """Where its harness left one folder an episode, if it left any."""


class Lines:
    """A table file that grows line by line; `.zst` names are compressed, by one frame and one thread."""

    def __init__(self, path: Path, level: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.rows = 0
        self._raw: IO[bytes] = path.open("wb")
        self._out: Any = self._raw
        if path.suffix == ".zst":
            self._out = zstandard.ZstdCompressor(level=level, write_checksum=True).stream_writer(self._raw)

    def write(self, *lines: bytes) -> None:
        """Adds lines (without their ends)."""
        self._out.write(b"\n".join((*lines, b"")))
        self.rows += len(lines)

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._out.close()
        self._raw.close()


class PlayWriter:
    """Writes the play of one run into its folder.

    Args:
        folder: the run's folder.
        run: its name, the first column of every row.
        level: zstd level.
        threads: for the tar.
    """

    def __init__(self, folder: Path, run: str, level: int, threads: int) -> None:
        self.run = run
        self.folder = folder
        self.level = level
        self._stack = ExitStack()
        self._tar = self._stack.enter_context(TarZst(folder / "work.tar.zst", level, threads))
        self._open: dict[str, Lines] = {}
        self.tables: dict[str, Table] = {}

    def __enter__(self) -> PlayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def rows(self) -> dict[str, int]:
        """Rows of each file, by its path below the run's folder."""
        return {name: lines.rows for name, lines in self._open.items()}

    def add(self, played: Played, below: str = "", records: bool = True) -> None:
        """Adds a folder of play.

        Args:
            played: where it lies and what it is.
            below: folder of its tables within the run's (`eval_dumps/`).
            records: False keeps the episodes' rows and leaves calls and journals out.

        Raises:
            CorruptPayload: records of an episode are missing, or stand in another order than the episodes.
        """
        front = _front(self.run, played)
        calls, journal = (_sessions(played.folder / name) if records else iter(()) for name in (CALLS, JOURNALS))
        head = {"run": self.run, "source": played.source, "step": played.step, "phase": played.phase}
        kinds = ("calls", "journal")
        works = played.work.is_dir()
        for row in read_jsonl(played.folder / EPISODES):
            plan, outcome = row["plan"], row["outcome"]
            name = plan["id"]
            flat = {"episode": name, **{k: v for k, v in plan.items() if k not in ("id", "seed")}}
            rest = {key: value for key, value in row.items() if key not in ("plan", "outcome")}
            flat |= {"level_seed": plan["seed"], **outcome, **rest}
            self._lines(f"{below}episodes.jsonl", EPISODE).write(_line(EPISODE.row({**head, **flat})))
            if not records:
                continue
            found = [
                _take(one, name, row[count], played) for one, count in ((calls, "calls"), (journal, "journal_rows"))
            ]
            for lines, kind, table, as_row in zip(found, kinds, (CALL, JOURNAL), (call_row, journal_row), strict=True):
                if lines:
                    self._lines(f"{below}{kind}.jsonl.zst", table).write(*(as_row(front, line) for line in lines))
            self._work(played, name, row, found, front, below, works)
        for kind, rest_of in (("calls", calls), ("journal rows", journal)):
            if (orphan := next(rest_of, None)) is not None:
                raise CorruptPayload(f"{kind} of an unknown episode", where=str(played.folder), got=orphan[0])

    def _work(
        self,
        played: Played,
        name: str,
        row: dict[str, Any],
        found: list[list[bytes]],
        front: bytes,
        below: str,
        works: bool,
    ) -> None:
        """The folder of one episode: what its harness left, and the records that it did not leave itself."""
        files = _left(played.work / name) if works else {}
        made = {
            "calls.jsonl": b"".join(line + b"\n" for line in found[0]),
            "episode.json": _line(row) + b"\n",
            "journal.jsonl": b"".join(line + b"\n" for line in found[1]),
        }
        self._tar.begin(f"{played.label}/{name}")
        for inside in sorted({*files, *made}):
            if inside in files:
                self._tar.add_file(inside, files[inside])
            else:
                self._tar.add(inside, made[inside])
        if "transcript.jsonl" in files:
            out = self._lines(f"{below}transcript.jsonl.zst", TRANSCRIPT)
            with files["transcript.jsonl"].open("rb") as events:
                for index, event in enumerate(events):
                    text = encode_basestring(whole_text(event.decode(errors="replace").rstrip("\n")))
                    out.write(front + f'"episode":{encode_basestring(name)},"index":{index},"event":{text}}}'.encode())

    def _lines(self, name: str, table: Table) -> Lines:
        if name not in self._open:
            self._open[name] = self._stack.enter_context(Lines(self.folder / name, self.level))
            self.tables[name] = table
        return self._open[name]


def call_row(front: bytes, line: bytes) -> bytes:
    """A call as the table's row."""
    return _checked(CALL, front + b'"episode":' + line[len(SESSION) :])


def journal_row(front: bytes, line: bytes) -> bytes:
    """A journal row as the table's row: the result becomes JSON text."""
    head, found, result = line.partition(RESULT)
    if not found or not line.endswith(b"}}"):
        raise CorruptPayload("not a journal row", got=line[:200].decode(errors="replace"))
    text = encode_basestring(result[:-1].decode()).encode()
    return _checked(JOURNAL, front + b'"episode":' + head[len(SESSION) :] + RESULT + text + b"}")


def _left(folder: Path) -> dict[str, Path]:
    """What a harness left of an episode, by path below its folder."""
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if not path.is_dir()}


def _checked(table: Table, line: bytes) -> bytes:
    """The line, with every half of a surrogate pair replaced; `datasets` refuses a file for one."""
    return line if LONE not in line else _line(table.row(_whole(json.loads(line), table)))


def _whole(row: dict[str, Any], table: Table) -> dict[str, Any]:
    loose = [name for name, feature in table.columns.items() if feature == "json"]
    return {key: json.loads(value) if key in loose and value is not None else value for key, value in row.items()}


def _line(row: Any) -> bytes:
    return ENCODER.encode(row).encode()


def _front(run: str, played: Played) -> bytes:
    head = {"run": run, "source": played.source, "step": played.step, "phase": played.phase}
    return _line(head)[:-1] + b","


def _sessions(path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Episode and its lines, in the file's order, one episode in memory."""
    with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as plain:
        for head, lines in groupby(io.BufferedReader(plain, 1 << 20), key=lambda line: _session(line, path)):
            yield json.loads(head), [line.rstrip(b"\n") for line in lines]


def _session(line: bytes, path: Path) -> bytes:
    end = line.find(b'",', len(SESSION))
    if not line.startswith(SESSION) or end < 0:
        raise CorruptPayload("a row that does not start with its session", where=str(path), got=repr(line[:80]))
    return line[len(SESSION) : end + 1]


def _take(sessions: Iterator[tuple[str, list[bytes]]], name: str, count: int, played: Played) -> list[bytes]:
    """The next episode's lines, which must be `count` lines of episode `name`."""
    if count == 0:
        return []
    found, lines = next(sessions, ("none", []))
    if found != name or len(lines) != count:
        raise CorruptPayload(
            "records do not fit their episode",
            where=str(played.folder),
            expected=f"{count} rows of {name}",
            got=f"{len(lines)} rows of {found}",
        )
    return lines
