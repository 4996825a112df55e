"""The study whose episodes agent CLIs play, from end to end: Claude Code plays the rollout, Qwen Code the evals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from clis import installed
from workbench import Bench, check_out

from internalize.checkpoints.torch_dist import read_hf
from internalize.engine.protocol import SamplingParams
from internalize.files import read_json, read_jsonl
from internalize.games import make_game
from internalize.harness.choose import AGENTS
from internalize.harness.episode import Episode, read_episodes
from internalize.harness.inprocess import InProcess
from internalize.rollout.actor import load_engine
from internalize.rollout.plans import rollout_plans
from internalize.study import load_study

pytestmark = pytest.mark.cli

SETTINGS = (
    "arms.recite.steps=2",
    "rollout.episodes=4",
    "rollout.group_size=2",
    "evals.episodes=1",
    "evals.harness.type=qwen-code",
    "harvests.teacher.episodes=16",
    "base.gate.episodes=32",
    "base.gate.base_clears_max=0.5",
)
CONFIG = ("study=config/bundled-cli.yaml", f"set={' '.join(SETTINGS)}")
LOGS = {"claude-code": "claude.log", "qwen-code": "qwen.log"}
FILES = {"calls.jsonl", "journal.jsonl", "transcript.jsonl", "settings.json", "mcp.json"}


def _payload(bench: Bench, receipt: str) -> Path:
    return bench.work / "store" / read_json(bench.work / "results/receipts" / receipt)["entry"]


def _comparable(episodes: list[Episode]) -> list[Any]:
    return [(e.plan, e.reason, [(c.prompt_ids, c.output_ids) for c in e.calls], e.journal, e.outcome) for e in episodes]


def _records_agree(work: Path, episodes: list[Episode], agent: str) -> None:
    """One folder an episode, with all of its files, which say what `episodes` says."""
    assert {path.name for path in work.iterdir()} == {e.plan.id for e in episodes}
    for episode in episodes:
        place = work / episode.plan.id
        assert {path.name for path in place.iterdir()} == FILES | {LOGS[agent]}
        calls = list(read_jsonl(place / "calls.jsonl"))
        assert [(c["prompt_ids"], c["output_ids"]) for c in calls] == [
            (c.prompt_ids, c.output_ids) for c in episode.calls
        ]
        assert list(read_jsonl(place / "journal.jsonl")) == episode.journal
        assert episode.prefix_extending
        settings = read_json(place / "settings.json")
        assert (settings["agent"], settings["version"]) == (agent, AGENTS[agent]().version)


def test_the_study_that_agents_play(repository: Path, tmp_path: Path) -> None:
    for name in sorted(AGENTS):
        installed(name)
    check_out(repository, tmp_path / "checkout")
    (tmp_path / "work").mkdir()
    bench = Bench(tmp_path / "checkout", tmp_path / "work")
    bench.run(arms=None, config=CONFIG)
    study = load_study(repository / "config/bundled-cli.yaml", set=SETTINGS)

    # the rollout: every episode counts, and is the one that the same weights play in process
    segment = "arms/recite/seed0/steps0000-0001"
    step = _payload(bench, f"{segment}/step0001.json")
    played = read_episodes(step)
    _records_agree(step / "work", played, "claude-code")
    game = make_game(**study.game.plain())
    engine, template, config = load_engine(repository / "prebuilt/dipwheel", slots=4, game=game)
    engine.update_weights(read_hf(_payload(bench, f"{segment}/step0000.json") / "iter_0000000", config), "step0000")
    plans = rollout_plans(0, 0, 4, 2, study.rollout.levels)
    sampling = SamplingParams(study.rollout.temperature, study.rollout.max_new_tokens, (template.stop_id,))
    expected = InProcess(engine, game, template, sampling).play(plans, seed_key=("rollout", 0, 0))
    assert _comparable(played) == _comparable(expected)
    assert {call.weight_version for e in played for call in e.calls} == {"step0000"}
    rows = {row["kind"]: row for row in read_jsonl(step / "metrics.jsonl")}
    assert (rows["rollout"]["episodes"], rows["rollout"]["invalid_episodes"]) == (4, 0)
    assert rows["train"]["logprob_abs_diff"] < 1e-5

    # the evals
    for receipt, labels in (
        ("evals/base.json", ["step-base"]),
        ("evals/recite/seed0.json", ["step-0000", "step-0001"]),
    ):
        payload = _payload(bench, receipt)
        for label in labels:
            episodes = read_episodes(payload / "episodes" / label)
            assert [e.reason for e in episodes] == [None]
            _records_agree(payload / "work" / label, episodes, "qwen-code")

    # what differs from run to run is no part of a receipt
    receipt = json.loads((bench.work / "results/receipts" / f"{segment}/step0001.json").read_text())
    assert not [file for file in receipt["files"] if file["path"].startswith("work/")]
    assert len(read_json(step / "run.json")["work"]) == 4 * (len(FILES) + 1)
    assert bench.planned(arms=None, config=CONFIG) == set()
