"""Any OpenAI-compatible endpoint plays the game: ours, and a scripted one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from internalize import cli
from internalize.engine.protocol import Completion, SamplingParams
from internalize.errors import UserError
from internalize.files import read_json, read_jsonl
from internalize.games.dipwheel import DipWheel
from internalize.gateway.backend import EngineThread
from internalize.gateway.dialect import DialogueDialect
from internalize.gateway.lines import Lines
from internalize.gateway.server import Gateway
from internalize.gateway.session import Opening
from internalize.harness import endpoint as endpoints
from internalize.harness.endpoint import Endpoint, converse, play_endpoint, table
from internalize.harness.inprocess import InProcess
from internalize.harness.seat import Seat
from internalize.language.template import Template
from internalize.records import JournalRow
from internalize.rollout.plans import single_plans

Answer = dict[str, Any] | int


def call(name: str, **arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def scripted(answer: Callable[[list[dict[str, Any]]], Answer]) -> tuple[Endpoint, list[dict[str, Any]]]:
    """An endpoint that answers what `answer` makes of the messages, and what it was asked."""
    asked: list[dict[str, Any]] = []

    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "scripted"}]})
        body = json.loads(request.content)
        asked.append({**body, "authorization": request.headers.get("authorization")})
        message = answer(body["messages"])
        if isinstance(message, int):
            return httpx.Response(message, text="no")
        return httpx.Response(200, json={"choices": [{"message": message}]})

    return Endpoint("http://scripted/v1", key="secret", transport=httpx.MockTransport(handle)), asked


def planner(game: DipWheel, level: int, seed: int) -> Callable[[list[dict[str, Any]]], Answer]:
    """Plays by the rules."""

    def answer(messages: list[dict[str, Any]]) -> Answer:
        state = game.start(level, seed)
        for message in messages:
            for made in message.get("tool_calls") or []:
                given = json.loads(made["function"]["arguments"])
                state = game.apply(state, game.plan(state)[0]) if given else state
        action = game.plan(state)[0]
        return call("act", **{key: value for key, value in action._asdict().items() if value is not None})

    return answer


def test_a_player_who_knows_clears_every_level(game: DipWheel, tmp_path: Path) -> None:
    for plan in single_plans("eval", 7, 4, [1, 2, 3, 4]):
        endpoint, asked = scripted(planner(game, plan.level, plan.seed))
        (played,) = play_endpoint(endpoint, game, [plan], tmp_path / plan.id, told=["red is in b"])
        assert played.outcome.cleared
        assert played.reason is None
        rows = [JournalRow.model_validate(row) for row in read_jsonl(tmp_path / plan.id / plan.id / "journal.jsonl")]
        assert len(rows) == played.replies == len(asked)
        assert rows[-1].result.state == "WIN"
        assert asked[0]["model"] == "scripted"
        assert asked[0]["authorization"] == "Bearer secret"
        assert "red is in b" in asked[0]["messages"][0]["content"]
        assert {tool["function"]["name"] for tool in asked[0]["tools"]} == {"look", "act", "status"}
        assert [m["role"] for m in asked[-1]["messages"]][:3] == ["system", "user", "assistant"][: 2 + len(asked) - 1]


@pytest.mark.parametrize(
    ("answer", "reason", "ended", "acts"),
    [
        ({"role": "assistant", "content": "I give up."}, None, True, 0),
        (call("act", action=7), None, False, 0),
        (call("look"), None, False, 4),
        ({"tool_calls": [{"id": "x", "function": {"name": "act", "arguments": "{"}}]}, None, False, 4),
        ({"tool_calls": [{"id": "x", "function": {"name": "reset", "arguments": "{}"}}]}, None, False, 4),
        (400, endpoints.FAILED, False, 0),
    ],
)
def test_whatever_is_answered_the_episode_ends(
    game: DipWheel, tmp_path: Path, answer: Answer, reason: str | None, ended: bool, acts: int
) -> None:
    endpoint, _ = scripted(lambda messages: answer)
    plan = single_plans("eval", 7, 1, [1])[0]
    (played,) = play_endpoint(endpoint, game, [plan], tmp_path)
    refused = answer == call("act", action=7)
    assert played.reason == (endpoints.TURNS if refused else reason)
    assert (played.outcome.text_end, played.outcome.acts) == (ended, acts)
    assert not played.outcome.cleared
    assert read_json(tmp_path / "summary.json")["levels"][-1]["not_counted"] == int(played.reason is not None)
    assert "not counted" in table([played]) or played.reason is None


def test_a_busy_endpoint_is_asked_again(game: DipWheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints.time, "sleep", lambda seconds: None)
    answers = iter([503, 429, {"role": "assistant", "content": "no"}])
    endpoint, asked = scripted(lambda messages: next(answers))
    (played,) = play_endpoint(endpoint, game, single_plans("eval", 7, 1, [1]), tmp_path)
    assert (len(asked), played.reason) == (3, None)


def test_errors_of_the_user_are_said(game: DipWheel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not an endpoint"):
        Endpoint("localhost:8000")
    endpoint, _ = scripted(lambda messages: 401)
    with pytest.raises(UserError, match="refuses"):
        play_endpoint(endpoint, game, single_plans("eval", 7, 1, [1]), tmp_path)
    (tmp_path / "episodes.jsonl").write_text("")
    with pytest.raises(UserError, match="before"):
        play_endpoint(endpoint, game, single_plans("eval", 7, 1, [1]), tmp_path)


class Guessing:
    """An engine that draws one of a few replies from each call's own generator."""

    slots, max_len = 8, 512

    def __init__(self, template: Template, words: Sequence[str]) -> None:
        self.replies = [template.reply_ids("", call=word) for word in words]

    def generate(
        self, prompts: Sequence[Any], sessions: Sequence[str], rngs: Sequence[Any], sampling: SamplingParams
    ) -> list[Completion]:
        """See `Engine`."""
        chosen = [self.replies[int(rng.random() * len(self.replies))] for rng in rngs]
        return [Completion(list(ids), [-1.0] * len(ids), "stop", "v0", 0) for ids in chosen]

    def release(self, sessions: Sequence[str]) -> None:
        """See `Engine`."""


