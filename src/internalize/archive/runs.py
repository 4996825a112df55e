"""One run packed: its play, metrics, settings and W&B mirror, as a folder that the store keeps.

Invariant: the folder depends on the run's spec and the payloads of its receipts alone; no clock, host or path enters,
so two packs of one run are equal byte for byte, and a run whose receipts have not changed is not packed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from internalize.archive.episodes import Played, PlayWriter
from internalize.archive.layout import offline_run
from internalize.archive.sources import check_left, open_parts
from internalize.archive.tarzst import pack_tree
from internalize.archive.wandb_file import OfflineRun, logged, read_run, write_run
from internalize.files import read_json, read_jsonl, write_json, write_jsonl, write_text
from internalize.harness.episode import CALLS, EPISODES, JOURNAL
from internalize.receipts import Receipt
from internalize.store import WORK, Store

PRODUCER = "internalize"
RECORDS = (EPISODES, CALLS, JOURNAL)
EVALS = "eval_dumps/"
METRICS = "metrics.jsonl"
GUARD = "collapse_guard.json"
BASE_STEP = -1


def pack_spec(
    spec: Mapping[str, Any], run: str, kind: str, arm: str | None = None, seed: int | None = None
) -> dict[str, Any]:
    """What one run's pack depends on besides its receipts."""
    cut: dict[str, Any] = {
        "run": run,
        "kind": kind,
        "study": spec["name"],
        "level": spec["archive"]["level"],
        "eval_records": spec["archive"]["eval_records"],
    }
    if arm is not None:
        told = spec["arms"][arm]
        settings = {key: value for key, value in told["settings"].items() if key not in ("seeds", "status", "steps")}
        cut |= {"arm": arm, "seed": seed, "phases": told["phases"], "settings": settings}
    return cut


def pack_run(
    folder: Path, spec: Mapping[str, Any], receipts: Mapping[str, Receipt], store: Store, threads: int
) -> dict[str, Any]:
    """Packs a run into the empty `folder`; returns the facts of its receipt.

    Args:
        spec: `run`, `kind` (arm, harvest or base), `study`, `level`, `eval_records`; for an arm also `arm`, `seed`,
            `phases`, `settings`, `status`.
        receipts: `step.<N>`, `evals`, `gate` or `harvest`, by what the kind has.
        store: holds their payloads.
        threads: frames compressed at once.

    Raises:
        MissingPayload, CorruptPayload: a payload that is used is damaged.
    """
    payloads = {label: open_parts(store, receipt, _is_used) for label, receipt in receipts.items()}
    for receipt in receipts.values():
        check_left(store, receipt)
    groups = list(_groups(receipts, payloads))
    with PlayWriter(folder, spec["run"], int(spec["level"]), threads) as writer:
        for played in groups:
            below = EVALS if played.source in ("eval", "gate") else ""
            writer.add(played, below, records=not below or spec["eval_records"] == "all")
    rows = writer.rows()
    counts: dict[str, dict[str, int]] = {}
    for name, table in writer.tables.items():
        prefix = "eval_" if name.startswith(EVALS) else ""
        counts.setdefault(prefix + table.name, {})[name] = rows[name]
    metrics = list(_metrics(spec, receipts, payloads))
    if metrics:
        write_jsonl(folder / METRICS, metrics)
    _write_prompts(folder, groups)
    _write_settings(folder, spec, receipts, payloads)
    facts: dict[str, Any] = {"run": spec["run"], "kind": spec["kind"], "rows": counts}
    if metrics and spec["kind"] == "arm":  # what is logged has steps; the base has none
        facts |= _write_wandb(folder, spec, metrics)
    facts["steps_done"] = sum(
        label.startswith("step.") and receipt.status == "done" for label, receipt in receipts.items()
    )
    return facts | _stop(receipts)


def _is_used(path: str) -> bool:
    return path.rpartition("/")[2] in (*RECORDS, METRICS, GUARD, "gate.json")


def _groups(receipts: Mapping[str, Receipt], payloads: Mapping[str, Path]) -> Iterable[Played]:
    """The run's folders of play: rollouts in step order, then evals in step order."""
    for label, receipt in sorted(receipts.items()):
        payload = payloads[label]
        names = {file.path for file in receipt.files}
        if label.startswith("step.") and EPISODES in names:
            step = int(label.removeprefix("step."))
            yield Played(f"step{step:04d}", "rollout", step, str(receipt.facts["phase"]), payload, payload / WORK)
        elif label == "harvest":
            yield Played("harvest", "harvest", BASE_STEP, "base", payload, payload / WORK)
    for label, receipt in sorted(receipts.items()):
        folders = sorted(f.path.rpartition("/")[0] for f in receipt.files if f.path.endswith("/" + EPISODES))
        if label == "evals":
            phases = {int(row["step"]): str(row["phase"]) for row in read_jsonl(payloads[label] / METRICS)}
            payload = payloads[label]
            for name in folders:
                work = payload / WORK / name.rpartition("/")[2]
                word = name.rpartition("step-")[2]
                step = BASE_STEP if word == "base" else int(word)
                title = "eval-base" if step == BASE_STEP else f"eval-step{step:04d}"
                yield Played(title, "eval", step, phases.get(step, "base"), payload / name, work)
        elif label == "gate":
            for name in folders:
                payload = payloads[label]
                title = f"gate-{name.replace('/', '-')}"
                yield Played(title, "gate", BASE_STEP, "base", payload / name, payload / WORK / name)


