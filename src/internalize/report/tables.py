"""The tables of the study: every cell with its interval, every difference with its verdict.

Invariant: one function makes one table as a list of flat rows; markdown, CSV and figures all print those
rows. A number that was not measured is None and prints as a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from internalize.report.data import ArmRuns, Played, Run, Step, StudyData, sample
from internalize.report.intervals import (
    Interval,
    Sample,
    bootstrap_mean,
    inside_noise,
    paired_difference,
    pool,
    wilson,
)

Row = dict[str, Any]
Source = Literal["rollout", "eval"]
Of = Callable[[str, int], Step | None]
"""Arm and seed -> the step whose policy is meant."""
Pick = Callable[[Run], Step | None]

NLL_FORMS = ("play", "top", "qa", "other", "cloze", "paraphrase", "reverse", "claim_true", "claim_false")

KNOWLEDGE_KEYS = (
    *("recital_share", "top_recital_share", "distinct_facts", "recited_named_share", "needed_recited_share"),
    *("right_given_recited", "right_given_not_recited", "right_given_top_recital", "named_given_top_recital"),
)
BEHAVIOUR_KEYS = (
    *(
        "calls_per_episode",
        "think_tokens",
        "tool_call_ending_rate",
        "text_end_share",
        "dead_share",
        "invalid_share",
    ),
    *("noop_share", "look_share", "loop_share", "repetition_share", "unique_action_share"),
)


def sft_only(data: StudyData) -> list[Row]:
    """The record's table: the policy that SFT alone has made, one row an arm, seen twice.

    `rollout_*` is the arm's first RL rollout, as in the record; `eval_*` the eval after the last SFT step
    before it, on levels that all arms share. `*_diff` is the paired difference to the reference arm.
    """
    rows = []
    for name, arm in data.arms.items():
        row: Row = {"arm": name, "policy": arm.meaning(), "seeds": len(arm.runs)}
        row |= _play(data, arm, "rollout", data.first_rollout)
        row |= _play(data, arm, "eval", data.before_rl)
        row |= _means(arm, _at(data.before_rl, name), "eval", KNOWLEDGE_KEYS)
        row |= _means(arm, _at(data.before_rl, name), "probe", _probe_keys())
        row |= _status(arm)
        rows.append(row)
    return rows


def final(data: StudyData) -> list[Row]:
    """The policy at the end of each arm, against the reference at its end and against the arm's own
    SFT-only policy."""

    def last(arm: str, seed: int) -> Step | None:
        return data.arms[arm].runs[seed].last()

    rows = []
    for name, arm in data.arms.items():
        ends = [step for run in arm.runs.values() if (step := run.last()) is not None]
        row: Row = {
            "arm": name,
            "steps": max((step.step + 1 for step in ends), default=0),
            "seeds": len(arm.runs),
        }
        row |= _play(data, arm, "eval", last)
        before = _samples(arm, "eval", _at(data.before_rl, name))
        after = _samples(arm, "eval", _at(last, name))
        gain = paired_difference(after, before, "gain", name)
        row |= _difference("rl_gain", gain)
        row |= _means(arm, _at(last, name), "eval", (*KNOWLEDGE_KEYS, *BEHAVIOUR_KEYS))
        row |= _means(arm, _at(last, name), "probe", _probe_keys())
        row |= _status(arm)
        rows.append(row)
    return rows


def trajectories(data: StudyData) -> list[Row]:
    """One row an arm and step that played: mean return over seeds with its bootstrap interval, and the
    seeds' range."""
    rows = []
    for name, arm in data.arms.items():
        number = 0
        for step, phase in enumerate(arm.phases):
            here = {
                seed: run.steps[step] for seed, run in arm.runs.items() if step in run.steps and run.steps[step].rollout
            }
            if not here:
                continue
            samples = {seed: sample(s.rollout_episodes) for seed, s in here.items() if s.rollout_episodes}
            interval = bootstrap_mean(pool(samples, False), "trajectory", name, step)
            means = [s.rollout["return_mean"] for s in here.values() if s.rollout.get("return_mean") is not None]
            clears = wilson(*_counted([episode for s in here.values() for episode in s.rollout_episodes]))
            rows.append(
                {
                    "arm": name,
                    "step": step,
                    "rollout": number,
                    "phase": phase,
                    "seeds": len(here),
                    "return": _clean(interval.value),
                    "return_low": interval.low,
                    "return_high": interval.high,
                    "seed_min": min(means, default=None),
                    "seed_max": max(means, default=None),
                    "clear_rate": _clean(clears.value),
                    "clears_low": clears.low,
                    "clears_high": clears.high,
                    **_average(
                        (s.rollout for s in here.values()),
                        (*KNOWLEDGE_KEYS, *BEHAVIOUR_KEYS, "silent_group_share"),
                    ),
                    **_average(
                        (s.train for s in here.values()),
                        ("loss", "grad_norm", "clip_fraction", "logprob_abs_diff"),
                    ),
                }
            )
            number += 1
    return rows


def knowledge(data: StudyData) -> list[Row]:
    """One row an arm and measured step: NLL by form, true and false, trained and held-out facts;
    closed-book QA."""
    rows = []
    for name, arm in data.arms.items():
        steps = sorted({number for run in arm.runs.values() for number, step in run.steps.items() if step.probe})
        if data.base.probe:
            rows.append(
                {
                    "arm": name,
                    "step": data.base.step,
                    "phase": "base",
                    **_average([data.base.probe], _probe_keys()),
                }
            )
        for number in steps:
            probes = [run.steps[number].probe for run in arm.runs.values() if number in run.steps]
            rows.append({"arm": name, "step": number, "phase": arm.phases[number], **_average(probes, _probe_keys())})
    return rows


