"""The MCP server that agent CLIs start: the tools look, act and status.

Invariant: it holds no game. Each call goes to the game service of the harness and its text comes back as plain
text, no structured output. Standard output carries the protocol and nothing else. It takes its seat before it
serves; refused (another server has it, or had it), it ends with status 3, so a restart can't go unnoticed.

Run as `python -m internalize.harness.mcp_server` with INTERNALIZE_GAME_URL and INTERNALIZE_GAME_TOKEN set.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from internalize.games import tools
from internalize.harness.mcp_names import TOKEN, URL

NAME = "game"
REFUSED = 3
SECONDS = 60.0

TOOLS = tuple(types.Tool(name=t.name, description=t.description, input_schema=t.schema) for t in tools.TOOLS)

Play = Callable[[str, Mapping[str, Any]], Awaitable[str]]


class GameUnreachable(Exception):
    """The game service refuses, or does not answer."""


def create_server(play: Play) -> Server[Any]:
    """The server over `play(tool, arguments) -> text`. Serve it over stdio, or hand it to `mcp.Client` in
    process. What `play` raises becomes an error result."""

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(TOOLS))

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, failed = await play(params.name, params.arguments or {}), False
        except Exception as error:
            text, failed = str(error) or type(error).__name__, True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    return Server(NAME, version="1", on_list_tools=list_tools, on_call_tool=call_tool)


class RemoteGame:
    """The game service, from the MCP server's side."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._token = parts.hostname or "", parts.port or 80, token

    def start(self) -> None:
        """Take the seat. Raises GameUnreachable."""
        self._post("/start", {"pid": os.getpid()})

    async def play(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """One tool call. Raises GameUnreachable."""

        def post() -> str:
            return str(self._post("/call", {"tool": tool, "arguments": dict(arguments)})["text"])

        return await anyio.to_thread.run_sync(post)

    def _post(self, route: str, body: Any) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=SECONDS)
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
        try:
            connection.request("POST", route, json.dumps(body), headers)
            reply = connection.getresponse()
            data = json.loads(reply.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise GameUnreachable(f"the game does not answer ({type(error).__name__})") from error
        finally:
            connection.close()
        if reply.status != 200:
            raise GameUnreachable(str(data.get("error", reply.status)))
        return dict(data)


async def _serve(game: RemoteGame) -> None:
    server = create_server(game.play)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def main() -> int:
    """Serve over stdio until standard input ends."""
    url, token = os.environ.get(URL), os.environ.get(TOKEN)
    if not url or not token:
        print(f"{URL} and {TOKEN} must be set; the harness does that", file=sys.stderr)
        return REFUSED
    game = RemoteGame(url, token)
    try:
        game.start()
    except GameUnreachable as error:
        print(f"internalize game server: {error}", file=sys.stderr)
        return REFUSED
    anyio.run(_serve, game)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
