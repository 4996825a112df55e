"""`internalize numerics`: the gates of a study for people, as a table.

Invariant: it runs what the workflow runs, on the base that the study names or on any model folder; all gates run, then
the failures are raised together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from internalize.errors import UserError
from internalize.numerics.stage import NumericGateFailed, judge
from internalize.numerics.verdict import Verdict, require
from internalize.receipts import read_receipt
from internalize.study import load_study
from internalize.study_errors import nearest
from internalize.study_numerics import GateName, Numerics, chosen_gates, numerics_specs

BASE = Path("results/receipts/base.json")


def print_gates(
    study: Path,
    gates: Sequence[str] | None,
    model: Path | None,
    overrides: Sequence[str],
    progress: Callable[[str], None],
) -> None:
    """Runs and prints.

    Args:
        gates: which; None: those of the study, or the default ones if it asks for none.
        model: HF folder; None: the study's base, prebuilt or from `results`.

    Raises:
        UserError: unknown gate, no base yet, or a gate cannot run here.
        GateFailed: a gate failed; the table is printed first.
    """
    loaded = load_study(study, set=overrides)
    known = get_args(GateName)
    for name in gates or []:
        if name not in known:
            fix = nearest(name, known)
            raise UserError("unknown numeric gate", got=name, expected=", ".join(known), fix=fix)
    wanted = [g for g in known if g in gates] if gates else chosen_gates(loaded.numerics or Numerics())
    folder = model or _base(loaded.base.prebuilt)
    verdicts = []
    for spec in numerics_specs(loaded, wanted).values():
        try:
            verdicts.append(judge(spec, folder, lambda text: None))
        except NumericGateFailed as failed:
            verdicts.append(failed.verdict)
        progress(f"numerics {spec['gate']}: {'passed' if verdicts[-1].passed else 'FAILED'}")
    Console().print(table(verdicts))
    require(verdicts)


def table(verdicts: Sequence[Verdict]) -> Table:
    """One row a case."""
    drawn = Table(title="numeric gates")
    for name in ("gate", "what was compared", "error", "allowed", "verdict"):
        drawn.add_column(name, justify="right" if name in ("error", "allowed") else "left", overflow="fold")
    for verdict in verdicts:
        for case in verdict.cases:
            what = f"{case.layer}, {case.shape}"
            figures = (f"{case.error:.1e}", f"{case.tolerance:.0e}")
            drawn.add_row(verdict.gate, what, *figures, "passed" if case.passed else "FAILED")
    return drawn


def _base(prebuilt: str | None) -> Path:
    if prebuilt is not None and Path(prebuilt).is_dir():
        return Path(prebuilt)
    if BASE.exists():
        return Path("store") / read_receipt(BASE).entry
    raise UserError(
        "no model to run the gates on",
        where="base.prebuilt",
        expected=f"a model folder, or {BASE} of an earlier run",
        got=str(prebuilt),
        fix="name a folder with --model",
    )
