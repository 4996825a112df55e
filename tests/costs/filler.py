"""Stores filled as a run would fill them, without training anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.arms.segment import step_parents
from internalize.arms.settings import step_settings
from internalize.costs.jobs import Job, jobs_of
from internalize.inputs import input_name
from internalize.receipts import Receipt, write_receipt
from internalize.stages import parent_hashes
from internalize.store import Store
from internalize.workflow import Plan

STEP_SECONDS, STAGE_SECONDS, STEP_BYTES = 2.0, 10.0, 1000


class Filler:
    """Commits what the jobs of a plan would commit: small payloads, stated times."""

    def __init__(self, plan: Plan, store: Store) -> None:
        self.plan, self.store = plan, store
        self.receipts: dict[str, Receipt] = {}
        self.steps: dict[tuple[str, int, int], Receipt] = {}

    def fill(self, wanted: Callable[[Job, int], bool] = lambda job, step: True) -> None:
        """Every job (step -1) and step that is wanted, with its receipt in `results`."""
        for job in jobs_of(self.plan):
            if job.rule in ("graphs", "page", "report") or not all(path in self.receipts for path in job.inputs):
                continue
            named = {input_name(path): self.receipts[path] for path in job.inputs}
            if job.rule == "segment":
                self._segment(job, named, wanted)
            elif wanted(job, -1):
                self._stage(job, named)

    def _segment(self, job: Job, named: dict[str, Receipt], wanted: Callable[[Job, int], bool]) -> None:
        run = str(job.arm), int(job.seed or 0)
        previous = named.pop("step", None)
        for step in range(job.spec["first"], job.spec["last"] + 1):
            if not wanted(job, step):
                return
            settings = step_settings(job.spec, step)
            parents = parent_hashes(step_parents(settings, named, previous))
            run_info: dict[str, Any] = {"wall_s": STEP_SECONDS, "cpu_parts_s": {"train": 1.0}}
            facts = {"phase": settings.phase, "at": f"{settings.spec}"}
            previous = self._commit("step", settings.spec, parents, facts, run_info, b"x" * STEP_BYTES, job)
            self.steps[(*run, step)] = previous
            write_receipt(Path(job.output).with_name(f"step{step:04d}.json"), previous)
        assert previous is not None
        self.receipts[job.output] = previous

    def _stage(self, job: Job, named: dict[str, Receipt]) -> None:
        known = {name.partition(".")[0] if job.rule == "rows" else name: one for name, one in named.items()}
        known.pop("step", None)
        if job.rule == "evals":
            run = str(job.arm), int(job.seed or 0)
            known |= {f"step{step:04d}": self.steps[(*run, step)] for step in job.spec["steps"]}
        info = {"wall_s": STAGE_SECONDS, "cpu_parts_s": {"startup": 1.0}}
        receipt = self._commit(job.stage, job.spec, parent_hashes(known), {"of": job.output}, info, b"y", job)
        self.receipts[job.output] = receipt
        write_receipt(Path(job.output), receipt)

    def _commit(
        self,
        stage: str,
        spec: dict[str, Any],
        parents: dict[str, str],
        facts: dict[str, Any],
        run: dict[str, Any],
        payload: bytes,
        job: Job,
    ) -> Receipt:
        code = self.plan.code("segment" if stage == "step" else stage)
        key = self.store.key(stage, spec, code, parents)
        partial = self.store.partial(stage, key)
        (partial / "payload").write_bytes(payload)
        return self.store.commit(
            partial,
            stage=stage,
            name=job.rule,
            key=key,
            spec=spec,
            code=code,
            parents=parents,
            facts=facts,
            status="done",
            run=run,
        )
