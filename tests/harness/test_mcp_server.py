"""The MCP server in process, over stdio and in front of the game service."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import mcp
import pytest
from mcp.client.stdio import StdioServerParameters

from internalize.gateway.lines import Lines
from internalize.harness import mcp_names
from internalize.harness.game_service import GameService
from internalize.harness.mcp_server import REFUSED, create_server
from internalize.harness.seat import Seat

SOURCE = str(Path(__file__).resolve().parents[2] / "src")


@pytest.fixture
def seat(game: Any, tmp_path: Path) -> Seat:
    return Seat(game, 1, 7, Lines(tmp_path / "journal.jsonl"))


def _environment(service: GameService, seat: Seat) -> dict[str, str]:
    return {"PYTHONPATH": SOURCE, mcp_names.URL: service.url, mcp_names.TOKEN: seat.token}


async def _tour(client: mcp.Client) -> list[tuple[str, bool]]:
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == ["look", "act", "status"]
    seen = []
    for name, arguments in [
        ("look", {}),
        ("act", {"action": "DIP_N"}),
        ("act", {"action": "FLY"}),
        ("act", {"action": 5}),
        ("status", {}),
        ("teleport", {}),
    ]:
        result = await client.call_tool(name, arguments)
        assert result.structured_content is None
        seen.append(("".join(part.text for part in result.content), bool(result.is_error)))  # type: ignore[union-attr]
    return seen


def test_in_process(game: Any, seat: Seat) -> None:
    async def play(tool: str, arguments: Any) -> str:
        return seat.call(tool, arguments)

    async def main() -> list[tuple[str, bool]]:
        async with mcp.Client(create_server(play)) as client:
            return await _tour(client)

    seen = asyncio.run(main())
    assert [failed for _, failed in seen] == [False] * 5 + [True]
    assert seen[0][0] == game.observe(game.start(1, 7))
    assert seen[2][0] == seat.journal[2]["result"]["observation"]
    assert seen[4][0] == f"NOT_FINISHED {seat.journal[4]['result']['actions_left']} acts left"
    assert [row["tool"] for row in seat.journal] == ["look", "act", "act", "act", "status"]


def test_over_stdio_with_the_game_elsewhere(seat: Seat, tmp_path: Path) -> None:
    """Same texts as in process; each row is in the journal before its result is out."""
    with GameService() as service:
        service.open(seat)
        server = StdioServerParameters(
            command=sys.executable, args=["-m", mcp_names.MODULE], env=_environment(service, seat)
        )

        async def main() -> list[tuple[str, bool]]:
            async with mcp.Client(server) as client:
                return await _tour(client)

        seen = asyncio.run(main())
        assert len(seat.servers) == 1
        rows = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
        assert rows == seat.journal
        assert [text for text, _ in seen[:4]] == [row["result"]["observation"] for row in rows[:4]]
        again = subprocess.run(
            [sys.executable, "-m", mcp_names.MODULE],
            env={**os.environ, **_environment(service, seat)},
            capture_output=True,
            text=True,
            input="",
            check=False,
        )
    assert (again.returncode, again.stdout) == (REFUSED, "")
    assert "the seat is taken" in again.stderr
    assert len(seat.servers) == 2


def test_the_service_knows_tokens_only(seat: Seat) -> None:
    with GameService() as service, httpx.Client(base_url=service.url, trust_env=False) as client:
        service.open(seat)
        good = {"authorization": f"Bearer {seat.token}"}
        call = {"tool": "look", "arguments": {}}
        for headers in ({}, {"authorization": "Bearer x"}, {"authorization": seat.token[:-1]}):
            assert client.post("/call", json=call, headers=headers).status_code == 410
        for body in (b"", b"{", b"[]", b'{"tool": 1}', b'{"tool": "look", "more": 1}', b'{"tool": "teleport"}'):
            assert client.post("/call", content=body, headers=good).status_code == 400
        assert seat.journal == []
        assert client.post("/call", json=call, headers=good).json()["text"] == seat.journal[0]["result"]["observation"]
        service.close_seat(seat)
        assert client.post("/call", json=call, headers=good).status_code == 410
        assert client.post("/start", json={"pid": 1}, headers=good).status_code == 410


def test_without_a_game_it_says_so() -> None:
    bare = {k: v for k, v in os.environ.items() if not k.startswith("INTERNALIZE_GAME")}
    run = subprocess.run(
        [sys.executable, "-m", mcp_names.MODULE],
        env=bare | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stdout) == (REFUSED, "")
    assert mcp_names.URL in run.stderr
