"""The client against engines that misbehave; `test_conformance.py` has it against real ones."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from internalize.engine import wire
from internalize.engine.client import EngineClient, Timeouts
from internalize.engine.faults import (
    EngineBusyError,
    EngineDiedError,
    EngineError,
    EngineFailedError,
    EngineMalformedError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
    EngineVersionError,
)
from internalize.engine.protocol import Completion, SamplingParams

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "schemas/sglang-0.5.23.json").read_text())
SCHEMAS = {name: Draft202012Validator(schema) for name, schema in RECORDED["requests"].items()}
BODIES = {
    "/generate": "GenerateReqInput",
    "/update_weights_from_disk": "UpdateWeightFromDiskReqInput",
    "/pause_generation": "PauseGenerationReqInput",
    "/continue_generation": "ContinueGenerationReqInput",
    "/abort_request": "AbortReq",
}
SAMPLING = SamplingParams(temperature=0.7, max_new_tokens=5, stop_ids=(4,))
URLS = ("http://one:1", "http://two:2")


class FakeEngine(httpx.AsyncBaseTransport):
    """Engines that say yes and keep what they were told, unless `broken` has an answer for (url, route)."""

    def __init__(self) -> None:
        self.versions = dict.fromkeys(URLS, "v0")
        self.paused = dict.fromkeys(URLS, False)
        self.log: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.broken: dict[tuple[str, str], list[httpx.Response | Exception | None]] = {}
        """Answers for the next requests, the last one for ever; None is the normal one."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url, route = f"{request.url.scheme}://{request.url.host}:{request.url.port}", request.url.path
        assert request.method in RECORDED["routes"][route]
        body = json.loads(request.content) if request.content else None
        if body is not None:
            SCHEMAS[BODIES[route]].validate(body)
            self.bodies.append(body)
        self.log.append((url, route))
        answers = self.broken.get((url, route))
        if answers:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            if answer is not None:
                return answer
        return self._answer(url, route, body or {})

    def _answer(self, url: str, route: str, body: dict[str, Any]) -> httpx.Response:
        if route == "/generate":
            SCHEMAS["SamplingParams"].validate(body["sampling_params"])
            done = Completion([7, 4], [-0.5, -0.25], "stop", self.versions[url], 3)
            return httpx.Response(200, json=wire.reply_of(done, body["rid"], len(body["input_ids"]), True))
        if route == "/model_info":
            return httpx.Response(200, json={"model_path": "m", "weight_version": self.versions[url]})
        if route in ("/pause_generation", "/continue_generation"):
            self.paused[url] = route == "/pause_generation"
        if route == "/update_weights_from_disk":
            assert self.paused[url], "loaded while running"
            self.versions[url] = body["weight_version"]
            return httpx.Response(200, json={"success": True, "message": "", "num_paused_requests": 0})
        return httpx.Response(200)


def _with_client(
    fake: FakeEngine,
    act: Callable[[EngineClient], Awaitable[Any]],
    urls: tuple[str, ...] = URLS,
    **options: Any,
) -> Any:
    async def run() -> Any:
        async with EngineClient(urls, transport=fake, backoff=0.0, **options) as client:
            return await act(client)

    return asyncio.run(run())


def _generate(client: EngineClient) -> Awaitable[Completion]:
    return client.generate([1, 2, 3], SAMPLING, session="s", seed=2**64 - 1)


def test_a_call_is_what_sglang_expects_and_its_reply_is_read() -> None:
    fake = FakeEngine()
    done = _with_client(fake, _generate)
    assert done == Completion([7, 4], [-0.5, -0.25], "stop", "v0", 3)
    (body,) = fake.bodies
    assert body["return_logprob"] is True
    assert body["session_id"] == "s"
    assert body["sampling_params"]["sampling_seed"] == -1
    assert body["sampling_params"]["stop_token_ids"] == [4]


FAULTS: list[tuple[httpx.Response | Exception, type[EngineError], str, int]] = [
    (httpx.ConnectError("refused"), EngineUnreachableError, "engine_unreachable", 4),
    (httpx.ConnectTimeout("slow"), EngineUnreachableError, "engine_unreachable", 4),
    (httpx.Response(529), EngineBusyError, "engine_busy", 4),
    (httpx.Response(503, json={"error": {"message": "full"}}), EngineBusyError, "engine_busy", 4),
    (httpx.Response(429), EngineBusyError, "engine_busy", 4),
    (httpx.ReadTimeout("silence"), EngineTimeoutError, "engine_timeout", 1),
    (httpx.ReadError("reset"), EngineDiedError, "engine_died", 1),
    (httpx.RemoteProtocolError("half a reply"), EngineDiedError, "engine_died", 1),
    (httpx.Response(500, json={"error": {"message": "boom"}}), EngineFailedError, "engine_failed", 1),
    (httpx.Response(502, text="<html>"), EngineFailedError, "engine_failed", 1),
    (httpx.Response(400, json={"error": {"message": "top_p"}}), EngineRefusedError, "engine_refused", 1),
    (httpx.Response(404, json=[]), EngineRefusedError, "engine_refused", 1),
    (httpx.Response(200, text="{"), EngineMalformedError, "engine_malformed", 1),
    (httpx.Response(200, json={"text": "no ids"}), EngineMalformedError, "engine_malformed", 1),
]


@pytest.mark.parametrize(("answer", "kind", "reason", "tries"), FAULTS, ids=lambda x: str(x)[:40])
def test_every_fault_has_its_name_and_only_calls_that_never_started_are_sent_again(
    answer: httpx.Response | Exception, kind: type[EngineError], reason: str, tries: int
) -> None:
    fake = FakeEngine()
    fake.broken[URLS[0], "/generate"] = [answer]
    with pytest.raises(kind) as caught:
        _with_client(fake, _generate)
    assert type(caught.value) is kind
    assert caught.value.reason == reason
    assert caught.value.where == f"POST {URLS[0]}/generate"
    assert len(fake.log) == tries
    if isinstance(answer, httpx.Response) and answer.status_code != 200:
        assert f"status {answer.status_code}" in caught.value.got
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (kind, str(caught.value))


