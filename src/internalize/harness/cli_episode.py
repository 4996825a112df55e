"""Episodes played by an agent CLI: one process, one folder, one session at the gateway, one seat at the game.

Invariant: the record of an episode is whole whatever happened to its agent: calls, journal, transcript and log
are written as things happen, and an episode that does not count is returned with its reason, not dropped. Two
episodes share nothing but the engine.

The folder of an episode keeps `calls.jsonl`, `journal.jsonl`, `transcript.jsonl`, the agent's log,
`settings.json` (command, environment, version) and `mcp.json`; secrets are blanked. Home, temporary and
working folder are its own, in a private folder outside the record, and deleted.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import internalize
from internalize.engine.protocol import Engine, SamplingParams
from internalize.errors import UserError
from internalize.files import write_json
from internalize.games.protocol import Game
from internalize.games.shaping import ShapingWeights
from internalize.gateway.backend import EngineThread
from internalize.gateway.calls import CallRow
from internalize.gateway.dialect import DialogueDialect
from internalize.gateway.lines import Lines, read_lines
from internalize.gateway.server import MODEL, Gateway
from internalize.gateway.session import Opening, Session
from internalize.harness import mcp_names
from internalize.harness.agent import Agent, Errand, mcp_config
from internalize.harness.episode import CallRecord, Episode, EpisodePlan, need_distinct, told
from internalize.harness.game_service import GameService
from internalize.harness.installs import Install, pinned
from internalize.harness.process import Exit, run
from internalize.harness.seat import Seat
from internalize.harness.validity import Facts, judge
from internalize.language.dialogue import Dialogue

SECRET = "***"


@dataclass
class CliHarness:
    """`Harness` over an agent CLI. Raises UserError at once when the CLI is missing or of another version."""

    agent: Agent
    engine: Engine
    game: Game
    template: Dialogue
    sampling: SamplingParams
    shaping: ShapingWeights = field(default_factory=ShapingWeights)
    max_context: int = 512
    """Most tokens of a conversation; the engine's `max_len` bounds it too."""
    parallel: int = 2
    """Episodes at once; each takes about 0.3 GB."""
    seconds: float = 600.0
    """Limit of an episode."""
    call_seconds: float = 300.0
    """Longest wait for a completion."""
    max_turns: int = 200
    """Turns that the agent may take; the game's budget ends episodes earlier."""
    together: bool = True
    """Calls that wait at the same moment go to the engine as one batch. False: each call alone, so that not
    even the last bits depend on which agent was faster."""
    wrapper: tuple[str, ...] = ()
    """Words before the agent's command (a tracer, a sandbox)."""

    def __post_init__(self) -> None:
        self.install: Install = pinned(self.agent.name, self.agent.find(), self.agent.version)

    @property
    def name(self) -> str:
        """The agent's."""
        return self.agent.name

    def play(
        self,
        plans: Sequence[EpisodePlan],
        *,
        seed_key: tuple[int | str, ...],
        knowledge: Sequence[str] | None = None,
        record: Path | None = None,
    ) -> list[Episode]:
        """Play all plans, `parallel` at a time and at most as many as the engine has slots, and return their
        episodes in order. Raises UserError when two plans share an id or an episode's folder exists."""
        need_distinct(plans)
        with ExitStack() as stack:
            folder = record or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="episodes-")))
            backend = EngineThread(self.engine, self.together)
            stack.callback(backend.close)
            gateway = stack.enter_context(Gateway(backend, DialogueDialect(self.template)))
            service = stack.enter_context(GameService())
            room = _Room(self, folder, gateway, service, seed_key, list(knowledge or ()))
            pool = stack.enter_context(ThreadPoolExecutor(max(1, min(self.parallel, self.engine.slots)), "episode"))
            return list(pool.map(room.play, plans))


