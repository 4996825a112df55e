"""Running one stage: look the result up, or build it, commit it and write its receipt.

Invariant: a stage whose key is complete in the store computes nothing; a stage that fails or is killed leaves the store
as it was.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.receipts import Receipt, read_receipt, write_receipt
from internalize.startup import imports
from internalize.store import Input, Stopwatch, Store

Build = Callable[[Path, dict[str, Any], dict[str, Input], Callable[[str], None]], dict[str, Any]]

STAGES: dict[str, str] = {
    "fetch_game": "internalize.games.arc.fetch",
    "fetch_base": "internalize.base.hub",
    "knowledge": "internalize.knowledge.stage",
    "base": "internalize.base.stage",
    "gate": "internalize.base.gate",
    "numerics": "internalize.numerics.stage",
    "harvest": "internalize.rollout.harvest",
    "rows": "internalize.rows.stage",
    "evals": "internalize.evals.stage",
    "convert": "internalize.checkpoints.stage",
    "report": "internalize.report.stage",
}
"""Stage name -> module with `build(folder, spec, inputs, progress) -> facts`."""


def parent_hashes(inputs: Mapping[str, Receipt]) -> dict[str, str]:
    """Input name -> hash of its receipt."""
    return {name: receipt.hash() for name, receipt in inputs.items()}


def run_stage(
    stage: str,
    spec: dict[str, Any],
    code: str,
    inputs: Mapping[str, Path],
    output: Path,
    store: Store,
    progress: Callable[[str], None],
) -> Receipt:
    """Builds (or finds) the result of `stage` and writes its receipt to `output`.

    Args:
        stage: a key of `STAGES`.
        spec: the settings that the stage uses.
        code: fingerprint of the stage's code.
        inputs: input name -> receipt file.
        output: receipt file to write.

    Raises:
        UserError: an input is missing or corrupt, or the stage refuses its input.
    """
    if stage not in STAGES:
        raise UserError("unknown stage", got=stage, expected=", ".join(STAGES))
    receipts = {name: read_receipt(path) for name, path in inputs.items()}
    parents = parent_hashes(receipts)
    key = store.key(stage, spec, code, parents)
    name = output.with_suffix("").as_posix().split("receipts/", 1)[-1].replace("/", "-")
    receipt = store.find(stage, key)
    if receipt is not None:
        progress(f"{name}: already in the store, nothing computed")
    else:
        with store.lease(stage, key):
            receipt = store.find(stage, key)
            if receipt is None:
                receipt = _build(stage, name, key, spec, code, receipts, parents, store, progress)
    write_receipt(output, receipt)
    return receipt


def _build(
    stage: str,
    name: str,
    key: str,
    spec: dict[str, Any],
    code: str,
    receipts: Mapping[str, Receipt],
    parents: dict[str, str],
    store: Store,
    progress: Callable[[str], None],
) -> Receipt:
    watch = Stopwatch()
    with imports():
        build: Build = importlib.import_module(STAGES[stage]).build
    watch.charge_startup()
    with watch.phase("inputs"):
        opened = {label: store.open(receipt) for label, receipt in receipts.items()}
    partial = store.partial(stage, key)
    try:
        facts = build(partial, spec, opened, progress)
    except KeyError as error:
        if error.args and error.args[0] in {*spec, *opened}:
            raise  # what was asked for is there: a fault of ours, to be seen whole
        raise UserError(
            f"stage {stage} misses a setting or an input",
            got=f"no {error}",
            expected="--spec and --input as its rule passes them (see rules/)",
        ) from error
    return store.commit(
        partial,
        stage=stage,
        name=name,
        key=key,
        spec=spec,
        code=code,
        parents=parents,
        facts=facts,
        status="done",
        run=watch.report(),
    )
