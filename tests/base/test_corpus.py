"""Meta-training conversations: held-out rules never occur, weights lie on what the model should say."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from internalize.base.corpus import Conversation, Corpus
from internalize.base.recipe import Mix
from internalize.games.dipwheel import DipWheel, Rules, decide, random_rules
from internalize.games.dipwheel.rules import COLOURS, POTS, REGIONS, STATIONS
from internalize.language.template import Template

RULES = st.builds(Rules, st.permutations(REGIONS).map(tuple), st.permutations(COLOURS).map(tuple))


def turns(talk: Conversation, template: Template) -> list[tuple[str, list[int], list[float]]]:
    """(user text, reply ids, reply weights) of each turn."""
    user, assistant = template.vocab.id("<u>"), template.vocab.id("<a>")
    starts = [i for i, token in enumerate(talk.tokens) if token == user] + [len(talk.tokens)]
    cut = []
    for start, end in pairwise(starts):
        middle = talk.tokens.index(assistant, start) + 1
        text = template.vocab.decode(talk.tokens[start + 1 : middle - 1])
        cut.append((text, talk.tokens[middle:end], talk.weights[middle:end]))
    return cut


@settings(max_examples=60, deadline=None)
@given(held_out=RULES, seed=st.integers(0, 10**9))
def test_no_rule_set_with_the_held_out_stations_is_ever_used(held_out: Rules, seed: int) -> None:
    corpus = Corpus(Template.of(DipWheel(held_out)), held_out, Mix(noise_turn=0.5))
    for talk in corpus.batch(random.Random(seed), 20):
        assert talk.rules
        assert all(rules.regions != held_out.regions for rules in talk.rules)


@settings(max_examples=40, deadline=None)
@given(held_out=RULES, seed=st.integers(0, 10**9))
def test_the_facts_in_a_prompt_are_a_whole_rule_set_with_other_stations(held_out: Rules, seed: int) -> None:
    template = Template.of(DipWheel(held_out))
    for talk in Corpus(template, held_out, Mix()).batch(random.Random(seed), 15):
        first = turns(talk, template)[0][0].split()
        if first[0] == "know":
            facts = dict(fact.split("@") for fact in first[1:10])
            assert set(facts) == {*REGIONS, *COLOURS}
            assert sorted(facts[c] for c in COLOURS) == sorted(POTS)
            assert any(facts[region] != held_out.place[region] for region in REGIONS)
            assert {facts[region] for region in REGIONS} == set(STATIONS)


def test_exclusion_is_not_chance(game: DipWheel) -> None:
    """Without the exclusion the held-out stations would come up: one draw in 720 does."""
    rng = random.Random(0)
    free = sum(random_rules(rng).regions == game.rules.regions for _ in range(5000))
    kept = sum(random_rules(rng, game.rules.regions).regions == game.rules.regions for _ in range(5000))
    assert free > 0
    assert kept == 0


def test_every_piece_is_rendered_by_the_template(game: DipWheel, template: Template) -> None:
    for talk in Corpus(template, game.rules, Mix()).batch(random.Random(1), 200):
        again: list[int] = []
        for number, (text, reply, _) in enumerate(turns(talk, template)):
            words = text.split()
            facts = words[1:10] if words[0] == "know" else None
            assert facts is None or number == 0
            again += template.user(" ".join(words[10:]) if facts else text, facts)
            said = template.parse(reply)
            assert said.kind != "bad"
            again += template.reply_ids(said.think, call=said.call, say=said.say)
        assert again == talk.tokens
    assert template.vocab.unknown == 0


def test_weights_lie_on_whole_replies_and_noise_turns_have_none(game: DipWheel, template: Template) -> None:
    kinds: Counter[str] = Counter()
    for talk in Corpus(template, game.rules, Mix()).batch(random.Random(2), 400):
        assert len(talk.tokens) == len(talk.weights)
        for text, reply, weights in turns(talk, template):
            assert set(weights) in ({0.0}, {1.0})
            kinds["trained" if weights[0] else "noise"] += 1
            if not weights[0]:
                assert talk.kind == "known"
            if talk.kind == "known" and weights[0]:
                facts = turns(talk, template)[0][0].split()[1:10]
                stated = [word for word in template.parse(reply).think.split() if "@" in word]
                assert stated
                assert set(stated) <= set(facts)
            assert text
        assert sum(talk.weights) == sum(sum(weights) for _, _, weights in turns(talk, template))
    assert 0.05 < kinds["noise"] / sum(kinds.values()) < 0.12


def test_a_known_turn_acts_on_the_facts_and_an_unknown_one_on_a_fresh_belief(
    game: DipWheel, template: Template
) -> None:
    changed = 0
    for talk in Corpus(template, game.rules, Mix(known=0.5, unknown=0.5, chat=0.0, recital=0.0)).batch(
        random.Random(3), 120
    ):
        beliefs = talk.rules if talk.kind == "known" else talk.rules[1:]
        thinks = [template.parse(reply).think.split("need ")[1] for _, reply, _ in turns(talk, template)]
        if talk.kind == "unknown":
            assert len(beliefs) == talk.turns
            changed += len(set(beliefs)) == len(beliefs) > 1
            for think, belief in zip(thinks, beliefs, strict=True):
                assert set(think.split()[2:]) <= set(belief.facts())
    assert changed > 10


def test_shares_are_what_the_mix_says(game: DipWheel, template: Template) -> None:
    talks = Corpus(template, game.rules, Mix()).batch(random.Random(4), 2000)
    share = {kind: sum(t.kind == kind for t in talks) / len(talks) for kind in ("known", "unknown", "chat")}
    assert share == pytest.approx({"known": 0.60, "unknown": 0.18, "chat": 0.22}, abs=0.04)
    thinks = [template.parse(reply).think for t in talks if t.kind != "chat" for _, reply, _ in turns(t, template)]
    recited = sum(not think.startswith("need") for think in thinks) / len(thinks)
    assert recited == pytest.approx(0.30, abs=0.03)
    chats = [turns(t, template) for t in talks if t.kind == "chat"]
    assert all(len(cut) == 3 for cut in chats)
    blind = sum(not cut[0][0].startswith("know") for cut in chats) / len(chats)
    assert blind == pytest.approx(0.25, abs=0.07)


def test_conversations_fit_the_context(game: DipWheel, template: Template) -> None:
    talks = Corpus(template, game.rules, Mix()).batch(random.Random(5), 1500)
    assert max(len(t.tokens) for t in talks) <= 256
    assert {t.turns for t in talks} >= {1, 2, 3, 8}


def test_equal_seeds_give_equal_conversations(game: DipWheel, template: Template) -> None:
    one, two = (Corpus(template, game.rules, Mix()).batch(random.Random(9), 50) for _ in range(2))
    assert [(t.tokens, t.weights) for t in one] == [(t.tokens, t.weights) for t in two]


def test_a_mix_that_is_no_whole_is_refused(game: DipWheel, template: Template) -> None:
    with pytest.raises(ValueError, match="must sum to 1"):
        Corpus(template, game.rules, Mix(known=0.9))


def test_the_players_words_are_the_games(game: DipWheel) -> None:
    """The corpus plays through the same `decide` as everybody; a change there changes the base."""
    assert decide(game.start(1, 0), game.rules)[0].startswith("need ")
