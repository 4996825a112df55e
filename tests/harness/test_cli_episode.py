"""Whole episodes by an agent process, without an agent CLI: a double that talks as one does."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from doubles import Double

from internalize.engine.protocol import SamplingParams
from internalize.errors import UserError
from internalize.games.protocol import Game
from internalize.gateway import reasons
from internalize.gateway.calls import CallRow
from internalize.harness import cli_episode, validity
from internalize.harness.cli_episode import CliHarness
from internalize.harness.episode import Episode, EpisodePlan, read_episodes, write_episodes
from internalize.harness.inprocess import play
from internalize.language.template import Template
from internalize.records import JournalRow


def _replies(template: Template, *words: str) -> list[list[int]]:
    return [template.reply_ids("need left", call=word) for word in words]


@pytest.fixture
def run(game: Game, template: Template, scripted: Any, tmp_path: Path) -> Callable[..., list[Episode]]:
    def run(
        how: str = "ok", plans: Sequence[EpisodePlan] = (), knowledge: Sequence[str] | None = None, **more: Any
    ) -> list[Episode]:
        plans = plans or [EpisodePlan("e0", 4, 1000, 0, 0)]
        script = _replies(template, "pot:a", "dip:N", "look", "dip:SW", "dip:N", "dip:N", "dip:N", "dip:N")
        engine = more.pop("engine", None) or scripted({plan.id: script for plan in plans})
        agent = Double(how, more.pop("first_request", None))
        sampling = SamplingParams(0.0, 8, (template.stop_id,))
        harness = CliHarness(agent, engine, game, template, sampling, **more)
        return harness.play(plans, seed_key=("test",), knowledge=knowledge, record=tmp_path / "episodes")

    return run


def test_the_same_episode_as_in_process(
    run: Any, game: Game, template: Template, random_engine: Any, tmp_path: Path
) -> None:
    """Sampled, so with every kind of reply: same tokens, acts, outcomes, records; only the cache may differ."""
    plans = [EpisodePlan(f"e{i}", level, 1000 + i, i, 0) for i, level in enumerate((1, 4))]
    sampling = SamplingParams(0.0, 8, (template.stop_id,))
    facts = ["left@N", "trap@NE", "top@SE", "blue@a"]
    expected = play(random_engine(), game, template, plans, sampling=sampling, seed_key=("test",), knowledge=facts)
    episodes = run(plans=plans, knowledge=facts, engine=random_engine())
    assert [episode.reason for episode in episodes] == [None, None]
    for mine, theirs in zip(episodes, expected, strict=True):
        for ours, call in zip(mine.calls, theirs.calls, strict=True):
            assert ours.logprobs == pytest.approx(call.logprobs, abs=1e-4)
            ours.logprobs, ours.cached_tokens = call.logprobs, call.cached_tokens
        assert mine == theirs
    write_episodes(tmp_path / "written", episodes)
    assert read_episodes(tmp_path / "written") == episodes


def test_the_folder_of_an_episode(run: Any, tmp_path: Path, template: Template) -> None:
    (episode,) = run()
    assert episode.valid
    place = tmp_path / "episodes" / "e0"
    names = {"calls.jsonl", "journal.jsonl", "transcript.jsonl", "double.log", "settings.json", "mcp.json"}
    assert {path.name for path in place.iterdir()} == names
    calls = [CallRow.model_validate_json(line) for line in (place / "calls.jsonl").read_text().splitlines()]
    assert [c.output_ids for c in calls] == [c.output_ids for c in episode.calls]
    journal = [JournalRow.model_validate_json(line) for line in (place / "journal.jsonl").read_text().splitlines()]
    assert [row.model_dump() for row in journal] == episode.journal
    said = [json.loads(line) for line in (place / "transcript.jsonl").read_text().splitlines()]
    uses = [block["input"] for reply in said for block in reply["content"] if block["type"] == "tool_use"]
    table = template.calls
    assert uses == [
        {k: v for k, v in table.expand(c.call_word or "").arguments().items() if v is not None} for c in calls
    ]
    settings = (place / "settings.json").read_text() + (place / "mcp.json").read_text()
    assert settings.count("***") == 2
    home = json.loads((place / "settings.json").read_text())["environment"]["HOME"]
    assert not Path(home).exists()
    with pytest.raises(UserError, match="recorded already"):
        run()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("no server", validity.MCP_NOT_CONNECTED),
        ("more tools", reasons.TOOLS_CHANGED),
        ("server dies", reasons.TOOL_FAILED),
        ("server restarted", validity.MCP_RESTARTED),
        ("compaction", reasons.OUTSIDE_CHAIN),
        ("think changed", reasons.SPLICE_MISMATCH),
        ("acts twice", reasons.TOOL_FAILED),
        ("acts after the end", validity.JOURNAL_MISMATCH),
        ("killed", validity.AGENT_KILLED),
        ("gives up", validity.UNFINISHED),
        ("loop guard", validity.LOOP_GUARD),
        ("bad status", validity.EXIT_STATUS),
    ],
)
def test_each_failure_has_its_name(how: str, reason: str, run: Any, tmp_path: Path) -> None:
    """The episode is kept, does not count, and its record holds all that happened."""
    (episode,) = run(how)
    assert (episode.valid, episode.reason) == (False, reason)
    place = tmp_path / "episodes" / "e0"
    lines = (place / "calls.jsonl").read_text().splitlines()
    assert [json.loads(line)["output_ids"] for line in lines] == [call.output_ids for call in episode.calls]
    assert [json.loads(line) for line in (place / "journal.jsonl").read_text().splitlines()] == episode.journal
    assert bool(episode.calls) == (how not in ("no server", "more tools"))
    if how == "server restarted":
        assert "refused" in (place / "transcript.jsonl").read_text()
        assert "the seat is taken" in (place / "double.log").read_text()


def test_another_first_request(run: Any) -> None:
    (episode,) = run(first_request="0" * 64)
    assert episode.reason == reasons.FIRST_REQUEST_CHANGED


def test_the_time_limit_ends_the_whole_group(run: Any, tmp_path: Path) -> None:
    for seconds in (4.0, 16.0, 64.0):  # on a busy machine it takes an agent a while to come as far as that
        (episode,) = run("hangs", [EpisodePlan(f"e{seconds:g}", 4, 1000, 0, 0)], seconds=seconds)
        said = (tmp_path / "episodes" / episode.plan.id / "transcript.jsonl").read_text().splitlines()
        if said and "child" in said[-1]:
            break
    assert episode.reason == validity.TIMEOUT
    last = json.loads(said[-1])
    for pid in last.values():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert len(episode.calls) == 1


def test_a_gateway_that_ends_before_the_episode(
    run: Any, template: Template, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateways = []

    class Known(cli_episode.Gateway):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            gateways.append(self)

    engine = scripted({"e0": _replies(template, "pot:a", "dip:N")})
    generate = engine.generate

    def ending(*args: Any) -> Any:
        if len(engine.prompts.get("e0", ())) == 1:
            closing = threading.Thread(target=gateways[0].close)
            closing.start()
        return generate(*args)

    engine.generate = ending
    monkeypatch.setattr(cli_episode, "Gateway", Known)
    (episode,) = run(engine=engine)
    assert episode.reason == reasons.GATEWAY_LOST
    assert [call.call_word for call in episode.calls][:1] == ["pot:a"]


def test_an_engine_that_fails_ends_its_episode_only(run: Any, template: Template, scripted: Any) -> None:
    engine = scripted({"e0": _replies(template, "pot:a"), "e1": _replies(template, "pot:a", "dip:N")})
    generate = engine.generate

    def failing(prompts: Any, sessions: Any, *more: Any) -> Any:
        if list(sessions) == ["e0"] and engine.prompts.get("e0"):
            raise RuntimeError("out of memory")
        return generate(prompts, sessions, *more)

    engine.generate, engine.slots = failing, 1
    first, second = run(engine=engine, plans=[EpisodePlan(f"e{i}", 1, 1000, i, 0) for i in range(2)])
    assert (first.reason, len(first.calls)) == (reasons.ENGINE_FAILED, 1)
    assert second.valid


def test_two_plans_of_one_name(run: Any) -> None:
    with pytest.raises(UserError, match="share an id"):
        run(plans=[EpisodePlan("e0", 1, 1, 0, 0), EpisodePlan("e0", 1, 2, 0, 1)])
