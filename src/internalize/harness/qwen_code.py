"""Qwen Code, in its leanest headless form.

Invariant: the request holds the three game tools, our system prompt, three reminders (date, platform, folder)
and the task. Its built-in tools are excluded by name, because no option turns all of them off: a tool that a
new version adds changes the first request, which is pinned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from internalize.harness import installs
from internalize.harness.agent import PATH, SYSTEM, Errand, base_environment
from internalize.harness.installs import Install

BUILT_IN = (
    "agent",
    "ask_user_question",
    "cron_create",
    "cron_delete",
    "cron_list",
    "edit",
    "enter_worktree",
    "exit_plan_mode",
    "exit_worktree",
    "get_goal",
    "glob",
    "grep_search",
    "list_agents",
    "list_directory",
    "monitor",
    "notebook_edit",
    "read_file",
    "read_mcp_resource",
    "record_artifact",
    "report_findings",
    "run_shell_command",
    "save_memory",
    "send_message",
    "skill",
    "task_stop",
    "todo_write",
    "tool_call",
    "tool_search",
    "update_goal",
    "web_fetch",
    "web_search",
    "write_file",
    "zoom_image",
)


class QwenCode:
    """`Agent` for Qwen Code."""

    name = "qwen-code"
    version = "0.24.4"
    log = "qwen.log"
    first_request = "f6d7d9a1f8de8f4fe71c4a59bd411d7c98958ead174aedb2a5c79e86dfc691b5"

    def find(self) -> Install | None:
        """See `installs.qwen_code`."""
        return installs.qwen_code()

    def spell(self, task: str) -> str:
        r"""`\@` for `@`: it takes a bare one, even inside a word, for a mention of a file, and splits the word."""
        return task.replace("@", r"\@")

    def command(self, install: Install, errand: Errand) -> list[str]:
        """`--bare` shows the MCP tools directly instead of behind a search tool."""
        excluded = [word for tool in BUILT_IN for word in ("--exclude-tools", tool)]
        return [
            *install.command,
            *(errand.task, "--bare", "-m", errand.model, "--auth-type", "openai", "--system-prompt", SYSTEM),
            *("--mcp-config", str(errand.mcp_config), "--allowed-mcp-server-names", "game"),
            *("--approval-mode", "yolo", "--chat-recording=false", *excluded),
            *(
                "--max-session-turns",
                str(errand.max_turns),
                "--max-wall-time",
                f"{max(1, int(errand.seconds))}s",
            ),
            *("--output-format", "stream-json"),
        ]

    def environment(self, install: Install, errand: Errand) -> dict[str, str]:
        """Node's folder first: it starts a second node."""
        return {
            **base_environment(errand, f"{Path(install.command[0]).parent}:{PATH}"),
            "OPENAI_BASE_URL": f"{errand.url}/v1",
            "OPENAI_API_KEY": errand.key,
            "OPENAI_MODEL": errand.model,
            "QWEN_CODE_API_TIMEOUT_MS": str(int(errand.seconds * 1000)),
            "QWEN_CODE_MAX_OUTPUT_TOKENS": "4096",
            "QWEN_CODE_NO_RELAUNCH": "1",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
            "QWEN_USAGE_STATISTICS_ENABLED": "false",
        }

    def looped(self, transcript: list[Any], log: str) -> bool:
        """It does not carry out the fifth equal call in a row, and ends."""
        last = transcript[-1] if transcript else None
        said = str(last.get("error", "")) + str(last.get("result", "")) if isinstance(last, dict) else ""
        return "loop detect" in (said + log).lower()
