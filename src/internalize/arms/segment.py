"""A segment: consecutive steps of one arm and seed in one process.

Invariant: every step is committed on its own, and a step's result does not depend on which segment ran it. A killed
segment, run again, starts at the first step that the store does not hold, from the checkpoint of the step before, and
goes on bit for bit as if it had never stopped. A step that the guard stops is a result: later steps of the arm are
empty receipts with status `stopped`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from internalize.arms.recorded import find_recorded
from internalize.arms.settings import StepSettings, step_settings
from internalize.budget import Purse
from internalize.diagnostics.limits import Limits
from internalize.diagnostics.watchdog import Watch, Watchdog
from internalize.errors import UserError
from internalize.receipts import Receipt, read_receipt, write_receipt
from internalize.runtime import cluster
from internalize.runtime.failures import WorkerLost
from internalize.stages import parent_hashes
from internalize.startup import imports
from internalize.store import Store

if TYPE_CHECKING:
    from internalize.arms.worker import Worker

STAGE = "step"
GATE = "gate"
PREVIOUS = "previous"


def run_segment(
    spec: dict[str, Any],
    code: str,
    inputs: Mapping[str, Path],
    output: Path,
    store: Store,
    progress: Callable[[str], None],
    purse: Purse | None = None,
    pause: Callable[[], None] = lambda: None,
) -> Receipt:
    """Runs steps `spec["first"]..spec["last"]`; returns the receipt of the last one, written to `output`.

    Args:
        spec: the segment (see `step_settings`).
        code: fingerprint of this module's code.
        inputs: receipts: `base`, `gate`, `knowledge`, `rows.<name>`, and `previous` unless the segment starts the arm.
        output: receipt of the last step; the receipts of the other steps are written beside it.
        purse: pays for each step that is not in the store; None: nothing is counted.
        pause: called before each step that the store lacks; what it raises ends the segment there.

    Raises:
        BudgetSpent: the next step does not fit the budget; the steps before it are committed.
        UserError: an input is missing or corrupt, or another process writes the same step.
        WorkerLost: a training rank or an engine died more often than `parallel.retries` allows.
    """
    receipts = {name: read_receipt(path) for name, path in inputs.items()}
    first, last = spec["first"], spec["last"]
    if first > 0 and PREVIOUS not in receipts:
        raise UserError(
            "the segment has no predecessor",
            where=str(output),
            expected=f"--input {PREVIOUS}=<receipt of step {first - 1}>",
        )
    label = "-".join(output.parts[-4:-2])  # ARM/seedN/stepsA-B/stepB.json
    dog = Watchdog(Limits.of(spec.get("diagnostics")), progress).start()
    segment = _Segment(spec, code, receipts, store, label, progress, purse or Purse(), dog)
    previous = receipts.get(PREVIOUS)
    try:
        for number in range(first, last + 1):
            step = segment.step(number, previous)
            receipt = store.find(STAGE, step.key) or find_recorded(store, label, step.settings)
            if receipt is None:
                pause()
                with store.lease(STAGE, step.key):
                    receipt = store.find(STAGE, step.key) or segment.make(step)
                progress(f"{step.told}: {_headline(receipt)}")
            else:
                progress(f"{step.told}: already in the store")
                segment.drop_worker()  # it holds the weights of an earlier step
            write_receipt(output.with_name(f"step{number:04d}.json"), receipt)
            previous = receipt
    finally:
        segment.drop_worker()
        dog.stop()
        cluster.shutdown()
    assert previous is not None
    return previous


def step_parents(
    settings: StepSettings, receipts: Mapping[str, Receipt], previous: Receipt | None
) -> dict[str, Receipt]:
    """The receipts that determine a step: its predecessor, base, knowledge, rows and the guard's reference."""
    parents = {name: receipts[name] for name in ("base", "knowledge", GATE)}
    if previous is not None:
        parents[PREVIOUS] = previous
    if settings.reads_rows:
        for name in settings.spec["rows"]:
            parents[f"rows.{name}"] = receipts[f"rows.{name}"]
    return parents


