"""The gateway's routes (FastAPI): one URL path an episode, `/e/SESSION/v1/...`.

Invariant: a request without the run's key learns and changes nothing; no body, however malformed, gives a 5xx,
keeps more memory than `Limits.body` or ends another session.

A session that has ended for a reason answers 400 to everything: agent CLIs retry 5xx for minutes, and a 400
ends them at once. 429 says that the gateway is full; CLIs retry that.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from internalize.gateway import anthropic, openai
from internalize.gateway.body import compact, parse
from internalize.gateway.conversation import RequestError
from internalize.gateway.session import Refused, Session


@dataclass(frozen=True)
class Limits:
    """What a client may ask for."""

    body: int = 4 << 20
    """Bytes of a request body."""
    calls: int = 64
    """Requests in work at once."""
    waiting: int = 256
    """Further requests that may wait; the next gets 429."""
    body_seconds: float = 30.0
    """Longest upload."""


class Desk:
    """Which sessions there are."""

    def __init__(self, key: str, model: str) -> None:
        self.key, self.model = key, model
        self.sessions: dict[str, Session] = {}


ErrorBody = Callable[[int, str], dict[str, Any]]


def create_app(desk: Desk, limits: Limits = Limits()) -> FastAPI:
    """The routes over `desk`."""
    app = FastAPI(title="internalize gateway", openapi_url=None, docs_url=None, redoc_url=None)
    gate = asyncio.Semaphore(limits.calls)
    inside = 0  # in work or waiting

    @asynccontextmanager
    async def place() -> AsyncIterator[None]:
        nonlocal inside
        if inside >= limits.calls + limits.waiting:
            raise RequestError("too many requests at once", 429)
        inside += 1
        try:
            async with gate:
                yield
        finally:
            inside -= 1

    async def body_of(request: Request) -> bytes:
        if int(_digits(request.headers.get("content-length", "0"))) > limits.body:
            raise RequestError(f"the body is larger than {limits.body} bytes", 413)
        data = bytearray()
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for piece in request.stream():
                    data += piece
                    if len(data) > limits.body:
                        raise RequestError(f"the body is larger than {limits.body} bytes", 413)
        except TimeoutError:
            raise RequestError("the body did not come in time", 408) from None
        except ClientDisconnect:
            raise RequestError("the client went away") from None
        return bytes(data)

    def session_of(request: Request, name: str) -> Session:
        given = request.headers.get("x-api-key") or request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), desk.key.encode()):
            raise RequestError("the key is wrong or missing", 401)
        session = desk.sessions.get(name)
        if session is None:
            raise RequestError("no such session here", 404)
        return session

    def model_of(name: str) -> None:
        if name != desk.model:
            raise RequestError(f"the only model here is {desk.model}", 404)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return _json(anthropic.error(error.status_code, str(error.detail)), error.status_code)

    @app.get("/health")
    async def health() -> Response:
        return Response()

    @app.get("/e/{name}/v1/models")
    async def models(name: str, request: Request) -> Response:
        try:
            session_of(request, name)
        except RequestError as error:
            return _json(openai.error(error.status, error.what), error.status)
        one = {"id": desk.model, "object": "model", "type": "model", "created": 0, "owned_by": "internalize"}
        named = {"display_name": desk.model, "created_at": "1970-01-01T00:00:00Z"}
        more = {"has_more": False, "first_id": desk.model, "last_id": desk.model}
        return _json({"object": "list", "data": [{**one, **named}], **more})

    @app.post("/e/{name}/v1/messages")
    async def messages(name: str, request: Request) -> Response:
        async def work() -> Response:
            session = session_of(request, name)
            body = parse(anthropic.MessagesRequest, await body_of(request))
            model_of(body.model)
            answer = await session.answer(anthropic.conversation(body))
            if body.stream:
                return _events(anthropic.stream(answer, desk.model))
            return _json(anthropic.message(answer, desk.model))

        return await _guarded(place, work, anthropic.error)

    @app.post("/e/{name}/v1/messages/count_tokens")
    async def count_tokens(name: str, request: Request) -> Response:
        async def work() -> Response:
            session = session_of(request, name)
            body = parse(anthropic.CountRequest, await body_of(request))
            model_of(body.model)
            return _json({"input_tokens": await session.count_tokens(anthropic.conversation(body))})

        return await _guarded(place, work, anthropic.error)

    @app.post("/e/{name}/v1/chat/completions")
    async def chat_completions(name: str, request: Request) -> Response:
        async def work() -> Response:
            session = session_of(request, name)
            body = parse(openai.ChatRequest, await body_of(request))
            model_of(body.model)
            answer = await session.answer(openai.conversation(body))
            now = int(time.time())
            if body.stream:
                usage = bool((body.stream_options or {}).get("include_usage"))
                return _events(openai.stream(answer, desk.model, now, usage))
            return _json(openai.completion(answer, desk.model, now))

        return await _guarded(place, work, openai.error)

    return app


async def _guarded(place: Any, work: Any, error_body: ErrorBody) -> Response:
    """`work` inside a place; what it refuses as a 4xx."""
    try:
        async with place():
            response: Response = await work()
            return response
    except RequestError as error:
        return _json(error_body(error.status, error.what), error.status)
    except Refused as error:
        return _json(error_body(400, error.what), 400)


def _json(value: Any, status: int = 200) -> Response:
    return Response(compact(value), status, media_type="application/json")


def _events(data: bytes) -> Response:
    """The stream in one piece: a completion is whole before anything of it is judged."""
    return Response(data, media_type="text/event-stream", headers={"cache-control": "no-cache"})


def _digits(text: str) -> str:
    return text if text.isdecimal() and text.isascii() and len(text) < 20 else "0"
