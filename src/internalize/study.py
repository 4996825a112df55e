"""The study file as typed settings: what is trained, on what, how it is measured.

Invariant: a `Study` that loads can be run: every key is known, every name in it exists, every arm is possible
once merged with the defaults. This module imports nothing heavy; the workflow reads it at every parse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from internalize.evals.guard import GuardThresholds
from internalize.files import write_json
from internalize.schedule import phases
from internalize.study_archive import ArchiveSettings
from internalize.study_arms import Arm, ArmDefaults, ArmEntry, RlSettings, Seeds, SftSettings
from internalize.study_base import AnyBase, Base
from internalize.study_checkpoints import Convert, Retention
from internalize.study_checks import check_arm, check_continuation, check_study, unknown_name
from internalize.study_cost import Budget, Cost
from internalize.study_diagnostics import Diagnostics
from internalize.study_engine import Engine, LocalEngine
from internalize.study_errors import study_error
from internalize.study_games import Game
from internalize.study_harness import Played
from internalize.study_model import STATUSES, Count, Levels, Name, Seed, Settings, Share, Status
from internalize.study_numerics import Numerics
from internalize.study_registry import Recorded
from internalize.study_rows import Rows
from internalize.study_yaml import Source, read_source

MERGED = ("sft", "rl", "schedule", "parallel")
"""Settings of an arm that are merged key by key with those of the study and the defaults."""


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
    wording: Literal["sentences"] | None = None
    """`sentences`: said in English, for a base with an open vocabulary; null: in the game's own words."""

    @model_serializer(mode="wrap")
    def _default_left_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        if self.wording is None:
            written.pop("wording", None)
        return written


class Harvest(Played):
    """Episodes recorded for the row builds."""

    policy: Literal["teacher", "base"]
    """`teacher`: the base with the knowledge in its prompt; `base`: without."""
    episodes: Count
    """Episodes."""
    seed: Seed = 0
    """Their seed."""


class Rollout(Played):
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
    max_context: Annotated[int, Field(ge=64)] | None = None
    """Most tokens of an episode, of a row and of what an engine serves; null: 512."""

    @model_serializer(mode="wrap")
    def _defaults_left_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        for key in ("harness", "max_context"):
            if getattr(self, key) is None:
                written.pop(key, None)
        return written


class Evals(Played):
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
    base: AnyBase = Base()
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
    budget: Budget | None = None
    """What the study may use; null: no limit."""
    cost: Cost = Cost()
    """What its jobs are taken to cost until they have been measured."""
    guard: GuardThresholds = GuardThresholds()
    """Thresholds of the collapse guard: an arm that breaks one is stopped and keeps its last good step."""
    evals: Evals = Evals()
    """Evals."""
    engine: Engine = LocalEngine(type="local")
    """What serves the policy."""
    run: Annotated[list[Status], Field(min_length=1)] = ["valid", "negative", "superseded", "diagnostic"]
    """Arms with these statuses are run; an arm that is asked for by name is run whatever its status."""
    reference: Name | None = None
    """Arm that the report compares the others with; null: `none`."""
    registry: list[Recorded] = []
    """Runs that are known but not planned."""
    numerics: Numerics | None = None
    """Numeric gates in front of the arms (docs/numerics.md); null or left out: none."""
    diagnostics: Diagnostics | None = None
    """Limits of running jobs (docs/diagnostics.md); null or left out: the defaults. Changes no result."""
    convert: Convert | None = None
    """Checkpoints that become Hugging Face model folders; none unless given."""
    retention: Retention | None = None
    """Checkpoints that `internalize prune` keeps; all unless given."""
    archive: ArchiveSettings = ArchiveSettings()
    """What is packed, and its names and licence when published."""
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
    chosen += [name for arm in chosen for name in _ancestors(study, arm)]
    kept = {name: entry for name, entry in study.arms.items() if name in chosen}
    return study.model_copy(update={"arms": kept, "run": list(STATUSES)})


def resolved_arm(study: Study, name: str) -> Arm:
    """The arm merged with the defaults and the study's `sft`, `rl` and `seeds`.

    Raises:
        StudyError: no such arm, or the merged arm is incomplete.
    """
    if name not in study.arms:
        raise unknown_name("arm", name, study.arms, "arms")
    return _resolve(study, name, Source(Path(study.name), {}))


def runnable_arms(study: Study) -> list[Arm]:
    """The arms that the workflow runs, in file order: those whose status is in `run`, and what they continue."""
    arms = {name: resolved_arm(study, name) for name in study.arms}
    wanted = [name for name, arm in arms.items() if arm.status in study.run]
    wanted += [before for name in wanted for before in _ancestors(study, name)]
    return [arm for name, arm in arms.items() if name in wanted]


def _resolve(study: Study, name: str, source: Source) -> Arm:
    merged: dict[str, Any] = {
        "rows": {},
        "seeds": study.seeds,
        "cite_weight": 1.0,
        "continues": None,
        "status": "valid",
        "note": "",
        "sft": study.sft.plain(),
        "rl": study.rl.plain(),
        "parallel": {},
        "harness": study.rollout.harness,
    }
    for layer in (study.defaults, study.arms[name]):
        given = layer.model_dump()
        for key, value in given.items():
            merged[key] = _merge(merged.get(key), value) if key in MERGED else value
    merged["rows"] = merged["rows"] or {}
    merged["name"] = name
    if merged["continues"] is not None:
        check_continuation(study, name, source)
        merged["inherited"] = phases(_resolve(study, merged["continues"], source))
    try:
        return Arm.model_validate(merged)
    except ValidationError as error:
        raise study_error(Arm, error, source, below=("arms", name), data=merged) from error


def _ancestors(study: Study, name: str) -> list[str]:
    """The arms that an arm continues, directly or not."""
    found: list[str] = []
    before = study.arms[name].continues
    while before is not None:
        found.append(before)
        before = study.arms[before].continues
    return found


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
