"""Runs the study that the commands of the documentation are tried on: python prepare.py CHECKOUT.

Its name, arms and rows are those of the bundled study, its sizes those of a test. Every job of two arms runs in this
one process, because importing torch once costs less than running any of them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from internalize.archive.job import run_archive
from internalize.arms.segment import run_segment
from internalize.costs.jobs import Job, jobs_of
from internalize.files import write_text
from internalize.inputs import input_name, named_inputs
from internalize.receipts import Receipt, ancestors, read_receipt
from internalize.report.page import write_page
from internalize.report.publish import publish
from internalize.report.results import read_results
from internalize.stages import run_stage
from internalize.store import Store
from internalize.threads import one_thread
from internalize.workflow import PICTURES, Plan

ARMS = "none recite"
SMALL: dict[str, Any] = {
    "seeds": [0],
    "rollout": {"episodes": 4, "group_size": 4, "levels": [1], "temperature": 1.0, "max_new_tokens": 32},
    "evals": {"episodes": 4, "every": 9, "seed": 1000, "levels": [1]},
}
"""Keys of the study that are replaced as a whole."""


def small(study: dict[str, Any]) -> dict[str, Any]:
    """The bundled study at the smallest size; its arms keep their names, rows and schedules."""
    made = {key: value for key, value in study.items() if key != "numerics"} | SMALL
    made["knowledge"] = study["knowledge"] | {"trials": 12, "exploration": {"episodes": 40}}
    bounds = {"teacher_clears_min": 0.5, "base_clears_max": 0.5, "wrong_rules_clears_max": 0.5, "episodes": 16}
    made["base"] = {"prebuilt": "prebuilt/dipwheel", "gate": bounds}
    made["harvests"] = {name: one | {"episodes": 8} for name, one in study["harvests"].items()}
    made["rl"] = study["rl"] | {"optimizer_steps": 1}
    made["sft"] = study["sft"] | {"optimizer_steps": 1, "batch_turns": 4}
    made["arms"] = {name: {k: v for k, v in arm.items() if k != "sft"} for name, arm in study["arms"].items()}
    made["arms"]["none"]["steps"] = 3
    made["arms"]["recite"]["steps"] = 9
    return made


def main(checkout: Path) -> None:
    """Runs both arms in `checkout`, with its report and archive."""
    os.chdir(checkout)
    one_thread()
    plan, store = Plan.from_config({"arms": ARMS}, Path()), Store(Path("store"))
    made: dict[str, Receipt] = {}
    for job in jobs_of(plan):
        if job.rule == "graphs":  # they are drawn in tests/report
            for path in PICTURES:
                write_text(Path(path), "<svg xmlns='http://www.w3.org/2000/svg'/>")
        else:
            _run(plan, store, job, made)


def _run(plan: Plan, store: Store, job: Job, made: dict[str, Receipt]) -> None:
    output, code = Path(job.output), plan.code(job.stage)
    if job.rule == "segment":
        run_segment(job.spec, code, _inputs(job), output, store, print)
    elif job.rule == "page":
        write_page(read_results(Path("results"), store.root), output, False, print)
    elif job.rule == "archive":
        run_archive(job.spec, code, _inputs(job), output, Path("results/archive"), store, print, 1)
    else:
        receipt = run_stage(job.stage, job.spec, code, _inputs(job), output, store, print)
        if job.rule == "report":
            known = {one.hash(): one for one in map(read_receipt, Path("results/receipts").rglob("*.json"))}
            publish(store, ancestors(receipt, known), receipt, Path("results"))


def _inputs(job: Job) -> dict[str, Path]:
    """The words of the job's rule as inputs."""
    words = []
    for path in job.inputs:
        kind = Path(path).relative_to("results/receipts").parts[0]
        if kind == "arms":
            words.append(f"{'step*' if job.rule == 'evals' else 'step.*'}={path}")
        elif job.rule == "rows" and kind in ("rows", "harvest"):
            words.append(f"{'of' if kind == 'rows' else kind}={path}")
        else:
            words.append(f"{input_name(path)}={path}")
    return named_inputs(words)


if __name__ == "__main__":
    source = Path(sys.argv[1]) / "config" / "bundled.yaml"
    source.write_text(yaml.safe_dump(small(yaml.safe_load(source.read_text())), sort_keys=False))
    main(Path(sys.argv[1]))
