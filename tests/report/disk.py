"""The synthetic study as a results folder and a store, with receipts that hold and a few episodes that were played."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthetic import Synthetic

from internalize.engine.protocol import Completion, SamplingParams
from internalize.files import digest, read_jsonl, write_jsonl, write_text
from internalize.games import make_game
from internalize.games.protocol import Game
from internalize.harness.episode import EpisodePlan, write_episodes
from internalize.harness.inprocess import play
from internalize.inputs import segment_path
from internalize.language.template import Template
from internalize.receipts import Receipt, write_receipt
from internalize.report import summary, tables
from internalize.report.data import load
from internalize.report.publish import publish
from internalize.store import Input, Store

GAME = {
    "kind": "dipwheel",
    "rules": {
        "stations": {"N": "left", "NE": "trap", "SE": "top", "S": "wipe", "SW": "right", "NW": "bottom"},
        "pots": {"a": "blue", "b": "red", "c": "green"},
    },
}
PLAYED = "step.recite.0.0002"
MADE = {
    "sft_only": tables.sft_only,
    "trajectories": tables.trajectories,
    "final": tables.final,
    "knowledge": tables.knowledge,
    "behaviour": tables.behaviour,
}


@dataclass(frozen=True)
class Disk:
    """Where the study lies."""

    results: Path
    store: Path
    played: str
    """Label of the step whose episodes were really played."""


class Babbler:
    """An engine that states facts, true and false, and calls anything; equal seeds, equal words."""

    slots, max_len = 8, 512

    def __init__(self, template: Template, facts: Sequence[str]) -> None:
        self.template, self.facts = template, facts
        self.random = random.Random(0)

    def generate(
        self, prompts: Sequence[list[int]], sessions: Sequence[str], rngs: Any, sampling: SamplingParams
    ) -> list[Completion]:
        made = []
        for _ in prompts:
            think = " ".join(["need top red", *self.random.sample(self.facts, 2)])
            ids = self.template.reply_ids(think, call=self.random.choice(self.template.calls.words))
            logprobs = [round(-self.random.random(), 3) for _ in ids]
            made.append(Completion(ids, logprobs, "stop", "v1", 0))
        return made

    def release(self, sessions: Sequence[str]) -> None:
        """There is no cache."""


def put_on_disk(made: Synthetic, root: Path) -> Disk:
    """Commits the payloads of a synthetic study, with played episodes in one step, and publishes its report."""
    store, results = Store(root / "store"), root / "results"
    game = make_game(**GAME)
    template = Template.of(game)
    template.vocab.write(made.inputs["base"].payload)
    write_ledger(made.inputs["knowledge"].payload)
    if PLAYED in made.inputs:
        _play(made.inputs[PLAYED].payload, game, template)
    receipts: dict[str, Receipt] = {}
    order = ("base", "knowledge", "gate", "rows", "step", "evals")
    for label, entry in sorted(made.inputs.items(), key=lambda one: (order.index(one[0].partition(".")[0]), one[0])):
        receipts[label] = _commit(store, label, entry, receipts)
        write_receipt(_path(results, label, made), receipts[label])
    _report(store, results, made, receipts)
    return Disk(results, store.root, PLAYED)


def _play(folder: Path, game: Game, template: Template) -> None:
    """Puts played episodes in the place of made-up ones; the tables' numbers stay what the tests say they are."""
    plans = [EpisodePlan(f"r0000-g{i // 4:03d}-{i % 4}", 1 + i // 4, 50 + i // 4, i // 4, i % 4) for i in range(8)]
    engine = Babbler(template, ["left@N", "wipe@S", "top@N", "red@b"])
    episodes = play(
        engine, game, template, plans, sampling=SamplingParams(1.0, 32, (template.stop_id,)), seed_key=("t",)
    )
    outcomes = list(read_jsonl(folder / "episodes.jsonl"))
    write_episodes(folder, episodes)
    rows = [
        {**row, "returned": told["returned"], "outcome": {**row["outcome"], **told["outcome"]}, "plan": row["plan"]}
        for row, told in zip(read_jsonl(folder / "episodes.jsonl"), outcomes, strict=True)
    ]
    write_jsonl(folder / "episodes.jsonl", rows)


def write_ledger(folder: Path) -> None:
    status = {"left@N": "verified", "wipe@S": "verified", "red@b": "verified", "top@N": "refuted"}
    write_jsonl(
        folder / "ledger.jsonl",
        [{"id": f"d/{f}", "claim": f"About {f}.", "fact": f, "verdict": {"status": s}} for f, s in status.items()],
    )


def _commit(store: Store, label: str, entry: Input, known: dict[str, Receipt]) -> Receipt:
    stage = label.partition(".")[0]
    parents = {name: known[name].hash() for name in ("base", "knowledge") if name in known}
    if stage == "step":
        before = f"{label[:-4]}{int(label[-4:]) - 1:04d}"
        parents |= {"previous": known[before].hash()} if before in known else {}
    if stage == "evals" and label.count(".") == 2:
        own = label.removeprefix("evals.")
        parents |= {name: one.hash() for name, one in known.items() if name.startswith(f"step.{own}.")}
    key = digest(label)
    partial = store.partial(stage, key)
    shutil.copytree(entry.payload, partial, dirs_exist_ok=True)
    run = {"wall_s": 2.0, "cpu_s": 1.5, "cpu_parts_s": {"play": 0.5, "train": 0.25}, "peak_rss_mib": 300 + len(label)}
    spec = {"label": label, **({"game": GAME} if label == "knowledge" else {})}
    told = {"stage": stage, "name": label.replace(".", "-"), "key": key, "spec": spec, "code": "c0de"}
    return store.commit(
        partial,
        **told,
        parents=parents,
        facts=entry.facts,
        status=entry.receipt.status,
        run=run,  # type: ignore[arg-type]
    )


def _path(results: Path, label: str, made: Synthetic) -> Path:
    kind, *parts = label.split(".")
    root = results / "receipts"
    if kind == "step":
        arm, seed, step = parts
        last = len(made.arms[arm]["phases"]) - 1
        return (results.parent / segment_path(arm, seed, 0, last)).with_name(f"step{step}.json")
    if kind == "evals" and len(parts) == 2:
        return root / "evals" / parts[0] / f"seed{parts[1]}.json"
    return root.joinpath(kind, *parts).with_suffix(".json")


def _report(store: Store, results: Path, made: Synthetic, receipts: dict[str, Receipt]) -> None:
    spec = made.spec(order=list(made.arms))
    inputs = {label: Input(receipt, store.root / receipt.entry) for label, receipt in receipts.items()}
    data = load(spec, inputs)
    found = {name: make(data) for name, make in MADE.items()}
    partial = store.partial("report", digest("report"))
    for name, text in summary.files(data, found, []).items():
        write_text(partial / name, text)
    parents = {label: receipt.hash() for label, receipt in receipts.items()}
    told: dict[str, Any] = {"stage": "report", "name": "report", "key": digest("report"), "spec": spec, "code": "c0de"}
    receipt = store.commit(partial, **told, parents=parents, facts={}, status="done", run={"wall_s": 1.0, "cpu_s": 1.0})
    write_receipt(results / "receipts" / "report.json", receipt)
    publish(store, {one.hash(): one for one in receipts.values()}, receipt, results)
