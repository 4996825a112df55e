"""How the harness and its MCP server find each other. Apart, because the server's module imports `mcp`."""

from __future__ import annotations

MODULE = "internalize.harness.mcp_server"
URL, TOKEN = "INTERNALIZE_GAME_URL", "INTERNALIZE_GAME_TOKEN"
"""Environment variables of the server process."""