def _metrics(
    spec: Mapping[str, Any], receipts: Mapping[str, Receipt], payloads: Mapping[str, Path]
) -> Iterable[dict[str, Any]]:
    """Every metrics row of the run, in step order, with its names in front."""
    head = {"run": spec["run"], "arm": spec.get("arm"), "seed": spec.get("seed")}
    found = []
    for label, receipt in receipts.items():
        if any(file.path == METRICS for file in receipt.files):
            found += [
                {**head, **{k: v for k, v in row.items() if k != "seed"}}
                for row in read_jsonl(payloads[label] / METRICS)
            ]
    order = ("rollout", "train", "guard", "perf", "eval", "probe")
    return sorted(
        found, key=lambda row: (row["step"], order.index(row["kind"]) if row["kind"] in order else 9, row["kind"])
    )


def _write_prompts(folder: Path, groups: Iterable[Played]) -> None:
    """`play_train.jsonl`, `play_eval.jsonl`: the levels that were asked for, one row an episode's start."""
    asked: dict[str, list[dict[str, Any]]] = {"play_train.jsonl": [], "play_eval.jsonl": []}
    for played in groups:
        rows = asked["play_eval.jsonl" if played.source in ("eval", "gate") else "play_train.jsonl"]
        for row in read_jsonl(played.folder / EPISODES):
            rows.append({"source": played.source, "step": played.step, **row["plan"]})
    for name, rows in asked.items():
        if rows:
            write_jsonl(folder / name, rows)


def _write_settings(
    folder: Path, spec: Mapping[str, Any], receipts: Mapping[str, Receipt], payloads: Mapping[str, Path]
) -> None:
    """`settings.json`, `eval.yaml` and, for an arm, `eval_dumps/collapse_guard.json`."""
    steps: list[dict[str, Any]] = [
        {
            "step": int(label.removeprefix("step.")),
            "receipt": receipt.hash(),
            "entry": receipt.entry,
            "spec": receipt.spec,
        }
        for label, receipt in sorted(receipts.items())
        if label.startswith("step.")
    ]
    told = {key: value for key, value in spec.items() if key not in ("level", "eval_records")}
    write_json(folder / "settings.json", {**told, "steps": steps})
    if "evals" in receipts:
        write_text(folder / "eval.yaml", yaml.safe_dump(receipts["evals"].spec, sort_keys=True))
    if steps:
        record = {"stopped": False, "thresholds": steps[0]["spec"].get("guard"), **_stop(receipts)}
        for label, receipt in receipts.items():
            if any(file.path == GUARD for file in receipt.files):
                record |= {"stopped": True, "record": read_json(payloads[label] / GUARD)}
        write_json(folder / EVALS / GUARD, record)


def _write_wandb(folder: Path, spec: Mapping[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """The W&B mirror (`wandb_offline.tar.zst`) and what reading it back gives (`wandb_export/`)."""
    name, digest = offline_run(str(spec["study"]), str(spec["run"]))
    history = logged(metrics)
    config = {key: spec[key] for key in ("study", "run", "kind", "arm", "seed", "phases", "settings") if key in spec}
    run = OfflineRun(
        digest, str(spec["study"]), str(spec["run"]), str(spec.get("arm") or spec["kind"]), "train", config, history
    )
    run.summary = {key: value for row in history for key, value in row.items()}
    root = folder / "wandb.partial"
    file = root / name / f"run-{digest}.wandb"
    (root / name / "files").mkdir(parents=True)
    write_run(file, run, PRODUCER)
    write_json(root / name / "files" / "wandb-summary.json", run.summary)
    write_text(root / name / "files" / "config.yaml", yaml.safe_dump({k: {"value": v} for k, v in config.items()}))
    export(read_run(file), folder / "wandb_export" / name)
    pack_tree(root, folder / "wandb_offline.tar.zst", int(spec["level"]))
    for path in sorted(root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    root.rmdir()
    return {"wandb": name, "steps_logged": len(history)}


def export(run: OfflineRun, folder: Path) -> None:
    """An offline run as JSON: `history.jsonl` (one row a logged step), `config.json`, `summary.json`, `run.json`."""
    write_jsonl(folder / "history.jsonl", run.history)
    write_json(folder / "config.json", run.config)
    write_json(folder / "summary.json", run.summary)
    about = {"id": run.id, "project": run.project, "name": run.name, "group": run.group, "job_type": run.job_type}
    write_json(folder / "run.json", {**about, "exit_code": run.exit_code, "rows": len(run.history)})


def _stop(receipts: Mapping[str, Receipt]) -> dict[str, Any]:
    for _, receipt in sorted(receipts.items()):
        if receipt.status == "stopped":
            return {
                key: receipt.facts[key] for key in ("stopped_at", "reasons", "last_good_step") if key in receipt.facts
            }
    return {}
