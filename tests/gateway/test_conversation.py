from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.gateway import anthropic, openai
from internalize.gateway.body import parse
from internalize.gateway.conversation import Answer, Call, Conversation, Replied, RequestError

WORDS = st.text(alphabet="abc <>@:é\n", min_size=1, max_size=12)
ARGUMENTS = st.dictionaries(st.sampled_from(["action", "x", "y"]), st.integers() | WORDS, max_size=3)
REPLY = st.builds(
    lambda think, text, calls: Replied(think, text, tuple(Call(f"c{i}", n, a) for i, (n, a) in enumerate(calls))),
    think=st.just("") | WORDS,
    text=st.just("") | WORDS,
    calls=st.lists(st.tuples(st.sampled_from(["act", "look"]), ARGUMENTS), max_size=2),
)
TURNS = st.lists(st.tuples(REPLY, WORDS), max_size=3)


def _messages(task: str, turns: list[tuple[Replied, str]], parts: bool) -> Conversation:
    """As a client of the Messages API that keeps what it got."""
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": task}] if parts else task},
    ]
    for reply, result in turns:
        content = anthropic.message(_answer(reply), "policy")["content"]
        messages.append({"role": "assistant", "content": content})
        text = [{"type": "text", "text": result}] if parts else result
        results = [{"type": "tool_result", "tool_use_id": c.id, "content": text} for c in reply.calls]
        messages.append({"role": "user", "content": [*results, {"type": "text", "text": "go on"}]})
    body = {"model": "policy", "max_tokens": 9, "system": "Play.", "messages": messages}
    return anthropic.conversation(parse(anthropic.MessagesRequest, json.dumps(body).encode()))


def _chat(task: str, turns: list[tuple[Replied, str]], parts: bool) -> Conversation:
    def content(text: str) -> Any:
        return [{"type": "text", "text": text}] if parts else text

    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Play."},
        {"role": "user", "content": content(task)},
    ]
    for reply, result in turns:
        messages.append(openai.completion(_answer(reply), "policy", 0)["choices"][0]["message"])
        messages += [{"role": "tool", "tool_call_id": c.id, "content": content(result)} for c in reply.calls]
        messages.append({"role": "user", "content": content("go on")})
    body = {"model": "policy", "max_tokens": 9, "messages": messages}
    return openai.conversation(parse(openai.ChatRequest, json.dumps(body).encode()))


def _answer(reply: Replied) -> Answer:
    return Answer("m", reply, 10, 5, 3)


@settings(max_examples=100, deadline=None)
@given(task=WORDS, turns=TURNS)
def test_both_apis_and_both_spellings_say_the_same(task: str, turns: list[Any]) -> None:
    one = _messages(task, turns, parts=False)
    assert one == _messages(task, turns, parts=True) == _chat(task, turns, False) == _chat(task, turns, True)
    assert [item for item in one.items if isinstance(item, Replied)] == [reply for reply, _ in turns]


@settings(max_examples=50, deadline=None)
@given(reply=REPLY)
def test_a_stream_says_what_the_whole_reply_says(reply: Replied, readers: Any) -> None:
    from_events, from_chunks = readers
    answer = _answer(reply)
    assert from_events(anthropic.stream(answer, "policy").decode()) == anthropic.message(answer, "policy")
    whole = openai.completion(answer, "policy", 0)["choices"][0]["message"]
    streamed = from_chunks(openai.stream(answer, "policy", 0, True).decode())
    assert {"reasoning_content": "", **streamed} == whole


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}],
        [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "a"}]}],
        [{"role": "user", "content": [{"type": "image", "source": {}}]}],
        [{"role": "robot", "content": "x"}],
        [],
    ],
)
def test_blocks_in_the_wrong_place_are_refused(messages: list[Any]) -> None:
    body = json.dumps({"model": "policy", "max_tokens": 1, "messages": messages}).encode()
    with pytest.raises(RequestError):
        anthropic.conversation(parse(anthropic.MessagesRequest, body))


def test_tools_without_parameters_and_broken_arguments() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"action": "ri'}}
    body = {
        "model": "policy",
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": [call]}],
        "tools": [{"type": "function", "function": {"name": "look"}}],
    }
    said = openai.conversation(parse(openai.ChatRequest, json.dumps(body).encode()))
    assert said.items[-1] == Replied(calls=(Call("a", "look", None),))
    assert said.tools[0].schema == {}
