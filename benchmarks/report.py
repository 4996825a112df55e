"""The report's page of a large study: how big, how long, how much memory.

Writes a synthetic study (receipts, metrics, tables, played episodes) of the given size, then runs `internalize page
--all-episodes` on it as a process of its own and measures it; with a Chromium on the path also how long the page loads.

    python benchmarks/report.py --folder /tmp/bench --arms 50 --steps 40 --episodes 32

The episodes are one batch played by a player that calls at random, written anew for every step.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from internalize.evals.play_metrics import play_metrics
from internalize.files import digest, write_jsonl, write_text
from internalize.games import make_game
from internalize.harness.episode import EpisodePlan, write_episodes
from internalize.harness.inprocess import play
from internalize.inputs import RECEIPTS, segment_path
from internalize.language.template import Template
from internalize.receipts import Receipt, write_receipt
from internalize.report import summary, tables
from internalize.report.data import eval_folder, load
from internalize.report.evidence import MADE
from internalize.report.publish import publish
from internalize.seeds import rng
from internalize.store import Input, Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "report"))
from browser import Browser, find
from disk import GAME, Babbler, SamplingParams

SFT_STEPS = 2
TRAINED = ("loss", "ce_loss", "pg_loss", "kl_loss", "grad_norm", "clip_fraction", "ratio_mean", "logprob_abs_diff")


class Maker:
    """Writes the study, an entry after the other."""

    def __init__(self, folder: Path, arms: int, steps: int, episodes: int) -> None:
        self.store, self.results = Store(folder / "store"), folder / "results"
        self.arms = {f"arm_{at:02d}" if at else "none": self._told(steps) for at in range(arms)}
        self.receipts: dict[str, Receipt] = {}
        self.draw = rng("report benchmark", arms, steps, episodes)
        game = make_game(**GAME)
        template = Template.of(game)
        plans = [
            EpisodePlan(f"r-g{i // 4:03d}-{i % 4}", 1 + i // 4 % 4, 50 + i // 4, i // 4, i % 4) for i in range(episodes)
        ]
        engine = Babbler(template, ["left@N", "wipe@S", "top@N", "red@b"])
        engine.slots = episodes
        sampling = SamplingParams(1.0, 32, (template.stop_id,))
        self.batch = folder / "batch"
        played = play(engine, game, template, plans, sampling=sampling, seed_key=("bench",))
        write_episodes(self.batch, played)
        self.measures = play_metrics(played, game)
        template.vocab.write(self.batch / "base")

    @staticmethod
    def _told(steps: int) -> dict[str, Any]:
        return {"phases": ["sft"] * SFT_STEPS + ["rl"] * (steps - SFT_STEPS), "seeds": [0], "rows": "teacher_turns"}

    def commit(self, label: str, path: Path, fill: Any, parents: tuple[str, ...] = (), **more: Any) -> None:
        stage = label.partition(".")[0]
        key = digest(label)
        folder = self.store.partial(stage, key)
        fill(folder)
        told = {"stage": stage, "name": label, "key": key, "spec": {"label": label, **more}, "code": "c0de"}
        run = {"wall_s": 2.0, "cpu_s": 1.5, "cpu_parts_s": {"play": 0.5, "train": 0.25}, "peak_rss_mib": 400}
        hashes = {name: self.receipts[name].hash() for name in parents}
        made = self.store.commit(folder, **told, parents=hashes, facts={}, status="done", run=run)
        write_receipt(self.results / "receipts" / path, made)
        self.receipts[label] = made

    def study(self) -> None:
        self.commit("base", Path("base.json"), lambda at: shutil.copytree(self.batch / "base", at, dirs_exist_ok=True))
        self.commit("knowledge", Path("knowledge.json"), lambda at: write_jsonl(at / "ledger.jsonl", []), game=GAME)
        self.commit("gate", Path("gate.json"), lambda at: write_text(at / "gate.json", "{}"), ("base", "knowledge"))
        self.commit("evals.base", Path("evals/base.json"), lambda at: self._evals(at, [-1], {-1}), ("base",))
        for arm, told in self.arms.items():
            self.arm(arm, told["phases"])
        self.report()

    def arm(self, arm: str, phases: list[str]) -> None:
        last = len(phases) - 1
        for step, phase in enumerate(phases):
            path = Path(segment_path(arm, 0, 0, last)).relative_to(RECEIPTS).with_name(f"step{step:04d}.json")
            before = (f"step.{arm}.0.{step - 1:04d}",) if step else ("base", "gate")
            self.commit(f"step.{arm}.0.{step:04d}", path, partial(self._step, step=step, phase=phase), before)
        mine = tuple(f"step.{arm}.0.{step:04d}" for step in range(last + 1))
        fill = partial(self._evals, steps=list(range(last + 1)), played={SFT_STEPS - 1, last})
        self.commit(f"evals.{arm}.0", Path(f"evals/{arm}/seed0.json"), fill, mine)

    def _noisy(self, row: dict[str, Any]) -> dict[str, Any]:
        return {k: v * (0.8 + 0.4 * self.draw.random()) if isinstance(v, float) else v for k, v in row.items()}

    def _step(self, at: Path, step: int, phase: str) -> None:
        head = {"step": step, "phase": phase, "seed": 0}
        rows = [{**head, "kind": "train", **{key: self.draw.random() for key in TRAINED}}]
        if phase == "rl":
            rows.insert(0, {**head, "kind": "rollout", **self._noisy(self.measures), "silent_group_share": 0.1})
            self._episodes(at)
        write_jsonl(at / "metrics.jsonl", rows)

    def _evals(self, at: Path, steps: list[int], played: set[int]) -> None:
        probe = dict.fromkeys(tables._probe_keys(), 1.0)
        rows = [{"step": step, "phase": "rl", "kind": "probe", **self._noisy(probe)} for step in steps]
        rows += [{"step": step, "phase": "rl", "kind": "eval", **self._noisy(self.measures)} for step in sorted(played)]
        for step in played:
            self._episodes(at / eval_folder(step))
        write_jsonl(at / "metrics.jsonl", rows)

    def _episodes(self, at: Path) -> None:
        at.mkdir(parents=True, exist_ok=True)
        for path in self.batch.glob("*.jsonl*"):
            shutil.copyfile(path, at / path.name)

    def report(self) -> None:
        spec = {"name": "large", "arms": self.arms, "order": list(self.arms)}
        data = load(spec, {name: Input(one, self.store.root / one.entry) for name, one in self.receipts.items()})
        made = {name: make(data) for name, make in MADE.items()}
        folder = self.store.partial("report", digest("report"))
        for name, text in summary.files(data, made, []).items():
            write_text(folder / name, text)
        told: dict[str, Any] = {"stage": "report", "name": "report", "key": digest("report"), "spec": spec, "code": ""}
        parents = {label: receipt.hash() for label, receipt in self.receipts.items()}
        receipt = self.store.commit(folder, **told, parents=parents, facts={}, status="done", run={"wall_s": 1.0})
        write_receipt(self.results / "receipts/report.json", receipt)
        publish(self.store, {one.hash(): one for one in self.receipts.values()}, receipt, self.results)


def main() -> None:
    """Builds, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="emptied first")
    for name, default in (("arms", 50), ("steps", 40), ("episodes", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    Maker(given.folder, given.arms, given.steps, given.episodes).study()
    command = [sys.executable, "-m", "internalize.cli", "page", "--all-episodes"]
    start = time.perf_counter()
    subprocess.run(command, cwd=given.folder, check=True)
    wall = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    page = given.folder / "results/report/index.html"
    side = [path.stat().st_size for path in page.with_name("episodes").iterdir()]
    found: dict[str, Any] = {
        "page_mb": round(page.stat().st_size / 1e6, 2),
        "side_files": len(side),
        "side_mb": round(sum(side) / 1e6, 1),
        "largest_side_file_mb": round(max(side) / 1e6, 3),
        "wall_s": round(wall, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_mib": used.ru_maxrss // 1024,
    }
    if (program := find()) is not None:
        found |= opened(program, page)
    print(json.dumps(found, indent=1))


def opened(program: str, page: Path) -> dict[str, Any]:
    """Seconds until the page has loaded, and until all its plots are drawn."""
    browser = Browser(program)
    try:
        browser.look(1280, 900, False)
        browser.open(page)
        start = time.perf_counter()
        browser.ask("Promise.all(plots.all.map((one) => plots.draw(one, true)))")
        drawn = time.perf_counter() - start
        timing = browser.ask("performance.getEntriesByType('navigation')[0].loadEventEnd")
        return {"load_s": round(timing / 1000, 2), "plots_s": round(drawn, 2), "complaints": browser.complaints()}
    finally:
        browser.close()


if __name__ == "__main__":
    main()
