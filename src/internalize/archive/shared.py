"""What the runs share: registry, metrics, knowledge, rows, checkpoints, receipts, the study as resolved.

Invariant: a function of the spec and of receipts and packed runs; the files of payloads that are archived unchanged are
not copied but named (`links`), with the receipt that vouches for them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from internalize.archive import reader
from internalize.archive.inventory import CHECKPOINTS, inventory, write_inventory
from internalize.archive.layout import BASE_RUN, LINKED, READER, RECEIPTS, REGISTRY, Run, harvest_run, linked_name
from internalize.archive.runs import METRICS
from internalize.archive.sources import open_parts
from internalize.archive.tables import CALL, EPISODE, JOURNAL, TRANSCRIPT, Counts, Feature, Table, columns_of, struct
from internalize.files import read_jsonl, write_json
from internalize.receipts import Receipt
from internalize.store import Store

HEAD: dict[str, Feature] = {"run": "string", "arm": "string", "seed": "int64", "step": "int64", "phase": "string"}
LIST: Feature = {"list": "string"}
PLAYED = " of a rollout or a harvest"

REGISTRY_TABLE = Table(
    "registry",
    "one run: what it is, its status, how far it came, and how many rows each table has of it",
    {
        "run": "string",
        "kind": "string",
        "arm": "string",
        "seed": "int64",
        "status": "string",
        "note": "string",
        "schedule": "string",
        "rows": "string",
        "phases": LIST,
        "steps_done": "int64",
        "stopped_at": "int64",
        "reasons": LIST,
        **{
            f"n_{prefix}{table.name}": "int64"
            for prefix in ("", "eval_")
            for table in (EPISODE, CALL, JOURNAL, TRANSCRIPT)
        },
        "wandb": "string",
        "wandb_rows": "int64",
    },
    (REGISTRY,),
)
ATOMS = Table(
    "atoms",
    "one atom of verified knowledge; `record` is the whole of it as JSON text",
    {
        "id": "string",
        "claim": "string",
        "kind": "string",
        "family": "string",
        "fact": "string",
        "subjects": LIST,
        "held_out": "bool",
        "status": "string",
        "record": "json",
    },
    ("knowledge-set/atoms_table.jsonl",),
)
RECALL = Table(
    "recall",
    "one question about an atom, in one form and wording",
    {
        **dict.fromkeys(("atom", "kind", "family", "form", "wording", "prompt", "answer", "fact"), "string"),
        "label": "json",
        "held_out": "bool",
        "expressible": "bool",
    },
    ("knowledge-set/recall_table.jsonl",),
)
ROWS: dict[str, Feature] = {
    "tokens": {"list": "int64"},
    "weights": {"list": "float64"},
    "cite": {"list": "int64"},
    "source": "string",
    "provenance": struct(episode="string", turns="int64", atoms=LIST),
}
RECEIPT_TABLE = Table(
    "receipts",
    "one receipt of the workflow: what ran, with which settings and code, on what, and what came out",
    {
        **dict.fromkeys(("hash", "stage", "name", "key", "code", "status", "entry"), "string"),
        "bytes": "int64",
        **dict.fromkeys(("spec", "parents", "files", "facts"), "json"),
        "version": "int64",
    },
    (RECEIPTS,),
)


@dataclass(frozen=True)
class Link:
    """A file of the archive that is a payload file as it is."""

    path: str
    entry: str
    inside: str
    sha256: str
    bytes: int
    receipt: str


def build_shared(
    folder: Path,
    spec: Mapping[str, Any],
    receipts: Mapping[str, Receipt],
    packs: Mapping[str, Receipt],
    store: Store,
) -> dict[str, Any]:
    """Writes the shared files into the empty `folder`; returns the facts of the archive's receipt.

    Args:
        spec: `specs_archive.archive`.
        receipts: every input of the archive, by label.
        packs: run -> receipt of its pack.
    """
    counts, tables = Counts(), dict[str, Table]()
    for run, pack in packs.items():
        for kind, files in pack.facts["rows"].items():
            for name, rows in files.items():
                counts.add(kind, f"runs/{run}/{name}", rows)
    metrics = [row for pack in packs.values() for row in _metrics(store, pack)]
    for kind in sorted({str(row["kind"]) for row in metrics}):
        part = [{k: v for k, v in row.items() if k != "kind"} for row in metrics if row["kind"] == kind]
        about = f"one step's `{kind}` numbers; the source of every table of results"
        table = Table(f"metrics_{kind}", about, columns_of(part, HEAD), (f"metrics/{kind}.jsonl",))
        _add(folder, table, part, counts, tables)
    _add(folder, REGISTRY_TABLE, registry(spec, packs), counts, tables)
    knowledge = open_parts(store, receipts["knowledge"], lambda path: path in ("atoms.jsonl", "recall.jsonl"))
    _add(folder, ATOMS, map(atom_row, read_jsonl(knowledge / "atoms.jsonl")), counts, tables)
    recall = ({key: row.get(key) for key in RECALL.columns} for row in read_jsonl(knowledge / "recall.jsonl"))
    _add(folder, RECALL, recall, counts, tables)
    checkpoints = inventory(spec, receipts, metrics)
    counts.add("checkpoints", CHECKPOINTS.files[0], write_inventory(folder / "checkpoints", checkpoints))
    told = {receipt.hash(): receipt for receipt in [*receipts.values(), *packs.values()]}
    _add(folder, RECEIPT_TABLE, (receipt_row(one) for one in sorted(told.values(), key=_order)), counts, tables)
    for name, table, path, rows in row_tables(receipts):
        tables[name] = table
        counts.add(name, path, rows)
    write_json(folder / "state/study.json", spec)
    shutil.copyfile(str(reader.__file__), folder / READER)
    return {
        "runs": list(packs),
        "tables": {name: dict(sorted(files.items())) for name, files in sorted(counts.rows.items())},
        "checkpoints": {"iterations": len(checkpoints), "bytes": sum(row["bytes"] for row in checkpoints)},
        "metric_columns": {  # as pairs: a receipt's keys are sorted, the order of columns is not
            name: [[column, feature] for column, feature in table.columns.items()]
            for name, table in tables.items()
            if name.startswith("metrics_")
        },
        "linked_bytes": sum(link.bytes for link in links(spec, receipts)),
    }


def known_tables(facts: Mapping[str, Any]) -> list[Table]:
    """The tables of an archive, in the card's order: what its receipt's facts count."""
    fixed: dict[str, Table] = {table.name: table for table in (EPISODE, CALL, JOURNAL, TRANSCRIPT)}
    for name, table in list(fixed.items()):
        files = tuple(pattern.replace("runs/*/", "runs/*/eval_dumps/") for pattern in table.files)
        about = f"the same of the evals of every arm and of the gate: {table.about.replace(PLAYED, '')}"
        fixed[f"eval_{name}"] = Table(f"eval_{name}", about, table.columns, files)
    for table in (ATOMS, RECALL, CHECKPOINTS, REGISTRY_TABLE, RECEIPT_TABLE):
        fixed[table.name] = table
    for name in facts["tables"]:
        if name.startswith("metrics_"):
            kind = name.removeprefix("metrics_")
            about = f"one step's `{kind}` numbers; the source of every table of results"
            fixed[name] = Table(name, about, dict(facts["metric_columns"][name]), (f"metrics/{kind}.jsonl",))
        elif name.startswith("rows_"):
            files = tuple(facts["tables"][name])
            fixed[name] = Table(name, f"one training row of source `{name.removeprefix('rows_')}`", ROWS, files)
    order = [*fixed]
    return [fixed[name] for name in sorted(facts["tables"], key=order.index)]


def links(spec: Mapping[str, Any], receipts: Mapping[str, Receipt]) -> list[Link]:
    """The payload files that the archive holds unchanged."""
    found = []
    for label, receipt in sorted(receipts.items()):
        digest = receipt.hash()
        for file in receipt.files:
            if (path := linked_path(label, file.path, spec)) is not None:
                found.append(Link(path, receipt.entry, file.path, file.sha256, file.bytes, digest))
    unique = {link.path: link for link in found}
    return [unique[path] for path in sorted(unique)]


def linked_path(label: str, path: str, spec: Mapping[str, Any]) -> str | None:
    """Where the archive holds a payload file as it is; None where it does not."""
    kind, _, rest = label.partition(".")
    if label == "knowledge":
        return f"knowledge-set/{path}"
    if label == "game":  # its hashes; the file itself is not ours to give
        return f"game/{path}"
    if label == "base":
        return None if path.endswith(".safetensors") else f"base/{path}"
    if label == "report":
        return f"metrics/{path}"
    if label == "gate":
        return f"runs/{BASE_RUN}/{path}" if path == "gate.json" else None
    if kind == "rows":
        return f"rows/{rest}/{path}"
    if kind == "step" and LINKED.match(path):
        if path.startswith(("rollout/", "replay_rollout/")) and not spec["archive"]["debug_rollouts"]:
            return None
        arm, seed, step = rest.rsplit(".", 2)
        run = f"runs/{Run(arm, int(seed)).name}"
        if path == "shaping.json":
            return f"{run}/{path}" if int(step) == 0 else None
        return f"{run}/{linked_name(path)}"
    return None


def row_tables(receipts: Mapping[str, Receipt]) -> list[tuple[str, Table, str, int]]:
    """The row sets that are rows on disk: config, table, file, rows. Sets made while training have none."""
    found = []
    for label, receipt in sorted(receipts.items()):
        if label.startswith("rows.") and any(file.path == "rows.jsonl.gz" for file in receipt.files):
            name = f"rows_{receipt.facts['source']}"
            path = f"rows/{label.removeprefix('rows.')}/rows.jsonl.gz"
            found.append((name, Table(name, "", ROWS, (path,)), path, int(receipt.facts["rows"])))
    return found


def registry(spec: Mapping[str, Any], packs: Mapping[str, Receipt]) -> list[dict[str, Any]]:
    """The runs: arms with their seeds in the study's order, `prepared` arms too, harvests, the base."""
    rows = []
    for arm in [*spec["order"], *spec["prepared"]]:
        told = spec["arms"].get(arm) or spec["prepared"][arm]
        for seed in told["seeds"]:
            run = Run(arm, seed).name
            same = {key: told[key] for key in ("status", "note", "schedule", "rows", "phases")}
            rows.append({"run": run, "kind": "arm", "arm": arm, "seed": seed, **same, **_counts(packs.get(run))})
    for run, pack in packs.items():
        if pack.facts["kind"] != "arm":
            rows.append({"run": run, "kind": pack.facts["kind"], "status": "valid", **_counts(pack)})
    return rows


