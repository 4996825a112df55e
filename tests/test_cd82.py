"""config/cd82.yaml is the published record: its phrases have keys, its runs a place, its iterations jobs."""

# ruff: noqa: RUF001, the record writes dashes and crosses

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from internalize import specs
from internalize.schedule import cite_weights, own_phases, phases, resets
from internalize.study import Study, load_study, resolved_arm, runnable_arms
from internalize.study_arms import Arm
from internalize.workflow import Plan

STUDY = "config/cd82.yaml"

RUNS = """act_ctrl act_ctrl-cc baseline baseline-cc baseline-cc-fail-6536263 baseline-cc-fail-6545990
baseline-cc-fail-6547610 baseline-cc-old-20260914 baseline-memrepro-A baseline-memrepro-C baseline-qc baseline-qcshake
baseline-shaped baseline-v2 cd82-play-v1-fail-6546650 cd82-play-v2 cd82-play-v3 cd82-play-v4 cd82-play-v4a cd82-play-v4b
curatedL1_check dbg-forge-default dbg-forge-norope dbg-forward dbg-forward-norope dbg-probe dbg-probe-disk
dbg-probe-nccl mask_knowledge memrepro sft_first sft_first-cc sft_first-claimform sft_first-curatedL1 sft_first-v2
sft_first-v3 sft_first_armc-cc sft_first_armc-cc6 sft_first_decl-cc sft_first_decl-cc2 sft_first_decl-cc3
sft_first_decl-cc4 sft_first_idd sft_first_idd-cc sft_freq_decl-cc sft_inter_decl-cc sft_inter_decl-cc2 sft_interleaved
sft_interleaved-claimform sft_joint sft_joint-cc sft_joint-claimform sft_joint-v2 shakedown shakedown-baseline
shakedown-sft_joint""".split()  # noqa: SIM905
"""Every folder below `runs/` in the record's table of contents."""

# phrase of the record -> key in the file -> value
SETTINGS: list[tuple[str, str, Any]] = [
    ("ARC-AGI-3 game cd82-fb555c5d", "game.kind", "arc"),
    ("ARC-AGI-3 game cd82-fb555c5d", "game.id", "cd82-fb555c5d"),
    ("levels 1–4 for training with level_cap 1", "game.level_cap", 1),
    ("levels 1–4 for training with level_cap 1", "rollout.levels", [1, 2, 3, 4]),
    ("into the weights of Qwen3.8-27B", "base.repo", "Qwen/Qwen3.8-27B"),
    ("into the weights of Qwen3.8-27B", "base.parameters", 27_000_000_000),
    ("every effect is on a single seed band", "seeds", [0]),
    ("Each RL rollout plays 32 episodes", "rollout.episodes", 32),
    ("through the Claude Code harness", "rollout.harness.type", "claude-code"),
    ("through the Claude Code harness", "evals.harness.type", "claude-code"),
    ("recorded harness turns", "harvests.teacher.harness.type", "claude-code"),
    ("takes 8 optimizer steps (global batch 4", "rl.optimizer_steps", 8),
    ("lr 5e-6", "rl.lr", 5e-6),
    ("lr 5e-6", "sft.lr", 5e-6),
    ("Dr.GRPO: per-token loss, no std normalisation", "rl.normaliser.type", "tokens"),
    ("Adam moments are reset at every SFT → RL boundary", "rl.frozen_adam", False),
    ("Megatron-LM TP4 × PP4", "defaults.parallel.tensor", 4),
    ("Megatron-LM TP4 × PP4", "defaults.parallel.pipeline", 4),
    ("16 SGLang engines", "defaults.parallel.engines", 16),
    ("16 SGLang engines", "engine.type", "sglang"),
    ("tp=1 matches HF", "engine.tensor", 1),
    ("engines as slime-actor", "engine.served_as", "slime-actor"),
    ("recite rows written by a teacher that had the knowledge in context", "rows.teacher_turns.type", "recite"),
    ("actctrl rows of the base model's own turns", "rows.own_turns.type", "actctrl"),
    ("replay rows", "rows.replayed_turns.type", "replay"),
    ("knowledge sentences inserted at the top of full-length base-model thinks", "rows.armc_turns.type", "armc"),
    ("written by a teacher that had the knowledge in context", "harvests.teacher.policy", "teacher"),
    ("the base model's own turns", "harvests.own.policy", "base"),
    ("Declarative chat rows that end with a text answer", "rows.decl_text.ending", "text"),
    ("declarative rows (tool-call ending)", "rows.decl_call.ending", "tool_call"),
    ("with the 61-claim QA rows", "rows.qa61.limit", 61),
    ("claimform", "rows.claimform.type", "claimform"),
    ("sft_nostance = the stance-stripped pair", "rows.stripped_turns.type", "nostance"),
    ("curatedL1", "rows.curated_level1.levels", [1]),
    ("mask_knowledge", "rows.masked_turns.type", "mask_knowledge"),
]

