"""What docs/add-an-arm.md and docs/add-a-game.md show is what works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from internalize.games import KINDS
from internalize.schedule import phases
from internalize.study import load_study, resolved_arm
from internalize.workflow import Plan


@pytest.fixture
def changed(repository: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """The study file after the diff of the page, and the lines that the diff adds."""
    page = (repository / "docs/add-an-arm.md").read_text()
    found = re.search(r"<!-- diff: (\S+) -->\n```diff\n(.*?)```", page, re.S)
    assert found is not None
    lines = (repository / found[1]).read_text().splitlines()
    added: list[str] = []
    section, at = "", 0
    for line in found[2].splitlines():
        if line.startswith("@@"):
            section = line.strip("@ ") + ":"
            at = lines.index(section)
        elif line.startswith("+"):
            added.append(line[1:])
            lines.insert(at, line[1:])
            at += 1
        else:
            at = lines.index(line[1:], at)
            if line == "   recite:":  # behind the whole arm
                while lines[at + 1].startswith("    "):
                    at += 1
            at += 1
    path = tmp_path / "study.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path, added


def test_the_arm_of_the_page_is_ten_lines_or_less_and_runs(changed: tuple[Path, list[str]], repository: Path) -> None:
    path, added = changed
    assert len(added) <= 10
    study = load_study(path, arms="recite_with_replay")
    arm = resolved_arm(study, "recite_with_replay")
    assert phases(arm) == ["sft"] * 2 + ["rl"] * 12
    plan = Plan(study, repository)
    assert plan.rows_inputs(type("W", (), {"rows": "own_turns_replayed"}))["harvest"]
    segments = [path for path in plan.targets() if "/arms/recite_with_replay/" in path]
    assert len(segments) == len(study.seeds)


def test_the_other_arms_keep_their_jobs(changed: tuple[Path, list[str]], repository: Path) -> None:
    before = Plan(load_study(repository / "config/bundled.yaml"), repository)
    after = Plan(load_study(changed[0]), repository)
    new = set(after.targets()) - set(before.targets())
    assert set(before.targets()) <= set(after.targets())
    assert all("recite_with_replay" in path or "own_turns_replayed" in path for path in new)


def test_the_page_shows_a_continuation_of_the_study(repository: Path) -> None:
    page = (repository / "docs/add-an-arm.md").read_text()
    shown = re.search(r"```yaml\n(  sft_first_armc-cc6:\n.*?)```", page, re.S)
    assert shown is not None
    lines = [line for line in shown[1].splitlines() if "note:" not in line]
    study = (repository / "config/cd82.yaml").read_text()
    start = study.index("  sft_first_armc-cc6:")
    there = [line.split("#")[0].rstrip() for line in study[start:].splitlines()[: len(lines) + 1]]
    assert [line for line in there if "note:" not in line] == lines


def test_the_pages_name_what_there_is(repository: Path) -> None:
    page = (repository / "docs/add-a-game.md").read_text()
    assert set(KINDS) == {"arc", "dipwheel"}
    for name in re.findall(r"`((?:games|knowledge|tests)/[\w/.]+)`", page):
        places = (repository / "src/internalize" / name, repository / name)
        assert any(place.exists() for place in places), name
    for method in re.findall(r"`(\w+)`", page.split("|---|")[1].split("## A game")[0]):
        if method in ("start", "refuse", "apply", "idle", "observe", "frame", "actions", "probes", "progress", "plan"):
            assert f"def {method}(" in (repository / "src/internalize/games/protocol.py").read_text()