def _counts(pack: Receipt | None) -> dict[str, Any]:
    if pack is None:
        return {}
    facts = pack.facts
    rows = {f"n_{kind}": sum(files.values()) for kind, files in facts["rows"].items()}
    steps = facts.get("steps_done")
    stop: dict[str, Any] = {key: facts[key] for key in ("stopped_at", "reasons") if key in facts}
    return {**rows, "steps_done": steps, **stop, "wandb": facts.get("wandb"), "wandb_rows": facts.get("steps_logged")}


def atom_row(atom: Mapping[str, Any]) -> dict[str, Any]:
    """An atom as a row of its table."""
    row = {key: atom.get(key) for key in ATOMS.columns}
    return {**row, "held_out": atom["held_out"]["held"], "status": atom["verdict"]["status"], "record": atom}


def receipt_row(receipt: Receipt) -> dict[str, Any]:
    """A receipt as a row of its table."""
    plain = receipt.model_dump()
    return {**plain, "hash": receipt.hash(), "bytes": receipt.payload_bytes()}


def _order(receipt: Receipt) -> tuple[str, str, str]:
    return receipt.stage, receipt.name, receipt.key


def _metrics(store: Store, pack: Receipt) -> Iterable[dict[str, Any]]:
    if any(file.path == METRICS for file in pack.files):
        yield from read_jsonl(store.root / pack.entry / METRICS)


def _add(
    folder: Path, table: Table, rows: Iterable[Mapping[str, Any]], counts: Counts, tables: dict[str, Table]
) -> None:
    counts.add(table.name, table.files[0], table.write(folder / table.files[0], rows))
    tables[table.name] = table


def run_of(label: str) -> str | None:
    """The run that an input belongs to; None for what runs share."""
    kind, *parts = label.split(".")
    if kind == "step" and len(parts) == 3:
        return Run(parts[0], int(parts[1])).name
    if kind == "evals":
        return BASE_RUN if parts == ["base"] else Run(parts[0], int(parts[1])).name
    if kind == "harvest":
        return harvest_run(parts[0])
    return BASE_RUN if label == "gate" else None
