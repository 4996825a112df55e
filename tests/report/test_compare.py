"""Two sides held against each other: arms of one study, two runs of it, and mixtures."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from disk import Disk
from typer.testing import CliRunner

from internalize.cli import app
from internalize.errors import UserError
from internalize.report.compare import compare, different, text
from internalize.report.sides import Side, read_side


@pytest.fixture(scope="module")
def side(disk: Disk):
    """Reads a side by its word; `@` is the study's results folder."""

    def read(word: str) -> Side:
        return read_side(word.replace("@", str(disk.results)), disk.results, disk.store)

    return read


def test_two_arms_of_one_study(side):
    found = compare(side("recite"), side("none"))
    assert {policy.arms for policy in found.policies} == {("recite", "none")}
    end = next(one for one in found.policies if (one.policy, one.measure) == ("at the end, eval", "clears"))
    # 16 of 16 and 2 of 16 in both seeds
    assert (end.one, end.other, end.seeds) == (1.0, 2 / 16, 2)
    assert end.difference is not None
    assert end.difference.value == pytest.approx(14 / 16)
    assert not end.noise
    assert [(one.seed, one.step) for one in found.partings] == [(0, 0), (1, 0)]
    assert found.partings[0].what == "phase sft against rl"
    assert ("recite / none", "schedule", "sft_first, steps 2", None) in found.settings


def test_a_difference_is_the_reports_own(side, disk: Disk):
    """The SFT-only policy against the reference, as table sft_only has it but for the key of the resampling."""
    found = compare(side("recite"), side("none"))
    (row,) = [one for one in found.policies if (one.policy, one.measure) == ("before RL, eval", "return")]
    table = (disk.results / "tables/sft_only.csv").read_text().splitlines()
    columns = table[0].split(",")
    told = dict(zip(columns, next(line for line in table if line.startswith("recite,")).split(","), strict=False))
    assert row.difference is not None
    assert row.difference.value == pytest.approx(float(told["eval_diff"]), abs=1e-6)
    assert row.difference.low == pytest.approx(float(told["eval_diff_low"]), abs=0.1)


def test_a_study_equals_itself(side):
    found = compare(side("@"), side("@"))
    assert found.settings == []
    assert {one.step for one in found.partings} == {None}
    assert {one.arms for one in found.partings} == {(arm, arm) for arm in ("none", "recite", "idle", "broken")}
    assert all(one.difference is not None and one.difference.value == 0 for one in found.policies)
    assert all(one.noise for one in found.policies)


def test_the_first_step_that_differs_is_named(side):
    one, other = side("@:recite"), side("@:recite")
    other.data.arms["recite"].runs[1].steps[2].train["loss"] = 0.5
    other.data.arms["recite"].runs[1].steps[3].rollout["clears"] = 1
    found = compare(one, other)
    assert [(part.seed, part.step) for part in found.partings] == [(0, None), (1, 2)]
    assert found.partings[1].what == "train: loss 1.0 against 0.5"
    del other.data.arms["recite"].runs[0].steps[3]
    assert "only" in compare(one, other).partings[0].what


def test_settings_that_differ(side):
    left = {"sft": {"lr": 1e-4, "batch": 8}, "seeds": [0, 1], "rows": {}}
    right = {"sft": {"lr": 2e-4, "batch": 8}, "rows": {"a": 1.0}}
    assert list(different(left, right)) == [
        ("rows", {}, None),
        ("rows.a", None, 1.0),
        ("seeds", [0, 1], None),
        ("sft.lr", 1e-4, 2e-4),
    ]
    one = side("@")
    other = replace(one, study={"rl": {"lr": 2e-4}}, settings={**one.settings, "none": {"steps": 3}})
    told = compare(one, other).settings
    assert ("study", "rl.lr", None, 2e-4) in told
    assert any(name == "none" and key == "steps" for name, key, *_ in told)


def test_an_arm_against_a_whole_run(side):
    found = compare(side("recite"), side("@"))
    assert {one.arms for one in found.policies} == {("recite", "recite")}
    with pytest.raises(UserError, match="the other side has no such arm"):
        compare(side("recite"), replace(side("@"), arms=["none", "idle"]))
    with pytest.raises(UserError, match="no arm in common"):
        compare(replace(side("@"), arms=["none", "idle"]), replace(side("@"), arms=["recite", "broken"]))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("recit", "did you mean `recite`"),
        ("/nowhere:recite", "no such folder"),
        ("@/receipts", "neither results nor an"),
    ],
)
def test_a_side_that_is_none(side, word: str, said: str):
    with pytest.raises(UserError, match=said):
        side(word)


def test_the_command(disk: Disk, tmp_path: Path):
    """A copy of the results beside a copy of the store is another run."""
    shutil.copytree(disk.results, tmp_path / "results")
    shutil.copytree(disk.store, tmp_path / "store")
    options = ["--results", str(disk.results), "--store", str(disk.store)]
    done = CliRunner().invoke(app, ["compare", str(disk.results), str(tmp_path / "results"), *options])
    assert done.exit_code == 0, done.output
    assert "- recite, seed 0 1: never: equal in every metric of every step" in done.output
    assert "- none" in done.output.split("Settings that differ")[1]
    done = CliRunner().invoke(app, ["compare", "recite", "none", "--json", *options])
    told = json.loads(done.output)
    assert told["names"] == ["recite", "none"]
    assert {one["noise"] for one in told["policies"]} <= {True, False}


def test_noise_is_said_in_words(side):
    told = text(compare(side("idle"), side("none")))
    (line,) = [line for line in told.splitlines() if "before RL, eval | return" in line]
    assert line.split("|")[6].strip() == "+0.00 [+0.00, +0.00] (inside the noise)"
