"""The dataset card: `README.md` with the `configs:` that make every table load.

Invariant: generated from manifest, registry and results, never edited by hand; every config lists explicit features for
every column, and all configs are JSON lines, because `datasets` takes one builder a repository from the first config.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from internalize.archive.layout import MANIFEST, READER, README, SUMS
from internalize.archive.manifest import Manifest
from internalize.archive.tables import Table
from internalize.archive.tarread import read_index
from internalize.archive.text import markdown, size
from internalize.files import read_jsonl
from internalize.receipts import Receipt

SUMMARY = "metrics/summary.csv"
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
)


def card(root: Path, spec: Mapping[str, Any], archive: Receipt, manifest: Manifest, tables: Sequence[Table]) -> str:
    """The card of the archive at `root`.

    Args:
        manifest: every file but the manifests and the card.
        tables: in the order of the configs; the first one that has rows is the default.
    """
    front = yaml.safe_dump(front_matter(spec, manifest, tables), sort_keys=False, allow_unicode=True, width=120)
    settings = spec["archive"]
    parts = [
        f"---\n{front}---\n",
        f"# {settings.get('title') or spec['name']}\n",
        (settings.get("about") or _about(spec)).strip() + "\n",
        "## What the arms showed\n",
        _arms(root, spec),
        "## Tables\n",
        _tables(manifest, tables),
        "## Check, read, trace\n",
        _commands(root, spec, manifest, tables),
        "## Contents\n",
        _contents(manifest),
        "## Runs\n",
        _runs(root),
        "## Checkpoints\n",
        _checkpoints(archive),
        "## Caveats\n",
        _caveats(spec),
        "## Integrity and licence\n",
        f"`{SUMS}` and `{MANIFEST}` hash every file; `{MANIFEST}` also names the receipt that made it. "
        f"Licence: {settings['licence']}. Written by `internalize`; do not edit by hand.\n",
    ]
    return "\n".join(parts)


def front_matter(spec: Mapping[str, Any], manifest: Manifest, tables: Sequence[Table]) -> dict[str, Any]:
    """The card's YAML as a dictionary."""
    rows = sum(entry.rows for entry in manifest.tables.values())
    configs = [config(table) for table in _filled(manifest, tables)]
    if configs:
        configs[0]["default"] = True
    return {
        "license": spec["archive"]["licence"],
        "pretty_name": spec["archive"].get("title") or spec["name"],
        "language": ["en"],
        "tags": ["reinforcement-learning", "supervised-fine-tuning", "knowledge", "agents", "games"],
        "size_categories": [next((name for most, name in SIZES if rows < most), "10M<n<100M")],
        "configs": configs,
    }


def config(table: Table) -> dict[str, Any]:
    """One entry of `configs:`."""
    return {
        "config_name": table.name,
        "data_files": [{"split": "train", "path": list(table.files) if len(table.files) > 1 else table.files[0]}],
        "features": table.features(),
    }


def _about(spec: Mapping[str, Any]) -> str:
    return (
        f"Everything that the study `{spec['name']}` left behind: verified knowledge about a game, rows made from it, "
        "every episode played, the exact training batches, metrics of each step, checkpoints by name, and the receipts "
        "that connect them. The question: can knowledge that a model uses when it stands in its prompt be trained into "
        "its weights, and does the model then play by it?"
    )


def _arms(root: Path, spec: Mapping[str, Any]) -> str:
    path = root / SUMMARY
    if not path.is_file():
        return "No summary was made.\n"
    with path.open(encoding="utf-8") as lines:
        told = {row["arm"]: row for row in csv.DictReader(lines)}
    head = ["arm", "what it is", "schedule", "SFT-only policy: return, clears", "at the end: return, clears"]
    cells = [
        [
            f"`{arm}`",
            spec["arms"][arm]["note"] or spec["arms"][arm]["rows"] or "-",
            spec["arms"][arm]["schedule"],
            *(_result(told.get(arm, {}), policy) for policy in ("sft_only_eval", "final_eval")),
        ]
        for arm in spec["order"]
    ]
    lead = "Mean shaped return with its 95 % interval, and episodes cleared, in the evals (all seeds). "
    lead += "An arm that starts with RL has no SFT-only policy but the base, which was measured once.\n\n"
    return lead + markdown(head, cells)


def _result(row: Mapping[str, str], policy: str) -> str:
    if not row.get(f"{policy}_return"):
        return "-"
    low, high = row.get(f"{policy}_return_low"), row.get(f"{policy}_return_high")
    around = f" [{float(low):+.2f}, {float(high):+.2f}]" if low and high else ""
    counts = f"{row[f'{policy}_clears']}/{row[f'{policy}_episodes']}"
    return f"{float(row[f'{policy}_return']):+.2f}{around}, {counts}"


def _tables(manifest: Manifest, tables: Sequence[Table]) -> str:
    cells = [
        [
            f"`{table.name}`",
            str(manifest.tables[table.name].rows),
            str(len(manifest.tables[table.name].files)),
            table.about,
        ]
        for table in _filled(manifest, tables)
    ]
    empty = [
        f"`{table.name}`" for table in tables if table.name in manifest.tables and not manifest.tables[table.name].rows
    ]
    lead = 'Each is one config: `datasets.load_dataset(<this repository or folder>, <config>, split="train")`.\n'
    note = "Columns of no fixed shape hold JSON text: `json.loads` them.\n"
    if empty:
        note += f"No config, since there are no rows (they are made while training): {', '.join(empty)}.\n"
    return "\n".join([lead, markdown(["config", "rows", "files", "one row is"], cells), note])


