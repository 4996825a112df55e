"""The sections of `summary.md`, one function each.

Invariant: a section prints rows of `report.tables` and facts of receipts; it computes nothing but words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from internalize.harness.counted import INVALID_BECAUSE
from internalize.report.data import StudyData
from internalize.report.text import DASH, NOISE, clears, difference, estimate, markdown, number, share

Row = dict[str, Any]


def setting(data: StudyData) -> str:
    """Base, gate, knowledge and seeds."""
    base, gate, knowledge = (data.facts.get(name, {}) for name in ("base", "gate", "knowledge"))
    lines = []
    if base:
        which = {"prebuilt": "the shipped one (prebuilt)", "trained": "trained from scratch by this study"}
        why = f"; {base['why']}" if base.get("why") else ""
        made = which.get(base.get("which", ""), base.get("which"))
        lines.append(f"- Base: {made}{why}, weights sha256 `{base.get('sha256', '')[:12]}`.")
    sides = [
        (name, gate[name]) for name in ("teacher", "base", "wrong_rules", "partial") if isinstance(gate.get(name), dict)
    ]
    if sides:
        text = "; ".join(f"{_side(name)} {_gate(side)}" for name, side in sides)
        lines.append(f"- Gate ({'passed' if gate.get('passed', True) else 'not passed'}): {text}.")
    if knowledge:
        held = ", ".join(f"`{fact}`" for fact in knowledge.get("held_out_facts", [])) or "none"
        facts = len(knowledge.get("prompt_facts", []))
        atoms = f", {knowledge['atoms_verified']} verified atoms" if "atoms_verified" in knowledge else ""
        lines.append(f"- Knowledge: {facts} play facts{atoms}; held out of every training row: {held}.")
    seeds = sorted({seed for arm in data.arms.values() for seed in arm.runs})
    lines.append(f"- Arms: {len(data.arms)}, seeds: {', '.join(map(str, seeds))}; reference: `{data.compared_with}`.")
    if not_counted := _not_counted(data):
        lines.append(f"- Episodes that do not count, because the harness failed or gave up: {not_counted}.")
    return "\n".join(lines) + "\n"


def _not_counted(data: StudyData) -> str:
    """Reasons and how often, over all rollouts and evals; empty when every episode counts."""
    steps = [
        data.base,
        *(step for arm in data.arms.values() for run in arm.runs.values() for step in run.steps.values()),
    ]
    found: Counter[str] = Counter()
    for row in (row for step in steps for row in (step.rollout, step.eval)):
        found.update({key: int(row[key]) for key in row if key.startswith(INVALID_BECAUSE)})
    return ", ".join(f"{found[key]} {key.removeprefix(INVALID_BECAUSE)}" for key in sorted(found))


def _side(name: str) -> str:
    return {
        "teacher": "base with the knowledge in its prompt",
        "base": "base without",
        "wrong_rules": "with false facts",
        "partial": "with five of the facts",
    }[name]


def _gate(side: Mapping[str, Any]) -> str:
    bounds = f" [{share(side['wilson_low'])}, {share(side['wilson_high'])}]" if "wilson_low" in side else ""
    returned = f", return {number(side['return_mean'], sign=True)}" if side.get("return_mean") is not None else ""
    count = f"{side['clears']}/{side['episodes']} ({share(side['clears'] / side['episodes'])})"
    return f"clears {count}{bounds}{returned}"


def first_rollout(data: StudyData, rows: Sequence[Row]) -> str:
    """The record's table, from the first RL rollouts."""
    table = [
        [
            row["arm"],
            row["policy"],
            estimate(row, "rollout_return"),
            clears(row, "rollout"),
            _versus(row, "rollout_diff", data),
        ]
        for row in rows
    ]
    head = ["arm", "the policy played", "shaped return", "clears", f"difference to {data.compared_with}"]
    return (
        "The record's table: the first RL rollout, which plays the SFT-only policy (all seeds pooled).\n\n"
        + markdown(head, table)
    )


