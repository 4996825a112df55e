from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from internalize.engine.protocol import SamplingParams
from internalize.errors import UserError
from internalize.gateway import reasons
from internalize.gateway.lines import Lines, read_lines
from internalize.gateway.server import Gateway, Loopback
from internalize.gateway.session import Opening


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_are_kept_out(host: str) -> None:
    with pytest.raises(UserError, match="other machines"):
        Loopback(_app, host=host)


def test_a_taken_port_is_a_user_error_and_a_closed_one_is_free() -> None:
    with Loopback(_app) as server:
        assert httpx.get(server.url, trust_env=False).text == "hello"
        with pytest.raises(UserError, match="cannot listen"):
            Loopback(_app, port=server.port)
        port = server.port
    assert not server.alive
    with Loopback(_app, port=port) as again:
        assert httpx.get(again.url, trust_env=False).text == "hello"


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "é", "x" * 200])
def test_session_names_are_path_segments(name: str, place: Any, calls: Any) -> None:
    with pytest.raises(UserError, match="not a session name"):
        place(calls("pot:a"), name=name, record=Path("never"))


def test_two_sessions_of_one_name(place: Any, calls: Any) -> None:
    here = place(calls("pot:a"))
    with pytest.raises(UserError, match="two sessions"):
        here.gateway.open(here.session.opening, here.seat)


def test_a_session_is_bound_to_its_episode(place: Any, client: Any, calls: Any) -> None:
    """Closed, it answers nothing; its caches are dropped; its record is complete."""
    here = place(calls("pot:a", "dip:N"))
    talk = client(here, "messages")
    talk.act(talk.take(talk.ask()))
    here.gateway.close_session(here.session)
    assert talk.ask().status_code == 404
    assert here.backend.released == ["e0"]
    assert here.session.reason is None
    assert [row["call_word"] for row in here.rows()] == ["pot:a"]


def test_a_restarted_gateway_answers_nothing_of_the_old_run(
    place: Any, client: Any, calls: Any, tmp_path: Path, game: Any, template: Any
) -> None:
    here = place(calls("pot:a", "dip:N"))
    talk = client(here, "messages")
    talk.act(talk.take(talk.ask()))
    key, port = here.gateway.key, here.gateway.port
    here.gateway.close()
    assert here.session.reason == reasons.GATEWAY_LOST
    assert not here.gateway.alive
    with Gateway(here.backend, here.session._dialect, port=port) as new:
        opening = Opening(**{**here.session.opening.__dict__, "record": tmp_path / "new.jsonl"})
        session = new.open(opening, here.seat)
        response = here.post("/v1/messages", talk.body(), key=key)
        assert response.status_code == 401
        assert (session.first_request, session.reason) == (None, None)
    assert len(here.rows()) == 1


def test_a_stop_token_is_needed(place: Any, calls: Any) -> None:
    with pytest.raises(UserError, match="would not stop"):
        place(calls("pot:a"), sampling=SamplingParams(0.0, 8, ()))


# ---- records ---
def test_lines_are_there_when_append_returns(tmp_path: Path) -> None:
    lines = Lines(tmp_path / "a.jsonl")
    for n in range(3):
        lines.append({"n": n, "text": "é\ud800"})
        assert [row["n"] for row in read_lines(lines.path)] == list(range(n + 1))
    lines.close()
    lines.close()
    with pytest.raises(UserError, match="cannot write"):
        Lines(tmp_path / "a.jsonl")
    with lines.path.open("a") as file:
        file.write('{"n": 3')
    assert len(list(read_lines(lines.path))) == 3
    assert list(read_lines(tmp_path / "none.jsonl")) == []


def test_a_record_that_cannot_be_written_stops_the_call(place: Any, client: Any, calls: Any) -> None:
    """No answer without its row."""
    here = place(calls("pot:a"))
    here.session._lines.close()
    response = client(here, "messages").ask()
    assert response.status_code == 400
    assert here.session.reason == reasons.RECORD_FAILED
    assert here.rows() == []