# run -> (status, phases of its own steps, what the record says)
REPORTED: dict[str, tuple[str, str, str]] = {
    "baseline-cc": ("valid", "r" * 12, "baseline-cc (12 RL rollouts); iter11"),
    "sft_first_idd-cc": ("valid", "ss" + "r" * 7, "iter8: IDD, 2 SFT + 7 RL rollouts"),
    "act_ctrl-cc": ("valid", "ssrr", "iter3: 2 SFT + 2 RL"),
    "sft_first_armc-cc": ("valid", "sss", "arm C sft_first_armc-cc 0/1/2"),
    "sft_first_armc-cc6": ("valid", "sssr", "then sft_first_armc-cc6 3/4/5; iter6: 6 SFT warm-ups + 1 RL rollout"),
    "sft_first_decl-cc4": ("valid", "sssr", "iter2 SFT-only, iter3: same + 1 RL rollout"),
}
SFT_ONLY = {
    "sft_first_armc-cc": [0, 1, 2],
    "sft_first_armc-cc6": [3, 4, 5],
    "sft_first_idd-cc": [0, 1],
    "act_ctrl-cc": [0, 1],
    "sft_first_decl-cc4": [0, 1, 2],
}
"""series.md: the SFT-only iterations."""
STATUSES = {
    "negative": "sft_first_decl-cc sft_first_decl-cc2 sft_inter_decl-cc2",
    "prepared": "sft_first_decl-cc3 sft_inter_decl-cc sft_freq_decl-cc armc_inter armc_freq idd_v2",
    "superseded": "sft_first-cc sft_joint-cc baseline-cc-old-20260914 baseline sft_first sft_interleaved sft_joint "
    "sft_first-claimform sft_interleaved-claimform sft_joint-claimform baseline-v2 sft_first-v2 sft_joint-v2 "
    "sft_first-v3 baseline-shaped sft_first-curatedL1",
}
IN_PROCESS = (
    "baseline sft_first sft_interleaved sft_joint sft_first-claimform sft_interleaved-claimform sft_joint-claimform "
    "baseline-v2 sft_first-v2 sft_joint-v2 sft_first-v3 baseline-shaped sft_first-curatedL1"
)
JOBS = {"harvest": 2, "rows": 11, "segment": 38, "evals": 38}


@pytest.fixture(scope="module")
def study(repository: Path) -> Study:
    return load_study(repository / STUDY)


@pytest.fixture(scope="module")
def arms(study: Study) -> dict[str, Arm]:
    return {name: resolved_arm(study, name) for name in study.arms}


def letters(order: list[Any]) -> str:
    return "".join(phase[0] for phase in order)


@pytest.mark.parametrize(("phrase", "key", "value"), SETTINGS, ids=[f"{key}: {phrase}" for phrase, key, _ in SETTINGS])
def test_every_setting_of_the_record_is_in_the_file(study: Study, phrase: str, key: str, value: Any) -> None:
    found: Any = study.plain()
    for part in key.split("."):
        found = found[part]
    assert found == value, phrase


