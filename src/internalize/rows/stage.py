"""The rows stage: build a row set, audit it, and say what is in it.

Invariant: a payload exists only for rows that passed the audit; equal inputs give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internalize.errors import UserError
from internalize.files import read_json, sha256_file, tree_files, write_json, write_jsonl, write_text
from internalize.games import make_game
from internalize.harness.episode import read_episodes
from internalize.language.folder import load_dialogue
from internalize.rows.audit import audit
from internalize.rows.batches import ONLINE, ROWS, Rows, read_rows
from internalize.rows.context import Knowledge, RowContext, Start
from internalize.rows.report import build_report, coverage, token_stats
from internalize.rows.softlabel import online
from internalize.rows.sources import build_rows
from internalize.store import Input

__all__ = ["Rows", "build", "read_rows"]

EPISODES, SUMS = "episodes.json", "SHA256SUMS"


def build(
    folder: Path, spec: dict[str, Any], inputs: dict[str, Input], progress: Callable[[str], None]
) -> dict[str, Any]:
    """Writes rows.jsonl.gz, episodes.json (level and seed of each row's episode), build_report.json,
    coverage.json, token_stats.json, audit.json, SHA256SUMS and, for `softlabel`, online.json.

    Args:
        spec: `game`, `rows` (one source table of the study file), optionally `max_context`.
        inputs: `base` (its vocabulary), `knowledge`; `harvest` or `of` (parent row set) where the source
            needs it.

    Returns:
        Facts: source, rows, turns, tokens, trained_tokens, facts_trained, atoms, audit_passed, online.

    Raises:
        UserError: the audit found something, or no row came out.
    """
    settings = spec["rows"]
    context = row_context(spec, inputs)
    rows = build_rows(context, settings)
    made_online = online(settings)
    report = build_report(rows, context, settings)
    if not rows and made_online is None:
        raise UserError(
            "no row came out of this source",
            where=f"rows, type {settings['type']}",
            expected="at least one row",
            got=", ".join(f"{count} left out: {why}" for why, count in report["left_out"].items()) or "an empty input",
            fix="give the harvest more episodes, or hold less out",
        )
    verdict = audit(rows, context)
    verdict.require(settings["type"])
    write_jsonl(folder / ROWS, (row.model_dump() for row in rows))
    used = {row.provenance.episode for row in rows if row.provenance.episode is not None}
    starts = {name: [start.level, start.seed] for name, start in sorted(context.starts.items()) if name in used}
    stats, covered = token_stats(rows), coverage(rows, context)
    for name, content in (
        (EPISODES, starts),
        ("build_report.json", report),
        ("coverage.json", covered),
        ("token_stats.json", stats),
        ("audit.json", verdict.record()),
    ):
        write_json(folder / name, content)
    if made_online is not None:
        write_json(folder / ONLINE, made_online)
    sums = [f"{sha256_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in tree_files(folder)]
    write_text(folder / SUMS, "".join(sums))
    progress(f"{settings['type']}: {len(rows)} rows, {stats['trained_tokens']} trained tokens, audit passed")
    return {
        "source": settings["type"],
        "rows": len(rows),
        "turns": report["turns"],
        "tokens": stats["tokens"],
        "trained_tokens": stats["trained_tokens"],
        "facts_trained": covered["facts_trained"],
        "atoms": len(covered["atoms"]),
        "audit_passed": verdict.passed,
        "online": made_online,
    }


def row_context(spec: dict[str, Any], inputs: dict[str, Input]) -> RowContext:
    """Everything that builders and audit work from."""
    game = make_game(**spec["game"])
    context = RowContext(
        template=load_dialogue(inputs["base"].payload, game),
        game=game,
        knowledge=Knowledge.load(inputs["knowledge"].payload, inputs["knowledge"].facts),
        episodes=read_episodes(inputs["harvest"].payload) if "harvest" in inputs else (),
        parent=read_rows(inputs["of"].payload).rows if "of" in inputs else (),
        max_context=int(spec.get("max_context", 512)),
    )
    if "of" in inputs:
        starts = read_json(inputs["of"].payload / EPISODES)
        context.starts.update({name: Start(level, seed) for name, (level, seed) in starts.items()})
    return context
