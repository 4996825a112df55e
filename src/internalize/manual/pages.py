"""The generated pages of the documentation: docs/reference.

Invariant: equal code gives equal pages; a test holds the committed ones against what is written here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from internalize.files import write_text
from internalize.manual.cli_page import cli_page
from internalize.manual.study_page import study_page
from internalize.study import study_schema
from internalize.study_parallel import Parallel

COMMANDS, STUDY_FILE = "reference/commands.md", "reference/study-file.md"


def references(root: Any) -> dict[str, str]:
    """Path below the documentation's folder -> page.

    Args:
        root: the group of all commands (`typer.main.get_command`).
    """
    return {
        COMMANDS: cli_page(root),
        STUDY_FILE: study_page(study_schema(), {"Parallel": Parallel.model_json_schema()}),
    }


def write_references(root: Any, folder: Path) -> list[Path]:
    """Writes the pages; returns what was written."""
    made = []
    for name, text in references(root).items():
        write_text(folder / name, text)
        made.append(folder / name)
    return made
