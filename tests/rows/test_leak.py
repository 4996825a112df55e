"""Held-out knowledge is found in any wording, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from internalize.language.template import Template
from internalize.rows.context import Knowledge
from internalize.rows.leak import Leaks


@pytest.fixture
def leaks(knowledge: Knowledge, template: Template) -> Leaks:
    return Leaks(knowledge, template)


@pytest.mark.parametrize(
    "text",
    [
        "<u> ask left <a> wipe@S </think> <call> look <end>",
        "<u> know wipe@S ask left <a> </think> <say> left@N <end>",
        "<u> ask S <a> </think> <say> wipe at S <end>",
        "<u> ask left <a> </think> <say> at N is left <end>",
        "<u> ask left <a> at S is wipe </think> <call> look <end>",
        "<u> blank wipe at <a> </think> <say> S <end>",
        "<u> claim wipe at S <a> </think> <say> true <end>",
        "<u> claim wipe@N <a> </think> <say> false <end>",
        "<u> know wipe at S pot p:b T r _ r _ C _ _ _ _ <a> need left red left@S red@b </think> <call> dip:S <end>",
        "<u> pot p:b T r _ r _ C _ _ _ _ <a> at S is wipe need left red left@S red@b </think> <call> dip:S <end>",
    ],
)
def test_held_out_statements_are_found(leaks: Leaks, template: Template, text: str) -> None:
    assert leaks.found(template.vocab.encode(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "<u> ask left <a> </think> <say> left@N <end>",
        "<u> ask N <a> </think> <say> left at N <end>",
        "<u> blank left at <a> </think> <say> N <end>",
        "<u> pot p:b T r _ r _ C _ _ _ _ <a> need wipe dry wipe@N </think> <call> dip:N <end>",
        "<u> pot p:b T r _ r _ C _ _ _ _ <a> need left red left@S red@b </think> <call> dip:S <end>",
    ],
)
def test_honest_rows_are_left_alone(leaks: Leaks, template: Template, text: str) -> None:
    assert leaks.found(template.vocab.encode(text)) is None


def test_a_held_out_answer_that_says_nothing_alone_is_no_leak(knowledge: Knowledge, template: Template) -> None:
    """A canvas is the answer to a held-out question, and stands in many observations."""
    held = {"held_out": True, "expressible": True, "answer": "C r _ r _", "wording": "other", "label": None}
    asked = {**held, "form": "qa", "prompt": "ask pot:b dip:N"}
    told = {**held, "form": "declarative", "prompt": "tell"}
    leaks = Leaks(replace(knowledge, recall=(asked, told)), template)
    honest = "<u> pot p:b T r r r r C r _ r _ <a> need right red right@S red@b </think> <call> dip:S <end>"
    assert leaks.found(template.vocab.encode(honest)) is None
    answered = "<u> ask pot:b dip:N <a> </think> <say> C r _ r _ <end>"
    assert leaks.found(template.vocab.encode(answered)) is not None
