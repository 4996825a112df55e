"""The archive of a small study, made once, and copies of it to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from made_study import MadeStudy, make_study


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> MadeStudy:
    """A study with its archive; read-only."""
    made = make_study(tmp_path_factory.mktemp("study"))
    made.run()
    return made


@pytest.fixture
def archive(finished: MadeStudy, tmp_path: Path) -> Path:
    """A copy of the archive, for tests that damage it."""
    shutil.copytree(finished.archive.parent, tmp_path / "results")
    return tmp_path / "results" / "archive"
