"""The in-process harness: model, template and game in one process, all live episodes a turn at a time.

Invariant: the prompt of call n+1 starts with the prompt and the output ids of call n, exactly as sampled;
what follows is one user turn with the tool's result. Decoded text is never tokenised again. Same arguments,
same episodes, bit for bit.

How a reply is taken: a call is carried out and its observation is the next user turn; a text answer ends the
episode; anything else costs an act, counts as invalid, and the observation is repeated. When the next prompt
leaves no room for a whole reply, the episode ends as invalid with reason `context`: a cut reply says nothing
about the policy. Where the engine fails, the episodes whose calls failed end as invalid with the failure's name, and
the others go on; only if no episode counts is the failure raised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from internalize.engine.faults import EngineError, EngineFailedError
from internalize.engine.protocol import Completion, Engine, SamplingParams
from internalize.errors import ProcessLost
from internalize.games.protocol import Game
from internalize.games.session import GameSession
from internalize.games.shaping import ShapingWeights
from internalize.harness.episode import CallRecord, Episode, EpisodePlan, need_distinct, told
from internalize.language.dialogue import Dialogue
from internalize.seeds import np_rng

CONTEXT, ABORTED = "context", "aborted"
"""Reasons of invalid episodes."""


@dataclass
class InProcess:
    """`Harness` over an engine in this process (or behind a client with the same methods)."""

    engine: Engine
    game: Game
    template: Dialogue
    sampling: SamplingParams
    shaping: ShapingWeights = field(default_factory=ShapingWeights)
    max_context: int = 512
    """Most tokens of a conversation; the engine's `max_len` bounds it too."""
    name: str = "inprocess"

    def __post_init__(self) -> None:
        self.sampling.need_stop(self.template.stop_id)

    def play(
        self,
        plans: Sequence[EpisodePlan],
        *,
        seed_key: tuple[int | str, ...],
        knowledge: Sequence[str] | None = None,
        record: Path | None = None,
    ) -> list[Episode]:
        """Play all plans, at most `engine.slots` at once, and return their episodes in order."""
        need_distinct(plans)
        room = min(self.max_context, self.engine.max_len) - self.sampling.max_new_tokens
        waiting = deque(_Live(self.game, self.template, plan, seed_key, knowledge) for plan in plans)
        finished: dict[str, Episode] = {}
        failure: BaseException | None = None
        live: list[_Live] = []
        try:
            while waiting or live:
                while waiting and len(live) < self.engine.slots:
                    live.append(waiting.popleft())
                asking = [e for e in live if e.fits(room)]
                for episode, given in zip(asking, self._generate(asking, seed_key), strict=True):
                    if isinstance(given, BaseException):
                        failure = failure or given
                        episode.fail(given)
                    else:
                        episode.take(given, self.sampling)
                over = [e for e in live if e.over]
                self.engine.release([e.plan.id for e in over])
                finished.update((e.plan.id, e.finish(self.shaping)) for e in over)
                live = [e for e in live if not e.over]
        finally:
            self.engine.release([e.plan.id for e in live])
        if failure is not None and not any(e.valid for e in finished.values()):
            raise failure
        return [finished[plan.id] for plan in plans]

    def _generate(
        self, asking: Sequence[_Live], seed_key: tuple[int | str, ...]
    ) -> Sequence[Completion | BaseException]:
        """One reply an episode, or why there is none."""
        try:
            return self.engine.generate(
                [e.prompt for e in asking],
                [e.plan.id for e in asking],
                [np_rng(*seed_key, e.plan.id, len(e.calls)) for e in asking],
                self.sampling,
            )
        except ProcessLost:
            raise  # the whole rollout is played again
        except EngineError as error:
            if error.batch is not None:
                return error.batch
            failed: Exception = error
        except Exception as error:
            failed = error
        if len(asking) == 1:
            return [failed]
        return [self._generate([episode], seed_key)[0] for episode in asking]  # which of them is it?


def play(
    engine: Engine,
    game: Game,
    template: Dialogue,
    plans: Sequence[EpisodePlan],
    *,
    sampling: SamplingParams,
    seed_key: tuple[int | str, ...],
    knowledge: Sequence[str] | None = None,
    shaping: ShapingWeights | None = None,
    max_context: int = 512,
) -> list[Episode]:
    """`InProcess(...).play(...)` in one call."""
    harness = InProcess(engine, game, template, sampling, shaping or ShapingWeights(), max_context)
    return harness.play(plans, seed_key=seed_key, knowledge=knowledge)


class _Live:
    """An episode being played."""

    def __init__(
        self,
        game: Game,
        template: Dialogue,
        plan: EpisodePlan,
        seed_key: tuple[int | str, ...],
        knowledge: Sequence[str] | None,
    ) -> None:
        self.plan, self.template = plan, template
        self.session = GameSession(game, plan.level, plan.seed)
        self.calls: list[CallRecord] = []
        self.journal: list[dict[str, Any]] = []
        self.reason: str | None = None
        self.unknown_words = 0
        self.prompt = self._counted(template.user(self.session.observe(), told(plan, seed_key, knowledge)))

    @property
    def over(self) -> bool:
        """Done, or ended as invalid."""
        return self.session.done or self.reason is not None

    def fits(self, room: int) -> bool:
        """False, and the episode is over, when the prompt leaves no room for a whole reply."""
        if len(self.prompt) > room:
            self.reason = CONTEXT
        return not self.over

    def take(self, completion: Completion, sampling: SamplingParams) -> None:
        """Record a completion, carry out what it says and append the result to the prompt."""
        reply = self.template.parse(completion.output_ids)
        if completion.finish == "abort":
            self.reason, observation = ABORTED, ""  # nobody knows what the rest would have said
        else:
            observation = self._carry_out(reply.kind, reply.call)
        self.calls.append(
            CallRecord(
                index=len(self.calls),
                prompt_ids=self.prompt,
                output_ids=completion.output_ids,
                logprobs=completion.logprobs,
                finish=completion.finish,
                weight_version=completion.weight_version,
                cached_tokens=completion.cached_tokens,
                think=reply.think,
                kind=reply.kind,
                call_word=reply.call,
                observation=observation,
                say=reply.say,
                sampling=sampling,
            )
        )
        if not self.over:
            told = self._counted(self.template.result(observation, completion.output_ids))
            self.prompt = [*self.prompt, *completion.output_ids, *told]

    def fail(self, failure: BaseException) -> None:
        """End as invalid: there is no reply."""
        self.reason = failure.reason if isinstance(failure, EngineError) else EngineFailedError.reason

    def finish(self, shaping: ShapingWeights) -> Episode:
        """The record."""
        outcome = self.session.outcome()
        return Episode.ended(self.plan, self.calls, self.journal, outcome, shaping, self.reason, self.unknown_words)

    def _carry_out(self, kind: str, word: str | None) -> str:
        """The tool's text result, which is the next user turn if there is one."""
        if kind == "say":
            self.session.text_end()
            return ""
        if word is None:
            self.session.unusable()
            return self.session.observe()
        call = self.template.calls.expand(word)
        row = self.session.call(call.tool, call.arguments())
        self.journal.append(row.model_dump())
        return row.result.observation

    def _counted(self, ids: list[int]) -> list[int]:
        self.unknown_words += self.template.unreadable(ids)
        return ids