def first_eval(data: StudyData, rows: Sequence[Row]) -> str:
    """The same policies in the eval on common levels, and which arms are inside the noise."""
    table = [
        [
            row["arm"],
            estimate(row, "eval_return"),
            row["eval_by_seed"] or DASH,
            clears(row, "eval"),
            _versus(row, "eval_diff", data),
        ]
        for row in rows
    ]
    head = ["arm", "shaped return", "by seed", "clears", f"difference to {data.compared_with}"]
    compared = [row for row in rows if row.get("eval_diff_noise") is not None]
    quiet = [row["arm"] for row in compared if row["eval_diff_noise"]]
    text = f"\nInside the noise of `{data.compared_with}`: {', '.join(f'`{arm}`' for arm in quiet) or 'no arm'}."
    if compared:
        text += f" {len(compared)} comparisons at 95 %: expect {0.05 * len(compared):.1f} outside by chance.\n"
    lead = "The same policies in the eval after the last SFT step, on levels that all arms and seeds share.\n\n"
    return lead + markdown(head, table) + text + "\n"


def _versus(row: Row, key: str, data: StudyData) -> str:
    if row["arm"] == data.reference:
        return "reference"
    return "the same policy" if row.get(key.replace("diff", "same")) else difference(row, key)


def trajectory(rows: Sequence[Row]) -> str:
    """Mean return of every RL rollout."""
    longest = max((row["rollout"] for row in rows), default=-1) + 1
    if not longest:
        return "No RL step was run.\n"
    table = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        own = {row["rollout"]: row for row in rows if row["arm"] == arm}
        cells = [number(own[i]["return"], sign=True) if i in own else DASH for i in range(longest)]
        table.append([arm, *cells])
    head = ["arm", *(f"rollout {i}" for i in range(longest))]
    return "Mean shaped return of each RL rollout, over seeds (intervals: `tables/trajectories.csv`).\n\n" + markdown(
        head, table
    )


def final(data: StudyData, rows: Sequence[Row]) -> str:
    """The policy at the end of each arm, and what RL has added."""
    table = [
        [
            row["arm"],
            str(row["steps"]),
            estimate(row, "eval_return"),
            clears(row, "eval"),
            _versus(row, "eval_diff", data),
            difference(row, "rl_gain"),
        ]
        for row in rows
    ]
    head = [
        "arm",
        "steps",
        "shaped return",
        "clears",
        f"difference to {data.compared_with} at its end",
        "gain since SFT-only",
    ]
    risen = [row["arm"] for row in rows if row.get("rl_gain_noise") is False and row["rl_gain"] > 0]
    text = f"\nRL improved {', '.join(f'`{arm}`' for arm in risen) or 'no arm'} beyond the interval.\n"
    return "The policy at the end of each arm (eval).\n\n" + markdown(head, table) + text


def recital(rows: Sequence[Row]) -> str:
    """What is stated in thinks, and whether the call follows it."""
    keys = (
        *("recital_share", "top_recital_share", "needed_recited_share", "right_given_recited"),
        *(
            "right_given_not_recited",
            "right_given_top_recital",
            "named_given_top_recital",
            "recited_named_share",
        ),
    )
    table = [[row["arm"], *(share(row[key]) for key in keys), number(row["distinct_facts"], 1)] for row in rows]
    head = [
        "arm",
        "thinks with a true fact",
        "... before `need`",
        "needed facts stated",
        "right call, given these",
        "right call, without these",
        "right call, given a fact before `need`",
        "call names such a fact",
        "stated facts that name the call",
        "distinct facts",
    ]
    return "Eval of the SFT-only policy, means over seeds.\n\n" + markdown(head, table)


