"""The price of a plan: what each job and step costs, and the sums by stage, by arm and along the longest chain.

Invariant: every figure says where it comes from (`measured` on this very entry, `mean` of entries of its kind,
`model`), a step that two arms share is paid once, and what the store holds costs nothing more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize.arms.settings import step_settings
from internalize.budget import spent_node_hours, stored_bytes
from internalize.costs.found import BY_RECEIPT, Found, find_done
from internalize.costs.jobs import Job, jobs_of
from internalize.costs.measured import Measured, Reading, measure, read_entry
from internalize.costs.model import HOUR, CostModel
from internalize.costs.retention import kept
from internalize.costs.terms import model_of, nodes_of
from internalize.files import digest
from internalize.store import Store
from internalize.study_base import HubBase
from internalize.study_cost import Cost
from internalize.workflow import Plan

FOR_ALL = frozenset({"report", "archive", "graphs", "page", "evals_base", "gate", "numerics"})
"""Rules that run whichever arms are chosen."""
MEASURED, MEAN, MODEL = "measured", "mean", "model"


@dataclass(frozen=True)
class Part:
    """A step of an arm, or a whole job of another stage."""

    identity: str
    """Equal for parts that share one store entry."""
    seconds: float
    size: int
    files: int
    source: str
    done: bool
    phase: str = ""
    step: int = -1


@dataclass(frozen=True)
class Priced:
    """A job with its price."""

    job: Job
    nodes: float
    gpus: float
    start: float
    """Seconds of start-up, paid when a part is left to do."""
    queue: float
    parts: tuple[Part, ...]

    @property
    def left(self) -> list[Part]:
        """Parts that the store does not hold."""
        return [part for part in self.parts if not part.done]

    def wall(self) -> float:
        """Seconds from submission to the end of what is left to do."""
        left = self.left
        return self.queue + self.start + sum(part.seconds for part in left) if left else 0.0


@dataclass(frozen=True)
class Sum:
    """Totals of some jobs."""

    jobs: int = 0
    jobs_left: int = 0
    node_hours: float = 0.0
    """Of what is left to do; a shared step is paid once."""
    gpu_hours: float = 0.0
    done_node_hours: float = 0.0
    """Of what is done."""
    wall_s: float = 0.0
    """Along the longest chain of these jobs alone."""
    peak_bytes: int = 0
    """Payload bytes, done and to come, before retention."""
    kept_bytes: int = 0
    """The same after retention."""
    files: int = 0
    sources: tuple[str, ...] = ()
    """Where the figures of what is left to do come from; what is done has been measured."""

    def plain(self) -> dict[str, Any]:
        """As JSON values, rounded to what an estimate can say."""
        return {
            "jobs": self.jobs,
            "jobs_left": self.jobs_left,
            "node_hours": round(self.node_hours, 4),
            "gpu_hours": round(self.gpu_hours, 4),
            "done_node_hours": round(self.done_node_hours, 4),
            "wall_s": round(self.wall_s, 1),
            "peak_bytes": self.peak_bytes,
            "kept_bytes": self.kept_bytes,
            "files": self.files,
            "sources": list(self.sources),
        }


@dataclass(frozen=True)
class Estimate:
    """A plan with its prices."""

    study: str
    model: CostModel
    priced: list[Priced]
    found: Found
    keep: Any
    """The study's `retention`, or None."""
    published: dict[tuple[str, int], list[int]]
    """Steps of each arm and seed that become model folders."""
    spent: float
    """Node-hours that the study has used so far, failed jobs included."""
    stored: int
    """Bytes in the store now."""
    laptop: bool = False
    """True: the base comes from the hub, but the cost model is the default one, a laptop's."""

    def jobs(self, arms: Collection[str] | None = None) -> list[Priced]:
        """All jobs, or those that some arms need."""
        if arms is None:
            return self.priced
        needed: set[str] = set()
        for one in reversed(self.priced):
            job = one.job
            wanted = job.arm in arms if job.arm else job.rule in FOR_ALL
            if job.output in needed or wanted:
                needed.add(job.output)
                needed |= {path for path in job.inputs if job.rule not in ("report", "archive")}
        return [one for one in self.priced if one.job.output in needed]

    def total(self, jobs: Iterable[Priced] | None = None) -> Sum:
        """What some jobs (all of them, unless given) add up to."""
        chosen = self.priced if jobs is None else list(jobs)
        hours = gpus = done = 0.0
        left = 0
        seen: dict[str, Part] = {}
        for one in chosen:
            fresh = [part for part in one.parts if part.identity not in seen]
            seen |= {part.identity: part for part in fresh}
            to_do = [part for part in fresh if not part.done]
            seconds = sum(part.seconds for part in to_do) + (one.start if to_do else 0.0)
            hours += seconds * one.nodes / HOUR
            gpus += seconds * one.gpus / HOUR
            done += sum(part.seconds for part in fresh if part.done) * one.nodes / HOUR
            left += bool(one.left)
        return Sum(
            jobs=len(chosen),
            jobs_left=left,
            node_hours=hours,
            gpu_hours=gpus,
            done_node_hours=done,
            wall_s=critical_path(chosen),
            peak_bytes=sum(part.size for part in seen.values()),
            kept_bytes=self._kept(chosen),
            files=sum(part.files for part in seen.values()),
            sources=tuple(sorted({part.source for part in seen.values() if not part.done} or {MEASURED})),
        )

    def by_stage(self) -> dict[str, Sum]:
        """Totals by stage, in the order of the DAG."""
        stages = dict.fromkeys(one.job.stage for one in self.priced)
        return {stage: self.total(one for one in self.priced if one.job.stage == stage) for stage in stages}

    def by_arm(self) -> dict[str, Sum]:
        """Totals by arm: its own segments and evals."""
        arms = dict.fromkeys(one.job.arm for one in self.priced if one.job.arm)
        return {str(arm): self.total(one for one in self.priced if one.job.arm == arm) for arm in arms}

    def _kept(self, chosen: Iterable[Priced]) -> int:
        runs: dict[tuple[str, int], list[Part]] = {}
        sizes: dict[str, int] = {}
        for one in chosen:
            sizes |= {part.identity: part.size for part in one.parts}
            if one.job.stage == "segment":
                runs.setdefault((str(one.job.arm), int(one.job.seed or 0)), []).extend(one.parts)
        stays = {
            part.identity
            for run, parts in runs.items()
            for steps in [kept([part.step for part in parts], self.keep, self.published.get(run, ()))]
            for part in parts
            if part.step in steps
        }
        steps_of_all = {part.identity for parts in runs.values() for part in parts}
        return sum(sizes.values()) - self.model.checkpoint_bytes() * len(steps_of_all - stays)