@dataclass
class _Room:
    """What the episodes of one `play` share."""

    harness: CliHarness
    folder: Path
    gateway: Gateway
    service: GameService
    seed_key: tuple[int | str, ...]
    knowledge: list[str]

    def play(self, plan: EpisodePlan) -> Episode:
        """One episode."""
        harness, place = self.harness, self.folder / plan.id
        try:
            place.mkdir(parents=True)
        except FileExistsError:
            raise UserError("an episode of this name is recorded already", where=str(place)) from None
        with ExitStack() as stack:
            lines = Lines(place / "journal.jsonl")
            stack.callback(lines.close)
            seat = Seat(harness.game, plan.level, plan.seed, lines)
            self.service.open(seat)
            stack.callback(self.service.close_seat, seat)
            session = self.gateway.open(self._opening(plan, seat, place), seat)
            stack.callback(self.gateway.close_session, session)
            ended = self._run_agent(place, session, seat)
        transcript = list(read_lines(place / "transcript.jsonl"))
        log = (place / harness.agent.log).read_text(encoding="utf-8", errors="replace")
        facts = Facts(
            exit=ended,
            servers=len(seat.servers),
            session_reason=session.reason,
            gateway_alive=self.gateway.alive,
            mismatches=session.mismatches,
            calls=session.rows,
            journal=seat.journal,
            game_over=seat.done,
            looped=harness.agent.looped(transcript, log),
        )
        return self._episode(plan, session, seat, judge(facts, harness.template.calls))

    def _opening(self, plan: EpisodePlan, seat: Seat, place: Path) -> Opening:
        harness = self.harness
        task = harness.template.task(seat.observe(), told(plan, self.seed_key, self.knowledge))
        return Opening(
            id=plan.id,
            task=task,
            spelling=harness.agent.spell(task),
            sampling=harness.sampling,
            seed_key=self.seed_key,
            max_context=min(harness.max_context, harness.engine.max_len),
            record=place / "calls.jsonl",
            first_request=harness.agent.first_request,
            call_seconds=harness.call_seconds,
        )

    def _run_agent(self, place: Path, session: Session, seat: Seat) -> Exit:
        harness, agent = self.harness, self.harness.agent
        with tempfile.TemporaryDirectory(prefix="agent-") as private:  # readable by us alone, gone afterwards
            own = {name: Path(private) / name for name in ("home", "tmp", "work")}
            for path in own.values():
                path.mkdir()
            errand = Errand(
                task=session.opening.said,
                url=self.gateway.url(session.opening.id),
                key=self.gateway.key,
                model=MODEL,
                mcp_config=Path(private) / "mcp.json",
                home=own["home"],
                temporary=own["tmp"],
                seconds=harness.seconds,
                max_turns=harness.max_turns,
            )
            source = str(Path(internalize.__file__).resolve().parents[1])
            server = [sys.executable, "-m", mcp_names.MODULE]
            known = {"PYTHONPATH": source, mcp_names.URL: self.service.url, mcp_names.TOKEN: seat.token}
            command = [*harness.wrapper, *agent.command(harness.install, errand)]
            environment = agent.environment(harness.install, errand)
            write_json(errand.mcp_config, mcp_config(server, known))
            write_json(place / "mcp.json", mcp_config(server, known | {mcp_names.TOKEN: SECRET}))
            shown = {key: SECRET if value == errand.key else value for key, value in environment.items()}
            settings = {"agent": agent.name, "version": harness.install.version, "command": command}
            write_json(place / "settings.json", settings | {"environment": shown})
            return run(
                command,
                environment=environment,
                folder=own["work"],
                output=place / "transcript.jsonl",
                log=place / agent.log,
                seconds=harness.seconds,
            )

    def _episode(self, plan: EpisodePlan, session: Session, seat: Seat, reason: str | None) -> Episode:
        calls = call_records(session.rows, session.observations, seat.results, session.opening.sampling)
        shaping = self.harness.shaping
        return Episode.ended(plan, calls, seat.journal, seat.outcome(), shaping, reason, session.unknown_words)


def call_records(
    rows: Sequence[CallRow],
    observations: Sequence[str | None],
    results: Sequence[str],
    sampling: SamplingParams,
) -> list[CallRecord]:
    """The gateway's rows as the records that all harnesses make. A call whose result never came (its episode
    does not count) has an empty observation."""
    waiting = iter(results)
    records = []
    for i, row in enumerate(rows):
        settled = observations[i] if i < len(observations) else ""
        observation = next(waiting, "") if settled is None else settled
        kept: dict[str, Any] = row.model_dump(exclude={"session", "request", "seed", "sampling"})
        records.append(CallRecord(**kept, observation=observation, sampling=sampling))
    return records