def test_the_engines_own_words_are_shown() -> None:
    fake = FakeEngine()
    fake.broken[URLS[0], "/generate"] = [httpx.Response(400, json={"error": {"message": "no top_p here"}})]
    with pytest.raises(EngineRefusedError, match="no top_p here"):
        _with_client(fake, _generate)


def test_a_busy_engine_is_asked_again_until_it_takes_the_call() -> None:
    fake = FakeEngine()
    fake.broken[URLS[0], "/generate"] = [httpx.Response(503), httpx.ConnectError("refused"), None]
    assert _with_client(fake, _generate).output_ids == [7, 4]
    assert len(fake.log) == 3


def test_sessions_stick_and_spread() -> None:
    fake = FakeEngine()

    async def act(client: EngineClient) -> None:
        for session in ("a", "b", "c", "d", "a", "c", "b"):
            await client.generate([1], SAMPLING, session=session)
        client.release(["a", "c", "never seen"])
        await client.generate([1], SAMPLING, session="e")

    _with_client(fake, act)
    one, two = URLS
    assert [url for url, _ in fake.log] == [one, two, one, two, one, one, two, one]


def test_no_address_is_an_error() -> None:
    with pytest.raises(EngineUnreachableError):
        EngineClient([])
    for bad in ("localhost:1", "ftp://one:1"):
        with pytest.raises(EngineUnreachableError, match="not an engine address"):
            EngineClient([URLS[0], bad])


# ---- weights ---
FOLDER = Path("folder")


def test_weights_are_updated_in_order_everywhere() -> None:
    fake = FakeEngine()

    async def act(client: EngineClient) -> Any:
        await client.update_weights(FOLDER, "v1")
        return client.weight_version, await _generate(client)

    version, done = _with_client(fake, act)
    assert (version, done.weight_version) == ("v1", "v1")
    for url in URLS:
        assert [route for at, route in fake.log if at == url and route != "/generate"] == [
            "/model_info",
            "/pause_generation",
            "/flush_cache",
            "/update_weights_from_disk",
            "/model_info",
            "/continue_generation",
        ]


REFUSAL = httpx.Response(400, json={"success": False, "message": "no such folder", "num_paused_requests": 0})


def test_an_update_that_nobody_took_changes_nothing() -> None:
    fake = FakeEngine()
    for url in URLS:
        fake.broken[url, "/update_weights_from_disk"] = [REFUSAL]
    with pytest.raises(EngineRefusedError, match="no such folder"):
        _with_client(fake, lambda client: client.update_weights(FOLDER, "v1"))
    assert not any(fake.paused.values())
    assert set(fake.versions.values()) == {"v0"}


@pytest.mark.parametrize(
    "answer", [REFUSAL, httpx.ReadError("killed"), httpx.Response(200, json={"success": True, "message": ""})]
)
def test_engines_that_disagree_stay_paused(answer: httpx.Response | Exception) -> None:
    fake = FakeEngine()
    fake.broken[URLS[1], "/update_weights_from_disk"] = [answer, None]

    async def act(client: EngineClient) -> None:
        with pytest.raises(EngineVersionError, match="v1, v0"):
            await client.update_weights(FOLDER, "v1")
        assert all(fake.paused.values())
        assert client.weight_version is None
        await client.update_weights(FOLDER, "v1")  # the fix that the message names

    _with_client(fake, act)
    assert set(fake.versions.values()) == {"v1"}
    assert not any(fake.paused.values())


def test_an_engine_that_dies_in_the_middle_keeps_the_others_paused() -> None:
    fake = FakeEngine()
    fake.broken[URLS[1], "/model_info"] = [None, httpx.ConnectError("gone")]
    with pytest.raises(EngineVersionError, match="middle of a weight update"):
        _with_client(fake, lambda client: client.update_weights(FOLDER, "v1"))
    assert fake.paused[URLS[0]]


def test_a_version_that_does_not_change_is_noticed() -> None:
    fake = FakeEngine()
    for url in URLS:
        fake.broken[url, "/update_weights_from_disk"] = [httpx.Response(200, json={"success": True, "message": ""})]
    with pytest.raises(EngineVersionError, match="did not change"):
        _with_client(fake, lambda client: client.update_weights(FOLDER, "v1"))
    assert not any(fake.paused.values())


def test_an_engine_that_came_back_with_other_weights_is_noticed() -> None:
    fake = FakeEngine()

    async def act(client: EngineClient) -> None:
        assert await client.pin_version() == "v0"
        await _generate(client)
        fake.versions = dict.fromkeys(URLS, "fresh")
        with pytest.raises(EngineVersionError, match="other weights") as caught:
            await _generate(client)
        assert caught.value.got == "fresh"
        fake.versions = {URLS[0]: "a", URLS[1]: "b"}
        with pytest.raises(EngineVersionError, match="same weights"):
            await client.pin_version()

    _with_client(fake, act)


def test_health() -> None:
    fake = FakeEngine()
    fake.broken[URLS[1], "/health"] = [httpx.ConnectError("starting"), httpx.Response(503), None]

    async def act(client: EngineClient) -> None:
        assert not await client.healthy()  # one that does not answer is not asked again
        assert not await client.healthy()
        assert await client.healthy()
        assert await client.healthy(deep=True)

    _with_client(fake, act, timeouts=Timeouts(control=5.0))
