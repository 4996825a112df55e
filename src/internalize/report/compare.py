"""Two arms, runs or archives side by side: what differs in their settings, where their numbers part, and by how much.

Invariant: a difference is `one - other`, paired by seed and level with the report's own intervals; the first divergence
is the first step whose metrics are not equal to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from internalize.errors import UserError
from internalize.report.data import Played, Step, sample
from internalize.report.evidence import METRICS, Part
from internalize.report.intervals import Interval, Sample, inside_noise, paired_difference
from internalize.report.sides import Side
from internalize.report.text import DASH, NOISE, markdown, number, share

Row = dict[str, Any]


@dataclass(frozen=True)
class Policy:
    """One policy of one pair of arms: returns or clears on both sides, and their difference."""

    arms: tuple[str, str]
    policy: str
    measure: str
    one: float | None
    other: float | None
    seeds: int
    difference: Interval | None

    @property
    def noise(self) -> bool:
        """The difference cannot be told from 0."""
        return inside_noise(self.difference)


@dataclass(frozen=True)
class Parting:
    """The first step at which two runs of one seed differ; `step` is None when they never do."""

    arms: tuple[str, str]
    seed: int
    step: int | None
    what: str


@dataclass(frozen=True)
class Comparison:
    """All of it."""

    names: tuple[str, str]
    settings: list[tuple[str, str, Any, Any]]
    """Arm (or `study`), key, and the value on each side; None where a side lacks the key."""
    partings: list[Parting]
    policies: list[Policy]

    def plain(self) -> Row:
        """As JSON values."""
        return {
            **asdict(self),
            "policies": [
                {**asdict(one), "difference": one.difference and one.difference._asdict(), "noise": one.noise}
                for one in self.policies
            ],
        }


def compare(one: Side, other: Side) -> Comparison:
    """Compares two sides: the named arms, or every arm that both have.

    Raises:
        UserError: they have no arm in common.
    """
    pairs = [(one.arms[0], other.arms[0])] if one.one_arm or other.one_arm else _common(one, other)
    if one.one_arm != other.one_arm:
        arm = one.arms[0] if one.one_arm else other.arms[0]
        whole = other if one.one_arm else one
        if arm not in whole.arms:
            raise UserError("the other side has no such arm", got=arm, expected=", ".join(whole.arms))
        pairs = [(arm, arm)]
    return Comparison(
        (one.name, other.name),
        list(_settings(one, other, pairs)),
        [_parting(one, other, pair, seed) for pair in pairs for seed in _seeds(one, other, pair)],
        [policy for pair in pairs for policy in _policies(one, other, pair)],
    )


def _common(one: Side, other: Side) -> list[tuple[str, str]]:
    common = [(arm, arm) for arm in one.arms if arm in other.arms]
    if not common:
        raise UserError(
            "no arm in common", got=f"{', '.join(one.arms)} and {', '.join(other.arms)}", fix="name them: A:ARM B:ARM"
        )
    return common


def _seeds(one: Side, other: Side, pair: tuple[str, str]) -> list[int]:
    return sorted(one.data.arms[pair[0]].runs.keys() & other.data.arms[pair[1]].runs.keys())


def _settings(one: Side, other: Side, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Any, Any]]:
    for mine, theirs in pairs:
        name = _pair((mine, theirs))
        for key, left, right in different(one.settings[mine], other.settings[theirs]):
            yield name, key, left, right
    for key, left, right in different(one.study, other.study):
        yield "study", key, left, right


def different(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Keys, with dots for nesting, whose values differ."""
    left, right = dict(_flat("", one)), dict(_flat("", other))
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            yield key, left.get(key), right.get(key)


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{path}.{key}" if path else str(key), inner)
    else:
        yield path, value


def _parting(one: Side, other: Side, pair: tuple[str, str], seed: int) -> Parting:
    left, right = one.data.arms[pair[0]], other.data.arms[pair[1]]
    mine, theirs = left.runs[seed].steps, right.runs[seed].steps
    for step in range(max(len(left.phases), len(right.phases))):
        before, after = mine.get(step), theirs.get(step)
        if before is None and after is None:
            continue
        if before is None or after is None:
            return Parting(pair, seed, step, f"only {one.name if after is None else other.name} has this step")
        if before.phase != after.phase:
            return Parting(pair, seed, step, f"phase {before.phase} against {after.phase}")
        if told := _differing(before, after):
            return Parting(pair, seed, step, told)
    return Parting(pair, seed, None, "equal in every metric of every step")


