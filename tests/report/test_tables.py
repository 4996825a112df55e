"""Tables on a synthetic study whose numbers are worked out by hand."""

from __future__ import annotations

import pytest

from internalize.errors import UserError
from internalize.report import tables
from internalize.report.data import load
from internalize.report.intervals import wilson


@pytest.fixture
def data(study):
    return load(study.spec(), study.inputs)


def row(rows, arm):
    return next(row for row in rows if row["arm"] == arm)


def test_the_records_table(data):
    rows = tables.sft_only(data)
    assert [r["arm"] for r in rows] == ["none", "recite", "idle", "broken"]
    none, recite = row(rows, "none"), row(rows, "recite")
    # first rollouts of both seeds, 8 episodes each
    assert (none["rollout_clears"], none["rollout_episodes"]) == (2, 16)
    assert (recite["rollout_clears"], recite["rollout_episodes"]) == (12, 16)
    assert none["rollout_return"] == pytest.approx((2 * 1.0 - 14 * 0.2) / 16)
    assert recite["rollout_return"] == pytest.approx((12 * 1.0 - 4 * 0.2) / 16)
    bounds = wilson(12, 16)
    assert (recite["rollout_clears_low"], recite["rollout_clears_high"]) == (bounds.low, bounds.high)
    assert recite["rollout_return_low"] < recite["rollout_return"] < recite["rollout_return_high"]
    assert recite["rollout_diff"] == pytest.approx(recite["rollout_return"] - none["rollout_return"])
    # the eval after the last SFT step: seed 0 clears 12 of 16, seed 1 13 of 16; the base 1 of 16
    assert (recite["eval_clears"], recite["eval_episodes"]) == (25, 32)
    assert recite["eval_by_seed"] == "+0.700 +0.775"
    assert recite["eval_diff"] == pytest.approx(1.2 * (25 / 32 - 1 / 16))
    assert recite["eval_diff_noise"] is False
    assert recite["nll_play"] == pytest.approx(0.4)
    assert recite["margin_play"] == pytest.approx(3.6)


def test_the_base_counts_once(data):
    """Every seed of an arm without SFT starts at the same base: 16 episodes, not 32."""
    none = row(tables.sft_only(data), "none")
    assert (none["eval_clears"], none["eval_episodes"]) == (1, 16)
    assert none["eval_diff"] is None
    assert none["eval_diff_noise"] is None


def test_noise_is_marked(data):
    idle = row(tables.sft_only(data), "idle")
    assert idle["eval_diff"] == 0.0
    assert idle["eval_diff_noise"] is True
    assert idle["rollout_diff"] == pytest.approx(-0.15)


def test_a_stopped_arm_keeps_what_it_has(data):
    broken = row(tables.sft_only(data), "broken")
    assert broken["stopped"].startswith("seed 0 at step 1: 60.0% of the episodes")
    assert broken["status"] == "negative"
    assert (broken["eval_clears"], broken["eval_episodes"]) == (0, 32)
    assert broken["rollout_return"] is None  # the stopped step has no payload here
    assert broken["rollout_clears"] is None
    end = row(tables.final(data), "broken")
    assert end["steps"] == 1
    assert end["rl_gain"] == 0.0


def test_final_and_gain(data):
    recite = row(tables.final(data), "recite")
    assert (recite["eval_clears"], recite["eval_episodes"], recite["steps"]) == (32, 32, 4)
    assert recite["eval_diff"] == pytest.approx(1.0 - (2 * 1.0 - 14 * 0.2) / 16)
    assert recite["rl_gain"] == pytest.approx(1.0 - (0.7 + 0.775) / 2)
    none = row(tables.final(data), "none")
    assert none["rl_gain"] == pytest.approx(1.2 / 16)  # one more of 16 levels, against the base
    assert none["rl_gain_noise"] is True
    assert none["nll_play"] == pytest.approx(1.4)


def test_trajectories(data):
    rows = [r for r in tables.trajectories(data) if r["arm"] == "recite"]
    assert [(r["step"], r["rollout"], r["phase"], r["seeds"]) for r in rows] == [
        (2, 0, "rl", 2),
        (3, 1, "rl", 2),
    ]
    assert rows[0]["return"] == pytest.approx(0.7)
    assert rows[1]["return"] == rows[1]["return_low"] == rows[1]["return_high"] == 1.0
    assert rows[0]["seed_min"] == rows[0]["seed_max"] == pytest.approx(0.7)
    assert rows[0]["recital_share"] == 0.25
    assert rows[0]["loss"] == 1.0
    assert not [r for r in tables.trajectories(data) if r["arm"] == "broken"]


def test_knowledge_rows_start_with_the_base(data):
    rows = [r for r in tables.knowledge(data) if r["arm"] == "recite"]
    assert [(r["step"], r["phase"], r["nll_play"]) for r in rows] == [
        *[(-1, "base", 1.5), (0, "sft", 1.0), (1, "sft", 0.4), (3, "rl", 0.2)]
    ]


def test_behaviour(data):
    recite = row(tables.behaviour(data), "recite")
    assert recite["first_calls_per_episode"] == recite["final_calls_per_episode"] == 4.0
    assert recite["first_look_share"] is None


@pytest.mark.parametrize(
    ("phases", "meaning"),
    [
        (["rl", "rl"], "the base: no SFT"),
        (["sft", "sft", "rl"], "after 2 SFT steps"),
        (["sft", "rl", "rl", "sft", "rl"], "after the first 1 SFT step of 2"),
        (["joint", "joint"], "the base: SFT and RL are joint from the first step on"),
        (["sft", "joint"], "after the warm-up of 1 SFT step"),
        (["sft", "sft"], "after all 2 SFT steps (no RL)"),
    ],
)
def test_what_the_first_rollout_plays(synthetic, phases, meaning):
    made = synthetic()
    made.arm("arm", phases)
    assert load(made.spec(), {}).arms["arm"].meaning() == meaning


def test_joint_arms_start_at_the_reference(study):
    study.arm("joint", ["joint", "joint"], seeds=(0, 1))
    for seed in (0, 1):
        study.step("joint", seed, 0, [(True, 1.0), *[(False, -0.2)] * 7])
        study.evals(f"evals.joint.{seed}", {0: ([(True, 1.0)] * 16, {}), 1: ([(True, 1.0)] * 16, {})})
    joint = row(tables.sft_only(load(study.spec(), study.inputs)), "joint")
    assert joint["eval_same"] is True  # the same measurement: there is no difference to speak of
    assert joint["eval_diff"] is None
    assert joint["eval_episodes"] == 16


def test_a_partial_study_is_compared_with_the_base(study):
    """`make study ARMS=recite`: no reference arm, but the base's eval is there."""
    spec = study.spec()
    spec["arms"] = {"recite": spec["arms"]["recite"]}
    inputs = {k: v for k, v in study.inputs.items() if ".none." not in k and ".idle." not in k and ".broken." not in k}
    recite = row(tables.sft_only(load(spec, inputs)), "recite")
    assert recite["eval_diff"] == pytest.approx(1.2 * (25 / 32 - 1 / 16))
    assert recite["rollout_diff"] is None


def test_an_unknown_input_is_refused(study):
    study.add("surprise")
    with pytest.raises(UserError, match="does not know this input"):
        load(study.spec(), study.inputs)
