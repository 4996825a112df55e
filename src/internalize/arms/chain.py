"""The finished steps of one arm and seed, as their receipts tell.

Invariant: a receipt that is handed out is the one that the next step was made from: hashes are compared, never names
alone.
"""

from __future__ import annotations

from pathlib import Path

from internalize.arms.settings import StepSettings
from internalize.checkpoints.inventory import step_receipts
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
        found = step_receipts(results, arm, str(seed))
        self.receipts = {step: receipt for (_, _, step), receipt in found.items()}
        if not self.receipts:
            raise MissingPayload(
                f"no step of arm `{arm}`, seed {seed}, has been run",
                where=str(results),
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
            MissingPayload: an arm that continues another one lacks that one's receipt.
            CorruptPayload: the receipt at hand is not the one that the step was made from.
        """
        wanted = self.receipt(step).parents.get("previous")
        if wanted is None:
            return None
        receipt = self.receipts.get(step - 1) or self._elsewhere(step, wanted)
        self._same(receipt, wanted, f"step {step}")
        return self.store.open(receipt)

    def _elsewhere(self, step: int, wanted: str) -> Receipt:
        """The last step of the arm that this one continues: whichever arm has the receipt."""
        steps = step_receipts(self.results, seed=str(self.seed))
        found = [one for (_, _, at), one in steps.items() if at == step - 1 and one.hash() == wanted]
        if not found:
            raise MissingPayload(
                f"the step that step {step} of arm `{self.arm}`, seed {self.seed}, was made from is not there",
                where=str(self.results),
                expected=f"step {step - 1} of the arm that it continues, receipt {wanted[:12]}",
                fix="run the study again: it finds or computes the steps that belong together",
            )
        return found[0]

    def base(self, step: int) -> Input:
        """The base that a step was made from, opened."""
        receipt = read_receipt(self.results / "receipts" / "base.json")
        self._same(receipt, self.receipt(step).parents["base"], f"step {step}")
        return self.store.open(receipt)

    def settings(self, step: int) -> StepSettings:
        """The settings that a step was trained with."""
        return StepSettings(self.receipt(step).spec)

    def _same(self, receipt: Receipt, wanted: str, who: str) -> None:
        if receipt.hash() != wanted:
            raise CorruptPayload(
                f"{who} of arm `{self.arm}` was made from another `{receipt.name}` than the one at hand",
                where=str(self.results),
                expected=f"receipt {wanted[:12]}",
                got=f"receipt {receipt.hash()[:12]}",
                fix="run the study again: it finds or computes the steps that belong together",
            )
