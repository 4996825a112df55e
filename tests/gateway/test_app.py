from __future__ import annotations

import asyncio
import gc
import json
import random
import socket
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from internalize.gateway.app import Desk, Limits, create_app
from internalize.gateway.chain import ChainBroken, follow
from internalize.gateway.harness_text import fingerprint
from internalize.gateway.server import MODEL
from internalize.gateway.session import Refused

KEY = "the-key"
ROUTES = ("/e/e0/v1/messages", "/e/e0/v1/messages/count_tokens", "/e/e0/v1/chat/completions")


@pytest.mark.parametrize("key", ["", "wrong", "Bearer wrong"])
def test_without_the_key_nothing_happens(key: str, place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a"))
    for route in ("/v1/messages", "/v1/messages/count_tokens", "/v1/chat/completions"):
        assert here.post(route, client(here, "messages").body(), key=key).status_code == 401
    assert here.backend.prompts == []
    assert here.session.first_request is None


def test_the_key_is_a_bearer_token_too(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a"))
    headers = {"authorization": f"Bearer {here.gateway.key}"}
    url = here.gateway.url("e0")
    assert here.http.get(f"{url}/v1/models", headers=headers).json()["data"][0]["id"] == MODEL
    assert here.http.get(f"{url}/v1/models").status_code == 401
    body = json.dumps(client(here, "chat").body())
    assert here.http.post(f"{url}/v1/chat/completions", content=body, headers=headers).status_code == 200


def test_unknown_sessions_are_refused(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a"))
    url = here.gateway.url("e1") + "/v1/messages"
    response = here.http.post(url, content=b"{}", headers={"x-api-key": here.gateway.key})
    assert response.status_code == 404


def test_other_models_are_not_served(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a"))
    body = client(here, "messages").body() | {"model": "some-small-model"}
    assert here.post("/v1/messages", body).status_code == 404
    assert here.session.reason is None


def test_bodies_are_bounded(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a"), server={"limits": Limits(body=20_000)})
    talk = client(here, "messages")
    body = talk.body() | {"metadata": {"user_id": "x" * 30_000}}
    assert here.post("/v1/messages", body).status_code == 413

    def pieces() -> Any:  # chunked: no content-length tells its size beforehand
        for _ in range(100):
            yield b" " * 1000

    url = here.gateway.url("e0") + "/v1/messages"
    response = here.http.post(url, content=pieces(), headers={"x-api-key": here.gateway.key})
    assert response.status_code == 413
    assert talk.ask().status_code == 200


def test_a_body_that_never_ends_is_given_up(place: Any, calls: Any) -> None:
    here = place(calls("pot:a"), server={"limits": Limits(body_seconds=0.3)})
    with socket.create_connection(("127.0.0.1", here.gateway.port), timeout=10) as line:
        head = f"POST /e/e0/v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {here.gateway.key}\r\n"
        head += "content-length: 99\r\n\r\n"
        line.sendall(head.encode() + b"{")
        assert b" 408 " in line.recv(200)


def test_concurrency_is_bounded(place: Any, client: Any, calls: Any, scripted: Any) -> None:
    limits = Limits(calls=2, waiting=1)
    backend = scripted([0.6] * 5 + calls("pot:a"))
    first = place(backend, name="s0", server={"limits": limits})
    places = [first] + [place(backend, name=f"s{i}", gateway=first.gateway) for i in range(1, 6)]
    with ThreadPoolExecutor(6) as pool:
        statuses = sorted(r.status_code for r in pool.map(lambda p: client(p, "messages").ask(), places))
    assert backend.most <= 2
    assert statuses.count(429) >= 1
    assert set(statuses) == {200, 429}
    assert all(p.session.reason is None for p in places)


# ---- malformed bodies ---
def _app(session: Any) -> Any:
    desk = Desk(KEY, MODEL)
    desk.sessions["e0"] = session
    return create_app(desk, Limits(body=1 << 16))


class Never:
    """A session that no malformed body may reach with something that it can't read."""

    def __init__(self) -> None:
        self.conversations: list[Any] = []

    async def answer(self, conversation: Any) -> Any:
        self.conversations.append(conversation)
        fingerprint(conversation, "pot")
        try:
            follow(conversation, "pot", [], [])
        except ChainBroken as error:
            raise Refused(error.reason, str(error)) from error
        raise Refused("closed", repr(conversation)[:50])

    async def count_tokens(self, conversation: Any) -> Any:
        return await self.answer(conversation)


async def _post(app: Any, route: str, body: bytes, key: str = KEY) -> int:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": route,
        "raw_path": route.encode(),
        "query_string": b"beta=true",
        "root_path": "",
        "headers": [(b"x-api-key", key.encode()), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    payload = b"".join(m.get("body", b"") for m in sent[1:])
    assert json.loads(payload)["error"]["message"]
    return int(sent[0]["status"])


def _mutations(body: dict[str, Any]) -> Callable[[random.Random], bytes]:
    """Valid requests with something wrong: in the bytes, the types, the keys, the values."""
    odd = [
        None, True, -1, 0, 1 << 70, 1e308, "", "x", "\ud800", "\0", [], {}, [[]], [None], {"a": {}}, "policy", ["text"],
        {"type": "text"}, {"type": "image", "source": {}}, {"type": "tool_result"}, {"role": "user"}, 0.5, "stop",
    ]  # fmt: skip

    def paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
        yield path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield from paths(inner, (*path, key))

    every = list(paths(body))

    def make(rng: random.Random) -> bytes:
        copy = json.loads(json.dumps(body))
        for _ in range(rng.randint(1, 3)):
            path = rng.choice(every)
            try:
                target = copy
                for key in path[:-1]:
                    target = target[key]
                if not path:
                    copy = deepcopy(rng.choice(odd))
                elif rng.random() < 0.3:
                    del target[path[-1]]
                else:
                    target[path[-1]] = deepcopy(rng.choice(odd))
            except (KeyError, IndexError, TypeError):
                continue
        data = json.dumps(copy).encode()
        kind = rng.random()
        if kind < 0.1:
            data = data[: rng.randrange(len(data) + 1)]
        elif kind < 0.2:
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.randbytes(rng.randint(1, 8)) + data[at:]
        elif kind < 0.23:
            data = b"[" * rng.randint(1, 60_000)
        elif kind < 0.26:
            depth = rng.randint(30, 400)
            data = data[:-1] + b', "a": ' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
        elif kind < 0.29:
            data = data.replace(b"4096", rng.choice([b"NaN", b"1e999", b"9" * 5000, b"-Infinity", b"4096.5"]))
        return data

    return make


def test_ten_thousand_malformed_bodies(place: Any, client: Any, calls: Any) -> None:
    """4xx each, at once, and memory stays where it is."""
    here = place(calls("pot:a"))
    bodies = []
    for wire in ("messages", "chat"):
        talk = client(here, wire)
        talk.act(("call_1", "mcp__game__look", {}))
        thought = {"type": "thinking", "thinking": "need left", "signature": "x"}
        use = {"type": "tool_use", "id": "call_1", "name": "mcp__game__look", "input": {}}
        call = {"id": "call_1", "type": "function", "function": {"name": "mcp__game__look", "arguments": "{}"}}
        reply = (
            {"content": [thought, use]}
            if wire == "messages"
            else {"content": "", "reasoning_content": "need", "tool_calls": [call]}
        )
        talk.messages.insert(-1, {"role": "assistant", **reply})
        bodies.append(_mutations(talk.body() | {"temperature": 1.0, "metadata": {"user_id": "u"}}))
    session = Never()
    app, rng = _app(session), random.Random("fuzz")

    async def storm(count: int) -> dict[int, int]:
        statuses: dict[int, int] = {}
        for n in range(count):
            route = ROUTES[n % 3]
            async with asyncio.timeout(60.0):  # a hang
                status = await _post(app, route, bodies[n % 3 == 2](rng))
            statuses[status] = statuses.get(status, 0) + 1
            session.conversations.clear()
        return statuses

    asyncio.run(storm(500))  # caches fill
    gc.collect()
    tracemalloc.start()
    asyncio.run(storm(500))
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    asyncio.run(storm(500))
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000
    statuses = asyncio.run(storm(8_500))
    for body in (b"[" * 60_000, b"9" * 60_000, b'{"a":' * 12_000, b'{"messages":[' + b"{}," * 15_000 + b"{}]}"):
        status = asyncio.run(_post(app, ROUTES[0], body))
        statuses[status] = statuses.get(status, 0) + 1
    assert all(400 <= status < 500 for status in statuses), statuses
    assert statuses[400] > 5_000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
TEXT = st.text(max_size=20)
PART = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT | JSON}),
    st.fixed_dictionaries({"type": st.just("tool_result"), "tool_use_id": TEXT, "content": JSON | TEXT}),
    st.fixed_dictionaries({"type": st.just("tool_use"), "id": TEXT, "name": TEXT, "input": JSON}),
    JSON,
)
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "assistant", "system", "tool", "x"]),
        "content": TEXT | st.lists(PART, max_size=3) | JSON,
    },
    optional={"tool_calls": st.lists(PART, max_size=2), "tool_call_id": TEXT | JSON, "reasoning_content": TEXT | JSON},
)
BODY = st.fixed_dictionaries(
    {"model": st.just(MODEL), "messages": st.lists(MESSAGE, max_size=4)},
    optional={"max_tokens": st.integers() | JSON, "stream": st.booleans() | JSON, "tools": JSON, "system": JSON},
)


ANY = _app(Never())


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=BODY | JSON, route=st.sampled_from(ROUTES))
def test_any_json_is_refused_in_words(body: Any, route: str) -> None:
    status = asyncio.run(_post(ANY, route, json.dumps(body).encode()))
    assert 400 <= status < 500


def test_malformed_bodies_leave_the_session_alone(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a", "say:left"))
    talk = client(here, "messages")
    for body in (b"", b"{", b"null", b'{"model": "policy"}', json.dumps(talk.body() | {"max_tokens": 0}).encode()):
        assert here.post("/v1/messages", body).status_code == 400
    talk.play()
    assert here.session.reason is None
    assert here.backend.prompts[0] == here.rows()[0]["prompt_ids"]
