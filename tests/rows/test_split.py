"""Rows cut back into turns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from internalize.games.dipwheel import DipWheel
from internalize.language.template import Template


@given(ids=st.lists(st.integers(0, 101), max_size=40))
def test_the_pieces_joined_are_the_row(template: Template, ids: list[int]) -> None:
    assert [t for user, reply in template.split(ids) for t in user + reply] == ids


def test_turns_and_replies_are_told_apart(game: DipWheel, template: Template) -> None:
    user, reply = template.user("ask left", ["left@N"]), template.reply_ids("", say="left@N")
    assert template.split(user + reply + user + reply) == [(user, reply), (user, reply)]
