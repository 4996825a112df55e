"""A game played by any OpenAI-compatible endpoint, for a baseline: the same tools, texts and levels as the harnesses.

Invariant: whatever the endpoint answers, every tool call that the game saw is in the episode's journal, and an episode
that the endpoint broke off is kept, named and not counted.

There are no token ids here, so nothing of this can be trained on. How a reply is taken: each of its calls is carried
out and answered, one after the other; a reply without a call ends the episode, as a text answer does everywhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx

from internalize.errors import UserError
from internalize.files import write_json, write_jsonl
from internalize.games.protocol import Game
from internalize.games.shaping import Outcome, ShapingWeights, shaped_return
from internalize.games.tools import as_functions
from internalize.gateway.lines import Lines
from internalize.harness.episode import EpisodePlan
from internalize.harness.seat import Seat
from internalize.proportion import wilson

FAILED, TURNS = "endpoint_failed", "too_many_turns"
"""Reasons of episodes that do not count."""
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
TRIES = 4
MAX_TURNS = 300
EPISODES, JOURNAL, TRANSCRIPT, SUMMARY = "episodes.jsonl", "journal.jsonl", "transcript.jsonl", "summary.json"


class _BrokenOff(Exception):
    """The endpoint gives no reply that can be gone on with."""


@dataclass
class Endpoint:
    """An address that speaks `POST {url}/chat/completions`.

    Args:
        url: up to and with the version, `http://host:port/v1`.
        model: what to ask for; empty asks the endpoint for the first of its models.
        key: bearer token; empty sends none.
        seconds: longest wait for a reply.
        options: further keys of a request (`temperature`, `max_tokens`).
    """

    url: str
    model: str = ""
    key: str = ""
    seconds: float = 300.0
    options: dict[str, Any] = field(default_factory=dict)
    transport: httpx.BaseTransport | None = None

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UserError("not an endpoint", where="--endpoint", got=self.url, expected="http://host:port/v1")
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        self._http = httpx.Client(
            base_url=self.url.rstrip("/") + "/", headers=headers, timeout=self.seconds, transport=self.transport
        )
        if not self.model:
            self.model = self._first_model()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def reply(self, messages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The assistant's next message.

        Raises:
            UserError: the endpoint refuses the request as such (wrong key, unknown model): every other would fail too.
            _BrokenOff: it gives no usable reply to this one.
        """
        body = {"model": self.model, "messages": list(messages), "tools": as_functions(), **self.options}
        for attempt in range(TRIES):
            try:
                answer = self._http.post("chat/completions", json=body)
            except httpx.ConnectError as error:
                raise self._refusal("the endpoint does not answer", str(error)) from error
            except httpx.HTTPError as error:
                if attempt == TRIES - 1:
                    raise _BrokenOff(f"{type(error).__name__}: {error}") from error
                continue
            if answer.status_code in BUSY and attempt < TRIES - 1:
                time.sleep(0.5 * 2**attempt)
                continue
            break
        if answer.status_code in (401, 403, 404):
            raise self._refusal("the endpoint refuses", f"HTTP {answer.status_code}: {answer.text[:200]}")
        try:
            message: dict[str, Any] = answer.raise_for_status().json()["choices"][0]["message"]
        except (httpx.HTTPStatusError, ValueError, KeyError, IndexError, TypeError) as error:
            raise _BrokenOff(f"HTTP {answer.status_code}: {answer.text[:200]}") from error
        return message

    def _first_model(self) -> str:
        try:
            return str(self._http.get("models").raise_for_status().json()["data"][0]["id"])
        except (httpx.HTTPError, ValueError, KeyError, IndexError, TypeError) as error:
            raise self._refusal("the endpoint names no model", str(error), "say one: --model NAME") from error

    def _refusal(self, what: str, got: str, fix: str = "check --endpoint, --model and the key's variable") -> UserError:
        return UserError(what, where=self.url, got=got, fix=fix)


@dataclass(frozen=True)
class Played:
    """One episode."""

    plan: EpisodePlan
    outcome: Outcome
    returned: float
    replies: int
    reason: str | None = None
    """Why it does not count; None if it does."""


