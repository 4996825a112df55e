"""Snakemake profiles: where one lies and what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from internalize.errors import UserError

NAMES = ("config.yaml", "profile.yaml")


def find_profile(name: str, repository: Path) -> Path:
    """Folder of a profile: a path, a name in `profiles/` of the repository, or one of the user's own.

    Raises:
        UserError: there is none of this name.
    """
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "snakemake"
    for folder in (Path(name), repository / "profiles" / name, repository / name, own / name):
        if any((folder / file).is_file() for file in NAMES):
            return folder
    shipped = sorted(path.name for path in (repository / "profiles").glob("*/") if (path / NAMES[0]).is_file())
    raise UserError(
        "no such profile",
        where=name,
        expected=f"a folder with a {NAMES[0]}" + (f", or one of {', '.join(shipped)}" if shipped else ""),
    )


def read_profile(folder: Path) -> dict[str, Any]:
    """The entries of a profile."""
    path = next(path for name in NAMES if (path := folder / name).is_file())
    return dict(yaml.safe_load(path.read_text()) or {})
