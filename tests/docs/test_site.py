"""The site builds without a warning: links and anchors inside it exist, and no page asks a network for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
pytest.importorskip("material", reason="the extra `docs` is not installed")

LOADED = re.compile(r"""<(?:link|script|img|source|iframe)\b[^>]*?(?:href|src)=["']?((?:https?:)?//[^"'\s>]+)""")
NAMED = re.compile(r"url\(\s*[\"']?((?:https?:)?//[^)]+)\)")


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_built(site: Path, repository: Path) -> None:
    pages = {path.relative_to(repository / "docs") for path in (repository / "docs").rglob("*.md")}
    made = {page.with_name("index.md") if page.name == "README.md" else page for page in pages}
    assert [page for page in made if not (site / page.with_suffix(".html")).is_file()] == []
    assert "How a job runs" in (site / "reference" / "profiles.html").read_text()


def test_no_page_asks_a_network(site: Path) -> None:
    asked = {
        (path.name, address)
        for path in [*site.rglob("*.html"), *site.rglob("*.css")]
        for address in (NAMED if path.suffix == ".css" else LOADED).findall(path.read_text())
    }
    assert asked == set()
