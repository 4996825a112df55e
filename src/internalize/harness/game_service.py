"""The loopback service between MCP server processes and the games in this process.

Invariant: a caller acts on the one seat whose token it holds; a second server for a seat is refused and
counted; a closed seat takes no call.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Header
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from internalize.closing import Closing
from internalize.errors import UserError
from internalize.gateway.server import Loopback
from internalize.harness.seat import Seat

CONFLICT, GONE = 409, 410


class StartRequest(BaseModel):
    """POST /start: an MCP server takes its seat."""

    model_config = ConfigDict(extra="forbid")
    pid: int = Field(ge=1)


class CallRequest(BaseModel):
    """POST /call: one tool call."""

    model_config = ConfigDict(extra="forbid")
    tool: str = Field(max_length=100)
    arguments: dict[str, Any] = Field(default_factory=dict, max_length=16)


class GameService(Closing):
    """Serves seats by their tokens. Close it, or use it with `with`."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}
        self._server = Loopback(self._app())

    @property
    def url(self) -> str:
        """Where it listens."""
        return self._server.url

    def open(self, seat: Seat) -> None:
        """From now on the seat's token is good."""
        self._seats[seat.token] = seat

    def close_seat(self, seat: Seat) -> None:
        """From now on it is not."""
        self._seats.pop(seat.token, None)

    def close(self) -> None:
        """Close the port."""
        self._server.close()

    def _app(self) -> FastAPI:
        app = FastAPI(title="internalize game", openapi_url=None, docs_url=None, redoc_url=None)

        @app.exception_handler(RequestValidationError)
        async def invalid(request: Any, error: RequestValidationError) -> JSONResponse:
            return _error(400, "malformed request")

        @app.post("/start", response_model=None)
        async def start(body: StartRequest, authorization: Annotated[str, Header()] = "") -> Response:
            seat = self._seat(authorization)
            if seat is None:
                return _error(GONE, "no such seat")
            if not seat.start(body.pid):
                return _error(CONFLICT, "the seat is taken: a second MCP server would hide that the first died")
            return JSONResponse({})

        @app.post("/call", response_model=None)
        async def call(body: CallRequest, authorization: Annotated[str, Header()] = "") -> Response:
            seat = self._seat(authorization)
            if seat is None:
                return _error(GONE, "the episode is closed")
            try:
                return JSONResponse({"text": await run_in_threadpool(seat.call, body.tool, body.arguments)})
            except UserError as error:
                return _error(400, error.what)

        return app

    def _seat(self, authorization: str) -> Seat | None:
        return self._seats.get(authorization.removeprefix("Bearer "))


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": message}, status)
