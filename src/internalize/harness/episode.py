"""One finished episode: what was asked, sampled, done and scored; and its three record files.

Invariant: an `Episode` holds the exact token ids that the engine saw and sampled, and
`read_episodes(write_episodes(x))` is `x`. Every harness makes this same record. An invalid episode is kept
and counted, and never trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from internalize.engine.protocol import FinishReason, SamplingParams
from internalize.errors import CorruptPayload, UserError
from internalize.files import read_jsonl, write_jsonl
from internalize.games.shaping import Outcome, ShapingWeights, shaped_return
from internalize.seeds import rng

__all__ = ["CallRecord", "Episode", "EpisodePlan", "Outcome", "ReplyKind", "read_episodes", "write_episodes"]

EPISODES, CALLS, JOURNAL = "episodes.jsonl", "calls.jsonl.zst", "journal.jsonl.zst"

ReplyKind = Literal["call", "say", "bad"]


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """An episode to be played."""

    id: str
    """Unique within a rollout or an eval; part of every sampling seed."""
    level: int
    seed: int
    """Seed of the level; episodes of a group share it."""
    group: int
    index: int
    """Number within the group."""


@dataclass(slots=True)
class CallRecord:
    """One LLM call and what came of it."""

    index: int
    prompt_ids: list[int]
    output_ids: list[int]
    logprobs: list[float]
    """Of `output_ids`, under the distribution they were drawn from (temperature-scaled)."""
    finish: FinishReason
    weight_version: str
    cached_tokens: int
    think: str
    kind: ReplyKind
    call_word: str | None
    observation: str
    """The tool's text result: the next user turn, if there is one. Empty after a text answer."""
    say: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(slots=True)
class Episode:
    """One finished episode."""

    plan: EpisodePlan
    calls: list[CallRecord]
    journal: list[dict[str, Any]]
    """Tool calls in the record's format (`records.JournalRow`)."""
    outcome: Outcome
    components: dict[str, float]
    """Named parts of the shaped return, without the sum."""
    returned: float
    """The shaped return."""
    valid: bool = True
    reason: str | None = None
    """Why it is invalid; None for a valid episode."""
    unknown_words: int = 0
    """Words of prompts that the closed vocabulary mapped to `<unk>`."""

    @classmethod
    def ended(
        cls,
        plan: EpisodePlan,
        calls: list[CallRecord],
        journal: list[dict[str, Any]],
        outcome: Outcome,
        shaping: ShapingWeights,
        reason: str | None,
        unknown_words: int,
    ) -> Episode:
        """The record of an episode that is over; with a `reason` it does not count."""
        components = shaped_return(outcome, shaping)
        returned = components.pop("return")
        return cls(plan, calls, journal, outcome, components, returned, reason is None, reason, unknown_words)

    @property
    def prefix_extending(self) -> bool:
        """True when every prompt starts with the previous prompt and its output: the episode is one token
        sequence."""
        return all(
            later.prompt_ids[: len(first.prompt_ids) + len(first.output_ids)] == first.prompt_ids + first.output_ids
            for first, later in zip(self.calls, self.calls[1:], strict=False)
        )


def need_distinct(plans: Sequence[EpisodePlan]) -> None:
    """Raise UserError when two episodes share an id."""
    if len({plan.id for plan in plans}) != len(plans):
        raise UserError("two episodes of one rollout share an id", expected="distinct ids")


def told(plan: EpisodePlan, seed_key: tuple[int | str, ...], knowledge: Sequence[str] | None) -> list[str]:
    """What an episode's first user turn says of the facts: each once, in an order of its own."""
    facts = list(knowledge or ())
    rng(*seed_key, "facts", plan.id).shuffle(facts)
    return facts


def write_episodes(folder: Path, episodes: Sequence[Episode]) -> None:
    """Write `episodes.jsonl`, `calls.jsonl.zst` and `journal.jsonl.zst`. Each call and journal row names its
    episode in its first key; the rest of a journal row is exactly the published record's."""
    write_jsonl(folder / CALLS, ({"session": e.plan.id, **_call_row(c)} for e in episodes for c in e.calls))
    write_jsonl(folder / JOURNAL, ({"session": e.plan.id, **row} for e in episodes for row in e.journal))
    # last, and the one that readers start from: without it the folder has no episodes
    write_jsonl(folder / EPISODES, (_episode_row(e) for e in episodes))


def read_episodes(folder: Path) -> list[Episode]:
    """Read what `write_episodes` wrote. Raises CorruptPayload when a row does not fit or calls are
    missing."""
    calls = _by_session(read_jsonl(folder / CALLS), folder / CALLS)
    journal = _by_session(read_jsonl(folder / JOURNAL), folder / JOURNAL)
    episodes = []
    for row in read_jsonl(folder / EPISODES):
        try:
            row = dict(row)
            plan = EpisodePlan(**row.pop("plan"))
            expected = row.pop("calls"), row.pop("journal_rows")
            found = calls.pop(plan.id, []), journal.pop(plan.id, [])
            if (len(found[0]), len(found[1])) != expected:
                raise ValueError(
                    f"{plan.id} has {len(found[0])} calls and {len(found[1])} journal rows, not {expected}"
                )
            records = [CallRecord(sampling=_sampling(c.pop("sampling")), **c) for c in found[0]]
            outcome = Outcome(**row.pop("outcome"))
            episodes.append(Episode(plan=plan, calls=records, journal=found[1], outcome=outcome, **row))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptPayload(f"not an episode row ({error})", where=str(folder / EPISODES)) from error
    orphans = sorted({*calls, *journal})
    if orphans:
        raise CorruptPayload("calls or journal rows of an unknown episode", where=str(folder), got=orphans[0])
    return episodes


def _call_row(call: CallRecord) -> dict[str, Any]:
    row = {name: getattr(call, name) for name in CallRecord.__slots__}  # asdict would copy every token list
    row["sampling"] = asdict(call.sampling)
    return row


def _episode_row(episode: Episode) -> dict[str, Any]:
    return {
        "plan": asdict(episode.plan),
        "outcome": asdict(episode.outcome),
        "components": episode.components,
        "returned": episode.returned,
        "valid": episode.valid,
        "reason": episode.reason,
        "unknown_words": episode.unknown_words,
        "calls": len(episode.calls),
        "journal_rows": len(episode.journal),
    }


def _sampling(row: dict[str, Any]) -> SamplingParams:
    return SamplingParams(**{**row, "stop_ids": tuple(row["stop_ids"])})


def _by_session(rows: Iterable[Any], path: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        if not isinstance(row, dict) or "session" not in row:
            raise CorruptPayload("a row names no session", where=str(path))
        found.setdefault(row.pop("session"), []).append(row)
    return found
