"""Fetching a game: pinned, keyed, offline when the file is here; against a local service."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from internalize.errors import CorruptPayload, UserError
from internalize.games.arc import fetch, place

ID = "ring-00000001"
FILE = b"print('a game')\n"
SHA256 = hashlib.sha256(FILE).hexdigest()
METADATA = {"game_id": ID, "title": "Ring", "baseline_actions": [1, 11, 9]}


class Service:
    """What the service answers, and what it was asked."""

    def __init__(self) -> None:
        self.source = FILE
        self.metadata: Any = METADATA
        self.status = 200
        self.asked: list[tuple[str, str | None]] = []


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Service]:
    told = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.asked.append((self.path, self.headers.get("X-Api-Key")))
            body = told.source if self.path.endswith("/source") else json.dumps(told.metadata).encode()
            self.send_response(told.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    monkeypatch.setenv(fetch.URL, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv(fetch.KEY, "key-of-the-test")
    monkeypatch.setenv(place.FOLDER, str(tmp_path / "environments"))
    monkeypatch.delenv("INTERNALIZE_GAME_FILE", raising=False)
    yield told
    server.shutdown()
    server.server_close()


def build(tmp_path: Path, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    said: list[str] = []
    folder = tmp_path / "payload"
    folder.mkdir(exist_ok=True)
    facts = fetch.build(folder, {"id": ID, "sha256": SHA256, "metadata_sha256": None, **changes}, {}, said.append)
    return facts, said


def test_a_game_is_fetched_once_and_its_payload_holds_hashes_only(service: Service, tmp_path: Path) -> None:
    facts, _ = build(tmp_path)
    assert service.asked == [("/api/games/ring", "key-of-the-test"), (f"/api/games/{ID}/source", "key-of-the-test")]
    assert place.place_of(ID).read_bytes() == FILE
    assert facts == {
        "id": ID,
        "sha256": SHA256,
        "metadata_sha256": place.metadata_digest(METADATA),
        "baselines": [1, 11, 9],
    }
    written = {path.name: path.read_text() for path in (tmp_path / "payload").iterdir()}
    assert list(written) == ["game.json"]
    assert "key-of-the-test" not in written["game.json"] + str(facts)
    again, said = build(tmp_path)
    assert (again, len(service.asked)) == (facts, 2)
    assert "is here already" in said[0]


def test_the_metadata_pin_ignores_when_it_was_fetched(service: Service, tmp_path: Path) -> None:
    pinned = place.metadata_digest(METADATA)
    service.metadata = {**METADATA, "date_downloaded": "2026-09-09T00:00:00Z"}
    assert build(tmp_path, metadata_sha256=pinned)[0]["metadata_sha256"] == pinned
    path = place.place_of(ID).with_name(place.METADATA)
    path.write_text(json.dumps({**METADATA, "baseline_actions": [2, 8, 9]}))
    with pytest.raises(CorruptPayload, match="metadata is not what the study names"):
        build(tmp_path, metadata_sha256=pinned)


def test_another_file_is_not_kept(service: Service, tmp_path: Path) -> None:
    service.source = b"print('another')\n"
    with pytest.raises(CorruptPayload, match="not the one that the study names"):
        build(tmp_path)
    assert list((tmp_path / "environments").rglob("*.py")) == []
    assert list((tmp_path / "environments").rglob(".*fetched")) == []


def test_another_version_is_named(service: Service, tmp_path: Path) -> None:
    service.metadata = {**METADATA, "game_id": "ring-00000002"}
    with pytest.raises(CorruptPayload, match="another version"):
        build(tmp_path)


def test_without_a_key_nothing_is_asked(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(fetch.KEY)
    with pytest.raises(UserError, match="no key for it") as caught:
        build(tmp_path)
    assert service.asked == []
    assert str(place.place_of(ID)) in caught.value.fix


@pytest.mark.parametrize(("status", "fix"), [(401, "check ARC_API_KEY"), (503, "try again later")])
def test_refusals_say_what_to_do(service: Service, tmp_path: Path, status: int, fix: str) -> None:
    service.status = status
    with pytest.raises(UserError, match="refuses the game") as caught:
        build(tmp_path)
    assert caught.value.fix == fix


def test_no_network_is_a_user_error(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fetch.URL, "http://127.0.0.1:9")
    with pytest.raises(UserError, match="does not answer"):
        build(tmp_path)


def test_the_users_own_file_needs_no_service(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.py"
    own.write_bytes(FILE)
    monkeypatch.setenv("INTERNALIZE_GAME_FILE", str(own))
    assert build(tmp_path)[0]["metadata_sha256"] is None
    assert service.asked == []


@pytest.mark.parametrize("fits", [True, False])
def test_the_board_is_held_against_the_users_copy(
    engine_installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    source = Path(__file__).with_name("ring.py").read_text()
    shifted = source if fits else source.replace('"canvas").set_position(34, 34)', '"canvas").set_position(35, 34)')
    game = tmp_path / "ring.py"
    game.write_text(shifted)
    monkeypatch.setenv("INTERNALIZE_GAME_FILE", str(game))
    sha256 = hashlib.sha256(game.read_bytes()).hexdigest()
    spec = {"id": ID, "sha256": sha256, "metadata_sha256": None, "board": "ring_layout"}
    said: list[str] = []
    if fits:
        fetch.build(tmp_path / "payload", spec, {}, said.append)
        assert "game: the board fits, level by level" in said
        return
    with pytest.raises(CorruptPayload, match="the board does not fit") as caught:
        fetch.build(tmp_path / "payload", spec, {}, said.append)
    assert "level 1: the canvas is not blank" in caught.value.got
