"""Hooks of the documentation site (mkdocs.yml): pages that lie elsewhere in the repository."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ELSEWHERE = {"reference/profiles.md": "profiles/README.md"}
"""Page of the site -> file of the repository."""
LINK = re.compile(r"\[([^]]+)\]\((?!https?:|#)[^)]*\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds those pages. Their links to other files of the repository become plain text: the site does not hold them."""
    root = Path(config.config_file_path).parent
    for page, source in ELSEWHERE.items():
        text = LINK.sub(r"`\1`", (root / source).read_text())
        files.append(File.generated(config, page, content=text))
    return files
