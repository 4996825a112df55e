"""A model's own tokenizer and chat template as a dialogue."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from internalize.games.protocol import Action
from internalize.games.tools import as_functions
from internalize.language.calls import CallTable, ToolCall
from internalize.language.chat import SYSTEM, ChatTemplate

CALLS = CallTable({"up": Action("ACTION1"), "click:22": Action("ACTION6", 22, 4)}, spelled=True)
FACTS = ["A dip at N paints the bottom of the canvas in the loaded paint.", "Paint 9 is loaded by a click."]


@pytest.fixture(scope="module")
def chat(hub_model: Path) -> ChatTemplate:
    return ChatTemplate.load(hub_model, CALLS)


def test_prompts_are_those_of_transformers(chat: ChatTemplate, hub_model: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(hub_model)
    asked = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "level 1\n0-1: 5x64"}]
    shown = theirs.apply_chat_template(asked, tools=as_functions(), add_generation_prompt=True, tokenize=False)
    assert chat.decode(chat.user("level 1\n0-1: 5x64")) == shown
    assert chat.user("level 1\n0-1: 5x64") == theirs(shown, add_special_tokens=False)["input_ids"]
    replied = {
        "role": "assistant",
        "content": "",
        "reasoning_content": "hm",
        "tool_calls": [{"function": {"name": "act", "arguments": {"action": "ACTION1"}}}],
    }
    turns = [*asked, replied, {"role": "tool", "content": "level 1, 18 acts left"}]
    shown = theirs.apply_chat_template(turns, tools=as_functions(), add_generation_prompt=True, tokenize=False)
    reply = chat.reply_ids("hm", call="up")
    ours = [*chat.user("level 1\n0-1: 5x64"), *reply, *chat.result("level 1, 18 acts left", reply)]
    assert chat.decode(ours) == shown


@pytest.mark.parametrize(
    ("think", "call", "say"),
    [
        ("", "up", None),
        ("turn it", "click:22", None),
        ("hm", 'act:["ACTION6",1,2]', None),
        ("hm", "status", None),
        ("because", None, "It paints the top."),
        ("", None, "true"),
    ],
)
def test_what_is_written_is_read(chat: ChatTemplate, think: str, call: str | None, say: str | None) -> None:
    reply = chat.reply_ids(think, call=call, say=say)
    said = chat.parse(reply)
    assert (said.think, said.call, said.say) == (think, call, say)
    assert reply[-1] == chat.stop_id
    assert chat.ended(reply) == reply


@pytest.mark.parametrize(
    "text",
    [
        "<think>\nno end<|im_end|>",
        "<think>\n</think>\n\n<tool_call>\n{}\n</tool_call><|im_end|>",
        "<think>\n</think>\n\n<|im_end|>",
        '<tool_call>{"name": "reset", "arguments": {}}</tool_call><|im_end|>',
        '<tool_call>{"name": "act", "arguments": {"action": "A", "z": 1}}</tool_call><|im_end|>',
        '<tool_call>{"name": "act", "arguments": {"action": 5}}</tool_call><|im_end|>',
        '<tool_call>{"name": "look"}</tool_call><tool_call>{"name": "look"}</tool_call><|im_end|>',
        '<tool_call>{"name": "look"}',
        '<think>\nx\n</think>\n\n<tool_call>{"name": "look"}</tool_call>',
    ],
)
def test_all_else_is_bad(chat: ChatTemplate, text: str) -> None:
    assert chat.parse(chat.encode(text)).kind == "bad"


def test_the_other_form_of_calls_is_read_too(chat: ChatTemplate) -> None:
    text = "<think>\n</think>\n\n<tool_call>\n<function=act>\n<parameter=action>\nACTION6\n</parameter>\n"
    text += "<parameter=x>\n22\n</parameter>\n<parameter=y>\n4\n</parameter>\n</function>\n</tool_call><|im_end|>"
    assert chat.parse(chat.encode(text)).call == "click:22"


def test_a_conversation_is_cut_and_read_back(chat: ChatTemplate) -> None:
    first, later = chat.reply_ids("hm", call="up"), chat.encode("<think>\ncut off")
    read = [chat.user("level 1", FACTS), chat.result("level 1, 18", first), chat.result("level 1, 17", later)]
    tokens = [*read[0], *first, *read[1], *later, *read[2], *first]
    pieces = chat.split(tokens)
    assert [token for user, reply in pieces for token in (*user, *reply)] == tokens
    assert [reply for _, reply in pieces] == [first, chat.ended(later), first]
    shown = [chat.read_user(user) for user, _ in pieces]
    assert shown == [("level 1", FACTS), ("level 1, 18", []), ("level 1, 17", [])]
    assert chat.read_user(read[2]) == ("level 1, 17", [])


def test_a_recital_stands_at_the_top(chat: ChatTemplate) -> None:
    reply = chat.reply_ids("then up", call="up")
    top = chat.top(reply)
    told = [*reply[:top], *chat.recital(FACTS), *reply[top:]]
    assert chat.parse(told).think == "\n".join([*FACTS, "then up"])
    assert told[: len(chat.begun(FACTS))] == chat.begun(FACTS)


def test_offsets_are_those_of_the_text(chat: ChatTemplate) -> None:
    ids = chat.encode("paint é and ¼ 9")
    text, offsets = chat.decode(ids), chat.offsets(ids)
    assert offsets[0][0] == 0
    assert offsets[-1][1] == len(text)
    assert all(a[1] == b[0] for a, b in pairwise(offsets))


def test_calls_without_a_word_are_spelled() -> None:
    for call in (ToolCall("act", "ACTION6", 1, 2), ToolCall("act", "ACTION1"), ToolCall("look"), ToolCall("status")):
        assert CALLS.expand(CALLS.word_of(call)) == call
    assert CALLS.word_of(ToolCall("act", "ACTION1")) == "up"
    assert "act:[1]" not in CALLS
    assert "reset" not in CALLS
