"""Fixtures: the synthetic study as payloads, and as results with a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from disk import Disk, put_on_disk
from synthetic import Synthetic, filled


@pytest.fixture
def synthetic(tmp_path: Path) -> Callable[[], Synthetic]:
    def make() -> Synthetic:
        root = tmp_path / "store"
        root.mkdir()
        return Synthetic(root)

    return make


@pytest.fixture
def study(synthetic: Callable[[], Synthetic]) -> Synthetic:
    return filled(synthetic())


@pytest.fixture(scope="module")
def module_study(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    """The same study, made once for tests that only read it."""
    return filled(Synthetic(tmp_path_factory.mktemp("store")))


@pytest.fixture(scope="session")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    """The same study as results and store; read-only."""
    root = tmp_path_factory.mktemp("disk")
    (root / "made").mkdir()
    return put_on_disk(filled(Synthetic(root / "made")), root)
