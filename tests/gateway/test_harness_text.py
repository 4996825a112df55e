from __future__ import annotations

from dataclasses import replace

import pytest

from internalize.gateway.conversation import Conversation, Said, Tool
from internalize.gateway.harness_text import fingerprint, is_harness_text, steady

REMINDER = "<system-reminder>\nToday is Monday, November 30, 2026.\nDirectory: /srv/agent-x1/work\n</system-reminder>"


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (Said("system", "Today's date is 2026-11-30."), True),
        (Said("system", "Today's date is Monday, November 30, 2026."), True),
        (Said("system", "Today's date is 2026-11-30. Also: 100 tokens left."), False),
        (Said("system", "<total_tokens>100 tokens left</total_tokens>"), False),
        (Said("user", "Today's date is 2026-11-30."), False),
        (Said("user", REMINDER), True),
        (Said("user", REMINDER + "\n" + REMINDER), True),
        (Said("user", REMINDER + " pot p:b"), False),
        (Said("user", REMINDER + " pot p:b " + REMINDER), False),
        (Said("user", "pot p:b"), False),
    ],
)
def test_only_known_texts_are_dropped(said: Said, known: bool) -> None:
    assert is_harness_text(said) is known


def test_fingerprint_ignores_dates_paths_and_the_task_only() -> None:
    def request(task: str, reminder: str = REMINDER) -> Conversation:
        return Conversation(
            (Said("user", reminder), Said("user", task)),
            ("Play.",),
            (Tool("act", "d", {}),),
            "policy",
            {"max_tokens": 1},
        )

    one = request("pot p:a")
    known = fingerprint(one, "pot p:a")
    moved = REMINDER.replace("Monday, November 30, 2026", "Saturday, May 2, 2037").replace("/srv/agent-x1", "/var/y/z")
    assert fingerprint(request("pot p:b", moved), "pot p:b") == known
    assert fingerprint(request("pot p:b", REMINDER.replace("Directory", "Folder")), "pot p:b") != known
    assert fingerprint(one, "another task") != known
    for change in ({"system": ("Play!",)}, {"tools": (Tool("act", "e", {}),)}, {"parameters": {"max_tokens": 2}}):
        assert fingerprint(replace(one, **change), "pot p:a") != known


def test_markup_is_no_path() -> None:
    assert steady("a </think> <call> b/c </system-reminder> /x/y") == "a </think> <call> b/c </system-reminder> PATH"
