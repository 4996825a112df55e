from __future__ import annotations

import copy
import json
from itertools import pairwise
from typing import Any

import pytest

from internalize.engine.faults import EngineDiedError
from internalize.engine.protocol import Completion, SamplingParams
from internalize.gateway import reasons
from internalize.gateway.session import CLOSING
from internalize.harness.episode import EpisodePlan
from internalize.harness.inprocess import play
from internalize.language.template import Template
from internalize.seeds import derive

WIRES = ("messages", "chat")


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("stream", [True, False])
def test_prompts_are_chained_as_in_process(
    wire: str, stream: bool, game: Any, template: Template, place: Any, client: Any, calls: Any
) -> None:
    script = calls("pot:a", "dip:N", "look", "dip:SW", "pot:c", "dip:SE", "dip:NW")
    here = place(script)
    client(here, wire, stream).play()

    class Engine:
        slots, max_len = 1, 256

        def generate(self, prompts: Any, sessions: Any, rngs: Any, sampling: Any) -> list[Completion]:
            nonlocal n
            n += 1
            ids = script[min(n, len(script)) - 1]
            return [Completion(ids, [-0.5] * len(ids), "stop", "scripted", 0)]

        def release(self, sessions: Any) -> None: ...

    n = 0
    sampling = SamplingParams(0.0, 8, (template.stop_id,))
    plan = EpisodePlan("e0", 4, 1000, 0, 0)
    expected = play(Engine(), game, template, [plan], sampling=sampling, seed_key=("test",), max_context=256)[0]
    rows = here.rows()
    assert [row["prompt_ids"] for row in rows] == [call.prompt_ids for call in expected.calls] == here.backend.prompts
    assert [row["output_ids"] for row in rows] == [call.output_ids for call in expected.calls]
    assert here.seat.journal == expected.journal
    assert here.seat.outcome() == expected.outcome
    assert here.backend.seeds == [derive("test", "e0", i) for i in range(len(rows))]
    assert here.session.reason is None
    assert here.session.mismatches == 0
    for first, later in pairwise(rows):
        held = first["prompt_ids"] + first["output_ids"]
        assert later["prompt_ids"][: len(held)] == held


