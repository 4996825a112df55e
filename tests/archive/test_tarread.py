"""Readers refuse what no honest packer makes, before a byte of it is used."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from typer.testing import CliRunner

from internalize import cli
from internalize.archive.secrets import scan
from internalize.archive.tarread import Limits, Refused, members, read_folder, read_index, read_range
from internalize.archive.tarzst import TarZst
from internalize.errors import CorruptPayload

Build = Callable[[tarfile.TarFile], None]


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.linkname = kind, size, link
    return entry


def packed(path: Path, *entries: tarfile.TarInfo) -> Path:
    """A `.tar.zst` of these entries, each file full of `x`, with an index that says it is one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(b"x" * entry.size) if entry.isreg() else None)
    with TarZst(path) as out:
        out._write(buffer.getvalue())
    folder = {"folder": "ep", "offset": 0, "bytes": len(buffer.getvalue()), "files": len(entries)}
    path.with_name(path.name + ".index.jsonl").write_text(json.dumps(folder) + "\n")
    return path


BAD = {
    "a path upwards": [member("ep/../../etc/passwd", size=3)],
    "an absolute path": [member("/etc/passwd", size=3)],
    "a backslash": [member("ep\\..\\x", size=3)],
    "a home folder": [member("~/x", size=3)],
    "a symbolic link": [member("ep/link", tarfile.SYMTYPE, link="/etc/passwd")],
    "a file through a link": [member("ep/a", tarfile.SYMTYPE, link="/tmp"), member("ep/a/b", size=3)],
    "a hard link": [member("ep/x", size=3), member("ep/y", tarfile.LNKTYPE, link="ep/x")],
    "a device": [member("ep/null", tarfile.CHRTYPE)],
    "a pipe": [member("ep/pipe", tarfile.FIFOTYPE)],
    "a name twice": [member("ep/x", size=3), member("ep/x", size=4)],
}


@pytest.mark.parametrize("what", BAD)
def test_every_reader_refuses(what: str, tmp_path: Path) -> None:
    """What looks into a tar: `members`, `read_folder`, and the command `cat`, which shows nothing and no traceback."""
    (tmp_path / "runs" / "r").mkdir(parents=True)
    path = packed(tmp_path / "runs" / "r" / "work.tar.zst", *BAD[what])
    with pytest.raises(Refused):
        [one.data.read() for one in members(path)]
    with pytest.raises(Refused):
        [one.data.read() for one in read_folder(path, "ep")]
    done = CliRunner().invoke(cli.app, ["cat", str(tmp_path), "r", "ep"])
    assert isinstance(done.exception, Refused)


def test_cat_does_not_leave_the_archive(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["cat", str(tmp_path), "../../etc", "ep"])
    assert isinstance(done.exception, Refused)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    limits = Limits(floor=1 << 20, ratio=100)
    path = packed(tmp_path / "work.tar.zst", member("ep/zeros", size=30 << 20))
    assert path.stat().st_size < 100_000
    with pytest.raises(Refused, match="bomb"):
        [one.data.read() for one in members(path, limits)]
    with pytest.raises(Refused, match="bomb"):
        list(read_folder(path, "ep", limits))
    with pytest.raises(Refused, match="larger than allowed"):
        list(read_folder(path, "ep", Limits(bytes=1 << 20)))
    with pytest.raises(Refused, match="more than a reader accepts"):
        list(members(path, Limits(member=1 << 20)))


def test_the_scan_for_secrets_refuses_a_bomb(tmp_path: Path) -> None:
    (tmp_path / "zeros.zst").write_bytes(zstandard.ZstdCompressor().compress(bytes(70 << 20)))
    with pytest.raises(Refused, match="bomb"):
        scan(tmp_path, ["zeros.zst"], {})


def test_a_header_that_would_fill_memory_is_refused(tmp_path: Path) -> None:
    raw = bytearray(member("ep/x", size=8 << 20).tobuf())
    raw[156:157] = b"x"  # PAX records of 8 MiB, which tarfile would read whole
    raw[148:156] = b"%06o\0 " % (sum(raw[:148]) + 8 * 32 + sum(raw[156:]))
    with TarZst(tmp_path / "a.tar.zst") as out:
        out._write(bytes(raw) + b"x" * (8 << 20))
    with pytest.raises(Refused, match="oversized header"):
        list(members(tmp_path / "a.tar.zst"))


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.tar.zst", *(member(f"ep/{number}") for number in range(50)))
    with pytest.raises(Refused, match="more than"):
        list(members(path, Limits(files=20)))


def test_damage_is_damage(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.tar.zst", member("ep/x", size=5000))
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    with pytest.raises(CorruptPayload, match="no seek table"):
        read_range(path, 0, 10)
    path.write_bytes(good[:40] + bytes([good[40] ^ 1]) + good[41:])
    with pytest.raises(CorruptPayload):
        [one.data.read() for one in members(path)]
    path.write_bytes(good)
    with pytest.raises(CorruptPayload, match="outside"):
        read_range(path, 0, 1 << 30)
    index = path.with_name(path.name + ".index.jsonl")
    index.write_text('{"folder": "ep", "offset": -5, "bytes": 1, "files": 1}\n')
    with pytest.raises(CorruptPayload, match="not an index"):
        read_index(path)
    index.write_text('{"folder": "other", "offset": 0, "bytes": 5632, "files": 1}\n')
    with pytest.raises(Refused, match="another folder"):
        list(read_folder(path, "other"))
