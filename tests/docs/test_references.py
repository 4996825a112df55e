"""The generated pages say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from internalize.cli import app
from internalize.manual.pages import COMMANDS, STUDY_FILE, references
from internalize.study import Study

FIX = "run `make docs`"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return references(typer.main.get_command(app))


@pytest.mark.parametrize("name", [COMMANDS, STUDY_FILE])
def test_pages_are_in_step_with_the_code(name: str, written: dict[str, str], repository: Path) -> None:
    assert (repository / "docs" / name).read_text() == written[name], FIX


def test_every_command_is_there_once(written: dict[str, str]) -> None:
    root = typer.main.get_command(app)
    shown = [line.removeprefix("## ") for line in written[COMMANDS].splitlines() if line.startswith("## internalize")]
    words = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if not command.hidden:
            below = getattr(command, "commands", None)
            words += [f"internalize {name}"] if below is None else [f"internalize {name} {one}" for one in below]
    assert sorted(shown) == sorted(words)
    assert written[COMMANDS].index("## internalize segment") > written[COMMANDS].index("## Commands that rules call")
    assert "| `--dry-run` `-n` | say what would be done, change nothing |  |" in written[COMMANDS]
    assert "internalize cat FOLDER RUN EPISODE [FILE]" in written[COMMANDS]


def test_every_key_of_the_study_file_is_there(written: dict[str, str]) -> None:
    page = written[STUDY_FILE]
    for key in Study.model_fields:
        assert f"\n| `{key}` | " in page
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert len(headings) == len(set(headings)), "two sections would have one anchor"
    assert "## rows.NAME, type curated" in headings
    assert "| `of` | text | must be given | Row set that is cut down. |" in page
    assert "some keys of [`arms.NAME.parallel`](#armsnameparallel)" in page
    assert "| `lr` | number above 0 | `0.0001` | Learning rate. |" in page