def play_endpoint(
    endpoint: Endpoint,
    game: Game,
    plans: Sequence[EpisodePlan],
    out: Path,
    *,
    told: Sequence[str] = (),
    parallel: int = 4,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Played]:
    """Plays all plans into `out`: a folder an episode with journal.jsonl and transcript.jsonl, and episodes.jsonl.

    Args:
        told: sentences that the model is told about the game.

    Raises:
        UserError: `out` holds episodes already, or the endpoint refuses.
    """
    if (out / EPISODES).exists():
        raise UserError("episodes were played into this folder before", where=str(out), fix="name another with --out")

    def play(plan: EpisodePlan) -> Played:
        place = out / plan.id
        place.mkdir(parents=True, exist_ok=True)
        lines = Lines(place / JOURNAL)
        try:
            seat = Seat(game, plan.level, plan.seed, lines)
            messages, replies, reason = converse(endpoint, seat, brief(game, told))
        finally:
            lines.close()
        write_jsonl(place / TRANSCRIPT, messages)
        outcome = seat.outcome()
        returned = shaped_return(outcome, ShapingWeights())["return"]
        progress(f"{plan.id}, level {plan.level}: {reason or ('cleared' if outcome.cleared else 'not cleared')}")
        return Played(plan, outcome, returned, replies, reason)

    with ThreadPoolExecutor(max(1, parallel)) as pool:
        played = list(pool.map(play, plans))
    write_jsonl(out / EPISODES, map(asdict, played))
    write_json(out / SUMMARY, {"endpoint": endpoint.url, "model": endpoint.model, "levels": summary(played)})
    return played


def converse(endpoint: Endpoint, seat: Seat, system: str) -> tuple[list[dict[str, Any]], int, str | None]:
    """One episode: (messages, replies, why it does not count)."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system},
        {"role": "user", "content": seat.observe()},
    ]
    for replies in range(MAX_TURNS):
        if seat.done:
            return messages, replies, None
        try:
            reply = endpoint.reply(messages)
        except _BrokenOff as error:
            messages.append({"role": "error", "content": str(error)})
            return messages, replies, FAILED
        calls = reply.get("tool_calls") or []
        kept = {key: reply[key] for key in ("content", "reasoning_content", "tool_calls") if reply.get(key)}
        messages.append({"role": "assistant", "content": "", **kept})
        if not calls:
            seat.text_end()
            return messages, replies + 1, None
        messages += [
            {"role": "tool", "tool_call_id": call.get("id", ""), "content": _carry_out(seat, call)} for call in calls
        ]
    return messages, MAX_TURNS, TURNS


def brief(game: Game, told: Sequence[str]) -> str:
    """What the system message says: the task, how to read the screen, and what is known."""
    known = "".join(f"\n- {sentence}" for sentence in told)
    return (
        "You play a game by its tools, one call a turn. Clear the level in as few acts as possible; what each action "
        f"does is for you to find out. {game.legend()} A reply without a tool call ends the game."
        + (f"\nWhat is known about the game:{known}" if told else "")
    )


def summary(played: Sequence[Played]) -> list[dict[str, Any]]:
    """A row a level and one for all: episodes that count, clears with their interval, mean return and replies."""
    counted = [one for one in played if one.reason is None]
    rows = []
    for level in [*sorted({one.plan.level for one in played}), None]:
        there = [one for one in counted if level in (None, one.plan.level)]
        clears = sum(one.outcome.cleared for one in there)
        low, high = wilson(clears, len(there)) if there else (0.0, 1.0)
        total = sum(1 for one in played if level in (None, one.plan.level))
        rows.append(
            {
                "level": "all" if level is None else level,
                "episodes": len(there),
                "not_counted": total - len(there),
                "clears": clears,
                "wilson_low": low,
                "wilson_high": high,
                "return_mean": sum(one.returned for one in there) / len(there) if there else None,
                "replies": sum(one.replies for one in there) / len(there) if there else None,
            }
        )
    return rows


def table(played: Sequence[Played]) -> str:
    """The summary as text."""
    lines = [f"{'level':>5} {'episodes':>8} {'clears':>6}  {'95 % interval':<15} {'return':>7} {'replies':>7}"]
    for row in summary(played):
        interval = f"{row['wilson_low']:.1%} .. {row['wilson_high']:.1%}"
        mean = "" if row["return_mean"] is None else f"{row['return_mean']:+.3f}"
        replies = "" if row["replies"] is None else f"{row['replies']:.1f}"
        lost = f"  ({row['not_counted']} not counted)" if row["not_counted"] else ""
        head = f"{row['level']!s:>5} {row['episodes']:>8} {row['clears']:>6}"
        lines.append(f"{head}  {interval:<15} {mean:>7} {replies:>7}{lost}")
    return "\n".join(lines)


def _carry_out(seat: Seat, call: dict[str, Any]) -> str:
    """The text of a tool call's result; of a call that is none, what is wrong with it, for an act."""
    if seat.done:
        return "the episode is over"
    try:
        name = str(call["function"]["name"]).rsplit("__", 1)[-1]
        given = call["function"].get("arguments") or "{}"
        arguments = json.loads(given) if isinstance(given, str) else given
        if not isinstance(arguments, dict):
            raise ValueError("arguments are no JSON object")
        return seat.call(name, arguments)
    except (KeyError, TypeError, ValueError, UserError) as error:
        return f"not a call of the game's tools: {error}\n{seat.unusable()}"
