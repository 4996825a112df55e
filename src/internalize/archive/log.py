"""`state/`: the log of decisions as a table and as text, the environment, what lies on disk.

Invariant: this is all of the archive that may differ between two archives of one study; no receipt vouches for it. No
host name, user name or path of the machine gets in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from internalize import runlog
from internalize.archive.layout import LOG, Run
from internalize.archive.sources import is_checkpoint
from internalize.archive.tables import Table
from internalize.archive.text import markdown
from internalize.files import write_json, write_jsonl, write_text
from internalize.receipts import Receipt
from internalize.store import Store

LOG_TABLE = Table(
    "log",
    "one event of the workflow or its user: launched, computed, stopped, superseded, set aside",
    {
        **dict.fromkeys(("time", "event", "stage", "name", "key", "status", "why", "job"), "string"),
        "details": "json",
    },
    (LOG,),
)
PATH = re.compile(r"(?<![\w.])(?:~|/)[\w.@+-]+(?:/[\w.@+-]+)+")
SHOWN = ("launched", "stopped", "superseded", "set aside", "failed", "finished")


def write_state(folder: Path, store: Store, receipts: Mapping[str, Receipt]) -> int:
    """Writes `state/log.jsonl`, `log.md`, `environment.json`, `checkpoints_on_disk.json` and each run's `meminfo/`.

    Args:
        folder: the archive's root.
        store: whose log and run notes are read.
        receipts: the archive's inputs by label; events of other results are left out.

    Returns:
        Rows of the log.
    """
    names = {(receipt.stage, receipt.key[:16]) for receipt in receipts.values()}
    entries = {(receipt.stage, receipt.name) for receipt in receipts.values()}
    events = [one for one in runlog.events(store.root) if _concerns(one, names, entries)]
    rows = [log_row(one) for one in [*events, {"time": runlog.now(), "event": "archived"}]]
    count = LOG_TABLE.write(folder / LOG, rows)
    write_text(folder / "state/log.md", log_text(rows))
    runs = [store.run_info(receipt) for receipt in receipts.values()]
    versions = [run["versions"] for run in runs if run.get("versions")]
    pythons = sorted({run["python"] for run in runs if "python" in run})
    packages = {
        name: sorted({one.get(name, "absent") for one in versions}) for name in sorted({k for v in versions for k in v})
    }
    hours = sum(run.get("cpu_s", 0.0) for run in runs) / 3600
    write_json(
        folder / "state/environment.json",
        {"python": pythons, "packages": packages, "cpu_hours": round(hours, 4), "entries": len(runs)},
    )
    on_disk = [
        {"step": label.removeprefix("step."), "entry": receipt.entry, "present": present}
        for label, receipt in sorted(receipts.items())
        if label.startswith("step.") and (present := _present(store, receipt)) is not None
    ]
    write_json(folder / "state/checkpoints_on_disk.json", on_disk)
    _write_meminfo(folder, store, receipts)
    return count


def log_row(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event as a row of the table, with the paths of the machine blanked."""
    known = ("time", "event", "stage", "name", "key", "status", "why")
    job = event.get("slurm_job_id")
    rest = {key: value for key, value in event.items() if key not in known}
    row = {key: str(event[key]) for key in known if key in event}
    return {**{k: blank(v) for k, v in row.items()}, "job": job and str(job), "details": blank_all(rest)}


def log_text(rows: Iterable[Mapping[str, Any]]) -> str:
    """Markdown: every decision; what was computed is only counted, a run's stop told once."""
    rows = list(rows)
    head = ["time", "event", "what", "job", "why or details"]
    cells = []
    told: set[tuple[str, str]] = set()
    for row in rows:
        stopped = row["event"] == "computed" and row.get("status") == "stopped"
        stop = str(row.get("name")).rpartition("-step")[0], str(row.get("why"))
        if row["event"] in SHOWN or (stopped and stop not in told):  # the steps behind a stop only pass it on
            told |= {stop} if stopped else set()
            details = "; ".join(f"{key}: {value}" for key, value in (row["details"] or {}).items())
            why = row.get("why") or details
            cells.append(
                [row["time"], row["event"], str(row.get("name") or row.get("stage") or ""), row["job"] or "-", why]
            )
    counted = sum(row["event"] == "computed" for row in rows)
    text = f"# Log\n\n{len(rows)} events, of which {counted} results computed (`log.jsonl` has each).\n\n"
    return text + (markdown(head, cells) if cells else "No decision besides these was logged.\n")


def blank(text: str) -> str:
    """The text without absolute paths."""
    return PATH.sub("<path>", text)


def blank_all(value: Any) -> Any:
    """A JSON value without absolute paths."""
    if isinstance(value, dict):
        return {key: blank_all(one) for key, one in value.items()}
    if isinstance(value, list):
        return [blank_all(one) for one in value]
    return blank(value) if isinstance(value, str) else value


def _concerns(event: Mapping[str, Any], names: set[tuple[str, str]], entries: set[tuple[str, str]]) -> bool:
    if "key" not in event:
        return True
    return (event.get("stage"), str(event["key"])[:16]) in names or (event.get("stage"), event.get("name")) in entries


def _present(store: Store, receipt: Receipt) -> bool | None:
    files = [file for file in receipt.files if is_checkpoint(file.path)]
    return all((store.root / receipt.entry / file.path).is_file() for file in files) if files else None


def _write_meminfo(folder: Path, store: Store, receipts: Mapping[str, Receipt]) -> None:
    """`runs/<run>/meminfo/steps.jsonl`: memory and seconds of each step, from the run notes beside the receipts."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for label, receipt in sorted(receipts.items()):
        if label.startswith("step."):
            _, arm, seed, step = label.split(".")
            info = store.run_info(receipt)
            kept = {key: info.get(key) for key in ("peak_rss_mib", "cpu_s", "wall_s", "cpu_parts_s")}
            runs.setdefault(Run(arm, int(seed)).name, []).append({"step": int(step), **kept})
    for run, rows in runs.items():
        write_jsonl(folder / f"runs/{run}/meminfo/steps.jsonl", rows)
