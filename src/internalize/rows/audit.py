"""The audit of a row set: nothing trains on rows that do not pass.

Invariant: the audit judges the rows as written, from their tokens, against the recorded episodes, the game
and the knowledge set; it shares no code with the builders beyond the template and the parsers of thinks.
One finding fails the set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from internalize.errors import UserError
from internalize.records import SftRow
from internalize.rows import checks
from internalize.rows.context import RowContext
from internalize.rows.evidence import Evidence

#: Findings that a report lists; all are counted.
LISTED = 20

Check = Callable[[SftRow, Evidence], Iterator[tuple[str, str]]]

CHECKS: dict[str, Check] = {
    "shape": checks.shape,
    "token_range": checks.token_range,
    "length": checks.length,
    "template": checks.template,
    "mask": checks.mask,
    "cite": checks.cite,
    "held_out": checks.held_out,
    "duplicate": checks.duplicate,
    "provenance": checks.provenance,
    "recorded": checks.recorded,
    "game": checks.game,
    "stance": checks.stance,
    "answer": checks.answer,
}
"""Name -> check; each yields (expected, got) for what is wrong with one row."""


@dataclass(frozen=True)
class Finding:
    """One thing wrong with one row."""

    row: int
    check: str
    expected: str
    got: str


@dataclass(frozen=True)
class Audit:
    """Outcome of all checks on all rows."""

    rows: int
    findings: list[Finding]

    @property
    def passed(self) -> bool:
        """True without a finding."""
        return not self.findings

    def record(self) -> dict[str, Any]:
        """The content of `audit.json`."""
        counts = {name: sum(f.check == name for f in self.findings) for name in CHECKS}
        listed = [asdict(finding) for finding in self.findings[:LISTED]]
        return {"passed": self.passed, "rows": self.rows, "findings_by_check": counts, "findings": listed}

    def require(self, name: str) -> None:
        """Raise UserError that names the first finding's row and check, unless the audit passed."""
        if self.passed:
            return
        first = self.findings[0]
        raise UserError(
            f"the rows fail their audit: {len(self.findings)} finding(s), the first in check `{first.check}`",
            where=f"rows.{name}, row {first.row}",
            expected=first.expected,
            got=first.got,
            fix="rebuild harvest and rows with the present game, template and knowledge set; if it stays, "
            "the builder of this source is wrong",
        )


def audit(rows: Sequence[SftRow], context: RowContext) -> Audit:
    """Run every check on every row. A row of broken shape is judged by no further check."""
    evidence = Evidence(context)
    findings = []
    for index, row in enumerate(rows):
        for name, check in CHECKS.items():
            found = [Finding(index, name, expected, got) for expected, got in check(row, evidence)]
            findings += found
            if found and name in ("shape", "token_range"):
                break
    return Audit(len(rows), findings)
