"""The bundled game at a gateway, a backend that says what it is told, and a client that talks as the CLIs do,
through either API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from internalize.engine.protocol import Completion, SamplingParams
from internalize.games import make_game
from internalize.games.protocol import Game
from internalize.gateway.dialect import DialogueDialect
from internalize.gateway.lines import Lines
from internalize.gateway.server import Gateway
from internalize.gateway.session import Opening, Session
from internalize.harness.seat import Seat
from internalize.language.template import Template

STATIONS = {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"}
POTS = {"a": "blue", "b": "red", "c": "green"}
WIRES = ("messages", "chat")


@pytest.fixture(scope="session")
def game() -> Game:
    return make_game("dipwheel", rules={"stations": STATIONS, "pots": POTS})


@pytest.fixture(scope="session")
def template(game: Game) -> Template:
    return Template.of(game)


class ScriptedBackend:
    """Says the replies of its script in turn, the last one forever. An exception in the script is raised, a
    number is a pause in seconds."""

    def __init__(self, script: Sequence[Any]) -> None:
        self.script = list(script)
        self.prompts: list[list[int]] = []
        self.seeds: list[int | None] = []
        self.released: list[str] = []
        self.running = self.most = 0

    async def generate(
        self,
        input_ids: Sequence[int],
        sampling: SamplingParams,
        *,
        session: str | None = None,
        rid: str | None = None,
        seed: int | None = None,
    ) -> Completion:
        said = self.script[min(len(self.prompts), len(self.script) - 1)]
        self.prompts.append(list(input_ids))
        self.seeds.append(seed)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if isinstance(said, int | float):
                await asyncio.sleep(said)
                said = self.script[-1]
            if isinstance(said, Exception):
                raise said
            if isinstance(said, Completion):
                return said
        finally:
            self.running -= 1
        ids = list(said)[: sampling.max_new_tokens]
        finish = "stop" if ids[-1] in sampling.stop_ids else "length"
        return Completion(ids, [-0.5] * len(ids), finish, "scripted", 0)  # type: ignore[arg-type]

    def release(self, sessions: Collection[str]) -> None:
        self.released += sessions


@pytest.fixture(scope="session")
def scripted() -> type[ScriptedBackend]:
    return ScriptedBackend


@pytest.fixture(scope="session")
def calls(template: Template) -> Callable[..., list[list[int]]]:
    """Whole replies from call words; `say:WORD` is a text answer."""

    def make(*words: str) -> list[list[int]]:
        return [
            template.reply_ids("need left", say=word[4:])
            if word.startswith("say:")
            else template.reply_ids("need left", call=word)
            for word in words
        ]

    return make


class Place:
    """An open session, its seat and its gateway."""

    def __init__(self, gateway: Gateway, session: Session, seat: Seat, backend: ScriptedBackend) -> None:
        self.gateway, self.session, self.seat, self.backend = gateway, session, seat, backend
        self.http = httpx.Client(timeout=20.0, trust_env=False)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.session.opening.record.read_text().splitlines()]

    def post(self, route: str, body: Any, key: str | None = None, **more: Any) -> httpx.Response:
        url = self.gateway.url(self.session.opening.id) + route
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"x-api-key": self.gateway.key if key is None else key, "content-type": "application/json"}
        return self.http.post(url, content=content, headers=headers, **more)


@pytest.fixture
def place(tmp_path: Path, game: Game, template: Template) -> Iterator[Callable[..., Place]]:
    """Make a `Place` for a script; everything is closed at the end."""
    made: list[Place] = []

    def make(script: Sequence[Any] | Any, level: int = 4, name: str = "e0", **more: Any) -> Place:
        backend = script if hasattr(script, "generate") else ScriptedBackend(script)
        journal = Lines(tmp_path / f"journal-{len(made)}.jsonl")
        seat = Seat(game, level, 1000, journal)
        gateway = more.pop("gateway", None) or Gateway(backend, DialogueDialect(template), **more.pop("server", {}))
        fields = {
            "id": name,
            "task": seat.observe(),
            "sampling": SamplingParams(0.0, 8, (template.stop_id,)),
            "seed_key": ("test",),
            "max_context": 256,
            "record": tmp_path / f"calls-{len(made)}.jsonl",
            **more,
        }
        made.append(Place(gateway, gateway.open(Opening(**fields), seat), seat, backend))
        return made[-1]

    yield make
    for one in made:
        one.http.close()
        one.gateway.close()


TOOLS = [
    ("mcp__game__act", {"type": "object", "properties": {"action": {"type": "string"}}, "required": ["action"]}),
    ("mcp__game__look", {"type": "object", "properties": {}}),
    ("mcp__game__status", {"type": "object", "properties": {}}),
]


class Client:
    """An agent without a mind: sends the conversation, carries out what comes back at the seat."""

    def __init__(self, place: Place, wire: str, stream: bool = True) -> None:
        self.place, self.wire, self.stream = place, wire, stream
        self.messages: list[dict[str, Any]] = []
        if wire == "messages":
            self.messages = [
                {"role": "user", "content": [{"type": "text", "text": place.session.opening.said}]},
                {"role": "system", "content": "Today's date is 2026-11-30."},
            ]
        else:
            notes = "<system-reminder>\nToday's date is Monday, November 30, 2026.\n</system-reminder>"
            texts = [{"type": "text", "text": text} for text in (notes, place.session.opening.said)]
            self.messages = [{"role": "system", "content": "Play."}, {"role": "user", "content": texts}]

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": "policy", "max_tokens": 4096, "stream": self.stream, "messages": self.messages}
        if self.wire == "messages":
            tools = [{"name": name, "description": "d", "input_schema": schema} for name, schema in TOOLS]
            return body | {"system": [{"type": "text", "text": "Play."}], "tools": tools}
        tools = [{"type": "function", "function": {"name": n, "description": "d", "parameters": s}} for n, s in TOOLS]
        return body | {"tools": tools, "stream_options": {"include_usage": True}}

    def ask(self) -> httpx.Response:
        route = "/v1/messages?beta=true" if self.wire == "messages" else "/v1/chat/completions"
        return self.place.post(route, self.body())

    def take(self, response: httpx.Response) -> tuple[str, str, dict[str, Any]] | None:
        """Append the reply; its call (id, name, arguments), or None for a text."""
        assert response.status_code == 200, response.text
        if self.wire == "messages":
            message = from_events(response.text) if self.stream else response.json()
            self.messages.append({"role": "assistant", "content": message["content"]})
            uses = [block for block in message["content"] if block["type"] == "tool_use"]
            assert message["stop_reason"] == ("tool_use" if uses else "end_turn")
            return (uses[0]["id"], uses[0]["name"], uses[0]["input"]) if uses else None
        message = from_chunks(response.text) if self.stream else response.json()["choices"][0]["message"]
        self.messages.append(message)
        if not message.get("tool_calls"):
            return None
        call = message["tool_calls"][0]
        return call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])

    def result(self, call_id: str, text: str) -> None:
        if self.wire == "messages":
            block = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": text}]}
            self.messages.append({"role": "user", "content": [block]})
        else:
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})

    def act(self, call: tuple[str, str, dict[str, Any]]) -> None:
        """Carry out a call and append its result."""
        self.result(call[0], self.place.seat.call(call[1].removeprefix("mcp__game__"), call[2]))

    def play(self) -> None:
        """To the end."""
        while (call := self.take(self.ask())) is not None:
            self.act(call)


@pytest.fixture(scope="session")
def client() -> type[Client]:
    return Client


def from_events(text: str) -> dict[str, Any]:
    """A Messages reply from its event stream, as clients build it."""
    message: dict[str, Any] = {}
    partial: dict[int, str] = {}
    for part in text.strip().split("\n\n"):
        kind, data = part.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {event['type']}"
        if event["type"] == "message_start":
            message = event["message"]
        elif event["type"] == "content_block_start":
            assert event["index"] == len(message["content"])
            message["content"].append(event["content_block"])
        elif event["type"] == "content_block_delta":
            block, delta = message["content"][event["index"]], event["delta"]
            if delta["type"] == "input_json_delta":
                partial[event["index"]] = partial.get(event["index"], "") + delta["partial_json"]
            else:
                field = delta["type"].removesuffix("_delta")
                block[field] += delta[field]
        elif event["type"] == "content_block_stop" and event["index"] in partial:
            message["content"][event["index"]]["input"] = json.loads(partial[event["index"]])
        elif event["type"] == "message_delta":
            message |= event["delta"]
            message["usage"] |= event["usage"]
    assert event["type"] == "message_stop"
    return message


def from_chunks(text: str) -> dict[str, Any]:
    """A chat message from its chunks."""
    message: dict[str, Any] = {"content": ""}
    lines = [part.removeprefix("data: ") for part in text.strip().split("\n\n")]
    assert lines[-1] == "[DONE]"
    for line in lines[:-1]:
        for choice in json.loads(line)["choices"]:
            delta = choice["delta"]
            message["role"] = delta.get("role", message.get("role"))
            message["content"] += delta.get("content") or ""
            if "reasoning_content" in delta:
                message["reasoning_content"] = message.get("reasoning_content", "") + delta["reasoning_content"]
            for call in delta.get("tool_calls", ()):
                message.setdefault("tool_calls", []).append({k: v for k, v in call.items() if k != "index"})
    return message


@pytest.fixture(scope="session")
def readers() -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    return from_events, from_chunks
