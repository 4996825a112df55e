"""What a rerun would do and cost.

Invariant: the jobs are those that Snakemake's dry run lists for the same targets, and looking changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from internalize.control.drive import Driver, Listed
from internalize.control.selection import Selection
from internalize.costs.estimate import Estimate, Part, Priced, estimate
from internalize.store import Store
from internalize.workflow import Plan


@dataclass(frozen=True)
class Line:
    """A job of the dry run with what it will compute."""

    job: Listed
    label: str
    parts: tuple[Part, ...]
    """What is really computed; empty when the store has it all."""
    node_hours: float
    seconds: float


@dataclass(frozen=True)
class Preview:
    """What a rerun would do."""

    lines: list[Line]
    aside: int
    """Bytes that are set aside meanwhile."""

    @property
    def node_hours(self) -> float:
        """Of all lines."""
        return sum(line.node_hours for line in self.lines)


def preview(chosen: Selection, plan: Plan, driver: Driver, store: Store) -> Preview:
    """What `perform` would run and what it would cost; changes nothing."""
    listed = driver.dry_run(chosen.targets, chosen.outputs)
    priced = without(estimate(plan, store), chosen)
    by_output = {one.job.output: one for one in priced.priced}
    lines = [_line(job, by_output.get(job.output), priced, chosen) for job in listed]
    return Preview(lines, sum(receipt.payload_bytes() for receipt in chosen.entries.values()))


def without(priced: Estimate, chosen: Selection) -> Estimate:
    """The estimate as if the store did not hold the selection."""
    gone = set(chosen.entries)
    steps = {step for step, receipt in priced.found.steps.items() if receipt.entry in gone}
    again = []
    for one in priced.priced:
        parts = tuple(
            replace(p, done=False)
            if (str(one.job.arm), int(one.job.seed or 0), p.step) in steps
            or (one.job.stage != "segment" and one.job.output in chosen.outputs)
            else p
            for p in one.parts
        )
        again.append(replace(one, parts=parts))
    return replace(priced, priced=again)


def _line(job: Listed, one: Priced | None, priced: Estimate, chosen: Selection) -> Line:
    if one is None:  # a single step, or a rule that the cost model does not know
        steps = _single(job, priced, chosen)
        if steps is None:
            words = " ".join([job.rule, *job.wildcards.values()])
            return Line(job, f"{words} (no price)", (), 0.0, 0.0)
        one = steps
    left = tuple(one.left)
    seconds = one.start + sum(part.seconds for part in left) if left else 0.0
    return Line(job, one.job.label, left, seconds * one.nodes / 3600, seconds)


def _single(job: Listed, priced: Estimate, chosen: Selection) -> Priced | None:
    """The price of one step, cut out of the segment that it belongs to."""
    if job.rule != "segment":
        return None
    arm, seed = job.wildcards["arm"], int(job.wildcards["seed"])
    first, last = int(job.wildcards["first"]), int(job.wildcards["last"])
    for one in priced.priced:
        if one.job.stage == "segment" and (one.job.arm, one.job.seed) == (arm, seed):
            parts = tuple(part for part in one.parts if first <= part.step <= last)
            if parts:
                cut = replace(one.job, wildcards=dict(job.wildcards), output=job.output)
                return replace(one, job=cut, parts=parts)
    return None
