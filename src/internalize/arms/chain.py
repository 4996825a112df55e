"""The finished steps of one arm and seed, as their receipts tell.

Invariant: a receipt that is handed out is the one that the next step was made from: hashes are compared, never names
alone.
"""

from __future__ import annotations

from pathlib import Path

from internalize.arms.settings import StepSettings
from internalize.errors import CorruptPayload, MissingPayload
from internalize.receipts import Receipt, read_receipt
from internalize.store import Input, Store


class Chain:
    """Steps and base of a run.

    Args:
        results: results folder of the study.
        store: its store.
    """

    def __init__(self, results: Path, store: Store, arm: str, seed: int) -> None:
        self.results, self.store, self.arm, self.seed = results, store, arm, seed
        found: dict[int, Receipt] = {}
        folder = results / "receipts" / "arms" / arm / f"seed{seed}"
        for path in sorted(folder.glob("steps*/step*.json"), key=lambda path: path.stat().st_mtime):
            found[int(path.stem.removeprefix("step"))] = read_receipt(path)
        self.receipts = dict(sorted(found.items()))
        if not self.receipts:
            raise MissingPayload(
                f"no step of arm `{arm}`, seed {seed}, has been run",
                where=str(folder),
                fix="name an arm and a seed of the study; internalize checkpoints lists them",
            )

    def receipt(self, step: int) -> Receipt:
        """The receipt of a step.

        Raises:
            MissingPayload: there is none.
        """
        if step not in self.receipts:
            raise MissingPayload(
                f"arm `{self.arm}`, seed {self.seed}, has no step {step}",
                where=str(self.results),
                expected=f"one of: {', '.join(map(str, self.receipts))}",
            )
        return self.receipts[step]

    def before(self, step: int) -> Input | None:
        """The step that a step started from, opened; None for the first, which starts from the base.

        Raises:
            CorruptPayload: the receipt at hand is not the one that the step was made from.
        """
        wanted = self.receipt(step).parents.get("previous")
        if wanted is None:
            return None
        receipt = self.receipt(step - 1)
        self._same(receipt, wanted, f"step {step}")
        return self.store.open(receipt)

    def base(self, step: int) -> Input:
        """The base that a step was made from, opened."""
        receipt = read_receipt(self.results / "receipts" / "base.json")
        self._same(receipt, self.receipt(step).parents["base"], f"step {step}")
        return self.store.open(receipt)

    def settings(self, step: int) -> StepSettings:
        """The settings that a step was trained with."""
        spec = self.receipt(step).spec
        cite = float(spec.get("cite_weight", 1.0))
        return StepSettings(step, spec["phase"], bool(spec["reset"]), cite, spec.get("rollout_index"), spec)

    def _same(self, receipt: Receipt, wanted: str, who: str) -> None:
        if receipt.hash() != wanted:
            raise CorruptPayload(
                f"{who} of arm `{self.arm}` was made from another `{receipt.name}` than the one at hand",
                where=str(self.results),
                expected=f"receipt {wanted[:12]}",
                got=f"receipt {receipt.hash()[:12]}",
                fix="run the study again: it finds or computes the steps that belong together",
            )
