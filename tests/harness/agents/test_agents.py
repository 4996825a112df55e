"""Whole episodes of the bundled game by real agent CLIs."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from internalize.engine.client import EngineClient
from internalize.engine.faults import EngineDiedError
from internalize.engine.protocol import Completion
from internalize.engine.remote import RemoteEngine
from internalize.engine.server import serve
from internalize.files import read_jsonl
from internalize.gateway import reasons
from internalize.harness import cli_episode, validity
from internalize.harness.check import check, render
from internalize.harness.choose import AGENTS
from internalize.harness.episode import Episode, EpisodePlan
from internalize.harness.inprocess import InProcess
from internalize.harness.seat import Seat
from internalize.language.template import Template

pytestmark = pytest.mark.cli

FACTS = ("left@N", "trap@NE", "top@SE", "wipe@S", "right@SW", "bottom@NW", "blue@a", "red@b", "green@c")
PLANS = [EpisodePlan(f"e{i}", level, 2000 + i, i, 0) for i, level in enumerate((2, 4, 3))]


def _comparable(episode: Episode) -> Episode:
    for call in episode.calls:
        call.cached_tokens = 0  # depends on who came first
        call.logprobs = [round(x, 4) for x in call.logprobs]
    return episode


@pytest.mark.parametrize(("knowledge", "temperature"), [(FACTS, 0.0), (None, 1.0)])
def test_the_same_episodes_as_in_process(
    agent: Any, base: Any, game: Any, make: Any, tmp_path: Path, knowledge: Any, temperature: float
) -> None:
    """Token chain exact; journal, calls and transcript agree; acts and outcomes are those of the other
    harnesses, greedy or sampled."""
    engine, template = base
    harness = make(agent, engine, template, temperature=temperature)
    key = ("agents", 1)
    expected = InProcess(engine, game, template, harness.sampling).play(PLANS, seed_key=key, knowledge=knowledge)
    episodes = harness.play(PLANS, seed_key=key, knowledge=knowledge, record=tmp_path / "episodes")
    assert [episode.reason for episode in episodes] == [None] * len(PLANS)
    for mine, theirs in zip(episodes, expected, strict=True):
        assert mine.prefix_extending
        assert _comparable(mine) == _comparable(theirs)
        _records_agree(tmp_path / "episodes" / mine.plan.id, mine, template)


def test_the_same_tokens_with_the_engine_behind_http(
    agent: Any, base: Any, game: Any, make: Any, repository: Path
) -> None:
    with (
        serve(repository / "prebuilt/dipwheel", slots=4) as served,
        RemoteEngine(lambda: EngineClient(served.urls)) as far,
    ):
        harness = make(agent, far, base[1], temperature=1.0)
        (episode,) = harness.play(PLANS[:1], seed_key=("agents", 2), knowledge=FACTS)
    near = InProcess(base[0], game, base[1], harness.sampling)
    (expected,) = near.play(PLANS[:1], seed_key=("agents", 2), knowledge=FACTS)
    assert episode.valid
    assert _comparable(episode) == _comparable(expected)


def _records_agree(place: Path, episode: Episode, template: Template) -> None:
    calls = list(read_jsonl(place / "calls.jsonl"))
    assert [c["prompt_ids"] + c["output_ids"] for c in calls] == [c.prompt_ids + c.output_ids for c in episode.calls]
    assert list(read_jsonl(place / "journal.jsonl")) == episode.journal
    uses, results = [], []
    for event in read_jsonl(place / "transcript.jsonl"):
        if event["type"] in ("assistant", "user") and isinstance(event["message"]["content"], list):
            for block in event["message"]["content"]:
                if block["type"] == "tool_use":
                    uses.append((block["name"].removeprefix("mcp__game__"), block["input"]))
                elif block["type"] == "tool_result":
                    content = block["content"]
                    results.append(content if isinstance(content, str) else content[0]["text"])
    sampled = [template.calls.expand(c.call_word or "") for c in episode.calls if c.kind == "call"]
    assert uses == [(c.tool, {k: v for k, v in c.arguments().items() if v is not None}) for c in sampled]
    assert results == [row["result"]["observation"] for row in episode.journal]


def test_no_request_leaves_loopback(agent: Any, base: Any, make: Any, tmp_path: Path, strace: str) -> None:
    trace = tmp_path / "trace"
    wrapper = (strace, "-f", "-o", str(trace), "-e", "trace=connect,sendto,sendmsg,sendmmsg")
    harness = make(agent, *base, wrapper=wrapper)
    (episode,) = harness.play(PLANS[:1], seed_key=("agents", 1), knowledge=FACTS)
    assert episode.valid
    text = trace.read_text(errors="replace")
    addresses = re.findall(r'inet_addr\("([^"]+)"\)|inet_pton\(AF_INET6, "([^"]+)"', text)
    assert addresses
    assert {a or b for a, b in addresses} <= {"127.0.0.1", "::1"}


def _script(template: Template, *words: str) -> list[list[int]]:
    return [template.reply_ids("need left", call=word) for word in words]


def test_cut_and_malformed_calls_are_never_carried_out(
    agent: Any, template: Template, make: Any, scripted: Any
) -> None:
    cut = [*template.vocab.encode("need left"), template.vocab.id("</think>"), template.vocab.id("<call>")]
    unknown = [*cut, template.vocab.id("left"), template.stop_id]
    engine = scripted({"e0": [cut, unknown, *_script(template, "pot:a", "dip:S", "dip:N", "dip:N", "dip:N", "dip:N")]})
    (episode,) = make(agent, engine, template).play(PLANS[:1], seed_key=("x",))
    assert episode.valid
    assert [call.kind for call in episode.calls][:3] == ["bad", "bad", "call"]
    assert len(episode.journal) == len(episode.calls) - 2
    assert episode.outcome.invalid == 2


@pytest.mark.parametrize(
    ("failure", "reason"),
    [("dies", "engine_died"), ("hangs", reasons.ENGINE_TIMEOUT), ("aborts", reasons.ABORTED)],
)
def test_an_engine_that_fails_ends_the_episode_at_once(
    failure: str, reason: str, agent: Any, template: Template, make: Any, scripted: Any
) -> None:
    """Neither CLI retries for minutes, compacts, or goes on by itself."""
    engine = scripted({"e0": _script(template, "pot:a", "dip:N")})
    generate = engine.generate

    def failing(*args: Any) -> list[Completion]:
        done: list[Completion] = generate(*args)
        if len(engine.prompts["e0"]) == 2:
            if failure == "dies":
                raise EngineDiedError("the connection ended")
            if failure == "hangs":
                stop.wait(60)
            return [Completion([3], [-1.0], "abort", "v", 0)]
        return done

    stop = threading.Event()
    engine.generate = failing
    (episode,) = make(agent, engine, template, call_seconds=1.0).play(PLANS[:1], seed_key=("x",))
    stop.set()
    assert episode.reason == reason
    assert len(engine.prompts["e0"]) == 2
    assert len(episode.journal) == 1


def test_the_mcp_server_is_killed_in_a_call(
    agent: Any, template: Template, make: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Seat.call

    def deadly(seat: Seat, tool: str, arguments: Any) -> str:
        text = call(seat, tool, arguments)
        if len(seat.journal) == 2:
            os.kill(seat.servers[0], signal.SIGKILL)
        return text

    monkeypatch.setattr(Seat, "call", deadly)
    engine = scripted({"e0": _script(template, "pot:a", "dip:S", "pot:b", "dip:S")})
    (episode,) = make(agent, engine, template).play(PLANS[:1], seed_key=("x",))
    assert episode.reason == reasons.TOOL_FAILED
    assert [row["tool"] for row in episode.journal] == ["act", "act"]
    assert len(episode.calls) == 2


def test_the_agent_is_killed(
    agent: Any, template: Template, make: Any, scripted: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    groups: list[int] = []
    popen = cli_episode.run.__globals__["subprocess"].Popen

    class Known(popen):  # type: ignore[misc,valid-type]
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            if more.get("start_new_session"):
                groups.append(self.pid)

    monkeypatch.setattr("internalize.harness.process.subprocess.Popen", Known)
    engine = scripted({"e0": _script(template, "pot:a", "dip:S", "pot:b")})
    generate = engine.generate

    def deadly(*args: Any) -> Any:
        done = generate(*args)
        if len(engine.prompts["e0"]) == 3:
            os.kill(groups[0], signal.SIGKILL)
        return done

    engine.generate = deadly
    (episode,) = make(agent, engine, template).play(PLANS[:1], seed_key=("x",), record=tmp_path / "episodes")
    assert episode.reason == validity.AGENT_KILLED
    with pytest.raises(ProcessLookupError):
        os.killpg(groups[0], 0)
    rows = [json.loads(line) for line in (tmp_path / "episodes/e0/calls.jsonl").read_text().splitlines()]
    assert [row["call_word"] for row in rows][:2] == ["pot:a", "dip:S"]
    assert len(rows) == len(episode.calls)


def test_equal_calls_meet_the_guard_of_qwen_code(agent: Any, template: Template, make: Any, scripted: Any) -> None:
    engine = scripted({"e1": _script(template, "look")})
    (episode,) = make(agent, engine, template).play(PLANS[1:2], seed_key=("x",))
    if agent.name == "qwen-code":
        assert episode.reason == validity.LOOP_GUARD
        assert len(episode.journal) == 4
    else:
        assert episode.valid
        assert len(episode.journal) == episode.outcome.budget


def test_check_finds_what_is_installed(repository: Path, game: Any, agent: Any) -> None:
    findings = check(repository / "prebuilt/dipwheel", game, ["inprocess", agent.name])
    assert [(f.harness, f.status) for f in findings] == [("inprocess", "ok"), (agent.name, "ok")]
    assert agent.version in render(findings)
    assert set(AGENTS) >= {agent.name}
