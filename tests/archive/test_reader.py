"""Who has only the archive makes the summary anew and follows a cell to its episodes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from made_study import MadeStudy
from typer.testing import CliRunner

from internalize import cli
from internalize.files import read_jsonl


def commands(root: Path) -> tuple[list[str], list[str]]:
    """The commands of the card's blocks: what everyone has is enough for the first."""
    blocks = (root / "README.md").read_text().split("```\n")[1:4:2]
    plain, installed = ([line.partition("  #")[0].strip() for line in block.splitlines()] for block in blocks)
    return plain, installed


def test_the_commands_that_the_card_prints_work(finished: MadeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, installed = commands(finished.archive)
    assert (len(plain), len(installed)) == (6, 3)
    monkeypatch.chdir(finished.archive)
    for command in installed[:2]:
        asked = CliRunner().invoke(cli.app, shlex.split(command)[1:])
        assert (asked.exit_code, asked.exception) == (0, None), command
    assert "load_dataset(os.getcwd(), " in installed[2]  # what it loads, test_load loads
    for command in plain:
        done = subprocess.run(["sh", "-c", command], cwd=finished.archive, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
    assert not (finished.archive / "__pycache__").exists()


def test_the_summary_follows_from_the_metrics_and_a_cell_from_its_episodes(finished: MadeStudy, archive: Path) -> None:
    def ask(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "tables.py", *words]  # -I: nothing of this project can be imported
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    assert "equal" in ask(finished.archive, "check").stdout
    for arm in ("none", "recite"):
        for column in ("sft_only_rollout_return", "sft_only_eval_clears", "final_eval_return", "final_eval_episodes"):
            traced = ask(finished.archive, "trace", arm, column)
            assert traced.returncode == 0, traced.stdout + traced.stderr
            assert ": equal" in traced.stdout
    traced = ask(finished.archive, "trace", "recite", "final_eval_return").stdout
    assert len(re.findall(r"^  eval-\d{4}  level", traced, re.M)) == 8  # 4 episodes, 2 seeds
    # the base was measured once, and counts once for both seeds of an arm without SFT
    assert (
        len(re.findall(r"^  eval-", ask(finished.archive, "trace", "none", "sft_only_eval_return").stdout, re.M)) == 4
    )
    extract = re.search(r"tar --zstd -xOf .*", traced)
    assert extract is not None
    shown = subprocess.run(["sh", "-c", extract[0]], cwd=finished.archive, check=True, capture_output=True, text=True)
    assert '"prompt_ids"' in shown.stdout
    assert '"tool":"act"' in shown.stdout
    # a number that was changed in the metrics is found
    path = archive / "metrics/eval.jsonl"
    text = path.read_text()
    clears = [row["clears"] for row in read_jsonl(path) if row["run"] == "recite-seed0" and row["step"] == 1]
    path.unlink()
    lines = [
        line.replace(f'"clears":{clears[0]}', f'"clears":{clears[0] + 1}') if '"recite-seed0"' in line else line
        for line in text.splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")
    assert ask(archive, "check").returncode == 1
    assert "NOT EQUAL" in ask(archive, "trace", "recite", "final_eval_clears").stdout
    assert "COLUMN is one of" in ask(archive, "trace", "recite", "nothing").stderr
