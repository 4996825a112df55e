"""Claude Code, in its leanest headless form.

Invariant: the request holds the three game tools, our system prompt behind the CLI's identity line, the task
and the date; there is no compaction, no title call, no telemetry, no update.
"""

from __future__ import annotations

from typing import Any

from internalize.harness import installs
from internalize.harness.agent import MCP_TOOLS, SYSTEM, Errand, base_environment
from internalize.harness.installs import Install


class ClaudeCode:
    """`Agent` for Claude Code."""

    name = "claude-code"
    version = "2.1.270"
    log = "claude.log"
    first_request = "ecdabc6da0d3da6af9e2ba8a3726ae27e8ad04628d12aafbe8a0b8b20c15a47f"

    def find(self) -> Install | None:
        """See `installs.claude_code`."""
        return installs.claude_code()

    def spell(self, task: str) -> str:
        """As it is: only a word that begins with `@` would be a mention, and the gateway would notice."""
        return task

    def command(self, install: Install, errand: Errand) -> list[str]:
        """`--bare` keeps reminders out of the prompt; `--tools ""` leaves the MCP tools only."""
        return [
            *install.command,
            *("-p", errand.task, "--bare", "--model", errand.model, "--system-prompt", SYSTEM),
            *("--tools", "", "--mcp-config", str(errand.mcp_config), "--strict-mcp-config"),
            *(
                "--allowedTools",
                ",".join(MCP_TOOLS),
                "--permission-mode",
                "dontAsk",
                "--permission-prompts",
                "none",
            ),
            *("--setting-sources", "", "--no-session-persistence", "--disable-slash-commands", "--no-chrome"),
            *("--max-turns", str(errand.max_turns), "--output-format", "stream-json", "--verbose"),
        ]

    def environment(self, install: Install, errand: Errand) -> dict[str, str]:
        """Two retries: what the gateway refuses for good is a 400, which is not retried at all."""
        return {
            **base_environment(errand),
            "CLAUDE_CONFIG_DIR": str(errand.home / ".claude"),
            "ANTHROPIC_BASE_URL": errand.url,
            "ANTHROPIC_API_KEY": errand.key,
            "ANTHROPIC_SMALL_FAST_MODEL": errand.model,
            "API_TIMEOUT_MS": str(int(errand.seconds * 1000)),
            "MCP_TIMEOUT": "120000",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "4096",
            "CLAUDE_CODE_MAX_RETRIES": "2",
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
            "CLAUDE_CODE_DISABLE_EXPERIMENTAL_BETAS": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK": "1",
            "DISABLE_AUTO_COMPACT": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_PROMPT_CACHING": "1",
            "DISABLE_TELEMETRY": "1",
        }

    def looped(self, transcript: list[Any], log: str) -> bool:
        """It has no such guard."""
        return False
