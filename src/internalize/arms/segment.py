"""A segment: consecutive steps of one arm and seed in one process.

Invariant: every step is committed on its own, and a step's result does not depend on which segment ran it. A killed
segment, run again, starts at the first step that the store does not hold, from the checkpoint of the step before, and
goes on bit for bit as if it had never stopped. A step that the guard stops is a result: later steps of the arm are
empty receipts with status `stopped`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from internalize.arms.settings import StepSettings, step_settings
from internalize.errors import UserError
from internalize.receipts import Receipt, read_receipt, write_receipt
from internalize.runtime import cluster
from internalize.runtime.failures import WorkerLost
from internalize.stages import parent_hashes
from internalize.store import Stopwatch, Store

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
) -> Receipt:
    """Runs steps `spec["first"]..spec["last"]`; returns the receipt of the last one, written to `output`.

    Args:
        spec: the segment (see `step_settings`).
        code: fingerprint of this module's code.
        inputs: receipts: `base`, `gate`, `knowledge`, `rows.<name>`, and `previous` unless the segment starts the arm.
        output: receipt of the last step; the receipts of the other steps are written beside it.

    Raises:
        UserError: an input is missing or corrupt, or another process writes the same step.
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
    previous = receipts.get(PREVIOUS)
    worker: Worker | None = None
    try:
        for step in range(first, last + 1):
            settings = step_settings(spec, step)
            parents = parent_hashes(_parents(settings, receipts, previous))
            key = store.key(STAGE, settings.spec, code, parents)
            receipt = store.find(STAGE, key)
            if receipt is None:
                with store.lease(STAGE, key):
                    receipt = store.find(STAGE, key)
                    if receipt is None:
                        watch = Stopwatch()
                        name = f"{label}-step{step:04d}"
                        if previous is not None and previous.status == "stopped":
                            receipt = _pass_through(settings, store, key, code, parents, previous, name, watch)
                        else:
                            attempts = spec.get("parallel", {}).get("runs", {}).get("retries", 0)
                            while receipt is None:
                                try:
                                    if worker is None:
                                        worker = _worker(spec, receipts, previous, store, store.scratch(STAGE, key))
                                        watch.charge_startup()
                                    receipt = _train(worker, settings, store, key, code, parents, previous, name, watch)
                                except WorkerLost as error:
                                    if worker is not None:
                                        worker.close()
                                        worker = None
                                    if not attempts:
                                        raise
                                    attempts -= 1
                                    progress(f"{label} {settings.phase} step {step}/{last}: {_retry(error, previous)}")
                progress(f"{label} {settings.phase} step {step}/{last}: {_headline(receipt)}")
            else:
                progress(f"{label} {settings.phase} step {step}/{last}: already in the store")
                if worker is not None:  # it holds the weights of an earlier step
                    worker.close()
                    worker = None
            write_receipt(output.with_name(f"step{step:04d}.json"), receipt)
            previous = receipt
    finally:
        if worker is not None:
            worker.close()
        cluster.shutdown()
    assert previous is not None
    return previous


def _parents(settings: StepSettings, receipts: Mapping[str, Receipt], previous: Receipt | None) -> dict[str, Receipt]:
    """The receipts that determine a step: its predecessor, base, knowledge, rows and the guard's reference."""
    parents = {name: receipts[name] for name in ("base", "knowledge", GATE)}
    if previous is not None:
        parents[PREVIOUS] = previous
    if settings.reads_rows:
        for name in settings.spec["rows"]:
            parents[f"rows.{name}"] = receipts[f"rows.{name}"]
    return parents


def _retry(error: WorkerLost, previous: Receipt | None) -> str:
    start = "the base" if previous is None else f"step {previous.spec['step']}"
    return f"{error.what} ({error.got}); tried again from the commit of {start}"


def _worker(
    spec: dict[str, Any], receipts: Mapping[str, Receipt], previous: Receipt | None, store: Store, scratch: Path
) -> Worker:
    from internalize.arms.worker import Worker

    opened = {name: store.open(receipt) for name, receipt in receipts.items() if name != PREVIOUS}
    return Worker(spec, opened, store.open(previous) if previous is not None else None, scratch)


def _train(
    worker: Worker,
    settings: StepSettings,
    store: Store,
    key: str,
    code: str,
    parents: dict[str, str],
    previous: Receipt | None,
    name: str,
    watch: Stopwatch,
) -> Receipt:
    partial = store.partial(STAGE, key)
    facts = worker.run(settings, partial, previous.facts if previous is not None else {}, watch)
    status = "stopped" if "stopped_at" in facts else "done"
    return _commit(store, partial, settings, key, code, parents, name, facts, status, watch)


def _pass_through(
    settings: StepSettings,
    store: Store,
    key: str,
    code: str,
    parents: dict[str, str],
    previous: Receipt,
    name: str,
    watch: Stopwatch,
) -> Receipt:
    """The receipt of a step behind the one that the guard stopped: no payload."""
    facts = {
        "phase": settings.phase,
        "passed_through": True,
        **{word: previous.facts[word] for word in ("stopped_at", "reasons", "last_good_step")},
    }
    return _commit(store, store.partial(STAGE, key), settings, key, code, parents, name, facts, "stopped", watch)


def _commit(
    store: Store,
    partial: Path,
    settings: StepSettings,
    key: str,
    code: str,
    parents: dict[str, str],
    name: str,
    facts: dict[str, Any],
    status: str,
    watch: Stopwatch,
) -> Receipt:
    return store.commit(
        partial,
        stage=STAGE,
        name=name,
        key=key,
        spec=settings.spec,
        code=code,
        parents=parents,
        facts=facts,
        status=status,
        run=watch.report(),
    )


def _headline(receipt: Receipt) -> str:
    facts = receipt.facts
    if receipt.status == "stopped":
        return f"stopped at step {facts['stopped_at']}: {'; '.join(facts['reasons'])}"
    words = [f"loss {facts['loss']:.4f}"] if facts.get("loss") is not None else []
    if facts.get("return_mean") is not None:
        words.insert(0, f"return {facts['return_mean']:+.3f}, clears {facts['clears']}/{facts['episodes']}")
    return ", ".join(words) or "nothing to train"
