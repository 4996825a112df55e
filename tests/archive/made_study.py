"""A small study's receipts and payloads, made without a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.archive.job import run_archive
from internalize.engine.protocol import SamplingParams
from internalize.files import write_bytes, write_json, write_jsonl
from internalize.games.shaping import Outcome
from internalize.harness.episode import CallRecord, Episode, EpisodePlan, write_episodes
from internalize.receipts import Receipt, write_receipt
from internalize.report import summary, tables
from internalize.report.data import load
from internalize.report.text import csv_text
from internalize.seeds import rng
from internalize.stages import parent_hashes
from internalize.store import Input, Store

KINDS = {
    "": ("json", "jsonl", "md", "py", "sha256"),
    "base": ("json",),
    "checkpoints": ("json", "jsonl", "md"),
    "game": ("json",),
    "knowledge-set": ("json", "jsonl", "md"),
    "metrics": ("csv", "jsonl", "md", "png"),
    "rows": ("", "gz", "json"),
    "runs": ("json", "jsonl", "pt", "yaml", "zst"),
    "state": ("", "json", "jsonl", "md", "smk"),
}
"""Folder -> suffixes of the files in it: what the archive of a real study has, and the one made here."""

PHASES = {"none": ["rl", "rl"], "recite": ["sft", "rl"]}
EPISODES = 4
CODE = "0123456789abcdef"


def make_episode(name: str, seed: int, calls: int = 3, text: str = "left@N") -> Episode:
    """An episode of `calls` calls that mean nothing."""
    draw = rng("episode", name, seed)
    made = [
        CallRecord(
            index=index,
            prompt_ids=[2, 19, index],
            output_ids=[9, draw.randrange(100)],
            logprobs=[-draw.random(), -1.0],
            finish="stop",
            weight_version="step0000",
            cached_tokens=0,
            think=f"{text} {index}",
            kind="call",
            call_word="dip:N",
            observation='pot "a" T _',
            sampling=SamplingParams(temperature=1.0, max_new_tokens=32, stop_ids=(4,)),
        )
        for index in range(calls)
    ]
    result = {
        "actions": [],
        "actions_left": 3,
        "change_kinds": {"5->10": 1},
        "observation": text,
        "state": "NOT_FINISHED",
    }
    journal = [
        {
            "tool": "act",
            "arguments": {"action": "DIP_N", "x": None, "y": None},
            "result": {**result, "decisions": index},
        }
        for index in range(calls)
    ]
    cleared = draw.random() < 0.4
    outcome = Outcome(
        cleared=cleared,
        dead=False,
        text_end=False,
        acts=calls,
        noops=0,
        invalid=0,
        budget=6,
        progress0=0.5,
        progress=0.25,
    )
    plan = EpisodePlan(id=name, level=1 + seed % 2, seed=seed, group=0, index=0)
    parts = {"clear": float(cleared), "acts": -0.01 * calls}
    return Episode(plan, made, journal, outcome, parts, sum(parts.values()))


@dataclass
class MadeStudy:
    """A store with a small study in it."""

    root: Path
    receipts: dict[str, Receipt] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        """Its store."""
        return Store(self.root / "store")

    @property
    def archive(self) -> Path:
        """Where its archive goes."""
        return self.root / "results" / "archive"

    def add(
        self,
        label: str,
        stage: str,
        write: Callable[[Path], Mapping[str, Any]],
        parents: tuple[str, ...] = (),
        spec: Mapping[str, Any] | None = None,
    ) -> Receipt:
        """Commits an entry; `write` fills its folder and returns its facts."""
        above = parent_hashes({name.partition("=")[0]: self.receipts[name.rpartition("=")[2]] for name in parents})
        settings = {"label": label, **(spec or {})}
        key = self.store.key(stage, settings, CODE, above)
        with self.store.lease(stage, key):
            partial = self.store.partial(stage, key)
            facts = write(partial)
            told: dict[str, Any] = {"stage": stage, "name": label, "key": key, "spec": settings, "code": CODE}
            run = {
                "cpu_s": 1.0,
                "wall_s": 1.5,
                "peak_rss_mib": 300,
                "python": "3.11.7",
                "versions": {"torch": "2.13.0"},
            }
            made = self.store.commit(partial, **told, parents=above, facts=facts, status="done", run=run)
        self.receipts[label] = made
        return made

    def run(self, threads: int = 1) -> Receipt:
        """Makes the archive."""
        inputs = {}
        for label, receipt in self.receipts.items():
            inputs[label] = self.root / "results" / "receipts" / f"{label}.json"
            write_receipt(inputs[label], receipt)
        output = self.root / "results" / "receipts" / "archive.json"
        return run_archive(self.spec, CODE, inputs, output, self.archive, self.store, lambda text: None, threads)


def metrics(episodes: list[Episode]) -> dict[str, Any]:
    """What the tables read of some episodes."""
    returns = [episode.returned for episode in episodes]
    return {
        "episodes": len(episodes),
        "return_mean": sum(returns) / len(returns),
        "clears": sum(episode.outcome.cleared for episode in episodes),
        "note": None,
        "whole": 1,
    }


def make_study(root: Path, seeds: tuple[int, ...] = (0, 1), converted: bool = True) -> MadeStudy:
    """Knowledge, base, gate, harvest, rows, two arms with their evals, a report; optionally a converted iteration."""
    made = MadeStudy(root)

    def game(folder: Path) -> dict[str, Any]:
        write_json(folder / "game.json", {"id": "made-up", "sha256": "0" * 64})
        return {"id": "made-up"}

    def knowledge(folder: Path) -> dict[str, Any]:
        atom = {
            "id": "a/1",
            "claim": "A dip at N paints left.",
            "kind": "action_effect",
            "family": "region",
            "fact": "left@N",
            "subjects": ["left"],
            "held_out": {"held": False, "why": ""},
            "verdict": {"status": "verified", "counterexample": None},
        }
        write_jsonl(folder / "atoms.jsonl", [atom, {**atom, "id": "a/2", "verdict": {"status": "verified", "held": 3}}])
        form = dict.fromkeys(("atom", "kind", "family", "form", "wording", "prompt", "answer", "fact"), "word")
        write_jsonl(folder / "recall.jsonl", [{**form, "label": True, "held_out": False, "expressible": True}])
        write_json(folder / "coverage.json", {"facts": 1})
        write_bytes(folder / "report.md", b"# One fact\n")
        return {"prompt_facts": ["left@N"], "held_out_facts": []}

    def base(folder: Path) -> dict[str, Any]:
        write_json(folder / "config.json", {"model_type": "qwen3"})
        write_bytes(folder / "model.safetensors", b"weights" * 100)
        return {}

    def gate(folder: Path) -> dict[str, Any]:
        for side in ("base", "teacher"):
            write_episodes(folder / side, [make_episode(f"gate-{side}-{i}", i) for i in range(2)])
        write_json(folder / "gate.json", {"passed": True})
        return {"reference": {}}

    def harvest(folder: Path) -> dict[str, Any]:
        write_episodes(folder, [make_episode(f"harvest-{i}", i) for i in range(3)])
        return {"episodes": 3}

    def rows(folder: Path) -> dict[str, Any]:
        provenance = {"episode": "harvest-0", "turns": 1, "atoms": ["left@N"]}
        row = {"tokens": [1, 2], "weights": [0.0, 1.0], "cite": [0, 0], "source": "recite", "provenance": provenance}
        write_jsonl(
            folder / "rows.jsonl.gz", [row, {**row, "provenance": {**provenance, "episode": None, "atoms": []}}]
        )
        write_json(folder / "audit.json", {"passed": True})
        write_bytes(folder / "SHA256SUMS", b"0" * 64 + b"  rows.jsonl.gz\n")
        return {"source": "recite", "rows": 2}

    def evals(steps: list[int], seed: int) -> Callable[[Path], dict[str, Any]]:
        def write(folder: Path) -> dict[str, Any]:
            told = []
            for step in steps:
                name = "step-base" if step < 0 else f"step-{step:04d}"
                episodes = [make_episode(f"eval-{i:04d}", 1000 + i + 10 * (step + seed)) for i in range(EPISODES)]
                write_episodes(folder / "episodes" / name, episodes)
                phase = "base" if step < 0 else "rl"
                told.append({"step": step, "phase": phase, "kind": "eval", **metrics(episodes)})
                told.append({"step": step, "phase": phase, "kind": "probe", "nll_play_trained": 1.5 - step, "acc": 1})
            write_jsonl(folder / "metrics.jsonl", told)
            return {"steps": steps}

        return write

    def step(number: int, phase: str, seed: int) -> Callable[[Path], dict[str, Any]]:
        def write(folder: Path) -> dict[str, Any]:
            told = [{"step": number, "phase": phase, "seed": seed, "kind": "train", "loss": 0.5, "tokens": 10}]
            if phase == "rl":
                episodes = [make_episode(f"r{number:04d}-g000-{i}", i + seed) for i in range(EPISODES)]
                write_episodes(folder, episodes)
                told.append({"step": number, "phase": phase, "seed": seed, "kind": "rollout", **metrics(episodes)})
            write_jsonl(folder / "metrics.jsonl", told)
            write_json(folder / "shaping.json", {"clear": 1.0})
            write_bytes(folder / f"rollout/{number}.pt", bytes([seed, number]) * 50)
            write_bytes(folder / f"rollout/global_dataset_state_dict_{number}.pt", b"cursor")
            write_bytes(folder / f"iter_{number:07d}/__0_0.distcp", b"checkpoint" * 20)
            write_bytes(folder / "latest_checkpointed_iteration.txt", str(number).encode())
            return {"phase": phase, "loss": 0.5}

        return write

    made.add("game", "fetch_game", game)
    made.add("knowledge", "knowledge", knowledge, ("game",))
    made.add("base", "base", base)
    made.add("gate", "gate", gate, ("base", "knowledge"))
    made.add("harvest.teacher", "harvest", harvest, ("base", "knowledge"))
    made.add("rows.teacher_turns", "rows", rows, ("base", "knowledge", "harvest=harvest.teacher"))
    made.add("rows.curated", "rows", rows, ("base", "knowledge", "of=rows.teacher_turns"))
    made.add("evals.base", "evals", evals([-1], 0), ("base", "knowledge"), {"evals": {"seed": 1000}})
    shared = ("base", "knowledge", "gate")
    for arm, phases in PHASES.items():
        for seed in seeds:
            for number, phase in enumerate(phases):
                before = (f"previous=step.{arm}.{seed}.{number - 1:04d}",) if number else ()
                reads = ("rows.curated",) if phase == "sft" else ()
                settings = {"guard": {"tool_call_ending_rate": 0.5}, "cite_weight": 2.0}
                label = f"step.{arm}.{seed}.{number:04d}"
                made.add(label, "step", step(number, phase, seed), (*shared, *reads, *before), settings)
            ends = tuple(f"step{n:04d}=step.{arm}.{seed}.{n:04d}" for n in range(len(phases)))
            played = evals(list(range(len(phases))), seed)
            made.add(f"evals.{arm}.{seed}", "evals", played, ("base", "knowledge", *ends), {"evals": {"seed": 1000}})
    told = {
        arm: {
            "phases": phases,
            "seeds": list(seeds),
            "schedule": "sft_first, steps 1" if "sft" in phases else "none",
            "rows": "curated" if "sft" in phases else "",
            "note": f"the arm {arm}",
            "status": "valid",
            "settings": {"rl": {"frozen_adam": arm == "recite"}, "steps": len(phases)},
        }
        for arm, phases in PHASES.items()
    }
    later = {
        "later": {"phases": ["rl"], "seeds": [0], "schedule": "none", "rows": "", "note": "", "status": "prepared"}
    }
    made.spec = {
        "name": "small",
        "archive": {
            "title": None,
            "about": None,
            "licence": "cc-by-4.0",
            "dataset": "me/small",
            "models": None,
            "level": 3,
            "eval_records": "all",
            "debug_rollouts": True,
        },
        "arms": told,
        "order": list(PHASES),
        "prepared": later,
        "study": {"rollout": {"episodes": EPISODES}, "evals": {"episodes": EPISODES}, "base": {}},
    }

    def report(folder: Path) -> dict[str, Any]:
        opened = {label: Input(made.receipts[label], made.store.root / made.receipts[label].entry) for label in read}
        data = load({key: made.spec[key] for key in ("name", "arms", "order")}, opened)
        headline = summary.headline({"sft_only": tables.sft_only(data), "final": tables.final(data)})
        write_bytes(folder / "summary.csv", csv_text(headline).encode())
        write_bytes(folder / "tables/final.csv", csv_text(headline).encode())
        write_bytes(folder / "summary.md", b"# Summary\n")
        write_bytes(folder / "forest.png", b"\x89PNG\r\n\x1a\n")
        return {"arms": list(PHASES)}

    read = [label for label in made.receipts if not label.startswith(("harvest", "game"))]
    made.add("report", "report", report, tuple(f"{label}={label}" for label in read))
    if converted:

        def convert(folder: Path) -> dict[str, Any]:
            write_json(folder / "config.json", {"model_type": "qwen3"})
            write_bytes(folder / "model-00001-of-00001.safetensors", b"bf16" * 300)
            write_json(folder / "model.safetensors.index.json", {"weight_map": {}})
            write_json(folder / "args.json", {"lr": 1e-4})
            write_bytes(folder / "megatron/common.pt", b"common")
            return {}

        made.add("convert.recite.0.step0001", "convert", convert, ("step=step.recite.0.0001",))
    return made


def tree(root: Path) -> dict[str, bytes]:
    """Path -> content of every file."""
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def kinds(root: Path) -> dict[str, tuple[str, ...]]:
    """As `KINDS`, of an archive."""
    found: dict[str, set[str]] = {}
    for path in tree(root):
        top, below, name = path.rpartition("/")[0].partition("/")[0], "/" in path, path.rpartition("/")[2]
        found.setdefault(top if below else "", set()).add(name.rpartition(".")[2] if "." in name else "")
    return {top: tuple(sorted(suffixes)) for top, suffixes in found.items()}
