"""The jobs of a plan as data: what Snakemake would schedule, without Snakemake.

Invariant: jobs stand behind the jobs whose receipts they read, and rules, outputs and specs are those that the
Snakefile asks the same `Plan` for (a test holds the list against `snakemake --dry-run`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

from internalize.inputs import RECEIPTS, segment_path
from internalize.study_arms import Arm
from internalize.workflow import PAGE, PICTURES, Plan, flat

STAGE_OF_RULE = {"evals_base": "evals"}
"""Rules that run another stage than the one of their name."""


@dataclass(frozen=True)
class Job:
    """One job: its rule and wildcards, the receipt it writes, those it reads, and its spec."""

    rule: str
    wildcards: dict[str, str]
    output: str
    inputs: tuple[str, ...]
    spec: dict[str, Any]
    stage: str
    """Stage that the rule runs; `segment` for steps of an arm."""

    @property
    def arm(self) -> str | None:
        """The arm that the job belongs to, if it is one arm's."""
        return self.wildcards.get("arm")

    @property
    def seed(self) -> int | None:
        """The seed that the job belongs to, if it is one seed's."""
        return int(self.wildcards["seed"]) if "seed" in self.wildcards else None

    @property
    def label(self) -> str:
        """A short name: `segment arm_c seed 0, steps 0-14`."""
        rest = dict(self.wildcards)
        steps = f", steps {int(rest.pop('first'))}-{int(rest.pop('last'))}" if "first" in rest else ""
        words = [f"{key} {int(value)}" if key in ("seed", "step") else value for key, value in rest.items()]
        return " ".join([self.rule, *words]) + steps


def jobs_of(plan: Plan) -> list[Job]:
    """Every job of the plan but `all`, in an order in which they can run."""
    return list(_jobs(plan))


def _jobs(plan: Plan) -> Iterator[Job]:
    shared = (f"{RECEIPTS}/base.json", f"{RECEIPTS}/knowledge.json")
    game = plan.game_receipt()
    for path in game:
        yield _job(plan, "fetch_game", path, ())
    yield _job(plan, "knowledge", f"{RECEIPTS}/knowledge.json", game)
    yield replace(_job(plan, "base", f"{RECEIPTS}/base.json", ()), stage=plan.base_stage)
    yield _job(plan, "gate", f"{RECEIPTS}/gate.json", shared)
    if gates := plan.numerics():
        yield _job(plan, "numerics", gates[0], (f"{RECEIPTS}/base.json",))
    for name in plan.harvests():
        yield _job(plan, "harvest", f"{RECEIPTS}/harvest/{name}.json", shared, harvest=name)
    for name in plan.row_sets():
        read = plan.rows_inputs(SimpleNamespace(rows=name))
        yield _job(plan, "rows", f"{RECEIPTS}/rows/{name}.json", flat(read), rows=name)
    runs = [(arm, seed) for arm in _in_order(plan) for seed in plan.seeds_to_run(arm)]
    for arm, seed in runs:
        for first, last in plan.segments_to_run(arm, seed):
            words = {"arm": arm.name, "seed": str(seed), "first": f"{first:04d}", "last": f"{last:04d}"}
            read = plan.segment_inputs(SimpleNamespace(**words))
            yield _job(plan, "segment", segment_path(arm.name, seed, first, last), flat(read), **words)
    yield _job(plan, "evals_base", f"{RECEIPTS}/evals/base.json", shared)
    for arm, seed in runs:
        words = {"arm": arm.name, "seed": str(seed)}
        read = plan.evals_inputs(SimpleNamespace(**words))
        yield _job(plan, "evals", f"{RECEIPTS}/evals/{arm.name}/seed{seed}.json", flat(read), **words)
    yield _job(plan, "report", f"{RECEIPTS}/report.json", flat(plan.report_inputs(None)))
    for path in plan.conversions():
        *_, run, seed_name, step = path.removesuffix(".json").split("/")
        words = {"arm": run, "seed": seed_name.removeprefix("seed"), "step": step.removeprefix("step")}
        yield _job(plan, "convert", path, flat(plan.convert_inputs(SimpleNamespace(**words))), **words)
    yield _job(plan, "archive", f"{RECEIPTS}/archive.json", flat(plan.archive_inputs(None)))
    yield _job(plan, "page", PAGE, (f"{RECEIPTS}/report.json", f"{RECEIPTS}/archive.json"))
    yield _job(plan, "graphs", PICTURES[0], ())


def _in_order(plan: Plan) -> list[Arm]:
    """The arms, each behind the one that it continues."""
    ordered: dict[str, Arm] = {}

    def put(arm: Arm) -> None:
        if arm.continues in plan.arms:
            put(plan.arms[arm.continues])
        ordered.setdefault(arm.name, arm)

    for arm in plan.arms.values():
        put(arm)
    return list(ordered.values())


def _job(plan: Plan, rule: str, output: str, inputs: Sequence[str], **wildcards: str) -> Job:
    spec = json.loads(plan.spec(rule)(SimpleNamespace(**wildcards)))
    return Job(rule, wildcards, output, tuple(inputs), spec, STAGE_OF_RULE.get(rule, rule))
