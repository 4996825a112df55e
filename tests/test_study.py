"""A study that loads can be run; one that cannot says where, what and how to put it right."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from internalize.errors import StudyError
from internalize.files import canonical_json
from internalize.study import Study, load_study, resolved_arm, runnable_arms, study_schema

CONFIGS = ("bundled", "bundled-cli", "mini")
SCHEMA_LINE = "# yaml-language-server: $schema=./study.schema.json"

Write = Callable[[Callable[[dict[str, Any]], None]], Path]


@pytest.fixture
def write(tmp_path: Path, repository: Path) -> Write:
    """Writes the mini study after a change to its data."""
    data = yaml.safe_load((repository / "config/mini.yaml").read_text())

    def changed(change: Callable[[dict[str, Any]], None]) -> Path:
        change(data)
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(data, sort_keys=False))
        return path

    return changed


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        *above, last = path.split(".")
        for key in above:
            data = data.setdefault(key, {})
        data[last] = value

    return change


@pytest.mark.parametrize("name", CONFIGS)
def test_shipped_studies_load_and_point_to_their_schema(repository: Path, name: str) -> None:
    path = repository / f"config/{name}.yaml"
    assert path.read_text().splitlines()[0] == SCHEMA_LINE
    study = load_study(path)
    assert study.name == name.replace("-", "_")
    assert Study.model_validate(json.loads(canonical_json(study.plain()))) == study


def test_the_bundled_study_is_what_it_claims(repository: Path) -> None:
    path = repository / "config/bundled.yaml"
    assert len(path.read_text().splitlines()) <= 130
    study = load_study(path)
    controls, declarative = ["none", "act_ctrl"], ["decl_text_same", "decl_text_other", "decl_call"]
    assert list(study.arms) == [
        *controls,
        "recite",
        "arm_c",
        *declarative,
        "interleaved",
        "joint",
        "softlabel",
    ]
    assert len(study.seeds) >= 3
    assert resolved_arm(study, "arm_c").cite_weight == [1, 8, 32]
    assert resolved_arm(study, "recite").sft.lr == study.sft.lr


def test_the_schema_in_the_repository_is_the_current_one(repository: Path) -> None:
    written = json.loads((repository / "config/study.schema.json").read_text())
    assert written == study_schema(), (
        "regenerate it: python -c 'from internalize.study import write_schema; write_schema()'"
    )


def test_the_schema_explains_every_key() -> None:
    schema = study_schema()
    silent = [
        f"{name}.{key}"
        for name, model in {**schema["$defs"], "Study": schema}.items()
        for key, field in model["properties"].items()
        if not field.get("description") and key not in ("type", "kind")
    ]
    assert not silent


def test_an_arm_is_merged_with_defaults_and_study(write: Write) -> None:
    study = load_study(
        write(
            put(
                "arms.more",
                {"rows": "teacher_turns", "sft": {"lr": 0.25}, "schedule": {"steps": 2, "type": "sft_first"}},
            )
        )
    )
    arm = resolved_arm(study, "more")
    assert (arm.sft.lr, arm.sft.batch_turns, arm.steps, arm.rows) == (
        0.25,
        study.sft.batch_turns,
        2,
        {"teacher_turns": 1.0},
    )
    assert arm.seeds == study.seeds
    assert resolved_arm(study, "none").schedule.plain() == {"type": "none"}, "the default's `steps` must not leak in"


def test_rows_by_name_list_and_share(write: Write) -> None:
    shares = {"teacher_turns": 0.75, "inserted_facts": 0.25}
    for given, expected in (
        ("teacher_turns", {"teacher_turns": 1.0}),
        (["teacher_turns", "inserted_facts"], {"teacher_turns": 1.0, "inserted_facts": 1.0}),
        (shares, shares),
    ):
        assert resolved_arm(load_study(write(put("arms.recite.rows", given))), "recite").rows == expected


def test_prepared_arms_are_declared_but_not_run(write: Write) -> None:
    study = load_study(write(put("arms.recite.status", "prepared")))
    assert "recite" in study.arms
    assert [arm.name for arm in runnable_arms(study)] == ["none", "arm_c"]


def test_arms_are_chosen_by_name(repository: Path) -> None:
    path = repository / "config/bundled.yaml"
    assert list(load_study(path, arms="recite none").arms) == ["none", "recite"]
    assert list(load_study(path, arms=["joint"]).arms) == ["joint"]
    with pytest.raises(StudyError, match="unknown arm `recit`") as caught:
        load_study(path, arms="none recit")
    assert "did you mean `recite`?" in str(caught.value)


def test_overrides_are_typed_and_checked(repository: Path) -> None:
    path = repository / "config/mini.yaml"
    study = load_study(path, set=["rl.lr=2e-4", "arms.recite.steps=5", "base.prebuilt=null", "seeds=[3, 4]"])
    assert (study.rl.lr, study.base.prebuilt, study.seeds) == (2e-4, None, [3, 4])
    assert resolved_arm(study, "recite").steps == 5
    for override, word in (
        ("rl.lr=fast", "rl.lr=fast"),
        ("rl.le=1", "did you mean"),
        ("rl.lr", "malformed"),
        ("name.x=1", "has no keys"),
    ):
        with pytest.raises(StudyError) as caught:
            load_study(path, set=[override])
        assert word in str(caught.value)
        assert override in caught.value.where


BAD: list[tuple[str, Any, str, list[str]]] = [
    ("rl.learning_rate", 1e-4, "rl.learning_rate", ["unknown key `learning_rate`", "optimizer_steps, lr"]),
    ("evalz", {}, "evalz", ["unknown key `evalz`", "did you mean `evals`?"]),
    ("rl.lr", "fast", "rl.lr", ["`lr`", "a valid number", '"fast" (text)']),
    ("rl.optimizer_steps", 2.5, "rl.optimizer_steps", ["a valid integer", "2.5 (a number)"]),
    ("rl.optimizer_steps", True, "rl.optimizer_steps", ["a valid integer", "true (true or false)"]),
    ("sft.lr", -1, "sft.lr", ["greater than 0", "-1"]),
    ("game.rules.stations.N", "up", "game.rules.stations.N", ["`up`", "left, right, top"]),
    ("game.rules.stations.N", "trap", "game.rules.stations", ["every thing once", "NE: trap"]),
    ("game.kind", "dipweel", "game.kind", ["did you mean `dipwheel`?"]),
    (
        "rows.teacher_turns.type",
        "recit",
        "rows.teacher_turns.type",
        ["unknown type `recit`", "did you mean `recite`?"],
    ),
    (
        "rows.teacher_turns.harvests",
        "own",
        "rows.teacher_turns.harvests",
        ["did you mean `harvest`?", "type, harvest"],
    ),
    (
        "rows.teacher_turns.harvest",
        "teachr",
        "rows.teacher_turns.harvest",
        ["unknown harvest", "did you mean `teacher`?"],
    ),
    (
        "rows.cut",
        {"type": "curated", "of": "teacher", "levels": [1]},
        "rows.cut.of",
        ["unknown row set `teacher`"],
    ),
    ("rows.loop", {"type": "mask_knowledge", "of": "loop"}, "rows.loop.of", ["circle", "loop <- loop"]),
    ("rows.teacher_turns", {"harvest": "own"}, "rows.teacher_turns", ["`type` is missing"]),
    ("arms.recite.row", "teacher_turns", "arms.recite.row", ["arm `recite`", "did you mean `rows`?"]),
    (
        "arms.recite.rows",
        "teacher_turn",
        "arms.recite.rows",
        ["arm `recite`", "did you mean `teacher_turns`?"],
    ),
    ("arms.recite.rows", 3, "arms.recite.rows", ["arm `recite`", "a row set's name"]),
    ("arms.recite.sft", {"lrr": 1}, "arms.recite.sft.lrr", ["arm `recite`", "did you mean `lr`?"]),
    ("arms.recite.rl", {"lr": "x"}, "arms.recite.rl.lr", ["arm `recite`", "a valid number"]),
    (
        "arms.recite.rl",
        {"optimizer_steps": 3},
        "arms.recite.rl.optimizer_steps",
        ["divide the 8 episodes", "2, 4, 8"],
    ),
    ("arms.recite.schedule", {"type": "sft_frist"}, "arms.recite.schedule.type", ["did you mean `sft_first`?"]),
    (
        "arms.recite.schedule",
        {"type": "sft_first", "step": 1},
        "arms.recite.schedule.step",
        ["did you mean `steps`?"],
    ),
    (
        "arms.recite.schedule",
        {"type": "sft_first", "steps": 3},
        "arms.recite.schedule.steps",
        ["3 SFT steps do not fit into 2"],
    ),
    (
        "arms.recite.schedule",
        {"type": "sft_interleaved", "every": 1},
        "arms.recite.schedule.every",
        ["`every: 2` or more"],
    ),
    (
        "arms.recite.schedule",
        {"type": "sft_freq", "sft": 2, "of": 2},
        "arms.recite.schedule.sft",
        ["leave no RL step"],
    ),
    (
        "arms.recite.schedule",
        {"type": "sft_joint", "fraction": 1.0},
        "arms.recite.schedule.fraction",
        ["between 0 and 1"],
    ),
    (
        "arms.recite.schedule",
        {"type": "sft_joint", "fraction": 0.5, "warmup": 3},
        "arms.recite.schedule.warmup",
        ["warm-up of 3"],
    ),
    ("arms.recite.rows", None, "arms.recite.schedule", ["no rows to train on", "add `rows: ...`"]),
    ("arms.none.rows", "teacher_turns", "arms.none.rows", ["no SFT step", "drop `rows`"]),
    ("arms.arm_c.cite_weight", [1, 8], "arms.arm_c.cite_weight", ["2 cite weights for 1 steps", "list of 1"]),
    ("arms.arm_c.cite_weight", [-1], "arms.arm_c.cite_weight", ["a positive number"]),
    ("arms.arm_c.steps", "two", "arms.arm_c.steps", ["arm `arm_c`", "a valid integer"]),
    ("arms.Recite", {}, "arms.Recite", ["cannot be a name", "lower-case"]),
    ("arms", {}, "arms", ["at least 1 item"]),
    ("rollout.group_size", 3, "rollout.group_size", ["divide the 8 episodes"]),
    ("rl.optimizer_steps", 5, "rl.optimizer_steps", ["divide the 8 episodes"]),
    ("rollout.levels", [0], "rollout.levels", ["greater than or equal to 1"]),
    ("defaults.steps", None, "arms.none", ["arm `none`", "`steps`"]),
    ("guard.text_end_share", 2, "guard.text_end_share", ["less than or equal to 1"]),
    ("base.recipe", {"layer": 2}, "base.recipe.layer", ["did you mean `layers`?"]),
    ("seeds", [], "seeds", ["at least 1 item"]),
]


@pytest.mark.parametrize(("path", "value", "place", "words"), BAD, ids=[f"{b[0]}={b[1]}" for b in BAD])
def test_bad_studies(write: Write, path: str, value: Any, place: str, words: list[str]) -> None:
    file = write(put(path, value))
    with pytest.raises(StudyError) as caught:
        load_study(file)
    text = str(caught.value)
    line = caught.value.where.removeprefix(f"{file}:").partition(",")[0]
    assert caught.value.where.partition(", ")[2].startswith(place)
    at = file.read_text().splitlines()[int(line) - 1]
    assert any(part in at for part in (*place.split("."), "- 0")), at
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [a", ["not valid YAML", ":1"]),
        ("name: a\n  game: 3\n", ["not valid YAML", ":2"]),
        ("name: a\nseeds: [0]\nname: b\n", ["`name` stands twice", "first on line 1, again on line 3"]),
        ("- a\n", ["a study is a mapping", "list"]),
        ("", ["a study is a mapping"]),
        ("name: !!python/object:os.system x\n", ["YAML tag", "not supported"]),
        ("? [a, b]\n: 1\n", ["a key must be a word"]),
    ],
)
def test_bad_yaml(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(StudyError) as caught:
        load_study(path)
    for word in words:
        assert word in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such study file"):
        load_study(tmp_path / "nowhere.yaml")


def test_numbers_and_words_are_those_of_yaml_1_2(tmp_path: Path, repository: Path) -> None:
    text = (repository / "config/mini.yaml").read_text()
    path = tmp_path / "study.yaml"
    path.write_text(text.replace("rl: {optimizer_steps: 2}", "rl: {optimizer_steps: 2, lr: 5e-5}") + "    note: no\n")
    study = load_study(path)
    assert study.rl.lr == 5e-5
    assert study.arms["arm_c"].note == "no"


def test_reading_a_study_imports_nothing_heavy() -> None:
    heavy = ("torch", "pandas", "transformers", "megatron", "numpy", "scipy", "matplotlib")
    code = f"import sys, internalize.workflow; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