def knowledge(data: StudyData, tables: Mapping[str, Sequence[Row]]) -> str:
    """NLL by form, before RL and at the end."""
    keys = ("nll_play", "nll_play_held_out", "nll_top", "nll_qa", "nll_other", "nll_paraphrase", "nll_cloze")
    end = {row["arm"]: row for row in tables["final"]}
    table = []
    for row in tables["sft_only"]:
        cells = [f"{number(row[key])} / {number(end[row['arm']][key])}" for key in keys]
        margin = f"{number(row['margin_play'])} / {number(end[row['arm']]['margin_play'])}"
        asked = f"{share(row['qa_accuracy'])} / {share(end[row['arm']]['qa_accuracy'])}"
        table.append([row["arm"], *cells, margin, asked])
    head = [
        "arm",
        "needed in a think",
        "... held-out facts",
        "top of think",
        "question",
        "question, other wording",
        "paraphrase (held out)",
        "cloze",
        "margin over the false fact",
        "closed-book QA",
    ]
    base, text = data.base.probe, ""
    if base:
        nll = f"needed in a think {number(base.get('nll_play'))}, question {number(base.get('nll_qa'))}"
        text = f"\nThe base: {nll}, closed-book QA {share(base.get('qa_accuracy'))}.\n"
    lead = "NLL per token (nats), SFT-only policy / end of the arm; every token counts 1.\n\n"
    return lead + markdown(head, table) + text


def behaviour(rows: Sequence[Row]) -> str:
    """Behaviour guards, before RL and at the end."""
    keys = ("calls_per_episode", "think_tokens")
    shares = (
        "tool_call_ending_rate",
        "text_end_share",
        "dead_share",
        "noop_share",
        "look_share",
        "unique_action_share",
    )
    table = [
        [
            row["arm"],
            *(f"{number(row[f'first_{key}'], 1)} / {number(row[f'final_{key}'], 1)}" for key in keys),
            *(f"{share(row[f'first_{key}'])} / {share(row[f'final_{key}'])}" for key in shares),
        ]
        for row in rows
    ]
    head = [
        "arm",
        "replies an episode",
        "words a think",
        "end in a call",
        "text ends",
        "traps",
        "no-ops",
        "looks",
        "distinct calls",
    ]
    return "First RL rollout / eval at the end of the arm.\n\n" + markdown(head, table)


def arms(data: StudyData, rows: Sequence[Row]) -> str:
    """The registry: rows, schedule, status and why an arm was stopped."""
    table = []
    for row in rows:
        arm = data.arms[row["arm"]]
        state = f"{arm.status}; stopped: {row['stopped']}" if row["stopped"] else arm.status
        table.append([arm.name, arm.rows or DASH, arm.schedule or DASH, str(len(arm.phases)), state, arm.note or DASH])
    return markdown(["arm", "rows", "schedule", "steps", "status", "note"], table, words=6)


def reading(data: StudyData) -> str:
    """How the numbers are made."""
    lines = (
        "Shaped return: 1 for a cleared level, else up to 0.4 for progress, less costs (`shaping.json`).",
        "Clears carry Wilson intervals, returns bootstrap intervals over level seeds (episodes of a level "
        "seed are drawn together).",
        "The n-th rollouts of all arms of a seed play the same levels with the same draws, as all evals do.",
        f"A difference to `{data.compared_with}` is paired by seed. Its interval is the wider of two: Student's "
        "t over the seeds, and a bootstrap over the levels that both played.",
        f"`{NOISE}`: the interval covers 0. 95 %, not adjusted for the number of arms.",
        "A think of this player reads `[facts] need REGION COLOUR facts`: what stands before `need` is recited, what "
        "stands after it is used for the call. Top of think: a fact before `need`, where `arm_c`'s rows put it.",
        "Margin: nats a fact that the false fact costs more than the true one.",
        "A right call is what a player with the true rules would call; of equally short ways one counts.",
        "Joint and interleaved arms have no pure SFT-only policy: the second column says what is played.",
        "A stopped arm is a result: it keeps what it measured before the stop.",
    )
    return "".join(f"- {line}\n" for line in lines)