def critical_path(jobs: Iterable[Priced]) -> float:
    """Wall seconds of the longest chain of jobs that read each other's receipts, however many run side by side."""
    ends: dict[str, float] = {}
    for one in jobs:
        ends[one.job.output] = max((ends.get(path, 0.0) for path in one.job.inputs), default=0.0) + one.wall()
    return max(ends.values(), default=0.0)


def estimate(plan: Plan, store: Store | None = None) -> Estimate:
    """Prices every job of the plan.

    Raises:
        UserError: the shipped base is not there.
    """
    store = store or Store(Path("store"))
    model = model_of(plan.study, plan.repository)
    jobs = jobs_of(plan)
    found = find_done(jobs, plan, store)
    measured = measure(store)
    base = found.jobs.get("results/receipts/base.json")
    pricer = _Pricer(plan, store, model, found, measured, base.hash() if base else None)
    priced = list(pricer.price(jobs))
    return Estimate(
        plan.study.name,
        model,
        priced,
        found,
        plan.study.retention,
        plan.published(),
        spent_node_hours(store, plan.study.name),
        stored_bytes(store),
        isinstance(plan.study.base, HubBase) and plan.study.cost == Cost(),
    )


@dataclass
class _Pricer:
    plan: Plan
    store: Store
    model: CostModel
    found: Found
    measured: Measured
    base: str | None

    def price(self, jobs: Iterable[Job]) -> Iterator[Priced]:
        before: dict[str, str] = {}
        undone: set[str] = set()
        for job in jobs:
            parts = self._steps(job, before) if job.stage == "segment" else (self._whole(job, undone),)
            if any(not part.done for part in parts):
                undone.add(job.output)
            yield self._priced(job, parts)

    def _priced(self, job: Job, parts: tuple[Part, ...]) -> Priced:
        cost = self.plan.study.cost
        nodes, start = self.model.nodes(job.stage), 0.0
        if job.stage == "segment":
            nodes = nodes_of(self.plan.arms[str(job.arm)], self.plan.study)
            start = self.measured.start_seconds() or cost.start_s
        plays = job.stage in ("segment", "gate", "harvest", "evals")
        return Priced(job, nodes, nodes * cost.gpus_per_node if plays else 0.0, start, cost.queue_s, parts)

    def _steps(self, job: Job, before: dict[str, str]) -> tuple[Part, ...]:
        """The steps of a segment; `before` holds, by receipt, what identifies the last step of the segments so far."""
        run = str(job.arm), int(job.seed or 0)
        identity = next((before[path] for path in job.inputs if path in before), None)
        ranks = self.plan.arms[run[0]].parallel.ranks
        parts = []
        for step in range(int(job.spec["first"]), int(job.spec["last"]) + 1):
            settings = step_settings(job.spec, step)
            identity = digest([identity, settings.spec])
            receipt = self.found.steps.get((*run, step))
            exact = read_entry(self.store, receipt) if receipt is not None else None
            mean = self.measured.mean("step", settings.spec, self.base)
            reading, source = _best(exact, mean)
            if reading is None:
                size, files = self.model.step_bytes(), self.model.step_files(ranks)
                reading = Reading(self.model.step_seconds(settings.spec), size, files, False)
            parts.append(
                Part(
                    identity,
                    reading.seconds,
                    reading.size,
                    reading.files,
                    source,
                    receipt is not None,
                    settings.phase,
                    step,
                )
            )
        before[job.output] = str(identity)
        return tuple(parts)

    def _whole(self, job: Job, undone: set[str]) -> Part:
        receipt = self.found.jobs.get(job.output)
        stands = job.rule in BY_RECEIPT and Path(job.output).exists() and not undone & set(job.inputs)
        done = receipt is not None or stands
        exact = read_entry(self.store, receipt) if receipt is not None else None
        reading, source = _best(exact, self.measured.mean(job.stage, job.spec, self.base))
        if reading is None:
            size = self.model.stage_bytes(job.stage)
            reading = Reading(self.model.stage_seconds(job.stage, job.spec), size, 0, False)
        return Part(job.output, reading.seconds, reading.size, reading.files, source, done)


def _best(exact: Reading | None, mean: Reading | None) -> tuple[Reading | None, str]:
    if exact is not None and not (exact.starts and mean is not None):
        return exact, MEASURED
    if exact is not None and mean is not None:  # its seconds hold a start-up that the job pays apart
        return Reading(mean.seconds, exact.size, exact.files, False), MEASURED
    return mean, MEAN if mean is not None else MODEL