def behaviour(data: StudyData) -> list[Row]:
    """One row an arm: behaviour guards of the SFT-only policy (first rollout) and of the policy at the end
    (eval)."""
    rows = []
    for name, arm in data.arms.items():
        first = _means(arm, _at(data.first_rollout, name), "rollout", BEHAVIOUR_KEYS)
        end = _means(arm, lambda run: run.last(), "eval", BEHAVIOUR_KEYS)
        rows.append(
            {
                "arm": name,
                **{f"first_{k}": v for k, v in first.items()},
                **{f"final_{k}": v for k, v in end.items()},
            }
        )
    return rows


def _at(of: Of, arm: str) -> Pick:
    return lambda run: of(arm, run.seed)


def _reference(data: StudyData, of: Of) -> Callable[[int], Step | None]:
    """The reference arm's step for a seed; the base where the reference arm does not have that seed, or is
    not there."""

    def pick(seed: int) -> Step | None:
        arm = data.arms.get(data.reference)
        if arm is not None and seed in arm.runs:
            return of(data.reference, seed)
        return data.base

    return pick


def _play(data: StudyData, arm: ArmRuns, source: Source, of: Of) -> Row:
    pick, reference = _at(of, arm.name), _reference(data, of)
    samples = _samples(arm, source, pick)
    episodes = _distinct(arm, source, pick)
    shared = source == "eval"
    returned = bootstrap_mean(pool(samples, shared), source, arm.name)
    clears, count = _counted(episodes)
    share = wilson(clears, count)
    row: Row = {
        f"{source}_return": _clean(returned.value),
        f"{source}_return_low": returned.low,
        f"{source}_return_high": returned.high,
        f"{source}_by_seed": " ".join(f"{sum(s.values) / len(s.values):+.3f}" for s in samples.values()),
        f"{source}_clears": clears if count else None,
        f"{source}_episodes": count,
        f"{source}_clears_low": share.low,
        f"{source}_clears_high": share.high,
    }
    if arm.name == data.reference or _same(arm, pick, reference):
        row[f"{source}_same"] = arm.name != data.reference
        return row | _difference(f"{source}_diff", None)
    others = {
        seed: sample(getattr(step, f"{source}_episodes"))
        for seed in samples
        if (step := reference(seed)) is not None and getattr(step, f"{source}_episodes")
    }
    return row | _difference(
        f"{source}_diff",
        paired_difference(samples, others, "difference", source, arm.name),
    )


def _same(arm: ArmRuns, pick: Pick, reference: Callable[[int], Step | None]) -> bool:
    """True when arm and reference are one and the same measurement: the base itself."""
    steps = [(pick(run), reference(seed)) for seed, run in arm.runs.items()]
    return all(own is not None and own is other for own, other in steps)


def _samples(arm: ArmRuns, source: Source, pick: Pick) -> dict[int, Sample]:
    found = {}
    for seed, run in sorted(arm.runs.items()):
        step = pick(run)
        episodes: list[Played] = getattr(step, f"{source}_episodes") if step is not None else []
        if episodes:
            found[seed] = sample(episodes)
    return found


def _distinct(arm: ArmRuns, source: Source, pick: Pick) -> list[Played]:
    """All episodes of all seeds; the base's only once, though every seed of an arm without SFT starts
    there."""
    steps = {id(step): step for run in arm.runs.values() if (step := pick(run)) is not None}
    return [episode for step in steps.values() for episode in getattr(step, f"{source}_episodes")]


def _counted(episodes: Sequence[Played]) -> tuple[int, int]:
    return sum(episode.cleared for episode in episodes), len(episodes)


def _difference(name: str, interval: Interval | None) -> Row:
    """Columns of a difference; `_noise`: True inside the noise, None for the reference itself or without
    data."""
    return {
        name: None if interval is None else interval.value,
        f"{name}_low": None if interval is None else interval.low,
        f"{name}_high": None if interval is None else interval.high,
        f"{name}_noise": None if interval is None else inside_noise(interval),
    }


def _means(arm: ArmRuns, pick: Pick, source: str, keys: Iterable[str]) -> Row:
    steps = [step for run in arm.runs.values() if (step := pick(run)) is not None]
    return _average((getattr(step, source) for step in steps), keys)


def _average(rows: Iterable[Row], keys: Iterable[str]) -> Row:
    """Mean of each key over the rows that have it; None where none has."""
    found = list(rows)
    averages: Row = {}
    for key in keys:
        values = [row[key] for row in found if row.get(key) is not None]
        averages[key] = sum(values) / len(values) if values else None
    return averages


def _status(arm: ArmRuns) -> Row:
    stopped = {seed: run for seed, run in arm.runs.items() if run.stopped_at is not None}
    return {
        "status": arm.status,
        "stopped": "; ".join(
            f"seed {s} at step {run.stopped_at}: {', '.join(run.reasons)}" for s, run in stopped.items()
        ),
    }


def _probe_keys() -> list[str]:
    keys = []
    for form in NLL_FORMS:
        keys += [
            f"nll_{form}",
            f"nll_{form}_false",
            f"nll_{form}_trained",
            f"nll_{form}_held_out",
            f"margin_{form}",
        ]
        keys += [f"margin_{form}_held_out", f"acc_{form}", f"known_{form}"]
    return [
        *keys,
        "qa_accuracy",
        "qa_accuracy_trained",
        "qa_accuracy_held_out",
        "qa_accuracy_reverse",
        "qa_stated_share",
    ]


def _clean(value: float) -> float | None:
    return None if value != value else value  # NaN: nothing to take a mean of