@pytest.mark.parametrize("wire", WIRES)
def test_a_text_answer_ends_the_episode(wire: str, place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a", "say:left"))
    talk = client(here, wire)
    talk.play()
    assert here.seat.outcome().text_end
    assert [row["kind"] for row in here.rows()] == ["call", "say"]
    assert "left" in json.dumps(talk.messages[-1])


@pytest.mark.parametrize("bad", ["cut in a call", "cut in a think", "not a call word", "no think end"])
def test_an_unusable_reply_never_reaches_the_client(
    bad: str, template: Template, place: Any, client: Any, calls: Any
) -> None:
    """Token limit inside a tool call, malformed tool arguments: charged, asked again, never passed on."""
    call = template.vocab.id("<call>")
    ids = {
        "cut in a call": template.reply_ids("need left red left left left", call="dip:N")[:-2],
        "cut in a think": template.vocab.encode("need left red left left left left left"),
        "not a call word": [
            *template.reply_ids("need", call="dip:N")[:-2],
            template.vocab.id("left"),
            template.stop_id,
        ],
        "no think end": [call, template.vocab.id("dip:N"), template.stop_id],
    }[bad]
    here = place([ids, *calls("pot:a", "say:left")])
    talk = client(here, "messages")
    talk.play()
    rows = here.rows()
    assert [row["kind"] for row in rows] == ["bad", "call", "say"]
    assert here.seat.outcome().invalid == 1
    assert [row["arguments"]["action"] for row in here.seat.journal] == ["CLICK"]
    assert len([m for m in talk.messages if m["role"] == "assistant"]) == 2
    assert rows[1]["prompt_ids"] == rows[0]["prompt_ids"] + ids + template.user(here.session.opening.task)


def test_only_unusable_replies_use_up_the_budget(template: Template, place: Any, client: Any) -> None:
    here = place([[template.vocab.id("need")] * 8], level=1)
    talk = client(here, "messages")
    talk.play()
    outcome = here.seat.outcome()
    assert outcome.invalid == outcome.acts == outcome.budget == len(here.rows())
    assert here.seat.done
    assert CLOSING in json.dumps(talk.messages[-1])


def test_a_lost_answer_is_sent_again_and_not_drawn_again(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a", "dip:N", "say:left"))
    talk = client(here, "messages")
    first, again = talk.ask(), talk.ask()
    assert first.text == again.text
    assert len(here.rows()) == 1
    assert len(here.backend.prompts) == 1
    talk.act(talk.take(first))
    talk.play()
    assert [row["index"] for row in here.rows()] == [0, 1, 2]
    assert here.session.reason is None


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("change", "mismatches"),
    [
        ("trimmed think", 0),
        ("arguments rewritten", 0),
        ("other think", 1),
        ("other arguments", 1),
        ("think dropped", 1),
    ],
)
def test_what_comes_back_changed_is_counted_and_never_used(
    wire: str, change: str, mismatches: int, place: Any, client: Any, calls: Any
) -> None:
    here = place(calls("pot:a", "dip:N", "say:left"))
    talk = client(here, wire)
    talk.act(talk.take(talk.ask()))
    reply = next(m for m in talk.messages if m["role"] == "assistant")
    if wire == "messages":
        think, use = reply["content"]
        if change == "trimmed think":
            think["thinking"] = f" {think['thinking']}\n"
        elif change == "other think":
            think["thinking"] = "need right"
        elif change == "think dropped":
            reply["content"].remove(think)
        elif change == "other arguments":
            use["input"] = {**use["input"], "x": 99}
    else:
        function = reply["tool_calls"][0]["function"]
        if change == "trimmed think":
            reply["reasoning_content"] += " "
        elif change == "other think":
            reply["reasoning_content"] = "need right"
        elif change == "think dropped":
            del reply["reasoning_content"]
        elif change == "other arguments":
            function["arguments"] = "{}"
        else:
            function["arguments"] = json.dumps(json.loads(function["arguments"]), indent=1)
    talk.play()
    assert here.session.mismatches == mismatches
    rows = here.rows()
    assert len(rows) == 3
    for first, later in pairwise(rows):
        assert later["prompt_ids"][len(first["prompt_ids"]) :][: len(first["output_ids"])] == first["output_ids"]


def _broken(talk: Any, how: str) -> None:
    messages = talk.messages
    if how == "injected text":
        messages.append({"role": "user", "content": "Output token limit hit. Resume directly."})
    elif how == "text beside the result":
        messages[-1]["content"].append({"type": "text", "text": "[system note]"})
    elif how == "reminder beside the result":
        messages[-1]["content"].append({"type": "text", "text": "<system-reminder>hurry</system-reminder>"})
    elif how == "compaction":
        del messages[2:]
        messages.append({"role": "user", "content": "Summarise the conversation."})
    elif how == "history cut":
        del messages[2:4]
    elif how == "task changed":
        messages[0]["content"][0]["text"] += " left"
    elif how == "task split":
        messages[0]["content"][0]["text"] = messages[0]["content"][0]["text"].replace("p:", "p :")
    elif how == "other system text":
        messages[1]["content"] = "You have 100 tokens left."
    elif how == "other call id":
        messages[2]["content"][1]["id"] = messages[3]["content"][0]["tool_use_id"] = "call_x"
    elif how == "two calls":
        messages[2]["content"].append(copy.deepcopy(messages[2]["content"][1]))
    elif how == "result missing":
        messages.pop()
        messages.append({"role": "user", "content": []})
        messages.append({"role": "user", "content": "go on"})


@pytest.mark.parametrize(
    "how",
    [
        "injected text",
        "text beside the result",
        "reminder beside the result",
        "compaction",
        "history cut",
        "task changed",
        "task split",
        "other system text",
        "other call id",
        "two calls",
        "result missing",
    ],
)
def test_a_call_outside_the_chain_ends_the_session(how: str, place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a", "dip:N", "say:left"))
    talk = client(here, "messages")
    talk.act(talk.take(talk.ask()))
    talk.act(talk.take(talk.ask()))
    before = copy.deepcopy(talk.messages)
    _broken(talk, how)
    response = talk.ask()
    assert response.status_code == 400
    assert reasons.OUTSIDE_CHAIN in response.json()["error"]["message"]
    assert here.session.reason == reasons.OUTSIDE_CHAIN
    talk.messages = before
    assert talk.ask().status_code == 400  # it stays ended
    assert len(here.rows()) == 2


@pytest.mark.parametrize("wire", WIRES)
def test_a_result_that_the_game_did_not_give(wire: str, place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a", "dip:N"))
    talk = client(here, wire)
    call = talk.take(talk.ask())
    talk.result(call[0], "MCP error -32000: Connection closed")
    assert talk.ask().status_code == 400
    assert here.session.reason == reasons.TOOL_FAILED


def test_tools_and_first_request_are_pinned(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a"), name="a")
    talk = client(here, "messages")
    talk.ask()
    known = here.session.first_request
    assert known is not None
    same = place(calls("pot:a"), name="b", first_request=known)
    talk = client(same, "messages")
    talk.messages[1]["content"] = "Today's date is 2031-01-02."
    assert talk.ask().status_code == 200
    other = place(calls("pot:a"), name="c", first_request="0" * 64)
    assert client(other, "messages").ask().status_code == 400
    assert other.session.reason == reasons.FIRST_REQUEST_CHANGED
    more = place(calls("pot:a"), name="d")
    talk = client(more, "messages")
    body = talk.body()
    body["tools"] = body["tools"] + [{"name": "Bash", "description": "", "input_schema": {}}]
    assert more.post("/v1/messages", body).status_code == 400
    assert more.session.reason == reasons.TOOLS_CHANGED


def test_no_room_for_a_whole_reply(template: Template, place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a"), max_context=len(template.user("x " * 12)) + 8)
    talk = client(here, "messages")
    talk.act(talk.take(talk.ask()))
    assert talk.ask().status_code == 400
    assert here.session.reason == reasons.CONTEXT


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (EngineDiedError("it died"), "engine_died"),
        (RuntimeError("a bug"), reasons.ENGINE_FAILED),
        (60, reasons.ENGINE_TIMEOUT),
        (Completion([3, 4], [-1.0, -1.0], "abort", "v", 0), reasons.ABORTED),
    ],
)
def test_an_engine_that_fails_ends_the_session_and_loses_nothing(
    failure: Any, reason: str, place: Any, client: Any, calls: Any
) -> None:
    here = place([*calls("pot:a"), failure, *calls("dip:N")], call_seconds=0.2)
    talk = client(here, "messages")
    talk.act(talk.take(talk.ask()))
    response = talk.ask()
    assert response.status_code == 400  # not 5xx: a CLI would retry for minutes
    assert here.session.reason == reason
    assert talk.ask().status_code == 400
    assert [row["call_word"] for row in here.rows()][:1] == ["pot:a"]
    assert len(here.rows()) == (2 if reason == reasons.ABORTED else 1)
    assert len(here.seat.journal) == 1


def test_a_call_after_the_end(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("say:left"))
    talk = client(here, "messages")
    talk.play()
    talk.messages.append({"role": "user", "content": "[Your previous response had no visible output]"})
    assert talk.ask().status_code == 400
    assert here.session.reason == reasons.OUTSIDE_CHAIN


def test_count_tokens_is_the_next_prompt(place: Any, client: Any, calls: Any) -> None:
    here = place(calls("pot:a", "dip:N"))
    talk = client(here, "messages")
    counts = []
    for _ in range(2):
        body = {k: v for k, v in talk.body().items() if k in ("model", "messages", "tools", "system")}
        counts.append(here.post("/v1/messages/count_tokens", body).json()["input_tokens"])
        talk.act(talk.take(talk.ask()))
    assert counts == [len(prompt) for prompt in here.backend.prompts]
