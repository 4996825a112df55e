"""Files are whole or absent, and their bytes depend on their content alone."""

from __future__ import annotations

import errno
import gzip
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize import files
from internalize.errors import CorruptPayload, UserError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_canonical_json_ignores_key_order(value: dict[str, Any]) -> None:
    assert files.digest(value) == files.digest(dict(reversed(list(value.items()))))


def test_swapped_values_have_another_digest() -> None:
    assert files.digest({"lr": 1, "kl": 2}) != files.digest({"lr": 2, "kl": 1})


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        files.canonical_json({"x": float("nan")})


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
@settings(max_examples=20)
@given(rows=st.lists(JSON, max_size=6))
def test_jsonl_round_trip_and_equal_bytes(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, rows: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    for name in ("a", "b"):
        assert files.write_jsonl(folder / (name + suffix), rows) == len(rows)
    assert list(files.read_jsonl(folder / ("a" + suffix))) == rows
    assert (folder / ("a" + suffix)).read_bytes() == (folder / ("b" + suffix)).read_bytes()


def test_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    files.write_json(path, {"old": True})

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left") as caught:
        files.write_json(path, {"old": False})
    assert str(path) in str(caught.value)
    assert files.read_json(path) == {"old": True}
    assert [p.name for p in tmp_path.iterdir()] == ["state.json"]


def test_cut_archives_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\n')[:-6])
    with pytest.raises(CorruptPayload, match=r"rows\.jsonl\.gz"):
        list(files.read_jsonl(path))


def test_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(CorruptPayload, match="line 2"):
        list(files.read_jsonl(path))