def _commands(root: Path, spec: Mapping[str, Any], manifest: Manifest, tables: Sequence[Table]) -> str:
    arm, runs = spec["order"][0], sorted(path.parent.name for path in root.glob("runs/*/work.tar.zst"))
    run = next((name for name in runs if name.startswith(f"{arm}-seed")), runs[0])
    packed = f"runs/{run}/work.tar.zst"
    episode = read_index(root / packed)[0].folder
    config = _filled(manifest, tables)[0].name
    here = [
        (f"sha256sum --check --quiet {SUMS}", "every file is what it was"),
        (f"python3 {READER}", "the summary table, made anew from the metrics"),
        (f"python3 {READER} check", f"is it what {SUMMARY} says?"),
        (f"python3 {READER} trace {arm} final_eval_return", "a cell: its metrics rows, its episodes, recomputed"),
        (f"tar --zstd -tf {packed}", "one folder an episode"),
        (f"tar --zstd -xOf {packed} {episode}/journal.jsonl", "what an episode's tools were asked and said"),
    ]
    installed = [
        ("internalize verify .", "also finds extra files, and checks the chain of receipts"),
        (f"internalize cat . {run} {episode}", "one episode, without unpacking the rest"),
        (f"""python3 -c 'import os, datasets; print(datasets.load_dataset(os.getcwd(), "{config}"))'""", "a table"),
    ]
    return (
        "In this folder, with coreutils, tar, zstd and Python 3.9 or newer:\n\n"
        f"{_block(here)}\nWith `internalize`, or `datasets`, installed:\n\n{_block(installed)}"
    )


def _block(commands: Sequence[tuple[str, str]]) -> str:
    width = max(len(command) for command, _ in commands)
    lines = [f"{command:{width}}  # {what}" for command, what in commands]
    return "\n".join(["```", *lines, "```", ""])


def _filled(manifest: Manifest, tables: Sequence[Table]) -> list[Table]:
    """The tables that have rows: a config without any would not load."""
    return [table for table in tables if table.name in manifest.tables and manifest.tables[table.name].rows]


def _contents(manifest: Manifest) -> str:
    sums: dict[str, list[int]] = {}
    for path, file in manifest.files.items():
        parts = path.split("/")
        top = "/".join(parts[:2]) if parts[0] == "runs" and len(parts) > 2 else parts[0] if len(parts) > 1 else path
        sums.setdefault(top, []).append(file.bytes)
    cells = [[f"`{name}`", str(len(found)), size(sum(found))] for name, found in sorted(sums.items())]
    total = [len(manifest.files), sum(file.bytes for file in manifest.files.values())]
    cells.append([f"total (without `{README}` and the manifests)", str(total[0]), size(total[1])])
    inside = """
`runs/<run>/`: `settings.json` (settings and receipts of each step), `eval.yaml`, `shaping.json`, `play_train.jsonl`
and `play_eval.jsonl` (the levels asked for), `episodes.jsonl`, `calls.jsonl.zst`, `journal.jsonl.zst`,
`metrics.jsonl`, `eval_dumps/` (the same of the evals, and `collapse_guard.json`), `meminfo/`,
`debug_rollout/<step>.pt` (the exact training batches), `work.tar.zst` (one folder an episode; the index beside it says
where each starts), `wandb_offline.tar.zst` (a mirror of the metrics that `wandb sync` takes) and `wandb_export/` (what
reading that mirror gives).
`knowledge-set/`, `rows/` (each with its audit), `metrics/` (by kind, and the report's tables), `checkpoints/`, `base/`,
`game/` (hashes of a game that was fetched; not the game), `state/` (receipts, log of decisions, study as resolved,
environment, the workflow's files).
"""
    return markdown(["path", "files", "size"], cells) + inside


def _runs(root: Path) -> str:
    head = ["run", "kind", "status", "phases", "episodes", "eval episodes", "stopped"]
    cells = [
        [
            f"`{row['run']}`",
            row["kind"],
            row["status"],
            "".join(phase[0] for phase in row["phases"] or []) or "-",
            str(row["n_episodes"] or 0),
            str(row["n_eval_episodes"] or 0),
            f"at step {row['stopped_at']}: {', '.join(row['reasons'] or [])}" if row["stopped_at"] is not None else "-",
        ]
        for row in read_jsonl(root / "registry.jsonl")
    ]
    return "Phases: s SFT, r RL, j joint.\n\n" + markdown(head, cells)


def _checkpoints(archive: Receipt) -> str:
    told = archive.facts["checkpoints"]
    return (
        f"{told['iterations']} iterations, {size(told['bytes'])}, listed in `checkpoints/checkpoints.md` with files, "
        "bytes and phase; `checkpoints/series.md` has the SFT-only series. They are not in this repository. Iterations "
        "that were converted are model repositories of their own; the list names them.\n"
    )


def _caveats(spec: Mapping[str, Any]) -> str:
    seeds = sorted({len(arm["seeds"]) for arm in spec["arms"].values()})
    episodes = spec["study"]["rollout"]["episodes"]
    evals = spec["study"]["evals"]["episodes"]
    return (
        f"- One game, one base model, {' or '.join(map(str, seeds))} seed(s) an arm, {episodes} episodes a rollout and "
        f"{evals} an eval: an interval covers seeds and levels, not games or bases; a difference inside its interval "
        "is noise.\n"
        "- `state/log.*`, `state/environment.json`, `state/checkpoints_on_disk.json` and `meminfo/` tell times and "
        "memory of one execution; everything else comes out the same when the study is run again on an equal machine.\n"
        "- Steps and W&B `_timestamp` count steps, not seconds.\n"
    )
