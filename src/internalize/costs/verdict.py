"""Whether a plan fits its budget, and if not, which arms do.

Invariant: arms are taken in the order of the study file, each with everything that it needs and that no earlier one has
paid for; what the study has used already counts first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from internalize.costs.estimate import Estimate, Sum, estimate
from internalize.costs.model import TB
from internalize.errors import UserError
from internalize.workflow import Plan


class OverBudget(UserError):
    """The plan costs more than the study's budget."""

    title = "over budget"


@dataclass(frozen=True)
class Verdict:
    """A plan held against its budget."""

    limits: dict[str, float]
    needs: dict[str, float]
    """What the plan uses in all by its end: node-hours with those already used, TB with those already stored."""
    fits: list[str]
    """Arms that fit, in the order of the study file."""
    misses: dict[str, dict[str, float]]
    """Arm that does not fit -> what is needed with it, by limit that it breaks."""

    @property
    def ok(self) -> bool:
        """Does the whole plan fit?"""
        return all(self.needs[name] <= limit for name, limit in self.limits.items())

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "limits": self.limits,
            "needs": {name: round(value, 4) for name, value in self.needs.items()},
            "fits": self.fits,
            "misses": {arm: {k: round(v, 4) for k, v in broken.items()} for arm, broken in self.misses.items()},
            "ok": self.ok,
        }


def judge(plan: Plan, priced: Estimate) -> Verdict:
    """Holds the estimate against `study.budget` (no budget: everything fits)."""
    limits = plan.study.budget.limits() if plan.study.budget is not None else {}
    whole = needs(priced, priced.total())
    if all(whole[name] <= limit for name, limit in limits.items()):
        return Verdict(limits, whole, list(plan.arms), {})
    fits: list[str] = []
    misses: dict[str, dict[str, float]] = {}
    for arm in plan.arms:
        with_it = needs(priced, priced.total(priced.jobs([*fits, arm])))
        broken = {name: with_it[name] for name, limit in limits.items() if with_it[name] > limit}
        if broken:
            misses[arm] = broken
        else:
            fits.append(arm)
    return Verdict(limits, whole, fits, misses)


def needs(priced: Estimate, total: Sum) -> dict[str, float]:
    """Node-hours and TB in use once the jobs of `total` are done."""
    done = priced.total()
    old = max(priced.stored - (done.peak_bytes - _to_come(priced, done)), 0)  # payloads of other plans
    return {"node_hours": priced.spent + total.node_hours, "disk_tb": (old + total.peak_bytes) / TB}


def refuse(plan: Plan, priced: Estimate) -> None:
    """Stops a run that would not fit, unless the study lets its arms run until the budget is used up.

    Raises:
        OverBudget: it names what is needed and which arms fit.
    """
    verdict = judge(plan, priced)
    if verdict.ok or plan.study.budget is None or plan.study.budget.exceeded == "stop":
        return
    raise over_budget(verdict)


def check_budget(plan: Plan) -> None:
    """Before the first job: does what is left to do fit the budget? See `refuse`."""
    if plan.study.budget is not None:
        refuse(plan, estimate(plan))


def over_budget(verdict: Verdict) -> OverBudget:
    """The refusal in words."""
    units = {"node_hours": "node-hours", "disk_tb": "TB"}
    broken = {name: limit for name, limit in verdict.limits.items() if verdict.needs[name] > limit}
    arms = " ".join(verdict.fits)
    fix = f'--config arms="{arms}" fits; or raise the budget' if arms else "no arm fits: raise the budget"
    return OverBudget(
        "the plan does not fit the budget, nothing was started",
        where="budget",
        expected=", ".join(f"at most {limit:g} {units[name]}" for name, limit in broken.items()),
        got=", ".join(f"{verdict.needs[name]:.4g} {units[name]}" for name in broken),
        fix=f"{fix}, or `budget.exceeded: stop` runs each arm as far as the budget goes",
    )


def _to_come(priced: Estimate, total: Sum) -> int:
    """Bytes of what is left to do."""
    seen = {part.identity: part for one in priced.priced for part in one.parts}
    return sum(part.size for part in seen.values() if not part.done)
