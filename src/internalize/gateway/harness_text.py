"""What agent CLIs write into a prompt around the task, and what becomes of it: the only place that knows.

Invariant: a model with a closed vocabulary reads the task and the tools' results and nothing else, so all
harnesses give it the same tokens. Everything else must be one of these, or the call is outside the chain:

- the system prompt and the CLI's identity line before it: dropped (the closed vocabulary has no words for it);
- a `system` message with the date, before the first reply: dropped;
- `<system-reminder>` texts before the first reply (date, platform, folder): dropped;
- the task in the client's spelling (`Opening.spelling`): read as the task. Qwen Code takes `left@N` for a
  mention of the file `N` and writes `left @N`, or the file's content; so the task goes to it with `\\@`.

The first request as a whole is pinned by `fingerprint`, so what is dropped can't change unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict

from internalize.files import digest
from internalize.gateway.conversation import Conversation, Item, Replied, Result, Said

_DATE_LINE = re.compile(r"\s*Today's date is [\w ,/-]{4,40}\.?\s*")
_REMINDER = re.compile(r"\s*(<system-reminder>(?:(?!</?system-reminder>).)*</system-reminder>\s*)+", re.DOTALL)
#: What differs between two runs of one CLI version: dates, times, paths, kernel names.
_VARIABLE = (
    (re.compile(r"\b\d{4}[-/]\d{1,2}[-/]\d{1,2}\b"), "DATE"),
    (
        re.compile(
            r"\b(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day,? )?"
            r"(?:January|February|March|April|May|June|July|August|September|October|November|December) "
            r"\d{1,2},? \d{4}\b"
        ),
        "DATE",
    ),
    (re.compile(r"(?<![\w/<])/[\w.+@~-]+(?:/[\w.+@~-]+)*/?"), "PATH"),
)


def split_front(items: Sequence[Item]) -> tuple[list[Said], list[Item]]:
    """(what stands before the first reply or result, the rest)."""
    for i, item in enumerate(items):
        if not isinstance(item, Said):
            return list(items[:i]), list(items[i:])  # type: ignore[arg-type]
    return list(items), []  # type: ignore[arg-type]


def is_harness_text(said: Said) -> bool:
    """True for a text before the first reply that is known and dropped."""
    if said.role == "system":
        return _DATE_LINE.fullmatch(said.text) is not None
    return _REMINDER.fullmatch(said.text) is not None


def fingerprint(conversation: Conversation, task: str) -> str:
    """SHA-256 of a first request without its task and without what differs from run to run (`_VARIABLE`)."""
    front = [
        (item.role, "TASK" if item.text == task else steady(item.text))
        for item in conversation.items
        if isinstance(item, Said)
    ]
    return digest(
        {
            "system": [steady(text) for text in conversation.system],
            "front": front,
            "more": [type(item).__name__ for item in conversation.items if isinstance(item, Replied | Result)],
            "tools": [asdict(tool) for tool in conversation.tools],
            "parameters": conversation.parameters,
        }
    )


def steady(text: str) -> str:
    """`text` without dates and paths."""
    for pattern, name in _VARIABLE:
        text = pattern.sub(name, text)
    return text
