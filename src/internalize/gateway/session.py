"""One episode at the gateway: its token history, its game, its record.

Invariant: the prompt of call n+1 is the prompt of call n, its output ids as sampled, and one user turn; every
completion is in `calls.jsonl` before the client hears of it.

A reply is taken as the in-process harness takes it. A call goes to the client as a tool call. A text answer
ends the episode. Anything else (cut by the token limit, an unknown call word) never reaches the client: it
costs an act, and the gateway asks again with the observation repeated. When the game is over, the client gets
a closing text that no model wrote; it is no LLM call and has no row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from internalize.engine.faults import EngineError
from internalize.engine.protocol import Completion, SamplingParams
from internalize.errors import UserError
from internalize.gateway import reasons
from internalize.gateway.backend import Backend
from internalize.gateway.calls import CallRow, SamplingRow
from internalize.gateway.chain import ChainBroken, Turn, follow
from internalize.gateway.conversation import Answer, Call, Conversation, Replied
from internalize.gateway.dialect import Dialect
from internalize.gateway.harness_text import fingerprint
from internalize.gateway.lines import Lines
from internalize.language.dialogue import Reply
from internalize.seeds import derive

CLOSING = "The episode is over."
TOOLS = ("act", "look", "status")


class Table(Protocol):
    """The game of an episode, as the gateway sees it. Called from the gateway's thread."""

    @property
    def done(self) -> bool:
        """The episode is over."""
        ...

    @property
    def results(self) -> Sequence[str]:
        """Text results of the tool calls so far."""
        ...

    def unusable(self) -> str:
        """Charge a reply without a usable call; returns the observation."""
        ...

    def text_end(self) -> None:
        """End the episode by a text answer."""
        ...


@dataclass(frozen=True)
class Opening:
    """What a session is opened with."""

    id: str
    """Also its URL path: letters, digits, `-`, `_` and `.`."""
    task: str
    """The exact text of the first user turn as the model reads it, knowledge included."""
    sampling: SamplingParams
    seed_key: tuple[int | str, ...]
    """Call n draws from `derive(*seed_key, id, n)`, as in process."""
    max_context: int
    """Most tokens of prompt and reply together."""
    record: Path
    """`calls.jsonl` to write."""
    spelling: str | None = None
    """The task as the client writes it, where that differs (`gateway.harness_text`)."""
    first_request: str | None = None
    """Pinned `fingerprint` of the first request; None pins nothing."""
    call_seconds: float = 300.0
    """Longest wait for a completion."""

    @property
    def said(self) -> str:
        """The task as the client writes it."""
        return self.task if self.spelling is None else self.spelling


class Refused(UserError):
    """The session answers nothing any more; `reason` is the session's."""

    title = "refused"

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(f"{reason}: {what}")
        self.reason = reason


