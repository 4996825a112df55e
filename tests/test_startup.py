"""Imports leave the garbage collector as they found it."""

from __future__ import annotations

import gc

import pytest

from internalize.startup import imports, leave


@pytest.fixture(autouse=True)
def _thawed():
    yield
    gc.unfreeze()


def test_what_is_imported_is_not_collected_again() -> None:
    with imports():
        assert not gc.isenabled()
        kept = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() > len(kept)


def test_a_failed_import_leaves_the_collector_on() -> None:
    with pytest.raises(ImportError), imports():
        raise ImportError("no such module")
    assert gc.isenabled()


def test_leaving_freezes_the_rest() -> None:
    leave()
    assert gc.get_freeze_count() > 0
