"""Secrets are found in every kind of file and never shown."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.archive.secrets import OVERLAP, PIECE, own_secrets, scan
from internalize.archive.tarzst import TarZst

# made up, put together here so that no scanner of this repository stumbles over them
FAKES = {
    "a Hugging Face token": "hf" + "_" + "AbCd" * 9,
    "an OpenAI or Anthropic key": "sk" + "-ant-" + "a1B2c3" * 8,
    "an AWS key": "AKIA" + "ABCDEFGH23456789",
    "a GitHub token": "gh" + "p_" + "a1B2" * 9,
    "a Google key": "AI" + "za" + "a1B2c3D" * 5,
    "a Slack token": "xox" + "b-" + "1234567890-" * 3,
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "a bearer token": "Bearer " + "a1B2c3d4" * 4,
    "a home folder": "/home/" + "someone/data",
}
HARMLESS = (
    "task-specific words, ask-me, hf_hub, /homework/x, https://example.org/home/page/ and base64 skAKIA; "
    "Bearer of news; -----BEGIN CERTIFICATE-----; sk-learn; mask-1234"
)


@pytest.mark.parametrize("kind", FAKES)
def test_found_in_plain_packed_and_archived_files(kind: str, tmp_path: Path) -> None:
    text = f'{{"x": "{HARMLESS}", "y": "{FAKES[kind]}"}}\n'.encode()
    (tmp_path / "a.jsonl").write_bytes(text)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(text))
    (tmp_path / "c.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(text))
    with TarZst(tmp_path / "d.tar.zst") as packed:
        packed.begin("ep")
        packed.add("settings.json", text)
    names = ["a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.tar.zst"]
    found = scan(tmp_path, names, {})
    assert [(one.path, one.kind) for one in found] == [(name, kind) for name in names]
    assert found[0].offset == text.index(FAKES[kind].encode())
    assert all(FAKES[kind] not in str(one) for one in found)


def test_the_users_own_secrets_are_known_by_their_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "correct-horse-battery")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "token").write_text("another-long-secret\n")
    assert set(own_secrets().values()) >= {b"correct-horse-battery", b"another-long-secret"}
    assert b"abc" not in own_secrets().values()
    (tmp_path / "x.txt").write_text("... correct-horse-battery ...")
    assert [one.kind for one in scan(tmp_path, ["x.txt"])] == ["the value of $MY_SERVICE_TOKEN"]


@settings(max_examples=12, deadline=None)
@given(st.integers(-60, 60), st.sampled_from(sorted(FAKES)))
def test_nothing_hides_between_two_pieces(tmp_path_factory: pytest.TempPathFactory, shift: int, kind: str) -> None:
    root = tmp_path_factory.mktemp("pieces")
    data = b" " * (PIECE + shift) + FAKES[kind].encode() + b" " * 100
    (root / "x.bin").write_bytes(data)
    assert [(one.kind, one.offset) for one in scan(root, ["x.bin"], {})] == [(kind, PIECE + shift)]
    assert len(FAKES[kind]) < OVERLAP


def test_what_only_looks_alike_is_no_secret(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(HARMLESS)
    assert scan(tmp_path, ["x.txt"], {}) == []
