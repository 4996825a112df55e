"""What types cannot say: names that must exist, schedules that must fit.

Invariant: each check raises before the first job, names the key in the file and says how to put it right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from internalize.errors import StudyError
from internalize.schedule import own_phases
from internalize.study_arms import Arm, NoSft, SftFirst, SftFreq, SftInterleaved, SftJoint
from internalize.study_base import Base, HubBase
from internalize.study_errors import nearest
from internalize.study_games import DipWheelGame
from internalize.study_parallel import complaints, model_complaints
from internalize.study_rows import harvest_of, parent_of
from internalize.study_yaml import KeyPath, Source

if TYPE_CHECKING:
    from internalize.study import Study


SECTION = {"arm": "arms", "row set": "rows", "harvest": "harvests"}


def unknown_name(kind: str, name: str, known: Iterable[str], where: str, *, of: str = "") -> StudyError:
    """The error for a `name` that is no `kind` of this study; `of` opens the sentence."""
    names = list(known)
    return StudyError(
        f"{of}unknown {kind} `{name}`" if name else f"{of}no {kind} named",
        where=where,
        expected=f"one of: {', '.join(names)}" if names else f"a {kind}, but the study has none",
        got=name,
        fix=nearest(name, names) or f"add it under `{SECTION[kind]}`",
    )


def check_study(study: Study, source: Source) -> None:
    """Names that harvests, rows and the game mention, and sizes that must divide.

    Raises:
        StudyError: the first that does not hold.
    """
    rules = study.game.rules if isinstance(study.game, DipWheelGame) else None
    for part, count in (("stations", 6), ("pots", 3)) if rules else ():
        given: dict[str, str] = getattr(rules, part)
        if len(set(given.values())) != count:
            raise StudyError(
                f"`{part}` must give every place one thing, and every thing once",
                where=source.where(("game", "rules", part)),
                got=", ".join(f"{place}: {thing}" for place, thing in given.items()),
                fix=f"name all {count}, each once",
            )
    if rules and isinstance(study.base, HubBase) and study.knowledge.wording is None:
        raise StudyError(
            "a base with an open vocabulary cannot read the words of this game",
            where=source.where(("base",)),
            expected="knowledge.wording: sentences",
            fix="say it, and the knowledge is told in English",
        )
    for name, rows in study.rows.items():
        harvest, parent = harvest_of(rows), parent_of(rows)
        if harvest is not None and harvest not in study.harvests:
            raise unknown_name("harvest", harvest, study.harvests, source.where(("rows", name, "harvest")))
        if parent is not None and parent not in study.rows:
            raise unknown_name("row set", parent, study.rows, source.where(("rows", name, "of")))
        _check_no_circle(study, name, source)
    if study.reference is not None and study.reference not in study.arms:
        raise unknown_name("arm", study.reference, study.arms, source.where(("reference",)))
    named = set(study.arms)
    for index, entry in enumerate(study.registry):
        for name in entry.runs:
            if name in named:
                where = source.where(("registry", index, "runs"))
                raise StudyError(f"the run `{name}` is named twice", where=where, fix="keep one of the two")
            named.add(name)
    episodes = study.rollout.episodes
    _check_divides(study.rollout.group_size, episodes, ("rollout", "group_size"), source)
    _check_divides(study.rl.optimizer_steps, episodes, ("rl", "optimizer_steps"), source)


def check_continuation(study: Study, name: str, source: Source) -> None:
    """What an arm continues exists, and is not, in the end, the arm itself.

    Raises:
        StudyError: otherwise; it names the arm.
    """
    seen, at = [name], study.arms[name].continues
    while at is not None:
        where = source.where(("arms", seen[-1], "continues"))
        if at not in study.arms:
            raise unknown_name("arm", at, study.arms, where, of=f"arm `{seen[-1]}`: ")
        if at in seen:
            fix = "let one of them start from the base"
            raise StudyError("arms continue each other in a circle", where=where, got=" <- ".join([*seen, at]), fix=fix)
        seen.append(at)
        at = study.arms[at].continues


def check_arm(arm: Arm, study: Study, source: Source) -> None:
    """Rows that exist, a schedule that fits its steps and rows.

    Raises:
        StudyError: the first that does not hold; it names the arm.
    """
    at: KeyPath = ("arms", arm.name)
    for name in arm.rows:
        if name not in study.rows:
            raise unknown_name("row set", name, study.rows, source.where((*at, "rows")), of=f"arm `{arm.name}`: ")
    complaint = _schedule_complaint(arm)
    if complaint:
        what, key, fix = complaint
        raise StudyError(f"arm `{arm.name}`: {what}", where=source.where((*at, *key)), got=_describe(arm), fix=fix)
    _check_divides(arm.rl.optimizer_steps, study.rollout.episodes, (*at, "rl", "optimizer_steps"), source)
    check_parallel(arm, study, source)


def check_parallel(arm: Arm, study: Study, source: Source, model: Mapping[str, int] | None = None) -> None:
    """Parallel sizes that divide the batches, and the model where its sizes are known.

    Args:
        model: sizes by their names in config.json; None takes them from the recipe, if the base is made by it.

    Raises:
        StudyError: the first that does not hold.
    """
    order = set(own_phases(arm))
    plays, reads = order != {"sft"}, order != {"rl"}
    if model is None and isinstance(study.base, Base) and study.base.prebuilt is None:
        recipe = study.base.recipe
        model = {
            "num_hidden_layers": recipe.layers,
            "num_attention_heads": recipe.heads,
            "num_key_value_heads": recipe.kv_heads,
            "intermediate_size": recipe.intermediate_size,
        }
    found = [
        *complaints(
            arm.parallel,
            episodes=study.rollout.episodes if plays else None,
            batch_episodes=study.rollout.episodes // arm.rl.optimizer_steps if plays else None,
            batch_turns=arm.sft.batch_turns if reads else None,
        ),
        *model_complaints(arm.parallel, model or {}),
    ]
    for what, key, fix in found:
        where = source.where(("arms", arm.name, "parallel", key))
        got = f"{key}: {getattr(arm.parallel, key)}"
        raise StudyError(f"arm `{arm.name}`: {what}", where=where, got=got, fix=fix)


def _schedule_complaint(arm: Arm) -> tuple[str, KeyPath, str] | None:
    """What is impossible about the arm's schedule, the key to blame, and what to do; None when it is fine."""
    match arm.schedule:
        case SftFirst(steps=count) if count > arm.steps:
            what = f"{count} SFT steps do not fit into {arm.steps} steps"
            return what, ("schedule", "steps"), f"raise the arm's `steps` to {count} or more"
        case SftInterleaved(every=every) if every < 2:
            what = f"an SFT step before each {every} RL step is strict alternation, `every` starts at 2"
            return (
                what,
                ("schedule", "every"),
                "write `every: 2` or more, or `{type: sft_freq, sft: 1, of: 2}`",
            )
        case SftFreq(sft=count, of=block) if count >= block:
            what = f"{count} SFT steps leave no RL step in a block of {block}"
            return what, ("schedule", "sft"), f"set `sft` below {block}, or use `sft_first`"
        case SftJoint(fraction=fraction) if not 0 < fraction < 1:
            what = f"a fraction of {fraction} is not between 0 and 1"
            return what, ("schedule", "fraction"), "for example `fraction: 0.5`"
        case SftFreq(warmup=warmup) | SftJoint(warmup=warmup) if warmup > arm.steps:
            what = f"a warm-up of {warmup} does not fit into {arm.steps} steps"
            return what, ("schedule", "warmup"), f"raise the arm's `steps` to {warmup} or more"
        case _:
            pass
    if isinstance(arm.schedule, NoSft):
        if arm.rows:
            what = "it names rows, but its schedule has no SFT step to read them"
            return what, ("rows",), "drop `rows`, or choose a schedule with SFT"
    elif not arm.rows:
        return "its schedule has SFT steps, but no rows to train on", ("schedule",), "add `rows: ...`"
    if isinstance(arm.cite_weight, list):
        reading = sum(phase != "rl" for phase in own_phases(arm))
        if len(arm.cite_weight) != reading:
            what = f"{len(arm.cite_weight)} cite weights for {reading} steps that read rows"
            return what, ("cite_weight",), f"give one number, or a list of {reading}"
    return None


def _describe(arm: Arm) -> str:
    schedule = ", ".join(f"{key}: {value}" for key, value in arm.schedule.plain().items())
    return f"schedule {{{schedule}}}, steps: {arm.steps}, rows: {', '.join(arm.rows) or 'none'}"


def _check_divides(part: int, whole: int, keys: KeyPath, source: Source) -> None:
    if whole % part:
        fitting = [n for n in range(2, whole + 1) if whole % n == 0]
        raise StudyError(
            f"`{keys[-1]}` must divide the {whole} episodes of a rollout",
            where=source.where(keys),
            expected=f"one of: {', '.join(map(str, fitting))}",
            got=str(part),
            fix="change it, or `rollout.episodes`",
        )


def _check_no_circle(study: Study, name: str, source: Source) -> None:
    seen, at = [name], parent_of(study.rows[name])
    while at is not None and at in study.rows:
        if at in seen:
            raise StudyError(
                "row sets are cut from each other in a circle",
                where=source.where(("rows", name, "of")),
                got=" <- ".join([*seen, at]),
                fix="let one of them be built from a harvest",
            )
        seen.append(at)
        at = parent_of(study.rows[at])
