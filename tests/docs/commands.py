"""The commands of the documentation: every line of a `bash` block, and which of them are not run as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

PAGES = ("README.md", "profiles/README.md", "docs")
SHELL = ("bash", "console", "sh", "shell")
FENCE = re.compile(r"^ *```(?P<language>[\w-]*)\s*$")
REMARK = re.compile(r"\s+#\s.*$")
COMMAND = re.compile(r"^\s*\$?\s*(internalize|snakemake|make|pip3?|python3?|scripts/\S+|source|export|git|cp)\s")
"""How a line begins that a reader would type."""


@dataclass(frozen=True)
class Line:
    """One command of a page."""

    page: str
    number: int
    command: str


@dataclass(frozen=True)
class Exempt:
    """A command that is not run as it stands."""

    command: str
    reason: str
    instead: str = ""
    """What is run in its place; empty: nothing."""


def pages(repository: Path) -> list[Path]:
    """Every page of the documentation."""
    found = []
    for name in PAGES:
        path = repository / name
        found += sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return found


def blocks(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Language, number of the first line, and lines of each fenced block."""
    language, start, inside = "", 0, list[str]()
    is_open = False
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if match is None:
            inside.append(line)
        elif is_open:
            yield language, start, inside
            is_open = False
        else:
            language, start, inside, is_open = match["language"], number + 1, [], True


def commands(repository: Path) -> list[Line]:
    """Every command; a block of no language counts when its first line is a command (README)."""
    found = []
    for path in pages(repository):
        for language, start, lines in blocks(path.read_text()):
            if language in SHELL or (not language and lines and COMMAND.match(lines[0])):
                page = path.relative_to(repository).as_posix()
                for number, line in enumerate(lines, start):
                    command = REMARK.sub("", line).strip().removeprefix("$ ")
                    if command and not command.startswith("#"):
                        found.append(Line(page, number, command))
    return found


def hidden(repository: Path) -> list[str]:
    """Places where a command stands that no block of commands holds; the generated pages show usage, not commands."""
    found = []
    for path in pages(repository):
        if path.parent.name == "reference":
            continue
        text = path.read_text()
        for language, start, lines in blocks(text):
            if language not in SHELL and not (not language and lines and COMMAND.match(lines[0])):
                found += [f"{path.name}:{start + at}" for at, line in enumerate(lines) if COMMAND.match(line)]
        outside = re.sub(r"^ *```.*?^ *```\s*$", "", text, flags=re.S | re.M)
        found += [
            f"{path.name}: {line.strip()}"
            for line in outside.splitlines()
            if re.match(r"^ {4}", line) and COMMAND.match(line)
        ]
    return found


def exceptions(path: Path) -> dict[str, Exempt]:
    """The commands that are not run as they stand."""
    return {one["command"]: Exempt(**one) for one in yaml.safe_load(path.read_text())}
