"""Summary tables from this archive's own metrics, and the way back from a table cell to its episodes.

    python3 tables.py                    the summary table, from metrics/*.jsonl
    python3 tables.py check              is it what metrics/summary.csv says?
    python3 tables.py trace ARM COLUMN   the metrics rows and episodes behind a cell, recomputed from the episodes

Needs Python 3.9 or newer and nothing else. A cell is a mean (or a count) over the valid episodes of all seeds of an
arm; an arm without SFT starts from the base, which is measured once and counts once.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

Row = dict[str, Any]
Key = tuple[str, int]
ROOT = Path(__file__).resolve().parent
COLUMNS = tuple(
    f"{policy}_{what}"
    for policy in ("sft_only_rollout", "sft_only_eval", "final_eval")
    for what in ("return", "clears", "episodes")
)
PLAYING = ("rl", "joint")


def rows(path: str) -> list[Row]:
    """The rows of a JSON lines file below the archive's root."""
    with (ROOT / path).open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def metrics(kind: str) -> dict[Key, Row]:
    """Run and step -> metrics row of a kind."""
    path = f"metrics/{kind}.jsonl"
    return {(row["run"], row["step"]): row for row in rows(path)} if (ROOT / path).exists() else {}


def arms() -> dict[str, list[Row]]:
    """Arm -> its runs, in the registry's order."""
    found: dict[str, list[Row]] = {}
    for run in rows("registry.jsonl"):
        if run["kind"] == "arm" and run["status"] != "prepared":
            found.setdefault(run["arm"], []).append(run)
    return found


def measured(run: Row, policy: str, evals: dict[Key, Row], rollouts: dict[Key, Row]) -> Key | None:
    """The (run, step) at which a policy of a run was measured; None where it was not."""
    first = next((step for step, phase in enumerate(run["phases"]) if phase in PLAYING), None)
    if policy == "sft_only_rollout":
        found = None if first is None else (run["run"], first)
        return found if found in rollouts else None
    if policy == "final_eval":
        steps = [step for name, step in evals if name == run["run"]]
        return (run["run"], max(steps)) if steps else None
    before = len(run["phases"]) - 1 if first is None else first - 1
    found = (run["run"], before) if before >= 0 else ("base", -1)
    return found if found in evals else None


def behind(runs: list[Row], policy: str) -> list[Row]:
    """The distinct metrics rows behind an arm's cell."""
    evals, rollouts = metrics("eval"), metrics("rollout")
    keys = [measured(run, policy, evals, rollouts) for run in runs]
    of = rollouts if policy == "sft_only_rollout" else evals
    return [of[key] for key in dict.fromkeys(key for key in keys if key is not None)]


def cell(found: list[Row], what: str) -> float | None:
    """A cell from its metrics rows: the mean return of all valid episodes, or a count."""
    played: int = sum(row["episodes"] for row in found)
    if what == "episodes" or not played:
        return played if what == "episodes" else None
    if what == "clears":
        return int(sum(row["clears"] for row in found))
    return float(sum(row["return_mean"] * row["episodes"] for row in found) / played)


def summary() -> list[Row]:
    """One row an arm."""
    return [
        {"arm": arm, **{name: cell(behind(runs, name.rpartition("_")[0]), name.rpartition("_")[2]) for name in COLUMNS}}
        for arm, runs in arms().items()
    ]


def write(table: list[Row]) -> None:
    """The table as CSV on standard output."""
    out = csv.DictWriter(sys.stdout, ("arm", *COLUMNS), lineterminator="\n")
    out.writeheader()
    out.writerows([{k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()} for row in table])


def check() -> list[str]:
    """Differences between the table made here and metrics/summary.csv."""
    with (ROOT / "metrics/summary.csv").open(encoding="utf-8") as lines:
        told = {row["arm"]: row for row in csv.DictReader(lines)}
    wrong = []
    for row in summary():
        for name in COLUMNS:
            there = told[row["arm"]][name]
            here = row[name]
            same = there == "" if here is None else there != "" and abs(float(there) - here) <= 2e-6
            if not same:
                wrong.append(f"{row['arm']} {name}: {here} from the metrics, {there or 'nothing'} in summary.csv")
    return wrong


def trace(arm: str, column: str) -> bool:
    """Prints what a cell was made from; False when the episodes do not give the cell."""
    policy, _, what = column.rpartition("_")
    found = behind(arms()[arm], policy)
    source = "rollout" if policy == "sft_only_rollout" else "eval"
    below = "" if source == "rollout" else "eval_dumps/"
    returned: list[float] = []
    cleared = 0
    for row in found:
        path = f"runs/{row['run']}/{below}episodes.jsonl"
        played = [one for one in rows(path) if (one["source"], one["step"]) == (source, row["step"]) and one["valid"]]
        print(f"metrics/{source}.jsonl: run {row['run']}, step {row['step']}: {len(played)} episodes in {path}")
        for one in played:
            print(f"  {one['episode']}  level {one['level']}  return {one['returned']:+.4f}  cleared {one['cleared']}")
        returned += [one["returned"] for one in played]
        cleared += sum(one["cleared"] for one in played)
        if played:
            step = f"step{row['step']:04d}" if row["step"] >= 0 else "base"
            folder = f"{'' if source == 'rollout' else 'eval-'}{step}/{played[0]['episode']}"
            packed = f"runs/{row['run']}/work.tar.zst"
            print(f"  of the first: tar --zstd -xOf {packed} {folder}/calls.jsonl {folder}/journal.jsonl")
    mean = sum(returned) / len(returned) if returned else None
    again = {"episodes": len(returned), "clears": cleared, "return": mean}[what]
    told = cell(found, what)
    same = again == told or (again is not None and told is not None and abs(again - told) <= 2e-6)
    print(f"{arm} {column}: {told} from the metrics, {again} from the episodes: {'equal' if same else 'NOT EQUAL'}")
    return same


def main(words: list[str]) -> int:
    """The command; its exit status."""
    if not words:
        write(summary())
        return 0
    if words == ["check"]:
        wrong = check()
        print("\n".join(wrong) or "equal: the summary follows from the metrics")
        return 1 if wrong else 0
    if len(words) == 3 and words[0] == "trace" and words[1] in arms() and words[2] in COLUMNS:
        return 0 if trace(words[1], words[2]) else 1
    print(f"{__doc__}\nARM is one of {', '.join(arms())}\nCOLUMN is one of {', '.join(COLUMNS)}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
