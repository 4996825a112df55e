"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Before any test imports torch: the machines that run these tests have few cores, and the bits must not depend on them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
# Read once, when huggingface_hub is first imported: its Xet client waits for a service that no test server has.
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout that the tests run in."""
    return Path(__file__).resolve().parents[1]
