"""An arm that the budget stops goes on bit for bit once it is raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from internalize.arms.segment import run_segment
from internalize.budget import BudgetSpent, Purse
from internalize.receipts import Receipt, read_receipt

LAST = 2


class Money(Purse):
    """Money for so many steps."""

    def __init__(self, steps: int) -> None:
        self.left, self.asked = steps, list[int]()

    def before_step(self, spec: Mapping[str, Any], previous: Receipt | None) -> None:
        self.asked.append(int(spec["step"]))
        if not self.left:
            raise BudgetSpent("no more")
        self.left -= 1


def test_a_stop_poisons_nothing(prepare: Callable, prepared) -> None:  # type: ignore[type-arg, no-untyped-def]
    def run(where: Any, purse: Purse | None) -> list[Receipt]:
        path = where.receipts / "arms" / "recite" / "seed0" / f"steps0000-{LAST:04d}" / f"step{LAST:04d}.json"
        spec = where.segment("recite", LAST)
        run_segment(spec, "code", where.inputs("teacher_turns"), path, where.store, lambda text: None, purse)
        return [read_receipt(path.with_name(f"step{step:04d}.json")) for step in range(LAST + 1)]

    undisturbed = run(prepared, None)
    other = prepare()
    for money, done in ((0, 0), (1, 1), (1, 2)):
        purse = Money(money)
        with pytest.raises(BudgetSpent):
            run(other, purse)
        assert purse.asked[-1] == done, "steps in the store are not paid for again"
        entries = list(Path(other.work / "store" / "step").glob("*"))
        assert len(entries) == done, "no entry, and no partial one, of the step that was not made"
        folder = other.receipts / "arms" / "recite" / "seed0" / f"steps0000-{LAST:04d}"
        assert len(list(folder.glob("*.json"))) == done
    assert [one.model_dump() for one in run(other, None)] == [one.model_dump() for one in undisturbed]
