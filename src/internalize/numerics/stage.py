"""The numerics stage: one gate, judged, its figures kept; and the job that runs a study's gates in one process.

Invariant: a receipt of a gate exists only if the gate passed; a failing gate leaves the message and no receipt, so
nothing that stands behind it can start.

One job runs all gates, because importing torch and Megatron costs more than a gate; each gate is a store entry and a
receipt of its own, so a changed tolerance repeats one gate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from internalize.errors import GateFailed
from internalize.files import write_json
from internalize.numerics.gates import run_gate
from internalize.numerics.verdict import Verdict, require
from internalize.numerics.versions import library_versions
from internalize.store import Input, Store

STAGE = "numerics"
FIGURES = "figures.json"
Progress = Callable[[str], None]


class NumericGateFailed(GateFailed):
    """A gate whose verdict is known; `verdict` says everything."""

    def __init__(self, error: GateFailed, verdict: Verdict) -> None:
        super().__init__(error.what, where=error.where, expected=error.expected, got=error.got, fix=error.fix)
        self.verdict = verdict


def build(folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Progress) -> dict[str, Any]:
    """Runs the gate of `spec` on the base, writes figures.json.

    Returns:
        Facts: `passed`, and each case with layer, shape, error and tolerance.

    Raises:
        GateFailed: names layer, shape and error.
    """
    verdict = judge(spec, inputs["base"].payload, progress)
    write_json(folder / FIGURES, verdict.figures())
    return verdict.figures()


def judge(spec: Mapping[str, Any], model: Path, progress: Progress) -> Verdict:
    """The verdict of one gate on a model folder.

    Raises:
        NumericGateFailed: it did not pass.
    """
    with tempfile.TemporaryDirectory(prefix="internalize-numerics-") as work:
        verdict = run_gate(spec, model, Path(work))
    for case in verdict.cases:
        progress(f"numerics {verdict.gate}: {'passed' if case.passed else 'FAILED'}: {case.describe()}")
    try:
        require([verdict])
    except GateFailed as error:
        raise NumericGateFailed(error, verdict) from None
    return verdict


def run_gates(
    specs: Mapping[str, dict[str, Any]],
    code: str,
    inputs: Mapping[str, Path],
    folder: Path,
    store: Store,
    progress: Progress,
) -> None:
    """Runs the gates of a study one after another; writes `folder/GATE.json` for each that passed.

    Args:
        specs: gate -> spec.
        code: fingerprint of this module's code.
        inputs: `base`.

    Raises:
        GateFailed: after all have run: names every failure.
        UserError: a gate cannot be run here.
    """
    from internalize.stages import run_stage

    failed, versions = [], library_versions()
    for gate, spec in specs.items():
        here = {**spec, "versions": versions}
        if here.get("device") == "cuda":
            here["device_name"] = _device_name()
        try:
            run_stage(STAGE, here, code, inputs, folder / f"{gate}.json", store, progress)
        except NumericGateFailed as error:
            failed.append(error.verdict)
    require(failed)


def _device_name() -> str:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
