"""The gateway as a server in this process, in a thread of its own.

Invariant: it listens on a loopback address unless `remote` is set; when `close` returns, the port is free and
every record is complete.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from internalize.closing import Closing
from internalize.errors import UserError
from internalize.gateway import reasons
from internalize.gateway.app import Desk, Limits, create_app
from internalize.gateway.backend import Backend
from internalize.gateway.dialect import Dialect
from internalize.gateway.session import Opening, Session, Table

MODEL = "policy"
"""The one model name that clients ask for."""
START_SECONDS = 30.0
STOP_SECONDS = 5
KEEP_ALIVE_SECONDS = 75
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Loopback(Closing):
    """Any ASGI app served from a thread. Close it, or use it with `with`."""

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        remote: bool = False,
        connections: int = 1024,
    ) -> None:
        """
        Args:
            port: 0 takes a free one.
            remote: allow an address that other machines can reach.
            connections: most open ones; further get 503.

        Raises:
            UserError: an address that is not loopback, or a port that is taken.
        """
        if not remote and not _is_loopback(host):
            raise UserError(
                "this address can be reached from other machines",
                where="host",
                expected="a loopback address (127.0.0.1, ::1)",
                got=host,
                fix="ask for it explicitly (remote)",
            )
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, port), family=family, backlog=512)
        except OSError as error:
            raise UserError("cannot listen", where=f"{host}:{port}", got=str(error), fix="take another port") from None
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            limit_concurrency=connections,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name="loopback", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                self.close()
                raise UserError("a local server did not start", where=self.url)
            time.sleep(0.005)

    @property
    def alive(self) -> bool:
        """It answers."""
        return self._thread.is_alive() and not self._server.should_exit

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the server's event loop and return its result."""
        if self._loop is None or not self._thread.is_alive():
            return work()

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def close(self) -> None:
        """Stop listening, end what is open, join the thread."""
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS + 2)
        self._socket.close()

    def _serve(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        asyncio.run(main())


class Gateway(Closing):
    """Opens and closes sessions. Close it, or use it with `with`."""

    def __init__(
        self,
        backend: Backend,
        dialect: Dialect,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        remote: bool = False,
        limits: Limits | None = None,
    ) -> None:
        """`backend` stays the caller's to close. Raises UserError as `Loopback`."""
        self._backend, self._dialect = backend, dialect
        self._desk = Desk(secrets.token_urlsafe(24), MODEL)
        self._server = Loopback(create_app(self._desk, limits or Limits()), host=host, port=port, remote=remote)

    @property
    def key(self) -> str:
        """The run's key: clients send it as `x-api-key` or bearer token."""
        return self._desk.key

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.port

    def url(self, session: str) -> str:
        """Base URL of a session's API; `/v1/...` follows."""
        return f"{self._server.url}/e/{session}"

    @property
    def alive(self) -> bool:
        """It answers."""
        return self._server.alive

    def open(self, opening: Opening, table: Table) -> Session:
        """Start answering for an episode. Raises UserError when its name is taken or no path segment."""
        if not _NAME.fullmatch(opening.id):
            raise UserError("not a session name", got=opening.id, expected="letters, digits, - _ .")
        if opening.id in self._desk.sessions:
            raise UserError("two sessions of one name", got=opening.id)
        session = Session(opening, table, self._dialect, self._backend)
        self._desk.sessions[opening.id] = session
        return session

    def close_session(self, session: Session) -> None:
        """Answer no more for it; its record is complete."""
        self._desk.sessions.pop(session.opening.id, None)
        self._server.call(session.close)

    def close(self) -> None:
        """Close all sessions and the port."""
        for session in list(self._desk.sessions.values()):
            session.fail(reasons.GATEWAY_LOST, "the gateway was closed during the episode")
            self.close_session(session)
        self._server.close()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