def test_our_own_gateway_is_such_an_endpoint(game: DipWheel, template: Template, tmp_path: Path) -> None:
    """What a served model plays through the endpoint is what it plays in process."""
    engine = Guessing(template, ["dip:N", "pot:b", "dip:SW", "look"])
    sampling = SamplingParams(1.0, 8, (template.stop_id,))
    plan = single_plans("eval", 7, 3, [1, 2, 3])[2]
    expected = InProcess(engine, game, template, sampling).play([plan], seed_key=("endpoint",))[0]
    backend = EngineThread(engine)
    with Gateway(backend, DialogueDialect(template)) as gateway:
        lines = Lines(tmp_path / "journal.jsonl")
        seat = Seat(game, plan.level, plan.seed, lines)
        fields: dict[str, Any] = {"max_context": 256, "record": tmp_path / "calls.jsonl", "seed_key": ("endpoint",)}
        gateway.open(Opening(id=plan.id, task=seat.observe(), sampling=sampling, **fields), seat)
        endpoint = Endpoint(gateway.url(plan.id) + "/v1", model="policy", key=gateway.key)
        _, replies, reason = converse(endpoint, seat, endpoints.brief(game, []))
        endpoint.close()
        lines.close()
    backend.close()
    assert reason is None
    assert replies == len(expected.calls)
    assert (seat.outcome(), seat.journal) == (expected.outcome, expected.journal)


def test_the_command_prints_a_table(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("models"):
            return httpx.Response(200, json={"data": [{"id": "some-model"}]})
        return httpx.Response(200, json={"choices": [{"message": {"role": "assistant", "content": "no"}}]})

    client = httpx.Client
    monkeypatch.setattr(
        endpoints.httpx, "Client", lambda **given: client(**{**given, "transport": httpx.MockTransport(handle)})
    )
    words = ["play", "--endpoint", "http://somewhere/v1", "--study", str(repository / "config/bundled.yaml")]
    done = CliRunner().invoke(cli.app, [*words, "--episodes", "4", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "some-model at http://somewhere/v1 on bundled" in done.output
    assert "  all        4      0  0.0% .. 49.0%" in done.output
    assert len(list((tmp_path / "out").rglob("transcript.jsonl"))) == 4
