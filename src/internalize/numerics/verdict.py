"""What a numeric gate found: cases, each an error beside the error that is allowed.

Invariant: a gate passes only if every case was measured and lies within its tolerance; an error that is not a number
is a failure. What fails is named by layer, shape and error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from internalize.errors import GateFailed


@dataclass(frozen=True)
class Case:
    """One comparison.

    Args:
        layer: the part of the model that was compared.
        shape: its shape in words.
        error: what was measured; `unit` says in which measure.
        tolerance: greatest error that passes.
        note: where the error is greatest, and what it looks like.
    """

    layer: str
    shape: str
    error: float
    tolerance: float
    note: str = ""
    unit: str = "relative"

    @property
    def passed(self) -> bool:
        """Within the tolerance; nan is not."""
        return self.error <= self.tolerance

    def describe(self) -> str:
        """One line: layer, shape, error."""
        where = f" ({self.note})" if self.note else ""
        return f"{self.layer}, {self.shape}: {self.unit} error {self.error:.2g}, allowed {self.tolerance:.2g}{where}"

    def figures(self) -> dict[str, Any]:
        """As JSON values; an error that is not finite becomes text."""
        error = float(f"{self.error:.3g}") if math.isfinite(self.error) else str(self.error)
        return {
            "layer": self.layer,
            "shape": self.shape,
            "error": error,
            "tolerance": self.tolerance,
            "unit": self.unit,
            "note": self.note,
            "passed": self.passed,
        }


@dataclass(frozen=True)
class Verdict:
    """The cases of one gate."""

    gate: str
    cases: tuple[Case, ...]

    @property
    def passed(self) -> bool:
        """Every case passed, and there was one."""
        return bool(self.cases) and all(case.passed for case in self.cases)

    def failures(self) -> list[Case]:
        """The cases that did not pass, worst first."""
        failed = [case for case in self.cases if not case.passed]
        return sorted(failed, key=lambda case: -_excess(case))

    def figures(self) -> dict[str, Any]:
        """What `figures.json` and the receipt hold."""
        return {"gate": self.gate, "passed": self.passed, "cases": [case.figures() for case in self.cases]}


def require(verdicts: Sequence[Verdict]) -> None:
    """Passes if all gates did.

    Raises:
        GateFailed: names the layer, the shape and the error of each failure.
    """
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if not failed:
        return
    lines = [f"{verdict.gate}: {case.describe()}" for verdict in failed for case in verdict.failures()]
    raise GateFailed(
        f"numeric gate {', '.join(f'`{verdict.gate}`' for verdict in failed)}",
        where=lines[0],
        expected="every error within its tolerance, before anything is trained",
        got="; ".join(lines[1:]) or "this one failure",
        fix=f"see docs/numerics.md; `internalize numerics STUDY --gate {failed[0].gate}` repeats it alone",
    )


def relative_error(got: Tensor, want: Tensor) -> float:
    """|got - want| / |want| over all entries (Euclidean norms, float64); inf where `got` holds nan."""
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    size = float(want.norm())
    error = float((got - want).norm()) / size if size > 0 else float(got.norm())
    return error if math.isfinite(error) else math.inf


def head_errors(got: Tensor, want: Tensor, typical: float) -> Tensor:
    """Relative error of each head, [n, heads, d] -> [heads].

    A head is measured against its own norm, or against that of a typical head where its own is smaller: a gradient that
    is zero by construction (one token attends to itself alone) does not turn rounding into an error.

    Args:
        typical: root mean square, over the whole batch, of the norm of one token's head.
    """
    got, want = got.detach().double().cpu(), want.detach().double().cpu()
    size = want.norm(dim=(0, 2)).clamp_min(typical * want.size(0) ** 0.5)
    error = (got - want).norm(dim=(0, 2)) / size.clamp_min(torch.finfo(torch.float64).tiny)
    return torch.where(torch.isfinite(error), error, torch.full_like(error, math.inf))


def typical_norm(tensor: Tensor) -> float:
    """Root mean square of the norm of one token's head; [T, heads, d]."""
    return float(tensor.detach().double().cpu().norm(dim=2).pow(2).mean().sqrt())


def _excess(case: Case) -> float:
    if not math.isfinite(case.error):
        return math.inf
    return case.error / case.tolerance if case.tolerance > 0 else case.error