def test_the_global_batch_is_four_episodes(study: Study) -> None:
    assert study.rollout.episodes // study.rl.optimizer_steps == 4
    assert study.sft.batch_turns == 4


def test_the_harness_is_the_cli_of_the_record() -> None:
    from internalize.harness.claude_code import ClaudeCode

    assert ClaudeCode.version == "2.1.270", "CLI 2.1.270"


def test_sixteen_gpus_hold_the_ranks_of_each_arm(arms: dict[str, Arm]) -> None:
    assert {arm.parallel.ranks for arm in arms.values()} == {4 * 4}


@pytest.mark.parametrize("name", REPORTED)
def test_the_reported_arms_have_the_steps_of_the_record(arms: dict[str, Arm], name: str) -> None:
    status, order, source = REPORTED[name]
    assert (arms[name].status, letters(own_phases(arms[name]))) == (status, order), source


def test_sft_only_iterations_are_those_of_the_series(arms: dict[str, Arm]) -> None:
    for name, expected in SFT_ONLY.items():
        order, before = phases(arms[name]), len(arms[name].inherited)
        assert [step for step in range(before, len(order)) if order[step] == "sft"] == expected


def test_cite_weights_rise_to_32_over_both_parts_of_arm_c(arms: dict[str, Arm]) -> None:
    first, second = arms["sft_first_armc-cc"], arms["sft_first_armc-cc6"]
    assert cite_weights(first) + cite_weights(second)[3:6] == [1, 8, 32, 32, 32, 32]
    assert second.continues == first.name
    assert [step for step, reset in enumerate(resets(phases(second))) if reset] == [6], (
        "Adam is reset before the RL rollout"
    )


def test_frozen_adam_variants_never_reset(arms: dict[str, Arm]) -> None:
    frozen = [arm for arm in arms.values() if arm.rl.frozen_adam]
    assert [arm.name for arm in frozen] == ["sft_first_idd-cc-frozen-adam", "act_ctrl-cc-frozen-adam"]
    assert not any(reset for arm in frozen for reset in resets(phases(arm), arm.rl.frozen_adam))


@pytest.mark.parametrize("status", STATUSES)
def test_runs_have_the_status_of_the_record_and_a_reason(arms: dict[str, Arm], status: str) -> None:
    for name in STATUSES[status].split():
        assert (name, arms[name].status) == (name, status)
        assert arms[name].reason


def test_all_that_is_not_valid_says_why(study: Study, arms: dict[str, Arm]) -> None:
    assert [arm.name for arm in arms.values() if arm.status != "valid" and not arm.reason] == []
    assert all(entry.reason for entry in study.registry)


def test_every_run_of_the_record_has_one_place(study: Study) -> None:
    registered = [run for entry in study.registry for run in entry.runs]
    assert [run for run in RUNS if (run in study.arms) + registered.count(run) != 1] == []
    ours = {"softlabel", "sft_first_nostance", "sft_first_replay", "armc_inter", "armc_freq", "idd_v2"}
    variants = {"sft_first_idd-cc-frozen-adam", "act_ctrl-cc-frozen-adam"}
    assert set(study.arms) - set(RUNS) == ours | variants


def test_in_process_arms_are_played_in_process(study: Study, arms: dict[str, Arm]) -> None:
    for name in IN_PROCESS.split():
        spec = specs.segment(study, arms[name], 0, 0, arms[name].steps - 1)
        assert "harness" not in spec["rollout"], name
    spec = specs.segment(study, arms["baseline-cc"], 0, 0, 11)
    assert spec["rollout"]["harness"]["type"] == "claude-code"


def test_the_recorded_runs_left_84_iterations(study: Study) -> None:
    left = [arm for arm in runnable_arms(study) if arm.status != "prepared"]
    assert sum(arm.steps for arm in left) == 84
    assert sum(REPORTED[name][1].count("r") for name in REPORTED) == 12 + 7 + 2 + 0 + 1 + 1


