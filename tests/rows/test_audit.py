"""Every check of the audit finds the fault planted for it, and a fault of one row fails the set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from internalize.errors import UserError
from internalize.games.dipwheel import DipWheel, Rules
from internalize.harness.episode import Episode
from internalize.language.template import Template
from internalize.records import SftRow
from internalize.rows.audit import CHECKS, Audit, audit
from internalize.rows.context import RowContext
from internalize.rows.sources import build_rows

Make = Callable[..., RowContext]
ARMC = {"type": "armc", "facts_per_think": 2, "pick": "random"}


def changed(row: SftRow, **updates: Any) -> SftRow:
    return row.model_copy(update=updates)


def at(items: list[Any], index: int, value: Any) -> list[Any]:
    return [*items[:index], value, *items[index + 1 :]]


def inserted(row: SftRow, index: int, token: int, weight: float = 1.0) -> SftRow:
    """The row with one more token."""
    return changed(
        row,
        tokens=[*row.tokens[:index], token, *row.tokens[index:]],
        weights=[*row.weights[:index], weight, *row.weights[index:]],
        cite=[*row.cite[:index], 0, *row.cite[index:]],
    )


def found(rows: list[SftRow], context: RowContext) -> set[str]:
    return {finding.check for finding in audit(rows, context).findings}


@pytest.fixture
def taught(make_context: Make, teacher: list[Episode]) -> tuple[RowContext, list[SftRow]]:
    context = make_context(episodes=teacher)
    return context, build_rows(context, {"type": "recite"})


@pytest.fixture
def cited(make_context: Make, own: list[Episode]) -> tuple[RowContext, list[SftRow]]:
    context = make_context(episodes=own)
    return context, build_rows(context, ARMC)


@pytest.fixture
def asked(make_context: Make) -> tuple[RowContext, list[SftRow]]:
    context = make_context()
    return context, build_rows(context, {"type": "declarative", "ending": "text", "wording": "think"})


Made = tuple[RowContext, list[SftRow]]


def test_sound_rows_pass_every_check(taught: Made, cited: Made, asked: Made) -> None:
    for context, rows in (taught, cited, asked):
        verdict = audit(rows, context)
        assert verdict.passed
        assert verdict.record()["findings_by_check"] == dict.fromkeys(CHECKS, 0)


@pytest.mark.parametrize(
    "updates",
    [
        {"weights": [0.0]},
        {"cite": []},
        {"tokens": [], "weights": [], "cite": []},
        {"weights": "first"},
        {"weights": "negative"},
        {"weights": "infinite"},
        {"weights": "none"},
        {"cite": "two"},
    ],
)
def test_shape(asked: Made, updates: dict[str, Any]) -> None:
    context, rows = asked
    row = rows[0]
    planted = {
        "first": at(row.weights, 0, 1.0),
        "negative": at(row.weights, 5, -1.0),
        "infinite": at(row.weights, 5, float("inf")),
        "none": [0.0] * len(row.weights),
        "two": at(row.cite, 5, 2),
    }
    made = {key: planted[value] if isinstance(value, str) else value for key, value in updates.items()}
    assert found([changed(row, **made)], context) == {"shape"}


@pytest.mark.parametrize("token", [-1, 102, 0, 1])
def test_token_range(asked: Made, token: int) -> None:
    context, rows = asked
    assert found([changed(rows[0], tokens=at(rows[0].tokens, 2, token))], context) == {"token_range"}


def test_length(taught: Made) -> None:
    context, rows = taught
    context.max_context = max(len(row.tokens) for row in rows) - 1
    verdict = audit(rows, context)
    assert {finding.check for finding in verdict.findings} == {"length"}


def test_template_of_a_user_turn(asked: Made, template: Template) -> None:
    context, rows = asked
    assert "template" in found([inserted(rows[0], 1, template.vocab.id("</think>"), 0.0)], context)


def test_template_of_a_reply(asked: Made, template: Template) -> None:
    context, rows = asked
    broken = changed(rows[0], tokens=at(rows[0].tokens, 4, template.vocab.id("<say>")))
    assert "template" in found([broken], context)


def test_template_of_text_before_the_first_turn(taught: Made, template: Template) -> None:
    context, rows = taught
    assert "template" in found([inserted(rows[0], 0, template.vocab.id("look"), 0.0)], context)


def test_mask_on_what_the_model_reads(taught: Made) -> None:
    context, rows = taught
    assert found([changed(rows[0], weights=at(rows[0].weights, 3, 1.0))], context) == {"mask"}


def test_mask_of_a_turn_that_was_not_counted(taught: Made) -> None:
    context, rows = taught
    row = rows[0]
    wrong = row.provenance.model_copy(update={"turns": row.provenance.turns + 1})
    assert found([changed(row, provenance=wrong)], context) == {"mask"}


def test_mask_with_cite_marks_in_a_source_without_insertions(asked: Made) -> None:
    context, rows = asked
    index = rows[0].weights.index(1.0) + 2
    assert "mask" in found([changed(rows[0], cite=at(rows[0].cite, index, 1))], context)


def test_mask_with_cite_marks_on_untrained_tokens(cited: Made) -> None:
    context, rows = cited
    index = rows[0].cite.index(1)
    assert "mask" in found([changed(rows[0], weights=at(rows[0].weights, index, 0.0))], context)


def test_cite_marks_below_the_top(cited: Made) -> None:
    context, rows = cited
    index = rows[0].cite.index(1)
    moved = at(at(rows[0].cite, index, 0), index + 3, 1)
    assert "cite" in found([changed(rows[0], cite=moved)], context)


def test_cite_marks_on_something_that_is_no_verified_fact(cited: Made, template: Template) -> None:
    context, rows = cited
    index = rows[0].cite.index(1)
    for word in ("left@S", "need"):
        planted = changed(rows[0], tokens=at(rows[0].tokens, index, template.vocab.id(word)))
        assert "cite" in found([planted], context)


def test_held_out_facts(cited: Made, template: Template) -> None:
    context, rows = cited
    index = rows[0].cite.index(1)
    planted = changed(rows[0], tokens=at(rows[0].tokens, index, template.vocab.id("wipe@S")))
    assert "held_out" in found([planted], context)


def test_held_out_forms(asked: Made, template: Template) -> None:
    context, rows = asked
    tokens = template.user("ask left") + template.reply_ids("", say="at N is left")
    weights = [0.0] * 4 + [1.0] * (len(tokens) - 4)
    planted = changed(rows[0], tokens=tokens, weights=weights, cite=[0] * len(tokens))
    assert "held_out" in found([planted], context)


def test_duplicates(taught: Made) -> None:
    context, rows = taught
    verdict = audit([*rows, rows[2]], context)
    assert [(finding.row, finding.check) for finding in verdict.findings] == [(len(rows), "duplicate")]


def test_provenance_of_an_unknown_episode(taught: Made) -> None:
    context, rows = taught
    wrong = rows[0].provenance.model_copy(update={"episode": "nowhere"})
    assert found([changed(rows[0], provenance=wrong)], context) == {"provenance"}


def test_provenance_of_an_unknown_atom(asked: Made) -> None:
    context, rows = asked
    wrong = rows[0].provenance.model_copy(update={"atoms": ["dipwheel/left.S"]})
    assert found([changed(rows[0], provenance=wrong)], context) == {"provenance"}


def test_provenance_of_a_row_that_the_parent_does_not_have(
    make_context: Make, own: list[Episode], template: Template
) -> None:
    first = make_context(episodes=own)
    parent = build_rows(first, {"type": "actctrl"})
    context = make_context(parent=parent[1:], starts=dict(first.starts))
    assert found(parent[:1], context) == {"provenance"}
    assert found(parent[1:], context) == set()


def test_recorded_replies(taught: Made, template: Template) -> None:
    """A think that the teacher never thought, true and consistent as it is."""
    context, rows = taught
    row = rows[0]
    index = row.tokens.index(template.vocab.id("green@c"))
    planted = changed(row, tokens=at(row.tokens, index, template.vocab.id("left@N")))
    assert found([planted], context) == {"recorded"}


def test_recorded_length(taught: Made, template: Template) -> None:
    context, rows = taught
    row = rows[0]
    user, reply = template.split(row.tokens)[-1]
    more = user + reply
    planted = changed(
        row,
        tokens=row.tokens + more,
        weights=row.weights + [0.0] * len(user) + [1.0] * len(reply),
        cite=row.cite + [0] * len(more),
    )
    assert {"recorded", "game"} <= found([planted], context)


def test_recorded_catches_cite_marks_taken_away(cited: Made) -> None:
    context, rows = cited
    assert "recorded" in found([changed(rows[0], cite=[0] * len(rows[0].cite))], context)


def test_recorded_catches_a_stance_that_was_not_stripped(make_context: Make, teacher: list[Episode]) -> None:
    context = make_context(episodes=teacher)
    recited = build_rows(context, {"type": "recite"})
    assert "recorded" in found([changed(recited[0], source="nostance")], context)


def test_game_shows_something_else(taught: Made, template: Template) -> None:
    context, rows = taught
    words = {"r": "g", "g": "u", "u": "r"}
    row = rows[0]
    index = next(i for i, t in enumerate(row.tokens) if template.vocab.tokens[t] in words)
    other = words[template.vocab.tokens[row.tokens[index]]]
    planted = changed(row, tokens=at(row.tokens, index, template.vocab.id(other)))
    assert "game" in found([planted], context)


def test_game_has_other_rules_now(taught: Made, game: DipWheel) -> None:
    """Rows of a harvest under one rule set do not pass under another."""
    context, rows = taught
    context.game = DipWheel(Rules(game.rules.regions[::-1], game.rules.paints))
    assert "game" in found(rows, context)


def test_stance_states_a_refuted_fact(taught: Made, template: Template) -> None:
    context, rows = taught
    index = rows[0].tokens.index(template.vocab.id("green@c"))
    planted = changed(rows[0], tokens=at(rows[0].tokens, index, template.vocab.id("green@a")))
    assert "stance" in found([planted], context)


def test_stance_acts_against_the_think(taught: Made, template: Template) -> None:
    context, rows = taught
    index = max(i for i, t in enumerate(rows[0].tokens) if template.vocab.tokens[t].startswith("dip:"))
    word = "dip:N" if template.vocab.tokens[rows[0].tokens[index]] != "dip:N" else "dip:S"
    planted = changed(rows[0], tokens=at(rows[0].tokens, index, template.vocab.id(word)))
    assert "stance" in found([planted], context)


def test_answer_that_the_knowledge_set_does_not_give(asked: Made, template: Template) -> None:
    context, rows = asked
    index = len(rows[0].tokens) - 2
    planted = changed(rows[0], tokens=at(rows[0].tokens, index, template.vocab.id("left@S")))
    assert found([planted], context) == {"answer"}


def test_every_check_has_its_planted_fault() -> None:
    tested = [name.removeprefix("test_") for name in globals() if name.startswith("test_")]
    for check in CHECKS:
        assert any(name == check or name.startswith((check, check + "s")) for name in tested), check


def test_a_failed_audit_names_row_check_expected_and_got(taught: Made) -> None:
    context, rows = taught
    verdict = audit([*rows[:3], changed(rows[3], weights=at(rows[3].weights, 3, 1.0))], context)
    with pytest.raises(UserError) as error:
        verdict.require("teacher_turns")
    text = str(error.value)
    assert "check `mask`" in text
    assert "rows.teacher_turns, row 3" in text
    assert "no weight on what the model reads" in text
    assert "weight 1.0" in text
    assert verdict.record()["findings"][0]["row"] == 3


def test_an_empty_set_passes() -> None:
    assert Audit(0, []).passed
