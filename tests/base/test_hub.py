"""A base from the hub: one commit, hashes compared, nothing fetched without a pin."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from internalize.base import hub
from internalize.errors import CorruptPayload, MissingPayload, StudyError, UserError
from internalize.files import read_json

REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = {"config.json": b"{}", "model.safetensors": b"weights"}


@pytest.fixture
def stated(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """What the hub says about its files; the download writes them."""
    about: dict[str, dict[str, Any]] = {
        name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in FILES.items()
    }

    def download(repo: str, revision: str, folder: Path, progress: Any) -> dict[str, dict[str, Any]]:
        for name, data in FILES.items():
            (folder / name).write_bytes(data)
        return about

    monkeypatch.setattr(hub, "_download", download)
    return about


def build(folder: Path, revision: str | None = REVISION) -> dict[str, Any]:
    return hub.build(folder, {"repo": "Qwen/Qwen3-0.6B", "revision": revision}, {}, lambda _: None)


def test_what_was_fetched_is_said(stated: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    facts = build(tmp_path)
    assert (facts["which"], facts["revision"], facts["files"], facts["bytes"]) == ("hub", REVISION, 2, 9)
    provenance = read_json(tmp_path / hub.PROVENANCE)
    assert provenance["files"] == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}


@pytest.mark.parametrize("change", [{"size": 8}, {"sha256": "0" * 64}])
def test_a_file_that_differs_is_refused(
    stated: dict[str, dict[str, Any]], tmp_path: Path, change: dict[str, Any]
) -> None:
    stated["model.safetensors"] |= change
    with pytest.raises(CorruptPayload, match="not the one that the hub speaks of"):
        build(tmp_path)


def test_a_missing_file_is_named(stated: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    stated["tokenizer.json"] = {"size": 3, "sha256": None}
    with pytest.raises(MissingPayload) as caught:
        build(tmp_path)
    assert "tokenizer.json" in caught.value.where


def test_nothing_is_fetched_without_a_commit(stated: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not pinned to a commit"):
        build(tmp_path, None)
    assert list(tmp_path.iterdir()) == []


def test_no_network_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import HfApi

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(HfApi, "model_info", refuse)
    with pytest.raises(UserError, match="the hub does not answer") as caught:
        build(tmp_path)
    assert "login node" in caught.value.fix


def test_the_payload_holds_the_model_and_nothing_of_the_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("huggingface_hub")

    def download(repo: str, *, revision: str, local_dir: Path, ignore_patterns: list[str]) -> None:
        for name, data in FILES.items():
            (local_dir / name).write_bytes(data)
            note = local_dir / ".cache" / "huggingface" / "download" / f"{name}.metadata"
            note.parent.mkdir(parents=True, exist_ok=True)
            note.write_text(revision)

    siblings = [SimpleNamespace(rfilename=name, size=len(data), lfs=None) for name, data in FILES.items()]
    monkeypatch.setattr(client, "snapshot_download", download)
    monkeypatch.setattr(client.HfApi, "model_info", lambda *_, **__: SimpleNamespace(sha=REVISION, siblings=siblings))
    assert build(tmp_path)["files"] == len(FILES)
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, hub.PROVENANCE}