@dataclass(frozen=True)
class _Step:
    """A step to be made."""

    settings: StepSettings
    previous: Receipt | None
    parents: dict[str, str]
    key: str
    name: str
    told: str
    """How progress names it."""


@dataclass
class _Segment:
    """What the steps of a segment share. The worker is made for the first step that the store lacks."""

    spec: dict[str, Any]
    code: str
    receipts: Mapping[str, Receipt]
    store: Store
    label: str
    progress: Callable[[str], None]
    purse: Purse
    dog: Watchdog
    worker: Worker | None = field(default=None, init=False)

    def step(self, number: int, previous: Receipt | None) -> _Step:
        """Step `number` behind `previous`, with its key."""
        settings = step_settings(self.spec, number)
        parents = parent_hashes(step_parents(settings, self.receipts, previous))
        key = self.store.key(STAGE, settings.spec, self.code, parents)
        told = f"{self.label} {settings.phase} step {number}/{self.spec['last']}"
        return _Step(settings, previous, parents, key, f"{self.label}-step{number:04d}", told)

    def make(self, step: _Step) -> Receipt:
        """Computes and commits a step; one behind a stop is an empty receipt."""
        watch = self.dog.watch(self.store.running(STAGE, step.key), step.name)
        if step.previous is not None and step.previous.status == "stopped":
            facts = {
                "phase": step.settings.phase,
                "passed_through": True,
                **{word: step.previous.facts[word] for word in ("stopped_at", "reasons", "last_good_step")},
            }
            return self._commit(step, self.store.partial(STAGE, step.key), facts, watch)
        self.purse.before_step(step.settings.spec, step.previous)
        receipt = self._retried(step, watch)
        self.purse.after_step()
        return receipt

    def drop_worker(self) -> None:
        """Ends the worker and its processes, if there is one."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def _retried(self, step: _Step, watch: Watch) -> Receipt:
        attempts = self.spec.get("parallel", {}).get("runs", {}).get("retries", 0)
        while True:
            try:
                return self._train(step, watch)
            except WorkerLost as error:
                self.drop_worker()
                if not attempts:
                    raise
                attempts -= 1
                start = "the base" if step.previous is None else f"step {step.previous.spec['step']}"
                self.progress(f"{step.told}: {error.what} ({error.got}); tried again from the commit of {start}")

    def _train(self, step: _Step, watch: Watch) -> Receipt:
        if self.worker is None:
            with watch.limit("start"):
                self.worker = self._open_worker(step)
            watch.charge_startup()
        partial = self.store.partial(STAGE, step.key)
        before = step.previous.facts if step.previous is not None else {}
        return self._commit(step, partial, self.worker.run(step.settings, partial, before, watch), watch)

    def _open_worker(self, step: _Step) -> Worker:
        with imports():
            from internalize.arms.worker import Worker

        opened = {name: self.store.open(receipt) for name, receipt in self.receipts.items() if name != PREVIOUS}
        previous = self.store.open(step.previous) if step.previous is not None else None
        return Worker(self.spec, opened, previous, self.store.scratch(STAGE, step.key))

    def _commit(self, step: _Step, partial: Path, facts: dict[str, Any], watch: Watch) -> Receipt:
        return self.store.commit(
            partial,
            stage=STAGE,
            name=step.name,
            key=step.key,
            spec=step.settings.spec,
            code=self.code,
            parents=step.parents,
            facts=facts,
            status="stopped" if "stopped_at" in facts else "done",
            run=watch.report(),
            runtime=watch.finish(),
        )


def _headline(receipt: Receipt) -> str:
    facts = receipt.facts
    if receipt.status == "stopped":
        return f"stopped at step {facts['stopped_at']}: {'; '.join(facts['reasons'])}"
    words = [f"loss {facts['loss']:.4f}"] if facts.get("loss") is not None else []
    if facts.get("return_mean") is not None:
        words.insert(0, f"return {facts['return_mean']:+.3f}, clears {facts['clears']}/{facts['episodes']}")
    return ", ".join(words) or "nothing to train"