def _differing(one: Step, other: Step) -> str:
    """The first metrics, in the order in which a step makes them, that differ; empty when none does."""
    order: tuple[Part, ...] = METRICS
    for part in order:
        mine, theirs = getattr(one, part), getattr(other, part)
        keys = [key for key in mine if key in theirs and _rounded(mine[key]) != _rounded(theirs[key])]
        if keys:
            shown = ", ".join(f"{key} {mine[key]} against {theirs[key]}" for key in keys[:3])
            return f"{part}: {shown}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
    return ""


def _rounded(value: Any) -> Any:
    """Archives keep six decimals of a metric."""
    return round(value, 6) if isinstance(value, float) else value


def _policies(one: Side, other: Side, pair: tuple[str, str]) -> Iterator[Policy]:
    def last(side: Side, arm: str, seed: int) -> Step | None:
        return side.data.arms[arm].runs[seed].last()

    kinds = (
        ("before RL, eval", "eval_episodes", lambda side, arm, seed: side.data.before_rl(arm, seed)),
        ("first RL rollout", "rollout_episodes", lambda side, arm, seed: side.data.first_rollout(arm, seed)),
        ("at the end, eval", "eval_episodes", last),
    )
    for policy, attribute, find in kinds:
        sides: list[dict[int, list[Played]]] = []
        for side, arm in ((one, pair[0]), (other, pair[1])):
            steps = {seed: find(side, arm, seed) for seed in side.data.arms[arm].runs}
            sides.append({s: list(getattr(step, attribute)) for s, step in steps.items() if step is not None})
        for measure, of in (("return", sample), ("clears", cleared)):
            mine, theirs = ({s: of(played) for s, played in found.items() if played} for found in sides)
            if mine and theirs:
                found = paired_difference(mine, theirs, "compare", policy, measure, *pair)
                seeds = len(mine.keys() & theirs.keys())
                yield Policy(pair, policy, measure, _mean(mine), _mean(theirs), seeds, found)


def cleared(episodes: Sequence[Played]) -> Sample:
    """1 for a cleared level, else 0, clustered by the level seed that was played."""
    return Sample([float(one.cleared) for one in episodes], [(one.level, one.seed) for one in episodes])


def _mean(found: Mapping[int, Sample]) -> float | None:
    values = [value for one in found.values() for value in one.values]
    return sum(values) / len(values) if values else None


def text(found: Comparison) -> str:
    """The comparison as text."""
    one, other = found.names
    parts = [f"{one} against {other}: differences are {one} - {other}, paired by seed and level, 95 % intervals\n"]
    rows = []
    for policy in found.policies:
        show = share if policy.measure == "clears" else lambda value: number(value, sign=True)
        arms = _pair(policy.arms)
        rows.append(
            [
                arms,
                policy.policy,
                policy.measure,
                show(policy.one),
                show(policy.other),
                _interval(policy),
                str(policy.seeds),
            ]
        )
    parts.append(markdown(["arm", "policy", "measure", "one", "other", "difference", "seeds"], rows, words=3))
    parts.append("Where they part\n")
    alike: dict[tuple[str, str], list[int]] = {}
    for parting in found.partings:
        where = "never" if parting.step is None else f"step {parting.step}"
        alike.setdefault((_pair(parting.arms), f"{where}: {parting.what}"), []).append(parting.seed)
    parts += [f"- {arms}, seed {' '.join(map(str, seeds))}: {what}" for (arms, what), seeds in alike.items()]
    parts.append("\nSettings that differ\n")
    parts += [f"- {name}: {key}: {left} | {right}" for name, key, left, right in found.settings] or ["- none"]
    return "\n".join(parts)


def _pair(arms: tuple[str, str]) -> str:
    return arms[0] if arms[0] == arms[1] else " / ".join(arms)


def _interval(policy: Policy) -> str:
    found = policy.difference
    if found is None:
        return f"{DASH} (no common seed)"
    bounds = "" if found.low is None else f" [{number(found.low, sign=True)}, {number(found.high, sign=True)}]"
    return f"{number(found.value, sign=True)}{bounds}{f' ({NOISE})' if policy.noise else ''}"
