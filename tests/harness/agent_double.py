"""An agent without a mind, for the CLI harness: real process, real HTTP, the real MCP server over stdio.

Run by `test_cli_episode.py` as `python agent_double.py HOW TASK MCP_CONFIG`; `HOW` is what goes wrong. Standard
library only.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

how, task, config = sys.argv[1:4]


class Mcp:
    """The game's MCP server, started as an agent starts it."""

    def __init__(self) -> None:
        server = json.loads(Path(config).read_text())["mcpServers"]["game"]
        command = [server["command"], *server["args"]]
        environment = {**os.environ, **server["env"]}
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.n = 0
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "double", "version": "1"}}
        self.request("initialize", hello)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = self.request("tools/list", {})["tools"]

    def send(self, message: Any) -> None:
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: Any) -> Any:
        self.n += 1
        self.send({"jsonrpc": "2.0", "id": self.n, "method": method, "params": params})
        while line := self.process.stdout.readline():
            message = json.loads(line)  # nothing but protocol on stdout
            if message.get("id") == self.n:
                return message["result"]
        raise ConnectionError("Connection closed")

    def call(self, name: str, arguments: Any) -> str:
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        assert "structuredContent" not in result
        return "".join(part["text"] for part in result["content"])


def ask(messages: list[Any], tools: list[Any]) -> Any:
    url = urlsplit(os.environ["BASE_URL"])
    body = {"model": "policy", "max_tokens": 100, "messages": messages, "tools": tools}
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
    connection.request("POST", f"{url.path}/v1/messages", json.dumps(body), {"x-api-key": os.environ["KEY"]})
    reply = connection.getresponse()
    data = json.loads(reply.read())
    print(json.dumps({"status": reply.status, **data}), flush=True)
    if reply.status != 200:
        raise SystemExit(1)
    return data


def main() -> int:
    messages: list[Any] = [{"role": "user", "content": task}]
    if how == "no server":
        ask(messages, [])
    mcp = Mcp()
    tools = [
        {"name": f"mcp__game__{t['name']}", "description": t["description"], "input_schema": t["inputSchema"]}
        for t in sorted(mcp.tools, key=lambda tool: tool["name"])
    ]
    if how == "more tools":
        tools.append({"name": "Bash", "description": "", "input_schema": {"type": "object"}})
    turn = 0
    while True:
        reply = ask(messages, tools)
        uses = [block for block in reply["content"] if block["type"] == "tool_use"]
        if not uses:
            break
        messages.append({"role": "assistant", "content": reply["content"]})
        turn += 1
        name = uses[0]["name"].removeprefix("mcp__game__")
        try:
            text = mcp.call(name, uses[0]["input"])
        except (ConnectionError, BrokenPipeError):
            text = "MCP error -32000: Connection closed"
        messages.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": uses[0]["id"], "content": text}]}
        )
        if turn == 1:
            disturb(messages, mcp)
    if how == "acts after the end":
        mcp.call("look", {})
    mcp.process.stdin.close()
    mcp.process.wait()
    return 7 if how == "bad status" else 0


def disturb(messages: list[Any], mcp: Mcp) -> None:
    """Something goes wrong after the first turn."""
    if how == "server dies":
        mcp.process.kill()
        mcp.process.wait()
    elif how == "server restarted":
        mcp.process.kill()
        mcp.process.wait()
        try:
            Mcp()
        except (ConnectionError, BrokenPipeError):
            print(json.dumps({"second server": "refused"}), flush=True)
        raise SystemExit(0)
    elif how == "compaction":
        messages[:] = [{"role": "user", "content": "Summarise the conversation so far."}]
    elif how == "think changed":
        messages[1]["content"][0]["thinking"] += " left"
    elif how == "acts twice":
        mcp.call("look", {})
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "hangs":
        child = subprocess.Popen(["sleep", "600"])
        print(json.dumps({"child": child.pid, "server": mcp.process.pid}), flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    elif how == "gives up":
        raise SystemExit(0)
    elif how == "loop guard":
        print("Loop detection halted the session", file=sys.stderr)
        raise SystemExit(1)


raise SystemExit(main())
