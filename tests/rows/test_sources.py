"""Each row source on episodes and questions made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from internalize.errors import CorruptPayload, StudyError
from internalize.games.dipwheel import DipWheel, decide
from internalize.harness.episode import Episode
from internalize.language.template import Template
from internalize.records import SftRow
from internalize.rows.audit import audit
from internalize.rows.context import Knowledge, RowContext
from internalize.rows.mask_knowledge import fact_mask
from internalize.rows.sources import BUILDERS, build_rows
from internalize.study_rows import Rows

Make = Callable[..., RowContext]


def words(row: SftRow, template: Template) -> str:
    return template.vocab.decode(row.tokens)


def trained_words(row: SftRow, template: Template) -> list[str]:
    return [template.vocab.tokens[t] for t, w in zip(row.tokens, row.weights, strict=True) if w]


def test_every_source_of_the_study_file_has_a_builder() -> None:
    union = Rows.__args__[0]  # type: ignore[attr-defined]
    types = {model.model_fields["type"].annotation.__args__[0] for model in union.__args__}
    assert types == set(BUILDERS)


def test_an_unknown_source_is_a_study_error(make_context: Make) -> None:
    with pytest.raises(StudyError, match="unknown row source"):
        build_rows(make_context(), {"type": "recit"})


def test_recite_takes_the_knowledge_out_of_the_prompt_only(
    make_context: Make, template: Template, teacher: list[Episode]
) -> None:
    context = make_context(episodes=teacher)
    rows = build_rows(context, {"type": "recite"})
    assert len(rows) + sum(context.dropped_episodes.values()) == len(teacher)
    by_id = {episode.plan.id: episode for episode in teacher}
    for row in rows:
        episode = by_id[row.provenance.episode or ""]
        last = episode.calls[-1]
        whole = last.prompt_ids + last.output_ids
        assert row.tokens == whole[:1] + whole[11:]
        assert "know" not in words(row, template).split()
        replies = [reply for _, reply in template.split(row.tokens)]
        assert replies == [call.output_ids for call in episode.calls]
        assert sum(row.weights) == sum(map(len, replies))
        assert not any(row.cite)
        assert "green@c" in row.provenance.atoms
    assert audit(rows, context).passed


def test_recite_does_not_train_on_falsehoods_or_on_acts_against_the_think(
    make_context: Make, perform: Any, game: DipWheel, template: Template
) -> None:
    def policy(state: Any, turn: int) -> tuple[str, str]:
        think, call = decide(state, game.rules)
        if turn == 0:
            return f"green@a {think}", call
        if turn == 1:
            return think, "dip:S" if call != "dip:S" else "dip:N"
        return think, call

    context = make_context(episodes=perform(policy, [(4, 5)], known=True))
    rows = build_rows(context, {"type": "recite"})
    assert len(rows) == 1
    pieces = template.split(rows[0].tokens)
    assert context.dropped_turns == {"states a refuted fact": 1, "acts against its own facts": 1}
    assert rows[0].provenance.turns == len(pieces) - 2
    first_two = sum(len(user) + len(reply) for user, reply in pieces[:2])
    assert not any(rows[0].weights[:first_two])
    assert "green@a" in words(rows[0], template)  # it stays in the history
    assert audit(rows, context).passed


def test_nostance_cuts_what_stands_before_the_need(
    make_context: Make, template: Template, teacher: list[Episode]
) -> None:
    context = make_context(episodes=teacher)
    rows = build_rows(context, {"type": "nostance"})
    assert rows
    for row in rows:
        for _, reply in template.split(row.tokens):
            assert template.parse(reply).think.startswith("need ")
            assert "@" in template.parse(reply).think
    assert audit(rows, context).passed


def test_actctrl_is_the_episode_as_it_was(make_context: Make, own: list[Episode]) -> None:
    context = make_context(episodes=own)
    rows = build_rows(context, {"type": "actctrl"})
    by_id = {episode.plan.id: episode.calls[-1] for episode in own}
    assert rows
    for row in rows:
        last = by_id[row.provenance.episode or ""]
        assert row.tokens == last.prompt_ids + last.output_ids
    assert audit(rows, context).passed


def test_replay_keeps_the_prompt_and_so_refuses_held_out_facts_in_it(
    make_context: Make, own: list[Episode], teacher: list[Episode]
) -> None:
    context = make_context(episodes=own)
    assert build_rows(context, {"type": "replay"})
    told = make_context(episodes=teacher)
    assert build_rows(told, {"type": "replay"}) == []
    assert told.dropped_episodes["states held-out knowledge"] == len(teacher)


@pytest.mark.parametrize("history", ["recorded", "edited"])
@pytest.mark.parametrize("pick", ["random", "relevant"])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_armc_inserts_true_facts_at_the_top_of_each_think(
    make_context: Make, template: Template, own: list[Episode], pick: str, count: int, history: str
) -> None:
    context = make_context(episodes=own)
    rows = build_rows(context, {"type": "armc", "facts_per_think": count, "pick": pick, "history": history})
    by_id = {episode.plan.id: episode for episode in own}
    assert rows
    for row in rows:
        calls = by_id[row.provenance.episode or ""].calls
        at = 0
        turns = template.split(row.tokens)
        for index, ((user, reply), call) in enumerate(zip(turns, calls, strict=False)):
            at += len(user)
            if history == "recorded" and index < len(turns) - 1:
                assert reply == call.output_ids  # the history is what was played, and not trained
                assert not any(row.weights[at : at + len(reply)])
                at += len(reply)
                continue
            cite = row.cite[at : at + len(reply)]
            inserted = [template.vocab.tokens[t] for t, c in zip(reply, cite, strict=True) if c]
            assert cite == [1] * len(inserted) + [0] * (len(reply) - len(inserted))
            assert reply[len(inserted) :] == call.output_ids
            assert len(inserted) == len(set(inserted)) == min(count, 8)
            assert set(inserted) <= set(context.knowledge.trained_facts)
            if pick == "relevant":
                region, colour = call.think.split("need ")[1].split()[:2]
                about = {fact.split("@")[0]: fact for fact in context.knowledge.trained_facts}
                wanted = [about[s] for s in (region, colour) if s in about]
                assert inserted[: len(wanted)] == wanted[:count]
            at += len(reply)
    assert audit(rows, context).passed


def test_armc_draws_the_same_facts_again(make_context: Make, own: list[Episode]) -> None:
    settings = {"type": "armc", "facts_per_think": 2, "pick": "random"}
    one, two = (build_rows(make_context(episodes=own), settings) for _ in range(2))
    assert one == two


@pytest.mark.parametrize(
    ("ending", "wording", "expected"),
    [
        ("text", "think", "<u> ask left <a> </think> <say> left@N <end>"),
        ("text", "other", "<u> ask left <a> </think> <say> left at N <end>"),
        ("tool_call", "think", "<u> ask left <a> left@N </think> <call> look <end>"),
        ("tool_call", "other", "<u> ask left <a> left at N </think> <call> look <end>"),
    ],
)
def test_declarative_asks_for_each_fact_that_may_be_trained(
    make_context: Make, template: Template, ending: str, wording: str, expected: str
) -> None:
    context = make_context()
    rows = build_rows(context, {"type": "declarative", "ending": ending, "wording": wording})
    texts = [words(row, template) for row in rows]
    assert len(texts) == 8
    assert expected in texts
    assert not any("wipe" in text for text in texts)
    reply = expected.split("<a> ")[1].split()
    assert trained_words(rows[texts.index(expected)], template) == reply
    assert audit(rows, context).passed


def test_claims_are_the_questions_of_all_atoms_that_can_be_said(make_context: Make, template: Template) -> None:
    context = make_context()
    rows = build_rows(context, {"type": "claims"})
    texts = {words(row, template) for row in rows}
    assert len(rows) == len(texts) == 8 * 2 + 1
    assert "<u> ask left red <a> </think> <say> pot:b dip:N <end>" in texts
    assert audit(rows, context).passed


def test_claims_can_be_limited_evenly(make_context: Make) -> None:
    everything = build_rows(make_context(), {"type": "claims"})
    some = build_rows(make_context(), {"type": "claims", "limit": 5})
    assert len(some) == 5
    places = [everything.index(row) for row in some]
    assert places == [index * len(everything) // 5 for index in range(5)]
    assert build_rows(make_context(), {"type": "claims", "limit": 10_000}) == everything


def test_claimform_has_as_many_false_claims_as_true_ones(make_context: Make, template: Template) -> None:
    context = make_context()
    rows = build_rows(context, {"type": "claimform"})
    answers = [words(row, template).split()[-2] for row in rows]
    assert answers.count("true") == answers.count("false") == 16
    for row in rows:
        claim, answer = words(row, template).split(" <a> ")
        fact = claim.replace("<u> claim ", "").replace(" at ", "@")
        assert (fact in context.knowledge.prompt_facts) == ("true" in answer)
    assert audit(rows, context).passed


def test_a_true_claim_that_may_not_be_made_takes_its_false_one_with_it(
    make_context: Make, knowledge: Knowledge, template: Template
) -> None:
    """`at N is left` is a held-out form: a claim in these words goes, and balance stays."""
    claim = {
        **next(row for row in knowledge.recall if row["form"] == "claimform"),
        "atom": "dipwheel/other",
        "wording": "other",
    }
    pair = (
        {**claim, "prompt": "claim at N is left", "answer": "true", "label": True},
        {**claim, "prompt": "claim at S is left", "answer": "false", "label": False},
    )
    context = make_context()
    context.knowledge = replace(knowledge, recall=(*knowledge.recall, *pair))
    rows = build_rows(context, {"type": "claimform"})
    answers = [words(row, template).split()[-2] for row in rows]
    assert answers.count("true") == answers.count("false") == 16
    assert context.dropped_episodes["states held-out knowledge"] == 1
    assert context.dropped_episodes["claim without its counterpart"] == 1


def test_curated_takes_the_parents_rows_of_some_levels(make_context: Make, teacher: list[Episode]) -> None:
    first = make_context(episodes=teacher)
    parent = build_rows(first, {"type": "recite"})
    context = make_context(parent=parent, starts=dict(first.starts))
    rows = build_rows(context, {"type": "curated", "of": "x", "levels": [3, 4]})
    levels = {episode.plan.id: episode.plan.level for episode in teacher}
    assert rows == [row for row in parent if levels[row.provenance.episode or ""] > 2]
    assert context.dropped_episodes["other level"] == len(parent) - len(rows) > 0
    assert audit(rows, context).passed


def test_curated_refuses_a_parent_without_play(make_context: Make) -> None:
    parent = build_rows(make_context(), {"type": "claims"})
    with pytest.raises(StudyError, match="no levels"):
        build_rows(make_context(parent=parent), {"type": "curated", "of": "claims", "levels": [1]})


def test_mask_knowledge_takes_facts_out_of_the_loss(make_context: Make, template: Template, own: list[Episode]) -> None:
    first = make_context(episodes=own)
    parent = build_rows(first, {"type": "armc", "facts_per_think": 2, "pick": "random"})
    context = make_context(parent=parent, starts=dict(first.starts))
    rows = build_rows(context, {"type": "mask_knowledge", "of": "x"})
    assert [row.tokens for row in rows] == [row.tokens for row in parent]
    for row, before in zip(rows, parent, strict=True):
        assert not any("@" in word for word in trained_words(row, template))
        assert [w for w in trained_words(before, template) if "@" not in w] == trained_words(row, template)
        assert not any(row.cite)
    assert audit(rows, context).passed


def test_facts_are_masked_in_both_wordings(template: Template, knowledge: Knowledge) -> None:
    text = "left at N and left@S need left red at red at N"
    tokens = [template.vocab.id(w) if w in template.vocab else template.vocab.id("is") for w in text.split()]
    assert [int(m) for m in fact_mask(tokens, template, knowledge.sayings)] == [1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_softlabel_stores_no_rows(make_context: Make) -> None:
    assert build_rows(make_context(), {"type": "softlabel", "episodes": 4}) == []


def test_unusable_replies_stay_in_the_history_untrained(
    make_context: Make, perform: Any, guessing: Any, template: Template
) -> None:
    def policy(state: Any, turn: int) -> Any:
        if turn == 1:
            return "left@N left@N <end>"
        if turn == 3:
            return "</think> <say> left@N <end>"
        return guessing(state, turn)

    context = make_context(episodes=perform(policy, [(4, 900 + i) for i in range(8)]))
    rows = build_rows(context, {"type": "actctrl"})
    longer = [row for row in rows if len(template.split(row.tokens)) > 1]
    assert longer  # the others fell into a trap at once
    for row in longer:
        pieces = template.split(row.tokens)
        assert template.parse(pieces[1][1]).kind == "bad"
        assert template.parse(pieces[-1][1]).kind == "call"  # the text answer at the end is cut off
        assert row.provenance.turns == len(pieces) - 1
    assert context.dropped_turns["not a call"] > len(longer)
    assert audit(rows, context).passed


def test_what_cannot_be_packed_is_counted(make_context: Make, own: list[Episode], perform: Any, guessing: Any) -> None:
    broken, invalid, twice = perform(guessing, [(4, 950), (4, 951), (4, 952)])
    broken.calls[1].prompt_ids[0] += 1
    invalid.valid, invalid.reason = False, "context"
    again = perform(guessing, [(4, 952)], label="again")[0]
    context = make_context(episodes=[broken, invalid, twice, again], max_context=512)
    assert not broken.prefix_extending
    rows = build_rows(context, {"type": "actctrl"})
    assert len(rows) == 1
    assert context.dropped_episodes["history is not a prefix"] == 1
    assert context.dropped_episodes["invalid: context"] == 1
    assert context.dropped_episodes["duplicate"] == 1
    short = make_context(episodes=own, max_context=10)
    assert build_rows(short, {"type": "actctrl"}) == []
    assert short.dropped_episodes["longer than max_context"] == len(own)


def test_an_episode_that_states_held_out_knowledge_is_dropped(make_context: Make, perform: Any) -> None:
    def policy(state: Any, turn: int) -> tuple[str, str]:
        return "wipe@S need left red left@N red@b", "pot:a"

    context = make_context(episodes=perform(policy, [(2, 1)]))
    assert build_rows(context, {"type": "actctrl"}) == []
    assert context.dropped_episodes == {"states held-out knowledge": 1}


def test_a_harvest_of_another_game_is_refused(make_context: Make, perform: Any, guessing: Any) -> None:
    episode = perform(guessing, [(1, 77)])[0]
    prompt = episode.calls[0].prompt_ids
    prompt[2], prompt[4] = prompt[4], prompt[2]
    with pytest.raises(CorruptPayload, match="first observation"):
        build_rows(make_context(episodes=[replace(episode, calls=episode.calls[:1])]), {"type": "actctrl"})
