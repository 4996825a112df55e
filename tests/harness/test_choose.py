from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from internalize.cli import app
from internalize.engine.protocol import SamplingParams
from internalize.errors import UserError
from internalize.harness import check as check_module
from internalize.harness import installs
from internalize.harness.agent import Errand
from internalize.harness.choose import AGENTS, make_harness
from internalize.harness.claude_code import ClaudeCode
from internalize.harness.cli_episode import CliHarness
from internalize.harness.inprocess import InProcess
from internalize.harness.qwen_code import BUILT_IN, QwenCode


def _make(settings: Any, game: Any, template: Any, scripted: Any, **more: Any) -> Any:
    sampling = SamplingParams(1.0, 8, (template.stop_id,))
    return make_harness(settings, engine=scripted({}), game=game, template=template, sampling=sampling, **more)


@pytest.fixture
def clis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make stand-ins that say a version."""

    def program(path: Path, version: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{version} (Stand-in)'\n")
        path.chmod(0o755)

    def make(claude: str | None = "2.1.270", qwen: str | None = "0.24.4", node: str = "v22.1.0") -> None:
        modules = tmp_path / "node_modules"
        if claude:
            program(modules / f"@anthropic-ai/claude-code-linux-{installs.MACHINE}/claude", claude)
        if qwen:
            (modules / "@qwen-code/qwen-code").mkdir(parents=True)
            (modules / "@qwen-code/qwen-code/cli.js").write_text("")
            place = modules / f"node-linux-{installs.MACHINE}/bin/node"
            program(place, node)
            place.write_text(f"#!/bin/sh\n[ $# -eq 1 ] && echo {node} || echo {qwen}\n")

    monkeypatch.setenv(installs.FOLDER, str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(installs.shutil, "which", lambda name: None)
    return make


def test_settings_choose_the_harness(game: Any, template: Any, scripted: Any, clis: Any) -> None:
    clis()
    for settings in (None, {}, {"type": "inprocess"}):
        assert isinstance(_make(settings, game, template, scripted), InProcess)
    for name in AGENTS:
        settings = {"type": name, "parallel": 3, "seconds": 50}
        harness = _make(settings, game, template, scripted, max_context=99)
        assert isinstance(harness, CliHarness)
        assert (harness.name, harness.parallel, harness.seconds, harness.max_context) == (name, 3, 50.0, 99)


@pytest.mark.parametrize(
    "settings", [{"type": "codex"}, {"type": "inprocess", "parallel": 2}, {"type": "claude-code", "paralel": 2}]
)
def test_unknown_settings_are_named(settings: Any, game: Any, template: Any, scripted: Any, clis: Any) -> None:
    clis()
    with pytest.raises(UserError, match="unknown harness setting"):
        _make(settings, game, template, scripted)


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_missing_cli_and_another_version_are_user_errors(
    name: str, game: Any, template: Any, scripted: Any, clis: Any
) -> None:
    with pytest.raises(UserError, match="is not installed") as missing:
        _make({"type": name}, game, template, scripted)
    assert "install-clis.sh" in str(missing.value)
    clis(claude="2.1.271", qwen="0.25.0")
    with pytest.raises(UserError, match="another version"):
        _make({"type": name}, game, template, scripted)


def test_qwen_code_wants_node_22(clis: Any) -> None:
    clis(node="v20.1.0")
    assert installs.qwen_code() is None


def test_check_names_what_is_missing_or_other(clis: Any) -> None:
    clis(qwen=None, claude="9.9.9")
    assert [check_module._found(n).status for n in ("inprocess", "claude-code", "qwen-code")] == [
        "ok",
        "other version",
        "missing",
    ]
    assert "2.1.270" in check_module.render([check_module._found("claude-code")])


def test_the_command_fails_on_what_is_wanted_and_missing(repository: Path, clis: Any) -> None:
    def run(*names: str) -> Any:
        study = repository / "config/mini.yaml"
        words = ["harness", "check", *names, "--study", str(study), "--model", str(repository / "prebuilt/dipwheel")]
        return CliRunner().invoke(app, words)

    done = run()
    assert done.exit_code == 0
    assert [line.split()[:2] for line in done.stdout.splitlines() if line] == [
        ["inprocess", "ok"],
        ["claude-code", "missing"],
        ["qwen-code", "missing"],
    ]
    assert run("inprocess", "qwen-code").exit_code == 1
    clis(claude="9.9.9", qwen=None)
    assert run("inprocess").exit_code == 0
    assert run().exit_code == 1, "another version that is installed would fail later"


def test_an_agent_inherits_nothing(clis: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its whole environment is made from the errand; the key stands in one variable."""
    clis()
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "mine")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    errand = Errand(
        r"left\@N pot",
        "http://127.0.0.1:1/e/e0",
        "KEY",
        "policy",
        tmp_path / "m.json",
        tmp_path / "h",
        tmp_path / "t",
        60.0,
        9,
    )
    for agent in (ClaudeCode(), QwenCode()):
        install = agent.find()
        assert install is not None
        environment, command = agent.environment(install, errand), agent.command(install, errand)
        assert not {"ANTHROPIC_AUTH_TOKEN", "HTTPS_PROXY"} & environment.keys()
        assert [key for key, value in environment.items() if value == "KEY"] in (
            ["ANTHROPIC_API_KEY"],
            ["OPENAI_API_KEY"],
        )
        assert environment["HOME"] == str(tmp_path / "h")
        assert environment["TMPDIR"] == str(tmp_path / "t")
        assert errand.task in command
        assert "KEY" not in command
    assert QwenCode().spell("left@N red@b") == r"left\@N red\@b"
    assert command.count("--exclude-tools") == len(BUILT_IN) == len(set(BUILT_IN))


def test_choosing_imports_nothing_heavy() -> None:
    """Stages that play in process don't pay for the web server."""
    heavy = "{'torch', 'fastapi', 'uvicorn', 'mcp'}"
    code = f"import sys, internalize.harness.choose; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
