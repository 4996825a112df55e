"""A study that cannot run says so once, in words, before the first job."""

from __future__ import annotations

from pathlib import Path

import pytest
from workbench import Bench, check_out

CASES = {
    "unknown key": (("set=rl.learning_rate=1e-4",), "unknown key `learning_rate`"),
    "wrong type": (("set=rl.lr=fast",), "a valid number"),
    "unknown rows": (("set=arms.recite.rows=teacher_turn",), "did you mean `teacher_turns`?"),
    "impossible schedule": (("set=defaults.schedule.steps=9",), "9 SFT steps do not fit into 2 steps"),
    "unknown arm": (("arms=none recit",), "did you mean `recite`?"),
    "unknown config key": (("arm=none",), "did you mean `arms`?"),
    "no such study": (("study=config/nowhere.yaml",), "no such study file"),
    "segment length": (("steps_per_job=0",), "a whole number from 1 on"),
    "no prebuilt base": (("set=base.prebuilt=prebuilt/nothing",), "no prebuilt base here"),
}


@pytest.fixture(scope="module")
def empty(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    root = tmp_path_factory.mktemp("bad")
    check_out(repository, root / "checkout")
    (root / "work").mkdir()
    return Bench(root / "checkout", root / "work")


@pytest.mark.parametrize(("config", "words"), CASES.values(), ids=CASES)
def test_bad_input(empty: Bench, config: tuple[str, ...], words: str) -> None:
    arms = None if config[0].startswith("arms=") else "none recite"
    status, text = empty.snakemake(arms=arms, config=config)
    assert status != 0
    assert text.count(words) == 1
    assert "Traceback" not in text
    assert not (empty.work / "results").exists()


def test_a_broken_study_file_names_its_line(empty: Bench) -> None:
    study = empty.work / "mine.yaml"
    study.write_text("name: mine\nseeds: [0\narms: {}\n")
    status, text = empty.snakemake(arms=None, config=("study=mine.yaml",))
    assert status != 0
    assert "not valid YAML" in text
    assert "mine.yaml:" in text
    assert "Traceback" not in text
