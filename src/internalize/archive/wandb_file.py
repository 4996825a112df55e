"""The `.wandb` file of an offline run: records of protocol buffers in blocks, as Weights & Biases 0.31 writes them.

Invariant: `read(write(records))` is the records; a record whose checksum fails, or that is cut off, raises. No wandb
package is needed on either side; the tests hold both sides against the real one.

Layout: 7 bytes `:W&B`, 0xBEE1, version 0; then LevelDB's log format: blocks of 32 KiB, each chunk a checksum (crc32 of
kind and data), a length, a kind (1 whole, 2 first, 3 middle, 4 last) and data. Fewer than 7 bytes left are zeros.
Of the protocol buffers only the fields below are written; a reader passes over those that it does not know.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.errors import CorruptPayload

HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
BLOCK = 32 << 10
CHUNK = 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4

# field numbers of wandb_internal.proto
NUM, HISTORY, SUMMARY, CONFIG, RUN, EXIT, HEAD = 1, 2, 3, 5, 17, 18, 21
ITEM_KEY, ITEM_NESTED, ITEM_JSON = 1, 2, 16
RUN_ID, RUN_PROJECT, RUN_CONFIG, RUN_GROUP, RUN_JOB, RUN_NAME, RUN_START = 1, 3, 4, 6, 7, 8, 17


@dataclass
class OfflineRun:
    """What an offline run says."""

    id: str = ""
    project: str = ""
    name: str = ""
    group: str = ""
    job_type: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    """One flat dict a logged step; keys of nested values are joined by dots."""
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    """None: the run never ended."""


def write_run(path: Path, run: OfflineRun, producer: str) -> None:
    """Writes the file of a finished run; equal runs give equal bytes (no clock, no host).

    Each row of `run.history` must hold `_step`.
    """
    body = bytearray(HEADER)
    for number, record in enumerate(_records(run, producer), start=1):
        _append(body, _number(NUM, number) + record)
    path.write_bytes(body)


def read_run(path: Path) -> OfflineRun:
    """Reads an offline run, ours or the real package's.

    Raises:
        CorruptPayload: not a `.wandb` file, or damaged.
    """
    run = OfflineRun()
    try:
        for record in records(path.read_bytes(), str(path)):
            _take(run, record)
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise CorruptPayload(f"a damaged record ({error})", where=str(path)) from error
    return run


def records(data: bytes, where: str) -> Iterator[bytes]:
    """The records of a file's bytes.

    Raises:
        CorruptPayload: no header, a failing checksum, or an end in the middle of a record.
    """
    if data[: len(HEADER)] != HEADER:
        raise CorruptPayload("not a .wandb file", where=where, expected=HEADER.hex(), got=data[:7].hex())
    at, open_record = len(HEADER), bytearray()
    while at < len(data):
        left = BLOCK - at % BLOCK
        if left < CHUNK:
            at += left
            continue
        if at + CHUNK > len(data):
            raise CorruptPayload("the file ends in the middle of a record", where=where)
        crc, size, kind = struct.unpack_from("<IHB", data, at)
        chunk = data[at + CHUNK : at + CHUNK + size]
        if len(chunk) < size:
            raise CorruptPayload("the file ends in the middle of a record", where=where)
        if zlib.crc32(bytes([kind]) + chunk) != crc or not WHOLE <= kind <= LAST:
            raise CorruptPayload(f"a damaged record at byte {at}", where=where)
        at += CHUNK + size
        open_record = bytearray(chunk) if kind in (WHOLE, FIRST) else open_record + chunk
        if kind in (WHOLE, LAST):
            yield bytes(open_record)
    if data[len(HEADER) :] and kind in (FIRST, MIDDLE):
        raise CorruptPayload("the file ends in the middle of a record", where=where)


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers and values (int or bytes) of a protocol buffer."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(message, at)
            if at + size > len(message):
                raise ValueError("a field is longer than its message")
            yield number, message[at : at + size]
            at += size
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            yield number, message[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {wire}")


def _records(run: OfflineRun, producer: str) -> Iterator[bytes]:
    yield _part(HEAD, _part(1, _text(1, producer) + _text(2, "0.70.0")))
    config = b"".join(_part(1, _item(ITEM_KEY, key, value)) for key, value in run.config.items())
    names = ((RUN_ID, run.id), (RUN_PROJECT, run.project), (RUN_GROUP, run.group), (RUN_JOB, run.job_type))
    told = b"".join(_text(number, value) for number, value in (*names, (RUN_NAME, run.name)) if value)
    yield _part(RUN, told + _part(RUN_CONFIG, config) + _part(RUN_START, _number(1, 1)))
    for row in run.history:
        items = b"".join(_part(1, _item(ITEM_NESTED, key, value)) for key, value in row.items())
        yield _part(HISTORY, items + _part(2, _number(1, int(row["_step"]))))
    yield _part(SUMMARY, b"".join(_part(1, _item(ITEM_NESTED, key, value)) for key, value in run.summary.items()))
    yield _part(EXIT, _number(1, run.exit_code) if run.exit_code else b"")


def _take(run: OfflineRun, record: bytes) -> None:
    for number, value in fields(record):
        if number == RUN:
            _take_run(run, value)
        elif number == CONFIG:
            run.config |= _items(value)
        elif number == HISTORY:
            run.history.append(_items(value))
        elif number == SUMMARY:
            run.summary |= _items(value)
        elif number == EXIT:
            run.exit_code = next((code for part, code in fields(value) if part == 1), 0)


def _take_run(run: OfflineRun, message: bytes) -> None:
    names = {RUN_ID: "id", RUN_PROJECT: "project", RUN_NAME: "name", RUN_GROUP: "group", RUN_JOB: "job_type"}
    for number, value in fields(message):
        if number in names:
            setattr(run, names[number], value.decode())
        elif number == RUN_CONFIG:
            run.config |= _items(value)


def _items(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, item in fields(message):
        if number == 1:
            keys, text = [], "null"
            for part, value in fields(item):
                if part in (ITEM_KEY, ITEM_NESTED):
                    keys.append(value.decode())
                elif part == ITEM_JSON:
                    text = value.decode()
            found[".".join(keys)] = json.loads(text)
    return found


def _item(key_field: int, key: str, value: Any) -> bytes:
    return _text(key_field, key) + _text(ITEM_JSON, json.dumps(value, ensure_ascii=False))


def _append(body: bytearray, record: bytes) -> None:
    kind = FIRST
    first = True
    while first or record:
        left = BLOCK - len(body) % BLOCK
        if left < CHUNK:
            body += bytes(left)
            continue
        chunk, record = record[: left - CHUNK], record[left - CHUNK :]
        kind = (WHOLE if not record else FIRST) if first else (LAST if not record else MIDDLE)
        body += struct.pack("<IHB", zlib.crc32(bytes([kind]) + chunk), len(chunk), kind) + chunk
        first = False


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(number: int, value: int) -> bytes:
    return _as_varint(number << 3) + _as_varint(value)


def _part(number: int, data: bytes) -> bytes:
    return _as_varint(number << 3 | 2) + _as_varint(len(data)) + data


def _text(number: int, text: str) -> bytes:
    return _part(number, text.encode())


def logged(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Metrics rows of one run as W&B history: one row a step, `kind/name` keys, `_step`; a step's rows in order."""
    steps: dict[int, dict[str, Any]] = {}
    for row in rows:
        values = {
            key: value for key, value in row.items() if key not in ("kind", "run", "arm", "seed", "step", "phase")
        }
        step = steps.setdefault(int(row["step"]), {"phase": row["phase"]})
        step |= {f"{row['kind']}/{key}": value for key, value in values.items() if value is not None}
    return [{**steps[step], "_step": step, "_timestamp": step, "_runtime": step} for step in sorted(steps)]
