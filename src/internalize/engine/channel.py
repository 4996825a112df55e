"""HTTP requests to engines, with every failure as one of `engine.faults`.

Invariant: a request is sent again only when it is certain that nothing was started: the connection was not
made, or the engine said that it takes no calls now. A reply that is late or broken is never asked for twice.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from internalize.engine.faults import (
    EngineBusyError,
    EngineDiedError,
    EngineError,
    EngineFailedError,
    EngineMalformedError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
)

M = TypeVar("M", bound=BaseModel)

BUSY = (429, 503, 529)
"""Statuses that say that nothing was started."""
NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL)
KEEP_ALIVE_SECONDS = 2.0
"""Shorter than any server keeps an idle connection: none is closed while a request is on its way."""


class Channel:
    """Connections to any number of addresses."""

    def __init__(
        self,
        connect_seconds: float,
        retries: int,
        backoff: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`retries` after the first try, `backoff` seconds before the first of them, doubling."""
        self._connect_seconds, self._retries, self._backoff = connect_seconds, retries, backoff
        self._http = httpx.AsyncClient(
            transport=transport,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_ALIVE_SECONDS),
            trust_env=False,  # a proxy must not see loopback traffic
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def send(
        self, method: str, url: str, body: dict[str, Any] | None, seconds: float, retry: bool = True
    ) -> bytes:
        """The body of a 200 reply that comes within `seconds`. Raises EngineError."""
        attempt = 0
        while True:
            try:
                return await self._send_once(method, url, body, seconds)
            except (EngineUnreachableError, EngineBusyError):
                if not retry or attempt == self._retries:
                    raise
            await asyncio.sleep(self._backoff * 2**attempt)
            attempt += 1

    async def _send_once(self, method: str, url: str, body: dict[str, Any] | None, seconds: float) -> bytes:
        where = f"{method} {url}"
        timeout = httpx.Timeout(seconds, connect=self._connect_seconds)
        try:
            response = await self._http.request(method, url, json=body, timeout=timeout)
        except NEVER_SENT as error:
            raise EngineUnreachableError(
                "the engine cannot be reached", where=where, got=_words(error), fix="is it running?"
            ) from None
        except httpx.TimeoutException as error:
            raise EngineTimeoutError(
                "the engine does not answer",
                where=where,
                expected=f"a reply within {seconds:g} s",
                got=_words(error),
                fix="look at the engine's log; raise the timeout if its calls are that long",
            ) from None
        except httpx.RequestError as error:
            raise EngineDiedError(
                "the connection ended before the reply",
                where=where,
                got=_words(error),
                fix="is the engine still running?",
            ) from None
        if response.status_code == 200:
            return response.content
        raise _refusal(response, where)


def parse(model: type[M], text: bytes, where: str) -> M:
    """A reply's body as `model`. Raises EngineMalformedError."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise malformed(f"{'.'.join(map(str, first['loc'])) or 'body'}: {first['msg']}", text, where) from None


def malformed(reason: str, text: bytes, where: str) -> EngineMalformedError:
    """The error for a reply that the protocol does not allow, `reason` saying why."""
    return EngineMalformedError(
        f"the engine's reply does not fit the protocol ({reason})",
        where=where,
        got=text[:120].decode(errors="replace"),
    )


def _refusal(response: httpx.Response, where: str) -> EngineError:
    status = response.status_code
    if status in BUSY:
        return EngineBusyError("the engine takes no calls now", where=where, got=_said(response))
    if status >= 500:
        return EngineFailedError("the engine failed", where=where, got=_said(response))
    return EngineRefusedError("the engine refuses the request", where=where, got=_said(response))


def _said(response: httpx.Response) -> str:
    """The status and the engine's own words."""
    try:
        data = response.json()
        message = str(data.get("error", data)["message"])
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, KeyError, TypeError):
        message = response.text[:200]
    return f"status {response.status_code} {message}".strip()


def _words(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()