class Session:
    """The gateway's side of an episode. All methods but the constructor run in the gateway's event loop."""

    def __init__(self, opening: Opening, table: Table, dialect: Dialect, backend: Backend) -> None:
        opening.sampling.need_stop(dialect.stop_id)
        self.opening, self.table = opening, table
        self.rows: list[CallRow] = []
        self.observations: list[str | None] = []
        """What followed each row's reply if the gateway settled it; None where a tool call did."""
        self.turns: list[Turn] = []
        self.reason: str | None = None
        self.detail = ""
        self.first_request: str | None = None
        """Fingerprint of the first request, once there was one."""
        self.unknown_words = 0
        self._dialect, self._backend = dialect, backend
        self._prompt = self._count(dialect.opening(opening.task))
        self._lines = Lines(opening.record)
        self._lock = asyncio.Lock()
        self._names: dict[str, str] = {}  # tool -> the client's name for it
        self._last: Answer | None = None
        self._over = False
        self._closed = False

    @property
    def mismatches(self) -> int:
        """Answers that the client handed back changed."""
        return sum(turn.mismatched for turn in self.turns)

    async def answer(self, conversation: Conversation) -> Answer:
        """The next answer, or the last one again. Raises Refused, from then on always."""
        async with self._lock:
            self._refuse_if_over()
            try:
                self._check_first(conversation)
                is_next = self._follow(conversation)
                if not is_next and self._last is not None:
                    return self._last
                if self._over:
                    raise ChainBroken(reasons.CLOSED, "a call after the episode was over")
                return await self._next(conversation)
            except ChainBroken as error:
                raise self.fail(error.reason, str(error)) from error
            except UserError as error:
                raise self.fail(reasons.RECORD_FAILED, str(error)) from error

    async def count_tokens(self, conversation: Conversation) -> int:
        """Tokens of the prompt that this request would give. Refuses what `answer` would refuse; changes
        nothing."""
        async with self._lock:
            self._refuse_if_over()
            try:
                is_next = self._follow(conversation)
            except ChainBroken as error:
                raise Refused(error.reason, error.what) from error
            if not is_next:
                return len(self.rows[-1].prompt_ids) if self.rows else 0
            return len(self._prompt) + (len(self._pending()) if self.turns else 0)

    def fail(self, reason: str, detail: str) -> Refused:
        """End the session for a reason; the first one stays."""
        if self.reason is None:
            self.reason, self.detail = reason, detail
        return Refused(self.reason, self.detail)

    def close(self) -> None:
        """Close the record. Later requests are refused."""
        self._closed = True
        self._backend.release([self.opening.id])
        self._lines.close()

    # ---- parts ---
    def _refuse_if_over(self) -> None:
        if self.reason is not None:
            raise Refused(self.reason, self.detail)
        if self._closed:
            raise Refused(reasons.CLOSED, "the episode was closed")

    def _check_first(self, conversation: Conversation) -> None:
        """The tools and everything around the task are those that this CLI version is known to send."""
        if self.first_request is not None:
            return
        self.first_request = fingerprint(conversation, self.opening.said)
        names = tuple(sorted(tool.name.rsplit("__", 1)[-1] for tool in conversation.tools))
        if names != TOOLS:
            shown = " ".join(tool.name for tool in conversation.tools) or "none"
            raise ChainBroken(reasons.TOOLS_CHANGED, "not the game's tools", got=shown[:400], expected=" ".join(TOOLS))
        if self.opening.first_request not in (None, self.first_request):
            raise ChainBroken(
                reasons.FIRST_REQUEST_CHANGED,
                "the first request is not the known one",
                got=self.first_request,
                expected=str(self.opening.first_request),
            )
        self._names = {tool.name.rsplit("__", 1)[-1]: tool.name for tool in conversation.tools}

    def _follow(self, conversation: Conversation) -> bool:
        return follow(conversation, self.opening.said, self.turns, self.table.results)

    def _pending(self) -> list[int]:
        """The user turn that follows the last answer."""
        return self._dialect.result(self.table.results[len(self.turns) - 1], self.rows[-1].output_ids)

    async def _next(self, conversation: Conversation) -> Answer:
        if self.turns and not self.table.done:
            self._prompt += self._count(self._pending())
        while not self.table.done:
            completion = await self._complete()
            reply = self._record(completion)
            if completion.finish == "abort":
                raise ChainBroken(reasons.ABORTED, "the engine ended the call from outside")
            self._prompt = [*self._prompt, *completion.output_ids]
            if reply.kind == "call":
                self.observations.append(None)
                return self._answer(self._as_call(reply))
            if reply.kind == "say":
                self.table.text_end()
                self.observations.append("")
                return self._answer(Replied(reply.think, reply.say or CLOSING), over=True)
            observation = self.table.unusable()
            self.observations.append(observation)
            if not self.table.done:
                self._prompt = [*self._prompt, *self._count(self._dialect.result(observation, completion.output_ids))]
        return self._answer(Replied(text=CLOSING), over=True)

    async def _complete(self) -> Completion:
        """One call of the engine. Raises ChainBroken with the engine's reason."""
        opening, n = self.opening, len(self.rows)
        if len(self._prompt) > opening.max_context - opening.sampling.max_new_tokens:
            raise ChainBroken(reasons.CONTEXT, "the prompt leaves no room for a whole reply")
        try:
            async with asyncio.timeout(opening.call_seconds):
                return await self._backend.generate(
                    self._prompt,
                    opening.sampling,
                    session=opening.id,
                    rid=self._rid(n),
                    seed=derive(*opening.seed_key, opening.id, n),
                )
        except TimeoutError as error:
            raise ChainBroken(reasons.ENGINE_TIMEOUT, "the engine gave no completion in time") from error
        except EngineError as error:
            raise ChainBroken(error.reason, str(error)) from error
        except Exception as error:
            raise ChainBroken(reasons.ENGINE_FAILED, f"{type(error).__name__}: {error}") from error

    def _record(self, completion: Completion) -> Reply:
        reply = self._dialect.read(completion.output_ids)
        row = CallRow(
            session=self.opening.id,
            request=self._rid(len(self.rows)),
            index=len(self.rows),
            prompt_ids=self._prompt,
            output_ids=completion.output_ids,
            logprobs=completion.logprobs,
            finish=completion.finish,
            weight_version=completion.weight_version,
            cached_tokens=completion.cached_tokens,
            think=reply.think,
            kind=reply.kind,
            call_word=reply.call,
            say=reply.say,
            sampling=SamplingRow(**asdict(self.opening.sampling)),
            seed=derive(*self.opening.seed_key, self.opening.id, len(self.rows)),
        )
        self._lines.append(row.model_dump())
        self.rows.append(row)
        return reply

    def _as_call(self, reply: Reply) -> Replied:
        call = self._dialect.tool_call(reply.call or "")
        arguments = {key: value for key, value in call.arguments().items() if value is not None}
        name = self._names[call.tool]
        return Replied(reply.think, calls=(Call(f"call_{self._rid(len(self.turns))}", name, arguments),))

    def _answer(self, reply: Replied, over: bool = False) -> Answer:
        self._over = over
        row = self.rows[-1] if self.rows else None
        self.turns.append(Turn(reply))
        self._last = Answer(
            id=f"msg_{self._rid(len(self.turns) - 1)}",
            reply=reply,
            prompt_tokens=len(row.prompt_ids) if row else 0,
            output_tokens=len(row.output_ids) if row else 0,
            cached_tokens=row.cached_tokens if row else 0,
        )
        return self._last

    def _rid(self, n: int) -> str:
        return f"{self.opening.id}-{n:03d}".replace(".", "_")

    def _count(self, ids: list[int]) -> list[int]:
        self.unknown_words += self._dialect.unknown(ids)
        return ids
