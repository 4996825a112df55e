"""The study file as typed settings: what is trained, on what, how it is measured.

Invariant: a `Study` that loads can be run: every key is known, every name in it exists, every arm is possible
once merged with the defaults. This module imports nothing heavy; the workflow reads it at every parse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from internalize.base.recipe import Recipe
from internalize.evals.guard import GuardThresholds
from internalize.files import write_json
from internalize.study_arms import Arm, ArmDefaults, ArmEntry, RlSettings, Seeds, SftSettings
from internalize.study_checks import check_arm, check_study, unknown_name
from internalize.study_errors import study_error
from internalize.study_model import Count, Levels, Name, Seed, Settings, Share
from internalize.study_rows import Rows
from internalize.study_yaml import Source, read_source

Region = Literal["left", "right", "top", "bottom", "wipe", "trap"]
Colour = Literal["red", "green", "blue"]


class DipWheelRules(Settings):
    """The hidden rule set that the study wants known."""

    stations: dict[Literal["N", "NE", "SE", "S", "SW", "NW"], Region]
    """Station -> region that its dip fills; every region once."""
    pots: dict[Literal["a", "b", "c"], Colour]
    """Pot -> colour in it; every colour once."""


class Game(Settings):
    """The game that is played."""

    kind: Literal["dipwheel"]
    """Which game."""
    rules: DipWheelRules
    """Its hidden rules."""


class HeldOut(Settings):
    """What training never sees, so that the probes can measure it."""

    subjects: list[str] = []
    """Subjects (regions, colours) whose atoms are held out."""
    atom_fraction: Share = 0.0
    """Share of the other atoms held out at random."""
    forms: list[Literal["declarative", "qa", "cloze", "claimform", "paraphrase"]] = ["paraphrase"]
    """Recall forms that no row uses."""


class Exploration(Settings):
    """Play that candidates of knowledge are drawn from."""

    episodes: Count = 200
    """Episodes of random play."""
    seed: Seed = 0
    """Their seed."""


class Knowledge(Settings):
    """Verification of the knowledge set."""

    trials: Count = 24
    """Trials a claim."""
    min_counted: Count = 5
    """Trials that must be applicable and discriminating before a claim can be verified."""
    seed: Seed = 0
    """Seed of the trials."""
    held_out: HeldOut = HeldOut()
    """Atoms and forms kept for the probes."""
    exploration: Exploration = Exploration()
    """Traces that candidates come from."""


class Gate(Settings):
    """Bounds that the base must meet on held-out rules before any arm is trained."""

    teacher_clears_min: Share = 0.9
    """Least share of levels cleared with the knowledge in the prompt."""
    base_clears_max: Share = 0.1
    """Greatest share cleared without it."""
    wrong_rules_clears_max: Share = 0.1
    """Greatest share cleared with another rule set in the prompt."""
    episodes: Count = 384
    """Episodes a side."""
    seed: Seed = 7
    """Their seed."""


class Base(Settings):
    """The base model."""

    prebuilt: str | None = None
    """Folder of a prebuilt base (relative to the study file's repository), or null to meta-train one."""
    recipe: Recipe = Recipe()
    """Meta-training, when there is no prebuilt base for this game."""
    gate: Gate = Gate()
    """Bounds."""


class Harvest(Settings):
    """Episodes recorded for the row builds."""

    policy: Literal["teacher", "base"]
    """`teacher`: the base with the knowledge in its prompt; `base`: without."""
    episodes: Count
    """Episodes."""
    seed: Seed = 0
    """Their seed."""


class Rollout(Settings):
    """How episodes are played for RL."""

    episodes: Count = 32
    """Episodes a rollout."""
    group_size: Annotated[int, Field(ge=2)] = 4
    """Episodes that share a level and its seed; their mean return is the baseline."""
    levels: Levels = [1, 2, 3, 4]
    """Levels, in turn."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Sampling temperature; log-probs are taken at it too."""
    max_new_tokens: Count = 32
    """Tokens a reply may have."""


class Evals(Settings):
    """Measurements after the steps."""

    episodes: Count = 128
    """Episodes of a play eval."""
    every: Count = 1
    """Steps between evals; the last step is always measured."""
    seed: Seed = 1000
    """Their seed, the same for all arms, so that arms are compared on the same episodes."""
    levels: Levels = [1, 2, 3, 4]
    """Levels, in turn."""


class Study(Settings):
    """A study file."""

    name: Name
    """Name of the study; it heads the report."""
    game: Game
    """The game."""
    seeds: Seeds
    """Seeds that every arm is run with."""
    knowledge: Knowledge = Knowledge()
    """The knowledge set."""
    base: Base = Base()
    """The base model and its gate."""
    harvests: dict[Name, Harvest] = {}
    """Recorded play, by name."""
    rows: dict[Name, Rows] = {}
    """Row sets, by name."""
    rollout: Rollout = Rollout()
    """RL rollouts."""
    rl: RlSettings = RlSettings()
    """RL updates."""
    sft: SftSettings = SftSettings()
    """SFT updates."""
    guard: GuardThresholds = GuardThresholds()
    """Thresholds of the collapse guard: an arm that breaks one is stopped and keeps its last good step."""
    evals: Evals = Evals()
    """Evals."""
    defaults: ArmDefaults = ArmDefaults()
    """Settings of every arm that does not set them itself."""
    arms: Annotated[dict[Name, ArmEntry], Field(min_length=1)]
    """Arms, by name."""


def load_study(path: Path, *, arms: Sequence[str] | str | None = None, set: Sequence[str] = ()) -> Study:
    """Reads, overrides and checks a study file.

    Args:
        path: the YAML file.
        arms: names of the arms to keep (a sequence, or one string with blanks between); None keeps all.
        set: assignments such as `rl.lr=2e-4`, applied in order.

    Raises:
        StudyError: the file, an override or the choice of arms is wrong; it names line, key, value and fix.
    """
    source = read_source(path)
    for assignment in set:
        source.override(assignment)
    try:
        study = Study.model_validate(source.data)
    except ValidationError as error:
        raise study_error(Study, error, source) from error
    check_study(study, source)
    for name in study.arms:
        check_arm(_resolve(study, name, source), study, source)
    if arms is None:
        return study
    chosen = arms.split() if isinstance(arms, str) else list(arms)
    for name in chosen:
        if name not in study.arms:
            raise unknown_name("arm", name, study.arms, "arms to run")
    if not chosen:
        raise unknown_name("arm", "", study.arms, "arms to run")
    kept = {name: entry for name, entry in study.arms.items() if name in chosen}
    return study.model_copy(update={"arms": kept})


def resolved_arm(study: Study, name: str) -> Arm:
    """The arm merged with the defaults and the study's `sft`, `rl` and `seeds`.

    Raises:
        StudyError: no such arm, or the merged arm is incomplete.
    """
    if name not in study.arms:
        raise unknown_name("arm", name, study.arms, "arms")
    return _resolve(study, name, Source(Path(study.name), {}))


def runnable_arms(study: Study) -> list[Arm]:
    """The arms that the workflow runs, in file order: all but the `prepared` ones."""
    arms = [resolved_arm(study, name) for name in study.arms]
    return [arm for arm in arms if arm.status != "prepared"]


def _resolve(study: Study, name: str, source: Source) -> Arm:
    merged: dict[str, Any] = {
        "rows": {},
        "seeds": study.seeds,
        "cite_weight": 1.0,
        "status": "valid",
        "note": "",
        "sft": study.sft.plain(),
        "rl": study.rl.plain(),
        "parallel": {},
    }
    for layer in (study.defaults, study.arms[name]):
        given = layer.model_dump()
        for key, value in given.items():
            merged[key] = _merge(merged.get(key), value) if key in ("sft", "rl", "schedule", "parallel") else value
    merged["rows"] = merged["rows"] or {}
    merged["name"] = name
    try:
        return Arm.model_validate(merged)
    except ValidationError as error:
        raise study_error(Arm, error, source, below=("arms", name), data=merged) from error


def _merge(old: Any, new: Any) -> Any:
    """Key by key, except that a new `type` replaces the whole of a tagged union."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    if "type" in new and new["type"] != old.get("type"):
        return new
    return {**old, **{key: _merge(old.get(key), value) for key, value in new.items()}}


def study_schema() -> dict[str, Any]:
    """JSON Schema of study files, for editors; `config/study.schema.json` is a copy, kept by a test."""
    schema = Study.model_json_schema()
    return {**schema, "title": "internalize study file"}


def write_schema(path: Path = Path("config/study.schema.json")) -> None:
    """Writes the schema where editors look for it."""
    write_json(path, study_schema())
