"""Steps that another system has done and this one has read (`internalize import`): they count as done.

Invariant: a recorded step stands for a step of the same arm, seed and settings, and for no other; its key has no
parents and no code, because what it was made from was never here. What it says is what its logs say.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from internalize.arms.settings import StepSettings
from internalize.receipts import Receipt
from internalize.store import Store

STAGE, CODE = "step", "recorded"


def label_of(arm: str, seed: int) -> str:
    """How the arm's runs are named."""
    return f"{arm}-seed{seed}"


def find_recorded(store: Store, label: str, settings: StepSettings) -> Receipt | None:
    """The receipt of a recorded step; None when there is none.

    Raises:
        CorruptPayload: it is there, and damaged.
    """
    return store.find(STAGE, _key(store, label, settings))


def commit_recorded(
    store: Store, partial: Path, label: str, settings: StepSettings, facts: Mapping[str, Any], source: Mapping[str, Any]
) -> Receipt:
    """Commits what was read about a step.

    Args:
        partial: folder of its payload (`partial_of`).
        facts: what the logs say; the guard's history is empty, so a continued arm begins a new one.
        source: where it was read.
    """
    return store.commit(
        partial,
        stage=STAGE,
        name=f"{label}-step{settings.step:04d}",
        key=_key(store, label, settings),
        spec=settings.spec,
        code=CODE,
        parents={},
        facts={"phase": settings.phase, "history": [], "recorded": True, **facts},
        status="done",
        run=dict(source),
    )


def partial_of(store: Store, label: str, settings: StepSettings) -> Path:
    """An empty folder for the payload."""
    return store.partial(STAGE, _key(store, label, settings))


def _key(store: Store, label: str, settings: StepSettings) -> str:
    return store.key(STAGE, settings.spec, f"{CODE} {label}", {})