def test_jobs_of_each_arm_one_a_step(study: Study, arms: dict[str, Arm], repository: Path) -> None:
    plan = Plan(study, repository, steps_per_job=1)
    for name, arm in plan.arms.items():
        before = len(arm.inherited)
        assert plan.segments(arm) == [(step, step) for step in range(before, before + arm.steps)], name
    assert "mask_knowledge" not in plan.arms, "a diagnostic is run when it is named"
    assert list(Plan(load_study(repository / STUDY, arms="mask_knowledge"), repository).arms) == ["mask_knowledge"]


def test_a_continued_arm_starts_from_the_other_arms_last_step(study: Study, repository: Path) -> None:
    from types import SimpleNamespace

    plan = Plan(study, repository, steps_per_job=1)
    inputs = plan.segment_inputs(SimpleNamespace(arm="sft_first_armc-cc6", seed="0", first="0003", last="0003"))
    assert [Path(path).parts[-4:] for path in inputs["previous"]] == [
        ("sft_first_armc-cc", "seed0", "steps0002-0002", "step0002.json")
    ]
    chosen = load_study(repository / STUDY, arms="armc_inter")
    assert list(chosen.arms) == ["sft_first_armc-cc", "sft_first_armc-cc6", "armc_inter"], (
        "what it continues comes along"
    )


def test_the_dry_run_plans_every_rule(repository: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "-s",
        str(repository / "Snakefile"),
        "--directory",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "--configfile", str(repository / STUDY)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    counted = Counter({name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", text, re.M)})
    once = ("fetch_game", "base", "knowledge", "gate", "evals_base", "report")
    assert {name: counted[name] for name in (*JOBS, *once)} == {**JOBS, **dict.fromkeys(once, 1)}


def test_planning_imports_nothing_heavy(repository: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from internalize.workflow import Plan; from internalize.study import "
        f"load_study; plan = Plan(load_study(Path({str(repository / STUDY)!r})), Path({str(repository)!r}));"
        "[plan.spec(name) for name in ('knowledge', 'gate', 'segment')]; plan.targets(); plan.code('segment');"
        "from internalize.costs.estimate import estimate; from internalize.store import Store;"
        "estimate(plan, Store(Path('store')));"
        "print(*sorted({'torch', 'numpy', 'arcengine', 'arc_agi', 'megatron', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_both_ways_to_name_the_study_give_one_plan(repository: Path) -> None:
    import yaml

    path = repository / STUDY
    file = yaml.safe_load(path.read_text())
    as_file = Plan.from_config({**file, "steps_per_job": 3}, repository, [path])
    as_word = Plan.from_config({"study": str(path), "steps_per_job": 3}, repository)
    assert as_file.study == as_word.study
    assert as_file.words == as_word.words
    one = Plan.from_config({**file, "arms": "idd_v2"}, repository, [path])
    assert list(one.arms) == ["sft_first_idd-cc", "idd_v2"]


def test_the_bundled_study_has_none_of_the_new_keys(repository: Path) -> None:
    study = load_study(repository / "config/bundled.yaml")
    made = [specs.knowledge(study), specs.gate(study), specs.evals(study, [0]), specs.base(study, None)]
    made += [specs.rows(study, name) for name in study.rows] + [specs.harvest(study, name) for name in study.harvests]
    for name in study.arms:
        arm = resolved_arm(study, name)
        made.append(specs.segment(study, arm, 0, 0, arm.steps - 1))
    text = str([*made, specs.report(study, runnable_arms(study))])
    for key in ("engine", "parallel", "harness", "limit", "continues", "reason", "reference", "inherited"):
        assert f"'{key}'" not in text


def test_the_file_is_readable(repository: Path) -> None:
    lines = (repository / STUDY).read_text().splitlines()
    assert len(lines) <= 400
    assert max(map(len, lines)) <= 120
